"""The DuckDB engine: creates its cursors, restricts it to the files it is given, and prepares statements and staged tables.

Running a short statement again on the cursor that prepared it takes half the time. Registering Arrow tables with DuckDB
costs 2 ms per query, and a statement over them cannot be prepared once and reused: so the staged rows of a snapshot that
is read a second time are copied into tables, which are dropped with the snapshot.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crannog.engine.duckdb.bloom_filters import BloomFilters
from crannog.errors import needed_for
from crannog.settings import Settings
from crannog.storage import scratch_folders

if TYPE_CHECKING:
    import duckdb

_IDLE_CURSORS = 16
_STATEMENTS = 64
# Longer statements are not kept prepared: each would take megabytes, on each of the cursors.
_MAX_KEPT_SQL = 32 * 1024
_MAX_CACHED_FILES = 100_000
_CLOSE_TIMEOUT_S = 10.0
_MAX_STAGED_BYTES = 32 * 1024**2
_ALL_NULL_COLUMNS = """
SELECT file_name, list(name) FILTER (empty)
FROM (
    SELECT file_name, split_part(path_in_schema, ', ', 1) AS name,
        bool_and(coalesce(stats_null_count = num_values, false)) AS empty
    FROM parquet_metadata(?) GROUP BY ALL
)
GROUP BY file_name
"""
FILE_COLUMN = "_file"
"""The column with the file name in a scan with positions; DuckDB calls the row's position `file_row_number`."""


class PreparedStatements:
    """A cursor and the statements it has prepared."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self.cursor = cursor
        self.is_reusable = True
        """False after an interrupt, which may arrive late and hit the next statement."""
        self._prepared: OrderedDict[str, duckdb.DuckDBPyRelation] = OrderedDict()
        self._parsed: OrderedDict[str, duckdb.Statement] = OrderedDict()

    def has(self, sql: str) -> bool:
        return sql in self._prepared or sql in self._parsed

    def fetch(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run a statement with parameters and return its few rows as Python values: twice as fast as through Arrow."""
        statement = self._parsed.pop(sql, None)
        if statement is None:
            [statement] = self.cursor.extract_statements(sql)
            if len(sql) > _MAX_KEPT_SQL:
                return list(self.cursor.execute(statement, list(parameters)).fetchall())
            if len(self._parsed) >= _STATEMENTS:
                self._parsed.popitem(last=False)
        self._parsed[sql] = statement
        found: list[tuple[Any, ...]] = self.cursor.execute(statement, list(parameters)).fetchall()
        return found

    def relation(self, sql: str) -> duckdb.DuckDBPyRelation:
        """Return the prepared statement. Raises DuckDB's error if it cannot be prepared."""
        found = self._prepared.pop(sql, None)
        if found is None:
            found = self.cursor.sql(sql)
            if len(sql) > _MAX_KEPT_SQL:
                return found
            if len(self._prepared) >= _STATEMENTS:
                self._prepared.popitem(last=False)
        self._prepared[sql] = found
        return found


class StatementPool:
    """A pool of cursors that prefers one that has prepared the statement. Thread-safe."""

    def __init__(
        self, new: Callable[[], duckdb.DuckDBPyConnection], close: Callable[[duckdb.DuckDBPyConnection], None]
    ) -> None:
        self._new = new
        self._close = close
        self._idle: list[PreparedStatements] = []
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self, sql: str) -> Iterator[PreparedStatements]:
        """Yield a cursor for a statement; after an error it is closed instead of reused."""
        prepared = self._borrow(sql)
        try:
            yield prepared
        except BaseException:
            prepared.is_reusable = False
            raise
        finally:
            with self._lock:
                keep = prepared.is_reusable and len(self._idle) < _IDLE_CURSORS
                if keep:
                    self._idle.append(prepared)
            if not keep:
                self._close(prepared.cursor)

    def close_idle(self) -> None:
        """Close the idle cursors and their prepared statements."""
        with self._lock:
            idle, self._idle = self._idle, []
        for prepared in idle:
            self._close(prepared.cursor)

    def _borrow(self, sql: str) -> PreparedStatements:
        with self._lock:
            if self._idle:
                place = next((place for place, prepared in enumerate(self._idle) if prepared.has(sql)), -1)
                return self._idle.pop(place)
        return PreparedStatements(self._new())


class DuckDBEngine:
    """DuckDB, in this process, for one warehouse. Thread-safe: each use has its own cursor."""

    def __init__(self, settings: Settings, folders: tuple[str, ...], spill_folder: Path) -> None:
        with needed_for("reading tables in this process"):
            import duckdb  # a tenth of a second, which a command that reads no rows need not pay

        self._connection = duckdb.connect(
            config={
                "memory_limit": f"{settings.local_memory_mb}MiB",
                "temp_directory": str(spill_folder),
                "max_temp_directory_size": f"{settings.local_temp_mb}MiB",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "allow_community_extensions": "false",
                "python_enable_replacements": "false",
            }
        )
        self._lock = threading.Lock()
        # Global: a cursor has its own settings and would use the machine's time zone, and read every footer again.
        self._connection.execute("SET GLOBAL TimeZone = 'UTC'")
        self._connection.execute("SET GLOBAL parquet_metadata_cache = true")
        self._connection.execute("SET allowed_directories = ?", [list(folders)])
        self._memory_mb = settings.local_memory_mb
        self._can_make_room = True
        try:
            self._connection.execute("SET allowed_configs = ['memory_limit']")
        except duckdb.Error:  # before 1.5: hot tables get their memory now
            self.make_room(settings.cache_bytes)
            self._can_make_room = False
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")
        self._spill_folder = spill_folder
        self._types: dict[str, str] = {}
        self._columns_of: dict[str, Mapping[str, str]] = {}
        self._columns: dict[tuple[object, ...], Mapping[str, str]] = {}
        self._all_null_in: dict[str, frozenset[str]] = {}
        self._open_cursors: set[duckdb.DuckDBPyConnection] = set()
        self._bloom_filters: dict[str, BloomFilters] = {}
        self._statements = StatementPool(self._new_cursor, self._close_cursor)
        self._numbers = itertools.count(1)
        self.unused_tables: deque[str] = deque()
        """Tables of `create_table` that are no longer used. A finalizer may run under any lock, so later calls drop them."""

    @contextmanager
    def cursor(self, tables: Mapping[str, pa.Table] | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a cursor with `tables` registered under their names."""
        cursor = self._new_cursor()
        try:
            self._drop_unused_tables(cursor)
            for name, table in (tables or {}).items():
                cursor.register(name, table)
            yield cursor
        finally:
            for name in tables or {}:
                cursor.unregister(name)
            self._close_cursor(cursor)

    @contextmanager
    def statement(self, sql: str, tables: Mapping[str, pa.Table]) -> Iterator[PreparedStatements]:
        """Yield a cursor for a statement; without `tables`, one that has prepared it before, if there is one."""
        if not tables:
            with self._statements.borrow(sql) as prepared:
                self._drop_unused_tables(prepared.cursor)
                yield prepared
        else:
            with self.cursor(tables) as cursor:
                yield PreparedStatements(cursor)

    def make_room(self, hot_bytes: int) -> None:
        """Let hot tables take up to this much memory, in addition to that of queries."""
        if self._can_make_room:
            limit_mb = self._memory_mb + -(-hot_bytes // 1024**2)
            with self._lock:
                self._connection.execute(f"SET GLOBAL memory_limit = '{limit_mb}MiB'")

    def create_table(self, rows: pa.Table) -> str:
        """Copy rows into a new table and return its name; it exists until the name is added to `unused_tables`."""
        name = f"kept_{next(self._numbers)}"
        cursor = self._new_cursor()
        try:
            cursor.register("given", rows)
            cursor.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            cursor.unregister("given")
        finally:
            self._close_cursor(cursor)
        return name

    def _new_cursor(self) -> duckdb.DuckDBPyConnection:
        with self._lock:  # the connection allows one call at a time
            cursor = self._connection.cursor()
            self._open_cursors.add(cursor)
            return cursor

    def _close_cursor(self, cursor: duckdb.DuckDBPyConnection) -> None:
        with self._lock:
            self._open_cursors.discard(cursor)
        cursor.close()

    def _drop_unused_tables(self, cursor: duckdb.DuckDBPyConnection) -> None:
        while self.unused_tables:
            with suppress(IndexError):  # another thread was faster
                cursor.execute(f"DROP TABLE IF EXISTS {self.unused_tables.popleft()}")

    def type_name(self, kind: pa.DataType) -> str:
        """Return DuckDB's name for an Arrow type."""
        text = str(kind)
        if text not in self._types:
            empty = pa.schema([pa.field("c", kind)]).empty_table()
            with self.cursor({"probe": empty}) as cursor:
                [row] = cursor.execute("SELECT column_type FROM (DESCRIBE probe)").fetchall()
            self._types[text] = row[0]
        return self._types[text]

    def scan(self, paths: list[str], schema: pa.Schema, *, positions: bool = False) -> str:
        """Return the SQL of a scan of files in the columns of `schema`, by name: a column missing in a file is null."""
        where = ", ".join(map(literal, paths))
        extra = f", filename = {literal(FILE_COLUMN)}, file_row_number = true" if positions else ""
        if self._have_same_columns(paths, schema):
            # With an explicit schema, DuckDB ignores the rows and bounds of a file, and builds joins on the wrong side.
            return f"read_parquet([{where}], hive_partitioning = false{extra})"
        columns = ", ".join(
            f"{literal(field.name)}: {{'name': {literal(field.name)}, 'type': {literal(self.type_name(field.type))},"
            " 'default_value': NULL}"
            for field in schema
        )
        return f"read_parquet([{where}], schema = MAP {{{columns}}}{extra})"

    def _have_same_columns(self, paths: list[str], schema: pa.Schema) -> bool:
        """Tell whether all files have the same columns, including those of `schema` in the same types."""
        import duckdb

        fresh = [path for path in paths if path not in self._columns_of]
        try:
            if fresh:
                self._read_columns(fresh)
            found = [self._columns_of[path] for path in paths]
        except (duckdb.Error, KeyError):
            return False  # the read itself tells what is wrong with a file
        columns = found[0]
        return all(other is columns for other in found) and all(
            columns.get(field.name) == self.type_name(field.type) for field in schema
        )

    def _read_columns(self, paths: list[str]) -> None:
        """Cache the columns of files, one object for equal ones; files never change, so each is read once."""
        if len(self._columns_of) > _MAX_CACHED_FILES:
            self._columns_of = {}
        shapes: dict[str, list[object]] = {}
        with self.cursor() as cursor:
            parts = "name, type, num_children, converted_type, scale, precision, logical_type, duckdb_type"
            for path, *part in cursor.execute(f"SELECT file_name, {parts} FROM parquet_schema(?)", [paths]).fetchall():
                shapes.setdefault(path, []).append(tuple(part))
            for path, listed in shapes.items():
                shape = tuple(listed)
                if shape not in self._columns:
                    query = f"DESCRIBE SELECT * FROM read_parquet([{literal(path)}], hive_partitioning = false)"
                    self._columns[shape] = {row[0]: row[1] for row in cursor.execute(query).fetchall()}
                self._columns_of[path] = self._columns[shape]

    def all_null_columns(self, paths: list[str]) -> frozenset[str]:
        """Return the columns that are null in all of the files, by their footers: a read of few rows can skip them.

        A column of lists or maps counts if all of them are empty or null.
        """
        import duckdb

        fresh = [path for path in paths if path not in self._all_null_in]
        if len(self._all_null_in) > _MAX_CACHED_FILES:
            self._all_null_in, fresh = {}, paths
        try:
            if fresh:
                with self.cursor() as cursor:
                    found = cursor.execute(_ALL_NULL_COLUMNS, [fresh]).fetchall()
                self._all_null_in |= {path: frozenset(names or ()) for path, names in found}
            return frozenset.intersection(*(self._all_null_in[path] for path in paths))
        except (duckdb.Error, KeyError):
            return frozenset()  # the read itself tells what is wrong with a file

    def bloom_filters(self, column: str) -> BloomFilters:
        """Return the bloom filters of a column, which tell which files may contain an id."""
        return self._bloom_filters.setdefault(column, BloomFilters(column))

    def close(self) -> None:
        """Interrupt what still runs, such as a background load, and close."""
        import duckdb

        self._statements.close_idle()
        deadline = time.monotonic() + _CLOSE_TIMEOUT_S
        while True:
            with self._lock:
                try:
                    self._connection.close()
                    break
                except duckdb.OperationalError:  # busy: DuckDB refuses to close during a call
                    if time.monotonic() > deadline:
                        raise
                    for cursor in self._open_cursors:
                        with suppress(duckdb.Error):  # idle cursors are already closed
                            cursor.interrupt()
            time.sleep(0.01)
        scratch_folders.remove(self._spill_folder)


def literal(text: str) -> str:
    """Quote text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """Quote a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


class StagedTables:
    """The copies for one snapshot. Thread-safe."""

    def __init__(self) -> None:
        self._names: dict[str, str | None] = {}
        self._lock = threading.Lock()

    def name(self, engine: DuckDBEngine, what: str, rows: pa.Table) -> str | None:
        """Return the name of the table with these rows; None if the caller must register them, as on the first read."""
        with self._lock:
            if what not in self._names:
                self._names[what] = None
            elif self._names[what] is None and rows.nbytes <= _MAX_STAGED_BYTES:
                made = engine.create_table(rows)
                self._names[what] = made
                weakref.finalize(self, engine.unused_tables.append, made)
            return self._names[what]
