"""Staged rows as DuckDB tables.

Registering Arrow tables with DuckDB costs 2 ms per query, and a statement over them cannot be prepared once and reused.
So the staged rows of a snapshot that is read a second time are copied into tables, which are dropped with the snapshot.
"""

from __future__ import annotations

import threading
import weakref

import pyarrow as pa

from crannog.engine.duckdb.engine import DuckDBEngine

_MAX_BYTES = 32 * 1024**2


class StagedTables:
    """The copies for one snapshot. Thread-safe."""

    def __init__(self) -> None:
        self._names: dict[str, str | None] = {}
        self._lock = threading.Lock()

    def name(self, engine: DuckDBEngine, what: str, rows: pa.Table) -> str | None:
        """Return the name of the table with these rows; None if the caller must register them, as on the first read."""
        with self._lock:
            if what not in self._names:
                self._names[what] = None
            elif self._names[what] is None and rows.nbytes <= _MAX_BYTES:
                made = engine.create_table(rows)
                self._names[what] = made
                weakref.finalize(self, engine.unused_tables.append, made)
            return self._names[what]
