"""The build log that a server serves: opened when it is first asked for, shared by all requests."""

from __future__ import annotations

import threading

from crannog.builds.log import EventLog
from crannog.builds.open_log import configured_uri, open_log
from crannog.errors import CallerError
from crannog.settings import Settings


class BuildLog:
    """The log of the settings, or the one in the warehouse. Safe for threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._opened: dict[bool, EventLog] = {}

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

    def close(self) -> None:
        with self._lock:
            for log in self._opened.values():
                log.close()
            self._opened.clear()
