"""Large results of Spark: Spark writes them as files, which are read in batches and then deleted."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from crannog.engine import result_files
from crannog.engine.sql.result_types import in_schema, plain_schema
from crannog.engine.warehouse import Warehouse
from crannog.errors import CrannogError, SnapshotGone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BATCH = 50_000


@contextmanager
def spilled(
    warehouse: Warehouse, rows: DataFrame, query_id: str, tables: Sequence[str]
) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Yield a result that reads `tables` as batches, in order. Raises SnapshotGone if an erasure deletes it."""
    storage = warehouse.storage
    name = uuid.uuid4().hex
    folder = f"{result_files.FOLDER}/{name}"
    # The types as they arrive, from a result without rows.
    schema = plain_schema(rows.limit(0).toArrow().schema)
    result_files.remove_abandoned(storage)
    with result_files.lease_on(storage, name, query_id, tables):
        try:
            # Columns are numbered: names may repeat in a result, but not in a file.
            numbered = rows.toDF(*(f"c{place}" for place in range(len(schema))))
            numbered.write.mode("overwrite").parquet(storage.spark_uri(f"{folder}/rows"))
            if not result_files.is_leased(storage, name):
                raise _erased()
            parts = sorted(part for part in storage.names(f"{folder}/rows") if part.endswith(".parquet"))
            yield schema, _batches(warehouse, name, [f"{folder}/rows/{part}" for part in parts], schema)
        finally:
            with suppress(CrannogError):
                storage.delete_folder(folder)


def _erased() -> SnapshotGone:
    return SnapshotGone("the rows that this query read were erased before its result was sent; run it again")


def _batches(warehouse: Warehouse, name: str, paths: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    storage = warehouse.storage
    for path in paths:
        try:
            file = storage.open(path)
        except FileNotFoundError:
            raise _erased() from None
        with file:
            for batch in pq.ParquetFile(pa.PythonFile(file, mode="r")).iter_batches(_BATCH):
                # An open file stays readable after its deletion.
                if not result_files.is_leased(storage, name):
                    raise _erased()
                if batch.num_rows:
                    yield in_schema(batch, schema)
