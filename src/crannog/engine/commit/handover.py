"""The processes of one machine share commits: the one that has the turn commits for all that wait.

A process that finds the turn taken sends what it wants committed to the holder, and gets the result back. This only
saves work: put-if-absent decides which change comes first, and a change is kept once by its id. So a process that
stops or dies with the turn, or with requests that it has read, delays the others for a moment and loses nothing.
"""

from __future__ import annotations

import json
import os
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from crannog.engine.commit.group import Call
from crannog.engine.commit.pipes import Pipes, Request
from crannog.engine.commit.turn import Turn
from crannog.errors import CrannogError, Unavailable, error_of

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
