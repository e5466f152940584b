"""One key of a table as its caller gives it, in the types of the key columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from crannog.engine.rows.values import BadValue, exact_value, plan_of, shown
from crannog.errors import CallerError

Key = tuple[Any, ...]
"""The values of the key columns, in their order."""


def exact_key(given: Any, schema: pa.Schema, key: Sequence[str], *, table: str) -> Key:
    """Return the values of a key in the types of its columns.

    Takes a bare value for a key of one column, a mapping of the columns, or a list or tuple in their order. Raises CallerError
    that says which column does not fit.
    """
    wanted = f"cannot read a row of {table}"
    if not key:
        raise CallerError(f"{wanted} by a key: it has none; read it in pages, or with SQL")
    if isinstance(given, Mapping):
        if set(given) != set(key):
            raise CallerError(
                f"{wanted}: the key is {', '.join(key)}, got {', '.join(map(str, given))[:200] or 'none'}"
            )
        values: Sequence[Any] = [given[name] for name in key]
    elif len(key) == 1 and not isinstance(given, (list, tuple)):
        values = [given]
    else:
        values = given if isinstance(given, (list, tuple)) else [given]
    if len(values) != len(key):
        raise CallerError(
            f"{wanted}: the key has {len(key)} column(s), {', '.join(key)}, and {len(values)} value(s) were given"
        )
    nodes = {node.name: node for node in plan_of(schema).columns}
    try:
        return tuple(exact_value(value, nodes[name]) for name, value in zip(key, values, strict=True))
    except BadValue as bad:
        raise CallerError(f"{wanted}: column {bad.path}: {bad.reason}") from None


def described(key: Sequence[str], values: Key) -> str:
    """Return a key for a message."""
    return ", ".join(f"{name} = {shown(value)}" for name, value in zip(key, values, strict=True))
