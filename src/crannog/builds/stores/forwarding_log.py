"""Logs in front of other logs: reads are forwarded to one, and a tee writes to several."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from crannog.builds.append_plan import checked_batch
from crannog.builds.events import BuildEvent
from crannog.builds.log import EventLog
from crannog.builds.results import (
    ActivitySummary,
    BuildPage,
    BuildSummary,
    Edge,
    EventPage,
    JobRun,
    JobSummary,
    LogStats,
    PartitionSummary,
)
from crannog.builds.statuses import BuildRequestStatus, PartitionStatus
from crannog.errors import CrannogError, Unavailable


class ForwardingLog(EventLog):
    """Forwards reads to `target()`; subclasses define appends."""

    @abstractmethod
    def target(self) -> EventLog:
        """Return the log to read from."""

    def list_events(
        self, since: int | None = None, limit: int = 100, descending: bool = False, **filter: Any
    ) -> EventPage:
        return self.target().list_events(since, limit, descending, **filter)

    def get_event(self, event_id: str) -> BuildEvent | None:
        return self.target().get_event(event_id)

    def head(self) -> int:
        return self.target().head()

    def get_latest_partition_status(self, partition_ref: str) -> PartitionSummary | None:
        return self.target().get_latest_partition_status(partition_ref)

    def get_active_builds_for_partition(self, partition_ref: str) -> list[str]:
        return self.target().get_active_builds_for_partition(partition_ref)

    def list_build_requests(
        self, status: BuildRequestStatus | str | None = None, limit: int = 50, offset: int = 0
    ) -> BuildPage:
        return self.target().list_build_requests(status, limit, offset)

    def get_build(self, build_request_id: str) -> BuildSummary | None:
        return self.target().get_build(build_request_id)

    def get_build_partitions(self, build_request_id: str) -> dict[str, PartitionStatus]:
        return self.target().get_build_partitions(build_request_id)

    def list_recent_partitions(self, limit: int = 50) -> list[PartitionSummary]:
        return self.target().list_recent_partitions(limit)

    def list_job_runs(
        self, build_request_id: str | None = None, job_label: str | None = None, limit: int = 1_000
    ) -> list[JobRun]:
        return self.target().list_job_runs(build_request_id, job_label, limit)

    def list_jobs(self, limit: int = 1_000) -> list[JobSummary]:
        return self.target().list_jobs(limit)

    def get_activity_summary(self, recent: int = 10) -> ActivitySummary:
        return self.target().get_activity_summary(recent)

    def stats(self) -> LogStats:
        return self.target().stats()

    def list_edges(self, partition_refs: Iterable[str], *, upstream: bool) -> list[Edge]:
        return self.target().list_edges(partition_refs, upstream=upstream)

    def list_prunable(self, before_ns: int | None, keep_events: int | None, limit: int) -> list[int]:
        return self.target().list_prunable(before_ns, keep_events, limit)

    def remove_events(self, indexes: Iterable[int]) -> int:
        return self.target().remove_events(indexes)


class TeeLog(ForwardingLog):
    """Writes to several logs. Indexes and reads are those of the first; the others assign indexes of their own.

    Events are removed from the first log only: prune the copies by their own URIs.
    """

    def __init__(self, logs: Sequence[EventLog]) -> None:
        self.logs = tuple(logs)
        self.uri = "tee:" + ",".join(log.uri.replace(",", "%2C") for log in self.logs)

    def target(self) -> EventLog:
        return self.logs[0]

    def append_events(self, events: Iterable[BuildEvent], *, check_states: bool | None = None) -> list[int]:
        """Append to all logs. Raises Unavailable if a copy fails: the first log has the batch then, and a retry is safe."""
        batch = checked_batch(events)
        indexes = self.logs[0].append_events(batch, check_states=check_states)
        failures = []
        for log in self.logs[1:]:
            try:
                log.append_events(batch, check_states=check_states)
            except CrannogError as error:
                failures.append(f"{log.uri}: {error.message}")
        if failures:
            raise Unavailable(
                f"{self.logs[0].uri} stored the batch, but not every copy did ({'; '.join(failures)}); sending it again is safe"
            )
        return indexes

    def close(self) -> None:
        for log in self.logs:
            log.close()
