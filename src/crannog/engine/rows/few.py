"""A few rows as plain columns instead of Arrow: staging one row then takes a third of the time.

Only for columns whose values need no more than a look each; all else, and everything to complain about, is left to Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from crannog.engine.rows.values import BadValue, Node, exact_value, plan_of
from crannog.protocol.small_parquet import MAX_ROWS, Column, RowBuffer, column

_EPOCH, _EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)


def few_rows(rows: Any, schema: pa.Schema) -> RowBuffer | None:
    """Return up to `MAX_ROWS` dicts as columns of a table of exactly `schema`; None if Arrow should convert them.

    A column in which all values are null is left out.
    """
    if not isinstance(rows, list) or not 0 < len(rows) <= MAX_ROWS or set(map(type, rows)) != {dict}:
        return None
    plan = plan_of(schema)
    if not all(map(plan.names.issuperset, rows)):
        return None
    columns: list[Column] = []
    found: list[Sequence[Any]] = []
    try:
        for node in plan.columns:
            name, kind = node.name, node.type
            values: list[Any] = [row.get(name) for row in rows]
            types = set(map(type, values))
            if types == _ONLY_NULLS and node.nullable:
                continue
            is_plain = _PLAIN.get(kind)
            if is_plain is None or len(types) > 1 or not is_plain(types, values):
                if kind not in _STORED:
                    return None
                values = [_stored(value, node, _STORED[kind]) for value in values]
            columns.append(column(name, kind))
            found.append(values)
    except (BadValue, UnicodeError, OverflowError):
        return None
    return RowBuffer(columns, found) if columns else None


def _stored(value: Any, node: Node, store: Callable[[Any], Any]) -> Any:
    return None if value is None and node.nullable else store(exact_value(value, node))


def _text(value: str) -> str:
    if not value.isascii():
        value.encode()  # raises for half of a surrogate pair
    return value


def _microseconds(value: datetime) -> int:
    return (value - _EPOCH) // _MICROSECOND


def _days(value: date) -> int:
    return value.toordinal() - _EPOCH_DAY


_ONLY_NULLS = {type(None)}
_PLAIN: dict[pa.DataType, Callable[[set[type], list[Any]], bool]] = {
    pa.string(): lambda types, values: str in types and "".join(values).isascii(),
    pa.bool_(): lambda types, _: bool in types,
    pa.float64(): lambda types, _: float in types,
    pa.int64(): lambda types, values: int in types and min(values) >= -(2**63) and max(values) < 2**63,
    pa.int32(): lambda types, values: int in types and min(values) >= -(2**31) and max(values) < 2**31,
}
"""Tells of values of one type whether they are stored as they are; others are looked at one by one."""
_STORED: dict[pa.DataType, Callable[[Any], Any]] = {
    pa.string(): _text,
    pa.timestamp("us", "UTC"): _microseconds,
    pa.date32(): _days,
    pa.bool_(): bool,
    pa.int8(): int,
    pa.int32(): int,
    pa.int64(): int,
    pa.float64(): float,
}
"""How an exact value is stored; other types take Arrow."""
