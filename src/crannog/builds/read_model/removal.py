"""Removing events from the read model: which may be pruned, and how the state is rebuilt from the events that remain.

Builds and runs are small and are rebuilt completely. A partition may have a long history, so it is rebuilt only if
the event that its state comes from was removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from crannog.builds.events import BuildEvent, JobEvent, Kind, TaskCancelEvent
from crannog.builds.read_model.apply import apply_state, partitions_of
from crannog.builds.read_model.connection import Connection, in_chunks, one_of
from crannog.builds.read_model.stored_events import COLUMNS, event_of
from crannog.builds.statuses import FINISHED_BUILDS


def prunable(connection: Connection, before_ns: int | None, keep_events: int | None, limit: int) -> list[int]:
    """Return the indexes of events that may be pruned, oldest first."""
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
    """Remove events and rebuild the state of their builds, partitions and runs; return the number removed."""
    removed = 0
    builds: set[str] = set()
    refs: set[str] = set()
    runs: set[str] = set()
    for some in in_chunks(indexes):
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
    stale = _partitions_without_state(connection, refs, set(indexes))
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
            _latest_events(connection, stale),
        )
        for event in found
    }
    # In commit order, whichever query found them: a run may belong to two builds, and some columns keep the first value.
    for some in in_chunks(sorted(left)):
        apply_state(connection, [left[index] for index in some])
    return removed


def _partitions_without_state(connection: Connection, refs: Iterable[str], gone: set[int]) -> set[str]:
    return {
        ref
        for some in in_chunks(sorted(refs))
        for ref, status, invalidated in connection.query(
            f"SELECT partition_ref, status_idx, invalidated_idx FROM partitions WHERE {one_of('partition_ref', some)}",
            some,
        )
        if status in gone or invalidated in gone
    }


def _events_where(connection: Connection, column: str, values: Iterable[str]) -> Iterator[BuildEvent]:
    for value in sorted(values):
        yield from map(event_of, connection.query(f"SELECT {COLUMNS} FROM events WHERE {column} = ?", (value,)))


def _latest_events(connection: Connection, refs: Iterable[str]) -> Iterator[BuildEvent]:
    """Yield the latest status event and the latest invalidation of each partition."""
    columns = ", ".join(f"e.{name}" for name in COLUMNS.split(", "))
    for ref in sorted(refs):
        for kind in (Kind.PARTITION, Kind.PARTITION_INVALIDATION):
            rows = connection.query(
                f"SELECT {columns} FROM event_partitions p JOIN events e ON e.idx = p.idx"
                " WHERE p.partition_ref = ? AND e.kind = ? ORDER BY p.idx DESC LIMIT 1",
                (ref, int(kind)),
            )
            yield from map(event_of, rows)
