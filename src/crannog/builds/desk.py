"""The desk of a Delta log: where the processes of one machine take turns, and leave what they want appended meanwhile.

Who has the turn commits for everyone who left a slip, so that several processes share one staged file as the threads
of one do. Only to save work: who is first is decided by the commit, and an event is kept once by its id. So a process
that stands still, or dies, with the turn or with a slip on the desk holds up nobody for long and loses nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PATIENCE_S = 2.0
_EVENTS_PER_S = 5_000
_PAUSE_S = 0.002
_OLD_S = 10.0
_EVENTS_WIDTH = 12
_MOMENT_NS = 3_000_000


@dataclass(frozen=True, slots=True)
class Slip:
    """What another process wants appended; its name begins with the name of that process's bell."""

    name: str
    content: bytes

    @property
    def bell(self) -> str:
        return self.name.partition("-")[0]


class Desk:
    """A folder beside the read model, with a lock file for the turn and one for who is next."""

    def __init__(self, folder: Path, *, patience_s: float = _PATIENCE_S) -> None:
        """`patience_s`: how long a commit of one event may take before whoever makes it is said to stand still."""
        self._patience_s = patience_s
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._turn = os.open(folder / "turn", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._next = os.open(folder / "next", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        # Rung when there is an answer, or the turn is free: to ask all the time would take the time of who commits.
        self._name = uuid.uuid4().hex
        self._bell: int | None = None
        self._left = 0

    # -- the turn ----------------------------------------------------------------------------------------------------

    def take_turn(self, events: int) -> bool:
        """Take the turn to commit about so many events, if nobody has it or is next, or had it a moment ago.

        Who has just committed may do so again at once, knowing all there is; anybody else would first have to read it.
        """
        if self._others_moment() or not _locked(self._next):
            return False
        try:
            return self._take(events)
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)

    def _take(self, events: int) -> bool:
        if not _locked(self._turn):
            return False
        os.pwrite(self._turn, b"%*d" % (_EVENTS_WIDTH, events), 0)
        return True

    def end_turn(self) -> None:
        os.pwrite(self._turn, b"%20d%s" % (time.monotonic_ns(), self._name.encode()), _EVENTS_WIDTH)
        fcntl.flock(self._turn, fcntl.LOCK_UN)

    def _others_moment(self) -> bool:
        written = os.pread(self._turn, 52, _EVENTS_WIDTH)
        if len(written) < 52 or written[20:] == self._name.encode():
            return False
        try:
            return 0 <= time.monotonic_ns() - int(written[:20]) < _MOMENT_NS
        except ValueError:
            return False

    @contextmanager
    def turn(self, events: int) -> Iterator[bool]:
        """Wait for the turn, as the next one, and have it; or go on without (False) when whoever has it stands still."""
        mine, began = False, time.monotonic()
        if self._wait(lambda: _locked(self._next), began):
            mine = self._wait(lambda: self._take(events), began)
            fcntl.flock(self._next, fcntl.LOCK_UN)
        try:
            yield mine
        finally:
            if mine:
                self.end_turn()
                self.ring_next()

    def _wait(self, act: Callable[[], bool], began: float) -> bool:
        while not act():
            if self.is_stuck(began):
                return False
            time.sleep(_PAUSE_S)
        return True

    def is_stuck(self, since: float) -> bool:
        """Tell whether one has waited since then for longer than the turn that is being had should take."""
        try:
            events = int(os.pread(self._turn, _EVENTS_WIDTH, 0) or 0)
        except ValueError:
            events = 0
        return time.monotonic() - since > self._patience_s + events / _EVENTS_PER_S

    # -- slips -------------------------------------------------------------------------------------------------------

    def leave(self, content: bytes) -> str:
        """Leave a slip for whoever has the turn; return its name."""
        if self._bell is None:
            path = self._folder / f"{self._name}.bell"
            os.mkfifo(path, 0o666)
            self._bell = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._left += 1
        name = f"{self._name}-{self._left}"
        self._put(f"{name}.call", content)
        return name

    def wait(self, timeout_s: float) -> None:
        """Wait until somebody rings, for so long at most."""
        assert self._bell is not None
        if select.select([self._bell], [], [], timeout_s)[0]:
            with suppress(BlockingIOError):
                os.read(self._bell, 4_096)

    def ring(self, bell: str) -> None:
        """Wake whoever waits for an answer, or for the turn."""
        with suppress(OSError):  # gone, or rung often enough already
            handle = os.open(self._folder / f"{bell}.bell", os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(handle, b"!")
            finally:
                os.close(handle)

    def ring_next(self) -> None:
        """Wake one of those whose slips still lie on the desk: the turn is free."""
        for entry in os.listdir(self._folder):  # noqa: PTH208
            if entry.endswith(".call"):
                self.ring(entry.partition("-")[0])
                return

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
            if file.suffix == ".bell":
                self._remove_if_dead(file)
            if file.suffix not in (".call", ".done", ".tmp"):
                continue
            with suppress(FileNotFoundError):
                if time.time() - file.stat().st_mtime > _OLD_S:
                    file.unlink()
                elif file.suffix == ".call":
                    found.append(Slip(file.stem, file.read_bytes()))
        return found

    @staticmethod
    def _remove_if_dead(bell: Path) -> None:
        """Take away the bell of a process that was killed: nobody has it open any more."""
        try:
            os.close(os.open(bell, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno == errno.ENXIO and time.time() - bell.stat().st_mtime > _OLD_S:
                bell.unlink(missing_ok=True)

    def answer(self, slip: Slip, content: bytes) -> None:
        """Write what became of a slip, unless its writer took it back; `ring` tells that it is there."""
        with suppress(FileNotFoundError):
            (self._folder / f"{slip.name}.call").unlink()
            self._put(f"{slip.name}.done", content)

    def _put(self, name: str, content: bytes) -> None:
        # Complete before its name appears. Not synced: it is worth nothing after a crash.
        temporary = self._folder / f"{name}.tmp"
        temporary.write_bytes(content)
        temporary.rename(self._folder / name)

    def close(self) -> None:
        if self._bell is not None:
            os.close(self._bell)
            (self._folder / f"{self._name}.bell").unlink(missing_ok=True)
        os.close(self._turn)
        os.close(self._next)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
