"""The interface of the build event log: what every store provides, and what is derived from that.

A store implements the abstract methods; everything else is the same everywhere. A read is a request that the store carries
out (`call`), or derived from other reads.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Unpack

from crannog.api.operations import Operation, Q, R
from crannog.builds import requests as ops
from crannog.builds.event_values import FINISHED_BUILDS, BuildRequestStatus, PartitionStatus
from crannog.builds.events import BuildEvent, JobEvent, Kind
from crannog.builds.filters import FilterArguments
from crannog.builds.follow import follow
from crannog.builds.results import (
    ActivitySummary,
    BuildPage,
    BuildSummary,
    Edge,
    EventPage,
    JobRun,
    JobSummary,
    Lineage,
    LogStats,
    PartitionSummary,
)
from crannog.errors import CallerError, Unavailable

_CHUNK = 5_000


class EventLog(ABC):
    """Build events in commit order. Safe for threads; a context manager.

    The index of an event is its position in commit order: the first is 1, those of a batch are consecutive, none is
    assigned twice. Unknown ids give an empty result, never an error.
    """

    uri: str

    # -- what a store provides -------------------------------------------------------------------------------------

    @abstractmethod
    def append_events(self, events: Iterable[BuildEvent], *, check_states: bool | None = None) -> list[int]:
        """Store all of the events or none; return their indexes once they are durable and visible to every reader.

        An event that is already in the log returns the index it has. `check_states` refuses status changes that are
        impossible (a build from FAILED to EXECUTING); None means as the log was opened, where the default is off.

        Raises Conflict if the log has an event with the same id and other content, Refused if a status change is
        impossible, BadRows or CallerError if something is not an event. After Overloaded or Unavailable, try again: an
        event is never stored twice.
        """

    @abstractmethod
    def call(self, operation: Operation[Q, R], request: Q) -> R:
        """Carry out one of the reads that `crannog.builds.requests` declares; the methods below build their requests."""

    @abstractmethod
    def remove_events(self, indexes: Iterable[int]) -> int:
        """Remove events permanently, in one step; return their number. Their indexes are not assigned again."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections; acknowledged events are durable already."""

    # -- reads -----------------------------------------------------------------------------------------------------

    def list_events(
        self, since: int | None = None, limit: int = 100, descending: bool = False, **filter: Unpack[FilterArguments]
    ) -> EventPage:
        """Return a page strictly after index `since`; 0 or None starts at the first event, descending at the last."""
        query = ops.EventQuery.of(filter, since=since, limit=limit, descending=bool(descending))
        return self.call(ops.LIST_EVENTS, query)

    def get_event(self, event_id: str) -> BuildEvent | None:
        """Return one event; None if the log does not have it."""
        return self.call(ops.GET_EVENT, ops.EventById(event_id))

    def head(self) -> int:
        """Return the largest index assigned; 0 for an empty log."""
        return self.call(ops.HEAD, ops.HeadQuery()).index

    def get_latest_partition_status(self, partition_ref: str) -> PartitionSummary | None:
        """Return the last status of a partition by commit order; None if it has none."""
        return self.call(ops.PARTITION_STATUS, ops.PartitionStatusQuery(partition_ref))

    def get_active_builds_for_partition(self, partition_ref: str) -> list[str]:
        """Return the ids of the unfinished builds of a partition, following delegations."""
        return self.call(ops.ACTIVE_BUILDS, ops.ActiveBuildsQuery(partition_ref))

    def list_build_requests(
        self, status: BuildRequestStatus | str | None = None, limit: int = 50, offset: int = 0
    ) -> BuildPage:
        """Return builds, latest start first, and their total number."""
        label = None if status is None else BuildRequestStatus.read(status).label
        return self.call(ops.LIST_BUILDS, ops.BuildQuery(label, limit, offset))

    def get_build(self, build_request_id: str) -> BuildSummary | None:
        """Return the state of a build; None if the log has no request for it."""
        return self.call(ops.GET_BUILD, ops.BuildById(build_request_id))

    def get_build_partitions(self, build_request_id: str) -> dict[str, PartitionStatus]:
        """Return the status of each partition in one build."""
        return self.call(ops.BUILD_PARTITIONS, ops.BuildPartitionsQuery(build_request_id))

    def list_recent_partitions(self, limit: int = 50) -> list[PartitionSummary]:
        """Return the partitions whose status changed last, newest first."""
        return self.call(ops.RECENT_PARTITIONS, ops.RecentPartitionsQuery(limit))

    def list_job_runs(
        self, build_request_id: str | None = None, job_label: str | None = None, limit: int = 1_000
    ) -> list[JobRun]:
        """Return runs of jobs, newest first."""
        return self.call(ops.LIST_RUNS, ops.RunQuery(build_request_id, job_label, limit))

    def list_jobs(self, limit: int = 1_000) -> list[JobSummary]:
        """Return each job with its success rate, durations, retries and last run, latest run first."""
        return self.call(ops.LIST_JOBS, ops.JobQuery(limit))

    def get_activity_summary(self, recent: int = 10) -> ActivitySummary:
        """Return an overview of the log."""
        return self.call(ops.ACTIVITY, ops.ActivityQuery(recent))

    def stats(self) -> LogStats:
        """Return the size of the log and facts about its store."""
        return self.call(ops.STATS, ops.StatsQuery())

    def list_edges(self, partition_refs: Iterable[str], *, upstream: bool) -> list[Edge]:
        """Return the inputs (upstream) or outputs of these partitions, from configs and manifests."""
        return self.call(ops.EDGES, ops.EdgeQuery(list(partition_refs), upstream))

    def list_prunable(self, before_ns: int | None, keep_events: int | None, limit: int) -> list[int]:
        """Return the indexes of events that may be pruned, oldest first: older than a time, or beyond the newest `keep_events`.

        Never includes a partition's latest status, nor events of an unfinished build that has newer events.
        """
        return self.call(ops.PRUNABLE, ops.PrunableQuery(before_ns, keep_events, limit)).indexes

    # -- derived ---------------------------------------------------------------------------------------------------

    def append_event(self, event: BuildEvent, *, check_states: bool | None = None) -> int:
        """Store one event; return its index once it is durable. As `append_events`."""
        return self.append_events([event], check_states=check_states)[0]

    def all_events(
        self, since: int | None = None, until: int | None = None, **filter: Unpack[FilterArguments]
    ) -> Iterator[BuildEvent]:
        """Yield events in commit order, strictly after `since`, up to `until`, reading in chunks."""
        position = since or 0
        while True:
            page = self.list_events(position, _CHUNK, **filter)
            for event in page.events:
                assert event.index is not None
                if until is not None and event.index > until:
                    return
                yield event
            if not page.has_more:
                return
            position = page.next_index

    def get_build_request_events(self, build_request_id: str, since: int | None = None) -> list[BuildEvent]:
        """Return the events of a build in commit order, after index `since`."""
        return list(self.all_events(since, build_request_ids=[build_request_id]))

    def get_partition_events(self, partition_ref: str, since: int | None = None) -> list[BuildEvent]:
        """Return the events of a partition: its own, jobs that target it, delegations, invalidations, requests that name it."""
        return list(self.all_events(since, partition_refs=[partition_ref]))

    def get_job_run_events(self, job_run_id: str, since: int | None = None) -> list[BuildEvent]:
        """Return the job events and task cancels of one job run."""
        return list(self.all_events(since, job_run_ids=[job_run_id]))

    def get_events_in_range(self, start_ns: int, end_ns: int) -> list[BuildEvent]:
        """Return the events with a timestamp from `start_ns` to `end_ns`, both included, in commit order."""
        return list(self.all_events(start_ns=start_ns, end_ns=end_ns))

    def get_manifests(self, build_request_id: str | None = None, partition_ref: str | None = None) -> list[Any]:
        """Return the manifests of jobs, oldest first; of one build or one partition if given."""
        found: list[Any] = []
        for event in self.all_events(build_request_id=build_request_id, partition_ref=partition_ref, kinds=[Kind.JOB]):
            assert isinstance(event.payload, JobEvent)
            listed = event.payload.manifests
            if listed is not None:
                found.extend(listed if isinstance(listed, list) else [listed])
        return found

    def follow(
        self,
        since: int | None = None,
        *,
        poll_s: float = 0.05,
        idle_s: float | None = None,
        stop: threading.Event | None = None,
        **filter: Unpack[FilterArguments],
    ) -> Iterator[BuildEvent]:
        """Yield each event once, in commit order, as it is committed; `since=None` starts at the present head.

        To resume, pass the index of the last event that was processed. Ends when `stop` (a threading.Event) is set, or
        after `idle_s` without an event; otherwise it waits for more.
        """
        start = self.head() if since is None else since
        return self._follow(start, filter, poll_s, idle_s, stop or threading.Event())

    def _follow(
        self, since: int, filter: FilterArguments, poll_s: float, idle_s: float | None, stop: threading.Event
    ) -> Iterator[BuildEvent]:
        return follow(self, since, poll_s=poll_s, idle_s=idle_s, stop=stop, filter=filter)

    def wait_for_build(
        self, build_request_id: str, timeout_s: float | None = None, *, poll_s: float = 0.05
    ) -> BuildSummary:
        """Return the build once it is finished. Raises Unavailable if it is not finished within `timeout_s`."""
        ends = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            found = self.get_build(build_request_id)
            if found is not None and found.status in FINISHED_BUILDS:
                return found
            if ends is not None and time.monotonic() >= ends:
                state = "is not in the log" if found is None else f"is {found.status.label}"
                raise Unavailable(
                    f"build {build_request_id} {state} after {timeout_s:g} s; wait longer, or check that it is still running"
                )
            time.sleep(poll_s)

    def get_lineage(
        self, partition_ref: str, direction: str = "upstream", *, depth: int = 100, limit: int = 10_000
    ) -> Lineage:
        """Return the partitions that a partition was made from (upstream) or went into (downstream), nearest first."""
        if direction not in ("upstream", "downstream"):
            raise CallerError(f'direction is "upstream" or "downstream", got {direction!r}')
        upstream = direction == "upstream"
        # Breadth first, so that the nearest come first; a cycle is walked once.
        found: dict[str, None] = {}
        edges: list[Edge] = []
        frontier = [partition_ref]
        for _ in range(depth):
            if not frontier:
                break
            step = self.list_edges(frontier, upstream=upstream)
            frontier = []
            for edge in step:
                if len(edges) >= limit:
                    return Lineage(partition_ref, direction, tuple(found), tuple(edges), True)
                edges.append(edge)
                ref = edge.input_ref if upstream else edge.output_ref
                if ref not in found and ref != partition_ref:
                    found[ref] = None
                    frontier.append(ref)
        return Lineage(partition_ref, direction, tuple(found), tuple(edges), bool(frontier))

    def as_of(self, index: int) -> EventLog:
        """Return a read-only copy of the log as of `index`; pruned events are missing."""
        from crannog.builds.stores.sqlite_log import PastLog  # it is a log itself

        ops.whole_number(index, "index", least=0, most=ops.LARGEST_INDEX)
        return PastLog(f"{self.uri} as of index {index}", self.all_events(until=index))

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"
