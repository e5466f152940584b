"""The read model of a Delta log: a SQLite file that follows the table in commit order.

It holds the state of the table at one sequence, which it records. It can always be rebuilt: a power failure may lose its
last transactions, which are then applied again, and if it disagrees with the table it is rebuilt. Processes on one
machine share it, and the first one to see a change applies it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from crannog.builds.events import BuildEvent
from crannog.builds.read_model.apply import add_events, remove_events
from crannog.builds.read_model.tables import (
    ALL_TABLES,
    SCHEMA_VERSION,
    Connection,
    create_tables,
    get_meta,
    last_index,
    prepare,
    set_meta,
)
from crannog.builds.stores.event_table import KEY, SCHEMA, events_of
from crannog.builds.stores.sqlite_log import SqliteDatabase
from crannog.engine.duckdb.engine import quoted
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read
from crannog.errors import CallerError, Corrupted, CrannogError, Refused

_FILE_FORMAT = f"1.{SCHEMA_VERSION}"
_PIECE = 20_000


@dataclass(frozen=True, slots=True)
class TableChange:
    """The change that one sequence made to the table: events added or indexes removed, in order."""

    sequence: int
    added: tuple[BuildEvent, ...] = ()
    removed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """How far a model or a reader has followed the table."""

    sequence: int
    last_index: int


class DeltaReadModel:
    """The model of one table. Safe for threads and processes."""

    def __init__(self, path: Path | None, table_id: str) -> None:
        self.path = path
        self.table_id = table_id
        self.database = self._open()

    def _open(self) -> SqliteDatabase:
        try:
            return self._prepared()
        except (Corrupted, Refused):
            # A damaged file, or one of another version: it is rebuilt from the table.
            try:
                self._discard()
            except OSError:
                self.path = None  # the file belongs to another user
            return self._prepared()
        except CallerError:
            # The folder is read-only: a model in memory works too, but is filled at each opening.
            self.path = None
            return self._prepared()

    def _prepared(self) -> SqliteDatabase:
        database = SqliteDatabase(self.path, durable=False)
        try:
            with database.writing() as model:
                prepare(model, str(self.path))
                if (get_meta(model, "table_id"), get_meta(model, "file_format")) != (self.table_id, _FILE_FORMAT):
                    self.clear(model)
            return database
        except BaseException:
            database.close()
            raise

    def _discard(self) -> None:
        if self.path is not None:
            for suffix in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    Path(f"{self.path}{suffix}").unlink()

    def reopen(self) -> None:
        """Create the file again after it was found damaged."""
        with suppress(sqlite3.Error):
            self.database.close()
        self._discard()
        self.database = self._prepared()

    def clear(self, model: Connection) -> None:
        """Empty the model; part of a transaction."""
        for table in ALL_TABLES:
            model.run(f"DROP TABLE IF EXISTS {table}")
        create_tables(model)
        set_meta(model, "schema_version", str(SCHEMA_VERSION))
        set_meta(model, "table_id", self.table_id)
        set_meta(model, "file_format", _FILE_FORMAT)

    @staticmethod
    def position(model: Connection) -> Position:
        return Position(int(get_meta(model, "sequence") or 0), last_index(model))

    def apply(self, changes: Sequence[TableChange]) -> bool:
        """Apply the changes that the model lacks, in one transaction; False if changes before them are missing."""
        with self.database.writing() as model:
            at = self.position(model).sequence
            fresh = [change for change in changes if change.sequence > at]
            if not fresh:
                return True
            if fresh[0].sequence != at + 1:
                return False
            apply_changes(model, fresh)
            set_meta(model, "sequence", str(fresh[-1].sequence))
        return True


def apply_changes(model: Connection, changes: Iterable[TableChange]) -> None:
    """Apply changes in order, consecutive additions together."""
    waiting: list[BuildEvent] = []
    for change in changes:
        waiting.extend(change.added)
        if change.removed:
            if waiting:
                add_events(model, waiting)
                waiting = []
            remove_events(model, change.removed)
    if waiting:
        add_events(model, waiting)


def load_base(model: Connection, table: OpenTable, snapshot: Snapshot, *, largest_assigned: int) -> None:
    """Bring the model to the base of `snapshot`, at its folded sequence, within a transaction.

    A model only lacks events at its end, and may have events that were removed since; their indexes show both.
    """
    known = last_index(model)
    [(count,)] = model.query("SELECT count(*) FROM events WHERE idx <= ?", (known,))
    paths = snapshot.local_paths(list(snapshot.base.files))
    if count:
        present = _indexes(table, paths, known)
        if len(present) != count:
            stored = [index for (index,) in model.query("SELECT idx FROM events ORDER BY idx")]
            remove_events(model, [index for index in stored if index not in present])
    for rows in _after(table, paths, known):
        add_events(model, list(events_of(rows)))
    set_meta(model, "last_index", str(max(last_index(model), largest_assigned)))
    set_meta(model, "sequence", str(snapshot.base.folded))


def _indexes(table: OpenTable, paths: list[str], until: int) -> set[int]:
    if not paths:
        return set()
    engine = table.warehouse.duckdb
    columns = pa.schema([SCHEMA.field(KEY)])
    with engine.cursor() as cursor:
        found = read(
            cursor, f"SELECT {quoted(KEY)} FROM {engine.scan(paths, columns)} WHERE {quoted(KEY)} <= {int(until)}"
        )
    return set(found.column(0).to_pylist())


def _after(table: OpenTable, paths: list[str], known: int) -> Iterator[pa.Table]:
    """Yield the rows after an index, in order and in chunks; statistics of the files skip the others."""
    if not paths:
        return
    engine = table.warehouse.duckdb
    names = ", ".join(map(quoted, SCHEMA.names))
    while True:
        query = (
            f"SELECT {names} FROM {engine.scan(paths, SCHEMA)} WHERE {quoted(KEY)} > {int(known)}"
            f" ORDER BY {quoted(KEY)} LIMIT {_PIECE}"
        )
        with engine.cursor() as cursor:
            rows = read(cursor, query)
        if not rows.num_rows:
            return
        yield rows
        known = rows.column(KEY)[-1].as_py()


def model_path(table: OpenTable, model: str | Path | None) -> Path | None:
    """Return where the model of a table is kept, see `DeltaLog`; None is memory."""
    if model == "memory":
        return None
    if model is not None:
        return Path(model).absolute()
    storage = table.warehouse.storage
    if storage.is_local:
        folder = f"{table.log.own_folder}/builds"
        try:
            storage.make_folder(folder)
        except CrannogError:
            return None  # the warehouse is read-only
        return Path(storage.uri(folder)) / "model.sqlite"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "crannog" / "builds"
    cache.mkdir(0o700, parents=True, exist_ok=True)  # the events are for their user alone
    return cache / f"{table.log.table_id}.sqlite"
