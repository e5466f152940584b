"""What a caller hands in, made into an Arrow table that has exactly the table's schema, or refused whole.

Rows come as dicts, Pydantic models, Arrow, pandas or Polars. Nothing is lost on the way: a value is kept exactly or
the batch is refused with its row, column and value. A clean batch of dicts costs one pass in C; only a batch with
something to convert or to complain about is walked value by value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crannog.engine.rows.arrow import as_table, from_table
from crannog.engine.rows.values import (
    LARGEST_FLOAT32,
    MISFITS,
    NULL,
    BadValue,
    Call,
    Node,
    Plan,
    check_calendar,
    exact_value,
    plan_of,
    shown,
)
from crannog.errors import CallerError

_FEW_ROWS = 64
_EDGE_YEARS = frozenset((1, 9999))


def to_arrow(rows: Any, schema: pa.Schema, *, table: str, verb: str) -> pa.Table:
    """The rows as a table of exactly `schema`; columns are found by name, missing nullable ones are null.

    Raises SchemaMismatch when columns do not fit, BadRows naming the first row, column and value that does not,
    and CallerError when `rows` has another form.
    """
    plan, call = plan_of(schema), Call(table, verb)
    if isinstance(rows, (list, tuple)):
        return from_rows(rows, plan, call)
    batch, naive_is_utc = as_table(rows, call)
    return from_table(batch, plan, call, naive_is_utc=naive_is_utc)


def keys_to_arrow(keys: Any, schema: pa.Schema, key: Sequence[str], *, table: str, verb: str) -> pa.Table:
    """The keys as a table of the key columns, not null, in the order of `key`.

    Takes a list of dicts, bare values where the key is one column, or Arrow, pandas or Polars with those columns;
    raises as `to_arrow` does.
    """
    call = Call(table, verb)
    plan = plan_of(schema)
    wanted = plan.keys.get(tuple(key))
    if wanted is None:
        wanted = plan.keys[tuple(key)] = pa.schema([schema.field(name).with_nullable(False) for name in key])
    bare = isinstance(keys, (pa.Array, pa.ChunkedArray))
    if isinstance(keys, (list, tuple)):
        bare = any(not isinstance(k, Mapping) and not hasattr(k, "model_dump") for k in keys)
    if bare and len(key) != 1:
        raise CallerError(f"{call}: the key is {', '.join(key)}; give each key with its columns by name")
    if isinstance(keys, (pa.Array, pa.ChunkedArray)):
        keys = pa.table([keys], names=list(key))
    elif bare:
        keys = [k if isinstance(k, Mapping) else {key[0]: k} for k in keys]
    return to_arrow(keys, wanted, table=table, verb=verb)


def from_rows(rows: Sequence[Any], plan: Plan, call: Call) -> pa.Table:
    if not rows:
        return plan.schema.empty_table()
    if set(map(type, rows)) != {dict}:
        rows = [_as_dict(number, row, call) for number, row in enumerate(rows)]
    columns = _columns(rows, plan)
    clean = list(map(_is_clean, columns, plan.columns))
    known = plan.names.issuperset(rows[0] if len(rows) == 1 else set().union(*rows))
    # One call for all columns is twice as quick for a row; from a hundred rows on, a call for each column is.
    if known and len(rows) <= _FEW_ROWS and all(clean):
        try:
            return pa.Table.from_batches([pa.RecordBatch.from_struct_array(pa.array(rows, type=plan.whole))])
        except MISFITS:
            pass  # the walk below finds which value it was
    return _walk(rows, columns, clean, known, plan, call)


def _columns(rows: Sequence[Any], plan: Plan) -> list[list[Any]]:
    try:
        return [list(map(node.get, rows)) for node in plan.columns]
    except KeyError:  # a row without a column
        return [_values(rows, node) for node in plan.columns]


def _values(rows: Sequence[Any], node: Node) -> list[Any]:
    try:
        return list(map(node.get, rows))
    except KeyError:
        return [row.get(node.name) for row in rows]


def _as_dict(number: int, row: Any, call: Call) -> dict[Any, Any]:
    if hasattr(row, "model_dump"):
        return dict(row.model_dump(by_alias=True))
    if not isinstance(row, Mapping):
        call.refuse(number, "", f"{shown(row)} is {type(row).__name__}, a row is a dict or a model")
    return dict(row)


def _is_clean(values: list[Any], node: Node) -> bool:
    """True when pyarrow converts all these values exactly and none is null where it may not be."""
    found = set(map(type, values))
    if not found <= node.kinds:
        return False
    if not node.children:
        if node.type == pa.float32():
            # Larger numbers become infinite in silence; NaN and infinity fail here too and are looked at one by one.
            return all(map(LARGEST_FLOAT32.__ge__, map(abs, filter(None, values))))
        if datetime in node.kinds:
            # Only in these years can a zone carry a time out of the calendar.
            return _EDGE_YEARS.isdisjoint(map(attrgetter("year"), filter(None, values)))
        return True
    present = [value for value in values if value is not None] if NULL in found else values
    if pa.types.is_struct(node.type):
        if not node.names.issuperset(set().union(*present)):
            return False
        inner = [_values(present, child) for child in node.children]
    elif pa.types.is_map(node.type):
        inner = [list(chain.from_iterable(present)), list(chain.from_iterable(map(dict.values, present)))]
    else:
        inner = [list(chain.from_iterable(present))]
    return all(_is_clean(below, child) for below, child in zip(inner, node.children, strict=True))


def _walk(
    rows: Sequence[Any], columns: list[list[Any]], clean: list[bool], known: bool, plan: Plan, call: Call
) -> pa.Table:
    """Convert column by column, value by value only where needed; refuse at the first row that has a fault."""
    arrays, faults = [], []
    for values, node, is_clean in zip(columns, plan.columns, clean, strict=True):
        try:
            arrays.append(_column(values, node, is_clean))
        except BadValue as bad:
            faults.append((bad.row, bad.path, bad.reason))
    if not known:
        row, name = next((i, k) for i, r in enumerate(rows) for k in r if k not in plan.names)
        faults.append((row, str(name), f"{shown(rows[row][name])} has no place, the table has no such column"))
    if faults:
        call.refuse(*min(faults, key=lambda fault: fault[0]))
    return pa.Table.from_arrays(arrays, schema=plan.schema)


def _column(values: list[Any], node: Node, is_clean: bool) -> pa.Array:
    """Convert one column; raises BadValue with the row of the first value that does not fit."""
    if is_clean:
        try:
            return pa.array(values, type=node.type)
        except MISFITS:
            pass  # exact by other means, perhaps: an integer among decimals, a large one among floats
    if pa.types.is_timestamp(node.type) and set(map(type, values)) <= node.kinds - {datetime} | {str}:
        try:
            instants = pc.cast(pa.array(values, type=pa.string()), node.type)
            check_calendar(instants, node)
            return instants
        except (BadValue, *MISFITS):
            pass  # without a zone, or no time at all
    exact: list[Any] = []
    try:
        for value in values:
            exact.append(exact_value(value, node))
        return pa.array(exact, type=node.type)
    except BadValue as bad:
        bad.row = len(exact)
        raise
    except MISFITS as error:
        raise BadValue(node.path, f"a value does not fit {node.type}: {error}") from error
