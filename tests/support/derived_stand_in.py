"""A stand-in for Spark in the jobs of the trace store: pyarrow writes the files, DuckDB works out what is derived.

The queries are the very ones that Spark gets; what is read, verified and committed is the real code.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from crannog.engine import spark_files
from crannog.engine.maintenance import expire as expire_module
from crannog.traces.derived import derive as derive_module
from crannog.traces.derived.engines import duckdb_query_engine
from crannog.traces.derived.missing_rows import MissingRows, missing_rows_sql
from forcing import ArrowFrame, stand_in_for_spark


def stand_in_for_all(patch: pytest.MonkeyPatch) -> None:
    """Let no job of the trace store need Spark."""
    stand_in_for_spark(patch)
    patch.setattr(spark_files, "write_files", _write_files)
    patch.setattr(spark_files, "newest_of_each", _newest_of_each)
    patch.setattr(expire_module._Before, "remaining", _kept)
    patch.setattr(derive_module._TableDerivation, "_write", _write_derived)
    patch.setattr(
        derive_module, "spark_query_engine", lambda table, schema, session: duckdb_query_engine(table, table.snapshot())
    )


def _write_files(rows: ArrowFrame, storage: Any, folder: str, _base: Any, *, sort_by: Sequence[str], **_: Any) -> None:
    place = Path(storage.uri(f"{folder}/0"))
    place.mkdir(parents=True)
    for day in rows.table["partition_date"].unique().to_pylist():
        part = rows.table.filter(pc.equal(rows.table["partition_date"], pa.scalar(day, pa.date32())))
        part = part.take(pc.sort_indices(part, [(name, "ascending") for name in sort_by]))
        pq.write_table(
            part, place / f"part-00000-{uuid.uuid4()}-c000.zstd.parquet", compression="zstd", store_schema=False
        )


def _newest_of_each(rows: ArrowFrame, distinct_by: Sequence[str], newest_by: Sequence[str]) -> ArrowFrame:
    order = pc.sort_indices(rows.table.select(list(newest_by)), [(name, "descending") for name in newest_by])
    ordered = rows.table.take(order)
    seen: set[tuple[Any, ...]] = set()
    first = []
    for entry in ordered.select(list(distinct_by)).to_pylist():
        key = tuple(entry.values())
        first.append(key not in seen)
        seen.add(key)
    return ArrowFrame(ordered.filter(pa.array(first, pa.bool_())))


def _kept(self: Any, rows: ArrowFrame, _job: Any, _session: Any) -> ArrowFrame:
    table = rows.table
    goes = pc.less(table[self.column.name], pa.scalar(self._limit, self.column.type))
    for chosen, is_kept in ((self.only, False), (self.besides, True)):
        for name, values in chosen.items():
            found = pc.is_in(table[name], pa.array(list(values), table.schema.field(name).type))
            goes = pc.and_(goes, pc.invert(found) if is_kept else found)
    return ArrowFrame(table.filter(pc.invert(goes)))


def _write_derived(self: Any, engine: Any, missing: MissingRows, crowded: Sequence[Any]) -> None:
    query = missing_rows_sql(engine, self.derived, missing)
    if crowded:
        listed = ", ".join(name for name in self.derived.columns.names if name != "spans_version")
        paths = [self.job.storage.uri(f"{self.table.folder}/{file.path}") for file in crowded]
        old = f"SELECT {listed} FROM {self.table.warehouse.duckdb.scan(paths, self.base.schema)}"
        query = self.derived.merged_sql(f"(SELECT {listed} FROM ({query}) n UNION ALL {old})")
    rows = engine.query(query)
    count = rows.num_rows
    more = {
        "spans_version": pa.array([self.changes.end] * count, pa.int64()),
        "_created_at": pa.array([dt.datetime.now(dt.UTC)] * count, pa.timestamp("us", "UTC")),
        "_batch_id": pa.array([f"derive-{self.changes.end}-{self.job.id}"] * count, pa.string()),
    }
    schema = spark_files.all_nullable(self.base.schema)
    columns = [(more[field.name] if field.name in more else rows[field.name]).cast(field.type) for field in schema]
    table = pa.table(columns, names=schema.names)
    _write_files(
        ArrowFrame(table),
        self.job.storage,
        f"{self.table.folder}/{self.job.folder}",
        self.base,
        sort_by=self.base.cluster_by,
    )
