"""A tray on the desk of a Delta log: where one process leaves a slip, and finds the answer of whoever has the turn.

A file that both have in memory, so that neither makes, lists or removes files for every event; and a bell, a pipe, to
wake who waits. Whoever owns a tray holds a lock on it, which ends with the process.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import struct
import zlib
from contextlib import suppress
from pathlib import Path

_BYTES = 1 << 17
_HALF = _BYTES // 2
_HEAD = struct.Struct("<QII")
ENDING, _BELL = ".tray", ".bell"


class Tray:
    """One half for the slip, one for its answer; each is a number, a length, a checksum, and what was written."""

    def __init__(self, path: Path, *, own: bool) -> None:
        """Make a tray, or look at another process's. FileNotFoundError if that one is gone, or is being made."""
        self.name = path.stem
        self._path = path
        self._bell_path = path.with_suffix(_BELL)
        self._own = own
        self._handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if own else 0), 0o666)
        self._bell: int | None = None
        self._number = 0
        try:
            if own:
                fcntl.flock(self._handle, fcntl.LOCK_EX)
                os.mkfifo(self._bell_path, 0o666)
                self._bell = os.open(self._bell_path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                # With its place on the disk: to write into a hole of a file in memory kills the process if the disk is full.
                os.posix_fallocate(self._handle, 0, _BYTES)
            elif os.fstat(self._handle).st_size < _BYTES:
                raise FileNotFoundError(path)
            self._memory = mmap.mmap(self._handle, _BYTES)
        except BaseException:
            if own:
                self._remove()
            self._shut()
            raise

    # -- who owns it -------------------------------------------------------------------------------------------------

    def leave(self, slip: bytes) -> bool:
        """Leave a slip for whoever has the turn; False if it is too long."""
        if len(slip) > _HALF - _HEAD.size:
            return False
        self._number += 1
        self._write(0, self._number, slip)
        return True

    def withdraw(self) -> None:
        """Take the slip back, answered or not, and leave nothing of it; whoever has read it already may still answer it."""
        _, length, _ = _HEAD.unpack_from(self._memory)
        self._number += 1
        self._write(0, self._number, b"")
        self._memory[_HEAD.size : _HEAD.size + length] = bytes(length)

    def answer(self) -> bytes | None:
        """Return what became of the slip; None if nothing has yet."""
        number, written = self._read(_HALF)
        return written if number == self._number else None

    def wait(self, timeout_s: float) -> None:
        """Wait until somebody rings, for so long at most."""
        if self._bell is not None and select.select([self._bell], [], [], timeout_s)[0]:
            with suppress(BlockingIOError):
                os.read(self._bell, 4_096)

    # -- who has the turn --------------------------------------------------------------------------------------------

    @property
    def has_slip(self) -> bool:
        """Whether a slip waits for an answer, as it seems."""
        number, length, _ = _HEAD.unpack_from(self._memory)
        answered, _, _ = _HEAD.unpack_from(self._memory, _HALF)
        return bool(length and number != answered)

    def slip(self) -> bytes | None:
        """Return the slip that waits for an answer."""
        number, written = self._read(0)
        if not written or not self.has_slip:
            return None
        self._number = number
        return written

    def give(self, answer: bytes) -> None:
        """Answer the slip that was read last. One that is too long is not given: its owner waits, and commits again."""
        if len(answer) <= _HALF - _HEAD.size:
            self._write(_HALF, self._number, answer)

    def ring(self) -> None:
        """Wake the owner: there is an answer, or the turn is free."""
        with suppress(OSError):  # gone, or rung often enough already
            if self._bell is None:
                self._bell = os.open(self._bell_path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.write(self._bell, b"!")

    def remove_if_abandoned(self) -> bool:
        """Take the tray away if its owner has died."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        self._remove()
        return True

    def close(self) -> None:
        if self._own:
            self._remove()
        self._memory.close()
        self._shut()

    def _remove(self) -> None:
        self._path.unlink(missing_ok=True)
        self._bell_path.unlink(missing_ok=True)

    def _shut(self) -> None:
        os.close(self._handle)
        if self._bell is not None:
            os.close(self._bell)

    # -- memory ------------------------------------------------------------------------------------------------------

    def _write(self, half: int, number: int, content: bytes) -> None:
        start = half + _HEAD.size
        self._memory[start : start + len(content)] = content
        _HEAD.pack_into(self._memory, half, number, len(content), zlib.crc32(content, number & 0xFFFFFFFF))

    def _read(self, half: int) -> tuple[int, bytes]:
        """Return what stands in a half, and its number; 0 if it is just being written: no order of writes is promised."""
        number, length, checksum = _HEAD.unpack_from(self._memory, half)
        content = self._memory[half + _HEAD.size : half + _HEAD.size + min(length, _HALF - _HEAD.size)]
        return (number, content) if zlib.crc32(content, number & 0xFFFFFFFF) == checksum else (0, b"")
