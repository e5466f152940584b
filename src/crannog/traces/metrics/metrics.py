"""Metrics over spans or traces: counts, rates, averages and quantiles, from histograms of durations.

Metrics over spans come from the RED table if it has the groups, otherwise from the spans. Both sources give the same numbers.
The RED table has whole minutes; for parts of a minute, its spans are read.

A bucket of a histogram is at most 1/32 of its lowest value wide, and a quantile is the middle of its bucket, so its error is
at most 1.6 %, no matter how the histogram was merged. Below 64 ns it is exact.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa

from crannog.api.traces import MetricPoint
from crannog.api.traces.requests import MetricQuery, SpanSelection
from crannog.engine.duckdb.engine import DuckDBEngine
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import read
from crannog.engine.sql.running_queries import scoped_cursor
from crannog.errors import CallerError
from crannog.traces.derived.definitions import ERROR_STATUS, HISTOGRAM, RED, SUMMARIES
from crannog.traces.derived.views import DerivedViews
from crannog.traces.metrics.metric_query import CheckedMetricQuery, GroupKey, checked_metric_query, day_of
from crannog.traces.search.attribute_sql import text_literal
from crannog.traces.search.filter_sql import condition_sql, null_as_false
from crannog.traces.search.filter_tree import MATCH_ALL, all_of
from crannog.traces.search.request import span_filter
from crannog.traces.span_store import SpanStore
from crannog.traces.span_table import SPAN_KINDS
from crannog.traces.times import Step

MAX_POINTS = 100_000
_MAX_ROWS = 5_000_000
_NS_PER_MINUTE = 60 * 10**9
Range = tuple[int | None, int | None]
Source = Callable[[DerivedViews, OpenTable, CheckedMetricQuery, Range], pa.Table]
"""Returns the histograms of a time range: `begin`, the groups as g0, g1, …, `bucket` and the sums of RED."""


def metrics(store: SpanStore, query: MetricQuery) -> list[MetricPoint]:
    """Return the points of a metric, sorted by time and group. Raises CallerError if there are too many."""
    checked = checked_metric_query(query)
    return store.read(lambda table: _points(store.views, table, checked), [])


def _points(views: DerivedViews, spans: OpenTable, query: CheckedMetricQuery) -> list[MetricPoint]:
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
            first=day_of(start),
            last=day_of(end, before=True),
        )
    )


def _from_spans(views: DerivedViews, spans: OpenTable, query: CheckedMetricQuery, limits: Range) -> pa.Table:
    start, end = limits
    where = condition_sql(all_of(span_filter(SpanSelection(start=start, end=end)), query.filter))
    keys = _key_columns(query, "start_ns // 1000000000", [group.sql for group in query.groups])
    return _within_limit(
        views.query_spans(
            spans,
            lambda rows: f"SELECT {keys}, {HISTOGRAM} FROM {rows} WHERE {where} GROUP BY ALL LIMIT {_MAX_ROWS + 1}",
            first=day_of(start),
            last=day_of(end, before=True),
        )
    )


def _key_columns(query: CheckedMetricQuery, seconds: str, groups: Sequence[str]) -> str:
    begin = f"{query.step.begin_sql(seconds)} AS begin"
    return ", ".join([begin, *(f"{sql} AS g{number}" for number, sql in enumerate(groups))])


def _within_limit(rows: pa.Table) -> pa.Table:
    if rows.num_rows > _MAX_ROWS:
        raise CallerError("the result has too many points; use a shorter time range, a longer step or fewer groups")
    return rows


# -- whole traces: each counts once, at its start, with its total duration, as failed if one of its spans failed. They come
# from the summaries table if it has the groups and conditions, otherwise from the spans; the numbers are the same. A trace
# is grouped by the values of its root span, null while that is missing.

_SUMMARY_COLUMNS = {"service": "root_service", "operation": "root_operation"}
_TRACE_WINDOW = dt.timedelta(days=1)
_FIRST_DAY, _LAST_DAY = dt.date.min + _TRACE_WINDOW, dt.date.max - _TRACE_WINDOW


def trace_histograms(views: DerivedViews, spans: OpenTable, query: CheckedMetricQuery, max_rows: int) -> pa.Table:
    """Return up to `max_rows` rows of histograms of the traces that start in the time range of the query."""
    # The other spans of a trace that starts in the time range are at most a day away.
    first, last = query.days
    first = None if first is None else max(first, _FIRST_DAY) - _TRACE_WINDOW
    last = None if last is None else min(last, _LAST_DAY) + _TRACE_WINDOW
    if fits_summaries(query):
        return views.query(
            spans,
            SUMMARIES,
            lambda rows: _histogram_sql(query, _traces_from_summaries(query, rows), max_rows),
            first=first,
            last=last,
        )
    return views.query_spans(
        spans, lambda rows: _histogram_sql(query, _traces_from_spans(query, rows), max_rows), first=first, last=last
    )


def fits_summaries(query: CheckedMetricQuery) -> bool:
    """Return whether the summaries table has all groups and conditions of the query."""
    selects = (query.service, query.operation, query.kind)
    has_conditions = query.where != MATCH_ALL or any(value is not None for value in selects)
    return not has_conditions and all(group.name in _SUMMARY_COLUMNS for group in query.groups)


def _histogram_sql(query: CheckedMetricQuery, traces: str, max_rows: int) -> str:
    """Return the SQL of the histograms of `traces`, which have a struct `root` with the group values."""
    bounds = [f"start_ns >= {query.start_ns}"] if query.start_ns is not None else []
    bounds += [f"start_ns < {query.end_ns}"] if query.end_ns is not None else []
    keys = [f"{query.step.begin_sql('start_ns // 1000000000')} AS begin"]
    keys += [f"root.g{number} AS g{number}" for number in range(len(query.groups))]
    return (
        f"SELECT {', '.join(keys)}, {HISTOGRAM} FROM (SELECT *, end_ns - start_ns AS duration_ns,"
        f" CASE WHEN failed THEN {ERROR_STATUS} ELSE 0 END AS status_code FROM ({traces})) WHERE {' AND '.join(bounds) or 'true'}"
        f" GROUP BY ALL LIMIT {max_rows}"
    )


def _traces_from_summaries(query: CheckedMetricQuery, rows: str) -> str:
    root = _struct_sql([_SUMMARY_COLUMNS[group.name] for group in query.groups])
    return (
        "SELECT trace_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns, sum(error_count) > 0 AS failed,"
        f" arg_min({root}, {{'at': root_start_ns, 'id': root_span_id}}) FILTER (root_span_id IS NOT NULL) AS root"
        f" FROM {rows} GROUP BY trace_id"
    )


def _traces_from_spans(query: CheckedMetricQuery, rows: str) -> str:
    root = _struct_sql([group.sql for group in query.groups])
    return (
        f"SELECT trace_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns, bool_or(status_code = {ERROR_STATUS}) AS failed,"
        f" arg_min({root}, {{'at': start_ns, 'id': span_id}}) FILTER (parent_span_id IS NULL) AS root"
        f" FROM {rows} GROUP BY trace_id HAVING bool_or({null_as_false(condition_sql(query.filter))})"
    )


def _struct_sql(values: list[str]) -> str:
    # A struct that is never null itself: arg_min skips rows whose value is null.
    return "{'is': true" + "".join(f", 'g{number}': {value}" for number, value in enumerate(values)) + "}"


QUANTILES = {"p50_ns": Decimal("0.5"), "p95_ns": Decimal("0.95"), "p99_ns": Decimal("0.99")}
VALUES = ("span_count", "error_count", "duration_s", "duration_rest_ns", "min_ns", "max_ns")
_NS_PER_S = 10**9
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def bucket_middle(bucket: int) -> int:
    """Return the middle of a duration bucket, in nanoseconds."""
    if bucket < 64:
        return bucket
    shift = bucket // 32 - 1
    low = (bucket - 32 * shift) << shift
    return low + ((1 << shift) - 1) // 2


def merged_histograms(
    engine: DuckDBEngine,
    histograms: Sequence[pa.Table],
    groups: Sequence[str],
    limit: int,
    extra_quantiles: Sequence[Decimal] = (),
) -> pa.Table:
    """Return up to `limit` rows, one for each `begin` and group, sorted, with the bucket of each quantile.

    The buckets of `extra_quantiles` are in the columns q0, q1, ….
    """
    keys = ", ".join(["begin", *groups])
    sums = ", ".join(f"sum({name}) AS {name}" for name in VALUES[:4])
    shares = [*QUANTILES.items(), *((f"q{number}", share) for number, share in enumerate(extra_quantiles))]
    quantiles = ", ".join(
        # The nearest rank: the lowest bucket at which at least this share of the spans is reached.
        f"min(bucket) FILTER (up_to * {part.denominator} >= total * {part.numerator}) AS {name}"
        for name, part in ((name, Fraction(share)) for name, share in shares)
    )
    query = (
        f"WITH buckets AS (SELECT {keys}, bucket, {sums}, min(min_ns) AS min_ns, max(max_ns) AS max_ns FROM histogram"
        f" GROUP BY {keys}, bucket),"
        f" cumulated AS (SELECT *, sum(span_count) OVER (PARTITION BY {keys}) AS total,"
        f" sum(span_count) OVER (PARTITION BY {keys} ORDER BY bucket) AS up_to FROM buckets)"
        f" SELECT {keys}, {', '.join(f'sum({name})::VARCHAR AS {name}' for name in VALUES[:4])},"
        f" min(min_ns) AS min_ns, max(max_ns) AS max_ns, {quantiles} FROM cumulated GROUP BY {keys}"
        f" ORDER BY {keys} LIMIT {limit}"
    )
    with scoped_cursor(engine, {"histogram": pa.concat_tables(histograms)}) as cursor:
        return read(cursor, query)


def metric_points(
    rows: pa.Table, groups: Mapping[str, GroupKey], step: Step, start_ns: int | None, end_ns: int | None
) -> list[MetricPoint]:
    """Return the points of merged rows; `groups` are the group keys by column."""
    points = []
    extra = [name for name in rows.column_names if name.startswith("q")]
    for row in rows.to_pylist():
        begin, end = row["begin"] * _NS_PER_S, step.end(row["begin"]) * _NS_PER_S
        within = min(end, end_ns if end_ns is not None else end) - max(
            begin, start_ns if start_ns is not None else begin
        )
        count, errors, seconds_sum, rest_ns = (int(row[name]) for name in VALUES[:4])
        quantiles = {
            name: max(row["min_ns"], min(bucket_middle(row[name]), row["max_ns"])) for name in (*QUANTILES, *extra)
        }
        points.append(
            MetricPoint(
                start=_EPOCH + dt.timedelta(seconds=row["begin"]),
                seconds=within / _NS_PER_S,
                group={group.name: group.display_value(row[column]) for column, group in groups.items()},
                count=count,
                rate=count * _NS_PER_S / within,
                errors=errors,
                error_rate=errors / count,
                avg_ns=(seconds_sum * _NS_PER_S + rest_ns) / count,
                **{name: quantiles[name] for name in QUANTILES},
                quantiles_ns=tuple(quantiles[name] for name in extra),
            )
        )
    return points
