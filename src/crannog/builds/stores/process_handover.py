"""The desk of a Delta log: where the processes of one machine take turns, and leave what they want appended meanwhile.

Who has the turn commits for everyone who left a slip, so that several processes share one staged file as the threads
of one do. Only to save work: who is first is decided by the commit, and an event is kept once by its id. So a process
that stands still, or dies, with the turn or with a slip on the desk holds up nobody for long and loses nothing.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from crannog.builds.stores.shared_mailbox import ENDING, Tray
from crannog.storage.local import shows_later_changes

_PATIENCE_S = 2.0
_EVENTS_PER_S, _MOST_EVENTS = 5_000, 200_000
_PAUSE_S = 0.002
_MOMENT_NS, _LONG_MOMENT_NS = 2_000_000, 10_000_000
_LISTEN_S = 0.02
_TURN = struct.Struct("<qq32s")


class Desk:
    """A folder beside the read model, with a lock file for the turn, one for who is next, and a tray for each who waited."""

    def __init__(self, folder: Path, *, patience_s: float = _PATIENCE_S) -> None:
        """`patience_s`: how long a commit of one event may take before whoever makes it is said to stand still."""
        self._patience_s = patience_s
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._turn = os.open(folder / "turn", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.posix_fallocate(self._turn, 0, _TURN.size)
        self._had = mmap.mmap(self._turn, _TURN.size)
        """For how many events the turn was taken, and until when whoever had it last, by name, may have it again."""
        self._next = os.open(folder / "next", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._name = uuid.uuid4().hex.encode()
        self._process = os.getpid()
        self._tray: Tray | None = None
        self._others: dict[str, Tray] = {}
        self._changed_ns: int | None = None

    @property
    def is_ours(self) -> bool:
        """Whether this process opened the desk; one that was forked has the locks and the tray of the other."""
        return self._process == os.getpid()

    # -- the turn ----------------------------------------------------------------------------------------------------

    def take_turn(self, events: int) -> bool:
        """Take the turn to commit about so many events, if nobody has it or is next, or had it a moment ago.

        Who has just committed may do so again at once, knowing all there is; anybody else would first have to read it.
        """
        if self._others_moment_ns() or not _locked(self._next):
            return False
        try:
            return self._take(events)
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)

    def _take(self, events: int) -> bool:
        if not _locked(self._turn):
            return False
        _TURN.pack_into(self._had, 0, events, 0, self._name)
        return True

    def end_turn(self, *, in_company: bool = False) -> None:
        """Let others have the turn, after a moment; a longer one where many wait, who take the processor meanwhile."""
        until = time.monotonic_ns() + (_LONG_MOMENT_NS if in_company else _MOMENT_NS)
        _TURN.pack_into(self._had, 0, 0, until, self._name)
        fcntl.flock(self._turn, fcntl.LOCK_UN)

    def _others_moment_ns(self) -> int:
        """Return how long another process may still have the turn again."""
        _, until, name = _TURN.unpack_from(self._had)
        left = until - time.monotonic_ns()
        return left if name != self._name and 0 < left <= _LONG_MOMENT_NS else 0

    def listen(self) -> None:
        """Wait for an answer, or until the turn may be free: who has it rings when it ends, unless it dies."""
        self.tray.wait(self._others_moment_ns() / 1e9 or _LISTEN_S)

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
        events: int = _TURN.unpack_from(self._had)[0]
        return time.monotonic() - since > self._patience_s + min(max(events, 0), _MOST_EVENTS) / _EVENTS_PER_S

    # -- slips -------------------------------------------------------------------------------------------------------

    @property
    def tray(self) -> Tray:
        """The tray of this process, made when it is first needed: most never find the turn taken."""
        if self._tray is None:
            self._tray = Tray(self._folder / f"{self._name.decode()}{ENDING}", own=True)
        return self._tray

    def leave(self, slip: bytes) -> bool:
        """Leave a slip for whoever has the turn; False if there is no room for it."""
        try:
            return self.tray.leave(slip)
        except OSError:
            return False

    def waiting(self) -> list[Tray]:
        """Return the trays of the others in which a slip waits."""
        self._look_for_trays()
        return [tray for tray in self._others.values() if tray.has_slip]

    def slips(self, but: Collection[str] = ()) -> list[tuple[Tray, bytes]]:
        """Return the slips that wait, but for those in some trays, and those of processes that have died."""
        found = []
        for tray in self.waiting():
            if tray.name in but:
                continue
            if not self._leave_out_if_abandoned(tray) and (slip := tray.slip()) is not None:
                found.append((tray, slip))
        return found

    def _leave_out_if_abandoned(self, tray: Tray) -> bool:
        abandoned = tray.remove_if_abandoned()
        if abandoned:
            self._others.pop(tray.name).close()
        return abandoned

    def ring_next(self) -> None:
        """Wake one of those whose slips still lie on the desk: the turn is free."""
        for tray in self.waiting()[:1]:
            tray.ring()

    def _look_for_trays(self) -> None:
        """See who has come or gone; by one look at the folder if nobody has for a while."""
        changed_ns = os.fstat(self._place).st_mtime_ns
        if changed_ns == self._changed_ns:
            return
        here = {Path(entry).stem: entry for entry in os.listdir(self._folder) if entry.endswith(ENDING)}  # noqa: PTH208
        for name in self._others.keys() - here.keys():
            self._others.pop(name).close()
        for name in here.keys() - self._others.keys() - {self._name.decode()}:
            with suppress(FileNotFoundError):
                self._others[name] = Tray(self._folder / here[name], own=False)
        for tray in list(self._others.values()):
            self._leave_out_if_abandoned(tray)
        self._changed_ns = changed_ns if shows_later_changes(changed_ns) else None

    def close(self) -> None:
        for tray in (*self._others.values(), *([self._tray] if self._tray is not None else [])):
            tray.close()
        self._had.close()
        for handle in (self._turn, self._next, self._place):
            os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
