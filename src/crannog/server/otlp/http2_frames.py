"""HTTP/2 on the wire (RFC 9113): codes of frames, settings and errors, the frames a server sends,
and the rules for the headers of a request and its trailers (section 8).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes from a client."""
HEAD = struct.Struct(">BHBBL")
"""The head of a frame: the length in two parts, type, flags, stream."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
ACK, END_STREAM, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20

NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 3
STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR = 5, 6, 7, 8, 9
ENHANCE_YOUR_CALM = 11

ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = 2, 3, 4, 5, 6

FRAME_BYTES = 16_384
"""The largest frame that a peer may send by default; this server does not allow more."""
DEFAULT_WINDOW = 65_535
MAX_WINDOW = 2**31 - 1

_STATUS_200 = b"\x88"  # its index in HPACK's static table


class Http2Error(Exception):
    """The peer violated the protocol: a connection error with this code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return the bytes of a frame."""
    size = len(payload)
    return HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def settings(values: Iterable[tuple[int, int]]) -> bytes:
    """Return a SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HL", *pair) for pair in values))


def number_frame(kind: int, stream: int, number: int) -> bytes:
    """Return a frame whose payload is one number: WINDOW_UPDATE or RST_STREAM."""
    return frame(kind, 0, stream, number.to_bytes(4))


def goaway(last_stream: int, code: int, message: str = "") -> bytes:
    """Return a GOAWAY frame."""
    return frame(GOAWAY, 0, 0, struct.pack(">LL", last_stream, code) + message.encode()[:200])


def header_block(headers: Iterable[tuple[str, str]]) -> bytes:
    """Return headers as HPACK literals that are not indexed, so that there is no table to keep in sync with the client."""
    return b"".join(_STATUS_200 if pair == (":status", "200") else _literal(*pair) for pair in headers)


def _literal(name: str, value: str) -> bytes:
    return b"\x00" + _text(name.encode("ascii")) + _text(value.encode("latin-1"))


def _text(text: bytes) -> bytes:
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    length, size = bytearray((127,)), size - 127
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return bytes(length) + text


def without_padding(payload: memoryview, flags: int) -> memoryview:
    """Return the payload of a frame without its padding."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Http2Error(PROTOCOL_ERROR, "the padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]


Headers = Sequence[tuple[bytes, bytes]]

_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_REQUIRED = _PSEUDO - {b":authority"}
_HTTP_1_ONLY = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))


def is_request(headers: Headers) -> bool:
    """Return whether headers can start a request: each pseudo-header once and before all other fields."""
    pseudo = [name for name, _ in headers if name[:1] == b":"]
    first, others = headers[: len(pseudo)], headers[len(pseudo) :]
    known = set(pseudo)
    if len(known) != len(pseudo) or not _REQUIRED <= known <= _PSEUDO or pseudo != [name for name, _ in first]:
        return False
    return dict(first)[b":path"] != b"" and _are_valid_fields(others)


def is_trailers(headers: Headers) -> bool:
    """Return whether headers can be the trailers of a request."""
    return all(name[:1] != b":" for name, _ in headers) and _are_valid_fields(headers)


def _are_valid_fields(headers: Headers) -> bool:
    return all(
        name and name == name.lower() and name not in _HTTP_1_ONLY and (name != b"te" or value == b"trailers")
        for name, value in headers
    )


def content_length(headers: Headers) -> int | None:
    """Return the declared length of the body, None without one, and -1, which no body has, for an invalid one."""
    values = [value for name, value in headers if name == b"content-length"]
    if not values:
        return None
    return int(values[0]) if len(set(values)) == 1 and values[0].isdigit() and len(values[0]) < 20 else -1
