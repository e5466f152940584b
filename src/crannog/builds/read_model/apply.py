"""Applying events to the read model, and removing them from it.

Every statement may be applied again, in order: what has a higher index stays. So a part of the state is rebuilt by
deleting it and applying its events again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from crannog.builds.event_values import FINISHED_BUILDS, FINISHED_JOBS, JobStatus, to_json
from crannog.builds.events import (
    BuildCancelEvent,
    BuildEvent,
    BuildRequestEvent,
    DelegationEvent,
    JobEvent,
    Kind,
    PartitionEvent,
    PartitionInvalidationEvent,
    TaskCancelEvent,
)
from crannog.builds.json_documents import made_from
from crannog.builds.read_model.event_queries import COLUMNS, event_of, in_chunks, one_of
from crannog.builds.read_model.tables import Connection, SqlValue, set_meta
from crannog.builds.requests import Indexes, PrunableQuery

_EVENT = (
    "INSERT INTO events (idx, event_id, timestamp, build_request_id, kind, job_run_id, job_label, body)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_EVENT_PARTITION = "INSERT INTO event_partitions (partition_ref, idx) VALUES (?, ?) ON CONFLICT DO NOTHING"
_BUILD = (
    "INSERT INTO builds (build_request_id, first_idx, created_at, last_idx, updated_at) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (build_request_id) DO UPDATE SET last_idx = excluded.last_idx, updated_at = excluded.updated_at"
    " WHERE excluded.last_idx > builds.last_idx"
)
_BUILD_STATUS = (
    "UPDATE builds SET status = ?, status_idx = ?, message = ?, ended_at = ?, requested = COALESCE(requested, ?),"
    " request_idx = COALESCE(request_idx, ?) WHERE build_request_id = ? AND (status_idx IS NULL OR status_idx < ?)"
)
_BUILD_CANCEL = "UPDATE builds SET cancel_idx = ? WHERE build_request_id = ? AND (cancel_idx IS NULL OR cancel_idx < ?)"
_PARTITION = (
    "INSERT INTO partitions (partition_ref, status, status_idx, updated_at, build_request_id, job_run_id, message)"
    " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (partition_ref) DO UPDATE SET status = excluded.status,"
    " status_idx = excluded.status_idx, updated_at = excluded.updated_at, build_request_id = excluded.build_request_id,"
    " job_run_id = excluded.job_run_id, message = excluded.message"
    " WHERE partitions.status_idx IS NULL OR partitions.status_idx < excluded.status_idx"
)
_INVALIDATED = (
    "INSERT INTO partitions (partition_ref, invalidated_idx) VALUES (?, ?) ON CONFLICT (partition_ref)"
    " DO UPDATE SET invalidated_idx = excluded.invalidated_idx"
    " WHERE partitions.invalidated_idx IS NULL OR partitions.invalidated_idx < excluded.invalidated_idx"
)
_INVOLVED = "INSERT INTO build_partitions (partition_ref, build_request_id) VALUES (?, ?) ON CONFLICT DO NOTHING"
_INVOLVED_STATUS = (
    "INSERT INTO build_partitions (partition_ref, build_request_id, status, status_idx) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (partition_ref, build_request_id) DO UPDATE SET status = excluded.status, status_idx = excluded.status_idx"
    " WHERE build_partitions.status_idx IS NULL OR build_partitions.status_idx < excluded.status_idx"
)
_DELEGATED = (
    "INSERT INTO build_partitions (partition_ref, build_request_id, delegated_to, delegated_idx) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (partition_ref, build_request_id) DO UPDATE SET delegated_to = excluded.delegated_to,"
    " delegated_idx = excluded.delegated_idx"
    " WHERE build_partitions.delegated_idx IS NULL OR build_partitions.delegated_idx < excluded.delegated_idx"
)
_JOB_RUN = (
    "INSERT INTO job_runs (job_run_id, job_label, build_request_id, status, status_idx, first_idx, first_at, started_at,"
    " ended_at, targets) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (job_run_id) DO UPDATE SET"
    " job_label = excluded.job_label, build_request_id = excluded.build_request_id, status = excluded.status,"
    " status_idx = excluded.status_idx, started_at = COALESCE(job_runs.started_at, excluded.started_at),"
    " ended_at = excluded.ended_at, targets = excluded.targets WHERE job_runs.status_idx < excluded.status_idx"
)
_EDGE = (
    "INSERT INTO edges (output_ref, input_ref, idx, job_run_id, build_request_id, made) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (output_ref, input_ref, idx) DO UPDATE SET made = 1 WHERE excluded.made = 1"
)
_STATEMENTS = (
    _BUILD, _BUILD_STATUS, _BUILD_CANCEL, _PARTITION, _INVALIDATED, _INVOLVED, _INVOLVED_STATUS, _DELEGATED, _JOB_RUN, _EDGE,
)  # fmt: skip


def add_events(connection: Connection, events: Sequence[BuildEvent]) -> None:
    """Insert events that have their indexes, in order, and update the state tables."""
    connection.run_many(_EVENT, map(_row, events))
    connection.run_many(
        _EVENT_PARTITION, [(ref, event.index) for event in events for ref in dict.fromkeys(partitions_of(event))]
    )
    apply_state(connection, events)
    if events:
        set_meta(connection, "last_index", str(events[-1].index))


def _row(event: BuildEvent) -> tuple[SqlValue, ...]:
    payload = event.payload
    run = payload.job_run_id if isinstance(payload, (JobEvent, TaskCancelEvent)) else None
    label = payload.job_label if isinstance(payload, JobEvent) else None
    return (
        event.index, event.event_id, event.timestamp, event.build_request_id, int(event.kind), run, label, to_json(payload.as_dict()),
    )  # fmt: skip


def partitions_of(event: BuildEvent) -> tuple[str, ...]:
    """Return the partitions that a query by partition finds this event under."""
    payload = event.payload
    if isinstance(payload, JobEvent):
        return payload.target_partitions
    if isinstance(payload, BuildRequestEvent):
        return payload.requested_partitions
    if isinstance(payload, (PartitionEvent, DelegationEvent, PartitionInvalidationEvent)):
        return (payload.partition_ref,)
    return ()


def apply_state(connection: Connection, events: Iterable[BuildEvent]) -> None:
    """Update the state tables from events, in order.

    Each statement runs once for all events, and where only the last value counts, only for that: loading a large log
    would otherwise spend its time on single statements.
    """
    rows = _Rows()
    for event in events:
        rows.add(event)
    for sql, found in rows.of_statement.items():
        if found:
            connection.run_many(sql, found.values())


class _Rows:
    """The changes of some events: the rows of each statement by what they change, in the order in which the statements run."""

    def __init__(self) -> None:
        self.of_statement: dict[str, dict[Any, tuple[SqlValue, ...]]] = {sql: {} for sql in _STATEMENTS}

    def add(self, event: BuildEvent) -> None:
        rows = self.of_statement
        index, at, build, payload = event.index, event.timestamp, event.build_request_id, event.payload
        first = rows[_BUILD].get(build)
        rows[_BUILD][build] = (build, index, at, index, at) if first is None else (*first[:3], index, at)
        if isinstance(payload, PartitionEvent):
            ref, status = payload.partition_ref, int(payload.status)
            message = _message_column(payload.message)
            rows[_PARTITION][ref] = (ref, status, index, at, build, payload.job_run_id, message)
            rows[_INVOLVED_STATUS][ref, build] = (ref, build, status, index)
        elif isinstance(payload, JobEvent):
            self._add_job(event, payload)
        elif isinstance(payload, BuildRequestEvent):
            ended = at if payload.status in FINISHED_BUILDS else None
            requested = to_json(list(payload.requested_partitions)) if payload.requested_partitions else None
            message = _message_column(payload.message)
            rows[_BUILD_STATUS][index] = (
                int(payload.status), index, message, ended, requested, index, build, index,
            )  # fmt: skip
            self._add_involved(payload.requested_partitions, build)
        elif isinstance(payload, DelegationEvent):
            ref = payload.partition_ref
            rows[_DELEGATED][ref, build] = (ref, build, payload.delegated_to_build_request_id, index)
        elif isinstance(payload, PartitionInvalidationEvent):
            rows[_INVALIDATED][payload.partition_ref] = (payload.partition_ref, index)
        elif isinstance(payload, BuildCancelEvent):
            rows[_BUILD_CANCEL][build] = (index, build, index)

    def _add_job(self, event: BuildEvent, payload: JobEvent) -> None:
        index, at, run, build = event.index, event.timestamp, payload.job_run_id, event.build_request_id
        started = at if payload.status is JobStatus.RUNNING else None
        ended = at if payload.status in FINISHED_JOBS else None
        targets = to_json(list(payload.target_partitions))
        self.of_statement[_JOB_RUN][index] = (
            run, payload.job_label, build, int(payload.status), index, index, at, started, ended, targets,
        )  # fmt: skip
        self._add_involved(payload.target_partitions, build)
        for document, made in ((payload.config, 0), (payload.manifests, 1)):
            for output, source in () if document is None else made_from(document):
                if _is_name(output) and _is_name(source):
                    edge = (output, source, index, run, build, made)
                    self.of_statement[_EDGE][edge] = edge

    def _add_involved(self, refs: Iterable[str], build: str) -> None:
        self.of_statement[_INVOLVED].update(((ref, build), (ref, build)) for ref in refs)


def _is_name(ref: str) -> bool:
    return "\0" not in ref and len(ref) <= 1_024


def _message_column(message: str) -> str:
    """Return a message as JSON text, since text in PostgreSQL cannot contain NUL."""
    return json.dumps(message)


def prunable(connection: Connection, query: PrunableQuery) -> Indexes:
    oldest_kept = 0
    if query.keep_events is not None:
        rows = connection.query("SELECT idx FROM events ORDER BY idx DESC LIMIT 1 OFFSET ?", (query.keep_events,))
        oldest_kept = rows[0][0] if rows else 0
    before = -1 if query.before_ns is None else query.before_ns
    finished = ", ".join(str(int(status)) for status in FINISHED_BUILDS)
    found = [
        index
        for (index,) in connection.query(
            "SELECT e.idx FROM events e JOIN builds b ON b.build_request_id = e.build_request_id"
            " WHERE (e.timestamp < ? OR e.idx <= ?)"
            f" AND (b.status IN ({finished}) OR b.updated_at < ? OR b.last_idx <= ?)"
            " AND NOT EXISTS (SELECT 1 FROM partitions p WHERE p.status_idx = e.idx)"
            " ORDER BY e.idx LIMIT ?",
            (before, oldest_kept, before, oldest_kept, query.limit),
        )
    ]
    return Indexes(found)


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
