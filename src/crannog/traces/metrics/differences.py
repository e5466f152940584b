"""What distinguishes some spans from the others: the fields and attributes whose values differ most in their shares."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from crannog.api.traces import Differences, KeyDifference, ValueCount
from crannog.api.traces.requests import DifferenceQuery, SpanSelection
from crannog.engine.open_table import OpenTable
from crannog.errors import CallerError
from crannog.traces.attribute_values import to_python
from crannog.traces.derived.views import DerivedViews
from crannog.traces.metrics.heatmaps import duration_filter, time_range
from crannog.traces.metrics.metric_query import day_of
from crannog.traces.search.filter_sql import condition_sql, null_as_false
from crannog.traces.search.filter_tree import MATCH_ALL, all_of
from crannog.traces.search.request import checked_limit, span_filter
from crannog.traces.span_store import SpanStore
from crannog.traces.span_table import SPAN_KINDS
from crannog.traces.trace import STATUS_NAMES

_MAX_SPANS = 50_000
"""Spans of each side whose attributes are read; of more, a sample."""
_MAX_VALUE = 256
_LONG = '"…"'
_FIELDS = {
    "service": "service_name",
    "operation": "span_name",
    "kind": f"coalesce(span_kind, '{SPAN_KINDS[0]}')",
    "status": f"coalesce({list(STATUS_NAMES)}[status_code + 1], status_code::VARCHAR)",
    "model": "model",
}


_COLUMNS = "service_name, span_name, span_kind, status_code, model, attributes, resource_attributes"


def differences(store: SpanStore, query: DifferenceQuery) -> Differences:
    """Compare the values of the selected spans with those of the other spans in the same range."""
    limit, values = checked_limit(query.limit), checked_limit(query.values, "values")
    chosen = all_of(
        span_filter(SpanSelection(where=query.selected, start=query.selected_start, end=query.selected_end)),
        duration_filter(query.min_duration_ms, query.max_duration_ms),
    )
    if chosen == MATCH_ALL:
        raise CallerError(
            "nothing is selected: give selected, selected_start, selected_end, min_duration_ms or max_duration_ms"
        )
    where, selected = condition_sql(span_filter(query)), null_as_false(condition_sql(chosen))
    return store.read(
        lambda table: _differences(store.views, table, query, where, selected, (limit, values)),
        Differences(0, 0, 0, 0, ()),
    )


def _differences(
    views: DerivedViews, table: OpenTable, query: DifferenceQuery, where: str, selected: str, limits: tuple[int, int]
) -> Differences:
    start, end = time_range(query)
    days = {"first": day_of(start), "last": day_of(end, before=True)}
    counts = f"SELECT count(*) FILTER (WHERE {selected}) AS inside, count(*) AS everything FROM "
    [total] = views.query_spans(table, lambda spans: f"{counts} {spans} WHERE {where}", **days).to_pylist()
    inside, outside = total["inside"], total["everything"] - total["inside"]
    if not inside or not outside:
        return Differences(inside, outside, inside, outside, ())
    # A share of the ids rather than the first rows: the same question gets the same answer.
    kept_inside, kept_outside = (-(-count // _MAX_SPANS) for count in (inside, outside))
    sample = f"hash(span_id) % (CASE WHEN {selected} THEN {kept_inside} ELSE {kept_outside} END) = 0"
    rows = views.query_spans(
        table,
        lambda spans: _ranked_sql(
            f"SELECT {_COLUMNS}, {selected} AS is_selected FROM {spans} WHERE {where} AND {sample}", limits
        ),
        **days,
    ).to_pylist()
    sampled = rows[0] if rows else {"all_inside": 0, "all_outside": 0}
    keys = (
        _difference(level, key, list(values))
        for (level, key), values in groupby(rows, key=lambda row: (row["level"], row["key"]))
    )
    return Differences(inside, outside, sampled["all_inside"], sampled["all_outside"], tuple(keys))


def _ranked_sql(spans: str, limits: tuple[int, int]) -> str:
    """Return the SQL of the values that differ most, of the keys that differ most."""
    fields = ", ".join(f"{{'level': 'field', 'key': '{name}', 'value': {sql}}}" for name, sql in _FIELDS.items())
    maps = " || ".join(
        f"list_transform(coalesce(map_entries({column}), []), lambda e: {{'level': '{level}', 'key': e.key, 'value': e.value}})"
        for level, column in (("span", "attributes"), ("resource", "resource_attributes"))
    )
    value = f"CASE WHEN length(pair.value) > {_MAX_VALUE} THEN '{_LONG}' ELSE pair.value END"
    keys, values = limits
    return f"""
WITH chosen AS MATERIALIZED ({spans}),
totals AS (SELECT count(*) FILTER (is_selected) AS all_inside, count(*) FILTER (NOT is_selected) AS all_outside FROM chosen),
pairs AS (SELECT is_selected, unnest([{fields}] || {maps}) AS pair FROM chosen),
counted AS (
    SELECT pair.level AS level, pair.key AS key, {value} AS value, count(*) FILTER (is_selected) AS inside,
        count(*) FILTER (NOT is_selected) AS outside
    FROM pairs WHERE pair.value IS NOT NULL GROUP BY ALL
),
missing AS (
    SELECT level, key, count(*) AS distinct_values, all_inside - sum(inside)::BIGINT AS missing_inside,
        all_outside - sum(outside)::BIGINT AS missing_outside
    FROM counted, totals GROUP BY level, key, all_inside, all_outside
),
shares AS (
    SELECT *, abs(inside / greatest(all_inside, 1) - outside / greatest(all_outside, 1)) AS difference,
        abs(missing_inside / greatest(all_inside, 1) - missing_outside / greatest(all_outside, 1)) AS missing_difference
    FROM counted JOIN missing USING (level, key), totals
),
placed AS (
    SELECT *, greatest(max(difference) OVER (PARTITION BY level, key), missing_difference) AS key_difference,
        row_number() OVER (PARTITION BY level, key ORDER BY difference DESC, inside + outside DESC, value) AS place
    FROM shares
)
SELECT * EXCLUDE (number) FROM (
    SELECT *, dense_rank() OVER (ORDER BY key_difference DESC, level, key) AS number FROM placed WHERE place <= {values}
) WHERE number <= {keys} ORDER BY number, place"""


def _difference(level: str, key: str, rows: list[dict[str, Any]]) -> KeyDifference:
    first = rows[0]
    return KeyDifference(
        level=level,
        key=key,
        difference=first["key_difference"],
        distinct=first["distinct_values"],
        missing_selected=first["missing_inside"],
        missing_others=first["missing_outside"],
        values=tuple(
            ValueCount(row["value"] if level == "field" else to_python(row["value"]), row["inside"], row["outside"])
            for row in rows
        ),
    )
