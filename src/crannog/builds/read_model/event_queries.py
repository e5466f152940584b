"""Queries of the read model for events: by id, pages by a filter, counts."""

from __future__ import annotations

from collections.abc import Sequence

from crannog.builds.events import BuildEvent, Kind
from crannog.builds.filters import EventFilter
from crannog.builds.read_model.connection import Connection, in_chunks, one_of
from crannog.builds.read_model.index_choice import conditions as narrowed
from crannog.builds.read_model.stored_events import COLUMNS, event_of
from crannog.builds.results import EventPage


def event(connection: Connection, event_id: str) -> BuildEvent | None:
    """Return one event by its id."""
    rows = connection.query(f"SELECT {COLUMNS} FROM events WHERE event_id = ?", (event_id,))
    return event_of(rows[0]) if rows else None


def events_by_id(connection: Connection, ids: Sequence[str]) -> dict[str, BuildEvent]:
    """Return the events that have one of these ids."""
    found: dict[str, BuildEvent] = {}
    for some in in_chunks(ids):
        rows = connection.query(f"SELECT {COLUMNS} FROM events WHERE {one_of('event_id', some)}", some)
        found.update((event.event_id, event) for event in map(event_of, rows))
    return found


def needs_several_queries(wanted: EventFilter) -> bool:
    """Tell whether a page takes several queries, which must see one state so that no event is missed between them."""
    return bool(wanted.partition_globs) or wanted.start_ns is not None or wanted.end_ns is not None


def events_page(
    connection: Connection,
    wanted: EventFilter,
    *,
    since: int | None,
    limit: int,
    descending: bool,
    until: int | None = None,
) -> EventPage:
    """Return up to `limit` events strictly after `since` in the given direction; None starts at the first or last event."""
    conditions, values = narrowed(connection, wanted)
    if since is not None:
        conditions.append("idx < ?" if descending else "idx > ?")
        values.append(since)
    if until is not None:
        conditions.append("idx <= ?")
        values.append(until)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = connection.query(
        f"SELECT {COLUMNS} FROM events{where} ORDER BY idx {'DESC' if descending else 'ASC'} LIMIT ?",
        (*values, limit + 1),
    )
    found = tuple(map(event_of, rows[:limit]))
    last = found[-1].index if found else (since or 0)
    assert last is not None
    return EventPage(found, last, len(rows) > limit)


def count_events(connection: Connection) -> int:
    [(count,)] = connection.query("SELECT count(*) FROM events")
    return int(count)


def events_by_kind(connection: Connection) -> dict[str, int]:
    counts = dict(connection.query("SELECT kind, count(*) FROM events GROUP BY kind"))
    return {kind.event_type: counts.get(int(kind), 0) for kind in Kind}
