"""The ledger: batch ids whose rows a fold has taken out of the stage, kept for the window of de-duplication.

A fold writes its ids here *before* it commits: a retry that finds the new version must find its batch id too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from crannog.errors import Corrupted
from crannog.protocol.staged_files import Place
from crannog.storage.interface import Storage

_NAME = re.compile(r"\d{15}-[0-9a-f-]+\.json")


class Ledger:
    """The batch ids of one table's folds. Not safe for threads; its owner holds a lock."""

    def __init__(self, storage: Storage, folder: str, *, window_s: float, most: int) -> None:
        self._storage = storage
        self._folder = folder
        self._window_s = window_s
        self._most = most
        self._files: dict[str, dict[str, Place]] = {}
        self._known: dict[str, Place] = {}

    def add(self, job: str, batches: Mapping[str, Place]) -> None:
        """Remember the batches of one fold, durably. The same job adds once."""
        path = f"{self._folder}/{int(self._storage.now() * 1000):015}-{job}.json"
        self._storage.put_if_absent(path, json.dumps(dict(batches), separators=(",", ":")).encode())

    def refresh(self) -> None:
        """Read what other folds added and forget what left the window."""
        oldest_ms = (self._storage.now() - self._window_s) * 1000
        current: dict[str, dict[str, Place]] = {}
        for name in sorted(filter(_NAME.fullmatch, self._storage.names(self._folder)), reverse=True):
            if int(name.partition("-")[0]) < oldest_ms or sum(map(len, current.values())) >= self._most:
                break
            if (known := self._files.get(name)) is None:
                try:
                    read = json.loads(self._storage.read(f"{self._folder}/{name}"))
                    known = {batch: Place(*place) for batch, place in read.items()}
                except FileNotFoundError:
                    continue
                except (ValueError, TypeError, AttributeError) as error:
                    raise Corrupted(
                        f"ledger file {self._folder}/{name} is not valid; delete it to go on"
                        " (a batch that was sent before and is sent again would then be kept twice)"
                    ) from error
            current[name] = known
        if current.keys() != self._files.keys():
            self._files = current
            self._known = {batch: place for name in sorted(current) for batch, place in current[name].items()}

    def place_of(self, batch_id: str) -> Place | None:
        """Return where a folded batch was kept, or None if the ledger does not know it."""
        return self._known.get(batch_id)

    def expired(self) -> list[str]:
        """Return the files that may go: past the window, or beyond the number of batches kept."""
        names = filter(_NAME.fullmatch, self._storage.names(self._folder))
        return [f"{self._folder}/{name}" for name in names if name not in self._files]
