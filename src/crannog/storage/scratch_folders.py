"""Scratch folders outside the warehouse: what Spark, its tasks and DuckDB spill, files to load, copies of a bucket's files.

A process locks its folders while it lives, so that others recognize the folders of a killed process: by the lock and not
by the process id, which means nothing to a container that shares the folder.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

KINDS = ("spark", "spill", "copies", "task", "load")
_LOCK = ".alive"
_ABANDONED_AFTER_S = 24 * 3600.0
_locks: dict[Path, tuple[int, int]] = {}
"""The locks of this process: the descriptor, and the process that took it (a fork inherits the list)."""


def create(kind: str) -> Path:
    """Create a scratch folder, to be removed with `remove`. Also removes the folders of killed processes."""
    assert kind in KINDS, kind
    remove_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=f"crannog-{kind}-{os.getpid()}-"))
    # Locked before it gets its name, so that no other process finds it unlocked.
    descriptor = os.open(folder / f"{_LOCK}.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with suppress(OSError):  # on a file system without locks, age decides
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (folder / f"{_LOCK}.new").rename(folder / _LOCK)
    _locks[folder] = (descriptor, os.getpid())
    return folder


@contextmanager
def scratch_folder(kind: str) -> Iterator[Path]:
    """Create a scratch folder for the time of a block."""
    folder = create(kind)
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """Remove a scratch folder of this process."""
    descriptor, owner = _locks.pop(folder, (-1, os.getpid()))
    if owner == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)
        if descriptor >= 0:
            os.close(descriptor)


def remove_abandoned() -> list[Path]:
    """Remove the scratch folders of killed processes and return them."""
    found = []
    for kind in KINDS:
        for folder in Path(tempfile.gettempdir()).glob(f"crannog-{kind}-*"):
            with suppress(OSError):
                if folder not in _locks and _is_abandoned(folder):
                    found.append(folder)
                    shutil.rmtree(folder, ignore_errors=True)
    return found


def _is_abandoned(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return time.time() - folder.stat().st_mtime > _ABANDONED_AFTER_S
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


@atexit.register
def _remove_all() -> None:
    for folder in list(_locks):
        remove(folder)
