"""Expire: drop the rows before a date; whole files by their partition or statistics, the rest by one verified rewrite."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from crannog.engine.local import FILE_COLUMN, quoted
from crannog.engine.maintenance.fold import after_commit, fold
from crannog.engine.maintenance.job import Job, part_of
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read
from crannog.errors import CallerError, SnapshotGone, Unavailable
from crannog.lake.base import DataFile
from crannog.lake.rewrite import Rewrite, RunAgain, verified_files
from crannog.verbs.cancellation import Cancellation
from crannog.verbs.reports import ExpireReport, Progress

_TRIES = 10


def expire(
    table: OpenTable,
    before: dt.date,
    *,
    column: str | None = None,
    progress: Progress | None = None,
    cancellation: Cancellation | None = None,
) -> ExpireReport:
    """Drop the rows whose `column` (by default the date partition, else the time of writing) is before a date, UTC."""
    if isinstance(before, dt.datetime) or not isinstance(before, dt.date):
        raise CallerError(f"expire takes a date, like datetime.date(2026, 1, 31), got {before!r}")
    fold(table, progress=part_of(progress, 0, 0.5), cancellation=cancellation)
    for _ in range(_TRIES):
        snapshot = table.snapshot()
        chosen = _column(table, snapshot, column)
        with Job(table, "EXPIRE", snapshot.base, progress=part_of(progress, 0.5, 1), cancellation=cancellation) as job:
            try:
                return _expire_once(table, snapshot, chosen, before, job)
            except (RunAgain, SnapshotGone):
                continue
    raise Unavailable(f"cannot expire {table.name}: other jobs changed the table {_TRIES} times meanwhile; try again")


def _column(table: OpenTable, snapshot: Snapshot, asked: str | None) -> pa.Field:
    schema = snapshot.base.schema
    dates = [name for name in snapshot.base.partition_by if pa.types.is_date(schema.field(name).type)]
    name = asked or (dates[0] if dates else "_created_at")
    if name not in schema.names:
        raise CallerError(f"cannot expire {table.name} by {name}: there is no such column")
    field = schema.field(name)
    if not (pa.types.is_date(field.type) or pa.types.is_timestamp(field.type)):
        raise CallerError(f"cannot expire {table.name} by {name}: it is {field.type}, not a date or a time")
    return field


def _expire_once(table: OpenTable, snapshot: Snapshot, column: pa.Field, before: dt.date, job: Job) -> ExpireReport:
    base = snapshot.base
    job.step("count", 0.1)
    counts = _rows_before(table, snapshot, column, before)
    whole = [file for file in base.files.values() if counts.get(file.path, 0) == file.rows]
    mixed = [file for file in base.files.values() if 0 < counts.get(file.path, 0) < file.rows]
    dropped = sum(counts.values())
    added: list[DataFile] = []
    version = None
    if mixed:
        job.step("write files with Spark", 0.3)
        _write(table, snapshot, job, column, before, mixed)
        job.step("verify", 0.85)
        kept = sum(file.rows - counts[file.path] for file in mixed)
        added = verified_files(job.storage, table.folder, job.folder, base, rows=kept)
    if whole or mixed:
        job.step("commit", 0.95)
        rewrite = Rewrite(
            job.id,
            "EXPIRE",
            base,
            removes=[*whole, *mixed],
            adds=added,
            parameters={"column": column.name, "before": before.isoformat()},
            metrics={"numRemovedFiles": len(whole) + len(mixed), "numAddedFiles": len(added), "numDeletedRows": dropped},
        )
        version = job.commit(rewrite)
        after_commit(table, version)
    removed = sum(file.size for file in (*whole, *mixed))
    return ExpireReport(
        column=column.name,
        before=before,
        rows_dropped=dropped,
        rows_kept=base.rows - dropped,
        files_dropped=len(whole),
        files_rewritten=len(mixed),
        files_before=len(base.files),
        files_after=len(base.files) - len(whole) - len(mixed) + len(added),
        bytes_before=base.bytes,
        bytes_after=base.bytes - removed + sum(file.size for file in added),
        seconds=job.seconds,
        version=version,
    )


def _write(table: OpenTable, snapshot: Snapshot, job: Job, column: pa.Field, before: dt.date, mixed: list[DataFile]) -> None:
    from pyspark.sql import functions as f

    from crannog.lake.spark_files import portions_of_files, read_base, write_files

    base = snapshot.base
    with job.spark() as session:
        rows = read_base(session, job.storage, table.folder, base, [file.path for file in mixed])
        kept = rows.where(f.col(f"`{column.name}`").isNull() | (f.col(f"`{column.name}`") >= f.lit(_limit(column, before))))
        portions = portions_of_files(mixed, table.file_bytes(base))
        write_files(
            kept, job.storage, f"{table.folder}/{job.folder}", base, portions=portions, sort_by=base.cluster_by, by_range=True
        )


def _limit(column: pa.Field, before: dt.date) -> dt.date | dt.datetime:
    if pa.types.is_date(column.type):
        return before
    return dt.datetime(before.year, before.month, before.day, tzinfo=dt.UTC)


def _rows_before(table: OpenTable, snapshot: Snapshot, column: pa.Field, before: dt.date) -> dict[str, int]:
    """Count the rows to drop, file by file, without Spark: what Spark writes is checked against it."""
    base = snapshot.base
    if not base.files:
        return {}
    if column.name in base.partition_by:
        return {file.path: file.rows for file in base.files.values() if (day := file.partition[column.name]) is not None and day < before}
    files = list(base.files)
    paths = snapshot.local_paths(files)
    engine = table.warehouse.local
    limit = pa.table({"before": pa.array([_limit(column, before)], column.type)})
    with engine.cursor({"expiry": limit}) as cursor:
        counted = read(
            cursor,
            f"SELECT {FILE_COLUMN} AS file, count(*) AS n FROM {engine.scan(paths, pa.schema([column]), positions=True)} t"
            f" WHERE t.{quoted(column.name)} < (SELECT before FROM expiry) GROUP BY {FILE_COLUMN}",
        )
    by_path = dict(zip(paths, files, strict=True))
    return {by_path[row["file"]]: row["n"] for row in counted.to_pylist()}


