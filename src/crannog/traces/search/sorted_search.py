"""Traces in any order, and how many there are: all that match are looked at, within the engine's memory and spill."""

from __future__ import annotations

from crannog.api.traces import TraceSummary
from crannog.traces.search.cursors import Position
from crannog.traces.search.filter_sql import certain, sql_of
from crannog.traces.search.filter_tree import EVERYTHING, FIELDS, Compare, Filter, both
from crannog.traces.search.pruning import conditions_of, times_of
from crannog.traces.search.request import Asked
from crannog.traces.search.snapshot_reader import Reading
from crannog.traces.search.summaries import newest_copies, of_traces, sent_again, summaries
from crannog.traces.trace import ERROR

VALUES = {
    "newest": ("start_ns", True),
    "oldest": ("start_ns", False),
    "longest": ("end_ns - start_ns", True),
    "shortest": ("end_ns - start_ns", False),
    "most_spans": ("spans", True),
    "most_errors": ("errors", True),
}
"""What each order goes by, and whether the largest comes first."""

_IDS = "trace_id, trace_hi, span_id"
_PARTS = "trace_id, span_id, start_ns, end_ns, status_code, _created_at, _batch_id"


def value_of(order: str, summary: TraceSummary) -> int:
    """Return what a trace has its place in an order by."""
    if order in ("newest", "oldest"):
        return summary.start_ns
    return {"most_spans": summary.span_count, "most_errors": summary.error_count}.get(order, summary.duration_ns)


def ranked(reading: Reading, asked: Asked, position: Position | None, limit: int) -> list[TraceSummary]:
    """Return up to `limit + 1` traces after the position, or before it, nearest first."""
    expression, descending = VALUES[asked.order]
    if position is not None and position.backward:
        descending = not descending
    filter = asked.filter
    if position is not None and expression == "start_ns" and not descending:
        # A trace that starts after the position has no span before it.
        filter = both(filter, Compare(FIELDS["start"], ">=", position.value))
    direction = "DESC" if descending else "ASC"
    after = "true"
    if position is not None:
        sign, place = "<" if descending else ">", f"from_hex('{position.id.hex()}')"
        after = f"(value {sign} {position.value} OR (value = {position.value} AND trace_id {sign} {place}))"
    found = reading.ask(
        f"SELECT trace_id, start_ns FROM (SELECT *, {expression} AS value FROM ({_traces(reading, asked, filter)}))"
        f" WHERE {after} ORDER BY value {direction}, trace_id {direction} LIMIT {limit + 1}"
    )
    ids, starts = found["trace_id"].to_pylist(), found["start_ns"].to_pylist()
    told = {each.id: each.summary for each in summaries(reading, ids, min(starts, default=0), max(starts, default=0))}
    return [told[each] for each in ids]


def total(reading: Reading, asked: Asked) -> int:
    """Count the traces that match."""
    if asked.is_about_whole_traces or asked.filter == EVERYTHING:
        query = f"SELECT count(*) FROM ({_traces(reading, asked, asked.filter)})"
    else:
        _make_hits(reading, asked.filter)
        query = "SELECT count(*) FROM hits"
    return int(reading.ask(query).column(0)[0].as_py())


def _traces(reading: Reading, asked: Asked, filter: Filter) -> str:
    """Return the SQL of the traces that match, with what they are ordered by."""
    rows, condition = reading.near(*times_of(filter))
    if filter == EVERYTHING:
        part = f"SELECT * FROM {rows} WHERE {condition}"
        again = reading.make("again", f"WITH part AS MATERIALIZED (SELECT {_IDS} FROM {rows}) {sent_again('part')}")
    else:
        again = _make_hits(reading, filter)
        part = of_traces(rows, condition, "hits")
    once = f"SELECT {_PARTS} FROM ({part})"
    if again:
        copies = newest_copies(f"SELECT {_PARTS} FROM ({part}) SEMI JOIN again USING (trace_id)")
        once = f"{once} ANTI JOIN again USING (trace_id) UNION ALL {copies}"
    return (
        "SELECT trace_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns, count(*) AS spans,"
        f" count(*) FILTER (status_code = {ERROR}) AS errors FROM ({once}) GROUP BY trace_id HAVING {_of_whole(asked)}"
    )


def _make_hits(reading: Reading, filter: Filter) -> int:
    """Make the table `hits` of the traces that match, and `again` of those in it with a span more than once; count those."""
    found = f"SELECT DISTINCT trace_id, trace_hi FROM {reading.rows(conditions_of(filter))} WHERE {sql_of(filter)}"
    reading.make("hits", found)
    rows, condition = reading.near(*times_of(filter))
    part = f"part AS MATERIALIZED ({of_traces(rows, condition, 'hits', _IDS)})"
    again = reading.make("again", f"WITH {part} {sent_again('part')}")
    if again:
        # An older copy of a span may have made the hit.
        newest = newest_copies(of_traces(rows, condition, "again", f"{_PARTS}, {certain(sql_of(filter))} AS meets"))
        reading.make("fresh", f"SELECT DISTINCT trace_id FROM ({newest}) WHERE meets")
        kept = "SELECT * FROM hits ANTI JOIN again USING (trace_id) UNION ALL SELECT * FROM again SEMI JOIN fresh USING (trace_id)"
        reading.make("hits", kept)
    return again


def _of_whole(asked: Asked) -> str:
    terms = ["true"]
    if asked.has_errors is not None:
        terms.append(f"errors {'>' if asked.has_errors else '='} 0")
    for sign, bound in ((">=", asked.min_duration_ns), ("<=", asked.max_duration_ns)):
        if bound is not None:
            exact = -(-bound // 1) if sign == ">=" else bound // 1
            terms.append(f"max(end_ns) - min(start_ns) {sign} {int(exact)}")
    return " AND ".join(terms)
