"""Newest traces first, without looking at everything: back in time, in steps, until the page is full.

A trace starts no later than any of its spans. So once all matches that start at or after some time are known, every
trace that is still unknown starts before that time, and the known ones that start after it are in their final order.
"""

from __future__ import annotations

from crannog.api.traces import TraceSummary
from crannog.traces.search.cursors import Position
from crannog.traces.search.filter_sql import prefilter_sql
from crannog.traces.search.pruning import pruning_conditions, start_bounds
from crannog.traces.search.request import SearchRequest
from crannog.traces.search.snapshot_reader import SnapshotReader, start_between
from crannog.traces.search.summaries import Found, summaries
from crannog.traces.search.time_histogram import EARLIEST, LATEST
from crannog.traces.trace import ERROR_STATUS

_FIRST_ROWS, _MAX_ROWS = 32_768, 16_777_216
_MAX_TRACES = 20_000
_GROWTH, _GROWTH_WITH_TRACE_CONDITIONS = 4, 16
"""How steps grow; what is asked of whole traces is told only by their summaries, so many may be needed for a few."""


class TooManyAtOneTime(Exception):
    """More traces than a step takes have their newest match in one nanosecond: a walk cannot tell their order."""


class NewestFirstSearch:
    """One walk back in time. `page` are the traces found, newest first, one more than asked for if there are more."""

    def __init__(self, reader: SnapshotReader, request: SearchRequest, position: Position | None) -> None:
        self._reading = reader
        self._asked = request
        self._position = position
        self._condition = prefilter_sql(request.filter)
        self._conditions = pruning_conditions(request.filter)
        self._found: dict[bytes, tuple[int, Found]] = {}
        self._reach = EARLIEST
        self._bound = LATEST

    def page(self, limit: int) -> tuple[list[TraceSummary], int]:
        """Return up to `limit + 1` traces before the position, and the `top` from which the next page must look."""
        position = self._position
        spread = self._reading.time_histogram(self._asked.filter)
        earliest, latest = start_bounds(self._asked.filter)
        lowest = max(spread.low, earliest)
        self._bound = min(spread.high, latest, LATEST - 1) + 1
        if position is not None and position.top is not None:
            self._bound = min(self._bound, position.top)
        rows, traces = _FIRST_ROWS, limit + limit // 3 + 8
        while self._bound > lowest and len(self._ready()) <= limit:
            low = spread.before(self._bound, rows)
            before = self._bound
            if not self._step(low, traces):
                rows = min(rows * _GROWTH, _MAX_ROWS)
            elif self._bound == before and traces == _MAX_TRACES:
                raise TooManyAtOneTime
            traces = min(
                traces * (_GROWTH_WITH_TRACE_CONDITIONS if self._asked.is_about_whole_traces else _GROWTH), _MAX_TRACES
            )
            self._keep(limit)
        done = self._bound <= lowest
        listed = sorted(self._found.values() if done else self._ready(), key=lambda each: _key(each[1]), reverse=True)
        left = [seen for seen, found in self._found.values() if found.id not in {each[1].id for each in listed[:limit]}]
        top = max([self._bound, self._reach + 1, *(seen + 1 for seen in left)])
        return [found.summary for _, found in listed[: limit + 1]], top

    def _ready(self) -> list[tuple[int, Found]]:
        return [each for each in self._found.values() if each[1].summary.start_ns >= self._bound]

    def _keep(self, limit: int) -> None:
        """Forget what is beyond the page, but for the time from which it can be found again."""
        ready = sorted(self._ready(), key=lambda each: _key(each[1]), reverse=True)
        for seen, found in ready[limit + 1 :]:
            self._reach = max(self._reach, seen)
            del self._found[found.id]

    def _step(self, low: int, most: int) -> bool:
        """Find the traces of the next matches back to `low`, or the first `most` of them; True if there were so many."""
        high = self._bound - 1
        found = self._reading.query(
            f"SELECT trace_id, max(start_ns) AS seen FROM {self._reading.rows([*self._conditions, *start_between(low, high)])}"
            f" WHERE start_ns <= {high}{'' if low == EARLIEST else f' AND start_ns >= {low}'} AND {self._condition}"
            f"{self._with_errors(low, high)}"
            f" GROUP BY trace_id ORDER BY seen DESC LIMIT {most + 1}"
        )
        ids, seen = found["trace_id"].to_pylist(), found["seen"].to_pylist()
        many = len(ids) > most
        if many:
            low = seen[-1] + 1  # of those that start at this very time, not all may be here
        self._bound = low
        matched = {each: at for each, at in zip(ids, seen, strict=True) if at >= low}
        self._take_in(matched)
        return many

    def _with_errors(self, low: int, high: int) -> str:
        """Return what spares the summaries of traces without errors where those are not asked for."""
        if not self._asked.has_errors:
            return ""
        rows, condition = self._reading.rows_near(low, high)
        return f" AND trace_id IN (SELECT trace_id FROM {rows} WHERE status_code = {ERROR_STATUS} AND {condition})"

    def _take_in(self, matched: dict[bytes, int]) -> None:
        if not matched:
            return
        low, high = min(matched.values()), max(matched.values())
        for each in summaries(self._reading, list(matched), low, high, self._asked.filter):
            if self._passes(each):
                before = self._found.get(each.id)
                self._found[each.id] = (matched[each.id] if before is None else before[0], each)

    def _passes(self, found: Found) -> bool:
        request, summary = self._asked, found.summary
        if self._position is not None and _key(found) >= (self._position.value, self._position.id):
            return False
        return (
            (request.has_errors is None or request.has_errors == summary.has_errors)
            and (request.min_duration_ns is None or summary.duration_ns >= request.min_duration_ns)
            and (request.max_duration_ns is None or summary.duration_ns <= request.max_duration_ns)
        )


def _key(found: Found) -> tuple[int, bytes]:
    return found.summary.start_ns, found.id
