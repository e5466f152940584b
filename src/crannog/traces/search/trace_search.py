"""Pages of traces, forward and backward from a cursor.

Newest first, the search goes back in time, in steps, until the page is full. A trace starts no later than any of its spans.
Once all matches that start at or after some time are known, every trace not found yet starts before that time, so the traces
found that start at or after it are in their final order. Other orders, and counts, read all matching spans, within the
engine's memory and spill limits.
"""

from __future__ import annotations

from crannog.api.traces import TracePage, TraceSummary
from crannog.api.traces.requests import TraceQuery
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.traces.search import cursors
from crannog.traces.search.cursors import Position
from crannog.traces.search.filter_sql import condition_sql, null_as_false, prefilter_sql
from crannog.traces.search.filter_tree import FIELDS, MATCH_ALL, Compare, Filter, all_of
from crannog.traces.search.request import SearchRequest, checked_limit, trace_search_request
from crannog.traces.search.snapshot_reader import (
    EARLIEST,
    LATEST,
    SnapshotReader,
    open_reader,
    pruning_conditions,
    start_between,
    start_bounds,
)
from crannog.traces.search.summaries import (
    ID_COLUMNS,
    create_duplicated,
    newest_copies_sql,
    rows_of_trace_table,
    summaries,
)
from crannog.traces.span_store import SpanStore
from crannog.traces.trace import ERROR_STATUS


def search(store: SpanStore, query: TraceQuery) -> TracePage:
    """Return one page of the matching traces."""
    request, limit = trace_search_request(query), checked_limit(query.limit)

    def page(table: OpenTable, snapshot: Snapshot) -> TracePage:
        position = cursors.decode(query.cursor, request.digest, id_bytes=16)
        with open_reader(table, snapshot) as reader:
            found, search_before = _traces_from(reader, request, position, limit)
            total = count_traces(reader, request) if query.count else None
        if request.order != "newest":
            search_before = None
        listed, next_cursor, previous_cursor = cursors.page_of(
            found, limit, position, lambda summary: _position(request, summary), request.digest, search_before
        )
        return TracePage(tuple(listed), next_cursor, previous_cursor, total)

    return store.read_newest(page, TracePage((), total=0 if query.count else None))


def _traces_from(
    reader: SnapshotReader, request: SearchRequest, position: Position | None, limit: int
) -> tuple[list[TraceSummary], int | None]:
    """Return up to `limit + 1` traces from the position on, and the time before which the next page has to search."""
    backward = position is not None and position.backward
    if request.order == ("oldest" if backward else "newest"):
        try:
            return NewestFirstSearch(reader, request, position).page(limit)
        except TooManyAtOneTime:
            pass
    return sorted_traces(reader, request, position, limit), None


def _position(request: SearchRequest, summary: TraceSummary) -> Position:
    return Position(sort_value(request.order, summary), bytes.fromhex(summary.trace_id))


_FIRST_ROWS, _MAX_ROWS = 32_768, 16_777_216
_MAX_TRACES = 20_000
_GROWTH, _GROWTH_WITH_TRACE_CONDITIONS = 4, 16
"""How steps grow. Conditions on whole traces are checked on summaries, so a step may need many traces to find a few."""


class TooManyAtOneTime(Exception):
    """More traces than one step reads have their newest match in the same nanosecond, so their order is unknown."""


class NewestFirstSearch:
    """One search back in time, from the position of a cursor or from the newest span."""

    def __init__(self, reader: SnapshotReader, request: SearchRequest, position: Position | None) -> None:
        self._reader = reader
        self._request = request
        self._position = position
        self._condition = prefilter_sql(request.filter)
        self._pruning = pruning_conditions(request.filter)
        self._traces: dict[bytes, tuple[int, TraceSummary]] = {}
        """By trace id: the newest start of a matching span, and the summary."""
        self._newest_dropped = EARLIEST
        self._searched_to = LATEST
        """All matches that start at or after this time are known."""

    def page(self, limit: int) -> tuple[list[TraceSummary], int]:
        """Return up to `limit + 1` traces after the position, and the time before which the next page has to search."""
        histogram = self._reader.time_histogram(self._request.filter)
        earliest, latest = start_bounds(self._request.filter)
        lowest = max(histogram.low, earliest)
        self._searched_to = min(histogram.high, latest, LATEST - 1) + 1
        if self._position is not None and self._position.search_before is not None:
            self._searched_to = min(self._searched_to, self._position.search_before)
        growth = _GROWTH_WITH_TRACE_CONDITIONS if self._request.has_trace_conditions else _GROWTH
        rows, traces = _FIRST_ROWS, limit + limit // 3 + 8
        while self._searched_to > lowest and len(self._in_final_order()) <= limit:
            before = self._searched_to
            if not self._step(histogram.range_start(before, rows), traces):
                rows = min(rows * _GROWTH, _MAX_ROWS)
            elif self._searched_to == before and traces == _MAX_TRACES:
                raise TooManyAtOneTime
            traces = min(traces * growth, _MAX_TRACES)
            self._drop_beyond(limit)
        is_done = self._searched_to <= lowest
        listed = sorted(self._traces, key=self._sort_key, reverse=True) if is_done else self._in_final_order()
        later = [self._traces[trace_id][0] + 1 for trace_id in self._traces.keys() - set(listed[:limit])]
        search_before = max([self._searched_to, self._newest_dropped + 1, *later])
        return [self._traces[trace_id][1] for trace_id in listed[: limit + 1]], search_before

    def _sort_key(self, trace_id: bytes) -> tuple[int, bytes]:
        return self._traces[trace_id][1].start_ns, trace_id

    def _in_final_order(self) -> list[bytes]:
        """Return the traces whose order is final, newest first."""
        final = [key for key, (_, summary) in self._traces.items() if summary.start_ns >= self._searched_to]
        return sorted(final, key=self._sort_key, reverse=True)

    def _drop_beyond(self, limit: int) -> None:
        """Drop the traces beyond the page, and remember from which time a later search finds them again."""
        for trace_id in self._in_final_order()[limit + 1 :]:
            newest_match, _ = self._traces.pop(trace_id)
            self._newest_dropped = max(self._newest_dropped, newest_match)

    def _step(self, low: int, max_traces: int) -> bool:
        """Add the traces with matches back to `low`, at most `max_traces`; return True if there are more."""
        high = self._searched_to - 1
        found = self._reader.query(
            "SELECT trace_id, max(start_ns) AS newest_match"
            f" FROM {self._reader.rows([*self._pruning, *start_between(low, high)])}"
            f" WHERE start_ns <= {high}{'' if low == EARLIEST else f' AND start_ns >= {low}'} AND {self._condition}"
            f"{self._error_condition(low, high)}"
            f" GROUP BY trace_id ORDER BY newest_match DESC LIMIT {max_traces + 1}"
        )
        ids, times = found["trace_id"].to_pylist(), found["newest_match"].to_pylist()
        has_more = len(ids) > max_traces
        if has_more:
            low = times[-1] + 1  # more traces than the query returned may match at this exact time
        self._searched_to = low
        self._add({trace_id: time for trace_id, time in zip(ids, times, strict=True) if time >= low})
        return has_more

    def _error_condition(self, low: int, high: int) -> str:
        """Return SQL that leaves out traces without errors, if only failed traces are wanted: it saves their summaries."""
        if not self._request.has_errors:
            return ""
        rows, condition = self._reader.rows_near(low, high)
        return f" AND trace_id IN (SELECT trace_id FROM {rows} WHERE status_code = {ERROR_STATUS} AND {condition})"

    def _add(self, newest_matches: dict[bytes, int]) -> None:
        if not newest_matches:
            return
        low, high = min(newest_matches.values()), max(newest_matches.values())
        found = summaries(self._reader, list(newest_matches), low, high, self._request.filter)
        for trace_id, summary in found.items():
            if self._matches(trace_id, summary):
                known = self._traces.get(trace_id)
                self._traces[trace_id] = (newest_matches[trace_id] if known is None else known[0], summary)

    def _matches(self, trace_id: bytes, summary: TraceSummary) -> bool:
        request, position = self._request, self._position
        if position is not None and (summary.start_ns, trace_id) >= (position.value, position.id):
            return False
        return (
            (request.has_errors is None or request.has_errors == summary.has_errors)
            and (request.min_duration_ns is None or summary.duration_ns >= request.min_duration_ns)
            and (request.max_duration_ns is None or summary.duration_ns <= request.max_duration_ns)
        )


_SORT_KEYS = {
    "newest": ("start_ns", True),
    "oldest": ("start_ns", False),
    "longest": ("end_ns - start_ns", True),
    "shortest": ("end_ns - start_ns", False),
    "most_spans": ("spans", True),
    "most_errors": ("errors", True),
}
"""The sort expression of each order, and whether it is descending."""

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
        duplicates = create_duplicated(reader, f"SELECT {ID_COLUMNS} FROM {rows}")
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
    duplicates = create_duplicated(reader, rows_of_trace_table(rows, condition, "matching", ID_COLUMNS))
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
