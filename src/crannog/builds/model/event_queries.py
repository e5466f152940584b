"""Events from the read model: one, a page of those that match, how many of which kind. Nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crannog.builds.events import BuildEvent, Kind
from crannog.builds.filters import EventFilter
from crannog.builds.model.connection import Connection
from crannog.builds.model.stored import COLUMNS, event_of
from crannog.builds.results import EventPage


def event(connection: Connection, event_id: str) -> BuildEvent | None:
    """Return one event by its id."""
    rows = connection.query(f"SELECT {COLUMNS} FROM events WHERE event_id = ?", (event_id,))
    return event_of(rows[0]) if rows else None


def events_page(
    connection: Connection, wanted: EventFilter, *, since: int | None, limit: int, descending: bool, until: int | None = None
) -> EventPage:
    """Return up to `limit` events strictly after `since` in the given direction; None starts at the end it comes from."""
    conditions, values = _conditions(connection, wanted)
    if since is not None:
        conditions.append("idx < ?" if descending else "idx > ?")
        values.append(since)
    if until is not None:
        conditions.append("idx <= ?")
        values.append(until)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = connection.query(
        f"SELECT {COLUMNS} FROM events{where} ORDER BY idx {'DESC' if descending else 'ASC'} LIMIT ?", (*values, limit + 1)
    )
    found = tuple(map(event_of, rows[:limit]))
    last = found[-1].index if found else (since or 0)
    assert last is not None
    return EventPage(found, last, len(rows) > limit)


def _conditions(connection: Connection, wanted: EventFilter) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    for column, listed in (
        ("build_request_id", wanted.build_request_ids),
        ("job_run_id", wanted.job_run_ids),
        ("job_label", wanted.job_labels),
        ("kind", tuple(map(int, wanted.kinds))),
    ):
        if listed:
            conditions.append(one_of(column, listed))
            values.extend(listed)
    parts = []
    if wanted.partition_refs:
        parts.append(one_of("partition_ref", wanted.partition_refs))
        values.extend(wanted.partition_refs)
    for pattern in wanted.partition_globs:
        parts.append(connection.matches_glob("partition_ref"))
        values.append(connection.glob(pattern))
    if parts:
        conditions.append(f"idx IN (SELECT idx FROM event_partitions WHERE {' OR '.join(parts)})")
    if wanted.start_ns is not None:
        conditions.append("timestamp >= ?")
        values.append(wanted.start_ns)
    if wanted.end_ns is not None:
        conditions.append("timestamp <= ?")
        values.append(wanted.end_ns)
    return conditions, values


def one_of(column: str, listed: Sequence[Any]) -> str:
    """Return the condition that a column has one of some values."""
    return f"{column} = ?" if len(listed) == 1 else f"{column} IN ({', '.join('?' * len(listed))})"


def count_events(connection: Connection) -> int:
    [(count,)] = connection.query("SELECT count(*) FROM events")
    return int(count)


def events_by_kind(connection: Connection) -> dict[str, int]:
    counts = dict(connection.query("SELECT kind, count(*) FROM events GROUP BY kind"))
    return {kind.event_type: counts.get(int(kind), 0) for kind in Kind}
