"""Metrics over whole traces: each counts once, where it starts, for as long as it took, as failed if a span of it did.

From the table of summaries where it has what is asked, from the spans themselves otherwise; both give the same numbers.
A group is what the root span has, null while that is missing.
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
    from crannog.traces.metrics.metrics import MetricQuery

_SUMMARY_COLUMNS = {"service": "service_name", "operation": "root_operation"}
_TRACE_WINDOW = dt.timedelta(days=1)
_FIRST_DAY, _LAST_DAY = dt.date.min + _TRACE_WINDOW, dt.date.max - _TRACE_WINDOW


def trace_histograms(views: DerivedViews, spans: OpenTable, query: MetricQuery, most: int) -> pa.Table:
    """Return the histograms of traces that start in the time asked for, up to `most` rows of them."""
    # A trace that starts in the time has its other spans there or within a day.
    first, last = query.days
    first = None if first is None else max(first, _FIRST_DAY) - _TRACE_WINDOW
    last = None if last is None else min(last, _LAST_DAY) + _TRACE_WINDOW
    if fits_summaries(query):
        return views.query(
            spans,
            SUMMARIES,
            lambda rows: _histogram_sql(query, _traces_from_summaries(query, rows), most),
            first=first,
            last=last,
        )
    return views.query_spans(
        spans, lambda rows: _histogram_sql(query, _traces_from_spans(query, rows), most), first=first, last=last
    )


def fits_summaries(query: MetricQuery) -> bool:
    """Tell whether the summaries have everything that is asked."""
    plain = query.where == MATCH_ALL and query.operation is None and query.kind is None
    return plain and all(group.name in _SUMMARY_COLUMNS for group in query.groups)


def _histogram_sql(query: MetricQuery, traces: str, most: int) -> str:
    """Return the SQL of the histograms of some traces; theirs is `root`, a struct with the groups."""
    bounds = [f"start_ns >= {query.start_ns}"] if query.start_ns is not None else []
    bounds += [f"start_ns < {query.end_ns}"] if query.end_ns is not None else []
    keys = [f"{query.step.begin_sql('start_ns // 1000000000')} AS begin"]
    keys += [f"root.g{place} AS g{place}" for place in range(len(query.groups))]
    return (
        f"SELECT {', '.join(keys)}, {for_duckdb(HISTOGRAM)} FROM (SELECT *, end_ns - start_ns AS duration_ns,"
        f" CASE WHEN failed THEN {ERROR_STATUS} ELSE 0 END AS status_code FROM ({traces})) WHERE {' AND '.join(bounds) or 'true'}"
        f" GROUP BY ALL LIMIT {most}"
    )


def _traces_from_summaries(query: MetricQuery, rows: str) -> str:
    root = _struct_sql([_SUMMARY_COLUMNS[group.name] for group in query.groups])
    having = "true" if query.service is None else f"bool_or(service_name = {text_literal(query.service)})"
    return (
        "SELECT trace_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns, sum(error_count) > 0 AS failed,"
        f" arg_min({root}, {{'at': root_start_ns, 'id': root_span_id}}) FILTER (root_span_id IS NOT NULL) AS root"
        f" FROM {rows} GROUP BY trace_id HAVING {having}"
    )


def _traces_from_spans(query: MetricQuery, rows: str) -> str:
    root = _struct_sql([group.sql for group in query.groups])
    return (
        f"SELECT trace_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns, bool_or(status_code = {ERROR_STATUS}) AS failed,"
        f" arg_min({root}, {{'at': start_ns, 'id': span_id}}) FILTER (parent_span_id IS NULL) AS root"
        f" FROM {rows} GROUP BY trace_id HAVING bool_or({null_as_false(condition_sql(query.filter))})"
    )


def _struct_sql(values: list[str]) -> str:
    # A struct is never null, though all in it may be: arg_min would look for another row.
    return "{'is': true" + "".join(f", 'g{place}': {value}" for place, value in enumerate(values)) + "}"
