"""The server side of one HTTP/2 connection, as far as gRPC needs it: frames, streams and flow control.

Reads and writes bytes, never a socket. It is our own because the alternatives do not work: gRPC's C library refuses any
`grpc-encoding` that it cannot decompress, before we see the request, and the `h2` library takes two thirds of a
millisecond for the frames of a request of 1,000 spans. All memory that a peer can make us use is limited: header blocks,
streams, bodies, responses that it does not read, and streams that it opens only to reset them.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import Protocol

from hpack.exceptions import HPACKError
from hpack.hpack import Decoder

from crannog.server.otlp import http2_frames as h2
from crannog.server.otlp.http2_frames import Headers, Http2Error, content_length, is_request, is_trailers

_STREAM_WINDOW, _CONNECTION_WINDOW = 1 << 20, 1 << 24
_MAX_STREAMS = 1_000
_MAX_HEADER_BYTES = 1 << 16
_MAX_RESETS = 1_000
"""Streams that a client may reset, beyond those that got a response, before the connection is closed."""
_REMEMBERED_RESETS = 256
_MAX_EFFORT = 100_000
"""Frames that are not part of a request, and streams that each makes us look at, before the connection is closed.

Counted from the last request that was complete, or the last check of the connection.
"""


class Stream:
    """One request and its response."""

    __slots__ = (
        "active",
        "body",
        "ended",
        "expected",
        "id",
        "received",
        "responded",
        "send_window",
        "stalled",
        "trailers",
        "unsent",
        "window",
    )

    def __init__(self, number: int, send_window: int, expected: int | None) -> None:
        self.id = number
        self.expected = expected  # length of the body, if the client declared it
        self.body = bytearray()
        self.window = _STREAM_WINDOW
        self.send_window = send_window
        self.received = 0
        self.ended = False  # the request is complete
        self.responded = False
        self.unsent = b""
        self.trailers = b""
        self.stalled = False  # whether the response was not sent at the last call of `Connection.reset_unread`
        self.active = True
        """Whether a frame came since the last call of `Connection.idle_streams`."""


class RequestHandler(Protocol):
    """Handles the requests of a connection. It may respond to a stream during any of these calls, or later."""

    def request_started(self, stream: Stream, headers: Headers) -> None:
        """The headers of a request were received."""

    def body_received(self, stream: Stream) -> None:
        """A part of the body was received."""

    def request_ended(self, stream: Stream) -> None:
        """The request is complete."""

    def stream_closed(self, stream: Stream) -> None:
        """The response was sent, or the client no longer waits for it."""


class Connection:
    """Reads bytes with `receive`; the bytes to send are in `outgoing` afterwards."""

    def __init__(self, handler: RequestHandler) -> None:
        self.outgoing = bytearray(
            h2.settings(
                [
                    (h2.MAX_CONCURRENT_STREAMS, _MAX_STREAMS),
                    (h2.INITIAL_WINDOW_SIZE, _STREAM_WINDOW),
                    (h2.MAX_HEADER_LIST_SIZE, _MAX_HEADER_BYTES),
                ]
            )
            + h2.number_frame(h2.WINDOW_UPDATE, 0, _CONNECTION_WINDOW - h2.DEFAULT_WINDOW)
        )
        self.streams: dict[int, Stream] = {}
        self.is_going_away = False
        self._handler = handler
        self._decoder = Decoder(max_header_list_size=_MAX_HEADER_BYTES)
        self._unparsed = b""
        self._has_preface = self._has_settings = False
        self._last_stream = 0
        self._window = _CONNECTION_WINDOW
        self._send_window = self._initial_send_window = h2.DEFAULT_WINDOW
        self._open_block: tuple[int, int, bytearray] | None = None  # stream and flags of an incomplete header block
        # Streams that we ended; the client may still send frames for them.
        self._recent_resets: OrderedDict[int, None] = OrderedDict()
        self._reset_count = 0
        # Streams whose responses wait for the client to allow more.
        self._blocked: dict[int, Stream] = {}
        self._effort = 0
        self._frames = self._frames_before = 0
        self._block_before: int | None = None

    # -- receiving -----------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Read bytes. Raises Http2Error if they violate the protocol."""
        if self._unparsed:
            data = self._unparsed + data
        at = 0
        if not self._has_preface:
            if not data.startswith(h2.PREFACE):
                if len(data) >= len(h2.PREFACE) or not h2.PREFACE.startswith(data):
                    raise Http2Error(h2.PROTOCOL_ERROR, "not HTTP/2")
                self._unparsed = data
                return
            self._has_preface, at = True, len(h2.PREFACE)
        view, end = memoryview(data), len(data)
        while end - at >= 9:
            high, low, kind, flags, stream = h2.HEAD.unpack_from(data, at)
            size = high << 16 | low
            if size > h2.FRAME_BYTES:
                raise Http2Error(h2.FRAME_SIZE_ERROR, f"a frame has {size:,} bytes; the limit is {h2.FRAME_BYTES:,}")
            if end - at - 9 < size:
                break
            self._frame(kind, flags, stream & 0x7FFFFFFF, view[at + 9 : at + 9 + size])
            at += 9 + size
        self._unparsed = data[at:]

    def _frame(self, kind: int, flags: int, number: int, payload: memoryview) -> None:
        if self._open_block is not None and (kind != h2.CONTINUATION or number != self._open_block[0]):
            raise Http2Error(h2.PROTOCOL_ERROR, "a header block is interrupted")
        self._frames += 1
        if kind not in (h2.HEADERS, h2.CONTINUATION) and not (kind == h2.DATA and payload):
            self._spend(1)
        if not self._has_settings:
            if kind != h2.SETTINGS or flags & h2.ACK:
                raise Http2Error(h2.PROTOCOL_ERROR, "the first frame is not SETTINGS")
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
                raise Http2Error(h2.PROTOCOL_ERROR if number else h2.FRAME_SIZE_ERROR, "malformed PING")
            if not flags & h2.ACK:
                self.outgoing += h2.frame(h2.PING, h2.ACK, 0, bytes(payload))
        elif kind == h2.PRIORITY:
            self._priority(number, payload)
        elif kind == h2.GOAWAY:
            if number:
                raise Http2Error(h2.PROTOCOL_ERROR, "GOAWAY on a stream")
        elif kind == h2.PUSH_PROMISE:
            raise Http2Error(h2.PROTOCOL_ERROR, "PUSH_PROMISE from a client")

    def _spend(self, effort: int) -> None:
        self._effort += effort
        if self._effort > _MAX_EFFORT:
            raise Http2Error(h2.ENHANCE_YOUR_CALM, "too many frames that are not part of a request")

    def _data(self, number: int, flags: int, payload: memoryview) -> None:
        size = len(payload)
        if size > self._window:
            raise Http2Error(h2.FLOW_CONTROL_ERROR, "more data than the window of the connection allows")
        self._window -= size
        if self._window < _CONNECTION_WINDOW // 2:
            self.outgoing += h2.number_frame(h2.WINDOW_UPDATE, 0, _CONNECTION_WINDOW - self._window)
            self._window = _CONNECTION_WINDOW
        plain = h2.without_padding(payload, flags)
        stream = self.streams.get(number)
        if stream is None or stream.ended:
            self._closed_stream_frame(number, "DATA")
            return
        if size > stream.window:
            self._end(stream.id, h2.FLOW_CONTROL_ERROR)
            return
        stream.window -= size
        stream.received += len(plain)
        stream.active = True
        if stream.responded:
            stream.ended = bool(flags & h2.END_STREAM)
            return
        stream.body += plain
        if flags & h2.END_STREAM:
            self._complete(stream)
            return
        self._handler.body_received(stream)
        if stream.window < _STREAM_WINDOW // 2 and not stream.responded:
            self.outgoing += h2.number_frame(h2.WINDOW_UPDATE, number, _STREAM_WINDOW - stream.window)
            stream.window = _STREAM_WINDOW

    def _complete(self, stream: Stream) -> None:
        stream.ended = True
        self._effort = 0
        if stream.expected not in (None, stream.received):
            self._end(stream.id, h2.PROTOCOL_ERROR)
        else:
            self._handler.request_ended(stream)

    def _closed_stream_frame(self, number: int, what: str) -> None:
        """Handle a frame for a stream that is not open; it may have been in transit when we ended the stream."""
        self._check_was_opened(number, what)
        if number <= self._last_stream and number not in self._recent_resets:
            stream = self.streams.get(number)
            if stream is not None:
                self._end(stream.id, h2.STREAM_CLOSED)
            else:
                self.outgoing += h2.number_frame(h2.RST_STREAM, number, h2.STREAM_CLOSED)

    def _check_was_opened(self, number: int, what: str) -> None:
        """Raise Http2Error for a stream that was never opened, unless the client opened it after our GOAWAY."""
        if number % 2 == 0 or (number > self._last_stream and not self.is_going_away):
            raise Http2Error(h2.PROTOCOL_ERROR, f"{what} for stream {number}, which was never opened")

    def _headers(self, number: int, flags: int, payload: memoryview) -> None:
        if number % 2 == 0:
            raise Http2Error(h2.PROTOCOL_ERROR, f"a request on stream {number}")
        plain = h2.without_padding(payload, flags)
        if flags & h2.HAS_PRIORITY:
            if len(plain) < 5:
                raise Http2Error(h2.FRAME_SIZE_ERROR, "a HEADERS frame is too short")
            if int.from_bytes(plain[:4]) & 0x7FFFFFFF == number:
                raise Http2Error(h2.PROTOCOL_ERROR, "a stream depends on itself")
            plain = plain[5:]
        if flags & h2.END_HEADERS:
            self._header_block(number, flags, bytes(plain))
        else:
            self._open_block = (number, flags, bytearray(plain))

    def _continuation(self, number: int, flags: int, payload: memoryview) -> None:
        if self._open_block is None:
            raise Http2Error(h2.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        _, first_flags, block = self._open_block
        block += payload
        if len(block) > _MAX_HEADER_BYTES or (not payload and not flags & h2.END_HEADERS):
            raise Http2Error(
                h2.ENHANCE_YOUR_CALM, f"a header block has more than {_MAX_HEADER_BYTES:,} bytes or does not end"
            )
        if flags & h2.END_HEADERS:
            self._open_block = None
            self._header_block(number, first_flags, bytes(block))

    def _header_block(self, number: int, flags: int, block: bytes) -> None:
        # Always decoded, since the tables of both sides must stay in sync.
        try:
            headers = [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        except HPACKError as error:
            raise Http2Error(h2.COMPRESSION_ERROR, f"a header block cannot be read: {str(error)[:100]}") from None
        stream = self.streams.get(number)
        if stream is not None:
            self._trailers(stream, flags, headers)
        elif number <= self._last_stream:
            if number not in self._recent_resets:
                raise Http2Error(h2.STREAM_CLOSED, f"HEADERS for stream {number}, which is closed")
        elif not self.is_going_away:
            self._last_stream = number
            self._open(number, flags, headers)

    def _trailers(self, stream: Stream, flags: int, headers: Headers) -> None:
        if stream.ended:
            self._end(stream.id, h2.STREAM_CLOSED)
        elif not flags & h2.END_STREAM or not is_trailers(headers):
            self._end(stream.id, h2.PROTOCOL_ERROR)
        elif stream.responded:
            stream.ended = True
        else:
            self._complete(stream)

    def _open(self, number: int, flags: int, headers: Headers) -> None:
        wrong = (
            h2.REFUSED_STREAM if len(self.streams) >= _MAX_STREAMS else 0 if is_request(headers) else h2.PROTOCOL_ERROR
        )
        if wrong:
            self._end(number, wrong)
            return
        stream = self.streams[number] = Stream(number, self._initial_send_window, content_length(headers))
        self._handler.request_started(stream, headers)
        if flags & h2.END_STREAM:
            if stream.responded:
                stream.ended = True
            else:
                self._complete(stream)

    def _window_update(self, number: int, payload: memoryview) -> None:
        if len(payload) != 4:
            raise Http2Error(h2.FRAME_SIZE_ERROR, "a WINDOW_UPDATE does not have four bytes")
        more = int.from_bytes(payload) & 0x7FFFFFFF
        if number == 0:
            if not more:
                raise Http2Error(h2.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
            self._send_window += more
            if self._send_window > h2.MAX_WINDOW:
                raise Http2Error(h2.FLOW_CONTROL_ERROR, "the connection's window is too large")
            self._spend(len(self._blocked))
            for stream in list(self._blocked.values()):
                self._flush(stream)
            return
        stream_of = self.streams.get(number)
        if stream_of is None:
            self._check_was_opened(number, "a WINDOW_UPDATE")
            return
        stream_of.send_window += more
        if not more or stream_of.send_window > h2.MAX_WINDOW:
            self._end(stream_of.id, h2.FLOW_CONTROL_ERROR if more else h2.PROTOCOL_ERROR)
        elif stream_of.trailers:
            self._flush(stream_of)

    def _rst_stream(self, number: int, payload: memoryview) -> None:
        if len(payload) != 4:
            raise Http2Error(h2.FRAME_SIZE_ERROR, "an RST_STREAM does not have four bytes")
        self._check_was_opened(number, "an RST_STREAM")
        stream = self.streams.pop(number, None)
        if stream is not None:
            self._blocked.pop(number, None)
            self._handler.stream_closed(stream)
            self._reset_count += 1
            if self._reset_count > _MAX_RESETS:
                raise Http2Error(h2.ENHANCE_YOUR_CALM, "too many streams were opened and reset")

    def _settings(self, number: int, flags: int, payload: memoryview) -> None:
        if number:
            raise Http2Error(h2.PROTOCOL_ERROR, "SETTINGS on a stream")
        if len(payload) % 6 or (flags & h2.ACK and payload):
            raise Http2Error(h2.FRAME_SIZE_ERROR, "SETTINGS frame of invalid size")
        if flags & h2.ACK:
            return
        window: int | None = None
        for name, value in struct.iter_unpack(">HL", payload):
            if (name == h2.ENABLE_PUSH and value > 1) or (
                name == h2.MAX_FRAME_SIZE and not h2.FRAME_BYTES <= value < 1 << 24
            ):
                raise Http2Error(h2.PROTOCOL_ERROR, f"invalid value {value:,} of setting {name}")
            if name == h2.INITIAL_WINDOW_SIZE:
                if value > h2.MAX_WINDOW:
                    raise Http2Error(h2.FLOW_CONTROL_ERROR, f"initial window of {value:,} bytes")
                window = value
        if window is not None:  # the last of a frame counts
            self._set_initial_window(window)
        self.outgoing += h2.frame(h2.SETTINGS, h2.ACK, 0)

    def _set_initial_window(self, value: int) -> None:
        self._spend(len(self.streams))
        more, self._initial_send_window = value - self._initial_send_window, value
        for stream in list(self.streams.values()):
            stream.send_window += more
            if stream.send_window > h2.MAX_WINDOW:
                raise Http2Error(h2.FLOW_CONTROL_ERROR, "a stream's window is too large")
            if stream.trailers:
                self._flush(stream)

    def _priority(self, number: int, payload: memoryview) -> None:
        if number == 0:
            raise Http2Error(h2.PROTOCOL_ERROR, "PRIORITY without a stream")
        if len(payload) != 5 or int.from_bytes(payload[:4]) & 0x7FFFFFFF == number:
            self._end(number, h2.FRAME_SIZE_ERROR if len(payload) != 5 else h2.PROTOCOL_ERROR)

    # -- responding ----------------------------------------------------------------------------------------------------

    def respond(self, stream: Stream, headers: bytes, message: bytes = b"", trailers: bytes = b"") -> None:
        """Send the one response of a stream: headers, message and trailers, or the headers alone."""
        if stream.responded or self.streams.get(stream.id) is not stream:
            return
        stream.responded = True
        stream.body = bytearray()
        if not trailers:
            self.outgoing += h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, stream.id, headers)
            self._finish(stream)
            return
        self.outgoing += h2.frame(h2.HEADERS, h2.END_HEADERS, stream.id, headers)
        stream.unsent, stream.trailers = message, trailers
        self._flush(stream)

    def _flush(self, stream: Stream) -> None:
        """Send as much of a response as flow control allows."""
        while stream.unsent:
            size = min(len(stream.unsent), h2.FRAME_BYTES, stream.send_window, self._send_window)
            if size <= 0:
                self._blocked[stream.id] = stream
                return
            self.outgoing += h2.frame(h2.DATA, 0, stream.id, stream.unsent[:size])
            stream.unsent = stream.unsent[size:]
            stream.send_window -= size
            self._send_window -= size
        self.outgoing += h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, stream.id, stream.trailers)
        self._finish(stream)

    def _finish(self, stream: Stream) -> None:
        self._reset_count = max(0, self._reset_count - 1)
        self._blocked.pop(stream.id, None)
        if stream.ended:
            del self.streams[stream.id]
            self._handler.stream_closed(stream)
        else:
            self._end(stream.id, h2.NO_ERROR)  # the client need not send the rest

    def _end(self, number: int, code: int) -> None:
        self.outgoing += h2.number_frame(h2.RST_STREAM, number, code)
        self._recent_resets[number] = None
        if len(self._recent_resets) > _REMEMBERED_RESETS:
            self._recent_resets.popitem(last=False)
        self._blocked.pop(number, None)
        stream = self.streams.pop(number, None)
        if stream is not None:
            self._handler.stream_closed(stream)

    def is_stuck(self) -> bool:
        """Return whether the client did not get on since the last call: in its preface, in a frame or in a block of headers."""
        block = None if self._open_block is None else self._open_block[0]
        is_within = bool(self._unparsed) or not self._has_settings
        stuck = (is_within and self._frames == self._frames_before) or (
            block is not None and block == self._block_before
        )
        self._frames_before, self._block_before, self._effort = self._frames, block, 0
        return stuck

    def reset_unread(self) -> None:
        """Give up responses that the client did not allow to be sent since the last call."""
        for stream in list(self._blocked.values()):
            if stream.stalled:
                self._end(stream.id, h2.CANCEL)
            stream.stalled = True

    def idle_streams(self) -> list[Stream]:
        """Return the incomplete requests that received nothing since the last call."""
        idle = [stream for stream in self.streams.values() if not stream.ended and not stream.active]
        for stream in self.streams.values():
            stream.active = False
        return idle

    def go_away(self, code: int = h2.NO_ERROR, message: str = "") -> None:
        """Announce that no more streams are accepted; the open ones still get their responses."""
        if not self.is_going_away:
            self.is_going_away = True
            self.outgoing += h2.goaway(self._last_stream, code, message)
