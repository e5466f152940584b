"""Queries of the read model for the present state: partitions, builds, and an overview."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from crannog.builds.read_model.connection import Connection, one_of
from crannog.builds.read_model.event_queries import count_events
from crannog.builds.results import ActivitySummary, BuildPage, BuildSummary, PartitionSummary
from crannog.builds.statuses import FINISHED_BUILDS, FINISHED_PARTITIONS, BuildRequestStatus, PartitionStatus

_BUILD = (
    "build_request_id, status, requested, message, created_at, updated_at, ended_at, first_idx, last_idx, cancel_idx"
)
_PARTITION = "partition_ref, status, updated_at, status_idx, build_request_id, job_run_id, message, invalidated_idx"


def partition(connection: Connection, ref: str) -> PartitionSummary | None:
    """Return a partition's latest status by commit order; None if it never had one."""
    rows = connection.query(
        f"SELECT {_PARTITION} FROM partitions WHERE partition_ref = ? AND status IS NOT NULL", (ref,)
    )
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
    """Return the unfinished builds of a partition, sorted by id.

    A build that delegated the partition is replaced by the build it delegated to, and so on. A build of which only the
    last status of a partition remains (the rest was pruned) counts as finished.
    """
    about = {
        build: (status, delegated_to)
        for build, status, delegated_to in connection.query(
            "SELECT build_request_id, status, delegated_to FROM build_partitions WHERE partition_ref = ?", (ref,)
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


def build(connection: Connection, build_request_id: str) -> BuildSummary | None:
    """Return a build; None if the log has no request of it."""
    rows = connection.query(
        f"SELECT {_BUILD} FROM builds WHERE build_request_id = ? AND status IS NOT NULL", (build_request_id,)
    )
    return _build_of(rows[0]) if rows else None


def builds_page(connection: Connection, status: BuildRequestStatus | None, limit: int, offset: int) -> BuildPage:
    """Return builds, latest start first."""
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
    """Return the status of each partition in one build."""
    rows = connection.query(
        "SELECT partition_ref, status FROM build_partitions WHERE build_request_id = ? ORDER BY partition_ref",
        (build_request_id,),
    )
    return {ref: PartitionStatus(status or 0) for ref, status in rows}


def activity(connection: Connection, recent: int) -> ActivitySummary:
    """Return an overview of the log."""
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
        builds_page(connection, None, recent, 0).builds,
        recent_partitions(connection, recent),
    )
