"""JSON made into rows of a table: by Arrow where that is exact, else line by line, so that a bad line can be named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crannog.api.reports import BadRow
from crannog.engine.rows.arrow import from_table
from crannog.engine.rows.values import Call, Node, plan_of
from crannog.errors import CrannogError
from crannog.formats.input_files import Bytes, Source
from crannog.formats.json_rows import (
    InexactValue,
    JsonBlock,
    blocks_of_lines,
    blocks_of_values,
    contains_type,
    exact_value,
    is_calendar,
    is_scalar,
    read_json,
)
from crannog.formats.json_types import (
    JsonTypeInference,
    check_digits,
    flat_row,
    flat_table,
    flat_types,
    parse_line,
)
from crannog.formats.text_columns import read_column
from crannog.tables.load_parts import Block, Reader, Seen, Survey, Target, whole_array

_CALL = Call("", "load")


class JsonReader(Reader):
    """One file of JSON: an array, objects, or lines."""

    def __init__(self, source: Source, *, flatten: bool = False) -> None:
        super().__init__(source)
        self._flatten = flatten
        # The columns as the file has them, nested; known once it was looked through.
        self._shape: dict[str, pa.DataType | None] = {}

    def survey(self, target: Target, seen: Seen) -> Survey:
        survey, shape, nodes = Survey(), JsonTypeInference(), target.nodes()
        # Flattened rows can be checked only once it is known what is an object everywhere.
        checks = target.complete and (not self._flatten or bool(self._shape))
        learns = not (checks and self._flatten)
        more = not checks
        with self.source.open() as data:
            for block in self._blocks(data):
                rows = None if more else self._by_arrow(block, target, "error")
                if rows is None and learns:
                    shape.observe(block)
                    self._learn(shape)
                    more = more or not nodes.keys() >= set(self._names.values())
                    rows = self._by_arrow(block, target, "ignore") if checks else None
                if rows is not None:
                    survey.rows += rows.num_rows
                    survey.add_good(rows)
                elif checks:
                    self._check_lines(block, target, nodes, survey)
                else:
                    survey.rows += len(block.lines)
                seen(data.consumed, len(block.lines))
            survey.digest = data.digest()
        survey.renamed = self._renamed
        for name, kind in (flat_types(self._shape) if self._flatten else self._shape).items():
            column = self._names[name]
            survey.columns[column] = nodes[column].type if column in nodes else kind
        for name, count in survey.good_in.items():
            if count:
                survey.columns.setdefault(name, nodes[name].type)
        survey.sure = checks or (shape.sure and not nodes and not target.required and not target.filled)
        return survey

    def _learn(self, shape: JsonTypeInference) -> None:
        self._shape = shape.types()
        self._name_columns(list(flat_types(self._shape) if self._flatten else self._shape))

    def _check_lines(self, block: JsonBlock, target: Target, nodes: dict[str, Node], survey: Survey) -> None:
        good, bad = self._by_line(block, target, nodes)
        survey.rows += len(good)
        survey.add_bad([row for row, _ in bad])
        for name in nodes:
            survey.good_in[name] = survey.good_in.get(name, 0) + sum(row.get(name) is not None for row in good)

    def blocks(self, target: Target, seen: Seen) -> Iterator[Block]:
        nodes = target.nodes()
        with self.source.open() as data:
            for block in self._blocks(data):
                bad: list[tuple[BadRow, Any]] = []
                rows = self._by_arrow(block, target, "ignore")
                if rows is None:
                    good, bad = self._by_line(block, target, nodes)
                    arrays = [pa.array([row.get(f.name) for row in good], f.type) for f in target.known]
                    rows = pa.Table.from_arrays(arrays, schema=target.known)
                seen(data.consumed, len(block.lines))
                yield Block(target.with_all_columns(rows), bad)

    def _blocks(self, data: Bytes) -> Iterator[JsonBlock]:
        return (
            blocks_of_lines(data, self.source) if self.source.form == "ndjson" else blocks_of_values(data, self.source)
        )

    def _by_arrow(self, block: JsonBlock, target: Target, unexpected: str) -> pa.Table | None:
        """Return the columns of the target that the block has; None if Arrow's reading would not be exact, or fails."""
        old_names = {new: old for old, new in self._names.items()}
        if unexpected == "ignore" and self._loses_inside(target):
            return None
        try:
            if self._flatten:
                shape = [pa.field(name, _read_as(kind)) for name, kind in self._shape.items() if kind is not None]
            else:
                shape = [pa.field(old_names.get(f.name, f.name), _read_as(f.type)) for f in target.known]
            data = b"\n".join(block.lines)
            read = read_json(data, pa.schema(shape), unexpected)
            if read.num_rows != len(block.lines):
                return None
            check_digits(read, data)
            read = flat_table(read) if self._flatten else read
            names = [self._names.get(name, name) for name in read.column_names]
            given = frozenset(names)
            read = read.rename_columns(names).select([name for name in target.known.names if name in given])
            return _exact(read, target)
        except (InexactValue, pa.ArrowException, UnicodeDecodeError, CrannogError):
            return None

    def _loses_inside(self, target: Target) -> bool:
        """Tell whether an object has a key that the table's struct lacks: such a row is bad, and Arrow would leave the key out."""
        known = {field.name: field.type for field in target.known}
        return not self._flatten and any(
            kind is not None and self._names[name] in known and not _covers(known[self._names[name]], kind)
            for name, kind in self._shape.items()
        )

    def _by_line(
        self, block: JsonBlock, target: Target, nodes: dict[str, Node]
    ) -> tuple[list[dict[str, Any]], list[tuple[BadRow, Any]]]:
        good: list[dict[str, Any]] = []
        bad: list[tuple[BadRow, Any]] = []
        for line, number in zip(block.lines, block.numbers, strict=True):
            row, column, value, reason = self._row(line, target, nodes)
            if reason:
                text = line.decode("utf-8", "backslashreplace")
                bad.append((self._bad_row(number, column, value if column else text, reason), text))
            else:
                good.append(row)
        return good, bad

    def _row(self, line: bytes, target: Target, nodes: dict[str, Node]) -> tuple[dict[str, Any], str, Any, str]:
        """Return the row on a line, or the column, the value and the reason that it cannot be kept."""
        try:
            given = parse_line(line)
        except ValueError as error:
            return {}, "", None, str(error)
        if self._flatten:
            given = flat_row(given, self._shape)
        row = {}
        values = {self._names.get(name, name): value for name, value in given.items()}
        for name, node in nodes.items():
            value = values.get(name)
            try:
                row[name], reason = target.exact(exact_value(value, node.type, any_as_text=True), node)
            except (ValueError, RecursionError):
                reason = "the value cannot be read"
            if reason:
                return {}, name, value, reason
        return row, "", None, ""


def _read_as(kind: pa.DataType) -> pa.DataType:
    """Return the type in which Arrow reads a column exactly. Raises Misfit if no type does."""
    if is_calendar(kind):
        return pa.string()
    if contains_type(
        kind,
        lambda inner: (
            not (is_scalar(inner) or pa.types.is_string(inner) or pa.types.is_struct(inner) or pa.types.is_list(inner))
        ),
    ):
        raise InexactValue
    return kind


def _covers(kept: pa.DataType, found: pa.DataType) -> bool:
    if pa.types.is_struct(kept) and pa.types.is_struct(found):
        have = {field.name: field.type for field in kept}
        return all(field.name in have and _covers(have[field.name], field.type) for field in found)
    return not (pa.types.is_list(kept) and pa.types.is_list(found)) or _covers(kept.value_type, found.value_type)


def _exact(read: pa.Table, target: Target) -> pa.Table:
    columns = []
    for name in read.column_names:
        field, column = target.known.field(name), read.column(name)
        if is_calendar(field.type) and pa.types.is_string(column.type):
            if pc.any(pc.equal(column, "")).as_py():
                raise InexactValue  # empty text is no time; the look at each line says so
            values, unread = read_column(whole_array(column), field.type)
            if unread is not None:
                raise InexactValue
            columns.append(values)
        else:
            columns.append(column)
        if name in target.filled and pa.types.is_string(field.type) and pc.any(pc.equal(column, "")).as_py():
            raise InexactValue
    if not target.required <= set(read.column_names):
        raise InexactValue
    schema = pa.schema([target.known.field(name) for name in read.column_names])
    return from_table(pa.table(columns, names=read.column_names), plan_of(schema), _CALL, naive_is_utc=True)
