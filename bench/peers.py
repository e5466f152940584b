"""The peers: a plain Spark Delta table, a delta-rs table and SQLite with synchronous=FULL, on the same rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from data import COLUMNS
from deltalake import DeltaTable, write_deltalake


class SparkDelta:
    """Delta through its own Spark writer, tuned as the pipeline's session is."""

    def __init__(self, session: Any, folder: Path) -> None:
        self.session = session
        self.folder = str(folder)

    def append(self, rows: pa.Table) -> None:
        self.session.createDataFrame(rows).write.format("delta").mode("append").save(self.folder)

    def merge(self, rows: pa.Table) -> None:
        from delta.tables import DeltaTable as SparkTable

        target = SparkTable.forPath(self.session, self.folder)
        source = self.session.createDataFrame(rows)
        (
            target.alias("t")
            .merge(source.alias("s"), "t.order_id = s.order_id")
            .whenMatchedUpdateAll()
            .whenNotMatchedInsertAll()
            .execute()
        )

    def optimize(self, *columns: str) -> None:
        from delta.tables import DeltaTable as SparkTable

        SparkTable.forPath(self.session, self.folder).optimize().executeZOrderBy(*columns)


class DeltaRs:
    """Delta through delta-rs, which does not sync what it writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def append(self, rows: pa.Table) -> None:
        write_deltalake(self.folder, rows, mode="append")

    def merge(self, rows: pa.Table) -> None:
        merger = DeltaTable(self.folder).merge(rows, "t.order_id = s.order_id", source_alias="s", target_alias="t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()


class Sqlite:
    """SQLite in WAL mode that syncs at every commit."""

    def __init__(self, file: Path) -> None:
        self.connection = sqlite3.connect(file, check_same_thread=False)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute(f"CREATE TABLE orders (order_id TEXT PRIMARY KEY, {', '.join(COLUMNS[1:])})")
        marks = ", ".join(f":{name}" for name in COLUMNS)
        self._insert = f"INSERT OR REPLACE INTO orders VALUES ({marks})"

    def append(self, rows: Sequence[dict[str, Any]]) -> None:
        # SQLite has no time type: its usual form is text.
        given = [{**row, "ordered_at": row["ordered_at"].isoformat()} for row in rows]
        with self.connection:
            self.connection.executemany(self._insert, given)
