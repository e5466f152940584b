"""A snapshot: one version of the base plus the changes staged after it, readable by every engine.

For a table with a key, `masks` are the positions of base rows that the tail hides (PROTOCOL 9): readers skip
positions instead of joining by key, and a fold rewrites only the files that have any.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from crannog.delta.log import Base
from crannog.engine.duckdb.engine import FILE_COLUMN, DuckDBEngine, StagedTables, quoted
from crannog.errors import Corrupted, SnapshotGone, TooLarge
from crannog.protocol.staged_files import UPSERT
from crannog.protocol.tail import Tail

if TYPE_CHECKING:
    import duckdb

POSITIONS = pa.schema([pa.field(FILE_COLUMN, pa.string()), pa.field("file_row_number", pa.int64())])


@dataclass(frozen=True)
class Snapshot:
    """One immutable snapshot; its files exist as long as the retention, or a lease, keeps them."""

    name: str
    base: Base
    tail: Tail
    local_paths: Callable[[Sequence[str]], list[str]] = field(repr=False)
    staged_tables: StagedTables = field(default_factory=StagedTables, repr=False, compare=False)

    @property
    def sequence(self) -> int:
        return self.tail.end

    @property
    def key(self) -> tuple[str, ...]:
        return self.base.key

    @cached_property
    def last_changes(self) -> pa.Table:
        """For a keyed table, the last staged change of each key, deletes included."""
        return last_per_key(self.tail.rows, self.key)

    def visible_tail(self, *, raw: bool = False) -> pa.Table:
        """Return the staged rows that a reader sees, in the table's columns; `raw` ignores deletes."""
        return self._raw_tail if raw else self._tail

    @cached_property
    def _tail(self) -> pa.Table:
        rows = self.last_changes if self.key else self.tail.rows
        return self.in_table_columns(rows.filter(pc.equal(rows["_op"], UPSERT)) if self.key else rows)

    @cached_property
    def _raw_tail(self) -> pa.Table:
        return self.in_table_columns(self._last_upserts if self.key else self.tail.rows)

    @cached_property
    def _last_upserts(self) -> pa.Table:
        rows = self.tail.rows
        return last_per_key(rows.filter(pc.equal(rows["_op"], UPSERT)), self.key)

    def in_table_columns(self, rows: pa.Table) -> pa.Table:
        """Return staged rows as a reader sees them."""
        schema = self.base.read_schema
        columns = [rows[name] for name in schema.names]
        if all(column.type == kind for column, kind in zip(columns, schema.types, strict=True)):
            return pa.Table.from_arrays(columns, schema=schema)  # a cast would copy nested columns
        return rows.select(schema.names).cast(schema)

    def changed_keys(self, *, raw: bool = False) -> pa.Table:
        """Return the keys whose base rows the tail replaces or hides."""
        return (self._last_upserts if raw else self.last_changes).select(list(self.key))


def last_per_key(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Keep the last row of each key; `rows` are in commit order."""
    if rows.num_rows < 2:
        return rows
    places = pa.table([rows[name] for name in key], names=list(key)).append_column(
        "_place", pa.array(range(rows.num_rows), pa.int64())
    )
    last = places.group_by(list(key), use_threads=False).aggregate([("_place", "max")])["_place_max"]
    return rows.take(last.combine_chunks().sort())


class MaskCache:
    """The masks of the newest snapshot of one table: when the tail grows, only its new keys are looked up."""

    def __init__(self, engine: Callable[[], DuckDBEngine]) -> None:
        self._engine = engine  # called only when there is something to mask: DuckDB takes a while to load
        self._lock = threading.Lock()
        self._version = -1
        self._until = 0
        self._positions = POSITIONS.empty_table()

    def masks(self, snapshot: Snapshot) -> pa.Table:
        """Return the positions (file and row number) of base rows whose key the tail changes."""
        if not snapshot.key or not snapshot.base.files or not snapshot.tail.segments:
            return POSITIONS.empty_table()
        with self._lock:
            version, until = snapshot.base.version, snapshot.tail.end
            if version != self._version or until < self._until:
                if version < self._version:
                    return positions_of(self._engine(), snapshot, snapshot.changed_keys())
                self._version, self._until, self._positions = version, snapshot.tail.after, POSITIONS.empty_table()
            if until > self._until:
                rows = snapshot.tail.rows
                fresh = rows.filter(pc.greater(rows["_seq"], self._until)).select(list(snapshot.key))
                found = positions_of(self._engine(), snapshot, fresh)
                both = pa.concat_tables([self._positions, found])
                self._positions = both.group_by(both.column_names).aggregate([]) if found.num_rows else both
                self._until = until
            return self._positions


def positions_of(engine: DuckDBEngine, snapshot: Snapshot, keys: pa.Table) -> pa.Table:
    """Find the positions of `keys` in the base; statistics and bloom filters of the files prune the search."""
    paths = snapshot.local_paths(list(snapshot.base.files))
    if not paths or not keys.num_rows:
        return POSITIONS.empty_table()
    schema = pa.schema([snapshot.base.schema.field(name) for name in snapshot.key])
    match = " AND ".join(f"k.{quoted(name)} = t.{quoted(name)}" for name in snapshot.key)
    with engine.cursor({"wanted_keys": keys}) as cursor:
        query = (
            f"SELECT {FILE_COLUMN}, file_row_number FROM {engine.scan(paths, schema, positions=True)} t"
            f" SEMI JOIN wanted_keys k ON {match}"
        )
        return read(cursor, query).cast(POSITIONS)


_RESULT_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class ResultLimit:
    """The most rows and bytes of a result in memory."""

    rows: int
    bytes: int

    def taken(self, found: duckdb.DuckDBPyRelation) -> pa.Table:
        """Return a result, read batch by batch. Raises TooLarge as soon as it exceeds the limit."""
        batches: list[pa.RecordBatch] = []
        rows = size = 0
        with found.to_arrow_reader(_RESULT_BATCH_ROWS) as reader:
            for batch in reader:
                rows, size = rows + batch.num_rows, size + batch.nbytes
                if rows > self.rows or size > self.bytes:
                    raise TooLarge(
                        f"the result has more than {self.rows:,} rows or {self.bytes:,} bytes, which is the limit;"
                        " read it in pages (limit=), with fewer columns, or stream it with SQL"
                    )
                batches.append(batch)
            return pa.Table.from_batches(batches, reader.schema)


def read(cursor: duckdb.DuckDBPyConnection, query: str, most: ResultLimit | None = None) -> pa.Table:
    """Run a query over files. Raises SnapshotGone if one of them was deleted meanwhile, TooLarge beyond a limit."""
    with duckdb_errors_translated():
        found = cursor.sql(query)
        return found.to_arrow_table() if most is None else most.taken(found)


def written(cursor: duckdb.DuckDBPyConnection, command: str) -> int:
    """Run a command that reads files into a table; return its rows. Raises SnapshotGone if a file was deleted meanwhile."""
    with duckdb_errors_translated():
        [[rows]] = cursor.execute(command).fetchall()
        return int(rows)


@contextmanager
def duckdb_errors_translated() -> Iterator[None]:
    """Raise SnapshotGone for a file that was deleted meanwhile, and Corrupted for one that cannot be read."""
    import duckdb

    try:
        yield
    except duckdb.IOException as error:
        raise SnapshotGone("the files of this snapshot are gone; read again to see the table as it is now") from error
    except (duckdb.InvalidInputException, duckdb.SerializationException, duckdb.InternalException) as error:
        raise Corrupted(f"a file of the base cannot be read: {str(error).splitlines()[0][:400]}") from error


def relation(
    engine: DuckDBEngine,
    snapshot: Snapshot,
    masks: pa.Table,
    prefix: str,
    *,
    raw: bool = False,
    files: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    staged: pa.Table | None = None,
    may_copy_staged: bool = True,
) -> tuple[str, dict[str, pa.Table]]:
    """Return the SQL that reads a snapshot, and the in-memory tables it refers to (each name starts with `prefix`).

    `files`, `columns` and `staged` limit the files of the base, the columns and the staged rows; all if not given. With
    `may_copy_staged`, staged rows that are read again may be copied into tables of the engine.
    """
    base = snapshot.base
    schema = base.schema if columns is None else pa.schema([base.schema.field(name) for name in columns])
    names = ", ".join(quoted(name) for name in schema.names)
    tables: dict[str, pa.Table] = {}

    def named(what: str, rows: pa.Table) -> str:
        may_copy = may_copy_staged and (what != "tail" or staged is None)
        kept = snapshot.staged_tables.name(engine, f"raw {what}" if raw else what, rows) if may_copy else None
        if kept is None:
            tables[f"{prefix}_{what}"] = rows
        return kept or f"{prefix}_{what}"

    parts = []
    paths = snapshot.local_paths(list(base.files if files is None else files))
    hidden = set(masks[FILE_COLUMN].unique().to_pylist()).intersection(paths) if masks.num_rows else set()
    plain = [path for path in paths if path not in hidden]
    if plain:
        parts.append(f"SELECT {names} FROM {engine.scan(plain, schema)}")
    if hidden:
        parts.append(
            f"SELECT {names} FROM {engine.scan(sorted(hidden), schema, positions=True)} t"
            f" ANTI JOIN {named('mask', masks)} m ON m.{FILE_COLUMN} = t.{FILE_COLUMN} AND m.file_row_number = t.file_row_number"
        )
    tail = snapshot.visible_tail(raw=raw) if staged is None else staged
    if tail.num_rows or not parts:
        parts.append(f"SELECT {names} FROM {named('tail', tail)}")
    return " UNION ALL ".join(parts), tables
