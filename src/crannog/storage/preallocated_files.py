"""Preallocated files: created and synced in advance, so that a small put needs no new file.

Syncing a new file costs more than syncing its bytes: the file system also writes its entry and allocates its blocks. A
preallocated file has both, so content of the same length takes one write and one sync. Until it is linked to a name it
is a temporary file like any other: an erase removes it, and so does a vacuum if its process was killed.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PREALLOCATED_BYTES = 4_096
PREALLOCATED_FOLDER = "spare"
_MAX_READY = 32
_ZEROS = bytes(PREALLOCATED_BYTES)


class PreallocatedFiles:
    """The preallocated files of one process for one stage folder, stored in `folder`. Thread-safe."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._process = os.getpid()
        self._ready: deque[str] = deque()

    @property
    def is_low(self) -> bool:
        return len(self._ready) <= _MAX_READY // 2

    def refill(self) -> None:
        """Create more files, if there is room; on a full disk the next put reports the error."""
        with suppress(OSError), ExitStack() as made:
            # Without parents: the table may have been dropped.
            with suppress(FileExistsError):
                Path(self._folder).mkdir()
            new = [
                made.enter_context(_created(f"{self._folder}/{uuid.uuid4().hex}.tmp"))
                for _ in range(_MAX_READY - len(self._ready))
            ]
            for _, descriptor in new:
                os.fsync(descriptor)
            self._ready.extend(path for path, _ in new)

    def write_synced(self, data: bytes, before_write: Callable[[], None] | None = None) -> str | None:
        """Return the path of a synced file with this content; None if none is ready or the length differs.

        `before_write` is called before the content is written; if it raises, nothing is written.
        """
        # A forked process has a copy of the list, but the files belong to its parent.
        if len(data) != PREALLOCATED_BYTES or self._process != os.getpid():
            return None
        try:
            path = self._ready.popleft()
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except IndexError:
            return None
        except FileNotFoundError:
            self._ready.clear()  # an erase deleted them
            return None
        try:
            if before_write is not None:
                before_write()
            if os.pwrite(descriptor, data, 0) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fdatasync(descriptor)
        except BaseException:
            _remove(path)
            raise
        finally:
            os.close(descriptor)
        return path

    def close(self) -> None:
        """Remove the unused files."""
        if self._process == os.getpid():
            while self._ready:
                _remove(self._ready.popleft())


def _remove(path: str) -> None:
    with suppress(OSError):
        Path(path).unlink()


@contextmanager
def _created(path: str) -> Iterator[tuple[str, int]]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with _closed_and_removed_on_error(path, descriptor):
        os.write(descriptor, _ZEROS)
        # Start writing all of them to the disk before waiting for the first.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        yield path, descriptor


@contextmanager
def _closed_and_removed_on_error(path: str, descriptor: int) -> Iterator[None]:
    """Close the file, and remove it if the block raises."""
    try:
        yield
    except BaseException:
        _remove(path)
        raise
    finally:
        os.close(descriptor)
