"""gRPC over HTTP/2: the headers of a call, the message in its body, and the headers of a response."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from urllib.parse import quote

from crannog.errors import CallerError, CrannogError, TooLarge
from crannog.server.otlp.http2_frames import Headers, header_block
from crannog.server.otlp.http_app import Unimplemented, code_of, status_of

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
ENCODINGS = ("identity", "deflate", "gzip", "zstd")
_ACCEPTED = ("grpc-accept-encoding", ",".join(ENCODINGS))
_CONTENT_TYPES = ("application/grpc", "application/grpc+proto")
_RESPONSE = [(":status", "200"), ("content-type", "application/grpc"), _ACCEPTED]
_PREFIX_BYTES = 5
_MAX_MESSAGE = 1_000  # it is sent twice, and clients accept 8 KiB of headers
# Printable ASCII without the percent sign.
_SAFE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")

RESPONSE_HEADERS = header_block(_RESPONSE)
RESPONSE_TRAILERS = header_block([("grpc-status", "0")])
NOT_GRPC = header_block([(":status", "415"), ("accept", ", ".join(_CONTENT_TYPES)), ("content-length", "0")])


@dataclass(frozen=True, slots=True)
class CallHead:
    """The headers of a call that matter here."""

    authorization: str
    encoding: str


def is_grpc(headers: Headers) -> bool:
    """Return whether a request is a gRPC call."""
    return any(
        name == b"content-type" and value.partition(b";")[0].strip().decode("latin-1").lower() in _CONTENT_TYPES
        for name, value in headers
    )


def call_head(headers: Headers) -> CallHead:
    """Read the headers of a call. Raises Unimplemented for another method than Export or an unknown compression."""
    given = {name: value.decode("latin-1") for name, value in headers}
    if given[b":method"] != "POST" or given[b":path"] != EXPORT:
        raise Unimplemented(
            f"there is no method {given[b':method'][:20]} {given[b':path'][:200]} here; spans go to {EXPORT}"
        )
    encoding = given.get(b"grpc-encoding", ENCODINGS[0]).strip().lower()
    if encoding not in ENCODINGS:
        raise Unimplemented(
            f"grpc-encoding {encoding[:80]!r} is not supported, nothing was kept; send {', '.join(ENCODINGS)}"
        )
    return CallHead(given.get(b"authorization", ""), encoding)


def check_size(body: bytearray, limit: int) -> None:
    """Raise TooLarge if a message is declared to be too large, or already is."""
    declared = int.from_bytes(body[1:_PREFIX_BYTES]) if len(body) >= _PREFIX_BYTES else 0
    if max(declared, len(body) - _PREFIX_BYTES) > limit:
        raise TooLarge(f"the message has more than {limit:,} bytes, which is the limit; send fewer spans at once")


def message_of(body: bytearray, encoding: str) -> tuple[bytes, str]:
    """Return the one message of a call and its compression. Raises CallerError if it is malformed."""
    if len(body) < _PREFIX_BYTES:
        raise CallerError(f"the call has no message, only {len(body)} bytes; nothing was kept")
    compressed, size = body[0], int.from_bytes(body[1:_PREFIX_BYTES])
    if compressed > 1 or (compressed and encoding == ENCODINGS[0]):
        raise CallerError(
            f"the message is marked as compressed ({compressed}), and grpc-encoding is {encoding}; nothing was kept"
        )
    received = len(body) - _PREFIX_BYTES
    if received != size:
        raise CallerError(
            f"the prefix declares a message of {size:,} bytes and {received:,} came; a call has one message, nothing was kept"
        )
    return bytes(memoryview(body)[_PREFIX_BYTES:]), encoding if compressed else ENCODINGS[0]


def framed(message: bytes) -> bytes:
    """Return a message with its prefix, not compressed."""
    return b"\x00" + len(message).to_bytes(4) + message


def error_headers(error: CrannogError) -> bytes:
    """Return the headers that are the whole response to a call that failed."""
    message = error.message[:_MAX_MESSAGE]
    status = status_of(error)
    status.message = message
    details = base64.b64encode(status.SerializeToString()).rstrip(b"=")
    return header_block(
        [
            *_RESPONSE,
            ("grpc-status", str(code_of(error))),
            ("grpc-message", quote(message, safe=_SAFE)),
            ("grpc-status-details-bin", details.decode()),
        ]
    )
