"""The build log that a server serves: opened when it is first asked for, shared by all requests."""

from __future__ import annotations

import threading
from collections import OrderedDict

from crannog.builds.log import EventLog
from crannog.builds.open_log import configured_uri, open_log
from crannog.errors import CallerError, TooLarge
from crannog.settings import Settings

_PASTS = 2
_LONGEST_PAST = 500_000


class BuildLog:
    """The log of the settings, or the one in the warehouse. Safe for threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._opened: dict[bool, EventLog] = {}
        self._pasts: OrderedDict[tuple[int, int], EventLog] = OrderedDict()
        self._past_lock = threading.Lock()

    def get(self, *, check_states: bool = False) -> EventLog:
        """Return the log; with `check_states` the one that refuses status changes that cannot be."""
        with self._lock:
            log = self._opened.get(check_states)
            if log is None:
                uri = configured_uri(self._settings)
                if uri.startswith(("http:", "https:")):
                    raise CallerError(f"this server keeps no build log: CRANNOG_BUILD_LOG is {uri}; ask that server")
                log = self._opened[check_states] = open_log(uri, check_states=check_states)
            return log

    def as_of(self, index: int | None) -> EventLog:
        """Return the log as it stood at an index, as it stands if none is given; TooLarge if that is more than fits in memory.

        The last two are kept, since whoever looks at the past asks it more than one thing.
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
        with self._lock:
            for log in self._opened.values():
                log.close()
            self._opened.clear()
        with self._past_lock:
            self._pasts.clear()
