"""A build log on a server, with the interface of an embedded log; each call is a request."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from crannog.api.operations import Operation, Q, R
from crannog.builds import requests as ops
from crannog.builds.append_plan import checked_batch
from crannog.builds.event_values import from_json
from crannog.builds.events import BuildEvent
from crannog.builds.filters import FilterArguments
from crannog.builds.log import EventLog
from crannog.builds.results import CheckReport
from crannog.errors import Forbidden, Unavailable
from crannog.remote.connection import NDJSON, WRITE_TRIES, Connection, error_of
from crannog.remote.transport import HttpTransport, document_of, read_as

_BEAT_S = 0.9
_PATIENCE_S = 60.0
_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0


class HttpLog(EventLog):
    """The build log of a server. Thread-safe."""

    def __init__(
        self,
        uri: str,
        *,
        check_states: bool = False,
        token: str | None = None,
        connection: Connection | None = None,
    ) -> None:
        self.uri = uri
        self._check_states = check_states
        self._owns_connection = connection is None
        self._connection = connection or Connection(uri, token or os.environ.get("CRANNOG_TOKEN") or None)
        self._transport = HttpTransport(self._connection)
        if self._owns_connection:
            self._check_access()

    def _check_access(self) -> None:
        """Raise now if there is no log at this address, or the token allows neither to read events nor to send them."""
        try:
            self.head()
        except Forbidden as error:
            try:
                self._connection.ask(
                    "POST", "/builds/events", content=b"[]", headers={"Content-Type": "application/json"}
                )
            except Forbidden:
                raise error from None

    def append_events(self, events: Iterable[BuildEvent], *, check_states: bool | None = None) -> list[int]:
        batch = checked_batch(events)
        if not batch:
            return []
        lines = "\n".join(event.at(None).as_json() for event in batch).encode()
        check = self._check_states if check_states is None else check_states
        # An event is stored once by its id, so a request without a response may be sent again.
        answer = self._connection.ask(
            "POST", "/builds/events", params={"check_states": str(check).lower()}, content=lines,
            headers={"Content-Type": NDJSON}, tries=WRITE_TRIES,
        )  # fmt: skip
        return [int(index) for index in answer.json()["indexes"]]

    def remove_events(self, indexes: Iterable[int]) -> int:
        # Sent once: a second try would not count what the first one removed.
        answer = self._connection.ask(
            "POST", ops.REMOVE.routes[0].path, document=document_of(ops.RemoveEvents(list(indexes)))
        )
        return read_as(ops.REMOVE.result, answer.json()).removed

    def call(self, operation: Operation[Q, R], request: Q) -> R:
        return self._transport.call(operation, request)

    def give_back_space(self) -> None:
        """Fold, compact and clean up on the server."""
        self._transport.run(ops.COMPACT, ops.CompactLog(), None, None)

    def check_there(self) -> CheckReport:
        """Check the whole log on the server."""
        return self._transport.run(ops.CHECK, ops.CheckLog(), None, None)

    def _follow(
        self, since: int, filter: FilterArguments, poll_s: float, idle_s: float | None, stop: threading.Event
    ) -> Iterator[BuildEvent]:
        query = document_of(ops.EventQuery.of(filter, since=since))
        return self._events_after(since, query, idle_s, stop)

    def _events_after(
        self, position: int, query: dict[str, Any], idle_s: float | None, stop: threading.Event
    ) -> Iterator[BuildEvent]:
        """Yield the events that the server sends; reconnects after the last received event if the connection ends.

        Raises Unavailable if no server responds for a minute.
        """
        beat_s = _BEAT_S if idle_s is None else max(0.02, min(_BEAT_S, idle_s))
        quiet_since = heard = time.monotonic()
        pause = _PAUSE_S
        while not stop.is_set():
            try:
                with self._connection.opened(
                    "POST", "/builds/events/follow", params={"beat_s": str(beat_s)}, document={**query, "since": position},
                    headers={"Accept": NDJSON}, read_s=30 + beat_s,
                ) as response:  # fmt: skip
                    for event in _events(response.iter_lines()):
                        heard, pause = time.monotonic(), _PAUSE_S
                        if stop.is_set():
                            return
                        if event is not None:
                            yield event
                            position, quiet_since = event.index or position, time.monotonic()
                        elif idle_s is not None and time.monotonic() - quiet_since >= idle_s:
                            return
            except Unavailable:
                if time.monotonic() - heard > _PATIENCE_S:
                    raise
                stop.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def close(self) -> None:
        if self._owns_connection:
            self._connection.close()


def _events(lines: Iterator[str]) -> Iterator[BuildEvent | None]:
    """Yield events, and None for each heartbeat."""
    for line in lines:
        message = from_json(line, "a line from the server")
        if "error" in message:
            raise error_of(message["error"])
        yield BuildEvent.of_stored(message) if message else None
