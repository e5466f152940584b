"""Latency over time as a heat map: counts by start and duration, with examples."""

from __future__ import annotations

import math
from collections.abc import Callable

import pyarrow as pa

from crannog.api.traces import Heatmap, HeatmapCell
from crannog.api.traces.requests import HeatmapQuery, SpanSelection
from crannog.engine.open_table import OpenTable
from crannog.errors import CallerError
from crannog.traces.derived.views import DerivedViews
from crannog.traces.metrics.metric_query import day_of
from crannog.traces.search.filter_sql import condition_sql
from crannog.traces.search.filter_tree import FIELDS, Compare, Filter, all_of
from crannog.traces.search.request import span_filter
from crannog.traces.span_store import SpanStore
from crannog.traces.times import milliseconds_to_ns, parse_time
from crannog.traces.trace import ERROR_STATUS

_PER_POWER = 4
"""Duration buckets for each power of two."""
_MAX_TIMES = 1_000
_EXAMPLES = 3
_EMPTY = Heatmap(0, 0, 1, 0, (), 0, 0, ())


def heatmap(store: SpanStore, query: HeatmapQuery) -> Heatmap:
    """Return counts of spans by start and duration."""
    times = query.times
    if isinstance(times, bool) or not isinstance(times, int) or not 1 <= times <= _MAX_TIMES:
        raise CallerError(f"times must be an integer from 1 to {_MAX_TIMES:,}, got {times!r}"[:200])
    filter = all_of(span_filter(query), duration_filter(query.min_duration_ms, query.max_duration_ms))
    return store.read(lambda table: _heatmap(store.views, table, query, filter, times), _EMPTY)


def duration_filter(min_ms: float | None, max_ms: float | None) -> Filter:
    """Return the condition on the duration of a span, both bounds included."""
    bounds = (
        (">=", milliseconds_to_ns(min_ms, "min_duration_ms")),
        ("<=", milliseconds_to_ns(max_ms, "max_duration_ms")),
    )
    return all_of(*(Compare(FIELDS["duration"], operator, bound) for operator, bound in bounds if bound is not None))


def time_range(selection: SpanSelection) -> tuple[int | None, int | None]:
    """Return the start and the end of a selection in nanoseconds, if they are given."""
    start, end = (None if time is None else parse_time(time) for time in (selection.start, selection.end))
    return start, end


def _heatmap(views: DerivedViews, table: OpenTable, query: HeatmapQuery, filter: Filter, times: int) -> Heatmap:
    where = condition_sql(filter)
    start, end = time_range(query)

    def rows(query: Callable[[str], str]) -> pa.Table:
        return views.query_spans(table, query, first=day_of(start), last=day_of(end, before=True))

    if start is None or end is None:
        ends = "SELECT min(start_ns) AS low, max(start_ns) AS high FROM"
        [bounds] = rows(lambda spans: f"{ends} {spans} WHERE {where}").to_pylist()
        if bounds["low"] is None:
            return _EMPTY
        start, end = bounds["low"] if start is None else start, bounds["high"] + 1 if end is None else end
    if end <= start:
        return _EMPTY
    step = -(-(end - start) // times)
    cells = (
        f"SELECT cast((start_ns - {start}) // {step} AS INTEGER) AS time,"
        f" cast(floor({_PER_POWER} * log2(greatest(duration_ns, 1))) AS INTEGER) AS duration, count(*) AS count,"
        f" count(*) FILTER (status_code = {ERROR_STATUS}) AS errors, "
        # The longest; of equal ones always the same.
        f" arg_max(trace_id, {{'duration': duration_ns, 'id': trace_id}}, {4 * _EXAMPLES}) AS examples FROM"
    )
    within = f"WHERE {where} AND start_ns >= {start} AND start_ns < {end} GROUP BY ALL ORDER BY time, duration"
    found = rows(lambda spans: f"{cells} {spans} {within}").to_pylist()
    low, high = (pick((row["duration"] for row in found), default=0) for pick in (min, max))
    return Heatmap(
        start_ns=start,
        end_ns=end,
        step_ns=step,
        times=-(-(end - start) // step),
        durations_ns=tuple(_lower_bound(bucket) for bucket in range(low, high + 2)) if found else (),
        spans=sum(row["count"] for row in found),
        errors=sum(row["errors"] for row in found),
        cells=tuple(
            HeatmapCell(row["time"], row["duration"] - low, row["count"], row["errors"], _distinct(row["examples"]))
            for row in found
        ),
    )


def _lower_bound(bucket: int) -> int:
    return 0 if bucket <= 0 else math.ceil(2 ** (bucket / _PER_POWER))


def _distinct(trace_ids: list[bytes]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(trace_id.hex() for trace_id in trace_ids))[:_EXAMPLES]
