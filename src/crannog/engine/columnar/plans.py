"""Which files a job writes, from which rows; and running the plan as Spark tasks. The plans are pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crannog.delta.layout import ROW_GROUP_ROWS
from crannog.delta.log import Base, DataFile
from crannog.delta.schemas import all_nullable
from crannog.engine.columnar.parquet_files import Bound, FileLayout, RowRange, column_statistics, open_parquet
from crannog.engine.columnar.tasks import RowCondition, SortedFile, Source, Task, TaskContext
from crannog.errors import SnapshotGone
from crannog.formats.arrow_memory import use_jemalloc
from crannog.storage.interface import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BYTES_PER_FILE_IN_MEMORY = 384 * 1024**2
_BYTES_PER_RANGE = 16 * 1024**2
_MAX_ROWS_PER_RANGE = 250_000
_GROUPS_IN_MEMORY = 256


@dataclass(frozen=True, slots=True)
class GroupStart:
    """The lowest values of the sort columns in a row group, as far as its statistics tell them, and its rows."""

    values: Bound
    rows: int


def file_layout(base: Base, schema: pa.Schema) -> FileLayout:
    """Return how files in the columns of `schema` are written, from the same properties that Spark's writer reads."""
    options = base.parquet_options
    names = set(schema.names)
    prefix, disabled = "parquet.bloom.filter.enabled#", "parquet.enable.dictionary#"
    blooms = [
        name.removeprefix(prefix) for name, value in options.items() if name.startswith(prefix) and value == "true"
    ]
    level = options.get("parquet.compression.codec.zstd.level")
    return FileLayout(
        schema=all_nullable(schema),
        partition_by=base.partition_by,
        sort_by=base.cluster_by,
        sort_units=base.cluster_units,
        row_group_rows=int(options.get("parquet.block.row.count.limit", ROW_GROUP_ROWS)),
        compression=options.get("parquet.compression", "zstd"),
        compression_level=int(level) if level else None,
        delta_encoded=options.get("parquet.writer.version") == "PARQUET_2_0",
        without_dictionary=frozenset(
            name.removeprefix(disabled)
            for name, value in options.items()
            if name.startswith(disabled) and value == "false"
        )
        & names,
        bloom_fpp={
            name: float(options.get(f"parquet.bloom.filter.fpp#{name}", 0.01)) for name in blooms if name in names
        },
    )


def rows_per_file(memory_bytes: int, rows: int) -> int:
    """Return how many unsorted rows become one file: a task sorts them in memory."""
    return max(ROW_GROUP_ROWS, int(_BYTES_PER_FILE_IN_MEMORY * rows / max(memory_bytes, 1)))


def rows_per_range(file_bytes: int, rows: int, files: int) -> int:
    """Return how many rows of files a task holds in memory at a time; compressed, they take a tenth of the memory."""
    return max(1, min(_MAX_ROWS_PER_RANGE, _BYTES_PER_RANGE * rows // max(file_bytes, 1), math.ceil(rows / files)))


def group_starts(storage: Storage, paths: Iterable[str], sort_by: Sequence[str]) -> list[GroupStart]:
    """Read the statistics of the row groups of some files."""
    found = []
    for path in paths:
        with _missing_files_translated(), open_parquet(storage, path) as parquet:
            for number in range(parquet.num_row_groups):
                group = parquet.metadata.row_group(number)
                found.append(GroupStart(tuple(_lowest(group, sort_by)), group.num_rows))
    return found


def _lowest(group: Any, sort_by: Sequence[str]) -> Iterator[Any]:
    """Yield the lowest values of the sort columns: of a further column only while those before it have one value."""
    for name in sort_by:
        statistics = column_statistics(group, name)
        if (
            statistics is None
            or not statistics.has_min_max
            or statistics.null_count
            or statistics.min != statistics.min
        ):
            return
        yield statistics.min
        if statistics.min != statistics.max:
            return


def starts_of_sorted(rows: pa.Table, sort_by: Sequence[str]) -> list[GroupStart]:
    """Return the same for rows in memory that are sorted, as if they were in small row groups."""
    size = max(1, rows.num_rows // _GROUPS_IN_MEMORY)
    return [
        GroupStart(tuple(rows[name][start].as_py() for name in sort_by), min(size, rows.num_rows - start))
        for start in range(0, rows.num_rows, size)
    ]


def split_by_rows(starts: Iterable[GroupStart], rows_per_range: int) -> list[RowRange]:
    """Split rows into ranges of about `rows_per_range`, at the starts of row groups."""
    ordered = sorted(starts, key=lambda start: start.values)
    bounds: list[Bound] = []
    taken = 0
    for start in ordered:
        if taken >= rows_per_range and start.values and (not bounds or start.values > bounds[-1]):
            bounds.append(start.values)
            taken = 0
        taken += start.rows
    return [RowRange(lower, upper) for lower, upper in zip([None, *bounds], [*bounds, None], strict=True)]


def in_files(ranges: Sequence[RowRange], files: int) -> list[tuple[RowRange, ...]]:
    """Distribute ranges over at most `files` files, in order."""
    size = math.ceil(len(ranges) / max(1, files))
    return [tuple(ranges[start : start + size]) for start in range(0, len(ranges), size)]


def rewritten_files(
    storage: Storage,
    folder: str,
    job_folder: str,
    base: Base,
    files: Iterable[DataFile],
    file_bytes: int,
    condition: RowCondition | None = None,
) -> list[SortedFile]:
    """Plan the files that replace some files of a table, partition by partition, each about `file_bytes` large."""
    partitions: dict[tuple[Any, ...], list[DataFile]] = {}
    for file in files:
        partitions.setdefault(tuple(file.partition.values()), []).append(file)
    planned = []
    for members in partitions.values():
        paths = tuple(f"{folder}/{file.path}" for file in members)
        size, rows = sum(file.size for file in members), sum(file.rows for file in members)
        count = max(1, round(size / file_bytes))
        ranges = split_by_rows(group_starts(storage, paths, base.cluster_by), rows_per_range(size, rows, count))
        sources = (Source(paths, condition),)
        planned += [SortedFile(f"{folder}/{job_folder}/0", sources, part) for part in in_files(ranges, count)]
    return planned


def run_with_spark(
    session: SparkSession, storage: Storage, base: Base, tasks: Sequence[Task], *, schema: pa.Schema | None = None
) -> list[str]:
    """Run each task as one task of Spark; return the paths of the files that they wrote.

    The files have the columns of `schema`, those of the table if it is not given.
    """
    context = TaskContext(storage.uri(""), dict(storage.options), file_layout(base, schema or base.schema))
    planned = list(tasks)

    def run(number: int) -> list[str]:
        use_jemalloc()
        return [file.path for file in planned[number].run(context)]

    for folder in sorted({task.folder for task in planned}):
        storage.make_folder(folder)
    with _missing_files_translated():
        return [path for paths in _in_spark_tasks(session, run, len(planned)) for path in paths]


@contextmanager
def _missing_files_translated() -> Iterator[None]:
    """Raise SnapshotGone if a file was deleted before it was read, here or in a task: a newer version does not need it."""
    try:
        yield
    except Exception as error:
        if isinstance(error, FileNotFoundError) or "FileNotFoundError" in str(error):
            raise SnapshotGone("files of this version were deleted while they were read; run the job again") from error
        raise


def _in_spark_tasks(session: SparkSession, run: Callable[[int], list[str]], count: int) -> list[list[str]]:
    """Call `run` with each number below `count`, each in a task of its own."""
    from pyspark.sql import functions as f

    # Without Arrow between Java and Python, and so without pandas: only a number goes in and names come out.
    call = f.udf(run, "array<string>", useArrow=False).asNondeterministic()
    rows = session.range(0, count, 1, count).select(call(f.col("id")).alias("paths")).collect()
    return [row["paths"] for row in rows]
