"""Scratch folders of processes outside of the warehouse: what Spark and DuckDB spill, and copies of a bucket's files.

Each holds a lock for as long as its process lives, so that others can tell what a killed one left: by the lock and not by
the process id, which means nothing to a container that shares the folder.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

KINDS = ("spark", "spill", "copies")
_LOCK = ".alive"
_OLD_S = 24 * 3600.0
_held: dict[Path, tuple[int, int]] = {}
"""The locks of this process: descriptor, and which process took it (a fork has the list too)."""


def make(kind: str) -> Path:
    """Make a scratch folder; `leave` it at the end. Clears away what killed processes have left."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"crannog-{kind}-{os.getpid()}-"))
    # Locked before it has its name: nobody sees it free.
    descriptor = os.open(folder / f"{_LOCK}.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with suppress(OSError):  # a file system without locks: then age tells
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (folder / f"{_LOCK}.new").rename(folder / _LOCK)
    _held[folder] = (descriptor, os.getpid())
    return folder


def leave(folder: Path) -> None:
    """Remove a scratch folder of this process."""
    descriptor, owner = _held.pop(folder, (-1, os.getpid()))
    if owner == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)
        if descriptor >= 0:
            os.close(descriptor)


def sweep() -> list[Path]:
    """Remove the scratch folders of processes that were killed; return those there were."""
    found = []
    for kind in KINDS:
        for folder in Path(tempfile.gettempdir()).glob(f"crannog-{kind}-*"):
            with suppress(OSError):
                if folder not in _held and _is_left(folder):
                    found.append(folder)
                    shutil.rmtree(folder, ignore_errors=True)
    return found


def _is_left(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return time.time() - folder.stat().st_mtime > _OLD_S
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


@atexit.register
def _leave_all() -> None:
    for folder in list(_held):
        leave(folder)
