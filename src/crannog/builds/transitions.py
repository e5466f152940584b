"""The valid status changes, for logs that should refuse impossible ones.

Off by default: a log that refuses events loses them, and an event that arrives late is still information.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from crannog.builds.events import BuildEvent, BuildRequestEvent, JobEvent, PartitionEvent
from crannog.builds.read_model.connection import Connection
from crannog.builds.statuses import BuildRequestStatus as Build
from crannog.builds.statuses import JobStatus as Job
from crannog.builds.statuses import PartitionStatus as Partition
from crannog.builds.statuses import Status
from crannog.errors import Refused

# A status may always be repeated; UNKNOWN says nothing, so any status may precede or follow it.
BUILD_CHANGES: Mapping[Build, Set[Build]] = {
    Build.RECEIVED: {
        Build.PLANNING,
        Build.EXECUTING,
        Build.ANALYSIS_COMPLETED,
        Build.COMPLETED,
        Build.FAILED,
        Build.CANCELLED,
    },
    Build.PLANNING: {Build.EXECUTING, Build.ANALYSIS_COMPLETED, Build.COMPLETED, Build.FAILED, Build.CANCELLED},
    Build.ANALYSIS_COMPLETED: {Build.EXECUTING, Build.COMPLETED, Build.FAILED, Build.CANCELLED},
    Build.EXECUTING: {Build.COMPLETED, Build.FAILED, Build.CANCELLED},
    Build.COMPLETED: set(),
    Build.FAILED: set(),
    Build.CANCELLED: set(),
}
JOB_CHANGES: Mapping[Job, Set[Job]] = {
    Job.SCHEDULED: {Job.RUNNING, Job.COMPLETED, Job.FAILED, Job.CANCELLED},
    Job.RUNNING: {Job.COMPLETED, Job.FAILED, Job.CANCELLED},
    Job.COMPLETED: set(),
    Job.FAILED: set(),
    Job.CANCELLED: set(),
}
# Within one build; another build may build the partition again.
PARTITION_CHANGES: Mapping[Partition, Set[Partition]] = {
    Partition.REQUESTED: {
        Partition.SCHEDULED,
        Partition.BUILDING,
        Partition.AVAILABLE,
        Partition.FAILED,
        Partition.DELEGATED,
    },
    Partition.SCHEDULED: {Partition.BUILDING, Partition.AVAILABLE, Partition.FAILED, Partition.DELEGATED},
    Partition.BUILDING: {Partition.AVAILABLE, Partition.FAILED},
    Partition.DELEGATED: {Partition.AVAILABLE, Partition.FAILED},
    Partition.AVAILABLE: set(),
    # A failed job may be retried.
    Partition.FAILED: {Partition.SCHEDULED, Partition.BUILDING, Partition.AVAILABLE},
}


def is_legal(changes: Mapping[Any, Set[Any]], before: Status | None, after: Status) -> bool:
    """Tell whether a status may follow another; None means there was none before."""
    if before is None or before is after or not int(before) or not int(after):
        return True
    return after in changes[before]


def check_changes(model: Connection, fresh: Iterable[BuildEvent]) -> None:
    """Raise Refused for the first event whose status cannot follow the one in the log, or earlier in the batch."""
    states = _States(model)
    for event in fresh:
        payload = event.payload
        if isinstance(payload, BuildRequestEvent):
            states.check(f"build {event.build_request_id}", BUILD_CHANGES, payload.status, event,
                         ("SELECT status FROM builds WHERE build_request_id = ?", (event.build_request_id,)))  # fmt: skip
        elif isinstance(payload, JobEvent):
            states.check(f"job run {payload.job_run_id}", JOB_CHANGES, payload.status, event,
                         ("SELECT status FROM job_runs WHERE job_run_id = ?", (payload.job_run_id,)))  # fmt: skip
        elif isinstance(payload, PartitionEvent):
            states.check(f"partition {payload.partition_ref} in build {event.build_request_id}", PARTITION_CHANGES, payload.status, event,
                         ("SELECT status FROM build_partitions WHERE partition_ref = ? AND build_request_id = ?",
                          (payload.partition_ref, event.build_request_id)))  # fmt: skip


@dataclass(slots=True)
class _States:
    model: Connection
    known: dict[str, Status] = field(default_factory=dict)

    def check(
        self,
        what: str,
        changes: Mapping[Any, Set[Any]],
        after: Status,
        event: BuildEvent,
        stored: tuple[str, tuple[str, ...]],
    ) -> None:
        before: Status | None = self.known.get(what)
        if before is None:
            rows = self.model.query(*stored)
            if rows and rows[0][0] is not None:
                read: Callable[[int], Status] = type(after)
                before = read(rows[0][0])
        if not is_legal(changes, before, after):
            assert before is not None
            raise Refused(
                f"event {event.event_id}: {what} is {before.label} and cannot become {after.label};"
                " nothing of the batch was stored"
            )
        self.known[what] = after
