"""Metrics over spans, or traces: of spans from the RED table where it has what is asked, from the spans themselves otherwise.

Both ways give the same numbers. The RED table knows whole minutes; where the time asked for cuts one, the spans of that
minute are read.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from crannog.api.traces import MetricPoint
from crannog.engine.open_table import OpenTable
from crannog.errors import CallerError
from crannog.traces.derived.definitions import HISTOGRAM, RED, for_duckdb
from crannog.traces.derived.views import Views
from crannog.traces.metrics.grouping import Group, groups_of
from crannog.traces.metrics.points import merged, points, quantiles_of
from crannog.traces.metrics.time_steps import Step, step_of
from crannog.traces.metrics.trace_metrics import from_traces
from crannog.traces.search.attribute_sql import text
from crannog.traces.search.filter_sql import sql_of
from crannog.traces.search.filter_tree import EVERYTHING, FIELDS, Compare, Filter, both
from crannog.traces.search.request import asked_of_spans
from crannog.traces.search.times import nanoseconds
from crannog.traces.span_table import KINDS

MOST_POINTS = 100_000
_MOST_ROWS = 5_000_000
_NS_PER_MINUTE = 60 * 10**9
_DAY_NS = 86_400 * 10**9
_EPOCH = dt.date(1970, 1, 1)
_LATEST_NS = 2**63 - 1
Range = tuple[int | None, int | None]
Source = Callable[[Views, OpenTable, "Asked", Range], pa.Table]
"""Gives the histograms of a time: `begin`, the groups as g0, g1, …, `bucket` and the sums of RED."""


@dataclass(frozen=True)
class Asked:
    """A question, checked. `start_ns` and `end_ns` bound the start of a span, the end excluded."""

    service: str | None
    operation: str | None
    kind: str | None
    start_ns: int | None
    end_ns: int | None
    step: Step
    groups: Sequence[Group]
    where: Filter
    of_traces: bool = False
    quantiles: Sequence[Decimal] = ()

    @property
    def fits_red(self) -> bool:
        """Tell whether the RED table has everything that is asked about a whole minute."""
        return (
            self.where == EVERYTHING and self.step.is_of_minutes and all(group.column_of_red for group in self.groups)
        )

    @property
    def filter(self) -> Filter:
        """Everything that is asked of a span, but for the time."""
        asked = asked_of_spans(service=self.service, operation=self.operation)
        if self.kind is not None:
            asked = both(asked, Compare(FIELDS["kind"], "=", self.kind))
        return both(asked, self.where)

    @property
    def days(self) -> tuple[dt.date | None, dt.date | None]:
        return _day(self.start_ns), _day(self.end_ns, before=True)

    @property
    def is_empty(self) -> bool:
        return self.start_ns is not None and self.end_ns is not None and self.start_ns >= self.end_ns


def asked(
    *,
    service: str | None = None,
    operation: str | None = None,
    kind: str | None = None,
    start: Any = None,
    end: Any = None,
    step: str = "1m",
    group_by: Sequence[str] | str | None = None,
    where: str | Mapping[str, Any] | None = None,
    of: str = "spans",
    quantiles: Sequence[float] = (),
) -> Asked:
    """Check a question; CallerError says what is wrong with it."""
    for name, value in (("service", service), ("operation", operation), ("kind", kind)):
        if value is not None and not isinstance(value, str):
            raise CallerError(f"{name} is text, got {type(value).__name__}")
    if kind is not None and kind.upper() not in KINDS:
        raise CallerError(f"kind is one of {', '.join(KINDS)}, got {kind!r}"[:200])
    if of not in ("spans", "traces"):
        raise CallerError(f"metrics are of spans or of traces, got {of!r}"[:200])
    return Asked(
        service,
        operation,
        kind.upper() if kind else None,
        _bounded(nanoseconds(start, "start")) if start is not None else None,
        _bounded(nanoseconds(end, "end")) if end is not None else None,
        step_of(step),
        groups_of(group_by),
        asked_of_spans(attributes=where) if isinstance(where, Mapping) else asked_of_spans(where=where),
        of == "traces",
        quantiles_of(quantiles),
    )


def metrics(views: Views, spans: OpenTable, asked: Asked) -> list[MetricPoint]:
    """Return the points of a metric, in order of time and group; CallerError if there are too many."""
    if asked.is_empty:
        return []
    if asked.of_traces:
        histograms = [_checked(from_traces(views, spans, asked, _MOST_ROWS + 1))]
    else:
        histograms = [source(views, spans, asked, limits) for source, limits in parts(asked)]
    names = [f"g{place}" for place in range(len(asked.groups))]
    rows = merged(spans.warehouse.local, histograms, names, MOST_POINTS + 1, asked.quantiles)
    if rows.num_rows > MOST_POINTS:
        raise CallerError(f"more than {MOST_POINTS:,} points; ask for a shorter time, a longer step or fewer groups")
    return points(rows, dict(zip(names, asked.groups, strict=True)), asked.step, asked.start_ns, asked.end_ns)


def parts(asked: Asked) -> list[tuple[Source, Range]]:
    """Return which source answers which part of the time: whole minutes from the RED table, the rest from spans."""
    start, end = asked.start_ns, asked.end_ns
    if not asked.fits_red:
        return [(_from_spans, (start, end))]
    first = None if start is None else -(-start // _NS_PER_MINUTE) * _NS_PER_MINUTE
    last = None if end is None else end // _NS_PER_MINUTE * _NS_PER_MINUTE
    if first is not None and last is not None and first >= last:
        return [(_from_spans, (start, end))]
    found: list[tuple[Source, Range]] = [(_from_red, (first, last))]
    if first != start:
        found.append((_from_spans, (start, first)))
    if last != end:
        found.append((_from_spans, (last, end)))
    return found


def _from_red(views: Views, spans: OpenTable, asked: Asked, limits: Range) -> pa.Table:
    start, end = limits
    conditions = [f"minute >= {start // _NS_PER_MINUTE}"] if start is not None else []
    conditions += [f"minute < {end // _NS_PER_MINUTE}"] if end is not None else []
    conditions += [f"service_name = {text(asked.service)}"] if asked.service is not None else []
    conditions += [f"operation = {text(asked.operation)}"] if asked.operation is not None else []
    if asked.kind is not None:
        conditions.append("span_kind IS NULL" if asked.kind == KINDS[0] else f"span_kind = {text(asked.kind)}")
    where = " AND ".join(conditions) or "true"
    keys = _keys(asked, "cast(minute AS BIGINT) * 60", [group.column_of_red or "" for group in asked.groups])
    return _checked(
        views.ask(
            spans,
            RED,
            lambda rows: (
                f"SELECT {keys}, bucket, {RED.merged_values} FROM {rows} WHERE {where} GROUP BY ALL LIMIT {_MOST_ROWS + 1}"
            ),
            first=_day(start),
            last=_day(end, before=True),
        )
    )


def _from_spans(views: Views, spans: OpenTable, asked: Asked, limits: Range) -> pa.Table:
    start, end = limits
    where = sql_of(both(asked_of_spans(start=start, end=end), asked.filter))
    keys = _keys(asked, "start_ns // 1000000000", [group.sql for group in asked.groups])
    return _checked(
        views.ask_spans(
            spans,
            lambda rows: (
                f"SELECT {keys}, {for_duckdb(HISTOGRAM)} FROM {rows} WHERE {where} GROUP BY ALL LIMIT {_MOST_ROWS + 1}"
            ),
            first=_day(start),
            last=_day(end, before=True),
        )
    )


def _keys(asked: Asked, seconds: str, groups: Sequence[str]) -> str:
    listed = [f"{asked.step.begin_sql(seconds)} AS begin"]
    return ", ".join(listed + [f"{sql} AS g{place}" for place, sql in enumerate(groups)])


def _checked(rows: pa.Table) -> pa.Table:
    if rows.num_rows > _MOST_ROWS:
        raise CallerError("too many points; ask for a shorter time, a longer step or fewer groups")
    return rows


def _bounded(time_ns: int) -> int:
    return max(0, min(time_ns, _LATEST_NS))


def _day(time_ns: int | None, *, before: bool = False) -> dt.date | None:
    """Return the day of a time; of the last nanosecond before it if `before`."""
    return None if time_ns is None else _EPOCH + dt.timedelta(days=max(0, time_ns - before) // _DAY_NS)
