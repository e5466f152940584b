"""The log in a SQLite file, or in memory: the read model is the record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from crannog.builds.events import BuildEvent
from crannog.builds.intake import checked, find, plan
from crannog.builds.model.apply import add_events, remove_events
from crannog.builds.model.connection import Connection
from crannog.builds.model.tables import last_index, prepare
from crannog.builds.model_log import ModelLog, checked_indexes
from crannog.builds.sqlite_database import SqliteDatabase
from crannog.builds.transitions import check_changes


class SqliteLog(ModelLog):
    """Events in one SQLite file (`path=None`: in memory, for as long as the log is open)."""

    def __init__(self, uri: str, path: Path | None, *, check_states: bool = False) -> None:
        self.uri = uri
        self._check_states = check_states
        self.database = SqliteDatabase(path, durable=True)
        try:
            with self.database.writing() as model:
                self.migration = prepare(model, uri)
        except BaseException:
            self.database.close()
            raise

    def append_events(self, events: Iterable[BuildEvent]) -> list[int]:
        batch = checked(events)
        if not batch:
            return []
        with self.database.writing() as model:
            planned = plan(batch, find(model, [event.event_id for event in batch]), last_index(model))
            if self._check_states:
                check_changes(model, planned.fresh)
            if planned.fresh:
                add_events(model, planned.fresh)
        return planned.indexes

    def remove_events(self, indexes: Iterable[int]) -> int:
        listed = checked_indexes(indexes)
        with self.database.writing() as model:
            return remove_events(model, listed)

    def reading(self, *, whole: bool = False) -> AbstractContextManager[Connection]:
        return self.database.reading(whole=whole)

    def size(self) -> tuple[int | None, dict[str, Any]]:
        return self.database.bytes(), {"backend": "sqlite", "file": None if self.database.path is None else str(self.database.path)}

    def give_back_space(self) -> None:
        """Return the space of removed events to the file system."""
        self.database.give_back_space()

    def check_store(self) -> Iterator[str]:
        with self.database.reading() as model:
            for (line,) in model.query("PRAGMA integrity_check"):
                if line != "ok":
                    yield f"SQLite says: {line}"

    def close(self) -> None:
        self.database.close()
