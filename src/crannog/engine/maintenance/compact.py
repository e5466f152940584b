"""Compact: fold, then merge small files into large, clustered ones. The plan is a pure function, the action is thin."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from crannog.api.reports import Cancellation, CompactReport, FoldReport, Progress
from crannog.delta.log import Base, DataFile
from crannog.delta.rewrite import Rewrite, RunAgain, verify_files
from crannog.engine.columnar.plans import rewritten_files, run_with_spark
from crannog.engine.duckdb.engine import quoted
from crannog.engine.maintenance.fold import after_commit, fold
from crannog.engine.maintenance.job import Job, progress_range
from crannog.engine.open_table import OpenTable, check_files
from crannog.engine.snapshot import Snapshot, read
from crannog.errors import SnapshotGone, Unavailable

_MAX_ATTEMPTS = 10
_TIER = 8
"""Files whose sizes are within this factor are in one tier."""


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """When merging files pays off: a file below `small_share` of the target is small; fewer than `fewest` are left alone.

    With `tiered`, only files of similar size are merged, enough of them to fill a file or `fewest`: while a table
    grows, its rows are rewritten a few times, not at every compaction.
    """

    target_bytes: int
    small_share: float = 0.6
    fewest: int = 2
    most_bytes_per_group: int = 8 * 1024**3
    tiered: bool = False


def scheduled_limits(target_bytes: int) -> CompactionLimits:
    """Return the limits of compactions that nobody asked for.

    They leave files of a sixteenth of the target alone: under load, folds write such files, clustered, and reading several of
    them costs little more than reading one.
    """
    return CompactionLimits(target_bytes, small_share=1 / 16, fewest=8, most_bytes_per_group=target_bytes, tiered=True)


@dataclass(frozen=True, slots=True)
class CompactionGroup:
    """Files of one partition that one rewrite merges, and why."""

    files: tuple[DataFile, ...]
    output_files: int
    reason: str

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)


def files_to_compact(files: Iterable[DataFile], limits: CompactionLimits) -> list[CompactionGroup]:
    """Choose the small files worth merging, partition by partition. Reads no clock and touches no storage."""
    partitions: dict[tuple[Any, ...], list[DataFile]] = {}
    for file in files:
        if file.size < limits.target_bytes * limits.small_share:
            tier = int(math.log(max(file.size, 1), _TIER)) if limits.tiered else 0
            partitions.setdefault((tier, *file.partition.values()), []).append(file)
    groups = []
    for small in partitions.values():
        # By path: jobs have ids in the order of time, and so do the rows of most tables.
        for members in _bounded(sorted(small, key=lambda file: file.path), limits.most_bytes_per_group):
            size = sum(file.size for file in members)
            outputs = max(1, round(size / limits.target_bytes))
            # Merging n files into n or more gains nothing.
            enough = len(members) >= limits.fewest or (
                limits.tiered and size >= limits.target_bytes * limits.small_share
            )
            if enough and outputs < len(members):
                groups.append(
                    CompactionGroup(
                        tuple(members), outputs, f"{len(members)} small files, {size:,} bytes, into {outputs}"
                    )
                )
    return groups


def _bounded(files: Sequence[DataFile], most_bytes: int) -> Iterable[list[DataFile]]:
    group: list[DataFile] = []
    size = 0
    for file in files:
        if group and size + file.size > most_bytes:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    if group:
        yield group


def compact(
    table: OpenTable,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
) -> CompactReport:
    """Fold, then merge files where it pays off. Returns once committed; a dry run changes nothing and reports the plan."""
    if dry_run:
        return _plan_only(table)
    folded = fold(table, progress=progress_range(progress, 0, 0.5), cancellation=cancellation)
    limits = CompactionLimits(table.file_bytes(table.snapshot().base))
    return merge_files(table, limits, folded, progress=progress_range(progress, 0.5, 1), cancellation=cancellation)


def merge_files(
    table: OpenTable,
    limits: CompactionLimits,
    folded: FoldReport,
    *,
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
) -> CompactReport:
    """Merge files where it pays off, without a fold; `folded` is the report of the one before."""
    for _ in range(_MAX_ATTEMPTS):
        snapshot = table.snapshot()
        base = snapshot.base
        groups = files_to_compact(base.files.values(), limits)
        report = _report(folded, files=len(base.files), size=base.bytes)
        if not groups:
            return replace(report, skipped="no files are worth merging")
        with Job(table, "COMPACT", base, progress=progress, cancellation=cancellation) as job:
            try:
                return _compact_once(table, snapshot, groups, job, report)
            except (RunAgain, SnapshotGone):
                continue
    check_files(table)
    raise Unavailable(
        f"cannot compact {table.name}: other jobs changed the table {_MAX_ATTEMPTS} times meanwhile; try again"
    )


def _compact_once(
    table: OpenTable, snapshot: Snapshot, groups: list[CompactionGroup], job: Job, report: CompactReport
) -> CompactReport:
    base = snapshot.base
    files = [file for group in groups for file in group.files]
    rows_before = sum(file.rows for file in files)
    expected = _distinct_rows(table, snapshot, files) if base.distinct_by else rows_before
    duplicates = rows_before - expected
    job.step("write files with Spark", 0.2)
    written = _write_distinct(table, base, job, files) if duplicates else _write_merged(table, base, job, groups)
    job.step("verify", 0.85)
    added = verify_files(job.storage, table.folder, written, base, rows=expected)
    job.step("commit", 0.95)
    rewrite = Rewrite(
        job.id,
        # Copies in memory go by the operation's name: a plain compaction changes no row.
        "DEDUPLICATE" if duplicates else "COMPACT",
        base,
        removes=files,
        adds=added,
        data_change=bool(duplicates),
        parameters={"clusterBy": list(base.cluster_by)},
        metrics={"numAddedFiles": len(added), "numRemovedFiles": len(files), "numDeletedRows": duplicates},
    )
    version = job.commit(rewrite)
    after_commit(table, version)
    before, after = sum(file.size for file in files), sum(file.size for file in added)
    return replace(
        report,
        final_rows=report.final_rows - duplicates,
        files_after=report.files_after - len(files) + len(added),
        bytes_after=report.bytes_after - before + after,
        seconds=round(report.seconds + job.seconds, 3),
        version=version,
        plan=tuple(group.reason for group in groups),
        duplicates_dropped=duplicates,
    )


def _write_merged(table: OpenTable, base: Base, job: Job, groups: Sequence[CompactionGroup]) -> list[str]:
    target = table.file_bytes(base)
    tasks = [
        task
        for group in groups
        for task in rewritten_files(job.storage, table.folder, job.folder, base, group.files, target)
    ]
    with job.spark() as session:
        return run_with_spark(session, job.storage, base, tasks)


def _write_distinct(table: OpenTable, base: Base, job: Job, files: Sequence[DataFile]) -> list[str]:
    """Write one copy of each row. Copies may be in any two files, so this is a shuffle for Spark's own plan."""
    from crannog.engine.spark_files import newest_of_each, portions_of_files, read_base, write_files

    with job.spark() as session:
        rows = read_base(session, job.storage, table.folder, base, [file.path for file in files])
        return write_files(
            newest_of_each(rows, base.distinct_by, base.newest_by),
            job.storage,
            f"{table.folder}/{job.folder}",
            base,
            portions=portions_of_files(files, table.file_bytes(base)),
            sort_by=base.cluster_by,
            by_range=True,
        )


def _distinct_rows(table: OpenTable, snapshot: Snapshot, files: Sequence[DataFile]) -> int:
    """Count the rows left after removing duplicates; what Spark writes is verified against this count."""
    engine = table.warehouse.duckdb
    schema = pa.schema([snapshot.base.schema.field(name) for name in snapshot.base.distinct_by])
    columns = ", ".join(map(quoted, schema.names))
    scan = engine.scan(snapshot.local_paths([file.path for file in files]), schema)
    with engine.cursor() as cursor:
        return int(read(cursor, f"SELECT count(*) FROM (SELECT DISTINCT {columns} FROM {scan})").column(0)[0].as_py())


def _report(folded: FoldReport, *, files: int, size: int) -> CompactReport:
    return CompactReport(
        base_rows=folded.base_rows,
        delta_rows=folded.staged_rows,
        final_rows=folded.final_rows,
        deltas_merged=folded.changes,
        tombstones_applied=folded.tombstones_applied,
        rows_dropped_by_tombstones=folded.rows_dropped_by_tombstones,
        files_before=folded.files_before,
        files_after=files,
        bytes_before=folded.bytes_before,
        bytes_after=size,
        seconds=folded.seconds,
        version=folded.version,
    )


def _plan_only(table: OpenTable) -> CompactReport:
    snapshot = table.snapshot()
    base, tail = snapshot.base, snapshot.tail
    groups = files_to_compact(base.files.values(), CompactionLimits(table.file_bytes(base)))
    plan = [f"fold {len(tail.records):,} staged changes of {tail.row_count:,} rows"] if tail.segments else []
    plan += [f"merge {group.reason}" for group in groups]
    return CompactReport(
        base_rows=base.rows,
        delta_rows=tail.row_count,
        final_rows=table.count(snapshot=snapshot),
        deltas_merged=len(tail.records),
        tombstones_applied=0,
        rows_dropped_by_tombstones=0,
        files_before=len(base.files),
        files_after=len(base.files),
        bytes_before=base.bytes,
        bytes_after=base.bytes,
        seconds=0.0,
        skipped="dry run: nothing was changed",
        plan=tuple(plan) or ("nothing to do",),
    )
