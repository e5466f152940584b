"""Planning an append: the checks of a batch, which of its events are new, and the index of each. Touches no store.

Also the valid status changes, for logs that should refuse impossible ones. That check is off by default: a log that refuses
events loses them, and an event that arrives late is still information.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from crannog.builds.event_values import LARGEST_EVENT_BYTES, Status, to_json
from crannog.builds.event_values import BuildRequestStatus as Build
from crannog.builds.event_values import JobStatus as Job
from crannog.builds.event_values import PartitionStatus as Partition
from crannog.builds.events import PAYLOADS, BuildEvent, BuildRequestEvent, JobEvent, PartitionEvent
from crannog.builds.read_model.tables import Connection
from crannog.errors import BadRows, CallerError, Conflict, Refused

LARGEST_BATCH = 100_000
# Fields without a limit of their own: all but ids and statuses.
_LONG_FIELDS = {
    kind: tuple(name for name in payload.FIELDS if name not in ("status", "partition_ref", "job_run_id"))
    for kind, payload in PAYLOADS.items()
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The index of each event of a batch, in its order, and the events to store, in the order of their indexes."""

    indexes: list[int]
    fresh: list[BuildEvent]


def checked_batch(events: Iterable[BuildEvent]) -> list[BuildEvent]:
    """Return a batch as a list. Raises BadRows if something is not an event, CallerError if there are too many."""
    if not isinstance(events, Iterable):
        raise BadRows(f"a batch is a list of events, got {type(events).__name__}")
    listed = list(events)
    if len(listed) > LARGEST_BATCH:
        raise CallerError(f"{len(listed):,} events in one batch; {LARGEST_BATCH:,} is the most: send them in parts")
    for event in listed:
        if not isinstance(event, BuildEvent):
            raise BadRows(f"a log takes BuildEvent values, got {type(event).__name__}; nothing of the batch was stored")
        _check_size(event)
    return listed


def _check_size(event: BuildEvent) -> None:
    """Raise BadRows if an event is too large."""
    size = 0
    for name in _LONG_FIELDS[event.payload.KIND]:
        value = getattr(event.payload, name)
        if value is not None:
            size += len(value) if isinstance(value, str) else len(to_json(value))
    if size > LARGEST_EVENT_BYTES:
        raise BadRows(f"event {event.event_id} has {size:,} characters; {LARGEST_EVENT_BYTES:,} is the most")


def plan(events: Sequence[BuildEvent], known: Mapping[str, BuildEvent], last_index: int) -> Plan:
    """Assign an index to each event; `known` are the stored events that have ids of this batch.

    An event that is stored already gets the index it has. Raises Conflict if the stored one has other content.
    """
    indexes: list[int] = []
    fresh: dict[str, BuildEvent] = {}
    for event in events:
        earlier = known.get(event.event_id) or fresh.get(event.event_id)
        if earlier is None:
            earlier = fresh[event.event_id] = event.at(last_index + len(fresh) + 1)
        elif not same_event(event, earlier):
            raise Conflict(
                f"event {event.event_id} is in the log already, with other content, at index {earlier.index};"
                " nothing of the batch was stored: give a new event a new id"
            )
        assert earlier.index is not None
        indexes.append(earlier.index)
    return Plan(indexes, list(fresh.values()))


def same_event(one: BuildEvent, other: BuildEvent) -> bool:
    """Tell whether two events are equal, documents compared as JSON: the order of names is ignored, 1 and true differ."""
    return one == other and _canonical(one) == _canonical(other)


def _canonical(event: BuildEvent) -> str:
    return json.dumps(event.payload.as_dict(), sort_keys=True)


# The statuses that may follow each; none after those that are left out. Any status may be repeated, and may precede or
# follow UNKNOWN, which says nothing.
_BUILD_ENDS = {Build.COMPLETED, Build.FAILED, Build.CANCELLED}
_JOB_ENDS = {Job.COMPLETED, Job.FAILED, Job.CANCELLED}
_PARTITION_ENDS = {Partition.AVAILABLE, Partition.FAILED}
_CHANGES: Mapping[type[Status], Mapping[Any, Set[Any]]] = {
    Build: {
        Build.RECEIVED: {Build.PLANNING, Build.EXECUTING, Build.ANALYSIS_COMPLETED, *_BUILD_ENDS},
        Build.PLANNING: {Build.EXECUTING, Build.ANALYSIS_COMPLETED, *_BUILD_ENDS},
        Build.ANALYSIS_COMPLETED: {Build.EXECUTING, *_BUILD_ENDS},
        Build.EXECUTING: _BUILD_ENDS,
    },
    Job: {Job.SCHEDULED: {Job.RUNNING, *_JOB_ENDS}, Job.RUNNING: _JOB_ENDS},
    # Within one build; another build may build the partition again.
    Partition: {
        Partition.REQUESTED: {Partition.SCHEDULED, Partition.BUILDING, Partition.DELEGATED, *_PARTITION_ENDS},
        Partition.SCHEDULED: {Partition.BUILDING, Partition.DELEGATED, *_PARTITION_ENDS},
        Partition.BUILDING: _PARTITION_ENDS,
        Partition.DELEGATED: _PARTITION_ENDS,
        # A failed job may be retried.
        Partition.FAILED: {Partition.SCHEDULED, Partition.BUILDING, Partition.AVAILABLE},
    },
}


def check_changes(model: Connection, fresh: Iterable[BuildEvent]) -> None:
    """Raise Refused for the first event whose status cannot follow the one in the log, or earlier in the batch."""
    known: dict[str, Status] = {}
    for event in fresh:
        payload, build, stored = event.payload, event.build_request_id, "SELECT status FROM "
        values: tuple[str, ...]
        if isinstance(payload, BuildRequestEvent):
            what, values = f"build {build}", (build,)
            stored += "builds WHERE build_request_id = ?"
        elif isinstance(payload, JobEvent):
            what, values = f"job run {payload.job_run_id}", (payload.job_run_id,)
            stored += "job_runs WHERE job_run_id = ?"
        elif isinstance(payload, PartitionEvent):
            what, values = f"partition {payload.partition_ref} in build {build}", (payload.partition_ref, build)
            stored += "build_partitions WHERE partition_ref = ? AND build_request_id = ?"
        else:
            continue
        after: Status = payload.status
        before = known.get(what)
        if before is None:
            before = next((type(after)(code) for (code,) in model.query(stored, values) if code is not None), None)
        if before and after and before is not after and after not in _CHANGES[type(after)].get(before, ()):
            raise Refused(
                f"event {event.event_id}: {what} is {before.label} and cannot become {after.label};"
                " nothing of the batch was stored"
            )
        known[what] = after
