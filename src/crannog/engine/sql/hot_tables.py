"""Hot tables: copies in memory that follow each change; the least recently used are evicted first.

A copy has the visible rows of a table up to a sequence. A read first brings it up to its snapshot: the changes
staged since are applied in one transaction, which running readers do not see. Folds and compactions change no
visible row, so they leave it unchanged; after anything else a new copy is loaded and replaces it.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crannog.delta.log import Base
from crannog.engine.duckdb.engine import DuckDBEngine, quoted
from crannog.engine.maintenance.control import Task
from crannog.engine.maintenance.unreferenced_files import log_entries
from crannog.engine.open_table import OpenTable
from crannog.engine.row_lookup import columns_sql, key_sql
from crannog.engine.snapshot import Snapshot, last_per_key, written
from crannog.errors import CrannogError, NotFound, Overloaded
from crannog.names import TableName
from crannog.protocol.staged_files import UPSERT

log = logging.getLogger("crannog.engine")

_KEEPS_ROWS = {"FOLD", "COMPACT"}
_WASTE = 0.25
_FEW_ROWS = 10_000
_WINDOW_S = 60.0
# The memory limit follows the growth of copies in steps of this size.
_GROWTH_STEP_BYTES = 16 * 1024**2


@dataclass
class HotTable:
    """One copy: its table, its rows up to a sequence, and its use."""

    name: TableName
    relation: str
    table_id: str
    version: int
    schema: pa.Schema
    sequence: int
    rows: int
    bytes: int
    pinned: bool
    hits: int = 0
    last_access: float = field(default_factory=time.time)
    replaced: int = 0
    # Queries that read it now: an evicted copy exists until the last of them is done.
    users: int = 0
    gone: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)


@dataclass(frozen=True, slots=True)
class FailedLoad:
    """A load in the background that failed; the table is served from its files until one succeeds."""

    error: str
    failures: int
    failed_at: float


class HotCache:
    """The hot tables of one warehouse. Thread-safe."""

    def __init__(self, engine: Callable[[], DuckDBEngine], limit_bytes: int, *, auto_reads: int) -> None:
        self._engine = engine
        self.limit_bytes = limit_bytes
        self._auto_reads = auto_reads
        self._tables: dict[TableName, HotTable] = {}
        self._misses: dict[TableName, int] = {}
        self._recent: dict[TableName, deque[float]] = {}
        self._loading: set[TableName] = set()
        self._failed: dict[TableName, FailedLoad] = {}
        self._lock = threading.RLock()
        # One load at a time: its size is measured by the growth of the engine's memory.
        self._load_lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._grown_bytes = 0

    # -- for callers -------------------------------------------------------------------------------------------

    def pin(self, table: OpenTable) -> dict[str, Any]:
        """Keep a table in memory until it is evicted. Raises Overloaded, with the numbers, if it does not fit."""
        with self._borrowed(table.name) as held:
            current = held is not None and self._current(held, table, table.snapshot())
            if held is not None:
                held.pinned = True
        if not current:
            self._load(table, pinned=True)
        return next(entry for entry in self.stats()["tables"] if entry["name"] == str(table.name))

    def evict(self, name: TableName) -> bool:
        """Evict a table; return False if it was not in memory."""
        with self._lock:
            held = self._tables.pop(name, None)
            self._failed.pop(name, None)
        if held is None:
            return False
        self._retire(held)
        return True

    def stats(self) -> dict[str, Any]:
        """Return the tables in memory, their use, the limit, and the failed loads with their errors."""
        with self._lock:
            tables = [
                {
                    "name": str(name),
                    "rows": held.rows if held else 0,
                    "bytes": held.bytes if held else 0,
                    "hits": held.hits if held else 0,
                    "misses": self._misses.get(name, 0),
                    "last_access": held.last_access if held else self._failed[name].failed_at,
                    "version": held.version if held else None,
                    "sequence": held.sequence if held else None,
                    "state": "failed" if held is None else "pinned" if held.pinned else "loaded",
                    "pinned": held is not None and held.pinned,
                    "error": self._failed[name].error if name in self._failed else None,
                }
                for name in sorted({*self._tables, *self._failed}, key=str)
                for held in [self._tables.get(name)]
            ]
            return {
                "tables": tables,
                "bytes": sum(held.bytes for held in self._tables.values()),
                "limit_bytes": self.limit_bytes,
                "hits": sum(held.hits for held in self._tables.values()),
                "misses": sum(self._misses.values()),
            }

    def failed_tasks(self) -> list[Task]:
        """Return the failed loads as tasks of the control table."""
        with self._lock:
            return [
                Task(
                    f"hot_load:{name}",
                    claimed_at=(at := dt.datetime.fromtimestamp(failed.failed_at, dt.UTC)),
                    completed_at=at,
                    failures=failed.failures,
                    last_result=json.dumps({"error": failed.error}),
                )
                for name, failed in sorted(self._failed.items())
            ]

    # -- for queries -------------------------------------------------------------------------------------------

    @contextmanager
    def borrowed(self, table: OpenTable, snapshot: Snapshot, *, wait: bool = False) -> Iterator[str | None]:
        """Yield the name of a copy that is at the snapshot or later, or None if no such copy is ready.

        With `wait`, waits for a pinned copy that has to be reloaded.
        """
        with ExitStack() as lending:
            held = lending.enter_context(self._borrowed(table.name))
            if held is not None and not self._current(held, table, snapshot):
                if wait and held.pinned:
                    self._load(table, pinned=True)
                    held = lending.enter_context(self._borrowed(table.name))
                else:
                    self._load_in_background(table, pinned=held.pinned)
                    held = None
            if held is None:
                self._missed(table)
                yield None
            else:
                with self._lock:
                    held.hits += 1
                    held.last_access = time.time()
                yield held.relation

    def rows_of_key(self, table: OpenTable, snapshot: Snapshot, key: Sequence[Any]) -> list[tuple[Any, ...]] | None:
        """Return the row of a key that nothing staged has changed, if it exists; None if no copy is ready.

        The changes staged since need not be applied for it: none of them has this key.
        """
        with self._borrowed(table.name) as held:
            if held is None or not self._has_base(held, table, snapshot.base):
                if held is not None:
                    self._load_in_background(table, pinned=held.pinned)
                self._missed(table)
                return None
            with self._lock:
                held.hits += 1
                held.last_access = time.time()
            sql = f"SELECT {columns_sql(held.schema)} FROM {held.relation} WHERE {key_sql(snapshot.key)}"
            with self._engine().statement(sql, {}) as prepared:
                return prepared.fetch(sql, key)

    def follow(self, table: OpenTable, snapshot: Snapshot) -> None:
        """Bring a copy up to a snapshot whose changes are about to be folded; if that fails it is reloaded later."""
        import duckdb

        with self._borrowed(table.name) as held, suppress(duckdb.Error):
            if held is not None:
                self._current(held, table, snapshot)

    @contextmanager
    def _borrowed(self, name: TableName) -> Iterator[HotTable | None]:
        with self._lock:
            held = self._tables.get(name)
            if held is not None:
                held.users += 1
        try:
            yield held
        finally:
            if held is not None:
                with self._lock:
                    held.users -= 1
                    unused = held.gone and not held.users
                if unused:
                    self._drop(held.relation)

    def _retire(self, held: HotTable) -> None:
        """Drop a removed copy, now or when its last reader is done."""
        with self._lock:
            held.gone = True
            unused = not held.users
        if unused:
            self._drop(held.relation)

    def refresh(self, table: OpenTable) -> None:
        """Reload a copy: its deleted rows stay in memory until then."""
        with self._lock:
            held = self._tables.get(table.name)
        if held is not None:
            self._load(table, pinned=held.pinned)

    def holds(self, table: OpenTable, keys: pa.Table) -> bool:
        """Tell whether the copy of a table, if any, has a row with one of the keys."""
        match = " AND ".join(f"k.{quoted(name)} = h.{quoted(name)}" for name in keys.column_names)
        with self._borrowed(table.name) as held:
            if held is None:
                return False
            with held.lock, self._engine().cursor({"wanted_keys": keys}) as cursor:
                query = f"SELECT count(*) FROM {held.relation} h SEMI JOIN wanted_keys k ON {match}"
                [[found]] = cursor.execute(query).fetchall()
            return bool(found)

    # -- keeping current ---------------------------------------------------------------------------------------

    def _current(self, held: HotTable, table: OpenTable, snapshot: Snapshot) -> bool:
        """Apply what was staged since; return False if the copy must be reloaded."""
        tail = snapshot.tail
        if not self._has_base(held, table, snapshot.base):
            return False
        with held.lock:
            if tail.end <= held.sequence:
                return True
            if held.sequence < tail.after:
                return False
            fresh = tail.rows.filter(pc.greater(tail.rows["_seq"], held.sequence))
            self._make_room_for(fresh.nbytes)
            held.rows += self._apply(held, snapshot, fresh)
            held.sequence = tail.end
            return held.replaced < max(held.rows * _WASTE, _FEW_ROWS)

    def _has_base(self, held: HotTable, table: OpenTable, base: Base) -> bool:
        """Tell whether a copy has all that is folded into a base."""
        with held.lock:
            if held.table_id != base.table_id or held.schema != base.read_schema:
                return False
            if base.version > held.version:
                if held.sequence < base.folded or not _keeps_rows(table, held.version, base.version):
                    return False
                held.version = base.version
            return True

    def _apply(self, held: HotTable, snapshot: Snapshot, fresh: pa.Table) -> int:
        """Apply changes to a copy and return the number of rows it gained."""
        columns = ", ".join(quoted(name) for name in snapshot.base.schema.names)
        if not snapshot.key:
            added = snapshot.in_table_columns(fresh)
            with self._engine().cursor({"hot_added": added}) as cursor:
                cursor.execute(f"INSERT INTO {held.relation} SELECT {columns} FROM hot_added")
            return int(added.num_rows)
        last = last_per_key(fresh, snapshot.key)
        # A delete has its key alone, so columns that every row must have are null in it.
        nullable = pa.schema([field.with_nullable(True) for field in snapshot.base.read_schema])
        changes = last.select(nullable.names).cast(nullable).append_column("_op", last["_op"])
        match = " AND ".join(f"k.{quoted(name)} = {held.relation}.{quoted(name)}" for name in snapshot.key)
        rest = ", ".join(
            f"{quoted(name)} = k.{quoted(name)}" for name in snapshot.base.schema.names if name not in snapshot.key
        )
        values = ", ".join(f"k.{quoted(name)}" for name in snapshot.base.schema.names)
        # In place where possible: a scan has to skip every row that is deleted and appended again.
        command = (
            f"MERGE INTO {held.relation} USING hot_changes k ON {match}"
            f" WHEN MATCHED AND k._op <> {UPSERT} THEN DELETE WHEN MATCHED THEN UPDATE SET {rest}"
            f" WHEN NOT MATCHED AND k._op = {UPSERT} THEN INSERT ({columns}) VALUES ({values})"
        )
        with self._engine().cursor({"hot_changes": changes}) as cursor:
            # Without RETURNING: for that DuckDB would also rewrite the keys.
            [[touched]] = cursor.execute(command).fetchall()
            [[rows]] = cursor.execute(f"SELECT count(*) FROM {held.relation}").fetchall()
        deleted = touched - pc.sum(pc.equal(last["_op"], UPSERT)).as_py()
        held.replaced += touched - (rows - held.rows + deleted)
        return int(rows) - held.rows

    # -- loading -----------------------------------------------------------------------------------------------

    def _missed(self, table: OpenTable) -> None:
        with self._lock:
            self._misses[table.name] = self._misses.get(table.name, 0) + 1
            if not self._auto_reads or table.name in self._tables:
                return
            recent = self._recent.setdefault(table.name, deque(maxlen=self._auto_reads))
            recent.append(time.monotonic())
            wanted = len(recent) == self._auto_reads and recent[-1] - recent[0] <= _WINDOW_S
        if wanted:
            self._load_in_background(table, pinned=False)

    def _load_in_background(self, table: OpenTable, *, pinned: bool) -> None:
        with self._lock:
            if table.name in self._loading:
                return
            self._loading.add(table.name)

        def run() -> None:
            try:
                self._load(table, pinned=pinned)
            except NotFound:
                return  # dropped meanwhile
            except Exception as error:
                # The table is read from its files meanwhile; the next read tries again.
                self._note_failure(table.name, error)
            finally:
                with self._lock:
                    self._loading.discard(table.name)

        threading.Thread(target=run, name="crannog-hot-load", daemon=True).start()

    def _note_failure(self, name: TableName, error: Exception) -> None:
        text = error.message if isinstance(error, CrannogError) else f"{type(error).__name__}: {error}"
        with self._lock:
            before = self._failed.get(name)
            self._failed[name] = FailedLoad(text, before.failures + 1 if before else 1, time.time())
        # Log each reason once: every read tries again.
        if before is None or before.error != text:
            log.warning("cannot load %s into memory, reading its files instead: %s", name, text)

    def _load(self, table: OpenTable, *, pinned: bool) -> HotTable:
        with self._load_lock:
            # How much a copy takes is known when it is there; the limit of all is checked then.
            self._engine().make_room(self.limit_bytes)
            try:
                return table.newest(lambda snapshot: self._load_snapshot(table, snapshot, pinned=pinned))
            finally:
                self._make_room_for(0)

    def _make_room_for(self, grown_bytes: int) -> None:
        """Keep the memory limit of DuckDB at that of its queries and what the copies take; `grown_bytes` are added to them."""
        with self._lock:
            before = self._grown_bytes
            self._grown_bytes = before + grown_bytes if grown_bytes else 0
            is_due = not grown_bytes or before // _GROWTH_STEP_BYTES != self._grown_bytes // _GROWTH_STEP_BYTES
        if is_due or not before:
            engine = self._engine()
            engine.make_room(min(_memory(engine) + grown_bytes + _GROWTH_STEP_BYTES, self.limit_bytes))

    def _load_snapshot(self, table: OpenTable, snapshot: Snapshot, *, pinned: bool) -> HotTable:
        import duckdb

        engine = self._engine()
        estimate = _estimate(snapshot)
        self._check_room(table.name, estimate // 4, pinned=pinned)
        relation = f"hot_{next(self._numbers)}"
        query, tables = table.relation(snapshot, "hot")
        before = _memory(engine)
        with engine.cursor(tables) as cursor:
            rows = written(cursor, f"CREATE TABLE {relation} AS {query}")
            if pinned and len(snapshot.key) == 1:
                # A third more memory, and lookups by key take the same time whatever the number of rows.
                with suppress(duckdb.Error):  # a type that DuckDB has no index for
                    cursor.execute(f"CREATE INDEX {relation}_key ON {relation} ({quoted(snapshot.key[0])})")
        size = max(_memory(engine) - before, 0)
        try:
            self._check_room(table.name, size, pinned=pinned)
        except Overloaded:
            self._drop(relation)
            raise
        held = HotTable(
            table.name,
            relation,
            snapshot.base.table_id,
            snapshot.base.version,
            snapshot.base.read_schema,
            snapshot.sequence,
            rows,
            size,
            pinned,
        )
        with self._lock:
            old = self._tables.get(table.name)
            if old is not None:
                held.hits, held.pinned = old.hits, old.pinned or pinned
            self._tables[table.name] = held
            self._failed.pop(table.name, None)
        table.before_fold = lambda snapshot: self.follow(table, snapshot)
        if old is not None:
            self._retire(old)
        return held

    def _check_room(self, name: TableName, size: int, *, pinned: bool) -> None:
        """Make room by evicting the least recently used copies. Raises Overloaded if there is too little."""
        while True:
            with self._lock:
                others = [held for held in self._tables.values() if held.name != name]
                used = sum(held.bytes for held in others)
                if used + size <= self.limit_bytes:
                    return
                loaded = sorted((held for held in others if not held.pinned), key=lambda held: held.last_access)
            if not loaded:
                held_bytes = f", pinned tables take {used:,}" if used else ""
                raise Overloaded(
                    f"cannot {'pin' if pinned else 'load'} {name}: it takes about {size:,} bytes{held_bytes} and the limit is"
                    f" {self.limit_bytes:,}; evict a table or raise CRANNOG_CACHE_BYTES"
                )
            self.evict(loaded[0].name)

    def _drop(self, relation: str) -> None:
        with self._engine().cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {relation}")
        if not self._load_lock.locked():  # a load sets the limit when it ends
            self._make_room_for(0)


def _memory(engine: DuckDBEngine) -> int:
    with engine.cursor() as cursor:
        [[size]] = cursor.execute(
            "SELECT sum(memory_usage_bytes) FROM duckdb_memory() WHERE tag IN ('IN_MEMORY_TABLE', 'ART_INDEX')"
        ).fetchall()
    return int(size or 0)


def _estimate(snapshot: Snapshot) -> int:
    widths = sum(field.type.bit_width // 8 if _is_fixed(field.type) else 24 for field in snapshot.base.schema)
    return (snapshot.base.rows + snapshot.tail.row_count) * widths


def _is_fixed(kind: pa.DataType) -> bool:
    try:
        return bool(kind.bit_width)
    except ValueError:
        return False


def _keeps_rows(table: OpenTable, since: int, until: int) -> bool:
    """Tell whether every commit after `since` left the visible rows unchanged; also False if the log is too short."""
    done = {entry.version: entry.operation for entry in log_entries(table, after=since)}
    return all(done.get(version) in _KEEPS_ROWS for version in range(since + 1, until + 1))
