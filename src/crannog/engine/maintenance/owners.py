"""The processes that claim tasks: each locks a file of its own, so that on the same machine its death shows at once.

Elsewhere, and on a bucket, which has no locks, a missing heartbeat shows it.
"""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

from crannog.storage.interface import Storage
from crannog.storage.process_locks import LockTaken, ProcessLock, is_held

_OLD_S = 24 * 3600.0


def process_name() -> str:
    """Return a unique name for this process."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


class Owners:
    """The locks of the owners of tasks in one warehouse. Thread-safe."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._folder = Path(storage.uri(folder)) if storage.is_local else None
        self._held: dict[str, ProcessLock] = {}
        self._lock = threading.Lock()

    def announce(self, owner: str) -> None:
        """Lock the file of an owner in this process, before its first claim."""
        with self._lock:
            if self._folder is None or owner in self._held:
                return
            # Without it, the heartbeat of the owner's leases counts as before.
            with suppress(OSError, LockTaken):
                self._held[owner] = ProcessLock(self._path(self._folder, owner))
                self._remove_old(self._folder)

    def retire(self, owner: str) -> None:
        """Remove the file of an owner that claims nothing any more."""
        with self._lock:
            lock = self._held.pop(owner, None)
        if lock is not None and self._folder is not None:
            self._path(self._folder, owner).unlink(missing_ok=True)
            lock.release()

    def is_dead(self, owner: str) -> bool:
        """Tell whether an owner is known to be dead: it locked its file on this machine, and nobody holds the lock now."""
        if self._folder is None or owner.partition(":")[0] != socket.gethostname():
            return False
        return is_held(self._path(self._folder, owner)) is False

    @staticmethod
    def _path(folder: Path, owner: str) -> Path:
        return folder / f"{hashlib.sha256(owner.encode()).hexdigest()[:32]}.lock"

    @staticmethod
    def _remove_old(folder: Path) -> None:
        """Remove the files of processes that died long ago, whose claims were taken over."""
        for path in folder.glob("*.lock"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _OLD_S and is_held(path) is False:
                    path.unlink()
