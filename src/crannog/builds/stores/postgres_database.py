"""PostgreSQL as the database of a read model: a few connections, one writer at a time, errors in our words."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import errors as pg_errors

from crannog.builds.read_model.globs import glob_to_regex
from crannog.errors import CallerError, CrannogError, Overloaded, Refused, Unavailable

_IDLE_CONNECTIONS = 8
_CONNECT_TIMEOUT_S = 10
# One writer at a time: an index is given when all before it are committed, so that no reader can step over one.
_WRITER_LOCK = 7_117_001

_WRONG_ADDRESS = ("does not exist", "authentication failed", "no pg_hba.conf entry", "no password supplied")


@lru_cache(maxsize=512)
def _translated(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")


class PostgresConnection:
    """A connection in autocommit; the database brackets transactions around it."""

    flavour = "postgresql"

    def __init__(self, connection: Any) -> None:
        self.raw = connection

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return list(self.raw.execute(_translated(sql), values).fetchall())

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        return int(self.raw.execute(_translated(sql), values).rowcount)

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        listed = list(rows)
        if listed:
            with self.raw.cursor() as cursor:
                cursor.executemany(_translated(sql), listed)

    def matches_glob(self, column: str) -> str:
        return f"{column} ~ ?"

    def glob(self, pattern: str) -> str:
        return glob_to_regex(pattern)

    def aside(self, column: str) -> str:
        return column


class PostgresDatabase:
    """A database by its address. Safe for threads; any number of processes may use it at once."""

    def __init__(self, uri: str, name: str) -> None:
        self._uri = uri
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[PostgresConnection] = []
        self._closed = False
        self._give_back(self._connect())

    def _connect(self) -> PostgresConnection:
        with self._explained():
            try:
                raw = psycopg.connect(
                    self._uri, autocommit=True, connect_timeout=_CONNECT_TIMEOUT_S, application_name="crannog"
                )
            except psycopg.ProgrammingError as error:
                raise CallerError(f"{self._name!r} is no address of a PostgreSQL database: {_line(error)}") from None
            except psycopg.OperationalError as error:
                # What the server refuses while connecting comes without a class of its own.
                if any(words in str(error) for words in _WRONG_ADDRESS):
                    raise CallerError(f"cannot open a build log at {self._name}: {_line(error)}") from None
                raise
            [(mode,)] = raw.execute("SHOW synchronous_commit").fetchall()
            if mode == "off":
                raw.execute("SET synchronous_commit TO on")  # acknowledged means durable
            return PostgresConnection(raw)

    @contextmanager
    def _lent(self) -> Iterator[PostgresConnection]:
        with self._lock:
            if self._closed:
                raise CallerError(f"the build log at {self._name} is closed; open it again")
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self._connect()
        try:
            with self._explained():
                yield connection
        except BaseException:
            if connection.raw.closed or connection.raw.broken:
                self._forget_idle()  # the server went away: the others are gone too
            raise
        finally:
            self._give_back(connection)

    def _give_back(self, connection: PostgresConnection) -> None:
        with self._lock:
            keep = not self._closed and len(self._idle) < _IDLE_CONNECTIONS and not connection.raw.closed
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.raw.close()

    def _forget_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(psycopg.Error):
                connection.raw.close()

    @contextmanager
    def writing(self) -> Iterator[PostgresConnection]:
        """Lend a connection inside a transaction that no other writer shares."""
        with self._lent() as connection, connection.raw.transaction():
            # By schema: two logs in one database do not wait for each other.
            connection.raw.execute("SELECT pg_advisory_xact_lock(%s, hashtext(current_schema()))", (_WRITER_LOCK,))
            yield connection

    @contextmanager
    def reading(self, *, whole: bool = False) -> Iterator[PostgresConnection]:
        """Lend a connection to read with; `whole`: everything read sees one state."""
        with self._lent() as connection:
            if not whole:
                yield connection
                return
            with connection.raw.transaction():
                connection.raw.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                yield connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise explained(error, self._name) from error

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._forget_idle()


def explained(error: psycopg.Error, name: str) -> CrannogError:
    """Return what an error of PostgreSQL means for the caller."""
    if isinstance(error, (pg_errors.ReadOnlySqlTransaction, pg_errors.InsufficientPrivilege)):
        return Refused(f"the build log at {name} is read-only for this user: {_line(error)}")
    if isinstance(error, (pg_errors.TooManyConnections, pg_errors.LockNotAvailable, pg_errors.DeadlockDetected)):
        return Overloaded(f"{name} is busy: {_line(error)}", retry_after_s=1.0)
    return Unavailable(f"the build log at {name} failed: {_line(error)}")


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
