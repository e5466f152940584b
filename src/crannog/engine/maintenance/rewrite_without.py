"""Rewrites the base without some rows: DuckDB counts them, Spark writes the others, and the count is verified."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from crannog.api.reports import Cancellation, Progress
from crannog.delta.log import Base, DataFile
from crannog.delta.rewrite import Rewrite, RunAgain, verify_files
from crannog.engine.columnar.plans import rewritten_files, run_with_spark
from crannog.engine.columnar.tasks import RowCondition
from crannog.engine.duckdb.engine import FILE_COLUMN
from crannog.engine.maintenance.fold import after_commit
from crannog.engine.maintenance.job import Job
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read
from crannog.errors import SnapshotGone, Unavailable

_MAX_ATTEMPTS = 10


class RowFilter(Protocol):
    """The rows to drop: DuckDB counts them, Spark writes the others."""

    def counts(self, table: OpenTable, snapshot: Snapshot) -> dict[str, int]:
        """Return how many rows to drop from each file of the base."""

    def remaining(self, job: Job) -> RowCondition:
        """Return the condition of the rows to keep."""


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """What was dropped, and the snapshot it was dropped from."""

    snapshot: Snapshot
    rows: int
    whole: Sequence[DataFile]
    rewritten: Sequence[DataFile]
    added: Sequence[DataFile]
    version: int | None
    seconds: float


def rewrite_without(
    table: OpenTable,
    operation: str,
    choose: Callable[[Snapshot], RowFilter],
    *,
    parameters: Mapping[str, Any],
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
) -> RewriteResult:
    """Drop rows of the newest base in one commit named `operation`; no commit if there are none to drop."""
    for _ in range(_MAX_ATTEMPTS):
        snapshot = table.snapshot()
        with Job(table, operation, snapshot.base, progress=progress, cancellation=cancellation) as job:
            try:
                return _rewrite_once(table, snapshot, choose(snapshot), job, parameters)
            except (RunAgain, SnapshotGone):
                continue
    raise Unavailable(
        f"cannot {operation.lower()} {table.name}: other jobs changed the table {_MAX_ATTEMPTS} times meanwhile; try again"
    )


def _rewrite_once(
    table: OpenTable, snapshot: Snapshot, row_filter: RowFilter, job: Job, parameters: Mapping[str, Any]
) -> RewriteResult:
    base = snapshot.base
    job.step("count", 0.1)
    counts = row_filter.counts(table, snapshot)
    whole = [file for file in base.files.values() if counts.get(file.path, 0) == file.rows]
    mixed = [file for file in base.files.values() if 0 < counts.get(file.path, 0) < file.rows]
    dropped = sum(counts.values())
    added: list[DataFile] = []
    version = None
    if mixed:
        job.step("write files with Spark", 0.3)
        written = _write(table, base, row_filter, job, mixed)
        job.step("verify", 0.85)
        kept = sum(file.rows - counts[file.path] for file in mixed)
        added = verify_files(job.storage, table.folder, written, base, rows=kept)
    if whole or mixed:
        job.step("commit", 0.95)
        rewrite = Rewrite(
            job.id,
            job.operation,
            base,
            removes=[*whole, *mixed],
            adds=added,
            parameters=dict(parameters),
            metrics={
                "numRemovedFiles": len(whole) + len(mixed),
                "numAddedFiles": len(added),
                "numDeletedRows": dropped,
            },
        )
        version = job.commit(rewrite)
        after_commit(table, version)
    return RewriteResult(snapshot, dropped, whole, mixed, added, version, job.seconds)


def _write(table: OpenTable, base: Base, row_filter: RowFilter, job: Job, mixed: list[DataFile]) -> list[str]:
    condition, target = row_filter.remaining(job), table.file_bytes(base)
    tasks = rewritten_files(job.storage, table.folder, job.folder, base, mixed, target, condition)
    with job.spark() as session:
        return run_with_spark(session, job.storage, base, tasks)


def counted_by_file(
    table: OpenTable,
    snapshot: Snapshot,
    files: Sequence[str],
    columns: Sequence[str],
    condition: str,
    tables: Mapping[str, pa.Table],
) -> dict[str, int]:
    """Count the rows of each file that meet an SQL condition, which refers to columns as `t."name"` and to `tables`."""
    paths = snapshot.local_paths(list(files))
    if not paths:
        return {}
    schema = pa.schema([snapshot.base.schema.field(name) for name in columns])
    engine = table.warehouse.duckdb
    with engine.cursor(tables) as cursor:
        counted = read(
            cursor,
            f"SELECT {FILE_COLUMN} AS file, count(*) AS n FROM {engine.scan(paths, schema, positions=True)} t"
            f" WHERE {condition} GROUP BY {FILE_COLUMN}",
        )
    by_path = dict(zip(paths, files, strict=True))
    return {by_path[row["file"]]: row["n"] for row in counted.to_pylist()}
