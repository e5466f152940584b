"""Queries of the read model for the present state: partitions, builds, jobs and their runs, lineage, and an overview."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from crannog.builds.event_values import (
    FINISHED_BUILDS,
    FINISHED_JOBS,
    FINISHED_PARTITIONS,
    BuildRequestStatus,
    JobStatus,
    PartitionStatus,
)
from crannog.builds.read_model.event_queries import count_events, in_chunks, one_of
from crannog.builds.read_model.tables import Connection, SqlValue
from crannog.builds.requests import (
    ActiveBuildsQuery,
    ActivityQuery,
    BuildById,
    BuildPartitionsQuery,
    BuildQuery,
    EdgeQuery,
    JobQuery,
    PartitionStatusQuery,
    RecentPartitionsQuery,
    RunQuery,
)
from crannog.builds.results import ActivitySummary, BuildPage, BuildSummary, Edge, JobRun, JobSummary, PartitionSummary

_BUILD = (
    "build_request_id, status, requested, message, created_at, updated_at, ended_at, first_idx, last_idx, cancel_idx"
)
_PARTITION = "partition_ref, status, updated_at, status_idx, build_request_id, job_run_id, message, invalidated_idx"


def partition(connection: Connection, query: PartitionStatusQuery) -> PartitionSummary | None:
    rows = connection.query(
        f"SELECT {_PARTITION} FROM partitions WHERE partition_ref = ? AND status IS NOT NULL",
        (query.partition_ref,),
    )
    return _partition_of(rows[0]) if rows else None


def recent_partitions(connection: Connection, query: RecentPartitionsQuery) -> list[PartitionSummary]:
    rows = connection.query(
        f"SELECT {_PARTITION} FROM partitions WHERE status_idx IS NOT NULL ORDER BY status_idx DESC LIMIT ?",
        (query.limit,),
    )
    return list(map(_partition_of, rows))


def _partition_of(row: Sequence[Any]) -> PartitionSummary:
    ref, status, updated, index, build, run, message, invalidated = row
    stale = invalidated is not None and invalidated > index
    return PartitionSummary(ref, PartitionStatus(status), updated, index, build, run, json.loads(message), stale)


def active_builds(connection: Connection, query: ActiveBuildsQuery) -> list[str]:
    """Return the unfinished builds of a partition, sorted by id.

    A build that delegated the partition is replaced by the build it delegated to, and so on. A build of which only the
    last status of a partition remains (the rest was pruned) counts as finished.
    """
    about = {
        build: (status, delegated_to)
        for build, status, delegated_to in connection.query(
            "SELECT build_request_id, status, delegated_to FROM build_partitions WHERE partition_ref = ?",
            (query.partition_ref,),
        )
    }
    builders = {build for build, (_, delegated_to) in about.items() if delegated_to is None}
    waiting = [delegated_to for _, delegated_to in about.values() if delegated_to is not None]
    # The other build may have delegated it as well; a cycle of delegations has no builder.
    builders.update(build for build in waiting if build not in about)
    if not builders:
        return []
    listed = sorted(builders)
    states = dict(
        connection.query(
            f"SELECT build_request_id, status FROM builds WHERE {one_of('build_request_id', listed)}",
            listed,
        )
    )
    active = []
    for build in listed:
        status = states.get(build)
        if status is None:
            done = build in about and about[build][0] in tuple(map(int, FINISHED_PARTITIONS))
        else:
            done = status in tuple(map(int, FINISHED_BUILDS))
        if not done:
            active.append(build)
    return active


def build(connection: Connection, query: BuildById) -> BuildSummary | None:
    rows = connection.query(
        f"SELECT {_BUILD} FROM builds WHERE build_request_id = ? AND status IS NOT NULL",
        (query.build_request_id,),
    )
    return _build_of(rows[0]) if rows else None


def builds_page(connection: Connection, query: BuildQuery) -> BuildPage:
    where, values = "status IS NOT NULL", []
    if query.status is not None:
        where, values = "status = ?", [int(BuildRequestStatus.read(query.status))]
    [(total,)] = connection.query(f"SELECT count(*) FROM builds WHERE {where}", values)
    rows = connection.query(
        f"SELECT {_BUILD} FROM builds WHERE {where} ORDER BY first_idx DESC LIMIT ? OFFSET ?",
        (*values, query.limit, query.offset),
    )
    return BuildPage(tuple(map(_build_of, rows)), total)


def _build_of(row: Sequence[Any]) -> BuildSummary:
    name, status, requested, message, created, updated, ended, first, last, cancel = row
    return BuildSummary(
        name, BuildRequestStatus(status), tuple(json.loads(requested)) if requested else (), json.loads(message),
        created, updated, ended, first, last, cancel is not None,
    )  # fmt: skip


def build_partitions(connection: Connection, query: BuildPartitionsQuery) -> dict[str, PartitionStatus]:
    rows = connection.query(
        "SELECT partition_ref, status FROM build_partitions WHERE build_request_id = ? ORDER BY partition_ref",
        (query.build_request_id,),
    )
    return {ref: PartitionStatus(status or 0) for ref, status in rows}


def activity(connection: Connection, query: ActivityQuery) -> ActivitySummary:
    by_status = {
        BuildRequestStatus(status).label: number
        for status, number in connection.query(
            "SELECT status, count(*) FROM builds WHERE status IS NOT NULL GROUP BY status ORDER BY status"
        )
    }
    by_partition = {
        PartitionStatus(status).label: number
        for status, number in connection.query(
            "SELECT status, count(*) FROM partitions WHERE status IS NOT NULL GROUP BY status ORDER BY status"
        )
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
        builds_page(connection, BuildQuery(limit=query.recent)).builds,
        tuple(recent_partitions(connection, RecentPartitionsQuery(query.recent))),
    )


_RUN = "job_run_id, job_label, build_request_id, status, targets, first_at, started_at, ended_at, first_idx"
# Steps through the index from label to label: GROUP BY would read every run.
_LABELS = (
    "WITH RECURSIVE labels (label) AS (SELECT min(job_label) FROM job_runs"
    " UNION ALL SELECT (SELECT min(job_label) FROM job_runs WHERE job_label > label) FROM labels WHERE label IS NOT NULL)"
    " SELECT label, (SELECT max(first_idx) FROM job_runs WHERE job_label = label) FROM labels WHERE label IS NOT NULL"
    " ORDER BY 2 DESC LIMIT ?"
)
_TAKEN = "ended_at - COALESCE(started_at, first_at)"


def job_runs(connection: Connection, query: RunQuery) -> list[JobRun]:
    conditions: list[str] = []
    values: list[SqlValue] = []
    if query.build_request_id is not None:
        conditions.append("build_request_id = ?")
        values.append(query.build_request_id)
    if query.job_label is not None:
        conditions.append(f"{connection.without_index('job_label') if conditions else 'job_label'} = ?")
        values.append(query.job_label)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = connection.query(
        f"SELECT {_RUN} FROM job_runs{where} ORDER BY first_idx DESC LIMIT ?", (*values, query.limit)
    )
    return list(map(_run_of, rows))


def _run_of(row: Sequence[Any]) -> JobRun:
    run, label, build_id, status, targets, first_at, started, ended, first = row
    return JobRun(run, label, build_id, JobStatus(status), tuple(json.loads(targets)), first_at, started, ended, first)


def jobs(connection: Connection, query: JobQuery) -> list[JobSummary]:
    return [_job(connection, label) for label, _ in connection.query(_LABELS, (query.limit,))]


def _job(connection: Connection, label: str) -> JobSummary:
    counts = Counter(
        {
            JobStatus(status): number
            for status, number in connection.query(
                "SELECT status, count(*) FROM job_runs WHERE job_label = ? GROUP BY status", (label,)
            )
        }
    )
    total = sum(counts.values())
    ended = sum(counts[status] for status in FINISHED_JOBS)
    [(tasks,)] = connection.query(
        "SELECT count(*) FROM (SELECT DISTINCT build_request_id, targets FROM job_runs WHERE job_label = ?) AS tasks",
        (label,),
    )
    middle = connection.query(
        f"SELECT {_TAKEN} FROM job_runs WHERE job_label = ? AND ended_at IS NOT NULL ORDER BY 1 LIMIT 1 OFFSET ?",
        (label, (max(ended, 1) - 1) // 2),
    )
    [(longest,)] = connection.query(f"SELECT max({_TAKEN}) FROM job_runs WHERE job_label = ?", (label,))
    [last] = connection.query(
        f"SELECT {_RUN} FROM job_runs WHERE job_label = ? ORDER BY first_idx DESC LIMIT 1", (label,)
    )
    return JobSummary(
        label,
        total,
        counts[JobStatus.COMPLETED],
        counts[JobStatus.FAILED],
        counts[JobStatus.CANCELLED],
        total - ended,
        counts[JobStatus.COMPLETED] / ended if ended else None,
        total - tasks,
        max(0, middle[0][0]) if middle else None,
        max(0, longest) if longest is not None else None,
        _run_of(last),
    )


def edges(connection: Connection, query: EdgeQuery) -> list[Edge]:
    """Return one edge for each pair of partitions, from its newest event, sorted by output and input."""
    column = "output_ref" if query.upstream else "input_ref"
    newest: dict[tuple[str, str], tuple[int, Edge]] = {}
    happened: set[tuple[str, str]] = set()
    for some in in_chunks(query.partition_refs):
        for output, source, index, run, build_id, made in connection.query(
            f"SELECT output_ref, input_ref, idx, job_run_id, build_request_id, made FROM edges WHERE {one_of(column, some)}",
            some,
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
