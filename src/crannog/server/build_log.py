"""The build log that a server serves: that of its warehouse, or another one that is opened on first use."""

from __future__ import annotations

import threading
from collections import OrderedDict

from crannog.builds.log import EventLog
from crannog.builds.open_log import open_log, other_than_warehouse
from crannog.embedded import EmbeddedLake
from crannog.errors import CallerError, TooLarge

_PASTS = 2
_LONGEST_PAST = 500_000


class BuildLog:
    """The log at `uri`; if that is empty or the address of the warehouse, `lake.builds`. Safe for threads."""

    def __init__(self, lake: EmbeddedLake, uri: str) -> None:
        self._lake = lake
        self._uri = other_than_warehouse(uri, lake.warehouse.location)
        self._lock = threading.Lock()
        self._other: EventLog | None = None
        self._pasts: OrderedDict[tuple[int, int], EventLog] = OrderedDict()
        self._past_lock = threading.Lock()

    def get(self) -> EventLog:
        """Return the log."""
        if not self._uri:
            return self._lake.builds
        with self._lock:
            if self._other is None:
                if self._uri.startswith(("http:", "https:")):
                    raise CallerError(
                        f"this server keeps no build log: CRANNOG_BUILD_LOG is {self._uri}; ask that server"
                    )
                self._other = open_log(self._uri)
            return self._other

    def as_of(self, index: int | None) -> EventLog:
        """Return the log as it stood at an index, as it stands if none is given; TooLarge if that is more than fits in memory.

        The last two are kept, since a client usually sends several queries about the same state.
        """
        if index is None:
            return self.get()
        if index > _LONGEST_PAST:
            raise TooLarge(
                f"the log as of index {index:,} has more than the {_LONGEST_PAST:,} events that a server holds in memory;"
                " open the log itself and ask its as_of, or read the events with a range of time"
            )
        log = self.get()
        with self._past_lock:  # one is made at a time
            head = log.head()
            # What was removed since is gone from the past, too.
            known = (index, head - log.stats().events)
            past = self._pasts.pop(known, None) or log.as_of(index)
            if index <= head:  # beyond it, what it holds is still to be written
                self._pasts = OrderedDict((key, kept) for key, kept in self._pasts.items() if key[1] == known[1])
                self._pasts[known] = past
                if len(self._pasts) > _PASTS:
                    self._pasts.popitem(last=False)  # not closed: others may be asking it
            return past

    def close(self) -> None:
        """Close a log that was opened here; that of the warehouse is closed with the lake."""
        with self._lock:
            if self._other is not None:
                self._other.close()
                self._other = None
        with self._past_lock:
            self._pasts.clear()
