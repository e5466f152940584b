"""What one Spark task does: reads rows of some Parquet files, sorts them, and writes files of the table.

This module runs on the workers: it needs pyarrow, DuckDB and a storage, neither Spark nor an open table.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from crannog.engine.columnar.parquet_files import (
    ARROW_SUFFIX,
    FileLayout,
    RowRange,
    WrittenFile,
    by_partition,
    read_arrow_file,
    read_range,
    read_rows,
    with_schema,
    write_sorted,
)
from crannog.storage import scratch_folders
from crannog.storage.interface import Storage, reopen_storage

_QUERY_MEMORY_MB = 1024
Selection = Callable[[pa.Table], pa.Table]


class RowCondition(Protocol):
    """Which rows of a file are taken."""

    def selection(self, storage: Storage, schema: pa.Schema) -> Selection:
        """Return a function that takes the chosen ones of some rows."""


@dataclass(frozen=True, slots=True)
class WithoutKeys:
    """Leaves out rows whose values are in an Arrow file. Keys are never null."""

    path: str

    def selection(self, storage: Storage, schema: pa.Schema) -> Selection:
        found = read_arrow_file(storage, self.path)
        keys = with_schema(found, pa.schema([schema.field(name) for name in found.column_names]))
        return lambda rows: _without_keys(rows, keys)


@dataclass(frozen=True, slots=True)
class NotBefore:
    """Leaves out rows with a date or time before a limit: those with the values of `only`, not those with `besides`."""

    column: str
    limit: dt.date
    only: Mapping[str, Sequence[Any]]
    besides: Mapping[str, Sequence[Any]]

    def selection(self, storage: Storage, schema: pa.Schema) -> Selection:
        def selected(rows: pa.Table) -> pa.Table:
            limit = pa.scalar(self.limit, schema.field(self.column).type)
            goes = pc.fill_null(pc.less(rows[self.column], limit), False)
            for chosen, is_kept in ((self.only, False), (self.besides, True)):
                for name, values in chosen.items():
                    found = pc.is_in(rows[name], pa.array(list(values), schema.field(name).type))
                    goes = pc.and_(goes, pc.invert(found) if is_kept else found)
            return rows.filter(pc.invert(goes))

        return selected


def _without_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    key = keys.column_names
    if len(key) == 1:
        return rows.filter(pc.invert(pc.is_in(rows[key[0]], value_set=keys[key[0]].combine_chunks())))
    # Arrow's join takes no nested columns along, so it joins the keys and the positions of the rows.
    places = rows.select(list(key)).append_column("_place", pa.array(range(rows.num_rows), pa.int64()))
    remaining = places.join(keys, list(key), join_type="left anti", use_threads=False)
    return rows.take(remaining["_place"].combine_chunks())


@dataclass(frozen=True)
class Source:
    """Files to read rows from; all of them unless there is a condition."""

    paths: tuple[str, ...]
    condition: RowCondition | None = None


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What all tasks of a job share: where the warehouse is, and the layout of the table."""

    location: str
    options: Mapping[str, str]
    layout: FileLayout


class Task(Protocol):
    """The work of one Spark task."""

    @property
    def folder(self) -> str:
        """Where its files go."""

    def run(self, context: TaskContext) -> list[WrittenFile]:
        """Write the files that have rows.

        Their names are new each time: Spark may run a task again while its first run, given up as lost, still writes.
        """


@dataclass(frozen=True)
class SortedFile:
    """Writes the rows of some sources as one sorted file.

    Its ranges are in order and are written one after the other, so that only one is in memory.
    """

    folder: str
    sources: tuple[Source, ...]
    ranges: tuple[RowRange, ...] = (RowRange(),)

    def run(self, context: TaskContext) -> list[WrittenFile]:
        storage = reopen_storage(context.location, context.options)
        layout = context.layout
        sources = [
            (source.paths, source.condition.selection(storage, layout.schema) if source.condition else None)
            for source in self.sources
        ]
        parts = (_rows_of_range(storage, sources, layout, each) for each in self.ranges)
        return write_sorted(storage, self.folder, layout, parts, is_whole=len(self.ranges) == 1)


def _rows_of_range(
    storage: Storage, sources: Sequence[tuple[Sequence[str], Selection | None]], layout: FileLayout, within: RowRange
) -> pa.Table:
    found = [layout.schema.empty_table()]
    for paths, selection in sources:
        rows = [read_range(storage, path, layout, within) for path in paths]
        found += rows if selection is None else [selection(pa.concat_tables(rows))]
    return pa.concat_tables(found).combine_chunks()


@dataclass(frozen=True, slots=True)
class Relation:
    """Files that a query reads under a name, in the columns of a schema."""

    name: str
    paths: tuple[str, ...]
    schema: pa.Schema


@dataclass(frozen=True)
class QueryResult:
    """Writes the rows of a query, which DuckDB runs over some files, as one sorted file for each partition."""

    folder: str
    sql: str
    relations: tuple[Relation, ...]

    def run(self, context: TaskContext) -> list[WrittenFile]:
        storage = reopen_storage(context.location, context.options)
        layout = context.layout
        rows = with_schema(_query(storage, self.sql, self.relations), layout.schema)
        parts = by_partition(rows, layout.partition_by)
        return [file for part in parts for file in write_sorted(storage, self.folder, layout, [part], is_whole=True)]


def _query(storage: Storage, sql: str, relations: Sequence[Relation]) -> pa.Table:
    """Return the result of a query. Raises FileNotFoundError if one of its files was deleted."""
    import duckdb  # most tasks need none

    try:
        return _query_result(storage, sql, relations)
    except duckdb.IOException as error:
        gone = [path for relation in relations for path in relation.paths if not storage.exists(path)]
        if not gone:
            raise
        raise FileNotFoundError(f"{gone[0]} was deleted while it was read") from error


def _query_result(storage: Storage, sql: str, relations: Sequence[Relation]) -> pa.Table:
    # Loaded here: most tasks need neither.
    from crannog.engine.duckdb.engine import DuckDBEngine
    from crannog.settings import Settings

    folder = scratch_folders.create("task")
    settings = Settings(cache_bytes=0, local_memory_mb=_QUERY_MEMORY_MB)
    readable = (storage.uri(""), str(folder)) if storage.is_local else (str(folder),)
    with closing(DuckDBEngine(settings, readable, folder)) as engine, engine.cursor() as cursor:
        for relation in relations:
            if not relation.paths:
                cursor.register(relation.name, relation.schema.empty_table())
            elif relation.paths[0].endswith(ARROW_SUFFIX):
                rows = [read_rows(storage, path, relation.schema) for path in relation.paths]
                cursor.register(relation.name, pa.concat_tables(rows))
            else:
                local = [_local_path(storage, path, folder) for path in relation.paths]
                source = engine.scan(local, relation.schema)
                cursor.execute(f"CREATE TEMP VIEW {relation.name} AS SELECT * FROM {source}")
        return cursor.sql(sql).to_arrow_table()


def _local_path(storage: Storage, path: str, folder: Path) -> str:
    if storage.is_local:
        return storage.uri(path)
    copy = folder / f"{uuid.uuid5(uuid.NAMESPACE_URL, path).hex}.parquet"
    if not copy.exists():
        copy.write_bytes(storage.read(path))
    return str(copy)
