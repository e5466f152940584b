"""The log in a SQLite file or in memory, and copies in memory of the state of a log at an earlier index.

SQLite has one writer, concurrent readers, and here never "database is locked": write-ahead logging lets readers continue
during a write, writers take the lock at the start of their transaction and wait for it, and the few operations that SQLite
does not wait for (switching to the write-ahead log, recovery) are retried.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from crannog.builds.events import BuildEvent
from crannog.builds.read_model.apply import add_events
from crannog.builds.read_model.tables import SqlValue
from crannog.builds.stores.read_model_log import DatabaseLog
from crannog.errors import CallerError, Corrupted, CrannogError, Overloaded, Refused, Unavailable

T = TypeVar("T")
_PATIENCE_S = 60.0
_IDLE_READERS = 8
_CACHE_KIB = 32 * 1024


class SqliteConnection:
    """A connection in autocommit mode; the database opens and ends its transactions."""

    flavour = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.raw = connection

    def query(self, sql: str, values: Sequence[SqlValue] = ()) -> list[tuple[Any, ...]]:
        return self.raw.execute(sql, values).fetchall()

    def run(self, sql: str, values: Sequence[SqlValue] = ()) -> int:
        return self.raw.execute(sql, values).rowcount

    def run_many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        self.raw.executemany(sql, rows)

    def matches_glob(self, column: str) -> str:
        return f"{column} GLOB ?"

    def glob_value(self, pattern: str) -> str:
        # SQLite negates a set with ^, where shells, and PostgreSQL's half of this, take ! as well.
        return pattern.replace("[!", "[^")

    def without_index(self, column: str) -> str:
        return f"+{column}"


class SqliteDatabase:
    """A file, or memory if `path` is None. Safe for threads and, as a file, for processes.

    With `durable` a transaction is on disk when it ends (`synchronous=FULL`). Otherwise a power failure may lose the
    last transactions but never damages the file: enough for a model that catches up anyway.
    """

    def __init__(self, path: Path | None, *, durable: bool) -> None:
        self.path = path
        self._durable = durable
        self._write_lock = threading.RLock()
        self._pool_lock = threading.Lock()
        self._idle: list[SqliteConnection] = []
        self._closed = False
        self._name = "sqlite::memory:" if path is None else str(path)
        is_new = path is not None and not path.exists()
        self._writer = self._connect()
        if is_new and path is not None:
            _sync_folder(path.parent)

    @contextmanager
    def writing(self) -> Iterator[SqliteConnection]:
        """Lend the writing connection in a transaction that commits at the end and rolls back on an error."""
        with self._write_lock, self._translated():
            self._check_open()
            connection = self._writer
            self._patiently(lambda: connection.raw.execute("BEGIN IMMEDIATE"))
            try:
                yield connection
                self._patiently(lambda: connection.raw.execute("COMMIT"))
            except BaseException:
                if connection.raw.in_transaction:
                    with suppress(sqlite3.Error):
                        connection.raw.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self, *, snapshot: bool = False) -> Iterator[SqliteConnection]:
        """Lend a connection for reading; with `snapshot` all its queries see one state."""
        if self.path is None:
            with self._write_lock, self._translated():  # a database in memory has one connection
                self._check_open()
                yield self._writer
            return
        with self._pool_lock:
            self._check_open()
            connection = self._idle.pop() if self._idle else None
        with self._translated():
            if connection is None:
                connection = self._connect()
            try:
                if snapshot:
                    connection.raw.execute("BEGIN")
                yield connection
            finally:
                if connection.raw.in_transaction:
                    connection.raw.execute("ROLLBACK")
                self._give_back(connection)

    def _give_back(self, connection: SqliteConnection) -> None:
        with self._pool_lock:
            if len(self._idle) < _IDLE_READERS and not self._closed:
                self._idle.append(connection)
                return
        connection.raw.close()

    def _connect(self) -> SqliteConnection:
        with self._translated():
            return self._patiently(self._open)

    def _open(self) -> SqliteConnection:
        raw = sqlite3.connect(
            ":memory:" if self.path is None else f"{self.path.as_uri()}?mode=rwc",
            timeout=_PATIENCE_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            uri=self.path is not None,
        )
        try:
            if self.path is not None:
                mode = raw.execute("PRAGMA journal_mode").fetchone()[0]
                if mode != "wal":
                    raw.execute("PRAGMA journal_mode = WAL")
                raw.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
                raw.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            raw.execute("PRAGMA temp_store = MEMORY")
        except BaseException:
            raw.close()
            raise
        return SqliteConnection(raw)

    def _patiently(self, act: Callable[[], T]) -> T:
        ends = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return act()
            except sqlite3.OperationalError as error:
                if not _is_busy(error):
                    raise
                if time.monotonic() > ends:
                    raise Overloaded(
                        f"{self._name} was busy for {_PATIENCE_S:.0f} s; try again", retry_after_s=1.0
                    ) from error
                time.sleep(0.005)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise to_crannog_error(error, self._name) from error

    def _check_open(self) -> None:
        if self._closed:
            raise CallerError(f"the build log at {self._name} is closed; open it again")

    def bytes(self) -> int | None:
        """Return the size of the file and its write-ahead log."""
        if self.path is None:
            with self.reading() as connection:
                [(pages,)], [(size,)] = connection.query("PRAGMA page_count"), connection.query("PRAGMA page_size")
                return int(pages) * int(size)
        files = [self.path, self.path.with_name(self.path.name + "-wal")]
        return sum(file.stat().st_size for file in files if file.exists())

    def give_back_space(self) -> None:
        """Return the space of removed rows to the file system; writers wait during it."""
        with self._write_lock, self._translated():
            self._check_open()
            self._patiently(lambda: self._writer.raw.execute("VACUUM"))
            if self.path is not None:
                self._writer.raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        with self._write_lock, self._pool_lock:
            if self._closed:
                return
            self._closed = True
            for connection in (*self._idle, self._writer):
                connection.raw.close()
            self._idle.clear()


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def to_crannog_error(error: sqlite3.Error, name: str) -> CrannogError:
    """Return the error of Crannog that corresponds to an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return Refused(
            f"the build log at {name} is read-only: {error}; check the permissions of the file and its folder"
        )
    if code == sqlite3.SQLITE_CANTOPEN:
        return CallerError(
            f"cannot open a build log at {name}: {error}; check that its folder exists and may be written to"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Corrupted(
            f"{name} is not a build log or is damaged: {error}; restore it from a backup or give another file"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Overloaded(f"{name} is busy: {error}; try again", retry_after_s=1.0)
    return Unavailable(f"the build log at {name} failed: {error}")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_CHUNK = 5_000


class SqliteLog(DatabaseLog[SqliteDatabase]):
    """Events in one SQLite file, or in memory while the log is open if `path` is None."""

    def __init__(self, uri: str, path: Path | None, *, check_states: bool = False) -> None:
        super().__init__(uri, SqliteDatabase(path, durable=True), check_states=check_states)

    def size(self) -> tuple[int | None, dict[str, Any]]:
        return self.database.bytes(), {
            "backend": "sqlite",
            "file": None if self.database.path is None else str(self.database.path),
        }

    def give_back_space(self) -> None:
        """Return the space of removed events to the file system."""
        self.database.give_back_space()

    def check_store(self) -> Iterator[str]:
        with self.database.reading() as model:
            for (line,) in model.query("PRAGMA integrity_check"):
                if line != "ok":
                    yield f"SQLite says: {line}"


class PastLog(SqliteLog):
    """A read-only copy, in memory, of a log as of one index."""

    def __init__(self, uri: str, events: Iterable[BuildEvent]) -> None:
        super().__init__(uri, None)
        stream = iter(events)
        with self.database.writing() as model:
            while chunk := list(islice(stream, _CHUNK)):
                add_events(model, chunk)

    def append_events(self, events: Iterable[BuildEvent], *, check_states: bool | None = None) -> NoReturn:
        raise Refused(f"{self.uri} is read-only: it shows an earlier state")

    def remove_events(self, indexes: Iterable[int]) -> NoReturn:
        raise Refused(f"{self.uri} is read-only: it shows an earlier state")
