"""Infers the types of JSON rows: objects become structs of all their keys, values without a common type JSON text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from crannog.errors import CallerError
from crannog.formats.json_rows import STRICT, InexactValue, JsonBlock, Number, check_numbers, contains_type, read_json
from crannog.formats.text_columns import CALENDAR, TextTypeInference

_LONG_NUMBER = re.compile(rb"[0-9]{16}")
_FIRST_INT, _LAST_INT = -(1 << 63), (1 << 63) - 1


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type that can hold the values of both; JSON text if there is no closer one."""
    types = pa.types
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if types.is_struct(one) and types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = common_type(fields[field.name], field.type) if field.name in fields else field.type
        return pa.struct(list(fields.items()))
    if types.is_list(one) and types.is_list(other):
        return pa.list_(common_type(one.value_type, other.value_type))
    return pa.string()


def storable_type(kind: pa.DataType) -> pa.DataType:
    """Return a type that a table supports: what was only null or empty becomes text."""
    return _each_inside(kind, lambda inner: pa.string() if _is_open(inner) else inner)


def _each_inside(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with every type inside lists and structs changed."""
    if pa.types.is_list(kind):
        return pa.list_(_each_inside(kind.value_type, change))
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct([(field.name, _each_inside(field.type, change)) for field in kind])
    return change(kind)


def type_of(value: Any) -> pa.DataType:
    """Return the type of one value of a JSON document."""
    if value is None:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if _FIRST_INT <= value <= _LAST_INT else pa.string()
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, dict):
        return pa.struct([(name, type_of(inner)) for name, inner in value.items()])
    if isinstance(value, list):
        inner: pa.DataType = pa.null()
        for part in value:
            inner = common_type(inner, type_of(part))
        return pa.list_(inner)
    return pa.string()


class JsonTypeInference:
    """The columns of JSON rows, and their types as seen so far."""

    def __init__(self) -> None:
        self.columns: dict[str, pa.DataType] = {}
        self._kinds: dict[str, TextTypeInference] = {}
        self._mixed: set[str] = set()
        self.sure = True

    def observe(self, block: JsonBlock) -> None:
        """Update the types from a block; lines that are not objects are skipped."""
        data = b"\n".join(block.lines)
        try:
            rows = self._read(data, len(block.lines))
        except (InexactValue, pa.ArrowException, UnicodeDecodeError):
            self.sure = False
            self._observe_one_by_one(block)
            return
        for name in rows.column_names:
            column = rows.column(name)
            self._merge(name, column.type)
            if pa.types.is_string(column.type):
                kinds = self._kinds.setdefault(name, TextTypeInference(CALENDAR))
                for chunk in column.chunks:
                    kinds.observe(chunk)

    def _read(self, data: bytes, count: int) -> pa.Table:
        known = [pa.field(name, kind) for name, kind in self.columns.items() if not contains_type(kind, _is_open)]
        try:
            rows = read_json(data, pa.schema(known), "infer")
        except pa.ArrowException:
            rows = read_json(data, pa.schema([]), "infer")
        timely = [
            pa.field(f.name, _without_times(f.type))
            for f in rows.schema
            if contains_type(f.type, pa.types.is_timestamp)
        ]
        if timely:
            # Arrow reads some strings as times; here they are strings first.
            known = [field for field in known if field.name not in {other.name for other in timely}]
            rows = read_json(data, pa.schema([*known, *timely]), "infer").select(rows.column_names)
        if rows.num_rows != count:
            raise InexactValue
        check_digits(rows, data)
        rows.validate(full=True)
        return rows

    def _observe_one_by_one(self, block: JsonBlock) -> None:
        for line in block.lines:
            try:
                row = parse_line(line)
            except ValueError:
                continue
            for name, value in row.items():
                self._merge(name, type_of(value), is_text=not isinstance(value, int) or type_of(value) != pa.string())
                if isinstance(value, str):
                    self._kinds.setdefault(name, TextTypeInference(CALENDAR)).observe(
                        pa.array([value.encode("utf-8", "replace").decode()])
                    )

    def _merge(self, name: str, kind: pa.DataType, *, is_text: bool = True) -> None:
        before = self.columns.get(name, pa.null())
        after = self.columns[name] = common_type(before, kind)
        if not is_text or (pa.types.is_string(after) and not all(map(_is_text_or_none, (before, kind)))):
            self._mixed.add(name)
        if not _only_grew(before, after):
            self.sure = False  # earlier values must fit the new type too

    def types(self) -> dict[str, pa.DataType | None]:
        """Return each column's type; None for one without any value."""
        found: dict[str, pa.DataType | None] = {}
        for name, kind in self.columns.items():
            found[name] = None if pa.types.is_null(kind) else storable_type(kind)
            if pa.types.is_string(kind) and name in self._kinds and name not in self._mixed:
                found[name] = self._kinds[name].type or pa.string()
        return found


def _is_text_or_none(kind: pa.DataType) -> bool:
    return bool(pa.types.is_null(kind) or pa.types.is_string(kind))


def _only_grew(before: pa.DataType, after: pa.DataType) -> bool:
    if before == after or pa.types.is_null(before):
        return True
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        return all(_only_grew(field.type, after.field(field.name).type) for field in before)
    return bool(
        pa.types.is_list(before) and pa.types.is_list(after) and _only_grew(before.value_type, after.value_type)
    )


def _is_open(kind: pa.DataType) -> bool:
    return bool(pa.types.is_null(kind) or (pa.types.is_struct(kind) and not kind.num_fields))


def _without_times(kind: pa.DataType) -> pa.DataType:
    return _each_inside(kind, lambda inner: pa.string() if pa.types.is_timestamp(inner) else inner)


def check_digits(rows: pa.Table, data: bytes) -> None:
    """Raise InexactValue if a number anywhere in rows read from `data` may have lost digits."""
    try:
        for column in rows.columns:
            _check_inside(column)
    except InexactValue:
        # A number that is large only because of its exponent lost nothing.
        if _LONG_NUMBER.search(data):
            raise


def _check_inside(column: Any) -> None:
    for array in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if pa.types.is_struct(array.type):
            for place in range(array.type.num_fields):
                _check_inside(array.field(place))
        elif pa.types.is_list(array.type):
            _check_inside(array.flatten())
        else:
            check_numbers(array)


def parse_line(line: bytes) -> dict[str, Any]:
    """Read the object on a line. Raises ValueError with the reason if it is not an object."""
    try:
        row = json.loads(line.decode(), parse_float=Number, object_pairs_hook=STRICT["object_pairs_hook"])
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text, byte {error.start} is {line[error.start]:#04x}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not valid JSON: {error.msg} in column {error.colno}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(row, dict):
        raise ValueError("a row is a JSON object, this is another value")
    return row


def flat_types(types: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
    """Return the columns of flattened structs, a_b for field b of a. Raises CallerError if two have the same name."""
    found: dict[str, pa.DataType | None] = {}
    for name, kind in types.items():
        inner: dict[str, pa.DataType | None] = {name: kind}
        if kind is not None and pa.types.is_struct(kind):
            inner = {
                f"{name}_{below}": part
                for below, part in flat_types({field.name: field.type for field in kind}).items()
            }
        for column, part in inner.items():
            if column in found:
                raise CallerError(f"two values would be column {column} when flattened; load without it, or rename one")
            found[column] = part
    return found


def flat_row(row: Mapping[str, Any], types: Mapping[str, pa.DataType | None]) -> dict[str, Any]:
    """Return a row with the columns of `flat_types`."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        kind = types.get(name)
        if kind is not None and pa.types.is_struct(kind) and isinstance(value, dict):
            inner = flat_row(value, {field.name: field.type for field in kind})
            found.update((f"{name}_{below}", part) for below, part in inner.items())
        elif kind is None or not pa.types.is_struct(kind) or value is not None:
            found[name] = value
    return found


def flat_table(rows: pa.Table) -> pa.Table:
    """Return rows with the columns of `flat_types`."""
    while any(pa.types.is_struct(field.type) for field in rows.schema):
        names = []
        for field in rows.schema:
            names += (
                [f"{field.name}_{inner.name}" for inner in field.type]
                if pa.types.is_struct(field.type)
                else [field.name]
            )
        rows = rows.flatten().rename_columns(names)
    return rows
