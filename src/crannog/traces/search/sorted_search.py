"""Traces in any order, and how many there are: all that match are looked at, within the engine's memory and spill."""

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
"""What each order goes by, and whether the largest comes first."""

_IDS = "trace_id, trace_hi, span_id"
_COLUMNS = "trace_id, span_id, start_ns, end_ns, status_code, _created_at, _batch_id"


def sort_value(order: str, summary: TraceSummary) -> int:
    """Return what a trace has its place in an order by."""
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
        sign, place = "<" if descending else ">", f"from_hex('{position.id.hex()}')"
        after = f"(value {sign} {position.value} OR (value = {position.value} AND trace_id {sign} {place}))"
    found = reader.query(
        f"SELECT trace_id, start_ns FROM (SELECT *, {expression} AS value FROM ({_traces(reader, request, filter)}))"
        f" WHERE {after} ORDER BY value {direction}, trace_id {direction} LIMIT {limit + 1}"
    )
    ids, starts = found["trace_id"].to_pylist(), found["start_ns"].to_pylist()
    told = {each.id: each.summary for each in summaries(reader, ids, min(starts, default=0), max(starts, default=0))}
    return [told[each] for each in ids]


def count_traces(reader: SnapshotReader, request: SearchRequest) -> int:
    """Count the traces that match."""
    if request.is_about_whole_traces or request.filter == MATCH_ALL:
        query = f"SELECT count(*) FROM ({_traces(reader, request, request.filter)})"
    else:
        _create_matching(reader, request.filter)
        query = "SELECT count(*) FROM hits"
    return int(reader.query(query).column(0)[0].as_py())


def _traces(reader: SnapshotReader, request: SearchRequest, filter: Filter) -> str:
    """Return the SQL of the traces that match, with what they are ordered by."""
    rows, condition = reader.rows_near(*start_bounds(filter))
    if filter == MATCH_ALL:
        part = f"SELECT * FROM {rows} WHERE {condition}"
        again = reader.create_temp_table(
            "again", f"WITH part AS MATERIALIZED (SELECT {_IDS} FROM {rows}) {traces_with_duplicates('part')}"
        )
    else:
        again = _create_matching(reader, filter)
        part = rows_of_trace_table(rows, condition, "hits")
    once = f"SELECT {_COLUMNS} FROM ({part})"
    if again:
        copies = newest_copies_sql(f"SELECT {_COLUMNS} FROM ({part}) SEMI JOIN again USING (trace_id)")
        once = f"{once} ANTI JOIN again USING (trace_id) UNION ALL {copies}"
    return (
        "SELECT trace_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns, count(*) AS spans,"
        f" count(*) FILTER (status_code = {ERROR_STATUS}) AS errors FROM ({once}) GROUP BY trace_id HAVING {_trace_conditions(request)}"
    )


def _create_matching(reader: SnapshotReader, filter: Filter) -> int:
    """Make the table `hits` of the traces that match, and `again` of those in it with a span more than once; count those."""
    found = f"SELECT DISTINCT trace_id, trace_hi FROM {reader.rows(pruning_conditions(filter))} WHERE {condition_sql(filter)}"
    reader.create_temp_table("hits", found)
    rows, condition = reader.rows_near(*start_bounds(filter))
    part = f"part AS MATERIALIZED ({rows_of_trace_table(rows, condition, 'hits', _IDS)})"
    again = reader.create_temp_table("again", f"WITH {part} {traces_with_duplicates('part')}")
    if again:
        # An older copy of a span may have made the hit.
        newest = newest_copies_sql(
            rows_of_trace_table(
                rows, condition, "again", f"{_COLUMNS}, {null_as_false(condition_sql(filter))} AS meets"
            )
        )
        reader.create_temp_table("fresh", f"SELECT DISTINCT trace_id FROM ({newest}) WHERE meets")
        kept = "SELECT * FROM hits ANTI JOIN again USING (trace_id) UNION ALL SELECT * FROM again SEMI JOIN fresh USING (trace_id)"
        reader.create_temp_table("hits", kept)
    return again


def _trace_conditions(request: SearchRequest) -> str:
    terms = ["true"]
    if request.has_errors is not None:
        terms.append(f"errors {'>' if request.has_errors else '='} 0")
    for sign, bound in ((">=", request.min_duration_ns), ("<=", request.max_duration_ns)):
        if bound is not None:
            exact = -(-bound // 1) if sign == ">=" else bound // 1
            terms.append(f"max(end_ns) - min(start_ns) {sign} {int(exact)}")
    return " AND ".join(terms)
