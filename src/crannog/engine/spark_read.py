"""A snapshot as a Spark DataFrame: the same rows that DuckDB sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.engine.spark_files import read_base, spark_schema, without_keys

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def to_spark(
    table: OpenTable,
    snapshot: Snapshot,
    session: SparkSession,
    *,
    raw: bool = False,
    files: Sequence[str] | None = None,
) -> DataFrame:
    """Return the rows of a snapshot; `raw` also shows deleted rows until they are folded.

    `files` limits the files of the base; all if not given. The base is read from its files, the staged tail is passed
    as Arrow. Hold `table.reading(snapshot)` while the DataFrame is in use if that may take longer than the retention.
    """
    base = snapshot.base
    needed = base.files if files is None else files
    rows = read_base(session, table.warehouse.storage, table.folder, base, needed)
    if snapshot.key and needed and snapshot.tail.segments:
        keys = snapshot.changed_keys(raw=raw)
        if keys.num_rows:
            rows = without_keys(rows, _to_dataframe(session, keys), snapshot.key)
    tail = snapshot.visible_tail(raw=raw)
    if tail.num_rows:
        # By position: by name, Spark would confuse columns that differ only by case, which old tables may have.
        rows = rows.union(_to_dataframe(session, tail.select(base.schema.names)))
    return rows


def _to_dataframe(session: SparkSession, rows: pa.Table) -> DataFrame:
    return session.createDataFrame(rows, spark_schema(rows.schema))
