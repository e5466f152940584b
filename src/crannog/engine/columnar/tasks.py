"""What one Spark task does: reads rows of some Parquet files, sorts them, and writes files of the table.

This module runs on the workers: it needs pyarrow, DuckDB and a storage, neither Spark nor an open table.
"""

from __future__ import annotations

import datetime as dt
import io
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crannog.storage import scratch_folders
from crannog.storage.interface import Storage, reopen_storage

_QUERY_MEMORY_MB = 1024
Bound = tuple[Any, ...]
"""Values of the first sort columns, at least one."""


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows whose sort columns are at or above `lower` and below `upper`; None is no bound."""

    lower: Bound | None = None
    upper: Bound | None = None


Selection = Callable[[pa.Table], pa.Table]


class RowCondition(Protocol):
    """Which rows of a file are taken."""

    def selection(self, storage: Storage, schema: pa.Schema) -> Selection:
        """Return a function that takes the chosen ones of some rows."""


@dataclass(frozen=True, slots=True)
class WithoutKeys:
    """Leaves out rows whose values are in a file. Keys are never null."""

    path: str

    def selection(self, storage: Storage, schema: pa.Schema) -> Selection:
        with open_parquet(storage, self.path) as parquet:
            columns = parquet.schema_arrow.names
        keys = read_rows(storage, self.path, pa.schema([schema.field(name) for name in columns]))
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


@dataclass(frozen=True)
class Source:
    """Files to read rows from; all of them unless there is a condition."""

    paths: tuple[str, ...]
    condition: RowCondition | None = None


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How the files of a table are written."""

    schema: pa.Schema
    partition_by: tuple[str, ...]
    sort_by: tuple[str, ...]
    row_group_rows: int
    compression: str
    compression_level: int | None
    delta_encoded: bool
    """Whether numbers, times and columns without a dictionary have delta encodings."""
    without_dictionary: frozenset[str]
    bloom_fpp: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What all tasks of a job share: where the warehouse is, and the layout of the table."""

    location: str
    options: Mapping[str, str]
    layout: FileLayout


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a task wrote."""

    path: str
    rows: int


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
        return _write_sorted(storage, self.folder, layout, parts, is_whole=len(self.ranges) == 1)


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
        rows = _with_schema(_query(storage, self.sql, self.relations), layout.schema)
        parts = by_partition(rows, layout.partition_by)
        return [file for part in parts for file in _write_sorted(storage, self.folder, layout, [part], is_whole=True)]


def _query(storage: Storage, sql: str, relations: Sequence[Relation]) -> pa.Table:
    # Loaded here: most tasks need neither.
    from crannog.engine.duckdb.engine import DuckDBEngine
    from crannog.settings import Settings

    folder = scratch_folders.create("task")
    settings = Settings(cache_bytes=0, local_memory_mb=_QUERY_MEMORY_MB)
    readable = (storage.uri(""), str(folder)) if storage.is_local else (str(folder),)
    with closing(DuckDBEngine(settings, readable, folder)) as engine, engine.cursor() as cursor:
        for relation in relations:
            if relation.paths:
                local = [_local_path(storage, path, folder) for path in relation.paths]
                source = engine.scan(local, relation.schema)
                cursor.execute(f"CREATE TEMP VIEW {relation.name} AS SELECT * FROM {source}")
            else:
                cursor.register(relation.name, relation.schema.empty_table())
        return cursor.sql(sql).to_arrow_table()


def _local_path(storage: Storage, path: str, folder: Path) -> str:
    if storage.is_local:
        return storage.uri(path)
    copy = folder / f"{uuid.uuid5(uuid.NAMESPACE_URL, path).hex}.parquet"
    if not copy.exists():
        copy.write_bytes(storage.read(path))
    return str(copy)


def by_partition(rows: pa.Table, partition_by: Sequence[str]) -> list[pa.Table]:
    """Split rows by the values of the partition columns."""
    parts = [rows]
    for name in partition_by:
        parts = [
            part if len(values) == 1 else part.filter(_equals(part[name], value))
            for part in parts
            for values in [part[name].unique()]
            for value in values
        ]
    return parts


def _equals(column: pa.ChunkedArray, value: pa.Scalar) -> pa.ChunkedArray:
    return pc.equal(column, value) if value.is_valid else pc.is_null(column)


def _write_sorted(
    storage: Storage, folder: str, layout: FileLayout, parts: Iterable[pa.Table], *, is_whole: bool
) -> list[WrittenFile]:
    """Sort each part and write one after the other to a new file; none if there are no rows.

    `is_whole` tells that there is one part.
    """
    path = f"{folder}/part-{uuid.uuid4().hex}.parquet"
    count = 0
    with ExitStack() as stack:
        writer: pq.ParquetWriter | None = None
        rest = layout.schema.empty_table()
        for part in parts:
            if not part.num_rows:
                continue
            rows = pa.concat_tables([rest, sorted_by(part, layout.sort_by)])
            if writer is None:
                options = _writer_options(layout, rows, _without_statistics(rows, is_whole=is_whole))
                sink = stack.enter_context(_opened_to_write(storage, path))
                writer = stack.enter_context(pq.ParquetWriter(sink, layout.schema, **options))
            # Row groups are full, but for the last of the file.
            full = rows.num_rows if is_whole else rows.num_rows - rows.num_rows % layout.row_group_rows
            if full:
                writer.write_table(rows.slice(0, full), row_group_size=layout.row_group_rows)
            rest = rows.slice(full)
            count += part.num_rows
        if writer is not None and rest.num_rows:
            writer.write_table(rest)
    return [WrittenFile(path, count)] if count else []


def _without_statistics(rows: pa.Table, *, is_whole: bool) -> set[str]:
    """Return the columns whose bounds would be wrong: they leave out NaN, which Spark sorts after every number.

    If there are more rows than these, all columns of floating-point numbers.
    """
    return {
        field.name
        for field in rows.schema
        if pa.types.is_floating(field.type) and not (is_whole and not pc.any(pc.is_nan(rows[field.name])).as_py())
    }


@contextmanager
def _opened_to_write(storage: Storage, path: str) -> Iterator[BinaryIO]:
    """Open a new file. The process that commits it syncs it; a bucket takes it in one piece."""
    if not storage.is_local:
        buffer = io.BytesIO()
        yield buffer
        storage.replace(path, buffer.getvalue())
        return
    target = Path(storage.uri(path))
    try:
        with target.open("xb") as file:
            yield file
    except BaseException:
        target.unlink(missing_ok=True)
        raise


@contextmanager
def open_parquet(storage: Storage, path: str) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file. Raises FileNotFoundError if it does not exist."""
    if storage.is_local:
        with pq.ParquetFile(storage.uri(path), memory_map=True) as parquet:
            yield parquet
    else:
        with storage.open(path) as file, pq.ParquetFile(pa.PythonFile(file, mode="r")) as parquet:
            yield parquet


def read_rows(storage: Storage, path: str, schema: pa.Schema) -> pa.Table:
    """Read a file in the columns of `schema`; those that it lacks are null."""
    with open_parquet(storage, path) as parquet:
        return _with_schema(_read_groups(parquet, range(parquet.num_row_groups), schema), schema)


def _rows_of_range(
    storage: Storage, sources: Sequence[tuple[Sequence[str], Selection | None]], layout: FileLayout, within: RowRange
) -> pa.Table:
    found = [layout.schema.empty_table()]
    for paths, selection in sources:
        rows = [_read_range(storage, path, layout, within) for path in paths]
        found += rows if selection is None else [selection(pa.concat_tables(rows))]
    return pa.concat_tables(found).combine_chunks()


def _read_range(storage: Storage, path: str, layout: FileLayout, within: RowRange) -> pa.Table:
    """Return the rows of a file in a range; row groups whose statistics are outside of it are not read."""
    with open_parquet(storage, path) as parquet:
        groups = [
            number
            for number in range(parquet.num_row_groups)
            if _may_overlap(parquet.metadata.row_group(number), layout.sort_by, within)
        ]
        if not groups:
            return layout.schema.empty_table()
        rows = _with_schema(_read_groups(parquet, groups, layout.schema), layout.schema)
    inside = None
    if within.lower is not None:
        inside = _at_or_above(rows, layout.sort_by, within.lower)
    if within.upper is not None:
        below = pc.invert(_at_or_above(rows, layout.sort_by, within.upper))
        inside = below if inside is None else pc.and_(inside, below)
    return rows if inside is None else rows.filter(inside)


def _read_groups(parquet: pq.ParquetFile, groups: Sequence[int], schema: pa.Schema) -> pa.Table:
    present = [name for name in schema.names if name in set(parquet.schema_arrow.names)]
    return parquet.read_row_groups(groups, columns=present, use_threads=False)


def _with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows[field.name] if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type) for field in schema
    ]
    return pa.table(columns, names=schema.names).cast(schema)


def _may_overlap(group: pq.RowGroupMetaData, sort_by: Sequence[str], within: RowRange) -> bool:
    if within == RowRange():
        return True
    statistics = column_statistics(group, sort_by[0])
    # Rows without a value sort first.
    if statistics is None or not statistics.has_min_max or statistics.null_count:
        return True
    if within.lower is not None and statistics.max < within.lower[0]:
        return False
    return within.upper is None or bool(statistics.min <= within.upper[0])


def column_statistics(group: pq.RowGroupMetaData, name: str) -> Any:
    """Return the statistics of a column that is not nested, if there are any."""
    for place in range(group.num_columns):
        column = group.column(place)
        if column.path_in_schema == name:
            return column.statistics
    return None


def _at_or_above(rows: pa.Table, sort_by: Sequence[str], bound: Bound) -> pa.ChunkedArray:
    """Compare rows with a bound, column by column. Nulls and NaN are below every bound, so each row is in one range."""
    above = None
    equal = None
    for number, (name, value) in enumerate(zip(sort_by, bound, strict=False), start=1):
        column, scalar = rows[name], pa.scalar(value, rows.schema.field(name).type)
        compare = pc.greater_equal if number == len(bound) else pc.greater
        here = pc.fill_null(compare(column, scalar), False)
        if equal is not None:
            here = pc.and_(equal, here)
        above = here if above is None else pc.or_(above, here)
        same = pc.fill_null(pc.equal(column, scalar), False)
        equal = same if equal is None else pc.and_(equal, same)
    assert above is not None
    return above


def _without_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    key = keys.column_names
    if len(key) == 1:
        return rows.filter(pc.invert(pc.is_in(rows[key[0]], value_set=keys[key[0]].combine_chunks())))
    # Arrow's join takes no nested columns along, so it joins the keys and the positions of the rows.
    places = rows.select(list(key)).append_column("_place", pa.array(range(rows.num_rows), pa.int64()))
    remaining = places.join(keys, list(key), join_type="left anti", use_threads=False)
    return rows.take(remaining["_place"].combine_chunks())


def sorted_by(rows: pa.Table, sort_by: Sequence[str]) -> pa.Table:
    """Sort rows by some columns, nulls first."""
    if not sort_by or not rows.num_rows:
        return rows
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending", "at_start") for name in sort_by])
    return rows.take(order)


def _writer_options(layout: FileLayout, rows: pa.Table, without_statistics: Collection[str]) -> dict[str, Any]:
    """Return the options of pyarrow's writer; `rows` are the first of the file, by which its bloom filters are sized."""
    paths = _column_paths(layout.schema)
    encodings: dict[str, str] = {}
    for field in layout.schema:
        encoding = _encoding_of(field.type, field.name in layout.without_dictionary) if layout.delta_encoded else None
        if encoding is not None:
            encodings[field.name] = encoding
    plain = layout.without_dictionary.union(encodings)
    groups = max(1, -(-rows.num_rows // layout.row_group_rows))
    blooms = {
        # Rows are sorted, so a value is in few row groups.
        name: {"ndv": max(16, pc.count_distinct(rows[name]).as_py() // groups), "fpp": fpp}
        for name, fpp in layout.bloom_fpp.items()
    }
    return {
        "compression": layout.compression,
        "compression_level": layout.compression_level,
        "use_dictionary": [path for path in paths if path.partition(".")[0] not in plain],
        "write_statistics": [path for path in paths if path not in without_statistics],
        "write_page_index": True,
        "column_encoding": encodings or None,
        "data_page_version": "2.0" if layout.delta_encoded else "1.0",
        "bloom_filter_options": blooms or None,
        # Other readers would find Arrow's own description of the schema next to Parquet's.
        "store_schema": False,
    }


def _encoding_of(kind: pa.DataType, without_dictionary: bool) -> str | None:
    if pa.types.is_timestamp(kind) or pa.types.is_int64(kind) or pa.types.is_int32(kind):
        return "DELTA_BINARY_PACKED"
    if without_dictionary and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return "DELTA_BYTE_ARRAY"
    return None


def _column_paths(schema: pa.Schema) -> list[str]:
    """Return the paths of a schema's columns in a Parquet file, those inside nested columns too."""
    sink = io.BytesIO()
    pq.write_table(schema.empty_table(), sink)
    stored = pq.ParquetFile(sink).schema
    return [stored.column(place).path for place in range(len(stored.names))]
