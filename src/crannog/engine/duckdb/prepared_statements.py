"""Prepared statements: running a short statement again on the cursor that prepared it takes half the time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_IDLE_CURSORS = 16
_STATEMENTS = 64


class PreparedStatements:
    """A cursor and the statements it has prepared."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self.cursor = cursor
        self.is_reusable = True
        """False after an interrupt, which may arrive late and hit the next statement."""
        self._prepared: OrderedDict[str, duckdb.DuckDBPyRelation] = OrderedDict()

    def has(self, sql: str) -> bool:
        return sql in self._prepared

    def relation(self, sql: str) -> duckdb.DuckDBPyRelation:
        """Return the prepared statement. Raises DuckDB's error if it cannot be prepared."""
        found = self._prepared.pop(sql, None)
        if found is None:
            found = self.cursor.sql(sql)
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
