"""Staged rows as tables of the in-process engine.

To hand Arrow tables to DuckDB costs 2 ms a query, and a statement over them cannot be bound once and run again. So a
snapshot that is read a second time has its few staged rows copied into tables, which go when the snapshot does.
"""

from __future__ import annotations

import threading
import weakref

import pyarrow as pa

from crannog.engine.duckdb.engine import DuckDBEngine

_MAX_BYTES = 32 * 1024**2


class StagedTables:
    """The copies for one snapshot. Safe for threads."""

    def __init__(self) -> None:
        self._names: dict[str, str | None] = {}
        self._lock = threading.Lock()

    def name(self, engine: DuckDBEngine, what: str, rows: pa.Table) -> str | None:
        """Return the name of the table with these rows; None if they must be handed over, as the first time."""
        with self._lock:
            if what not in self._names:
                self._names[what] = None
            elif self._names[what] is None and rows.nbytes <= _MAX_BYTES:
                made = engine.create_table(rows)
                self._names[what] = made
                weakref.finalize(self, engine.unused_tables.append, made)
            return self._names[what]
