"""How events get into the read model, and out of it again.

Each change of the state tables holds for any event that is applied again, in order: what is newer by index stays.
So a part of the state is made again by deleting it and applying the events that tell of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from crannog.builds.documents import made_from
from crannog.builds.events import (
    BuildCancelEvent,
    BuildEvent,
    BuildRequestEvent,
    DelegationEvent,
    JobEvent,
    PartitionEvent,
    PartitionInvalidationEvent,
    TaskCancelEvent,
)
from crannog.builds.model.connection import Connection
from crannog.builds.model.stored import COLUMNS, event_of
from crannog.builds.model.tables import stamp
from crannog.builds.statuses import FINISHED_BUILDS, FINISHED_JOBS, JobStatus
from crannog.builds.values import to_json

_FEW = 500

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


def add_events(connection: Connection, events: Sequence[BuildEvent]) -> None:
    """Keep events that have their index already, in its order, and what follows from them."""
    connection.run_many(_EVENT, map(_row, events))
    connection.run_many(
        _EVENT_PARTITION, [(ref, event.index) for event in events for ref in dict.fromkeys(partitions_of(event))]
    )
    _apply_state(connection, events)
    if events:
        stamp(connection, "last_index", str(events[-1].index))


def _row(event: BuildEvent) -> tuple[object, ...]:
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


def _apply_state(connection: Connection, events: Iterable[BuildEvent]) -> None:
    run = connection.run
    for event in events:
        index, build, payload = event.index, event.build_request_id, event.payload
        run(_BUILD, (build, index, event.timestamp, index, event.timestamp))
        if isinstance(payload, PartitionEvent):
            run(
                _PARTITION,
                (payload.partition_ref, int(payload.status), index, event.timestamp, build, payload.job_run_id, _kept(payload.message)),
            )
            run(_INVOLVED_STATUS, (payload.partition_ref, build, int(payload.status), index))
        elif isinstance(payload, JobEvent):
            _apply_job(connection, event, payload)
        elif isinstance(payload, BuildRequestEvent):
            ended = event.timestamp if payload.status in FINISHED_BUILDS else None
            requested = to_json(list(payload.requested_partitions)) if payload.requested_partitions else None
            run(_BUILD_STATUS, (int(payload.status), index, _kept(payload.message), ended, requested, index, build, index))
            for ref in payload.requested_partitions:
                run(_INVOLVED, (ref, build))
        elif isinstance(payload, DelegationEvent):
            run(_DELEGATED, (payload.partition_ref, build, payload.delegated_to_build_request_id, index))
        elif isinstance(payload, PartitionInvalidationEvent):
            run(_INVALIDATED, (payload.partition_ref, index))
        elif isinstance(payload, BuildCancelEvent):
            run(_BUILD_CANCEL, (index, build, index))


def _apply_job(connection: Connection, event: BuildEvent, payload: JobEvent) -> None:
    started = event.timestamp if payload.status is JobStatus.RUNNING else None
    ended = event.timestamp if payload.status in FINISHED_JOBS else None
    connection.run(
        _JOB_RUN,
        (
            payload.job_run_id, payload.job_label, event.build_request_id, int(payload.status), event.index, event.index,
            event.timestamp, started, ended, to_json(list(payload.target_partitions)),
        ),
    )  # fmt: skip
    for ref in payload.target_partitions:
        connection.run(_INVOLVED, (ref, event.build_request_id))
    for document, made in ((payload.config, 0), (payload.manifests, 1)):
        if document is not None:
            for output, source in made_from(document):
                if _is_name(output) and _is_name(source):
                    connection.run(_EDGE, (output, source, event.index, payload.job_run_id, event.build_request_id, made))


def _is_name(ref: str) -> bool:
    return "\0" not in ref and len(ref) <= 1_024


def _kept(message: str) -> str:
    """Return a message for a column: as JSON text, since PostgreSQL's text cannot hold the letter 0."""
    return json.dumps(message)


def remove_events(connection: Connection, indexes: Sequence[int]) -> int:
    """Take events out, and make again the state of every build, partition and run they told of; return how many went."""
    removed = 0
    for start in range(0, len(indexes), _FEW):
        removed += _remove_few(connection, indexes[start : start + _FEW])
    return removed


def _remove_few(connection: Connection, indexes: Sequence[int]) -> int:
    marks = ", ".join("?" * len(indexes))
    going = [event_of(row) for row in connection.query(f"SELECT {COLUMNS} FROM events WHERE idx IN ({marks})", indexes)]
    builds = {event.build_request_id for event in going}
    refs = {ref for event in going for ref in partitions_of(event)}
    runs = {event.payload.job_run_id for event in going if isinstance(event.payload, (JobEvent, TaskCancelEvent))}
    for table in ("events", "event_partitions", "edges"):
        connection.run(f"DELETE FROM {table} WHERE idx IN ({marks})", indexes)
    for table, column, values in (
        ("builds", "build_request_id", builds),
        ("build_partitions", "build_request_id", builds),
        ("partitions", "partition_ref", refs),
        ("job_runs", "job_run_id", runs),
    ):
        connection.run_many(f"DELETE FROM {table} WHERE {column} = ?", [(value,) for value in sorted(values)])
    _apply_state(connection, _telling_of(connection, builds, refs, runs))
    return len(going)


def _telling_of(connection: Connection, builds: set[str], refs: set[str], runs: set[str]) -> list[BuildEvent]:
    """Return the events that are left of these builds, partitions and runs, in order."""
    found: dict[int, BuildEvent] = {}
    for condition, values in (
        ("build_request_id = ?", builds),
        ("idx IN (SELECT idx FROM event_partitions WHERE partition_ref = ?)", refs),
        ("job_run_id = ?", runs),
    ):
        for value in values:
            for row in connection.query(f"SELECT {COLUMNS} FROM events WHERE {condition}", (value,)):
                found[row[0]] = event_of(row)
    return [found[index] for index in sorted(found)]
