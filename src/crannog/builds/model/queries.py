"""Every question the read model answers. Functions of a connection; nothing here writes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from crannog.builds.events import BuildEvent, Kind
from crannog.builds.filters import EventFilter
from crannog.builds.model.connection import Connection
from crannog.builds.model.stored import COLUMNS, event_of
from crannog.builds.results import (
    ActivitySummary,
    BuildPage,
    BuildSummary,
    Edge,
    EventPage,
    JobRun,
    JobSummary,
    PartitionSummary,
)
from crannog.builds.statuses import (
    FINISHED_BUILDS,
    FINISHED_PARTITIONS,
    BuildRequestStatus,
    JobStatus,
    PartitionStatus,
)

_BUILD = "build_request_id, status, requested, message, created_at, updated_at, ended_at, first_idx, last_idx, cancel_idx"
_PARTITION = "partition_ref, status, updated_at, status_idx, build_request_id, job_run_id, message, invalidated_idx"
_RUN = "job_run_id, job_label, build_request_id, status, targets, first_at, started_at, ended_at, first_idx"


# -- events ------------------------------------------------------------------------------------------------------


def event(connection: Connection, event_id: str) -> BuildEvent | None:
    """Return one event by its id."""
    rows = connection.query(f"SELECT {COLUMNS} FROM events WHERE event_id = ?", (event_id,))
    return event_of(rows[0]) if rows else None


def events_page(
    connection: Connection, wanted: EventFilter, *, since: int | None, limit: int, descending: bool, until: int | None = None
) -> EventPage:
    """Return up to `limit` events strictly after `since` in the given direction; None starts at the end it comes from."""
    conditions, values = _conditions(connection, wanted)
    if since is not None:
        conditions.append("idx < ?" if descending else "idx > ?")
        values.append(since)
    if until is not None:
        conditions.append("idx <= ?")
        values.append(until)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = connection.query(
        f"SELECT {COLUMNS} FROM events{where} ORDER BY idx {'DESC' if descending else 'ASC'} LIMIT ?", (*values, limit + 1)
    )
    found = tuple(map(event_of, rows[:limit]))
    last = found[-1].index if found else (since or 0)
    assert last is not None
    return EventPage(found, last, len(rows) > limit)


def _conditions(connection: Connection, wanted: EventFilter) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    for column, listed in (
        ("build_request_id", wanted.build_request_ids),
        ("job_run_id", wanted.job_run_ids),
        ("job_label", wanted.job_labels),
        ("kind", tuple(map(int, wanted.kinds))),
    ):
        if listed:
            conditions.append(_one_of(column, listed))
            values.extend(listed)
    parts = []
    if wanted.partition_refs:
        parts.append(_one_of("partition_ref", wanted.partition_refs))
        values.extend(wanted.partition_refs)
    for pattern in wanted.partition_globs:
        parts.append(connection.matches_glob("partition_ref"))
        values.append(connection.glob(pattern))
    if parts:
        conditions.append(f"idx IN (SELECT idx FROM event_partitions WHERE {' OR '.join(parts)})")
    if wanted.start_ns is not None:
        conditions.append("timestamp >= ?")
        values.append(wanted.start_ns)
    if wanted.end_ns is not None:
        conditions.append("timestamp <= ?")
        values.append(wanted.end_ns)
    return conditions, values


def _one_of(column: str, listed: Sequence[Any]) -> str:
    return f"{column} = ?" if len(listed) == 1 else f"{column} IN ({', '.join('?' * len(listed))})"


# -- partitions --------------------------------------------------------------------------------------------------


def partition(connection: Connection, ref: str) -> PartitionSummary | None:
    """Return a partition's latest status by commit order; None if it never had one."""
    rows = connection.query(f"SELECT {_PARTITION} FROM partitions WHERE partition_ref = ? AND status IS NOT NULL", (ref,))
    return _partition_of(rows[0]) if rows else None


def recent_partitions(connection: Connection, limit: int) -> tuple[PartitionSummary, ...]:
    """Return the partitions whose status changed last, newest first."""
    rows = connection.query(
        f"SELECT {_PARTITION} FROM partitions WHERE status_idx IS NOT NULL ORDER BY status_idx DESC LIMIT ?", (limit,)
    )
    return tuple(map(_partition_of, rows))


def _partition_of(row: Sequence[Any]) -> PartitionSummary:
    ref, status, updated, index, build, run, message, invalidated = row
    stale = invalidated is not None and invalidated > index
    return PartitionSummary(ref, PartitionStatus(status), updated, index, build, run, json.loads(message), stale)


def active_builds(connection: Connection, ref: str) -> list[str]:
    """Return the unfinished builds that are about a partition, in order of their ids.

    A build that left the partition to another is replaced by that one, and so on. A build of which nothing is
    left but a partition's last status (the rest was pruned) is over.
    """
    about = {
        build: (status, delegated_to)
        for build, status, delegated_to in connection.query(
            "SELECT build_request_id, status, delegated_to FROM build_partitions WHERE partition_ref = ?", (ref,)
        )
    }
    builders = {build for build, (_, delegated_to) in about.items() if delegated_to is None}
    waiting = [delegated_to for _, delegated_to in about.values() if delegated_to is not None]
    # Whom it was left to may have left it to another; a ring of them has no builder.
    builders.update(build for build in waiting if build not in about)
    if not builders:
        return []
    states = dict(
        connection.query(
            f"SELECT build_request_id, status FROM builds WHERE build_request_id IN ({', '.join('?' * len(builders))})", sorted(builders)
        )
    )
    active = []
    for build in sorted(builders):
        status = states.get(build)
        if status is None:
            done = build in about and about[build][0] in tuple(map(int, FINISHED_PARTITIONS))
        else:
            done = status in tuple(map(int, FINISHED_BUILDS))
        if not done:
            active.append(build)
    return active


# -- builds ------------------------------------------------------------------------------------------------------


def build(connection: Connection, build_request_id: str) -> BuildSummary | None:
    """Return a build; None if the log has no request of it."""
    rows = connection.query(f"SELECT {_BUILD} FROM builds WHERE build_request_id = ? AND status IS NOT NULL", (build_request_id,))
    return _build_of(rows[0]) if rows else None


def builds_page(connection: Connection, status: BuildRequestStatus | None, limit: int, offset: int) -> BuildPage:
    """Return builds, the one that began last first."""
    where, values = ("status IS NOT NULL", ()) if status is None else ("status = ?", (int(status),))
    [(total,)] = connection.query(f"SELECT count(*) FROM builds WHERE {where}", values)
    rows = connection.query(
        f"SELECT {_BUILD} FROM builds WHERE {where} ORDER BY first_idx DESC LIMIT ? OFFSET ?", (*values, limit, offset)
    )
    return BuildPage(tuple(map(_build_of, rows)), total)


def _build_of(row: Sequence[Any]) -> BuildSummary:
    name, status, requested, message, created, updated, ended, first, last, cancel = row
    return BuildSummary(
        name, BuildRequestStatus(status), tuple(json.loads(requested)) if requested else (), json.loads(message),
        created, updated, ended, first, last, cancel is not None,
    )  # fmt: skip


def build_partitions(connection: Connection, build_request_id: str) -> dict[str, PartitionStatus]:
    """Return what became of each partition in one build."""
    rows = connection.query(
        "SELECT partition_ref, status FROM build_partitions WHERE build_request_id = ? ORDER BY partition_ref", (build_request_id,)
    )
    return {ref: PartitionStatus(status or 0) for ref, status in rows}


# -- jobs --------------------------------------------------------------------------------------------------------


def job_runs(connection: Connection, *, build_request_id: str | None = None, job_label: str | None = None, limit: int = 1_000) -> tuple[JobRun, ...]:
    """Return runs, newest first."""
    conditions, values = ["1 = 1"], []
    for column, value in (("build_request_id", build_request_id), ("job_label", job_label)):
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    rows = connection.query(f"SELECT {_RUN} FROM job_runs WHERE {' AND '.join(conditions)} ORDER BY first_idx DESC LIMIT ?", (*values, limit))
    return tuple(map(_run_of, rows))


def _run_of(row: Sequence[Any]) -> JobRun:
    run, label, build_id, status, targets, first_at, started, ended, first = row
    return JobRun(run, label, build_id, JobStatus(status), tuple(json.loads(targets)), first_at, started, ended, first)


def jobs(connection: Connection, limit: int) -> tuple[JobSummary, ...]:
    """Return each job with what its runs tell, the one that ran last first."""
    labels = connection.query("SELECT job_label, max(first_idx) FROM job_runs GROUP BY job_label ORDER BY 2 DESC LIMIT ?", (limit,))
    return tuple(_job(connection, label) for label, _ in labels)


def _job(connection: Connection, label: str) -> JobSummary:
    counts = Counter(
        {JobStatus(status): number for status, number in connection.query("SELECT status, count(*) FROM job_runs WHERE job_label = ? GROUP BY status", (label,))}
    )
    total = sum(counts.values())
    ended = sum(counts[status] for status in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED))
    [(tasks,)] = connection.query(
        "SELECT count(*) FROM (SELECT DISTINCT build_request_id, targets FROM job_runs WHERE job_label = ?) AS tasks", (label,)
    )
    durations = [
        max(0, taken)
        for (taken,) in connection.query(
            "SELECT ended_at - COALESCE(started_at, first_at) FROM job_runs WHERE job_label = ? AND ended_at IS NOT NULL ORDER BY 1", (label,)
        )
    ]
    [last] = connection.query(f"SELECT {_RUN} FROM job_runs WHERE job_label = ? ORDER BY first_idx DESC LIMIT 1", (label,))
    return JobSummary(
        label,
        total,
        counts[JobStatus.COMPLETED],
        counts[JobStatus.FAILED],
        counts[JobStatus.CANCELLED],
        total - ended,
        counts[JobStatus.COMPLETED] / ended if ended else None,
        total - tasks,
        durations[(len(durations) - 1) // 2] if durations else None,
        durations[-1] if durations else None,
        _run_of(last),
    )


# -- the whole ---------------------------------------------------------------------------------------------------


def activity(connection: Connection, recent: int) -> ActivitySummary:
    """Return the log at a glance."""
    by_status = {
        BuildRequestStatus(status).label: number
        for status, number in connection.query("SELECT status, count(*) FROM builds WHERE status IS NOT NULL GROUP BY status ORDER BY status")
    }
    by_partition = {
        PartitionStatus(status).label: number
        for status, number in connection.query("SELECT status, count(*) FROM partitions WHERE status IS NOT NULL GROUP BY status ORDER BY status")
    }
    total = sum(by_status.values())
    finished = sum(by_status.get(status.label, 0) for status in FINISHED_BUILDS)
    return ActivitySummary(
        total - finished,
        total,
        sum(by_partition.values()),
        count_events(connection),
        by_status,
        by_partition,
        builds_page(connection, None, recent, 0).builds,
        recent_partitions(connection, recent),
    )


def count_events(connection: Connection) -> int:
    [(count,)] = connection.query("SELECT count(*) FROM events")
    return int(count)


def events_by_kind(connection: Connection) -> dict[str, int]:
    counts = dict(connection.query("SELECT kind, count(*) FROM events GROUP BY kind"))
    return {kind.event_type: counts.get(int(kind), 0) for kind in Kind}


# -- lineage and retention ---------------------------------------------------------------------------------------

_AT_ONCE = 500


def edges(connection: Connection, refs: Sequence[str], *, upstream: bool) -> list[Edge]:
    """Return one edge per pair of partitions, as the newest event tells it, by output and input."""
    column = "output_ref" if upstream else "input_ref"
    newest: dict[tuple[str, str], tuple[int, Edge]] = {}
    happened: set[tuple[str, str]] = set()
    for start in range(0, len(refs), _AT_ONCE):
        some = refs[start : start + _AT_ONCE]
        for output, source, index, run, build_id, made in connection.query(
            f"SELECT output_ref, input_ref, idx, job_run_id, build_request_id, made FROM edges WHERE {_one_of(column, some)}", some
        ):
            pair = (output, source)
            if made:
                happened.add(pair)
            if pair not in newest or index > newest[pair][0]:
                newest[pair] = (index, Edge(output, source, run, build_id, True))
    return [
        Edge(edge.output_ref, edge.input_ref, edge.job_run_id, edge.build_request_id, pair not in happened)
        for pair, (_, edge) in sorted(newest.items())
    ]


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
