"""Queries of the read model for events: by id, pages by a filter, counts; and rows of `events` as events.

Which condition of a filter uses its index is chosen here: without statistics SQLite guesses, and a wrong guess reads the
whole log. A run, a build, few partitions or a short time range select few events; a job label or a kind occurs everywhere,
so it is checked in commit order. The most selective condition uses its index, the others are checked on the rows it finds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from crannog.builds.events import BuildEvent, Kind, payload_of, stored_event
from crannog.builds.filters import EventFilter
from crannog.builds.read_model.tables import Connection, SqlValue
from crannog.builds.requests import EventById, EventQuery
from crannog.builds.results import EventPage

COLUMNS = "idx, event_id, timestamp, build_request_id, kind, body"
_CHUNK = 500
T = TypeVar("T")


def event_of(row: Sequence[Any]) -> BuildEvent:
    """Return the event of a row of `COLUMNS`."""
    index, event_id, timestamp, build, kind, body = row
    return stored_event(event_id, timestamp, build, payload_of(kind, json.loads(body)), index)


def one_of(column: str, listed: Sequence[SqlValue]) -> str:
    """Return the condition that a column has one of some values."""
    return f"{column} = ?" if len(listed) == 1 else f"{column} IN ({', '.join('?' * len(listed))})"


def in_chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield values in chunks that fit into one statement."""
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]


def event(connection: Connection, query: EventById) -> BuildEvent | None:
    rows = connection.query(f"SELECT {COLUMNS} FROM events WHERE event_id = ?", (query.event_id,))
    return event_of(rows[0]) if rows else None


def events_by_id(connection: Connection, ids: Sequence[str]) -> dict[str, BuildEvent]:
    """Return the events that have one of these ids."""
    found: dict[str, BuildEvent] = {}
    for some in in_chunks(ids):
        rows = connection.query(f"SELECT {COLUMNS} FROM events WHERE {one_of('event_id', some)}", some)
        found.update((event.event_id, event) for event in map(event_of, rows))
    return found


def events_page(connection: Connection, query: EventQuery) -> EventPage:
    """Return up to `limit` events strictly after `since` in the given direction."""
    conditions, values = filter_conditions(connection, query)
    # No event has an index below 1, so a cursor of 0 means the same as none in both directions.
    if query.since:
        conditions.append("idx < ?" if query.descending else "idx > ?")
        values.append(query.since)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = connection.query(
        f"SELECT {COLUMNS} FROM events{where} ORDER BY idx {'DESC' if query.descending else 'ASC'} LIMIT ?",
        (*values, query.limit + 1),
    )
    found = tuple(map(event_of, rows[: query.limit]))
    last = found[-1].index if found else (query.since or 0)
    assert last is not None
    return EventPage(found, last, len(rows) > query.limit)


def count_events(connection: Connection) -> int:
    [(count,)] = connection.query("SELECT count(*) FROM events")
    return int(count)


def events_by_kind(connection: Connection) -> dict[str, int]:
    counts = dict(connection.query("SELECT kind, count(*) FROM events GROUP BY kind"))
    return {kind.event_type: counts.get(int(kind), 0) for kind in Kind}


_FEW_EVENTS = 2_000
_FEW_NAMES = 500
_MOST_NAMES = 20_000
_SHORT_LOG = 50_000

_NAMES = (
    "WITH RECURSIVE names (name, place) AS (SELECT min(partition_ref), 1 FROM event_partitions WHERE partition_ref >= ?"
    " UNION ALL SELECT (SELECT min(partition_ref) FROM event_partitions WHERE partition_ref > name), place + 1"
    " FROM names WHERE name IS NOT NULL AND substr(name, 1, ?) = ?)"
    " SELECT name, place FROM names WHERE name IS NOT NULL AND ({matches} OR place > ?) LIMIT ?"
)


def filter_conditions(connection: Connection, wanted: EventFilter) -> tuple[list[str], list[SqlValue]]:
    """Return the conditions of a filter for `WHERE`, and their values."""
    listed: dict[str, Sequence[SqlValue]] = {
        "job_run_id": wanted.job_run_ids,
        "build_request_id": wanted.build_request_ids,
        "job_label": wanted.job_labels,
        "kind": [int(Kind.read(kind)) for kind in wanted.kinds],
    }
    indexed = next((column for column in ("job_run_id", "build_request_id") if listed[column]), None)
    found: list[str] = []
    values: list[SqlValue] = []
    if wanted.partition_refs or wanted.partition_globs:
        condition, given, is_narrow = _partition_condition(connection, wanted)
        found.append(condition)
        values.extend(given)
        indexed = indexed or ("partition_ref" if is_narrow else None)
    if wanted.start_ns is not None or wanted.end_ns is not None:
        if indexed is None:
            in_range, given = _index_range(connection, wanted)
            found.extend(in_range)
            values.extend(given)
            indexed = None if in_range else "timestamp"
        column = _column(connection, "timestamp", indexed)
        for sign, bound in ((">=", wanted.start_ns), ("<=", wanted.end_ns)):
            if bound is not None:
                found.append(f"{column} {sign} ?")
                values.append(bound)
    indexed = indexed or next((column for column in ("job_label", "kind") if listed[column]), None)
    for column, some in listed.items():
        if some:
            found.append(one_of(_column(connection, column, indexed), some))
            values.extend(some)
    return found, values


def _column(connection: Connection, name: str, indexed: str | None) -> str:
    return name if name == indexed else connection.without_index(name)


def _partition_condition(connection: Connection, wanted: EventFilter) -> tuple[str, Sequence[SqlValue], bool]:
    """Return the condition that an event concerns a partition, its values, and whether it selects few events."""
    names = _partition_names(connection, wanted)
    inside, values = (
        _matching(connection, wanted) if names is None else (one_of("partition_ref", names or [""]), names or [""])
    )
    if not wanted.partition_globs:
        return f"idx IN (SELECT idx FROM event_partitions WHERE {inside})", values, True
    found = connection.query(
        f"SELECT DISTINCT idx FROM event_partitions WHERE {inside} LIMIT ?", (*values, _FEW_EVENTS + 1)
    )
    some = [index for (index,) in found]
    if len(some) <= _FEW_EVENTS:
        return one_of("idx", some or [0]), some or [0], True
    # Enough events match that a page fills sooner by checking events one by one than by collecting all matches.
    inside, values = _matching(connection, wanted)
    return f"EXISTS (SELECT 1 FROM event_partitions AS p WHERE p.idx = events.idx AND ({inside}))", values, False


def _matching(connection: Connection, wanted: EventFilter) -> tuple[str, Sequence[SqlValue]]:
    parts = [one_of("partition_ref", wanted.partition_refs)] if wanted.partition_refs else []
    parts.extend(connection.matches_glob("partition_ref") for _ in wanted.partition_globs)
    return " OR ".join(parts), [*wanted.partition_refs, *map(connection.glob_value, wanted.partition_globs)]


def _partition_names(connection: Connection, wanted: EventFilter) -> list[str] | None:
    """Return the partitions that match, stepping through the index from name to name; None if there are too many."""
    found = list(wanted.partition_refs)
    if (
        wanted.partition_globs
        and connection.query("SELECT COALESCE(max(idx), 0) FROM event_partitions")[0][0] <= _SHORT_LOG
    ):
        return None  # a full scan of a short log is faster
    for pattern in wanted.partition_globs:
        [prefix] = re.findall(r"^[^*?[]*", pattern)
        sql = _NAMES.format(matches=connection.matches_glob("name"))
        rows = connection.query(
            sql, (prefix, len(prefix), prefix, connection.glob_value(pattern), _MOST_NAMES, _FEW_NAMES + 1)
        )
        if len(rows) > _FEW_NAMES or any(place > _MOST_NAMES for _, place in rows):
            return None
        found.extend(name for name, _ in rows)
    return found


def _index_range(connection: Connection, wanted: EventFilter) -> tuple[list[str], Sequence[SqlValue]]:
    """Return conditions for the index range of the events of a time; none if so few match that the time selects them."""
    least, most = wanted.start_ns or 0, 2**63 - 1 if wanted.end_ns is None else wanted.end_ns
    inside = "FROM events WHERE timestamp >= ? AND timestamp <= ?"
    [(count,)] = connection.query(
        f"SELECT count(*) FROM (SELECT 1 {inside} LIMIT ?) AS few", (least, most, _FEW_EVENTS + 1)
    )
    if count <= _FEW_EVENTS:
        return [], []
    [(first, last)] = connection.query(f"SELECT min(idx), max(idx) {inside}", (least, most))
    return ["idx >= ?", "idx <= ?"], [first, last]
