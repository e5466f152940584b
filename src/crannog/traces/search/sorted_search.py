"""Traces in any order, and their number: reads all matching spans, within the engine's memory and spill limits."""

from __future__ import annotations

from crannog.api.traces import TraceSummary
from crannog.traces.search.cursors import Position
from crannog.traces.search.filter_sql import condition_sql, null_as_false
from crannog.traces.search.filter_tree import FIELDS, MATCH_ALL, Compare, Filter, all_of
from crannog.traces.search.pruning import pruning_conditions, start_bounds
from crannog.traces.search.request import SearchRequest
from crannog.traces.search.snapshot_reader import SnapshotReader
from crannog.traces.search.summaries import newest_copies_sql, rows_of_trace_table, summaries, traces_with_duplicates
from crannog.traces.trace import ERROR_STATUS

_SORT_KEYS = {
    "newest": ("start_ns", True),
    "oldest": ("start_ns", False),
    "longest": ("end_ns - start_ns", True),
    "shortest": ("end_ns - start_ns", False),
    "most_spans": ("spans", True),
    "most_errors": ("errors", True),
}
"""The sort expression of each order, and whether it is descending."""

_IDS = "trace_id, trace_hi, span_id"
_COLUMNS = "trace_id, span_id, start_ns, end_ns, status_code, _created_at, _batch_id"


def sort_value(order: str, summary: TraceSummary) -> int:
    """Return the value by which a trace is sorted in an order."""
    if order in ("newest", "oldest"):
        return summary.start_ns
    return {"most_spans": summary.span_count, "most_errors": summary.error_count}.get(order, summary.duration_ns)


def sorted_traces(
    reader: SnapshotReader, request: SearchRequest, position: Position | None, limit: int
) -> list[TraceSummary]:
    """Return up to `limit + 1` traces after the position, or before it, nearest first."""
    expression, descending = _SORT_KEYS[request.order]
    if position is not None and position.backward:
        descending = not descending
    filter = request.filter
    if position is not None and expression == "start_ns" and not descending:
        # A trace that starts after the position has no span before it.
        filter = all_of(filter, Compare(FIELDS["start"], ">=", position.value))
    direction = "DESC" if descending else "ASC"
    after = "true"
    if position is not None:
        sign, trace_id = "<" if descending else ">", f"from_hex('{position.id.hex()}')"
        after = f"(value {sign} {position.value} OR (value = {position.value} AND trace_id {sign} {trace_id}))"
    traces = _matching_traces(reader, request, filter)
    found = reader.query(
        f"SELECT trace_id, start_ns FROM (SELECT *, {expression} AS value FROM ({traces}))"
        f" WHERE {after} ORDER BY value {direction}, trace_id {direction} LIMIT {limit + 1}"
    )
    ids, starts = found["trace_id"].to_pylist(), found["start_ns"].to_pylist()
    by_id = summaries(reader, ids, min(starts, default=0), max(starts, default=0))
    return [by_id[trace_id] for trace_id in ids]


def count_traces(reader: SnapshotReader, request: SearchRequest) -> int:
    """Count the matching traces."""
    if request.has_trace_conditions or request.filter == MATCH_ALL:
        query = f"SELECT count(*) FROM ({_matching_traces(reader, request, request.filter)})"
    else:
        _create_matching(reader, request.filter)
        query = "SELECT count(*) FROM matching"
    return int(reader.query(query).column(0)[0].as_py())


def _matching_traces(reader: SnapshotReader, request: SearchRequest, filter: Filter) -> str:
    """Return the SQL of the matching traces, with the columns that `_SORT_KEYS` use."""
    rows, condition = reader.rows_near(*start_bounds(filter))
    if filter == MATCH_ALL:
        part = f"SELECT * FROM {rows} WHERE {condition}"
        duplicates = reader.create_temp_table(
            "duplicated", f"WITH part AS MATERIALIZED (SELECT {_IDS} FROM {rows}) {traces_with_duplicates('part')}"
        )
    else:
        duplicates = _create_matching(reader, filter)
        part = rows_of_trace_table(rows, condition, "matching")
    spans = f"SELECT {_COLUMNS} FROM ({part})"
    if duplicates:
        copies = newest_copies_sql(f"SELECT {_COLUMNS} FROM ({part}) SEMI JOIN duplicated USING (trace_id)")
        spans = f"{spans} ANTI JOIN duplicated USING (trace_id) UNION ALL {copies}"
    return (
        "SELECT trace_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns, count(*) AS spans,"
        f" count(*) FILTER (status_code = {ERROR_STATUS}) AS errors FROM ({spans}) GROUP BY trace_id"
        f" HAVING {_trace_conditions(request)}"
    )


def _create_matching(reader: SnapshotReader, filter: Filter) -> int:
    """Create the table `matching` of the matching traces, and `duplicated` of those with a span more than once.

    Returns the number of traces in `duplicated`.
    """
    source = reader.rows(pruning_conditions(filter))
    reader.create_temp_table(
        "matching", f"SELECT DISTINCT trace_id, trace_hi FROM {source} WHERE {condition_sql(filter)}"
    )
    rows, condition = reader.rows_near(*start_bounds(filter))
    part = f"part AS MATERIALIZED ({rows_of_trace_table(rows, condition, 'matching', _IDS)})"
    duplicates = reader.create_temp_table("duplicated", f"WITH {part} {traces_with_duplicates('part')}")
    if duplicates:
        # An older copy of a span may have matched.
        columns = f"{_COLUMNS}, {null_as_false(condition_sql(filter))} AS matches"
        newest = newest_copies_sql(rows_of_trace_table(rows, condition, "duplicated", columns))
        reader.create_temp_table("still_matching", f"SELECT DISTINCT trace_id FROM ({newest}) WHERE matches")
        reader.create_temp_table(
            "matching",
            "SELECT * FROM matching ANTI JOIN duplicated USING (trace_id)"
            " UNION ALL SELECT * FROM duplicated SEMI JOIN still_matching USING (trace_id)",
        )
    return duplicates


def _trace_conditions(request: SearchRequest) -> str:
    terms = ["true"]
    if request.has_errors is not None:
        terms.append(f"errors {'>' if request.has_errors else '='} 0")
    for sign, bound in ((">=", request.min_duration_ns), ("<=", request.max_duration_ns)):
        if bound is not None:
            exact = -(-bound // 1) if sign == ">=" else bound // 1
            terms.append(f"max(end_ns) - min(start_ns) {sign} {int(exact)}")
    return " AND ".join(terms)
