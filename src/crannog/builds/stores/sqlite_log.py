"""The log in a SQLite file, or in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crannog.builds.stores.database_log import DatabaseLog
from crannog.builds.stores.sqlite_database import SqliteDatabase


class SqliteLog(DatabaseLog[SqliteDatabase]):
    """Events in one SQLite file (`path=None`: in memory, for as long as the log is open)."""

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
