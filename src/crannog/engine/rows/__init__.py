"""What a caller hands in, made into an Arrow table that has exactly the table's schema, or refused whole.

Rows come as dicts, Pydantic models, Arrow, pandas or Polars. Nothing is lost on the way: a value is kept exactly or
the batch is refused with its row, column and value. A clean batch of dicts costs one pass in C; only a batch with
something to convert or to complain about is walked value by value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa

from crannog.engine.rows.arrow import as_table, from_table
from crannog.engine.rows.conversion import NULL, Call, Node, Plan
from crannog.engine.rows.objects import from_rows
from crannog.engine.rows.values import READERS
from crannog.errors import CallerError

_MOST_PLANS = 256


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


_plans: dict[int, Plan] = {}


def plan_of(schema: pa.Schema) -> Plan:
    # By identity: hashing a schema costs as much as converting a row, and the plan keeps its schema alive.
    plan = _plans.get(id(schema))
    if plan is None:
        columns = tuple(node_of(field.name, field) for field in schema)
        plan = Plan(schema, columns, frozenset(schema.names), pa.struct(list(schema)), {})
        if len(_plans) >= _MOST_PLANS:
            _plans.clear()
        _plans[id(schema)] = plan
    return plan


def node_of(path: str, field: pa.Field) -> Node:
    kind, types = field.type, pa.types
    children: tuple[Node, ...] = ()
    if types.is_struct(kind):
        children = tuple(node_of(f"{path}.{child.name}", child) for child in kind)
    elif types.is_map(kind):
        children = (node_of(f"{path}[key]", kind.key_field), node_of(f"{path}[value]", kind.item_field))
    elif types.is_list(kind):
        children = (node_of(f"{path}[]", kind.value_field),)
    kinds, read = next(found for is_kind, found in READERS if is_kind(kind))
    names = frozenset(child.name for child in children)
    if field.nullable:
        kinds = (*kinds, NULL)
    return Node(path, field.name, kind, field.nullable, frozenset(kinds), read, children, names, itemgetter(field.name))
