"""Tables held in memory, by name."""

from __future__ import annotations

from typing import Any

from crannog.engine.sql.hot_tables import HotCache
from crannog.engine.tables import Tables
from crannog.names import TableName


class Cache:
    """What is held in memory and what for: `pin`, `evict`, `stats`."""

    def __init__(self, hot: HotCache, tables: Tables) -> None:
        self._hot = hot
        self._tables = tables

    def pin(self, name: str) -> dict[str, Any]:
        """Hold a table in memory until it is evicted, and return its figures; Overloaded if it does not fit."""
        return self._hot.pin(self._tables.open(TableName.parse(name)))

    def evict(self, name: str) -> bool:
        """Let go of a table; False if it was not held. NotFound if there is no such table."""
        table = TableName.parse(name)
        if self._hot.evict(table):
            return True
        self._tables.open(table)
        return False

    def stats(self) -> dict[str, Any]:
        """Return the tables held (rows, bytes, hits, misses, last access, version, state) and the limit."""
        return self._hot.stats()
