"""Named pipes between the processes that commit to one table: one for the requests of all, one for the answers to each.

What is in a pipe is in memory only and goes with the last process that has it open. A message is cut into pieces that
the system writes as a whole, so those of several processes do not mix.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_REQUESTS, _ANSWERS = "requests", ".answers"
# Format, sender, number of the request, time it was sent, this piece and how many there are, length of the piece.
_PIECE = struct.Struct("<H16sQqHHH")
_ANSWER = struct.Struct("<QH")
_FORMAT = 3
_PIECE_BYTES = select.PIPE_BUF - _PIECE.size
_ANSWER_BYTES = select.PIPE_BUF - _ANSWER.size
_LARGEST_REQUEST = 16 * 1024
_PIPE_BYTES = 1 << 18
_MOST_WRITERS = 64


@dataclass(frozen=True, slots=True)
class Request:
    """What another process wants committed."""

    sender: bytes
    number: int
    content: bytes


@dataclass(slots=True)
class _Pieces:
    number: int
    parts: dict[int, bytes] = field(default_factory=dict)


class Pipes:
    """The pipes in one folder, as one process has them. Used by one thread at a time."""

    def __init__(self, folder: Path, name: bytes, *, oldest_s: float) -> None:
        """`name` is this process's; requests older than `oldest_s` are dropped, their senders no longer wait."""
        self._folder = folder
        self._name = name
        self._oldest_ns = int(oldest_s * 1e9)
        self._number = 0
        self._pieces: dict[bytes, _Pieces] = {}
        self._writers: dict[bytes, int] = {}
        self._answers: int | None = None
        with suppress(FileExistsError):
            os.mkfifo(folder / _REQUESTS, 0o666)
        self._requests = os.open(folder / _REQUESTS, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with suppress(OSError):  # a limit of the system: then there is room for fewer
                fcntl.fcntl(self._requests, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    # -- a process that waits ----------------------------------------------------------------------------------------

    def send(self, content: bytes) -> bool:
        """Send a request to whichever process has the turn; False if it is too long or there is no room."""
        if len(content) > _LARGEST_REQUEST:
            return False
        if self._answers is None:
            self._answers = self._own_answers()
        self._number += 1
        now = time.monotonic_ns()
        pieces = [content[start : start + _PIECE_BYTES] for start in range(0, len(content), _PIECE_BYTES)]
        try:
            for place, piece in enumerate(pieces):
                head = _PIECE.pack(_FORMAT, self._name, self._number, now, place, len(pieces), len(piece))
                os.write(self._requests, head + piece)
        except BlockingIOError:
            return False
        return True

    def answer(self) -> bytes | None:
        """Return the answer to the last request, if it has come."""
        if self._answers is None:
            return None
        try:
            data = os.read(self._answers, _PIPE_BYTES)
        except BlockingIOError:
            return None
        found, start = None, 0
        while start + _ANSWER.size <= len(data):
            number, length = _ANSWER.unpack_from(data, start)
            start += _ANSWER.size
            if number == self._number:  # else it is the answer to a request that was given up
                found = data[start : start + length]
            start += length
        return found

    def wait_for_answer(self, timeout_s: float) -> None:
        if self._answers is not None:
            _wait(self._answers, timeout_s)

    def _own_answers(self) -> int:
        self._remove_abandoned()
        path = self._folder / f"{self._name.hex()}{_ANSWERS}"
        unopened = path.with_suffix(".new")
        os.mkfifo(unopened, 0o666)
        opened = os.open(unopened, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        unopened.rename(path)
        return opened

    def _remove_abandoned(self) -> None:
        """Remove the pipes of processes that ended without doing so."""
        for path in self._folder.glob(f"*{_ANSWERS}"):
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
            except OSError:  # nobody reads it
                path.unlink(missing_ok=True)

    # -- the process that has the turn -------------------------------------------------------------------------------

    def requests(self) -> list[Request]:
        """Return the requests of other processes that have come and are whole."""
        try:
            data = os.read(self._requests, _PIPE_BYTES)
        except BlockingIOError:
            return []
        found, start, now = [], 0, time.monotonic_ns()
        while start + _PIECE.size <= len(data):
            version, sender, number, sent, place, count, length = _PIECE.unpack_from(data, start)
            if version != _FORMAT:
                break  # of another version, whose senders wait for their turn
            start += _PIECE.size
            content = data[start : start + length]
            start += length
            if sender == self._name or not 0 <= now - sent <= self._oldest_ns:
                continue
            pieces = self._pieces.get(sender)
            if pieces is None or pieces.number != number:
                pieces = self._pieces[sender] = _Pieces(number)
            pieces.parts[place] = content
            if len(pieces.parts) == count:
                del self._pieces[sender]
                found.append(Request(sender, number, b"".join(pieces.parts[each] for each in range(count))))
        return found

    def wait_for_request(self, timeout_s: float) -> None:
        _wait(self._requests, timeout_s)

    def give(self, request: Request, answer: bytes) -> None:
        """Answer a request. If the answer is too long or nobody reads it, the sender commits once more, to no effect."""
        if len(answer) > _ANSWER_BYTES:
            return
        try:
            writer = self._writers.get(request.sender)
            if writer is None:
                if len(self._writers) >= _MOST_WRITERS:
                    self._close_writers()  # most may be pipes of processes that have ended
                path = self._folder / f"{request.sender.hex()}{_ANSWERS}"
                writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                self._writers[request.sender] = writer
            os.write(writer, _ANSWER.pack(request.number, len(answer)) + answer)
        except OSError:
            gone = self._writers.pop(request.sender, None)
            if gone is not None:
                os.close(gone)

    def close(self) -> None:
        if self._answers is not None:
            (self._folder / f"{self._name.hex()}{_ANSWERS}").unlink(missing_ok=True)
            os.close(self._answers)
        os.close(self._requests)
        self._close_writers()

    def _close_writers(self) -> None:
        while self._writers:
            os.close(self._writers.popitem()[1])


def _wait(pipe: int, timeout_s: float) -> None:
    # Not select.select, which refuses a descriptor above 1,023: a server has that many.
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    poll.poll(timeout_s * 1_000)
