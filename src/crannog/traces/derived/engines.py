"""Where derived rows are computed: by DuckDB in this process, and by DuckDB in Spark tasks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from crannog.delta.schemas import all_nullable
from crannog.engine.columnar.tasks import QueryResult, Relation
from crannog.engine.duckdb.engine import FILE_COLUMN
from crannog.engine.maintenance.job import Job
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read
from crannog.engine.sql.running_queries import scoped_cursor

if TYPE_CHECKING:
    import duckdb

_numbers = itertools.count(1)


class DuckDBQueryEngine:
    """Reads files of a snapshot with DuckDB."""

    def __init__(self, table: OpenTable, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection) -> None:
        self._engine = table.warehouse.duckdb
        self._snapshot = snapshot
        self._cursor = cursor
        self._registered: dict[int, tuple[str, pa.Table]] = {}

    def files(self, paths: Sequence[str]) -> str:
        if not paths:
            return self.register(self._snapshot.base.read_schema.empty_table())
        return self._engine.scan(self._snapshot.local_paths(list(paths)), self._snapshot.base.schema)

    def register(self, rows: pa.Table) -> str:
        if id(rows) not in self._registered:
            name = f"registered_{next(_numbers)}"
            self._cursor.register(name, rows)
            self._registered[id(rows)] = name, rows
        return self._registered[id(rows)][0]

    def query(self, query: str) -> pa.Table:
        return read(self._cursor, query)

    def files_with(self, paths: Sequence[str], column: str, values: str) -> list[str]:
        if not paths:
            return []
        local = self._snapshot.local_paths(list(paths))
        schema = pa.schema([self._snapshot.base.schema.field(column)])
        scan = self._engine.scan(local, schema, positions=True)
        found = self.query(
            f"SELECT DISTINCT {FILE_COLUMN} AS file FROM {scan} t SEMI JOIN ({values}) v USING ({column})"
        )
        by_local = dict(zip(local, paths, strict=True))
        return [by_local[path] for path in found["file"].to_pylist()]


@contextmanager
def duckdb_query_engine(table: OpenTable, snapshot: Snapshot) -> Iterator[DuckDBQueryEngine]:
    """Open DuckDB on the files of a snapshot."""
    with scoped_cursor(table.warehouse.duckdb) as cursor:
        yield DuckDBQueryEngine(table, snapshot, cursor)


class TaskRelations:
    """The relations of queries that Spark tasks run: files of tables, and rows of this process as files of the job."""

    def __init__(self, job: Job, spans: OpenTable, schema: pa.Schema) -> None:
        self._job = job
        self._spans = spans
        self._schema = schema
        self._relations: dict[object, Relation] = {}
        self._registered: list[pa.Table] = []

    def files(self, paths: Sequence[str]) -> str:
        return self.files_of(self._spans, self._schema, paths)

    def files_of(self, table: OpenTable, schema: pa.Schema, paths: Sequence[str]) -> str:
        """Return the name of a relation with the rows of some files of any table."""
        stored = tuple(f"{table.folder}/{path}" for path in paths)
        return self._named(stored, stored, schema)

    def register(self, rows: pa.Table) -> str:
        if id(rows) in self._relations:
            return self._relations[id(rows)].name
        self._registered.append(rows)  # while it is referenced, no other table has its id
        return self._named(id(rows), (self._job.write_input(rows),), rows.schema)

    def _named(self, key: object, paths: tuple[str, ...], schema: pa.Schema) -> str:
        if key not in self._relations:
            self._relations[key] = Relation(f"relation_{next(_numbers):09}", paths, all_nullable(schema))
        return self._relations[key].name

    def task(self, folder: str, sql: str) -> QueryResult:
        """Return the task of a query, with the relations that it names."""
        named = tuple(relation for relation in self._relations.values() if relation.name in sql)
        return QueryResult(folder, sql, named)
