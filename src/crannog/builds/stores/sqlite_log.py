"""The log in a SQLite file or in memory, and copies in memory of the state of a log at an earlier index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from crannog.builds.events import BuildEvent
from crannog.builds.log import whole_number
from crannog.builds.read_model.apply import add_events
from crannog.builds.stores.database_log import DatabaseLog
from crannog.builds.stores.sqlite_database import SqliteDatabase
from crannog.errors import Refused

if TYPE_CHECKING:
    from crannog.builds.log import EventLog

_CHUNK = 5_000


class SqliteLog(DatabaseLog[SqliteDatabase]):
    """Events in one SQLite file, or in memory while the log is open if `path` is None."""

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


class PastLog(SqliteLog):
    """A read-only copy, in memory, of a log as of one index."""

    def __init__(self, uri: str, events: Iterable[BuildEvent]) -> None:
        super().__init__(uri, None)
        stream = iter(events)
        with self.database.writing() as model:
            while chunk := list(islice(stream, _CHUNK)):
                add_events(model, chunk)

    def append_events(self, events: Iterable[BuildEvent], *, check_states: bool | None = None) -> NoReturn:
        raise Refused(f"{self.uri} is read-only: it shows an earlier state")

    def remove_events(self, indexes: Iterable[int]) -> NoReturn:
        raise Refused(f"{self.uri} is read-only: it shows an earlier state")


def past_log(log: EventLog, index: int) -> PastLog:
    """Return a copy of the log with the events up to `index`."""
    whole_number(index, "index", least=0, most=2**62)
    return PastLog(f"{log.uri} as of index {index}", log.all_events(until=index))
