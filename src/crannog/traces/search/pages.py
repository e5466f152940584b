"""Pages of traces: where each begins and ends, in both directions."""

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
    """Return one page of the traces that match."""
    position = cursors.decode(cursor, request.digest, id_bytes=16)

    def page(snapshot: Snapshot) -> TracePage:
        with open_reader(table, snapshot) as reader:
            found, top = _traces_from(reader, request, position, limit)
            counted = count_traces(reader, request) if count else None
        return _page(found, request, position, limit, top, counted)

    return table.newest(page)


def _traces_from(
    open_reader: SnapshotReader, request: SearchRequest, position: Position | None, limit: int
) -> tuple[list[TraceSummary], int | None]:
    """Return up to `limit + 1` traces from the position on, and where a walk back in time goes on."""
    backward = position is not None and position.backward
    if request.order == ("oldest" if backward else "newest"):
        try:
            return NewestFirstSearch(open_reader, request, position).page(limit)
        except TooManyAtOneTime:
            pass
    return sorted_traces(open_reader, request, position, limit), None


def _page(
    found: list[TraceSummary],
    request: SearchRequest,
    position: Position | None,
    limit: int,
    top: int | None,
    counted: int | None,
) -> TracePage:
    backward = position is not None and position.backward
    more, listed = len(found) > limit, found[:limit]
    if backward:
        listed.reverse()
    here = Position(position.value, position.id) if position is not None else None
    first, last = (_position(request, listed[0]), _position(request, listed[-1])) if listed else (here, here)

    def cursor(at: Position | None, *, back: bool, wanted: bool) -> str | None:
        if at is None or not wanted:
            return None
        goes_on = top if request.order == "newest" and not back and not backward else None
        return cursors.encode(Position(at.value, at.id, back, goes_on), request.digest)

    return TracePage(
        tuple(listed),
        next_cursor=cursor(last, back=False, wanted=more or backward),
        previous_cursor=cursor(first, back=True, wanted=more if backward else position is not None),
        total=counted,
    )


def _position(request: SearchRequest, summary: TraceSummary) -> Position:
    return Position(sort_value(request.order, summary), bytes.fromhex(summary.trace_id))
