"""One server per local warehouse: a locked file that names it. The lock ends with its process."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

from crannog.errors import Conflict, Unavailable
from crannog.storage.process_locks import LockTaken, ProcessLock, is_held

PATH = "_crannog/server.lock"


class ServerLock:
    """Held by the one server of a warehouse folder."""

    def __init__(self, root: Path) -> None:
        """Take the lock. Raises Conflict, which names the server that has it, or Unavailable."""
        path = root / PATH
        try:
            self._lock = ProcessLock(path)
        except LockTaken:
            other = _content(path)
            where = f" at {other['url']}" if other.get("url") else ""
            raise Conflict(
                f"a server already runs on {root}: process {other.get('pid', 'unknown')}{where};"
                " stop it first, or use it with --server"
            ) from None
        except OSError as error:
            raise _unavailable("lock", path, error) from None
        self._path = path
        self._write({"pid": os.getpid()})

    def publish(self, url: str) -> None:
        """Record the address of the server."""
        self._write({"pid": os.getpid(), "url": url})

    def _write(self, content: dict[str, Any]) -> None:
        try:
            self._lock.write(json.dumps(content).encode())
        except OSError as error:
            self.release()
            raise _unavailable("write", self._path, error) from None

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()


def _unavailable(act: str, path: Path, error: OSError) -> Unavailable:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "free some space" if is_full else "run the server as the user who owns the warehouse"
    return Unavailable(f"cannot {act} {path}: {error.strerror}; {advice}")


def _content(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def server_of(root: Path) -> str | None:
    """Return the address of the server that runs on a warehouse folder, or None. Takes no lock."""
    path = root / PATH
    if not is_held(path):
        return None
    url = _content(path).get("url")
    return url if isinstance(url, str) else None
