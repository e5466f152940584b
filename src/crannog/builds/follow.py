"""Following a log: events as they are committed, and callbacks for them.

The cursor is an index, and indexes are commit order: no event becomes visible before one with a lower index. So no
event is missed or seen twice, whatever the clocks of the writers show.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Unpack

from crannog.builds.events import BuildEvent
from crannog.builds.filters import FilterArguments

if TYPE_CHECKING:
    from crannog.builds.log import EventLog

_PAGE = 1_000
_logger = logging.getLogger("crannog.builds")


def follow(
    log: EventLog,
    since: int,
    *,
    poll_s: float,
    idle_s: float | None,
    stop: threading.Event,
    filter: FilterArguments,
) -> Iterator[BuildEvent]:
    """Yield the events after `since` and wait for more, until `stop` is set or no event came for `idle_s`."""
    position, quiet_since = since, time.monotonic()
    while not stop.is_set():
        # Read before the page: an event committed after the page was read must not be missed.
        head = log.head()
        if head > position:
            page = log.list_events(position, _PAGE, **filter)
            for event in page.events:
                if stop.is_set():
                    return
                yield event
            if page.events:
                quiet_since = time.monotonic()
            position = page.next_index if page.has_more or page.next_index > head else head
            continue
        if idle_s is not None and time.monotonic() - quiet_since >= idle_s:
            return
        stop.wait(poll_s)


class Watch:
    """Calls a function for each event after a cursor, from its own thread, until closed.

    An exception of the callback is logged and counted in `errors`; the watch continues with the next event. `close` may
    be called from the callback.
    """

    def __init__(
        self,
        log: EventLog,
        callback: Callable[[BuildEvent], None],
        since: int | None = None,
        *,
        poll_s: float = 0.05,
        **filter: Unpack[FilterArguments],
    ) -> None:
        self.position = log.head() if since is None else since
        self.errors = 0
        self._log, self._callback, self._filter, self._poll_s = log, callback, filter, poll_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="crannog-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                for event in self._log.follow(self.position, poll_s=self._poll_s, stop=self._stop, **self._filter):
                    self._call(event)
                    assert event.index is not None
                    self.position = event.index
            except Exception:
                # The store may be unavailable for a moment; the cursor has not moved.
                if not self._stop.is_set():
                    _logger.warning("the watch on %s could not read; it will try again", self._log.uri, exc_info=True)
                self._stop.wait(max(self._poll_s, 0.5))

    def _call(self, event: BuildEvent) -> None:
        try:
            self._callback(event)
        except Exception:
            self.errors += 1
            _logger.warning("a watch's callback failed on event %s", event.event_id, exc_info=True)

    def close(self) -> None:
        """Stop; return once no callback runs, or at once if called from a callback."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
