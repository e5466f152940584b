"""One server per local warehouse: a locked file that names it. The lock ends with its process."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from crannog.errors import Conflict

PATH = "_crannog/server.lock"


class ServerLock:
    """Held by the one server of a warehouse folder."""

    def __init__(self, root: Path) -> None:
        """Take the lock. Raises Conflict, which names the server that has it."""
        path = root / PATH
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            other = _content(path)
            where = f" at {other['url']}" if other.get("url") else ""
            raise Conflict(
                f"a server already runs on {root}: process {other.get('pid', 'unknown')}{where};"
                " stop it first, or use it with --server"
            ) from None
        self._write({"pid": os.getpid()})

    def publish(self, url: str) -> None:
        """Record the address of the server."""
        self._write({"pid": os.getpid(), "url": url})

    def _write(self, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)

    def release(self) -> None:
        """Release the lock."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)


def _content(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def server_of(root: Path) -> str | None:
    """Return the address of the server that runs on a warehouse folder, or None."""
    path = root / PATH
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        url = _content(path).get("url")
        return url if isinstance(url, str) else None
    finally:
        os.close(descriptor)
    return None
