"""The schema of a table: the types users may choose, the columns Crannog adds, and which columns may be keys.

A schema is given as pyarrow, a Pydantic model or JSON Schema and is converted to one normal form that all engines
support (Delta reader 1, writer 2). `schema_json` writes it to the log and decides how it may change; its names are
exported here, so that callers need one module.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pydantic import BaseModel

from crannog.delta.json_schema import MAX_NESTING, from_json_schema, from_pydantic
from crannog.delta.schema_json import (
    INSTANT,
    RESERVED_PREFIX,
    SchemaDifference,
    difference,
    evolved,
    fingerprint,
    from_delta_json,
    list_of,
    map_of,
    to_delta_json,
)
from crannog.errors import CallerError


def comparison_forms(name: str) -> tuple[str, str]:
    """Return the two forms that engines compare: names that share one of them are equal to some engine."""
    lower = name.lower()
    return lower, lower if name.isascii() else "".join(map(_case_folded, name))


def _case_folded(character: str) -> str:
    upper = character.upper()
    if len(upper) > 1:  # Java maps one code point to one: ß is unchanged
        upper = character
    # İ alone has a lower case of two code points; one to one it is i.
    return "i" if upper == "İ" else upper.lower()


def colliding_columns(fields: Iterable[pa.Field], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the pairs of columns, nested fields included, whose names an engine treats as equal."""
    by_lower: dict[str, str] = {}
    by_folded: dict[str, str] = {}
    for field in fields:
        lower, folded = comparison_forms(field.name)
        other = by_lower.get(lower) or by_folded.get(folded)
        if other is not None:
            yield f"{path}{other}", f"{path}{field.name}"
        by_lower.setdefault(lower, field.name)
        by_folded.setdefault(folded, field.name)
        yield from _nested_collisions(field.type, path + field.name)


def _nested_collisions(type_: pa.DataType, path: str) -> Iterator[tuple[str, str]]:
    if pa.types.is_struct(type_):
        yield from colliding_columns(type_, f"{path}.")
    elif pa.types.is_map(type_):
        yield from _nested_collisions(type_.key_type, f"{path}[key]")
        yield from _nested_collisions(type_.item_type, f"{path}[value]")
    elif pa.types.is_list(type_):
        yield from _nested_collisions(type_.value_type, f"{path}[]")


__all__ = [
    "RESERVED_PREFIX",
    "SYSTEM_COLUMNS",
    "SchemaDifference",
    "check_key",
    "check_partition_by",
    "column_names",
    "difference",
    "evolved",
    "fingerprint",
    "from_delta_json",
    "to_delta_json",
    "user_columns",
    "user_schema",
    "with_system_columns",
]

DATE_COLUMN = "_date"

SYSTEM_COLUMNS: dict[str, pa.Field] = {
    "_created_at": pa.field("_created_at", INSTANT, nullable=False),
    "_batch_id": pa.field("_batch_id", pa.string(), nullable=False),
    DATE_COLUMN: pa.field(DATE_COLUMN, pa.date32(), nullable=False),
}
"""The columns that Crannog adds to every row, in this order; `_date` only if the table is partitioned by it."""

_MAX_NAME_LENGTH = 255
# Parquet and Spark reject most of these in a column name; dot, backtick and quote would need quoting in every query.
_FORBIDDEN = re.compile(r'[ ,;{}()=.`"\x00-\x1f\x7f]')

_STORED_TYPES = frozenset(
    {
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
        *(pa.string(), pa.binary(), pa.date32(), INSTANT),
    }
)
_TEXT_TYPES = (pa.large_string(), pa.string_view())
_BINARY_TYPES = (pa.large_binary(), pa.binary_view())

_HINTS: tuple[tuple[Any, str], ...] = (
    (pa.types.is_unsigned_integer, "use the next wider signed integer"),
    (pa.types.is_float16, "use float32"),
    (pa.types.is_time, "use int64 or string"),
    (pa.types.is_duration, "use int64 with the unit in the column's name"),
    (pa.types.is_decimal, "use decimal128 of at most 38 digits with 0 to that many decimals"),
    (pa.types.is_null, "give the column a type"),
    (pa.types.is_union, "use a struct with one nullable field for each variant"),
    (pa.types.is_struct, "give the struct at least one field"),
    (pa.types.is_run_end_encoded, "use the type of its values"),
)


def user_schema(
    source: pa.Schema | type[BaseModel] | Mapping[str, Any], *, known_pairs: Collection[tuple[str, str]] = ()
) -> pa.Schema:
    """Return the user columns of a table in normal form, in the order given.

    `known_pairs` are colliding columns that an old table already has. Raises CallerError with the path of the column
    (like `order.lines[].price`) and what to use instead.
    """
    if isinstance(source, pa.Schema):
        given = source
    elif isinstance(source, type) and issubclass(source, BaseModel):
        given = from_pydantic(source)
    elif isinstance(source, Mapping):
        given = from_json_schema(source)
    else:
        raise CallerError(
            f"a schema is a pyarrow.Schema, a Pydantic model class or a JSON Schema dict, got {_kind_of(source)}"
        )
    if len(given) == 0:
        raise CallerError("a table needs at least one column, the schema has none")
    fields = _normal_fields(given, "", 1)
    for field in fields:
        if field.name.startswith(RESERVED_PREFIX):
            raise CallerError(
                f"column {field.name} starts with '{RESERVED_PREFIX}', which is reserved; choose another name"
            )
    for one, other in colliding_columns(fields):
        if (one, other) in known_pairs:
            continue
        if one == other:
            raise CallerError(f"column {one} appears twice; rename one")
        raise CallerError(f"Spark, which ignores case, cannot tell columns {one} and {other} apart; rename one")
    return pa.schema(fields)


def user_columns(schema: pa.Schema) -> pa.Schema:
    """Return the schema without the system columns."""
    return pa.schema([field for field in schema if not field.name.startswith(RESERVED_PREFIX)])


def with_system_columns(schema: pa.Schema, partition_by: Sequence[str] = ()) -> pa.Schema:
    """Return the schema of the table on disk: the user columns, then the system columns."""
    system = [f for name, f in SYSTEM_COLUMNS.items() if name != DATE_COLUMN or DATE_COLUMN in partition_by]
    return pa.schema([*schema, *system])


def column_names(given: Sequence[str] | str | None, role: str) -> tuple[str, ...]:
    """Return the column names given as a list, as one name or as None; `role` names the argument in errors."""
    if given is None:
        return ()
    names = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(name, str) for name in names):
        raise CallerError(f"{role} is a list of column names, got {given!r}")
    return names


def check_key(schema: pa.Schema, key: Sequence[str]) -> pa.Schema:
    """Return the schema with its key columns not null; an empty key changes nothing.

    Raises CallerError if a key column does not exist, is given twice, or has a type that cannot be compared exactly.
    """
    wanted = _select_columns(schema, key, "key")
    for field in wanted.values():
        if not _is_exact(field.type):
            raise CallerError(
                f"column {field.name} is {field.type} and cannot be a key;"
                " keys are strings, integers, dates, timestamps, binary, decimals or booleans"
            )
    return pa.schema([field.with_nullable(False) if field.name in wanted else field for field in schema])


def check_partition_by(schema: pa.Schema, partition_by: Sequence[str]) -> tuple[str, ...]:
    """Return the partition columns as a tuple; `_date` is always allowed.

    Raises CallerError if a column does not exist, is given twice, has a type that is unsuitable for folder names,
    or if no column would be left for the files.
    """
    users = user_columns(schema)
    known = pa.schema([*users, SYSTEM_COLUMNS[DATE_COLUMN]])
    wanted = _select_columns(known, partition_by, "partition")
    for field in wanted.values():
        kind = field.type
        if not (kind in (pa.string(), pa.date32(), pa.bool_()) or pa.types.is_integer(kind)):
            raise CallerError(
                f"column {field.name} is {kind} and cannot partition a table;"
                " partition columns are strings, integers, dates or booleans"
            )
    if wanted and all(field.name in wanted for field in users):
        raise CallerError("partition_by has every column; leave out at least one")
    return tuple(wanted)


def _select_columns(schema: pa.Schema, names: Sequence[str], role: str) -> dict[str, pa.Field]:
    if isinstance(names, str):
        raise CallerError(f"the {role} columns are a list of names, got the text {names!r}; give [{names!r}]")
    fields = {field.name: field for field in schema}
    chosen: dict[str, pa.Field] = {}
    for name in names:
        if name in chosen:
            raise CallerError(f"{role} column {name} is given twice")
        if name not in fields:
            raise CallerError(
                f"{role} column {name} is not a column of the table; it has {', '.join(fields)}"
                + (" (nested columns cannot be used)" if "." in str(name) else "")
            )
        chosen[name] = fields[name]
    return chosen


def _is_exact(type_: pa.DataType) -> bool:
    return type_ in (pa.string(), pa.binary(), pa.date32(), INSTANT, pa.bool_()) or bool(
        pa.types.is_integer(type_) or pa.types.is_decimal(type_)
    )


def _normal_fields(fields: Iterable[pa.Field], path: str, depth: int) -> list[pa.Field]:
    normal = []
    for field in fields:
        name: str = field.name
        _check_name(name, path)
        normal.append(pa.field(name, _normal(field.type, path + name, depth), nullable=field.nullable))
    return normal


def _check_name(name: str, path: str) -> None:
    if not name:
        raise CallerError(f"a column{f' in {path[:-1]}' if path else ''} has an empty name; give every column one")
    if name.lower() == "file_row_number":
        raise CallerError(f"column {path}{name} has the name that DuckDB uses for row positions; choose another")
    found = _FORBIDDEN.search(name)
    if found:
        raise CallerError(
            f'column {path}{name!r} has {found[0]!r} in its name; spaces and any of ,;{{}}()=.`" are not allowed'
        )
    if len(name) > _MAX_NAME_LENGTH:
        raise CallerError(
            f"column {path}{name[:40]}… has a name of {len(name)} characters; the maximum is {_MAX_NAME_LENGTH}"
        )


def _normal(type_: pa.DataType, path: str, depth: int) -> pa.DataType:
    if depth > MAX_NESTING:
        raise CallerError(f"column {path} is nested deeper than {MAX_NESTING} levels")
    types = pa.types
    if type_ in _STORED_TYPES:
        return type_
    if types.is_dictionary(type_):
        return _normal(type_.value_type, path, depth)
    if type_ in _TEXT_TYPES:
        return pa.string()
    if type_ in _BINARY_TYPES or types.is_fixed_size_binary(type_):
        return pa.binary()
    if types.is_date64(type_):
        return pa.date32()
    if types.is_timestamp(type_):
        return _normal_timestamp(type_, path)
    if types.is_decimal(type_) and type_.precision <= 38 and 0 <= type_.scale <= type_.precision:
        return pa.decimal128(type_.precision, type_.scale)
    if types.is_map(type_):
        return _normal_map(type_, path, depth)
    if _is_list(type_):
        element = type_.value_field
        return list_of(_normal(element.type, path + "[]", depth + 1), nullable=element.nullable)
    if types.is_struct(type_) and type_.num_fields:
        return pa.struct(_normal_fields(type_, path + ".", depth + 1))
    hint = next((text for is_kind, text in _HINTS if is_kind(type_)), "use a basic Arrow type")
    raise CallerError(f"column {path} has type {type_}, which a table cannot hold; {hint}")


def _is_list(type_: pa.DataType) -> bool:
    types = pa.types
    plain = types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_)
    return bool(plain or types.is_list_view(type_) or types.is_large_list_view(type_))


def _normal_timestamp(type_: pa.DataType, path: str) -> pa.DataType:
    if type_.tz is None:
        raise CallerError(f"column {path} has type {type_} without a time zone; use timestamp('us', tz='UTC')")
    if type_.unit == "ns":
        raise CallerError(
            f"column {path} has type {type_}; Delta stores microseconds, use timestamp('us', tz='UTC')"
            " or int64 for nanoseconds since 1970"
        )
    return INSTANT


def _normal_map(type_: pa.DataType, path: str, depth: int) -> pa.DataType:
    key = _normal(type_.key_type, path + "[key]", depth + 1)
    if not _is_exact(key):
        raise CallerError(
            f"column {path}[key] has type {key}; map keys must be strings, integers, dates, timestamps, binary, decimals or booleans"
        )
    value = type_.item_field
    return map_of(key, _normal(value.type, path + "[value]", depth + 1), nullable=value.nullable)


def _kind_of(source: object) -> str:
    return f"the class {source.__name__}" if isinstance(source, type) else type(source).__name__


def all_nullable(schema: pa.Schema) -> pa.Schema:
    """Return the schema with all columns and nested fields nullable: Parquet rejects even hidden nulls in nested ones."""
    return pa.schema([pa.field(field.name, _nullable_inside(field.type)) for field in schema])


def _nullable_inside(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(child.name, _nullable_inside(child.type)) for child in kind.fields])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _nullable_inside(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(
            _nullable_inside(kind.key_type), pa.field(kind.item_field.name, _nullable_inside(kind.item_type))
        )
    return kind
