"""The ledger: the batch ids of folded changes, kept for the deduplication window.

A fold writes its ids here *before* it commits: a retry that finds the new version must find its batch id too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from crannog.errors import Corrupted
from crannog.protocol.staged_files import BatchPosition
from crannog.storage.interface import Storage

_NAME = re.compile(r"\d{15}-[0-9a-f-]+\.json")


class Ledger:
    """The batch ids of one table's folds. Not thread-safe; its owner holds a lock."""

    def __init__(self, storage: Storage, folder: str, *, window_s: float, max_batches: int) -> None:
        self._storage = storage
        self._folder = folder
        self._window_s = window_s
        self._max_batches = max_batches
        self._files: dict[str, dict[str, BatchPosition]] = {}
        self.batches: dict[str, BatchPosition] = {}
        """Where each folded batch was staged."""

    def add(self, job: str, batches: Mapping[str, BatchPosition]) -> None:
        """Record the batches of one fold durably. Each job adds once."""
        path = f"{self._folder}/{int(self._storage.now() * 1000):015}-{job}.json"
        self._storage.put_if_absent(path, json.dumps(dict(batches), separators=(",", ":")).encode())

    def refresh(self) -> None:
        """Read what other folds added, and drop what is past the window."""
        oldest_ms = (self._storage.now() - self._window_s) * 1000
        current: dict[str, dict[str, BatchPosition]] = {}
        for name in sorted(filter(_NAME.fullmatch, self._storage.names(self._folder)), reverse=True):
            if int(name.partition("-")[0]) < oldest_ms or sum(map(len, current.values())) >= self._max_batches:
                break
            if (known := self._files.get(name)) is None:
                try:
                    read = json.loads(self._storage.read(f"{self._folder}/{name}"))
                    known = {batch: BatchPosition(*position) for batch, position in read.items()}
                except FileNotFoundError:
                    continue
                except (ValueError, TypeError, AttributeError) as error:
                    raise Corrupted(
                        f"ledger file {self._folder}/{name} is not valid; delete it to continue"
                        " (a batch that was sent before and is sent again would then be stored twice)"
                    ) from error
            current[name] = known
        if current.keys() != self._files.keys():
            self._files = current
            self.batches = {batch: position for name in sorted(current) for batch, position in current[name].items()}

    def expired(self) -> list[str]:
        """Return the files that may be deleted: past the window, or beyond the maximum number of batches."""
        names = filter(_NAME.fullmatch, self._storage.names(self._folder))
        return [f"{self._folder}/{name}" for name in names if name not in self._files]
