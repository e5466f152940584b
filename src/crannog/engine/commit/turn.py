"""Whose turn it is to commit to a table: a lock on a file, which ends with the process that holds it.

Only to save work. Which change comes first is decided by put-if-absent, so a process may commit without the turn.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
import uuid
from contextlib import suppress
from pathlib import Path

_SHORT_NS, _LONG_NS = 2_000_000, 10_000_000
_CLAIM_NS = 50_000_000
_ROWS_PER_S, _MOST_ROWS = 5_000, 200_000
# How many rows the turn was taken for; until when the last holder alone may take it again; that holder.
_HOLDER = struct.Struct("<qq16s")
# Until when only the claimant may take the turn; the claimant; whether there is a pipe for requests.
_CLAIM = struct.Struct("<q16s")
_PIPES = struct.Struct("<q")
_FILE = struct.Struct("<qq16sq16sq")


class Turn:
    """The turn of one table, as one process sees it. Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Raise OSError where there is no place for the file."""
        self.name = uuid.uuid4().bytes
        self.changed_hands = True
        """Whether another process may have had the turn since this one last did."""
        self.has_pipes = False
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if os.fstat(self._file).st_size < _FILE.size:
            os.ftruncate(self._file, _FILE.size)

    def take(self, rows: int, *, claimed: bool = False) -> bool:
        """Take the turn to commit about this many rows; False if another process has it, is next, or had it just now.

        The last holder may take it again for a moment, because it knows all changes and any other process would have
        to read them first. Raises OSError where the file system has no locks.
        """
        _, until, last, claim, claimant, _ = _FILE.unpack(os.pread(self._file, _FILE.size, 0))
        now = time.monotonic_ns()
        # Times from before a restart of the machine lie outside of the bounds.
        if claimant != self.name and 0 < claim - now <= _CLAIM_NS:
            return False
        if not claimed and last != self.name and 0 < until - now <= _LONG_NS:
            return False
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            # Read again: it may have changed hands before the lock.
            _, _, last, _, _, pipes = _FILE.unpack(os.pread(self._file, _FILE.size, 0))
            self.changed_hands, self.has_pipes = last != self.name, bool(pipes)
            os.pwrite(self._file, _HOLDER.pack(rows, 0, self.name), 0)
        except BaseException:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            raise
        return True

    def end(self, *, shared: bool = False) -> None:
        """End the turn; `shared` keeps it for this process a little longer, as others that wait delay its next call."""
        until = time.monotonic_ns() + (_LONG_NS if shared else _SHORT_NS)
        with suppress(OSError):  # a full disk: what was committed is
            os.pwrite(self._file, _HOLDER.pack(0, until, self.name), 0)
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def claim(self) -> None:
        """Make this process the next one: for a while no other takes the turn. To be renewed while it waits."""
        os.pwrite(self._file, _CLAIM.pack(time.monotonic_ns() + _CLAIM_NS, self.name), _HOLDER.size)

    def end_claim(self) -> None:
        os.pwrite(self._file, _CLAIM.pack(0, self.name), _HOLDER.size)

    def announce_pipes(self) -> None:
        """Make the next holders look for requests."""
        os.pwrite(self._file, _PIPES.pack(1), _HOLDER.size + _CLAIM.size)

    def reserved_s(self) -> float:
        """Return for how long the last holder may still take the turn again; 0 if another process may."""
        _, until, last, _, _, _ = self._read()
        left = until - time.monotonic_ns()
        return left / 1e9 if last != self.name and 0 < left <= _LONG_NS else 0.0

    def allowed_s(self) -> float:
        """Return how long the commit under way may take on top of the time for one of a single row."""
        return min(max(self._read()[0], 0), _MOST_ROWS) / _ROWS_PER_S

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._file)

    def _read(self) -> tuple[int, int, bytes, int, bytes, int]:
        found: tuple[int, int, bytes, int, bytes, int] = _FILE.unpack(os.pread(self._file, _FILE.size, 0))
        return found
