"""A table's files and snapshots as Spark DataFrames, and files that Spark's own plan writes.

Nothing here commits. New files go under `data/<job>/`, and no version names them until a rewrite has verified them.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crannog.delta.log import Base, DataFile
from crannog.delta.schemas import all_nullable, to_delta_json
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.storage.interface import Storage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PORTION = "_portion"


def spark_schema(schema: pa.Schema) -> StructType:
    """Return a schema as Spark's, with every column nullable, as it is in files."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(to_delta_json(all_nullable(schema))))


def read_files(session: SparkSession, storage: Storage, paths: Iterable[str], schema: pa.Schema) -> DataFrame:
    """Return the rows of Parquet files in the columns of `schema`; columns missing in a file are null."""
    shape = spark_schema(schema)
    uris = [storage.spark_uri(path) for path in paths]
    if not uris:
        return session.createDataFrame([], shape)
    return session.read.schema(shape).parquet(*uris).select(*[_quoted(name) for name in schema.names])


def read_base(session: SparkSession, storage: Storage, folder: str, base: Base, paths: Iterable[str]) -> DataFrame:
    """Return the rows of some files of the base."""
    return read_files(session, storage, (f"{folder}/{path}" for path in paths), base.schema)


def without_keys(rows: DataFrame, keys: DataFrame, key: Sequence[str]) -> DataFrame:
    """Drop the rows whose key is in `keys`; the keys are passed as a joined table, never as literals."""
    from pyspark.sql import functions as f

    return rows.join(f.broadcast(keys.select(*[_quoted(name) for name in key])), list(key), "left_anti").select(
        *[_quoted(name) for name in rows.columns]
    )


def newest_of_each(rows: DataFrame, distinct_by: Sequence[str], newest_by: Sequence[str]) -> DataFrame:
    """Keep one row for each value of `distinct_by`: the highest by the columns `newest_by`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    newest_first = [f.col(_quoted(name)).desc() for name in newest_by]
    place = f.row_number().over(Window.partitionBy(*map(_quoted, distinct_by)).orderBy(*newest_first))
    kept = rows.withColumn("_place", place).where(f.col("_place") == 1)
    return kept.select(*[_quoted(name) for name in rows.columns])


@dataclass(frozen=True, slots=True)
class Portion:
    """The rows of one partition to write, and the number of files for them."""

    values: Mapping[str, Any]
    files: int


def write_files(
    rows: DataFrame,
    storage: Storage,
    folder: str,
    base: Base,
    *,
    portions: Sequence[Portion],
    sort_by: Sequence[str],
    by_range: bool = False,
) -> list[str]:
    """Write rows as Parquet files in the table's layout and return their paths. Each is sorted and in one partition.

    `by_range` gives each of a portion's files its own range of the sort columns, at the cost of a shuffle. The
    files keep their partition columns and are in no folders named after values, so that no user's value ends up
    in a path, and every reader of the files sees every column.
    """
    options = {"compression": base.parquet_options.get("parquet.compression", "zstd"), **base.parquet_options}
    place = storage.spark_uri(folder)

    def write(part: DataFrame, name: str) -> None:
        part.write.mode("error").options(**options).parquet(f"{place}/{name}")

    order = [_sort_term(name, base.cluster_units.get(name)) for name in sort_by]
    if not base.partition_by:
        [portion] = portions
        write(_in_files(rows, portion.files, order, by_range), "0")
        return _files_in(storage, folder)
    single = [portion for portion in portions if portion.files == 1]
    if single:
        write(_one_file_each(rows, single, base.partition_by).sortWithinPartitions(*order), "0")
    for number, portion in enumerate((portion for portion in portions if portion.files > 1), start=1):
        write(_in_files(rows.where(_is_in(portion)), portion.files, order, by_range=True), str(number))
    return _files_in(storage, folder)


def _files_in(storage: Storage, folder: str) -> list[str]:
    paths = (file.path for file in storage.walk(folder))
    return [path for path in paths if not path.rpartition("/")[2].startswith((".", "_"))]


def _sort_term(name: str, unit: int | None) -> Column:
    from pyspark.sql import functions as f

    return f.expr(_quoted(name) if unit is None else f"{_quoted(name)} DIV {unit}")


def _in_files(rows: DataFrame, files: int, order: list[Column], by_range: bool) -> DataFrame:
    rows = rows.repartitionByRange(files, *order) if by_range and files > 1 else rows.coalesce(files)
    return rows.sortWithinPartitions(*order)


def _one_file_each(rows: DataFrame, portions: Sequence[Portion], partition_by: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as f
    from pyspark.sql.types import IntegerType, StructField, StructType

    session = rows.sparkSession
    shape = StructType([rows.schema[name] for name in partition_by] + [StructField(_PORTION, IntegerType())])
    listed = [(*(portion.values[name] for name in partition_by), number) for number, portion in enumerate(portions)]
    numbers = f.broadcast(session.createDataFrame(listed, shape).alias("n"))
    match = [f.col(f"r.`{name}`").eqNullSafe(f.col(f"n.`{name}`")) for name in partition_by]
    joined = rows.alias("r").join(numbers, match).select("r.*", f"n.{_PORTION}")
    return joined.repartitionById(len(portions), _PORTION).drop(_PORTION)


def _is_in(portion: Portion) -> Column:
    from pyspark.sql import functions as f

    conditions = [f.col(_quoted(name)).eqNullSafe(f.lit(value)) for name, value in portion.values.items()]
    return functools.reduce(lambda one, other: one & other, conditions)


def portions_of_files(files: Iterable[DataFile], target_bytes: int) -> list[Portion]:
    """Plan the output of rewriting `files`: one portion per partition, with the number of files that its bytes fill."""
    sizes: dict[tuple[tuple[str, Any], ...], int] = {}
    for file in files:
        place = tuple(file.partition.items())
        sizes[place] = sizes.get(place, 0) + file.size
    return [Portion(dict(place), max(1, math.ceil(size / target_bytes))) for place, size in sizes.items()]


def portions_of_rows(
    rows: pa.Table, partition_by: Sequence[str], *, total_bytes: int, bytes_per_file: int, least_files: int = 1
) -> list[Portion]:
    """Plan the output of rows in memory that take about `total_bytes` as files."""
    if not partition_by:
        return [Portion({}, max(1, least_files, math.ceil(total_bytes / bytes_per_file)))]
    size_of_row = total_bytes / max(rows.num_rows, 1)
    counted = rows.select(list(partition_by)).group_by(list(partition_by)).aggregate([([], "count_all")])
    return [
        Portion(
            {name: row[name] for name in partition_by},
            max(1, math.ceil(row["count_all"] * size_of_row / bytes_per_file)),
        )
        for row in counted.to_pylist()
    ]


def _quoted(name: str) -> str:
    return f"`{name}`"


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
