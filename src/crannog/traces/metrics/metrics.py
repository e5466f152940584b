"""Metrics over spans or traces. Metrics over spans come from the RED table if it has the groups, otherwise from the spans.

Both sources give the same numbers. The RED table has whole minutes; for parts of a minute, its spans are read.
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
from crannog.traces.derived.views import DerivedViews
from crannog.traces.metrics.grouping import GroupKey, parse_group_by
from crannog.traces.metrics.points import merged_histograms, metric_points, parse_quantiles
from crannog.traces.metrics.time_steps import Step, parse_step
from crannog.traces.metrics.trace_metrics import trace_histograms
from crannog.traces.search.attribute_sql import text_literal
from crannog.traces.search.filter_sql import condition_sql
from crannog.traces.search.filter_tree import FIELDS, MATCH_ALL, Compare, Filter, all_of
from crannog.traces.search.request import span_filter
from crannog.traces.search.times import parse_time
from crannog.traces.span_table import SPAN_KINDS

MAX_POINTS = 100_000
_MAX_ROWS = 5_000_000
_NS_PER_MINUTE = 60 * 10**9
_DAY_NS = 86_400 * 10**9
_EPOCH = dt.date(1970, 1, 1)
_LATEST_NS = 2**63 - 1
Range = tuple[int | None, int | None]
Source = Callable[[DerivedViews, OpenTable, "CheckedMetricQuery", Range], pa.Table]
"""Returns the histograms of a time range: `begin`, the groups as g0, g1, …, `bucket` and the sums of RED."""


@dataclass(frozen=True)
class CheckedMetricQuery:
    """A checked query. Spans start at or after `start_ns` and before `end_ns`."""

    service: str | None
    operation: str | None
    kind: str | None
    start_ns: int | None
    end_ns: int | None
    step: Step
    groups: Sequence[GroupKey]
    where: Filter
    of_traces: bool = False
    quantiles: Sequence[Decimal] = ()

    @property
    def fits_red(self) -> bool:
        """Return whether the RED table has all groups and conditions of the query for whole minutes."""
        return self.where == MATCH_ALL and self.step.is_whole_minutes and all(group.red_column for group in self.groups)

    @property
    def filter(self) -> Filter:
        """The conditions on a span, except those on time."""
        terms = [span_filter(service=self.service, operation=self.operation), self.where]
        if self.kind is not None:
            terms.append(Compare(FIELDS["kind"], "=", self.kind))
        return all_of(*terms)

    @property
    def days(self) -> tuple[dt.date | None, dt.date | None]:
        return _day(self.start_ns), _day(self.end_ns, before=True)

    @property
    def is_empty(self) -> bool:
        return self.start_ns is not None and self.end_ns is not None and self.start_ns >= self.end_ns


def metric_query(
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
) -> CheckedMetricQuery:
    """Check the arguments of a query. Raises CallerError if one is invalid."""
    for name, value in (("service", service), ("operation", operation), ("kind", kind)):
        if value is not None and not isinstance(value, str):
            raise CallerError(f"{name} must be text, got {type(value).__name__}")
    if kind is not None and kind.upper() not in SPAN_KINDS:
        raise CallerError(f"kind must be one of {', '.join(SPAN_KINDS)}, got {kind!r}"[:200])
    if of not in ("spans", "traces"):
        raise CallerError(f"of must be spans or traces, got {of!r}"[:200])
    return CheckedMetricQuery(
        service,
        operation,
        kind.upper() if kind else None,
        _clamped(parse_time(start, "start")) if start is not None else None,
        _clamped(parse_time(end, "end")) if end is not None else None,
        parse_step(step),
        parse_group_by(group_by),
        span_filter(attributes=where) if isinstance(where, Mapping) else span_filter(where=where),
        of == "traces",
        parse_quantiles(quantiles),
    )


def metrics(views: DerivedViews, spans: OpenTable, query: CheckedMetricQuery) -> list[MetricPoint]:
    """Return the points of a metric, sorted by time and group. Raises CallerError if there are too many."""
    if query.is_empty:
        return []
    if query.of_traces:
        histograms = [_within_limit(trace_histograms(views, spans, query, _MAX_ROWS + 1))]
    else:
        histograms = [source(views, spans, query, limits) for source, limits in histogram_sources(query)]
    names = [f"g{number}" for number in range(len(query.groups))]
    rows = merged_histograms(spans.warehouse.duckdb, histograms, names, MAX_POINTS + 1, query.quantiles)
    if rows.num_rows > MAX_POINTS:
        raise CallerError(
            f"the result has more than {MAX_POINTS:,} points; use a shorter time range, a longer step or fewer groups"
        )
    return metric_points(
        rows,
        dict(zip(names, query.groups, strict=True)),
        query.step,
        query.start_ns,
        query.end_ns,
    )


def histogram_sources(query: CheckedMetricQuery) -> list[tuple[Source, Range]]:
    """Return the source of each part of the time range: whole minutes from the RED table, the rest from spans."""
    start, end = query.start_ns, query.end_ns
    if not query.fits_red:
        return [(_from_spans, (start, end))]
    first = None if start is None else -(-start // _NS_PER_MINUTE) * _NS_PER_MINUTE
    last = None if end is None else end // _NS_PER_MINUTE * _NS_PER_MINUTE
    if first is not None and last is not None and first >= last:
        return [(_from_spans, (start, end))]
    sources: list[tuple[Source, Range]] = [(_from_red, (first, last))]
    if first != start:
        sources.append((_from_spans, (start, first)))
    if last != end:
        sources.append((_from_spans, (last, end)))
    return sources


def _from_red(views: DerivedViews, spans: OpenTable, query: CheckedMetricQuery, limits: Range) -> pa.Table:
    start, end = limits
    conditions = [f"minute >= {start // _NS_PER_MINUTE}"] if start is not None else []
    conditions += [f"minute < {end // _NS_PER_MINUTE}"] if end is not None else []
    conditions += [f"service_name = {text_literal(query.service)}"] if query.service is not None else []
    conditions += [f"operation = {text_literal(query.operation)}"] if query.operation is not None else []
    if query.kind is not None:
        conditions.append(
            "span_kind IS NULL" if query.kind == SPAN_KINDS[0] else f"span_kind = {text_literal(query.kind)}"
        )
    where = " AND ".join(conditions) or "true"
    keys = _key_columns(query, "cast(minute AS BIGINT) * 60", [group.red_column or "" for group in query.groups])
    return _within_limit(
        views.query(
            spans,
            RED,
            lambda rows: (
                f"SELECT {keys}, bucket, {RED.merged_values} FROM {rows} WHERE {where} GROUP BY ALL LIMIT {_MAX_ROWS + 1}"
            ),
            first=_day(start),
            last=_day(end, before=True),
        )
    )


def _from_spans(views: DerivedViews, spans: OpenTable, query: CheckedMetricQuery, limits: Range) -> pa.Table:
    start, end = limits
    where = condition_sql(all_of(span_filter(start=start, end=end), query.filter))
    keys = _key_columns(query, "start_ns // 1000000000", [group.sql for group in query.groups])
    return _within_limit(
        views.query_spans(
            spans,
            lambda rows: (
                f"SELECT {keys}, {for_duckdb(HISTOGRAM)} FROM {rows} WHERE {where} GROUP BY ALL LIMIT {_MAX_ROWS + 1}"
            ),
            first=_day(start),
            last=_day(end, before=True),
        )
    )


def _key_columns(query: CheckedMetricQuery, seconds: str, groups: Sequence[str]) -> str:
    begin = f"{query.step.begin_sql(seconds)} AS begin"
    return ", ".join([begin, *(f"{sql} AS g{number}" for number, sql in enumerate(groups))])


def _within_limit(rows: pa.Table) -> pa.Table:
    if rows.num_rows > _MAX_ROWS:
        raise CallerError("the result has too many points; use a shorter time range, a longer step or fewer groups")
    return rows


def _clamped(time_ns: int) -> int:
    return max(0, min(time_ns, _LATEST_NS))


def _day(time_ns: int | None, *, before: bool = False) -> dt.date | None:
    """Return the day of a time; if `before`, the day of the last nanosecond before it."""
    return None if time_ns is None else _EPOCH + dt.timedelta(days=max(0, time_ns - before) // _DAY_NS)
