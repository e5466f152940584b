"""How events get out of the read model: what they told of is made again from the events that are left.

Builds and runs are small and made again whole. A partition may have a long history, so it is only looked at where
the event that its state comes from has gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from crannog.builds.events import BuildEvent, JobEvent, Kind, TaskCancelEvent
from crannog.builds.read_model.apply import apply_state, partitions_of
from crannog.builds.read_model.connection import Connection
from crannog.builds.read_model.stored_events import COLUMNS, event_of
from crannog.builds.statuses import FINISHED_BUILDS

_FEW = 500


def prunable(connection: Connection, before_ns: int | None, keep_events: int | None, limit: int) -> list[int]:
    """Return what a retention may remove, oldest first."""
    oldest_kept = 0
    if keep_events is not None:
        rows = connection.query("SELECT idx FROM events ORDER BY idx DESC LIMIT 1 OFFSET ?", (keep_events,))
        oldest_kept = rows[0][0] if rows else 0
    before = -1 if before_ns is None else before_ns
    finished = ", ".join(str(int(status)) for status in FINISHED_BUILDS)
    return [
        index
        for (index,) in connection.query(
            "SELECT e.idx FROM events e JOIN builds b ON b.build_request_id = e.build_request_id"
            " WHERE (e.timestamp < ? OR e.idx <= ?)"
            f" AND (b.status IN ({finished}) OR b.updated_at < ? OR b.last_idx <= ?)"
            " AND NOT EXISTS (SELECT 1 FROM partitions p WHERE p.status_idx = e.idx)"
            " ORDER BY e.idx LIMIT ?",
            (before, oldest_kept, before, oldest_kept, limit),
        )
    ]


def remove_events(connection: Connection, indexes: Sequence[int]) -> int:
    """Take events out, and make again the state of every build, partition and run they told of; return how many went."""
    removed = 0
    builds: set[str] = set()
    refs: set[str] = set()
    runs: set[str] = set()
    for some in in_parts(indexes):
        marks = ", ".join("?" * len(some))
        for row in connection.query(f"SELECT {COLUMNS} FROM events WHERE idx IN ({marks})", some):
            event = event_of(row)
            builds.add(event.build_request_id)
            refs.update(partitions_of(event))
            if isinstance(event.payload, (JobEvent, TaskCancelEvent)):
                runs.add(event.payload.job_run_id)
            removed += 1
        for table in ("events", "event_partitions", "edges"):
            connection.run(f"DELETE FROM {table} WHERE idx IN ({marks})", some)
    stale = _that_lost_their_state(connection, refs, set(indexes))
    for table, column, values in (
        ("builds", "build_request_id", builds),
        ("build_partitions", "build_request_id", builds),
        ("partitions", "partition_ref", stale),
        ("job_runs", "job_run_id", runs),
    ):
        connection.run_many(f"DELETE FROM {table} WHERE {column} = ?", [(value,) for value in sorted(values)])
    left = {
        event.index or 0: event
        for found in (
            _events_where(connection, "build_request_id", builds),
            _events_where(connection, "job_run_id", runs),
            _last_words(connection, stale),
        )
        for event in found
    }
    # In order, whatever they were found by: a run may belong to two builds, and the first word counts for some columns.
    for some in in_parts(sorted(left)):
        apply_state(connection, [left[index] for index in some])
    return removed


def _that_lost_their_state(connection: Connection, refs: Iterable[str], gone: set[int]) -> set[str]:
    return {
        ref
        for some in in_parts(sorted(refs))
        for ref, status, invalidated in connection.query(
            f"SELECT partition_ref, status_idx, invalidated_idx FROM partitions WHERE partition_ref IN ({', '.join('?' * len(some))})",
            some,
        )
        if status in gone or invalidated in gone
    }


def _events_where(connection: Connection, column: str, values: Iterable[str]) -> Iterator[BuildEvent]:
    for value in sorted(values):
        yield from map(event_of, connection.query(f"SELECT {COLUMNS} FROM events WHERE {column} = ?", (value,)))


def _last_words(connection: Connection, refs: Iterable[str]) -> Iterator[BuildEvent]:
    """Yield the events that tell a partition's status and when it was last declared invalid."""
    columns = ", ".join(f"e.{name}" for name in COLUMNS.split(", "))
    for ref in sorted(refs):
        for kind in (Kind.PARTITION, Kind.PARTITION_INVALIDATION):
            rows = connection.query(
                f"SELECT {columns} FROM event_partitions p JOIN events e ON e.idx = p.idx"
                " WHERE p.partition_ref = ? AND e.kind = ? ORDER BY p.idx DESC LIMIT 1",
                (ref, int(kind)),
            )
            yield from map(event_of, rows)


def in_parts(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield values some at a time: a statement takes only so many."""
    for start in range(0, len(values), _FEW):
        yield values[start : start + _FEW]
