"""Runs a compiled statement on DuckDB: hot tables, files, staged changes."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from crannog.engine.duckdb.engine import DuckDBEngine, PreparedStatements
from crannog.engine.sql.duckdb_compiler import Compiled
from crannog.engine.sql.duckdb_compiler.relations import placeholder
from crannog.engine.sql.running_queries import Running
from crannog.engine.sql.spark_types import in_schema
from crannog.errors import SnapshotGone

_BATCH = 100_000
_LOST_FILE = re.compile(r"IO Error|No such file|Could not (open|read)")


class FallBackToSpark(Exception):
    """DuckDB met something that only Spark can compute, or explain."""


def sql_of(compiled: Compiled, relations: Mapping[int, str], limit: int | None) -> str:
    """Return the SQL with its sources filled in, limited to `limit` rows."""
    sql = compiled.sql
    for source, relation in relations.items():
        sql = sql.replace(placeholder(source), relation)
    if limit is None or (compiled.limit is not None and compiled.limit <= limit):
        return sql
    return f"{sql} LIMIT {limit}" if compiled.limit is None else f"SELECT * FROM ({sql}) LIMIT {limit}"


def run(
    engine: DuckDBEngine, compiled: Compiled, sql: str, tables: Mapping[str, pa.Table], running: Running
) -> pa.Table:
    """Run and return all rows at once, a quarter faster than in batches where they are few. Raises as `batches` does."""
    with _borrowed_cursor(engine, sql, tables, running) as prepared, _duckdb_errors_translated(running):
        return in_schema(prepared.relation(sql).to_arrow_table(), compiled.schema)


@contextmanager
def batches(
    engine: DuckDBEngine,
    compiled: Compiled,
    sql: str,
    tables: Mapping[str, pa.Table],
    running: Running,
    enough: int | None = None,
) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Run and yield the batches, none much larger than `enough`; interrupted when the query is cancelled.

    Raises FallBackToSpark where Spark must run the statement.
    """
    with _borrowed_cursor(engine, sql, tables, running) as prepared:
        found = _read(prepared, sql, compiled.schema, running, min(enough or _BATCH, _BATCH))
        try:
            yield compiled.schema, found
        finally:
            found.close()  # a result that was not read to its end is still open


@contextmanager
def _borrowed_cursor(
    engine: DuckDBEngine, sql: str, tables: Mapping[str, pa.Table], running: Running
) -> Iterator[PreparedStatements]:
    with engine.statement(sql, tables) as prepared:
        try:
            with running.interrupting(prepared.cursor.interrupt):
                yield prepared
        finally:
            prepared.is_reusable = not running.is_cancelled


def _read(
    prepared: PreparedStatements, sql: str, schema: pa.Schema, running: Running, size: int
) -> Generator[pa.RecordBatch, None, None]:
    with _duckdb_errors_translated(running), prepared.relation(sql).to_arrow_reader(size) as reader:
        for batch in reader:
            running.check()
            if batch.num_rows:
                yield in_schema(batch, schema)


@contextmanager
def _duckdb_errors_translated(running: Running) -> Iterator[None]:
    import duckdb

    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        # After the first rows, DuckDB's errors come through Arrow as an OSError with DuckDB's text.
        running.check()
        message = str(error).splitlines()[0][:300]
        if isinstance(error, duckdb.IOException) or (isinstance(error, OSError) and _LOST_FILE.search(message)):
            raise SnapshotGone(
                "the files of this snapshot are gone; read again to see the table as it is now"
            ) from error
        raise FallBackToSpark(message) from error


def explained(engine: DuckDBEngine, sql: str, tables: Mapping[str, pa.Table], running: Running) -> str:
    """Return DuckDB's plan."""
    with (
        engine.cursor(tables) as cursor,
        running.interrupting(cursor.interrupt),
        _duckdb_errors_translated(running),
    ):
        return "\n".join(row[1] for row in cursor.execute(f"EXPLAIN {sql}").fetchall())
