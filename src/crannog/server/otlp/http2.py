"""The server's side of one HTTP/2 connection, as far as gRPC needs it: frames in, calls out, answers in windows.

Reads and writes bytes, never a socket. It is our own because the alternatives fail: gRPC's C library refuses any
`grpc-encoding` that it does not unpack itself, before we see the request; and the `h2` library takes two thirds of a
millisecond for the frames of a request of 1,000 spans. What a peer can make us hold is bounded: header blocks, streams,
bytes of a body, answers that it does not take, and streams that it opens only to reset them.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import Protocol

from hpack.exceptions import HPACKError
from hpack.hpack import Decoder

from crannog.server.otlp import http2_frames as h2
from crannog.server.otlp.http2_frames import ConnectionBroken
from crannog.server.otlp.http2_headers import Headers, are_a_request, are_trailers, content_length

_STREAM_WINDOW, _CONNECTION_WINDOW = 1 << 20, 1 << 24
_STREAMS = 1_000
_HEADER_BYTES = 1 << 16
_RESETS = 1_000
"""So many streams may be reset beyond those that were answered, before the peer is taken for an attacker."""
_REMEMBERED = 256


class Stream:
    """One request and its answer."""

    __slots__ = (
        "answered",
        "body",
        "ended",
        "expected",
        "id",
        "received",
        "send_window",
        "touched",
        "trailers",
        "unsent",
        "window",
    )

    def __init__(self, number: int, send_window: int, expected: int | None) -> None:
        self.id = number
        self.expected = expected  # bytes of the body, if the client said how many
        self.body = bytearray()
        self.window = _STREAM_WINDOW
        self.send_window = send_window
        self.received = 0
        self.ended = False  # the request is complete
        self.answered = False
        self.unsent = b""
        self.trailers = b""
        self.touched = True
        """Whether something came since `Connection.idle_streams` last asked."""


class Calls(Protocol):
    """What is done with requests. May answer a stream at any of these calls, or later."""

    def begun(self, stream: Stream, headers: Headers) -> None:
        """Take the head of a request."""

    def grown(self, stream: Stream) -> None:
        """Look at a body that has grown."""

    def ended(self, stream: Stream) -> None:
        """Take a request that is complete."""

    def gone(self, stream: Stream) -> None:
        """Forget a stream: it was answered, or the client no longer waits."""


class Connection:
    """Takes what comes by `receive`; what is to be sent is in `outgoing` afterwards."""

    def __init__(self, calls: Calls) -> None:
        self.outgoing = bytearray(
            h2.settings(
                [
                    (h2.MAX_CONCURRENT_STREAMS, _STREAMS),
                    (h2.INITIAL_WINDOW_SIZE, _STREAM_WINDOW),
                    (h2.MAX_HEADER_LIST_SIZE, _HEADER_BYTES),
                ]
            )
            + h2.number_frame(h2.WINDOW_UPDATE, 0, _CONNECTION_WINDOW - h2.FIRST_WINDOW)
        )
        self.streams: dict[int, Stream] = {}
        self.leaving = False
        self._calls = calls
        self._decoder = Decoder(max_header_list_size=_HEADER_BYTES)
        self._rest = b""
        self._greeted = self._has_settings = False
        self._last = 0
        self._window = _CONNECTION_WINDOW
        self._send_window = self._first_send_window = h2.FIRST_WINDOW
        self._block: tuple[int, int, bytearray] | None = None  # stream and flags of a header block that goes on
        self._reset: OrderedDict[int, None] = OrderedDict()  # streams that ended here while the client may still send
        self._resets = 0

    # -- receiving -----------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Take bytes; ConnectionBroken if they break the protocol."""
        if self._rest:
            data = self._rest + data
        at = 0
        if not self._greeted:
            if not data.startswith(h2.PREFACE):
                if len(data) >= len(h2.PREFACE) or not h2.PREFACE.startswith(data):
                    raise ConnectionBroken(h2.PROTOCOL_ERROR, "this is no HTTP/2")
                self._rest = data
                return
            self._greeted, at = True, len(h2.PREFACE)
        view, end = memoryview(data), len(data)
        while end - at >= 9:
            high, low, kind, flags, stream = h2.HEAD.unpack_from(data, at)
            size = high << 16 | low
            if size > h2.FRAME_BYTES:
                raise ConnectionBroken(
                    h2.FRAME_SIZE_ERROR, f"a frame has {size:,} bytes; {h2.FRAME_BYTES:,} is the most"
                )
            if end - at - 9 < size:
                break
            self._frame(kind, flags, stream & 0x7FFFFFFF, view[at + 9 : at + 9 + size])
            at += 9 + size
        self._rest = data[at:]

    def _frame(self, kind: int, flags: int, number: int, payload: memoryview) -> None:
        if self._block is not None and (kind != h2.CONTINUATION or number != self._block[0]):
            raise ConnectionBroken(h2.PROTOCOL_ERROR, "a header block is interrupted")
        if not self._has_settings:
            if kind != h2.SETTINGS or flags & h2.ACK:
                raise ConnectionBroken(h2.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self._has_settings = True
        if kind == h2.DATA:
            self._data(number, flags, payload)
        elif kind == h2.HEADERS:
            self._headers(number, flags, payload)
        elif kind == h2.CONTINUATION:
            self._continuation(number, flags, payload)
        elif kind == h2.WINDOW_UPDATE:
            self._window_update(number, payload)
        elif kind == h2.RST_STREAM:
            self._rst_stream(number, payload)
        elif kind == h2.SETTINGS:
            self._settings(number, flags, payload)
        elif kind == h2.PING:
            if number or len(payload) != 8:
                raise ConnectionBroken(h2.PROTOCOL_ERROR if number else h2.FRAME_SIZE_ERROR, "a PING is wrong")
            if not flags & h2.ACK:
                self.outgoing += h2.frame(h2.PING, h2.ACK, 0, bytes(payload))
        elif kind == h2.PRIORITY:
            self._priority(number, payload)
        elif kind == h2.GOAWAY:
            if number:
                raise ConnectionBroken(h2.PROTOCOL_ERROR, "a GOAWAY names a stream")
        elif kind == h2.PUSH_PROMISE:
            raise ConnectionBroken(h2.PROTOCOL_ERROR, "a client pushes nothing")

    def _data(self, number: int, flags: int, payload: memoryview) -> None:
        size = len(payload)
        if size > self._window:
            raise ConnectionBroken(h2.FLOW_CONTROL_ERROR, "more data than the connection's window allows")
        self._window -= size
        if self._window < _CONNECTION_WINDOW // 2:
            self.outgoing += h2.number_frame(h2.WINDOW_UPDATE, 0, _CONNECTION_WINDOW - self._window)
            self._window = _CONNECTION_WINDOW
        plain = h2.without_padding(payload, flags)
        stream = self.streams.get(number)
        if stream is None or stream.ended:
            self._for_closed(number, "DATA")
            return
        if size > stream.window:
            self._end(stream.id, h2.FLOW_CONTROL_ERROR)
            return
        stream.window -= size
        stream.received += len(plain)
        stream.touched = True
        if stream.answered:
            stream.ended = bool(flags & h2.END_STREAM)
            return
        stream.body += plain
        if flags & h2.END_STREAM:
            self._complete(stream)
            return
        self._calls.grown(stream)
        if stream.window < _STREAM_WINDOW // 2 and not stream.answered:
            self.outgoing += h2.number_frame(h2.WINDOW_UPDATE, number, _STREAM_WINDOW - stream.window)
            stream.window = _STREAM_WINDOW

    def _complete(self, stream: Stream) -> None:
        stream.ended = True
        if stream.expected not in (None, stream.received):
            self._end(stream.id, h2.PROTOCOL_ERROR)
        else:
            self._calls.ended(stream)

    def _for_closed(self, number: int, what: str) -> None:
        """Take a frame for a stream that is not open: it may have been on its way when we ended the stream."""
        self._check_opened(number, what)
        if number <= self._last and number not in self._reset:
            stream = self.streams.get(number)
            if stream is not None:
                self._end(stream.id, h2.STREAM_CLOSED)
            else:
                self.outgoing += h2.number_frame(h2.RST_STREAM, number, h2.STREAM_CLOSED)

    def _check_opened(self, number: int, what: str) -> None:
        """Refuse a frame for a stream that never was; what a client opened after we said that we leave is none of those."""
        if number % 2 == 0 or (number > self._last and not self.leaving):
            raise ConnectionBroken(h2.PROTOCOL_ERROR, f"{what} for stream {number}, which was never opened")

    def _headers(self, number: int, flags: int, payload: memoryview) -> None:
        if number % 2 == 0:
            raise ConnectionBroken(h2.PROTOCOL_ERROR, f"a request on stream {number}")
        plain = h2.without_padding(payload, flags)
        if flags & h2.HAS_PRIORITY:
            if len(plain) < 5:
                raise ConnectionBroken(h2.FRAME_SIZE_ERROR, "a HEADERS frame is too short")
            if int.from_bytes(plain[:4]) & 0x7FFFFFFF == number:
                raise ConnectionBroken(h2.PROTOCOL_ERROR, "a stream depends on itself")
            plain = plain[5:]
        if flags & h2.END_HEADERS:
            self._header_block(number, flags, bytes(plain))
        else:
            self._block = (number, flags, bytearray(plain))

    def _continuation(self, number: int, flags: int, payload: memoryview) -> None:
        if self._block is None:
            raise ConnectionBroken(h2.PROTOCOL_ERROR, "a CONTINUATION of nothing")
        _, first_flags, block = self._block
        block += payload
        if len(block) > _HEADER_BYTES or (not payload and not flags & h2.END_HEADERS):
            raise ConnectionBroken(
                h2.ENHANCE_YOUR_CALM, f"a header block has more than {_HEADER_BYTES:,} bytes, or never ends"
            )
        if flags & h2.END_HEADERS:
            self._block = None
            self._header_block(number, first_flags, bytes(block))

    def _header_block(self, number: int, flags: int, block: bytes) -> None:
        # Decoded whatever becomes of it: both sides' tables must stay alike.
        try:
            headers = [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        except HPACKError as error:
            raise ConnectionBroken(h2.COMPRESSION_ERROR, f"a header block cannot be read: {str(error)[:100]}") from None
        stream = self.streams.get(number)
        if stream is not None:
            self._trailers(stream, flags, headers)
        elif number <= self._last:
            if number not in self._reset:
                raise ConnectionBroken(h2.STREAM_CLOSED, f"HEADERS for stream {number}, which is closed")
        elif not self.leaving:
            self._last = number
            self._open(number, flags, headers)

    def _trailers(self, stream: Stream, flags: int, headers: Headers) -> None:
        if stream.ended:
            self._end(stream.id, h2.STREAM_CLOSED)
        elif not flags & h2.END_STREAM or not are_trailers(headers):
            self._end(stream.id, h2.PROTOCOL_ERROR)
        elif stream.answered:
            stream.ended = True
        else:
            self._complete(stream)

    def _open(self, number: int, flags: int, headers: Headers) -> None:
        wrong = (
            h2.REFUSED_STREAM if len(self.streams) >= _STREAMS else 0 if are_a_request(headers) else h2.PROTOCOL_ERROR
        )
        if wrong:
            self._end(number, wrong)
            return
        stream = self.streams[number] = Stream(number, self._first_send_window, content_length(headers))
        self._calls.begun(stream, headers)
        if flags & h2.END_STREAM:
            if stream.answered:
                stream.ended = True
            else:
                self._complete(stream)

    def _window_update(self, number: int, payload: memoryview) -> None:
        if len(payload) != 4:
            raise ConnectionBroken(h2.FRAME_SIZE_ERROR, "a WINDOW_UPDATE does not have four bytes")
        more = int.from_bytes(payload) & 0x7FFFFFFF
        if number == 0:
            if not more:
                raise ConnectionBroken(h2.PROTOCOL_ERROR, "a WINDOW_UPDATE adds nothing")
            self._send_window += more
            if self._send_window > h2.LARGEST_WINDOW:
                raise ConnectionBroken(h2.FLOW_CONTROL_ERROR, "the connection's window is too large")
            for stream in [stream for stream in self.streams.values() if stream.trailers]:
                self._flush(stream)
            return
        stream_of = self.streams.get(number)
        if stream_of is None:
            self._check_opened(number, "a WINDOW_UPDATE")
            return
        stream_of.send_window += more
        if not more or stream_of.send_window > h2.LARGEST_WINDOW:
            self._end(stream_of.id, h2.FLOW_CONTROL_ERROR if more else h2.PROTOCOL_ERROR)
        elif stream_of.trailers:
            self._flush(stream_of)

    def _rst_stream(self, number: int, payload: memoryview) -> None:
        if len(payload) != 4:
            raise ConnectionBroken(h2.FRAME_SIZE_ERROR, "an RST_STREAM does not have four bytes")
        self._check_opened(number, "an RST_STREAM")
        stream = self.streams.pop(number, None)
        if stream is not None:
            self._calls.gone(stream)
            self._resets += 1
            if self._resets > _RESETS:
                raise ConnectionBroken(h2.ENHANCE_YOUR_CALM, "too many streams are opened and reset")

    def _settings(self, number: int, flags: int, payload: memoryview) -> None:
        if number:
            raise ConnectionBroken(h2.PROTOCOL_ERROR, "SETTINGS for a stream")
        if len(payload) % 6 or (flags & h2.ACK and payload):
            raise ConnectionBroken(h2.FRAME_SIZE_ERROR, "SETTINGS of a wrong size")
        if flags & h2.ACK:
            return
        for name, value in struct.iter_unpack(">HL", payload):
            if (name == h2.ENABLE_PUSH and value > 1) or (
                name == h2.MAX_FRAME_SIZE and not h2.FRAME_BYTES <= value < 1 << 24
            ):
                raise ConnectionBroken(h2.PROTOCOL_ERROR, f"setting {name} is {value:,}")
            if name == h2.INITIAL_WINDOW_SIZE:
                self._new_first_window(value)
        self.outgoing += h2.frame(h2.SETTINGS, h2.ACK, 0)

    def _new_first_window(self, value: int) -> None:
        if value > h2.LARGEST_WINDOW:
            raise ConnectionBroken(h2.FLOW_CONTROL_ERROR, f"a first window of {value:,} bytes")
        more, self._first_send_window = value - self._first_send_window, value
        for stream in list(self.streams.values()):
            stream.send_window += more
            if stream.send_window > h2.LARGEST_WINDOW:
                raise ConnectionBroken(h2.FLOW_CONTROL_ERROR, "a stream's window is too large")
            if stream.trailers:
                self._flush(stream)

    def _priority(self, number: int, payload: memoryview) -> None:
        if number == 0:
            raise ConnectionBroken(h2.PROTOCOL_ERROR, "a PRIORITY names no stream")
        if len(payload) != 5 or int.from_bytes(payload[:4]) & 0x7FFFFFFF == number:
            self._end(number, h2.FRAME_SIZE_ERROR if len(payload) != 5 else h2.PROTOCOL_ERROR)

    # -- answering -----------------------------------------------------------------------------------------------------

    def answer(self, stream: Stream, headers: bytes, message: bytes = b"", trailers: bytes = b"") -> None:
        """Answer a stream, once: header blocks, and a message between them; without trailers, the headers alone."""
        if stream.answered or self.streams.get(stream.id) is not stream:
            return
        stream.answered = True
        stream.body = bytearray()
        if not trailers:
            self.outgoing += h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, stream.id, headers)
            self._finish(stream)
            return
        self.outgoing += h2.frame(h2.HEADERS, h2.END_HEADERS, stream.id, headers)
        stream.unsent, stream.trailers = message, trailers
        self._flush(stream)

    def _flush(self, stream: Stream) -> None:
        """Send as much of an answer as the windows let through."""
        while stream.unsent:
            size = min(len(stream.unsent), h2.FRAME_BYTES, stream.send_window, self._send_window)
            if size <= 0:
                return
            self.outgoing += h2.frame(h2.DATA, 0, stream.id, stream.unsent[:size])
            stream.unsent = stream.unsent[size:]
            stream.send_window -= size
            self._send_window -= size
        self.outgoing += h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, stream.id, stream.trailers)
        self._finish(stream)

    def _finish(self, stream: Stream) -> None:
        self._resets = max(0, self._resets - 1)
        if stream.ended:
            del self.streams[stream.id]
            self._calls.gone(stream)
        else:
            self._end(stream.id, h2.NO_ERROR)  # the client need not send the rest

    def _end(self, number: int, code: int) -> None:
        self.outgoing += h2.number_frame(h2.RST_STREAM, number, code)
        self._reset[number] = None
        if len(self._reset) > _REMEMBERED:
            self._reset.popitem(last=False)
        stream = self.streams.pop(number, None)
        if stream is not None:
            self._calls.gone(stream)

    def idle_streams(self) -> list[Stream]:
        """Return the streams in the middle of a request of which nothing came since this was last asked."""
        idle = [stream for stream in self.streams.values() if not stream.ended and not stream.touched]
        for stream in self.streams.values():
            stream.touched = False
        return idle

    def leave(self, code: int = h2.NO_ERROR, message: str = "") -> None:
        """Tell the client that no more streams are taken; those that run are answered."""
        if not self.leaving:
            self.leaving = True
            self.outgoing += h2.goaway(self._last, code, message)
