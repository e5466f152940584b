"""The log in PostgreSQL: a few connections, one writer at a time, the driver's errors as errors of Crannog."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import errors as pg_errors

from crannog.builds.open_log import without_password
from crannog.builds.read_model.tables import ALL_TABLES, Connection, SqlValue
from crannog.builds.stores.read_model_log import DatabaseLog
from crannog.errors import CallerError, CrannogError, Overloaded, Refused, Unavailable

_IDLE_CONNECTIONS = 8
_CONNECT_TIMEOUT_S = 10
# One writer at a time: an index is assigned once all lower ones are committed, so that no reader can miss one.
_WRITER_LOCK = 7_117_001

_WRONG_ADDRESS = ("does not exist", "authentication failed", "no pg_hba.conf entry", "no password supplied")
_NOTHING = "$.^"  # no text matches
_SPECIAL = frozenset("\\^$.|?*+()[]{}")


@lru_cache(maxsize=512)
def _translated(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")


class PostgresConnection:
    """A connection in autocommit mode; the database opens and ends its transactions."""

    flavour = "postgresql"

    def __init__(self, connection: Any) -> None:
        self.raw = connection

    def query(self, sql: str, values: Sequence[SqlValue] = ()) -> list[tuple[Any, ...]]:
        return list(self.raw.execute(_translated(sql), values).fetchall())

    def run(self, sql: str, values: Sequence[SqlValue] = ()) -> int:
        return int(self.raw.execute(_translated(sql), values).rowcount)

    def run_many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        listed = list(rows)
        if listed:
            with self.raw.cursor() as cursor:
                cursor.executemany(_translated(sql), listed)

    def matches_glob(self, column: str) -> str:
        return f"{column} ~ ?"

    def glob_value(self, pattern: str) -> str:
        return glob_to_regex(pattern)

    def without_index(self, column: str) -> str:
        return column


class PostgresDatabase:
    """A database by its URI. Safe for threads; any number of processes may use it at once."""

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
                raise CallerError(f"{self._name!r} is not the URI of a PostgreSQL database: {_line(error)}") from None
            except psycopg.OperationalError as error:
                # Errors that the server reports while connecting have no class of their own.
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
                self._forget_idle()  # the server closed the connection: the others are closed too
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
        """Lend a connection in a transaction while no other writer has one."""
        with self._lent() as connection, connection.raw.transaction():
            # By schema: two logs in one database do not wait for each other.
            connection.raw.execute("SELECT pg_advisory_xact_lock(%s, hashtext(current_schema()))", (_WRITER_LOCK,))
            yield connection

    @contextmanager
    def reading(self, *, snapshot: bool = False) -> Iterator[PostgresConnection]:
        """Lend a connection for reading; with `snapshot` all its queries see one state."""
        with self._lent() as connection:
            if not snapshot:
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
            raise to_crannog_error(error, self._name) from error

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._forget_idle()


def to_crannog_error(error: psycopg.Error, name: str) -> CrannogError:
    """Return the error of Crannog that corresponds to an error of PostgreSQL."""
    if isinstance(error, (pg_errors.ReadOnlySqlTransaction, pg_errors.InsufficientPrivilege)):
        return Refused(f"the build log at {name} is read-only for this user: {_line(error)}")
    if isinstance(error, (pg_errors.TooManyConnections, pg_errors.LockNotAvailable, pg_errors.DeadlockDetected)):
        return Overloaded(f"{name} is busy: {_line(error)}", retry_after_s=1.0)
    return Unavailable(f"the build log at {name} failed: {_line(error)}")


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class PostgresLog(DatabaseLog[PostgresDatabase]):
    """Events in one PostgreSQL database, in the default schema of the connection."""

    def __init__(self, uri: str, *, check_states: bool = False) -> None:
        name = without_password(uri)
        super().__init__(name, PostgresDatabase(uri, name), check_states=check_states)

    def _batched(self, model: Connection) -> AbstractContextManager[object]:
        assert isinstance(model, PostgresConnection)
        few_round_trips: AbstractContextManager[object] = model.raw.pipeline()
        return few_round_trips

    def size(self) -> tuple[int | None, dict[str, Any]]:
        with self.database.reading() as model:
            [(total,)] = model.query(
                "SELECT COALESCE(sum(pg_total_relation_size(to_regclass(name))), 0) FROM unnest(?::text[]) AS name",
                (list(ALL_TABLES),),
            )
            [(version,)] = model.query("SHOW server_version")
        return int(total), {"backend": "postgresql", "server_version": version}

    def give_back_space(self) -> None:
        """Free the space of removed events with VACUUM, while writers continue."""
        with self.database.reading() as model:
            for table in ALL_TABLES:
                model.run(f"VACUUM {table}")


def glob_to_regex(pattern: str) -> str:
    """Return the regular expression of PostgreSQL that matches exactly what SQLite's GLOB matches: `*`, `?` and `[…]`."""
    found, place = ["^"], 0
    while place < len(pattern):
        letter = pattern[place]
        place += 1
        if letter == "*":
            found.append(".*")
        elif letter == "?":
            found.append(".")
        elif letter == "[":
            end, expression = _set(pattern, place)
            if end is None:
                return _NOTHING  # a set without an end matches nothing
            found.append(expression)
            place = end
        else:
            found.append(f"\\{letter}" if letter in _SPECIAL else letter)
    return "".join(found) + "$"


def _set(pattern: str, start: int) -> tuple[int | None, str]:
    """Read a set after its opening bracket; return its end and its regular expression."""
    place = start
    negated = pattern[place : place + 1] in ("^", "!")
    place += negated
    first = place
    # A closing bracket that comes first is part of the set.
    end = pattern.find("]", first + 1)
    if first >= len(pattern) or end < 0:
        return None, ""
    inside = pattern[first:end]
    escaped = "".join(f"\\{letter}" if letter in "\\[]^" else letter for letter in inside)
    return end + 1, f"[{'^' if negated else ''}{escaped}]"
