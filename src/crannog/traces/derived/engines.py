"""The two engines that compute derived rows: DuckDB in the process, and Spark."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read
from crannog.traces.derived.definitions import for_duckdb
from crannog.traces.query_scope import scoped_cursor

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession

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

    def translate(self, sql: str) -> str:
        return for_duckdb(sql)


@contextmanager
def duckdb_query_engine(table: OpenTable, snapshot: Snapshot) -> Iterator[DuckDBQueryEngine]:
    """Open DuckDB on the files of a snapshot."""
    with scoped_cursor(table.warehouse.duckdb) as cursor:
        yield DuckDBQueryEngine(table, snapshot, cursor)


class SparkQueryEngine:
    """Reads files of a table with Spark, through views that `spark_query_engine` drops."""

    def __init__(self, table: OpenTable, schema: pa.Schema, session: SparkSession) -> None:
        self._table = table
        self._schema = schema
        self.session = session
        self._views: dict[object, tuple[str, object]] = {}

    def files(self, paths: Sequence[str]) -> str:
        return self.files_of(self._table, self._schema, paths)

    def files_of(self, table: OpenTable, schema: pa.Schema, paths: Sequence[str]) -> str:
        """Return the name of a relation with the rows of some files of any table."""
        from crannog.engine.spark_files import read_files

        uris = tuple(f"{table.folder}/{path}" for path in paths)
        if (view := self._views.get((table.folder, uris))) is not None:
            return view[0]
        return self._view((table.folder, uris), read_files(self.session, table.warehouse.storage, uris, schema), None)

    def register(self, rows: pa.Table) -> str:
        from crannog.engine.spark_files import spark_schema

        if (view := self._views.get(id(rows))) is not None:
            return view[0]
        return self._view(id(rows), self.session.createDataFrame(rows, spark_schema(rows.schema)), rows)

    def _view(self, key: object, rows: DataFrame, source: object) -> str:
        name = f"crannog_derive_{os.getpid()}_{next(_numbers)}"
        rows.createOrReplaceTempView(name)
        self._views[key] = name, source
        return name

    def query(self, query: str) -> pa.Table:
        return self.session.sql(query).toArrow()

    def translate(self, sql: str) -> str:
        return sql

    def drop_views(self) -> None:
        for name, _ in self._views.values():
            with suppress(Exception):  # the session may be gone
                self.session.catalog.dropTempView(name)


@contextmanager
def spark_query_engine(table: OpenTable, schema: pa.Schema, session: SparkSession) -> Iterator[SparkQueryEngine]:
    """Open Spark on the files of a table."""
    engine = SparkQueryEngine(table, schema, session)
    try:
        yield engine
    finally:
        engine.drop_views()
