"""Metrics over whole traces: each counts once, at its start, with its total duration, as failed if one of its spans failed.

They come from the summaries table if it has the groups and conditions, otherwise from the spans; the numbers are the same.
A trace is grouped by the values of its root span, null while that is missing.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pyarrow as pa

from crannog.engine.open_table import OpenTable
from crannog.traces.derived.definitions import ERROR_STATUS, HISTOGRAM, SUMMARIES, for_duckdb
from crannog.traces.derived.views import DerivedViews
from crannog.traces.search.attribute_sql import text_literal
from crannog.traces.search.filter_sql import condition_sql, null_as_false
from crannog.traces.search.filter_tree import MATCH_ALL

if TYPE_CHECKING:
    from crannog.traces.metrics.metrics import CheckedMetricQuery

_SUMMARY_COLUMNS = {"service": "service_name", "operation": "root_operation"}
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
    has_conditions = query.where != MATCH_ALL or query.operation is not None or query.kind is not None
    return not has_conditions and all(group.name in _SUMMARY_COLUMNS for group in query.groups)


def _histogram_sql(query: CheckedMetricQuery, traces: str, max_rows: int) -> str:
    """Return the SQL of the histograms of `traces`, which have a struct `root` with the group values."""
    bounds = [f"start_ns >= {query.start_ns}"] if query.start_ns is not None else []
    bounds += [f"start_ns < {query.end_ns}"] if query.end_ns is not None else []
    keys = [f"{query.step.begin_sql('start_ns // 1000000000')} AS begin"]
    keys += [f"root.g{number} AS g{number}" for number in range(len(query.groups))]
    return (
        f"SELECT {', '.join(keys)}, {for_duckdb(HISTOGRAM)} FROM (SELECT *, end_ns - start_ns AS duration_ns,"
        f" CASE WHEN failed THEN {ERROR_STATUS} ELSE 0 END AS status_code FROM ({traces})) WHERE {' AND '.join(bounds) or 'true'}"
        f" GROUP BY ALL LIMIT {max_rows}"
    )


def _traces_from_summaries(query: CheckedMetricQuery, rows: str) -> str:
    root = _struct_sql([_SUMMARY_COLUMNS[group.name] for group in query.groups])
    having = "true" if query.service is None else f"bool_or(service_name = {text_literal(query.service)})"
    return (
        "SELECT trace_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns, sum(error_count) > 0 AS failed,"
        f" arg_min({root}, {{'at': root_start_ns, 'id': root_span_id}}) FILTER (root_span_id IS NOT NULL) AS root"
        f" FROM {rows} GROUP BY trace_id HAVING {having}"
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
