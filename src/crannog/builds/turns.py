"""Turns among the processes of one machine, so that they do not make the same staged file at once.

Only to save work: who is first is decided by the commit. So nobody waits long for a turn, and a process that stands
still with it holds up nobody.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE_S = 0.25
_PAUSE_S = 0.0005


class Turns:
    """A lock file that processes take in turn; `None` for a log that has no file beside it."""

    def __init__(self, file: Path | None) -> None:
        self._handle = None if file is None else os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take the turn, or go on without it when that takes too long."""
        mine = self._take()
        try:
            yield
        finally:
            if mine and self._handle is not None:
                fcntl.flock(self._handle, fcntl.LOCK_UN)

    def _take(self) -> bool:
        if self._handle is None:
            return False
        ends = time.monotonic() + _PATIENCE_S
        while True:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except OSError:
                if time.monotonic() > ends:
                    return False
                time.sleep(_PAUSE_S)

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
