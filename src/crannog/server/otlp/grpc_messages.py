"""gRPC over HTTP/2: what the headers of a call say, the message in its body, and the headers of an answer."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from urllib.parse import quote

from crannog.errors import CallerError, CrannogError, TooLarge
from crannog.server.otlp.http2_frames import header_block
from crannog.server.otlp.http2_headers import Headers
from crannog.server.otlp.otlp_errors import Unimplemented, code_of, status_of

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
ENCODINGS = ("identity", "deflate", "gzip", "zstd")
_ACCEPTED = ("grpc-accept-encoding", ",".join(ENCODINGS))
_CONTENT_TYPES = ("application/grpc", "application/grpc+proto")
_ANSWER = [(":status", "200"), ("content-type", "application/grpc"), _ACCEPTED]
_PREFIX_BYTES = 5
_LONGEST_MESSAGE = 1_000  # it is sent twice, and clients take 8 KiB of headers
# All of ASCII that can be printed, but for the percent sign.
_SAFE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")

ANSWER_HEAD = header_block(_ANSWER)
ANSWER_END = header_block([("grpc-status", "0")])
NOT_GRPC = header_block([(":status", "415"), ("accept", ", ".join(_CONTENT_TYPES)), ("content-length", "0")])


@dataclass(frozen=True, slots=True)
class CallHead:
    """What the headers of a call say."""

    authorization: str
    encoding: str


def is_grpc(headers: Headers) -> bool:
    """Tell whether the request is a gRPC call at all."""
    return any(
        name == b"content-type" and value.partition(b";")[0].strip().decode("latin-1").lower() in _CONTENT_TYPES
        for name, value in headers
    )


def call_head(headers: Headers) -> CallHead:
    """Read the headers of a call; Unimplemented if it asks for something else than spans to be kept, or is packed in an unknown way."""
    given = {name: value.decode("latin-1") for name, value in headers}
    if given[b":method"] != "POST" or given[b":path"] != EXPORT:
        raise Unimplemented(
            f"there is no method {given[b':method'][:20]} {given[b':path'][:200]} here; spans go to {EXPORT}"
        )
    encoding = given.get(b"grpc-encoding", ENCODINGS[0]).strip().lower()
    if encoding not in ENCODINGS:
        raise Unimplemented(
            f"grpc-encoding {encoding[:80]!r} is not known here, nothing was kept; send {', '.join(ENCODINGS)}"
        )
    return CallHead(given.get(b"authorization", ""), encoding)


def check_size(body: bytearray, limit: int) -> None:
    """Refuse a message by the size that it announces, or that it has got to: TooLarge."""
    announced = int.from_bytes(body[1:_PREFIX_BYTES]) if len(body) >= _PREFIX_BYTES else 0
    if max(announced, len(body) - _PREFIX_BYTES) > limit:
        raise TooLarge(f"the message has more than {limit:,} bytes, which is the most; send fewer spans at once")


def message_of(body: bytearray, encoding: str) -> tuple[bytes, str]:
    """Return the one message of a call and how it is packed."""
    if len(body) < _PREFIX_BYTES:
        raise CallerError(f"the call has no message, {len(body)} bytes only; nothing was kept")
    packed, size = body[0], int.from_bytes(body[1:_PREFIX_BYTES])
    if packed > 1 or (packed and encoding == ENCODINGS[0]):
        raise CallerError(
            f"the message is marked as packed ({packed}), and grpc-encoding is {encoding}; nothing was kept"
        )
    held = len(body) - _PREFIX_BYTES
    if held != size:
        raise CallerError(
            f"the message has {size:,} bytes by its prefix, and {held:,} bytes came; one message is one call, nothing was kept"
        )
    return bytes(memoryview(body)[_PREFIX_BYTES:]), encoding if packed else ENCODINGS[0]


def framed(message: bytes) -> bytes:
    """Return a message as it is sent: not packed."""
    return b"\x00" + len(message).to_bytes(4) + message


def refusal(error: CrannogError) -> bytes:
    """Return the headers that are the whole answer to a call that failed."""
    message = error.message[:_LONGEST_MESSAGE]
    status = status_of(error)
    status.message = message
    details = base64.b64encode(status.SerializeToString()).rstrip(b"=")
    return header_block(
        [
            *_ANSWER,
            ("grpc-status", str(code_of(error))),
            ("grpc-message", quote(message, safe=_SAFE)),
            ("grpc-status-details-bin", details.decode()),
        ]
    )
