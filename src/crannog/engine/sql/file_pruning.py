"""Chooses the files of a base that a statement needs, by the log's statistics, before any file is opened.

Reads nothing but the statistics. Where they do not decide, the file stays.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from crannog.delta.log import Base
from crannog.engine.sql.duckdb_compiler.terms import Condition

# The log truncates text to a prefix, and upper bounds of timestamps down to the millisecond.
_TRUSTED = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_date, pa.types.is_timestamp, pa.types.is_string)


@dataclass(frozen=True, slots=True)
class Pruned:
    """The remaining files, and how many each condition removed."""

    files: tuple[str, ...]
    bytes: int
    rows: int
    taken: tuple[tuple[str, int], ...]


def pruned(base: Base, conditions: Sequence[Condition]) -> Pruned:
    """Return the files of a base that may have a row that meets all conditions."""
    actions = base.actions
    keep: pa.Array | None = None
    taken = []
    count = actions.num_rows
    left = count
    for condition in conditions if count else ():
        mask = _may_contain(base, condition)
        if mask is None:
            continue
        keep = mask if keep is None else pc.and_(keep, mask)
        now = pc.sum(keep).as_py() or 0
        if now < left:
            taken.append((f"{condition.column} {condition.operator}", left - now))
            left = now
    if keep is None or left == count:
        return Pruned(tuple(base.files), base.bytes, base.rows, ())
    chosen = actions.filter(keep)
    paths = tuple(unquote(path) for path in chosen["path"].to_pylist())
    files = [base.files[path] for path in paths]
    return Pruned(paths, sum(file.size for file in files), sum(file.rows for file in files), tuple(taken))


def _may_contain(base: Base, condition: Condition) -> pa.Array | None:
    """Return, per file, whether it may have a row that meets the condition; None without statistics."""
    kind = base.schema.field(condition.column).type
    operator, values = condition.operator, condition.values
    if any(value is None for value in values):
        return pa.array([False] * base.actions.num_rows) if operator != "in" else None
    if operator in ("is null", "is not null"):
        nulls = _statistic(base, "null_count", condition.column)
        if nulls is None:
            return None
        found = pc.greater(nulls, 0) if operator == "is null" else pc.less(nulls, base.actions["num_records"])
        return pc.fill_null(found, True)
    if not any(trusted(kind) for trusted in _TRUSTED):
        return None
    low, high = _statistic(base, "min", condition.column), _statistic(base, "max", condition.column)
    if low is None or high is None:
        return None
    try:
        wanted = [pa.scalar(value, type=kind if not pa.types.is_timestamp(kind) else low.type) for value in values]
    except (pa.ArrowException, TypeError, ValueError):
        return None
    if pa.types.is_timestamp(kind):
        high = pc.add(high, pa.scalar(dt.timedelta(milliseconds=1), pa.duration("us")))
    return pc.fill_null(_compare(operator, values, wanted, low, high), True)


def _compare(
    operator: str, values: Sequence[Any], wanted: Sequence[pa.Scalar], low: pa.Array, high: pa.Array
) -> pa.Array:
    first = wanted[0]
    match operator:
        case "<":
            return pc.less(low, first)
        case "<=":
            return pc.less_equal(low, first)
        case ">":
            return pc.greater(high, first)
        case ">=":
            return pc.greater_equal(high, first)
        case "prefix":
            # A text with this prefix is not below it: truncated to that length, the minimum is at most the prefix.
            start = pc.utf8_slice_codeunits(low, 0, len(values[0]))
            return pc.and_(pc.less_equal(start, first), pc.greater_equal(high, first))
    within = (pc.and_(pc.less_equal(low, value), pc.greater_equal(high, value)) for value in wanted)
    return functools.reduce(pc.or_, within)


def _statistic(base: Base, which: str, column: str) -> pa.Array | None:
    if which not in base.actions.column_names:
        return None
    bounds = base.actions[which].combine_chunks()
    if isinstance(bounds, pa.ChunkedArray):
        bounds = bounds.chunk(0)
    kind = bounds.type
    if not pa.types.is_struct(kind) or kind.get_field_index(column) < 0:
        return None
    return bounds.field(column) if bounds.null_count == 0 else pc.struct_field(bounds, column)
