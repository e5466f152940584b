"""How many connections there are, in all and of each address: more are refused before anything is read from them.

Each takes a file descriptor. Half of those that the process may have are left for files, storage and Spark, so that a flood of
connections does not stop the work of the others.
"""

from __future__ import annotations

import logging
import threading
import time

from crannog.settings import Settings

log = logging.getLogger("crannog.server")
_LOGGED_EVERY_S = 60.0
_WANTED_DESCRIPTORS = 65_536


class Connections:
    """Counts the connections of all ports. Safe for several event loops."""

    def __init__(self, settings: Settings) -> None:
        available = descriptors()
        self.most = settings.http_connections if available is None else min(settings.http_connections, available // 2)
        if self.most < settings.http_connections:
            log.warning(
                "at most %d connections, not %d: the process may open %s files; raise its limit (ulimit -n)",
                self.most,
                settings.http_connections,
                available,
            )
        self._most_of_one = settings.http_connections_per_address
        self._lock = threading.Lock()
        self._of: dict[str, int] = {}
        self._logged_at = float("-inf")
        self.count = 0
        self.refused = 0

    def admit(self, address: str) -> str | None:
        """Count a connection; return why it is refused, or None if it is not."""
        with self._lock:
            own = self._of.get(address, 0)
            if self.count < self.most and own < self._most_of_one:
                self.count += 1
                self._of[address] = own + 1
                return None
            self.refused += 1
            is_log_due = time.monotonic() - self._logged_at >= _LOGGED_EVERY_S
            if is_log_due:
                self._logged_at = time.monotonic()
        reason = (
            f"there are {self.most:,} connections, which is the limit; try again shortly"
            if own < self._most_of_one
            else f"{address} has {own:,} connections, which is the limit; close some, or try again shortly"
        )
        if is_log_due:
            log.warning("connections are refused: %s (%d so far)", reason, self.refused)
        return reason

    def leave(self, address: str) -> None:
        """Count a connection that ended."""
        with self._lock:
            self.count -= 1
            left = self._of.get(address, 1) - 1
            if left:
                self._of[address] = left
            else:
                self._of.pop(address, None)


def descriptors() -> int | None:
    """Raise the limit of open files as far as that is allowed and useful; return it, or None without a limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _WANTED_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY:
        return None
    if soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
        except (OSError, ValueError):
            pass  # some systems allow less than they say
    return soft
