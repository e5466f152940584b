"""One log in front of several: the first answers, all are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crannog.builds.append_plan import checked
from crannog.builds.events import BuildEvent
from crannog.builds.log import EventLog
from crannog.builds.stores.forwarding_log import ForwardingLog
from crannog.errors import CrannogError, Unavailable


class TeeLog(ForwardingLog):
    """Indexes and reads are those of the first log. The others get each batch after it, under indexes of their own.

    Events are removed from the first log alone: prune the copies by their own addresses.
    """

    def __init__(self, logs: Sequence[EventLog]) -> None:
        self.logs = tuple(logs)
        self.uri = "tee:" + ",".join(log.uri.replace(",", "%2C") for log in self.logs)

    def target(self) -> EventLog:
        return self.logs[0]

    def append_events(self, events: Iterable[BuildEvent], *, check_states: bool | None = None) -> list[int]:
        """As the first log does. Unavailable if another fails: the first has the batch then, and sending it again is safe."""
        batch = checked(events)
        indexes = self.logs[0].append_events(batch, check_states=check_states)
        failures = []
        for log in self.logs[1:]:
            try:
                log.append_events(batch, check_states=check_states)
            except CrannogError as error:
                failures.append(f"{log.uri}: {error.message}")
        if failures:
            raise Unavailable(
                f"{self.logs[0].uri} kept the batch, but not every copy did ({'; '.join(failures)}); sending it again is safe"
            )
        return indexes

    def close(self) -> None:
        for log in self.logs:
            log.close()
