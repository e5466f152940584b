"""A gRPC client that writes its own HTTP/2 frames: it can say what no library would."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hpack import Decoder, Encoder

from doors import EXPORT

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, PADDED = 1, 4, 8


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def message(body: bytes, *, packed: bool) -> bytes:
    """A message of gRPC, with its prefix."""
    return bytes([packed]) + len(body).to_bytes(4) + body


@dataclass
class Answer:
    """What came back on a stream."""

    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    reset: int | None = None
    ended: bool = False

    @property
    def status(self) -> int:
        return int(self.headers["grpc-status"])


class Wire:
    """One connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.answers: dict[int, Answer] = {}
        self.goaway: int | None = None
        self.pongs: list[bytes] = []
        self._encoder, self._decoder = Encoder(), Decoder()
        self._rest = b""
        self._next = 1

    def head(self, path: str = EXPORT, **more: str) -> bytes:
        """A header block; more headers by name, with _ for -."""
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("te", "trailers"),
        ]
        extra = {"content-type": "application/grpc"} | {name.replace("_", "-"): value for name, value in more.items()}
        return bytes(self._encoder.encode([*headers, *extra.items()]))

    def stream(self) -> int:
        self._next += 2
        return self._next - 2

    def call(self, payload: bytes, **headers: str) -> Answer:
        """Send a whole call, and wait for its answer."""
        stream = self.stream()
        self.sock.sendall(frame(HEADERS, END_HEADERS, stream, self.head(**headers)) + data(stream, payload))
        return self.answer(stream)

    def answer(self, stream: int) -> Answer:
        """Wait until a stream is answered, or the connection ends."""
        while not (found := self.answers.setdefault(stream, Answer())).ended and found.reset is None:
            if not self.read():
                break
        return found

    def read(self) -> bool:
        """Take what the server sends; False at its end."""
        got = self.sock.recv(1 << 16)
        self._rest += got
        while len(self._rest) >= 9 and len(self._rest) >= 9 + (size := int.from_bytes(self._rest[:3])):
            kind, flags, stream = self._rest[3], self._rest[4], int.from_bytes(self._rest[5:9])
            payload, self._rest = self._rest[9 : 9 + size], self._rest[9 + size :]
            self._take(kind, flags, stream, payload)
        return bool(got)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        of = self.answers.setdefault(stream, Answer())
        if kind == HEADERS:
            of.headers |= {str(name): str(value) for name, value in self._decoder.decode(payload)}
        elif kind == DATA:
            of.body += payload
        elif kind == RST_STREAM and not of.ended:
            of.reset = int.from_bytes(payload)
        elif kind == GOAWAY:
            self.goaway = struct.unpack(">LL", payload[:8])[1]
        elif kind == PING:
            self.pongs.append(payload)
        of.ended = of.ended or (kind in (HEADERS, DATA) and bool(flags & END_STREAM))

    def until_closed(self) -> int | None:
        """Wait for the end; the error code that the server gave."""
        try:
            while self.read():
                pass
        except ConnectionResetError:
            pass
        return self.goaway


def data(stream: int, payload: bytes, size: int = 16_384) -> bytes:
    """A body in frames, the last of which ends the stream."""
    parts = [payload[at : at + size] for at in range(0, len(payload), size)] or [b""]
    return b"".join(
        frame(DATA, END_STREAM if place == len(parts) - 1 else 0, stream, part) for place, part in enumerate(parts)
    )


@contextmanager
def connected(address: str, settings: bytes = b"") -> Iterator[Wire]:
    """Connect to a gRPC server and greet it, with a payload of SETTINGS."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))
        yield Wire(sock)
