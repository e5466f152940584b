"""The build logs that the contract is held against: how to make each, how to open it again, as another process would."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crannog.builds import EventLog, open_log


@dataclass
class Place:
    """A log of one kind that no other test uses."""

    kind: str
    uri: str
    opened: list[EventLog] = field(default_factory=list)

    @property
    def lasts(self) -> bool:
        """Whether a second opening sees what the first one kept."""
        return self.kind not in ("memory", "tee")

    def open(self, **options: Any) -> EventLog:
        log = open_log(self.uri, **options)
        self.opened.append(log)
        return log

    def close(self) -> None:
        for log in self.opened:
            log.close()


def place_of(kind: str, folder: Path, ask: Callable[[str], Any]) -> Place:
    """Return a fresh place; `ask` gets a fixture by its name, so that a server only starts when it is needed."""
    if kind == "memory":
        return Place(kind, "sqlite::memory:")
    if kind == "sqlite":
        return Place(kind, f"sqlite:///{folder}/log.db")
    if kind == "tee":
        return Place(kind, f"tee:sqlite::memory:,sqlite:///{folder}/copy.db")
    if kind == "delta":
        return Place(kind, f"delta://{folder}/warehouse")
    if kind == "s3":
        return Place(kind, f"delta+{ask('s3_location')}")
    if kind == "http":
        return Place(kind, ask("build_server").serve(f"delta://{folder}/served"))
    if kind == "postgresql":
        server = ask("postgres")
        return Place(kind, server.new_schema(f"log_{uuid.uuid4().hex}"))
    raise AssertionError(kind)
