"""Locks that end with the process that holds them, and a look at them that takes nothing.

Only a process that may write the file can hold its lock. A process that looks takes no lock, so that it never keeps the
owner from taking it.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from contextlib import suppress
from pathlib import Path

# Locks of an open file, as Linux has them: they need no lock of their own to be looked at, and closing another descriptor
# of the file leaves them.
_SET, _GET = getattr(fcntl, "F_OFD_SETLK", None), getattr(fcntl, "F_OFD_GETLK", None)
_FLOCK = struct.Struct("hhqqi")
_GROUP_MAY_WRITE = 0o020
# Earlier versions took a shared lock for a moment when they looked.
_PATIENCE_S = 1.0
_POLL_S = 0.01


class LockTaken(Exception):
    """Another process holds the lock."""


class ProcessLock:
    """A lock on a file, held until `release` or the end of the process. The file may have content."""

    def __init__(self, path: Path) -> None:
        """Take the lock. Raises LockTaken, or OSError if the file cannot be opened for writing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _close_to_readers(self._descriptor, path.parent)
            _take(self._descriptor)
        except BaseException:
            os.close(self._descriptor)
            raise

    def write(self, data: bytes) -> None:
        """Replace the content of the file."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)

    def release(self) -> None:
        """Empty the file and release the lock."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)


def is_held(path: Path) -> bool | None:
    """Return whether a process holds the lock of a file; None if that is unknown, for example because the file is missing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if _GET is None:
            return _is_flocked(descriptor)
        # A read lock conflicts with the lock of its owner alone, who had to open the file for writing.
        wanted = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        return bool(_FLOCK.unpack(fcntl.fcntl(descriptor, _GET, wanted))[0] != fcntl.F_UNLCK)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _close_to_readers(descriptor: int, folder: Path) -> None:
    """Leave the file to those who may write the folder: a process that can read a file can keep others from locking it."""
    mode = 0o660 if folder.stat().st_mode & _GROUP_MAY_WRITE else 0o600
    with suppress(PermissionError):  # another user's file, which we may write
        os.fchmod(descriptor, mode)


def _take(descriptor: int) -> None:
    if _SET is not None:
        try:
            fcntl.fcntl(descriptor, _SET, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except (BlockingIOError, PermissionError):
            raise LockTaken from None
    # The lock of earlier versions, which must not run beside this one.
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LockTaken from None
            time.sleep(_POLL_S)


def _is_flocked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
