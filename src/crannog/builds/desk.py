"""The desk of a Delta log: where the processes of one machine take turns, and leave what they want appended meanwhile.

Who has the turn commits for everyone who left a slip, so that several processes share one staged file as the threads
of one do. Only to save work: who is first is decided by the commit, and an event is kept once by its id. So a process
that stands still, or dies, with the turn or with a slip on the desk holds up nobody for long and loses nothing.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PATIENCE_S = 0.25
_EVENTS_PER_S = 5_000
_PAUSE_S = 0.0003
_OLD_S = 2.0


@dataclass(frozen=True, slots=True)
class Slip:
    """What another process wants appended."""

    name: str
    content: bytes


class Desk:
    """A folder beside the read model, with a lock file for the turn and one for who is next."""

    def __init__(self, folder: Path, *, patience_s: float = _PATIENCE_S) -> None:
        """`patience_s`: how long a commit of one event may take before whoever makes it is said to stand still."""
        self._patience_s = patience_s
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._turn = os.open(folder / "turn", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._next = os.open(folder / "next", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    # -- the turn ----------------------------------------------------------------------------------------------------

    def take_turn(self, events: int) -> bool:
        """Take the turn to commit about so many events, if nobody has it or is next."""
        if not _locked(self._next):
            return False
        try:
            return self._take(events)
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)

    def _take(self, events: int) -> bool:
        if not _locked(self._turn):
            return False
        os.pwrite(self._turn, b"%12d" % events, 0)
        return True

    def end_turn(self) -> None:
        fcntl.flock(self._turn, fcntl.LOCK_UN)

    @contextmanager
    def turn(self, events: int) -> Iterator[None]:
        """Wait for the turn, as the next one, and have it; or go on without when whoever has it stands still."""
        mine = False
        if self._wait(lambda: _locked(self._next)):
            mine = self._wait(lambda: self._take(events))
            fcntl.flock(self._next, fcntl.LOCK_UN)
        try:
            yield
        finally:
            if mine:
                self.end_turn()

    def _wait(self, act: Callable[[], bool]) -> bool:
        began = time.monotonic()
        while not act():
            if self.is_stuck(began):
                return False
            time.sleep(_PAUSE_S)
        return True

    def is_stuck(self, since: float) -> bool:
        """Tell whether one has waited since then for longer than the turn that is being had should take."""
        try:
            events = int(os.pread(self._turn, 12, 0) or 0)
        except ValueError:
            events = 0
        return time.monotonic() - since > self._patience_s + events / _EVENTS_PER_S

    # -- slips -------------------------------------------------------------------------------------------------------

    def leave(self, content: bytes) -> str:
        """Leave a slip for whoever has the turn; return its name."""
        name = uuid.uuid4().hex
        self._put(f"{name}.call", content)
        return name

    def answer_to(self, name: str) -> bytes | None:
        """Return what became of a slip; None if nothing has yet."""
        try:
            return (self._folder / f"{name}.done").read_bytes()
        except FileNotFoundError:
            return None

    def clear(self, name: str) -> None:
        """Take a slip and its answer away."""
        for ending in ("call", "done"):
            (self._folder / f"{name}.{ending}").unlink(missing_ok=True)

    def count(self) -> int:
        """Return how many slips lie on the desk."""
        return sum(entry.endswith(".call") for entry in os.listdir(self._folder))  # noqa: PTH208

    def slips(self) -> list[Slip]:
        """Return the slips on the desk, but for those whose writers have long given up."""
        found = []
        for file in self._folder.iterdir():
            if file.suffix not in (".call", ".done", ".tmp"):
                continue
            with suppress(FileNotFoundError):
                if time.time() - file.stat().st_mtime > _OLD_S:
                    file.unlink()
                elif file.suffix == ".call":
                    found.append(Slip(file.stem, file.read_bytes()))
        return found

    def answer(self, slip: Slip, content: bytes) -> None:
        """Tell what became of a slip, unless its writer took it back."""
        with suppress(FileNotFoundError):
            (self._folder / f"{slip.name}.call").unlink()
            self._put(f"{slip.name}.done", content)

    def _put(self, name: str, content: bytes) -> None:
        # Complete before its name appears. Not synced: it is worth nothing after a crash.
        temporary = self._folder / f"{name}.tmp"
        temporary.write_bytes(content)
        temporary.rename(self._folder / name)

    def close(self) -> None:
        os.close(self._turn)
        os.close(self._next)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
