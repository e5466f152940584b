"""Fold: move the staged changes into the base in one commit; in a keyed table the last change of each key wins."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crannog.api.reports import Cancellation, FoldReport, Progress
from crannog.delta.log import Base, DataFile
from crannog.delta.rewrite import AlreadyFolded, Rewrite, RunAgain, verify_files
from crannog.engine.columnar.parquet_files import by_partition, sorted_by
from crannog.engine.columnar.plans import (
    group_starts,
    in_files,
    rows_per_file,
    rows_per_range,
    run_with_spark,
    split_by_rows,
    starts_of_sorted,
)
from crannog.engine.columnar.tasks import SortedFile, Source, WithoutKeys
from crannog.engine.duckdb.engine import FILE_COLUMN
from crannog.engine.maintenance import delete_audit
from crannog.engine.maintenance.job import Job
from crannog.engine.open_table import OpenTable, check_files, tombstones_of
from crannog.engine.snapshot import Snapshot
from crannog.errors import SnapshotGone, Unavailable
from crannog.protocol.staged_files import DELETE, UPSERT
from crannog.storage import failpoints

log = logging.getLogger("crannog.engine")

_MAX_ATTEMPTS = 10


def fold(table: OpenTable, *, progress: Progress | None = None, cancellation: Cancellation | None = None) -> FoldReport:
    """Fold everything staged when the call starts, exactly once even if others fold too; writers continue meanwhile."""
    target: int | None = None
    for _ in range(_MAX_ATTEMPTS):
        snapshot = table.snapshot()
        if target is None:
            target = snapshot.tail.end
        if snapshot.base.folded >= target:
            return nothing_folded(snapshot.base)
        with Job(table, "FOLD", snapshot.base, progress=progress, cancellation=cancellation) as job:
            try:
                return _fold_once(table, snapshot, job)
            except (RunAgain, AlreadyFolded, SnapshotGone):
                continue
    check_files(table)
    raise Unavailable(
        f"cannot fold {table.name}: other jobs changed the table {_MAX_ATTEMPTS} times meanwhile; try again"
    )


def nothing_folded(base: Base) -> FoldReport:
    """Return the report of a fold that had nothing to do."""
    rows, files, size = base.rows, len(base.files), base.bytes
    return FoldReport(
        folded_to=base.folded,
        base_rows=rows,
        final_rows=rows,
        files_before=files,
        files_after=files,
        bytes_before=size,
        bytes_after=size,
    )


def _fold_once(table: OpenTable, snapshot: Snapshot, job: Job) -> FoldReport:
    base, tail = snapshot.base, snapshot.tail
    job.step("look up changed keys", 0.05)
    touched: list[DataFile] = []
    hidden = 0
    tombstones: list[dict[str, Any]] = []
    if snapshot.key:
        masks = table.masks(snapshot)
        hidden = masks.num_rows
        touched = _files_of(snapshot, masks[FILE_COLUMN].unique().to_pylist())
        changes = snapshot.last_changes
        upserts = pc.sum(pc.equal(changes["_op"], UPSERT)).as_py() or 0
        tombstones = tombstones_of(table, snapshot)
    else:
        changes = tail.rows
        upserts = changes.num_rows
    expected = sum(file.rows for file in touched) - hidden + upserts
    added: list[DataFile] = []
    if expected:
        job.step("write files with Spark", 0.15)
        written_paths = _write(table, snapshot, job, changes, touched)
        job.step("verify", 0.8)
        added = verify_files(job.storage, table.folder, written_paths, base, rows=expected)
    # The ledger goes first: a retry that finds the new version must find its batch ids too.
    table.log.ledger.add(job.id, {record.batch_id: record.position for record in tail.records})
    delete_audit.record(table, job.id, tombstones)
    failpoints.reached("rewrite.ledger_written")
    job.step("commit", 0.95)
    if table.before_fold is not None:
        table.before_fold(snapshot)
    version = job.commit(_rewrite(snapshot, job, touched, added, expected))
    written = sum(file.size for file in added)
    staged_bytes = max(tail.bytes, 1)
    after_commit(table, version)
    table.log.refresh()  # releases the folded rows
    table.writer.folded_per_s = tail.row_count / max(job.seconds, 0.001)
    return FoldReport(
        folded_to=tail.end,
        version=version,
        changes=len(tail.records),
        staged_rows=tail.row_count,
        base_rows=base.rows,
        final_rows=base.rows - hidden + upserts,
        tombstones_applied=len(tombstones),
        rows_dropped_by_tombstones=sum(entry["outcome"] == "hidden" for entry in tombstones),
        files_before=len(base.files),
        files_after=len(base.files) - len(touched) + len(added),
        files_rewritten=len(touched),
        bytes_before=base.bytes,
        bytes_after=base.bytes - sum(file.size for file in touched) + written,
        bytes_written=written,
        write_amplification=round(written / staged_bytes, 2),
        seconds=job.seconds,
    )


def _rewrite(snapshot: Snapshot, job: Job, removes: list[DataFile], adds: list[DataFile], rows: int) -> Rewrite:
    tail = snapshot.tail
    return Rewrite(
        job.id,
        "FOLD",
        snapshot.base,
        removes=removes,
        adds=adds,
        fold_to=tail.end,
        parameters={"sequences": [tail.after + 1, tail.end]},
        metrics={"numAddedFiles": len(adds), "numRemovedFiles": len(removes), "numOutputRows": rows},
    )


def _write(table: OpenTable, snapshot: Snapshot, job: Job, changes: pa.Table, touched: list[DataFile]) -> list[str]:
    base = snapshot.base
    if snapshot.key:
        changes_to_keep = changes.filter(pc.not_equal(changes["_op"], DELETE))
        upserts = changes_to_keep.select(base.schema.names)
        outputs = _plan_merge(table, base, job, upserts, changes.select(list(snapshot.key)), touched)
    else:
        outputs = _plan_append(table, base, job, changes.select(base.schema.names))
    with job.spark() as session:
        return run_with_spark(session, job.storage, base, outputs)


def _plan_append(table: OpenTable, base: Base, job: Job, rows: pa.Table) -> list[SortedFile]:
    """Plan the files of new rows: one for each partition, more where there are many rows."""
    folder = f"{table.folder}/{job.folder}/0"
    most = rows_per_file(rows.nbytes, rows.num_rows)
    return [
        SortedFile(folder, (Source((job.write_input(part.slice(start, most)),)),))
        for part in by_partition(rows, base.partition_by)
        for start in range(0, part.num_rows, most)
    ]


def _plan_merge(
    table: OpenTable, base: Base, job: Job, upserts: pa.Table, keys: pa.Table, touched: Sequence[DataFile]
) -> list[SortedFile]:
    """Plan the files that replace those with changed keys."""
    paths = tuple(f"{table.folder}/{file.path}" for file in touched)
    upserts = sorted_by(upserts, base.cluster_by)
    sources = [Source(paths, WithoutKeys(job.write_input(keys)))] if paths else []
    starts = group_starts(job.storage, paths, base.cluster_by)
    if upserts.num_rows:
        sources.append(Source((job.write_input(upserts),)))
        starts += starts_of_sorted(upserts, base.cluster_by)
    size = sum(file.size for file in touched) + job.input_bytes
    rows = sum(file.rows for file in touched) + upserts.num_rows
    files = max(1, math.ceil(size / table.file_bytes(base)))
    ranges = split_by_rows(starts, rows_per_range(size, rows, files))
    return [SortedFile(f"{table.folder}/{job.folder}/0", tuple(sources), part) for part in in_files(ranges, files)]


def _files_of(snapshot: Snapshot, local_paths: list[str]) -> list[DataFile]:
    """Return the base files of the paths that DuckDB reported."""
    files = list(snapshot.base.files.values())
    by_path = dict(zip(snapshot.local_paths([file.path for file in files]), files, strict=True))
    return [by_path[path] for path in sorted(local_paths)]


def after_commit(table: OpenTable, version: int) -> None:
    """Write a checkpoint when one is due; a failure only makes later opens slower."""
    if version % 5 == 0:
        table.warehouse.in_background(checkpoint_quietly, table)


def checkpoint_quietly(table: OpenTable) -> None:
    from crannog.delta.log import DeltaLog
    from crannog.errors import CrannogError

    try:
        DeltaLog(table.warehouse.storage, table.folder).checkpoint()
    except (CrannogError, OSError) as error:
        log.warning("cannot write a checkpoint of %s, the next commit tries again: %s", table.name, error)
