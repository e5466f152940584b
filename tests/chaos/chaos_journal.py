"""The journal of a client: what it was about to do, and what was acknowledged, outside of the warehouse.

One line of JSON a step, appended and synced: the intent before the call, the acknowledgement after it. A line that is
there was written whole; a client that is killed between the two leaves an intent that may or may not have happened.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos_acts import Act, place_of


class Journal:
    """Appends to a client's journal."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, **line: Any) -> None:
        os.write(self._file, json.dumps(line, default=str).encode() + b"\n")
        os.fdatasync(self._file)


@dataclass
class History:
    """What a client did so far, read from its journal."""

    client: str
    acts: dict[int, Act] = field(default_factory=dict)
    acknowledged: dict[int, dict[str, Any]] = field(default_factory=dict)
    errors: list[dict[str, Any]] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    failpoints: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    reads: int = 0
    _read_to: int = 0

    def read(self, path: Path) -> History:
        """Read what was appended since the last call."""
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._read_to)
                whole, end, _ = file.read().rpartition(b"\n")
            self._read_to += len(whole) + len(end)
            for line in whole.splitlines():
                self._add(json.loads(line))
        return self

    def _add(self, line: dict[str, Any]) -> None:
        if "act" in line:
            self.acts[line["turn"]] = Act.from_dict(self.client, line)
        elif "ack" in line:
            self.acknowledged[line["ack"]] = line
        elif "error" in line:
            self.errors.append(line)
        elif "torn" in line:
            self.torn.append(line["torn"])
        elif "failpoint" in line:
            self.failpoints.append(line["failpoint"])
        elif "fault" in line:
            self.faults.append(line["fault"])
        elif "reads" in line:
            self.reads += line["reads"]

    @property
    def next_turn(self) -> int:
        return max(self.acts, default=-1) + 1

    @property
    def in_doubt(self) -> list[Act]:
        """The acts that were begun and not acknowledged, oldest first."""
        return [act for turn, act in sorted(self.acts.items()) if turn not in self.acknowledged]

    @property
    def generations(self) -> dict[int, int]:
        """How often each group was erased, with erasures that were only begun: their groups are not written again."""
        found: dict[int, int] = {}
        for act in self.acts.values():
            if act.kind == "erase":
                place, generation = place_of(act.group)
                found[place] = max(found.get(place, 0), generation + 1)
        return found
