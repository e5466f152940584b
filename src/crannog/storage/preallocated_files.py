"""Spare files: made and synced beforehand, so that what is put next needs no new file.

To sync a new file takes the file system more than the bytes in it: its entry, its place on the disk. A spare has those
already, and content of the same length is one write and one sync. It has no name that anybody looks for until it is
linked to one, as any temporary file; and as one it is removed by an erase, and by a vacuum if its process was killed.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

SPARE_BYTES = 4_096
SPARE_FOLDER = "spare"
_MOST = 32
_ZEROS = bytes(SPARE_BYTES)


class SpareFiles:
    """The spare files of one process for one folder; they lie in `folder`. Safe for threads."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._process = os.getpid()
        self._ready: deque[str] = deque()

    @property
    def runs_low(self) -> bool:
        return len(self._ready) <= _MOST // 2

    def fill(self) -> None:
        """Make more, if there is room; a disk that has none left will say so to whoever puts something."""
        with suppress(OSError), ExitStack() as made:
            # Not its parents: the table may have been dropped.
            with suppress(FileExistsError):
                Path(self._folder).mkdir()
            new = [
                made.enter_context(_made(f"{self._folder}/{uuid.uuid4().hex}.tmp"))
                for _ in range(_MOST - len(self._ready))
            ]
            for _, descriptor in new:
                os.fsync(descriptor)
            self._ready.extend(path for path, _ in new)

    def written(self, data: bytes, confirm: Callable[[], None] | None = None) -> str | None:
        """Return the path of a spare with this content, synced; None if there is none, or it takes another length.

        `confirm` is called before the content is written; what it raises comes out and nothing is written.
        """
        # A process that was forked has the list, too, and the files are the other's.
        if len(data) != SPARE_BYTES or self._process != os.getpid():
            return None
        try:
            path = self._ready.popleft()
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except IndexError:
            return None
        except FileNotFoundError:
            self._ready.clear()  # an erase took them away
            return None
        with _removed_if_it_fails(path, descriptor):
            if confirm is not None:
                confirm()
            if os.pwrite(descriptor, data, 0) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fdatasync(descriptor)
        return path

    def close(self) -> None:
        """Remove what was not used."""
        if self._process == os.getpid():
            while self._ready:
                _remove(self._ready.popleft())


def _remove(path: str) -> None:
    with suppress(OSError):
        Path(path).unlink()


@contextmanager
def _made(path: str) -> Iterator[tuple[str, int]]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with _removed_if_it_fails(path, descriptor):
        os.write(descriptor, _ZEROS)
        # All are on their way to the disk before the first is waited for.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        yield path, descriptor


@contextmanager
def _removed_if_it_fails(path: str, descriptor: int) -> Iterator[None]:
    """Close a file in any case."""
    try:
        yield
    except BaseException:
        _remove(path)
        raise
    finally:
        os.close(descriptor)
