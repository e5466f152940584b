"""Statements that were run before: to run one again on the cursor that has it bound saves half the time of a short one."""

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


class Bound:
    """A cursor and the statement it has bound, lent for one run."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self.cursor = cursor
        self.again = True
        """Whether the cursor may be lent again: not one that was interrupted, since that may come late and hit the next."""
        self._known: OrderedDict[str, duckdb.DuckDBPyRelation] = OrderedDict()

    def has(self, sql: str) -> bool:
        return sql in self._known

    def relation(self, sql: str) -> duckdb.DuckDBPyRelation:
        """Return the statement, bound; DuckDB's errors are those of a statement it cannot bind."""
        found = self._known.pop(sql, None)
        if found is None:
            found = self.cursor.sql(sql)
            if len(self._known) >= _STATEMENTS:
                self._known.popitem(last=False)
        self._known[sql] = found
        return found


class BoundStatements:
    """Lends cursors, those first that know the statement. Safe for threads."""

    def __init__(
        self, new: Callable[[], duckdb.DuckDBPyConnection], close: Callable[[duckdb.DuckDBPyConnection], None]
    ) -> None:
        self._new = new
        self._close = close
        self._idle: list[Bound] = []
        self._lock = threading.Lock()

    @contextmanager
    def lent(self, sql: str) -> Iterator[Bound]:
        """Lend a cursor for a statement; after an error it is not lent again."""
        bound = self._taken(sql)
        try:
            yield bound
        except BaseException:
            bound.again = False
            raise
        finally:
            with self._lock:
                keep = bound.again and len(self._idle) < _IDLE_CURSORS
                if keep:
                    self._idle.append(bound)
            if not keep:
                self._close(bound.cursor)

    def forget(self) -> None:
        """Let go of the cursors that are not lent, and of what they have bound."""
        with self._lock:
            idle, self._idle = self._idle, []
        for bound in idle:
            self._close(bound.cursor)

    def _taken(self, sql: str) -> Bound:
        with self._lock:
            if self._idle:
                place = next((place for place, bound in enumerate(self._idle) if bound.has(sql)), -1)
                return self._idle.pop(place)
        return Bound(self._new())
