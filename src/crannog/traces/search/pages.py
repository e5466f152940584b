"""Pages of traces: where each begins and ends, in both directions."""

from __future__ import annotations

from crannog.api.traces import TracePage, TraceSummary
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.traces.search import cursors
from crannog.traces.search.cursors import Position
from crannog.traces.search.newest_first import TooManyAtOnce, Walk
from crannog.traces.search.request import Asked
from crannog.traces.search.snapshot_reader import Reading, reading
from crannog.traces.search.sorted_search import ranked, total, value_of


def search(table: OpenTable, asked: Asked, *, limit: int, cursor: str | None, count: bool) -> TracePage:
    """Return one page of the traces that match."""
    position = cursors.read(cursor, asked.digest, id_bytes=16)

    def page(snapshot: Snapshot) -> TracePage:
        with reading(table, snapshot) as open_reading:
            found, top = _found(open_reading, asked, position, limit)
            counted = total(open_reading, asked) if count else None
        return _page(found, asked, position, limit, top, counted)

    return table.newest(page)


def _found(
    reading: Reading, asked: Asked, position: Position | None, limit: int
) -> tuple[list[TraceSummary], int | None]:
    """Return up to `limit + 1` traces from the position on, and where a walk back in time goes on."""
    backward = position is not None and position.backward
    if asked.order == ("oldest" if backward else "newest"):
        try:
            return Walk(reading, asked, position).page(limit)
        except TooManyAtOnce:
            pass
    return ranked(reading, asked, position, limit), None


def _page(
    found: list[TraceSummary], asked: Asked, position: Position | None, limit: int, top: int | None, counted: int | None
) -> TracePage:
    backward = position is not None and position.backward
    more, listed = len(found) > limit, found[:limit]
    if backward:
        listed.reverse()
    here = Position(position.value, position.id) if position is not None else None
    first, last = (_position(asked, listed[0]), _position(asked, listed[-1])) if listed else (here, here)

    def cursor(at: Position | None, *, back: bool, wanted: bool) -> str | None:
        if at is None or not wanted:
            return None
        goes_on = top if asked.order == "newest" and not back and not backward else None
        return cursors.written(Position(at.value, at.id, back, goes_on), asked.digest)

    return TracePage(
        tuple(listed),
        next_cursor=cursor(last, back=False, wanted=more or backward),
        previous_cursor=cursor(first, back=True, wanted=more if backward else position is not None),
        total=counted,
    )


def _position(asked: Asked, summary: TraceSummary) -> Position:
    return Position(value_of(asked.order, summary), bytes.fromhex(summary.trace_id))
