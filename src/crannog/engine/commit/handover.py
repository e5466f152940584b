"""The processes of one machine share commits: the one that has the turn commits for all that wait.

A process that finds the turn taken sends what it wants committed to the holder, and gets the result back. This only
saves work: put-if-absent decides which change comes first, and a change is kept once by its id. So a process that
stops or dies with the turn, or with requests that it has read, delays the others for a moment and loses nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import time
import uuid
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from crannog.engine.commit.group import Call
from crannog.engine.commit.pipes import Pipes, Request
from crannog.errors import CrannogError, Unavailable, error_of

_SHORT_NS, _LONG_NS = 2_000_000, 10_000_000
_CLAIM_NS = 50_000_000
_ROWS_PER_S, _MOST_ROWS = 5_000, 200_000
# How many rows the turn was taken for; until when the last holder alone may take it again; that holder.
_HOLDER = struct.Struct("<qq16s")
# Until when only the claimant may take the turn; the claimant; whether there is a pipe for requests.
_CLAIM = struct.Struct("<q16s")
_PIPES = struct.Struct("<q")
_FILE = struct.Struct("<qq16sq16sq")


class Turn:
    """The turn of one table, as one process sees it. Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Raise OSError where there is no place for the file."""
        self.name = uuid.uuid4().bytes
        self.changed_hands = True
        """Whether another process may have had the turn since this one last did."""
        self.has_pipes = False
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if os.fstat(self._file).st_size < _FILE.size:
            os.ftruncate(self._file, _FILE.size)

    def take(self, rows: int, *, claimed: bool = False) -> bool:
        """Take the turn to commit about this many rows; False if another process has it, is next, or had it just now.

        The last holder may take it again for a moment, because it knows all changes and any other process would have
        to read them first. Raises OSError where the file system has no locks.
        """
        _, until, last, claim, claimant, _ = _FILE.unpack(os.pread(self._file, _FILE.size, 0))
        now = time.monotonic_ns()
        # Times from before a restart of the machine lie outside of the bounds.
        if claimant != self.name and 0 < claim - now <= _CLAIM_NS:
            return False
        if not claimed and last != self.name and 0 < until - now <= _LONG_NS:
            return False
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            # Read again: it may have changed hands before the lock.
            _, _, last, _, _, pipes = _FILE.unpack(os.pread(self._file, _FILE.size, 0))
            self.changed_hands, self.has_pipes = last != self.name, bool(pipes)
            os.pwrite(self._file, _HOLDER.pack(rows, 0, self.name), 0)
        except BaseException:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            raise
        return True

    def end(self, *, shared: bool = False) -> None:
        """End the turn; `shared` keeps it for this process a little longer, as others that wait delay its next call."""
        until = time.monotonic_ns() + (_LONG_NS if shared else _SHORT_NS)
        with suppress(OSError):  # a full disk: what was committed is
            os.pwrite(self._file, _HOLDER.pack(0, until, self.name), 0)
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def claim(self) -> None:
        """Make this process the next one: for a while no other takes the turn. To be renewed while it waits."""
        os.pwrite(self._file, _CLAIM.pack(time.monotonic_ns() + _CLAIM_NS, self.name), _HOLDER.size)

    def end_claim(self) -> None:
        os.pwrite(self._file, _CLAIM.pack(0, self.name), _HOLDER.size)

    def announce_pipes(self) -> None:
        """Make the next holders look for requests."""
        os.pwrite(self._file, _PIPES.pack(1), _HOLDER.size + _CLAIM.size)

    def reserved_s(self) -> float:
        """Return for how long the last holder may still take the turn again; 0 if another process may."""
        _, until, last, _, _, _ = self._read()
        left = until - time.monotonic_ns()
        return left / 1e9 if last != self.name and 0 < left <= _LONG_NS else 0.0

    def allowed_s(self) -> float:
        """Return how long the commit under way may take on top of the time for one of a single row."""
        return min(max(self._read()[0], 0), _MOST_ROWS) / _ROWS_PER_S

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._file)

    def _read(self) -> tuple[int, int, bytes, int, bytes, int]:
        found: tuple[int, int, bytes, int, bytes, int] = _FILE.unpack(os.pread(self._file, _FILE.size, 0))
        return found


PATIENCE_S, BUCKET_PATIENCE_S = 2.0, 10.0
_WITHOUT_TURN_S = 10.0
_GATHER_S = 0.002
_POLL_S, _CLAIM_POLL_S = 0.005, 0.001

V = TypeVar("V")
R = TypeVar("R")


class _NoTurn(Exception):
    """The process that has the turn seems to have stopped."""


class Messages(Protocol[V, R]):
    """How values and results are written for another process."""

    def encode(self, calls: Sequence[Call[V, R]]) -> bytes | None:
        """Return the values of calls as a message; None if they are not to be handed over."""

    def decode(self, message: bytes) -> list[V]:
        """Return the values of a message; empty if this process cannot commit them, then the sender does."""

    def encode_result(self, result: R) -> Any:
        """Return a result as JSON values."""

    def decode_result(self, given: Any) -> R:
        """Return a result that another process gave."""


class Handover(Generic[V, R]):
    """Commits calls of this process and of others. Used by one thread at a time, the leader of a group."""

    def __init__(
        self,
        folder: Path,
        commit: Callable[[list[Call[V, R]]], None],
        messages: Messages[V, R],
        *,
        rows: Callable[[V], int],
        on_change: Callable[[], None],
        patience_s: float | None = None,
    ) -> None:
        """`on_change` is called before a commit if another process may have committed since the last one.

        `rows` tells about how many rows a value has. `patience_s` is how long the commit of one row may take before
        its process is taken to have stopped.
        """
        self._folder = folder
        self._commit = commit
        self._messages = messages
        self._rows = rows
        self._on_change = on_change
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        self._process = os.getpid()
        self._turn: Turn | None = None
        self._pipes: Pipes | None = None
        self._closing: list[Callable[[], object]] = []
        self._senders = 0
        self._without_until = 0.0

    def run(self, calls: list[Call[V, R]]) -> None:
        """Commit calls, or have them committed by the process that has the turn; each gets its result or error."""
        turn = self._turn or self._opened()
        # A process that was forked has the locks and the pipes of the other.
        if turn is None or time.monotonic() < self._without_until or self._process != os.getpid():
            self._commit_without_turn(calls)
            return
        rows = sum(self._rows(call.value) for call in calls)
        try:
            if turn.take(rows) or (not self._send(turn, calls) and self._claimed(turn, rows)):
                answer = None
            else:
                answer = self._answer_or_turn(turn, rows)
        except (OSError, _NoTurn):  # a file system without locks, or a process that has stopped with the turn
            self._without_until = time.monotonic() + _WITHOUT_TURN_S
            self._commit_without_turn(calls)
            return
        if answer is None:
            self._commit_in_turn(turn, calls)
        else:
            self._take_answer(calls, answer)

    def close(self) -> None:
        """Close files and pipes; the next use opens them again."""
        for close in self._closing:
            close()
        self._closing, self._turn, self._pipes = [], None, None

    def _opened(self) -> Turn | None:
        if time.monotonic() >= self._without_until:
            try:
                # Not its parents: the table may have been dropped.
                self._folder.mkdir(exist_ok=True)
                self._turn = Turn(self._folder / "turn")
                self._closing.append(weakref.finalize(self, _close, self._turn, self._process))
            except OSError:  # a folder of another user, or gone
                self._without_until = time.monotonic() + _WITHOUT_TURN_S
        return self._turn

    def _opened_pipes(self, turn: Turn) -> Pipes | None:
        if self._pipes is None:
            try:
                self._pipes = Pipes(self._folder, turn.name, oldest_s=self._patience_s)
                self._closing.append(weakref.finalize(self, _close, self._pipes, self._process))
            except OSError:
                return None  # a file system without pipes: processes take turns
        return self._pipes

    def _commit_without_turn(self, calls: list[Call[V, R]]) -> None:
        self._on_change()
        self._commit(calls)

    # -- with the turn -----------------------------------------------------------------------------------------------

    def _commit_in_turn(self, turn: Turn, calls: list[Call[V, R]]) -> None:
        others: list[tuple[Request, list[Call[V, R]]]] = []
        try:
            if turn.changed_hands:
                self._on_change()
            if turn.has_pipes and (pipes := self._opened_pipes(turn)) is not None:
                others = self._gathered(pipes)
            self._commit([*calls, *(call for _, theirs in others for call in theirs)])
            for request, theirs in others:
                if theirs and self._pipes is not None:
                    # Before the turn ends: the next holder must not commit them again.
                    self._pipes.give(request, self._answer(theirs))
        finally:
            turn.end(shared=bool(others))

    def _gathered(self, pipes: Pipes) -> list[tuple[Request, list[Call[V, R]]]]:
        """Return the requests of other processes, after a moment for those that have just had an answer to come again."""
        ends = time.monotonic() + _GATHER_S
        found: dict[bytes, tuple[Request, list[Call[V, R]]]] = {}
        while True:
            for request in pipes.requests():
                found[request.sender] = request, [Call(value) for value in self._messages.decode(request.content)]
            left_s = ends - time.monotonic()
            if len(found) >= self._senders or left_s <= 0:
                break
            pipes.wait_for_request(left_s)
        self._senders = len(found)
        return list(found.values())

    def _answer(self, calls: Sequence[Call[V, R]]) -> bytes:
        return json.dumps([[self._written_result(call), _written_error(call.error)] for call in calls]).encode()

    def _written_result(self, call: Call[V, R]) -> Any:
        return None if call.result is None else self._messages.encode_result(call.result)

    # -- without it --------------------------------------------------------------------------------------------------

    def _send(self, turn: Turn, calls: Sequence[Call[V, R]]) -> bool:
        """Send calls to the process that has the turn; False if they are too large for that."""
        pipes = self._opened_pipes(turn)
        message = self._messages.encode(calls) if pipes is not None else None
        if pipes is None or message is None or not pipes.send(message):
            return False
        if not turn.has_pipes:
            turn.announce_pipes()
        return True

    def _answer_or_turn(self, turn: Turn, rows: int) -> bytes | None:
        """Wait for the answer of the process that has the turn; None if the turn became free before it answered."""
        began = time.monotonic()
        pipes = self._pipes
        assert pipes is not None
        while time.monotonic() - began <= self._patience_s + turn.allowed_s():
            answer = pipes.answer()
            if answer is None and turn.take(rows):
                # Once more: the last holder answered before its turn ended.
                answer = pipes.answer()
                if answer is None:
                    return None
                turn.end()
            if answer is not None:
                return answer
            pipes.wait_for_answer(turn.reserved_s() or _POLL_S)
        raise _NoTurn

    def _take_answer(self, calls: Sequence[Call[V, R]], answer: bytes) -> None:
        for call, (result, error) in zip(calls, json.loads(answer), strict=True):
            call.result = None if result is None else self._messages.decode_result(result)
            call.error = None if error is None else error_of(*error)

    def _claimed(self, turn: Turn, rows: int) -> bool:
        """Wait for the turn, as the next process to have it."""
        began = time.monotonic()
        while time.monotonic() - began <= self._patience_s + turn.allowed_s():
            turn.claim()
            if turn.take(rows, claimed=True):
                turn.end_claim()
                return True
            time.sleep(_CLAIM_POLL_S)
        raise _NoTurn


def _written_error(error: BaseException | None) -> list[Any] | None:
    if error is None:
        return None
    if isinstance(error, CrannogError):
        return [error.code, error.message, error.retry_after_s]
    return [Unavailable.code, str(error), None]


def _close(opened: Turn | Pipes, process: int) -> None:
    if process == os.getpid():
        opened.close()
