"""Newest traces first: search back in time, in steps, until the page is full.

A trace starts no later than any of its spans. Once all matches that start at or after some time are known, every trace
not found yet starts before that time, so the traces found that start at or after it are in their final order.
"""

from __future__ import annotations

from crannog.api.traces import TraceSummary
from crannog.traces.search.cursors import Position
from crannog.traces.search.filter_sql import prefilter_sql
from crannog.traces.search.pruning import pruning_conditions, start_bounds
from crannog.traces.search.request import SearchRequest
from crannog.traces.search.snapshot_reader import SnapshotReader, start_between
from crannog.traces.search.summaries import summaries
from crannog.traces.search.time_histogram import EARLIEST, LATEST
from crannog.traces.trace import ERROR_STATUS

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
