"""The results of a log: plain values, the same from every store, ready for JSON.

Times are nanoseconds since 1970 in UTC, as in the events; statuses are enums, and as JSON their stored names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from crannog.builds.event_values import BuildRequestStatus, JobStatus, PartitionStatus, Status
from crannog.builds.events import BuildEvent


@dataclass(frozen=True, slots=True)
class EventPage:
    """A page of events; `next_index` is the last index of the page (or where it began): continue after it."""

    events: tuple[BuildEvent, ...]
    next_index: int
    has_more: bool

    def __iter__(self) -> Iterator[BuildEvent]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)


@dataclass(frozen=True, slots=True)
class BuildSummary:
    """The state of a build after its last event."""

    build_request_id: str
    status: BuildRequestStatus
    requested_partitions: tuple[str, ...]
    message: str
    created_at: int
    updated_at: int
    ended_at: int | None
    first_index: int
    last_index: int
    cancel_requested: bool

    @property
    def duration_ns(self) -> int | None:
        """From its first event to its end; None while it runs."""
        return None if self.ended_at is None else max(0, self.ended_at - self.created_at)


@dataclass(frozen=True, slots=True)
class BuildPage:
    """A page of builds, newest first; `total` counts all that match."""

    builds: tuple[BuildSummary, ...]
    total: int

    def __iter__(self) -> Iterator[BuildSummary]:
        return iter(self.builds)

    def __len__(self) -> int:
        return len(self.builds)

    def __getitem__(self, place: int) -> BuildSummary:
        return self.builds[place]


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """The state of a partition after its last status event; `invalidated` if an invalidation came later."""

    partition_ref: str
    status: PartitionStatus
    updated_at: int
    index: int
    build_request_id: str
    job_run_id: str | None
    message: str
    invalidated: bool

    @property
    def timestamp(self) -> int:
        return self.updated_at


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job."""

    job_run_id: str
    job_label: str
    build_request_id: str
    status: JobStatus
    target_partitions: tuple[str, ...]
    first_at: int
    started_at: int | None
    ended_at: int | None
    first_index: int

    @property
    def duration_ns(self) -> int | None:
        """From its start (or first event) to its end; None while it runs."""
        if self.ended_at is None:
            return None
        return max(0, self.ended_at - (self.started_at if self.started_at is not None else self.first_at))


@dataclass(frozen=True, slots=True)
class JobSummary:
    """All runs of one job: how many ended how, the success rate and durations of those that ended, and retries."""

    job_label: str
    runs: int
    completed: int
    failed: int
    cancelled: int
    active: int
    success_rate: float | None
    retries: int
    duration_p50_ns: int | None
    duration_max_ns: int | None
    last_run: JobRun


@dataclass(frozen=True, slots=True)
class ActivitySummary:
    """An overview of the log."""

    active_builds_count: int
    total_builds_count: int
    total_partitions_count: int
    total_events_count: int
    builds_by_status: dict[str, int]
    partitions_by_status: dict[str, int]
    recent_builds: tuple[BuildSummary, ...]
    recent_partitions: tuple[PartitionSummary, ...]


@dataclass(frozen=True, slots=True)
class LogStats:
    """The size of the log and facts about its store."""

    uri: str
    schema_version: int
    events: int
    last_index: int
    first_timestamp: int | None
    last_timestamp: int | None
    events_by_kind: dict[str, int]
    builds: int
    partitions: int
    job_runs: int
    bytes: int | None
    store: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Edge:
    """One partition was made from another; `planned` if no manifest confirms it."""

    output_ref: str
    input_ref: str
    job_run_id: str
    build_request_id: str
    planned: bool


@dataclass(frozen=True, slots=True)
class Lineage:
    """The partitions that a partition was made from (`upstream`) or went into (`downstream`), nearest first.

    `truncated` if a limit cut it short.
    """

    partition_ref: str
    direction: str
    partitions: tuple[str, ...]
    edges: tuple[Edge, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What a prune removed, or would remove."""

    dry_run: bool
    before_ns: int | None
    keep_events: int | None
    events_before: int
    removed: int
    events_after: int
    batches: int


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What a copy did. `same_indexes` if every event has its old index, which is impossible for a pruned log."""

    source: str
    target: str
    events: int
    known_before: int
    last_source_index: int
    same_indexes: bool
    verified: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did: events read, events that were new, and events that the log had already."""

    lines: int
    kept: int
    known_before: int


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check read and the problems it found."""

    uri: str
    events: int
    last_index: int
    problems: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.problems


def plain(value: Any) -> Any:
    """Return a result as values of JSON."""
    if isinstance(value, BuildEvent):
        return value.as_dict()
    if isinstance(value, Status):
        return value.label
    if is_dataclass(value) and not isinstance(value, type):
        found = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        if isinstance(value, (BuildSummary, JobRun)):
            found["duration_ns"] = value.duration_ns
        return found
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value
