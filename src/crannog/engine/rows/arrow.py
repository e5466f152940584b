"""Rows as Arrow, pandas or Polars: columns cast only where nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from crannog.engine.rows.values import (
    LONGEST_SHOWN,
    MISFITS,
    BadValue,
    Call,
    Node,
    Plan,
    WrongType,
    check_calendar,
    shown,
)
from crannog.errors import BadRows, CallerError, SchemaMismatch
from crannog.names import first_repeated

_MOST_LISTED = 20


def as_table(rows: Any, call: Call) -> tuple[pa.Table, bool]:
    """The rows as Arrow, and whether times without a zone in them mean UTC (only pandas' do)."""
    try:
        if isinstance(rows, pa.Table):
            return rows, False
        if isinstance(rows, pa.RecordBatch):
            return pa.Table.from_batches([rows]), False
        # pandas first: it offers the stream too, but with its index among the columns.
        if type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns"):
            return pa.Table.from_pandas(rows, preserve_index=False), True
        if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
            return pa.table(rows), False
    except MISFITS as error:
        raise BadRows(f"{call}: the batch cannot be read as Arrow: {error}; nothing of the batch was kept") from error
    hint = "; give a list with this one row" if isinstance(rows, Mapping) or hasattr(rows, "model_dump") else ""
    raise CallerError(
        f"{call}: rows are a list of dicts or models, an Arrow table or batch, or a pandas or Polars frame,"
        f" got {type(rows).__name__}{hint}"
    )


def from_table(batch: pa.Table, plan: Plan, call: Call, *, naive_is_utc: bool) -> pa.Table:
    names = batch.column_names
    unknown = [name for name in names if name not in plan.names]
    if unknown:
        own = " (columns that start with '_' are set by Crannog)" if any(n.startswith("_") for n in unknown) else ""
        raise SchemaMismatch(f"{call}: the batch has {_listed(unknown)}, the table has no such column{own}")
    given = frozenset(names)
    if len(given) < len(names):
        raise SchemaMismatch(f"{call}: the batch has column {first_repeated(names)} twice")
    columns = []
    for node in plan.columns:
        if node.name in given:
            columns.append(_fit_column(batch.column(node.name), node, call, naive_is_utc))
        elif node.nullable:
            columns.append(_nulls(batch.num_rows, node.type))
        else:
            raise SchemaMismatch(f"{call}: column {node.path} is {node.type} not null, the batch does not have it")
    return pa.Table.from_arrays(columns, schema=plan.schema)


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_LISTED
    shown_names = ", ".join(name[:LONGEST_SHOWN] for name in names[:_MOST_LISTED])
    return f"{shown_names} and {more:,} more" if more > 0 else shown_names


def _fit_column(column: pa.ChunkedArray, node: Node, call: Call, naive_is_utc: bool) -> pa.ChunkedArray:
    fitted, start = [], 0
    try:
        if not column.num_chunks:
            _fit(pa.nulls(0, column.type), node, naive_is_utc)
        for chunk in column.chunks:
            try:
                fitted.append(_fit(chunk, node, naive_is_utc))
            except pa.ArrowNotImplementedError:
                _mismatch(chunk, node)
            except (BadValue, *MISFITS) as error:
                row = _first_misfit(chunk, node, naive_is_utc)
                reason, path = (error.reason, error.path) if isinstance(error, BadValue) else (str(error), node.path)
                call.refuse(start + row, path, f"{_scalar(chunk, row)}: {reason}")
            start += len(chunk)
    except WrongType as wrong:
        raise SchemaMismatch(f"{call}: {wrong}") from None
    return pa.chunked_array(fitted, type=node.type)


def _first_misfit(chunk: pa.Array, node: Node, naive_is_utc: bool) -> int:
    """The first row that does not fit, by halving: a few passes over columns instead of one over Python objects."""
    low, high = 0, len(chunk)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _fit(chunk.slice(low, middle - low), node, naive_is_utc)
            low = middle
        except (BadValue, *MISFITS):
            high = middle
    return low


def _scalar(chunk: pa.Array, row: int) -> str:
    try:
        return shown(chunk[row].as_py())
    except Exception:  # what cannot be kept may not be a Python value either
        return "the value"


def _fit(array: pa.Array, node: Node, naive_is_utc: bool) -> pa.Array:
    """The array with the node's type; raises WrongType, or BadValue or one of `MISFITS` for a value."""
    array.validate(full=True)
    plain = _without_views(array.type)
    return _fit_valid(array if plain is array.type else array.cast(plain), node, naive_is_utc)


def _without_views(type_: pa.DataType) -> pa.DataType:
    """The type with plain strings and bytes inside; Polars sends views, which Arrow cannot filter or take from."""
    if pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_binary_view(type_):
        return pa.binary()
    if pa.types.is_struct(type_):
        fields = [field.with_type(_without_views(field.type)) for field in type_]
        return type_ if all(map(pa.Field.equals, fields, type_)) else pa.struct(fields)
    if pa.types.is_map(type_):
        key, item = _without_views(type_.key_type), _without_views(type_.item_type)
        plain = pa.map_(type_.key_field.with_type(key), type_.item_field.with_type(item))
        return type_ if plain == type_ else plain
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        make = pa.list_ if pa.types.is_list(type_) else pa.large_list
        plain = make(type_.value_field.with_type(_without_views(type_.value_type)))
        return type_ if plain == type_ else plain
    return type_


def _fit_valid(array: pa.Array, node: Node, naive_is_utc: bool) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        values = array.dictionary
        # Polars' categories are string views, which Arrow cannot take from.
        if pa.types.is_string_view(values.type):
            values = values.cast(pa.string())
        array = values.take(array.indices)
    if array.null_count and not node.nullable:
        raise BadValue(node.path, "the value is null, and the column is not null")
    if pa.types.is_null(array.type):
        return _nulls(len(array), node.type)
    if pa.types.is_struct(node.type):
        return _fit_struct(array, node, naive_is_utc)
    if pa.types.is_map(node.type) or pa.types.is_list(node.type):
        return _fit_list(array, node, naive_is_utc)
    fitted = array if array.type == node.type else _cast(array, node, naive_is_utc)
    check_calendar(fitted, node)
    return fitted


def _mismatch(array: pa.Array, node: Node, hint: str = "") -> NoReturn:
    raise WrongType(f"column {node.path} is {node.type}, the batch has {array.type}{hint}")


def _fit_struct(array: pa.Array, node: Node, naive_is_utc: bool) -> pa.Array:
    if not pa.types.is_struct(array.type):
        _mismatch(array, node)
    have = frozenset(field.name for field in array.type)
    if not node.names.issuperset(have) or len(have) < array.type.num_fields:
        _mismatch(array, node)
    present = array.drop_null() if array.null_count else array
    children = []
    for child in node.children:
        if child.name in have:
            children.append(_fit_valid(present.field(child.name), child, naive_is_utc))
        elif child.nullable:
            children.append(_nulls(len(present), child.type))
        else:
            _mismatch(array, node, f"; {child.path} is not null and missing")
    if present is array:
        return pa.StructArray.from_arrays(children, fields=list(node.type))
    if not len(present):
        return _nulls(len(array), node.type)
    # Below a null stands a neighbour's value: Parquet refuses a null in a field that is not null even there.
    places = pc.max_element_wise(pc.subtract(pc.cumulative_sum(array.is_valid().cast(pa.int64())), 1), 0)
    spread = [child.take(places) for child in children]
    return pa.StructArray.from_arrays(spread, fields=list(node.type), mask=array.is_null())


def _nulls(count: int, type_: pa.DataType) -> pa.Array:
    # pa.nulls would put nulls into a struct's not null fields too, the converter fills them with something.
    return pa.array([None] * count, type=type_) if pa.types.is_struct(type_) else pa.nulls(count, type_)


def _fit_list(array: pa.Array, node: Node, naive_is_utc: bool) -> pa.Array:
    kind, is_map = array.type, pa.types.is_map(node.type)
    if is_map != pa.types.is_map(kind) or not (is_map or hasattr(kind, "value_field")):
        _mismatch(array, node)
    if is_map:
        entries = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
        array = array.cast(pa.list_(entries))
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    ends = pc.cumulative_sum_checked(lengths.cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    mask = array.is_null() if array.null_count else None
    inner = array.flatten()
    if not is_map:
        values = _fit_valid(inner, node.children[0], naive_is_utc)
        return pa.ListArray.from_arrays(offsets, values, type=node.type, mask=mask)
    key, item = node.children
    keys = _fit_valid(inner.field("key"), key, naive_is_utc)
    rows = pa.table([pc.list_parent_indices(array), keys], names=["row", "key"])
    if rows.group_by(["row", "key"]).aggregate([]).num_rows < rows.num_rows:
        raise BadValue(node.path, "a map has a key twice")
    items = _fit_valid(inner.field("value"), item, naive_is_utc)
    return pa.MapArray.from_arrays(offsets, keys, items, type=node.type, mask=mask)


def _cast(array: pa.Array, node: Node, naive_is_utc: bool) -> pa.Array:
    """Cast where every value either keeps its meaning or fails; raises WrongType for any other pair of types."""
    source, target, types = array.type, node.type, pa.types
    if types.is_integer(source) and types.is_decimal(target):
        return pc.cast(pc.cast(array, pa.decimal128(20, 0)), target)
    if types.is_floating(source) and types.is_floating(target):
        narrow = pc.cast(array, target)
        back = pc.cast(narrow, pa.float64())
        wide = pc.cast(array, pa.float64())
        same = pc.or_(pc.equal(back, wide), pc.and_(pc.is_nan(back), pc.is_nan(wide)))
        if not pc.all(same, skip_nulls=True, min_count=0).as_py():
            raise BadValue(node.path, f"the value cannot be kept exactly as {target}")
        return narrow
    if types.is_timestamp(source) and types.is_timestamp(target):
        if source.tz is None and not naive_is_utc:
            _mismatch(array, node, "; give its times a zone")
        return pc.cast(pc.cast(array, pa.timestamp("us", tz=source.tz)), target)
    keeps_meaning = (
        (types.is_integer(source) and (types.is_integer(target) or types.is_floating(target)))
        or (types.is_decimal(source) and types.is_decimal(target))
        or (types.is_date(source) and types.is_date(target))
        or (types.is_string(target) and (types.is_large_string(source) or types.is_string_view(source)))
        or (types.is_binary(target) and _is_bytes(source))
    )
    if not keeps_meaning:
        _mismatch(array, node)
    return pc.cast(array, target)


def _is_bytes(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_large_binary(type_) or types.is_binary_view(type_) or types.is_fixed_size_binary(type_))
