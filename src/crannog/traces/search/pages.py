"""Pages of traces, forward and backward from a cursor."""

from __future__ import annotations

from crannog.api.traces import TracePage, TraceSummary
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.traces.search import cursors
from crannog.traces.search.cursors import Position
from crannog.traces.search.newest_first import NewestFirstSearch, TooManyAtOneTime
from crannog.traces.search.request import SearchRequest
from crannog.traces.search.snapshot_reader import SnapshotReader, open_reader
from crannog.traces.search.sorted_search import count_traces, sort_value, sorted_traces


def search(table: OpenTable, request: SearchRequest, *, limit: int, cursor: str | None, count: bool) -> TracePage:
    """Return one page of the matching traces."""
    position = cursors.decode(cursor, request.digest, id_bytes=16)

    def page(snapshot: Snapshot) -> TracePage:
        with open_reader(table, snapshot) as reader:
            found, search_before = _traces_from(reader, request, position, limit)
            total = count_traces(reader, request) if count else None
        listed = found[:limit]
        if position is not None and position.backward:
            listed.reverse()
        next_cursor, previous_cursor = cursors.page_cursors(
            position,
            [_position(request, summary) for summary in (listed[0], listed[-1])] if listed else None,
            request.digest,
            has_more=len(found) > limit,
            search_before=search_before if request.order == "newest" else None,
        )
        return TracePage(tuple(listed), next_cursor, previous_cursor, total)

    return table.newest(page)


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
