"""The build log that a server serves: that of its warehouse, or another one that is opened on first use."""

from __future__ import annotations

import threading
from collections import OrderedDict

from crannog.builds.log import EventLog
from crannog.builds.open_log import open_log, other_than_warehouse
from crannog.embedded import EmbeddedLake
from crannog.errors import CallerError, TooLarge

_CACHED_STATES = 2
_MAX_STATE_EVENTS = 500_000


class BuildLog:
    """The log at `uri`; if that is empty or the URI of the warehouse's log, `lake.builds`. Safe for threads."""

    def __init__(self, lake: EmbeddedLake, uri: str) -> None:
        self._lake = lake
        self._uri = other_than_warehouse(uri, lake.operations.warehouse.location)
        self._lock = threading.Lock()
        self._other: EventLog | None = None
        self._states: OrderedDict[tuple[int, int], EventLog] = OrderedDict()
        self._states_lock = threading.Lock()

    def get(self) -> EventLog:
        """Return the log."""
        if not self._uri:
            return self._lake.builds
        with self._lock:
            if self._other is None:
                if self._uri.startswith(("http:", "https:")):
                    raise CallerError(
                        f"this server has no build log: CRANNOG_BUILD_LOG is {self._uri}; use that server"
                    )
                self._other = open_log(self._uri)
            return self._other

    def as_of(self, index: int | None) -> EventLog:
        """Return the log as of an index, or the present log without one. Raises TooLarge if that has too many events.

        The two states used last are cached, since a client usually sends several queries about the same state.
        """
        if index is None:
            return self.get()
        if index > _MAX_STATE_EVENTS:
            raise TooLarge(
                f"the log as of index {index:,} has more than the {_MAX_STATE_EVENTS:,} events that a server holds in memory;"
                " open the log itself and use its as_of, or read the events of a time range"
            )
        log = self.get()
        with self._states_lock:  # one state is built at a time
            head = log.head()
            # Events removed since are missing from earlier states, too.
            removed = head - log.stats().events
            state = self._states.pop((index, removed), None) or log.as_of(index)
            if index <= head:  # a state beyond the head still changes
                self._states = OrderedDict((key, kept) for key, kept in self._states.items() if key[1] == removed)
                self._states[index, removed] = state
                if len(self._states) > _CACHED_STATES:
                    self._states.popitem(last=False)  # not closed: other requests may be reading it
            return state

    def close(self) -> None:
        """Close a log that was opened here; that of the warehouse is closed with the lake."""
        with self._lock:
            if self._other is not None:
                self._other.close()
                self._other = None
        with self._states_lock:
            self._states.clear()
