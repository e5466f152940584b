"""A log as it stood at an earlier index: its events up to there, in a read model of their own in memory."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, NoReturn

from crannog.builds.events import BuildEvent
from crannog.builds.log import whole_number
from crannog.builds.read_model.apply import add_events
from crannog.builds.stores.sqlite_log import SqliteLog
from crannog.errors import Refused

if TYPE_CHECKING:
    from crannog.builds.log import EventLog

_CHUNK = 5_000


class PastLog(SqliteLog):
    """What a log held at one index; it can be read, and nothing else."""

    def __init__(self, uri: str, events: Iterable[BuildEvent]) -> None:
        super().__init__(uri, None)
        stream = iter(events)
        with self.database.writing() as model:
            while chunk := list(islice(stream, _CHUNK)):
                add_events(model, chunk)

    def append_events(self, events: Iterable[BuildEvent], *, check_states: bool | None = None) -> NoReturn:
        raise Refused(f"{self.uri} is the past: it cannot be written")

    def remove_events(self, indexes: Iterable[int]) -> NoReturn:
        raise Refused(f"{self.uri} is the past: it cannot be written")


def past_log(log: EventLog, index: int) -> PastLog:
    """Return the log as it stood when it held the events up to `index`."""
    whole_number(index, "index", least=0, most=2**62)
    return PastLog(f"{log.uri} as of index {index}", log.all_events(until=index))
