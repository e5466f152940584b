"""Metrics over whole traces: each counts once, where it starts, for as long as it took, as failed if a span of it did.

From the table of summaries where it has what is asked, from the spans themselves otherwise; both give the same numbers.
A group is what the root span has, null while that is missing.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pyarrow as pa

from crannog.engine.open_table import OpenTable
from crannog.traces.derived.definitions import ERROR, HISTOGRAM, SUMMARIES, for_duckdb
from crannog.traces.derived.views import Views
from crannog.traces.search.attribute_sql import text
from crannog.traces.search.filter_sql import certain, sql_of
from crannog.traces.search.filter_tree import EVERYTHING

if TYPE_CHECKING:
    from crannog.traces.metrics.metrics import Asked

_OF_SUMMARIES = {"service": "service_name", "operation": "root_operation"}
_REACH = dt.timedelta(days=1)
_FIRST_DAY, _LAST_DAY = dt.date.min + _REACH, dt.date.max - _REACH


def from_traces(views: Views, spans: OpenTable, asked: Asked, most: int) -> pa.Table:
    """Return the histograms of traces that start in the time asked for, up to `most` rows of them."""
    # A trace that starts in the time has its other spans there or within a day.
    first, last = asked.days
    first = None if first is None else max(first, _FIRST_DAY) - _REACH
    last = None if last is None else min(last, _LAST_DAY) + _REACH
    if fits_summaries(asked):
        return views.ask(
            spans, SUMMARIES, lambda rows: _histograms(asked, _of_summaries(asked, rows), most), first=first, last=last
        )
    return views.ask_spans(spans, lambda rows: _histograms(asked, _of_spans(asked, rows), most), first=first, last=last)


def fits_summaries(asked: Asked) -> bool:
    """Tell whether the summaries have everything that is asked."""
    plain = asked.where == EVERYTHING and asked.operation is None and asked.kind is None
    return plain and all(group.name in _OF_SUMMARIES for group in asked.groups)


def _histograms(asked: Asked, traces: str, most: int) -> str:
    """Return the SQL of the histograms of some traces; theirs is `root`, a struct with the groups."""
    bounds = [f"start_ns >= {asked.start_ns}"] if asked.start_ns is not None else []
    bounds += [f"start_ns < {asked.end_ns}"] if asked.end_ns is not None else []
    keys = [f"{asked.step.begin_sql('start_ns // 1000000000')} AS begin"]
    keys += [f"root.g{place} AS g{place}" for place in range(len(asked.groups))]
    return (
        f"SELECT {', '.join(keys)}, {for_duckdb(HISTOGRAM)} FROM (SELECT *, end_ns - start_ns AS duration_ns,"
        f" CASE WHEN failed THEN {ERROR} ELSE 0 END AS status_code FROM ({traces})) WHERE {' AND '.join(bounds) or 'true'}"
        f" GROUP BY ALL LIMIT {most}"
    )


def _of_summaries(asked: Asked, rows: str) -> str:
    root = _packed([_OF_SUMMARIES[group.name] for group in asked.groups])
    having = "true" if asked.service is None else f"bool_or(service_name = {text(asked.service)})"
    return (
        "SELECT trace_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns, sum(error_count) > 0 AS failed,"
        f" arg_min({root}, {{'at': root_start_ns, 'id': root_span_id}}) FILTER (root_span_id IS NOT NULL) AS root"
        f" FROM {rows} GROUP BY trace_id HAVING {having}"
    )


def _of_spans(asked: Asked, rows: str) -> str:
    root = _packed([group.sql for group in asked.groups])
    return (
        f"SELECT trace_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns, bool_or(status_code = {ERROR}) AS failed,"
        f" arg_min({root}, {{'at': start_ns, 'id': span_id}}) FILTER (parent_span_id IS NULL) AS root"
        f" FROM {rows} GROUP BY trace_id HAVING bool_or({certain(sql_of(asked.filter))})"
    )


def _packed(values: list[str]) -> str:
    # A struct is never null, though all in it may be: arg_min would look for another row.
    return "{'is': true" + "".join(f", 'g{place}': {value}" for place, value in enumerate(values)) + "}"
