"""Large answers of Spark: written as files by Spark itself, read back batch by batch, then deleted."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from crannog.engine.query.conform import in_schema, plain_schema
from crannog.engine.warehouse import Warehouse
from crannog.errors import CrannogError
from crannog.lake.leases import Lease, live_leases

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BATCH = 50_000
_RESULTS, _LEASES = "_crannog/results", "_crannog/leases"


@contextmanager
def spilled(warehouse: Warehouse, rows: DataFrame, query_id: str) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Lend an answer as batches, in its order."""
    storage = warehouse.storage
    name = uuid.uuid4().hex
    folder = f"{_RESULTS}/{name}"
    # The types as they come over, from an answer without rows.
    schema = plain_schema(rows.limit(0).toArrow().schema)
    _sweep(warehouse)
    storage.make_folder(_LEASES)
    with Lease(storage, f"{_LEASES}/result-{name}.json", {"kind": "result", "result": name, "query": query_id}):
        try:
            rows.write.mode("overwrite").parquet(storage.spark_uri(f"{folder}/rows"))
            names = sorted(name for name in storage.names(f"{folder}/rows") if name.endswith(".parquet"))
            yield schema, _batches(warehouse, [f"{folder}/rows/{name}" for name in names], schema)
        finally:
            with suppress(CrannogError):
                storage.delete_folder(folder)


def _sweep(warehouse: Warehouse) -> None:
    """Delete the answers of processes that died while somebody read them."""
    storage = warehouse.storage
    with suppress(CrannogError, FileNotFoundError):
        # The folders first: an answer has its lease before its folder.
        folders = set(storage.folders(_RESULTS))
        for name in folders - {lease.get("result") for lease in live_leases(storage, _LEASES)}:
            storage.delete_folder(f"{_RESULTS}/{name}")


def _batches(warehouse: Warehouse, paths: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with warehouse.storage.open(path) as file:
            for batch in pq.ParquetFile(pa.PythonFile(file, mode="r")).iter_batches(_BATCH):
                if batch.num_rows:
                    yield in_schema(batch, schema)
