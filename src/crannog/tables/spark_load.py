"""Loading files into an embedded lake: as any lake does, and large files into tables without a key through Spark.

Spark does not read the files themselves: they are read by the same rules as small ones, on the machine they are on,
and handed to Spark as Parquet in the warehouse, which a cluster reaches too. Spark writes the table's files from them,
we verify the files, and one log entry commits the whole load. The entry names the batches, so a load of
the same file, at the same time or after a crash, finds them there.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from crannog.api.arguments import new_batch_id
from crannog.api.reports import Cancellation, LoadReport
from crannog.delta.log import Base, DeltaLog
from crannog.delta.rewrite import Rewrite, RunAgain, verify_files
from crannog.delta.schemas import DATE_COLUMN, all_nullable
from crannog.engine.maintenance.fold import after_commit
from crannog.engine.maintenance.job import Job
from crannog.engine.open_table import OpenTable
from crannog.engine.owned_tables import check_create
from crannog.errors import NotFound
from crannog.names import TableName
from crannog.protocol.staged_files import BATCH_ID, CREATED_AT, BatchPosition
from crannog.tables.load import load
from crannog.tables.load_options import LoadOptions
from crannog.tables.load_write import Batches, Bulk

if TYPE_CHECKING:
    from crannog.api.lake import Lake, LoadArguments
    from crannog.tables.operations import TableOperations

_LOAD = "LOAD"
_US_PER_DAY = 86_400_000_000


class _LoadedMeanwhile(RunAgain):
    """Another process committed the same file since the log was last looked at."""


def load_files(
    lake: Lake,
    operations: TableOperations,
    files: Sequence[str] | str,
    name: str,
    options: LoadArguments,
) -> LoadReport:
    """Load files into a table of an embedded lake."""
    progress, cancellation = options.pop("progress", None), options.pop("cancellation", None)
    table_name = TableName.parse(name)
    try:
        operations.tables.open(table_name)
        operations.check_change(table_name, "append")
    except NotFound:
        check_create(table_name)

    def keep(source: str, batches: Batches) -> tuple[int, int, int]:
        return _SparkLoad(operations.tables.open(table_name), source, cancellation).keep(batches)

    bulk = Bulk(operations.warehouse.settings.load_spark_bytes, keep)
    return load(
        lake, files, name, LoadOptions.checked(**options), bulk=bulk, progress=progress, cancellation=cancellation
    )


class _SparkLoad:
    """One file, kept whole by one commit."""

    def __init__(self, table: OpenTable, source: str, cancellation: Cancellation | None) -> None:
        self._table, self._source, self._cancellation = table, source, cancellation
        self._paths: list[str] = []
        self._input_bytes = 0
        self._portions: dict[tuple[Any, ...], int] = {}
        self._ids: list[str] = []

    def keep(self, batches: Batches) -> tuple[int, int, int]:
        """Keep the batches that were not kept before; return the rows kept, the rows found kept, and the batches."""
        base = self._table.log.refresh()[0]
        known = self._known_batches()
        rows = duplicate = count = 0
        with Job(self._table, _LOAD, base, cancellation=self._cancellation) as job:
            for batch_id, batch in batches:
                count += 1
                if batch_id in known:
                    duplicate += batch.num_rows
                    continue
                self._hand_over(job, base, batch_id, batch)
                rows += batch.num_rows
            if rows:
                try:
                    self._commit(job, base, rows)
                except _LoadedMeanwhile:
                    rows, duplicate = 0, duplicate + rows
        return rows, duplicate, count

    def _known_batches(self) -> set[str]:
        log = self._table.log
        known = {record.batch_id for record in log.refresh()[1].records if record.batch_id.startswith(self._source)}
        committed = {batch for entry in self._history() for batch in self._batches_of(entry)}
        # A loader may have died between its commit and the ledger: what it kept must be found there as well.
        missing = [batch for batch in committed if batch not in log.ledger.batches]
        if missing:
            self._remember(new_batch_id(), missing)
        return known | committed | {batch for batch in self._numbered() if batch in log.ledger.batches}

    def _numbered(self) -> list[str]:
        # Batches are numbered without gaps; the ledger is asked until it knows no more.
        found: list[str] = []
        while (batch := f"{self._source}-{len(found):06}") in self._table.log.ledger.batches:
            found.append(batch)
        return found

    def _batches_of(self, entry: Mapping[str, Any]) -> list[str]:
        if entry.get("operation") != _LOAD:
            return []
        parameters = {name: json.loads(value) for name, value in (entry.get("operationParameters") or {}).items()}
        if parameters.get("source") != self._source:
            return []
        ranges = parameters["batches"]
        return [f"{self._source}-{number:06}" for first, last in ranges for number in range(first, last + 1)]

    def _hand_over(self, job: Job, base: Base, batch_id: str, batch: pa.Table) -> None:
        """Put a batch, with the system's columns, where Spark finds it; it goes when the job ends."""
        now_us, count = time.time_ns() // 1000, batch.num_rows
        own = {
            CREATED_AT: pa.repeat(pa.scalar(now_us, pa.int64()), count).cast(base.schema.field(CREATED_AT).type),
            BATCH_ID: pa.repeat(pa.scalar(batch_id), count),
            DATE_COLUMN: pa.repeat(pa.scalar(now_us // _US_PER_DAY, pa.int32()), count).cast(pa.date32()),
        }
        columns = [own[name] if name in own else batch.column(name) for name in base.schema.names]
        rows = pa.table(columns, schema=all_nullable(base.schema))
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="lz4", store_schema=False)
        data = sink.getvalue().to_pybytes()
        folder = f"{self._table.log.own_folder}/jobs/{job.id}"
        if not self._paths:
            job.storage.make_folder(folder)
        path = f"{folder}/{len(self._paths):06}.parquet"
        job.storage.put_if_absent(path, data)
        self._paths.append(path)
        self._ids.append(batch_id)
        self._input_bytes += len(data)
        if base.partition_by:
            names = list(base.partition_by)
            for row in rows.select(names).group_by(names).aggregate([([], "count_all")]).to_pylist():
                place = tuple(row[name] for name in names)
                self._portions[place] = self._portions.get(place, 0) + row["count_all"]

    def _commit(self, job: Job, base: Base, rows: int) -> None:
        from crannog.engine.spark_files import Portion, read_files, write_files

        table = self._table
        target = table.file_bytes(base)
        size_of_row = self._input_bytes / rows
        portions = [
            Portion(dict(zip(base.partition_by, place, strict=True)), max(1, math.ceil(count * size_of_row / target)))
            for place, count in self._portions.items()
        ] or [Portion({}, max(1, math.ceil(self._input_bytes / target)))]
        job.step("write files with Spark", 0.6)
        with job.spark() as session:
            given = read_files(session, job.storage, self._paths, base.schema)
            folder = f"{table.folder}/{job.folder}"
            written = write_files(given, job.storage, folder, base, portions=portions, sort_by=base.cluster_by)
        job.step("verify", 0.9)
        added = verify_files(job.storage, table.folder, written, base, rows=rows)
        job.step("commit", 0.98)
        rewrite = Rewrite(
            job.id,
            _LOAD,
            base,
            removes=(),
            adds=added,
            parameters={
                "source": self._source,
                "batches": _ranges([int(batch.rpartition("-")[2]) for batch in self._ids]),
            },
            metrics={"numAddedFiles": len(added), "numRemovedFiles": 0, "numOutputRows": rows},
        )
        version = job.commit(rewrite, head=lambda: self._head(job, base))
        self._remember(job.id, self._ids)
        table.log.refresh()
        after_commit(table, version)

    def _history(self, limit: int | None = None) -> list[dict[str, Any]]:
        return DeltaLog(self._table.warehouse.storage, self._table.folder).history(limit)

    def _head(self, job: Job, base: Base) -> Base:
        """Return the head, unless somebody else committed this file after `base`: the commit goes right behind what was looked at."""
        head = self._table.log.head()
        if head.version > base.version:
            for entry in self._history(head.version - base.version):
                if entry.get("crannogJob") != job.id and self._batches_of(entry):
                    raise _LoadedMeanwhile(f"{self._source} was loaded by another process")
        return head

    def _remember(self, job: str, batches: Sequence[str]) -> None:
        sequence = self._table.log.head().folded
        self._table.log.ledger.add(job, {batch: BatchPosition(sequence, job) for batch in batches})


def _ranges(numbers: Sequence[int]) -> list[list[int]]:
    """Return ascending numbers as ranges, first and last."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found
