"""The calls of one gRPC connection: checked as they arrive, written in a thread, and acknowledged when durable."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING, cast

from crannog.errors import CrannogError, TimedOut
from crannog.formats.row_bodies import ENCODINGS, UNCOMPRESSED
from crannog.server.admission import admitted
from crannog.server.otlp import grpc_messages as messages
from crannog.server.otlp.grpc_state import GrpcCall, GrpcState
from crannog.server.otlp.http2 import Connection, Stream
from crannog.server.otlp.http2_frames import PREFACE, PROTOCOL_ERROR, Headers, Http2Error
from crannog.server.otlp.http_app import http_status_of, keep, response_message
from crannog.server.requests import Call
from crannog.server.scopes import NOBODY, Caller
from crannog.traces.span_table import SPANS

if TYPE_CHECKING:
    from crannog.api.traces import WriteOutcome

log = logging.getLogger("crannog.otlp")

_PROTOBUF = "application/x-protobuf"
_VERB = "otlp_grpc"
# A client that does not read its responses, or floods us with PINGs, is disconnected.
_MAX_UNREAD_BYTES = 1 << 20
_HTTP_1_RESPONSE = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"


class GrpcConnection(asyncio.Protocol):
    """The connection of one client."""

    def __init__(self, state: GrpcState) -> None:
        self._state = state
        self._service = state.service
        self._http2 = Connection(self)
        self._calls: dict[int, GrpcCall] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._address = ""
        self._transport: asyncio.Transport | None = None
        self._has_received = self._is_counted = False
        self._used_at = self._loop.time()

    # -- the socket ----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class is not a subclass of it
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if peer else ""
        self._is_counted = self._service.connections.admit(self._address) is None
        if not self._is_counted:
            self._transport.abort()  # a client of gRPC tries again later
            return
        self._state.connections.add(self)
        self._schedule_check()
        # Nothing is sent before the client's preface: it may not speak HTTP/2.
        if self._state.stopping:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._state.connections.discard(self)
        if self._is_counted:
            self._is_counted = False
            self._service.connections.leave(self._address)
        if self._timer is not None:
            self._timer.cancel()
        for call in self._calls.values():
            if not call.is_writing:
                self._state.end(call)
        self._calls.clear()

    def data_received(self, data: bytes) -> None:
        try:
            self._http2.receive(data)
        except Http2Error as error:
            self._connection_error(error, data)
            return
        self._has_received = True
        self._flush()

    def _connection_error(self, error: Http2Error, data: bytes) -> None:
        if (
            not self._has_received
            and error.code == PROTOCOL_ERROR
            and data[:4].isalpha()
            and not PREFACE.startswith(data[:4])
        ):
            text = f"this port speaks OTLP over gRPC; OTLP over HTTP is on port {self._service.settings.otlp_http_port}\n".encode()
            self._send(_HTTP_1_RESPONSE % (len(text), text))
        else:
            self._http2.go_away(error.code, error.message)
            self._flush()
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        if self._http2.outgoing:
            self._send(bytes(self._http2.outgoing))
            self._http2.outgoing.clear()
        if self._http2.is_going_away and not self._http2.streams and self._transport is not None:
            self._transport.close()

    def _send(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
            self._transport.abort()

    def _schedule_check(self) -> None:
        self._timer = self._loop.call_later(self._service.settings.http_stall_s, self._check_idle)

    def _check_idle(self) -> None:
        """Refuse requests that stalled or take too long, and close a connection that is idle or does not get on."""
        settings = self._service.settings
        if self._http2.is_stuck():
            self.abort()
            return
        if not self._calls and self._loop.time() - self._used_at > settings.http_keep_alive_s:
            self.go_away()
        stall_s, oldest = settings.http_stall_s, time.perf_counter() - settings.http_request_s
        late = TimedOut(f"the request took longer than {settings.http_request_s:g} s; it may have been written or not")
        for number in [number for number, call in self._calls.items() if call.started < oldest]:
            if (stream := self._http2.streams.get(number)) is not None:
                self._respond_error(stream, late)
        self._http2.reset_unread()
        for stream in self._http2.idle_streams():
            self._respond_error(
                stream,
                TimedOut(
                    f"the client sent nothing for {stall_s:g} s in the middle of a request; nothing of it was kept"
                ),
            )
        self._flush()
        self._schedule_check()

    def go_away(self) -> None:
        """Accept no more calls, and close the connection once the running ones have their responses."""
        self._http2.go_away()
        self._flush()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # -- calls ---------------------------------------------------------------------------------------------------------

    def request_started(self, stream: Stream, headers: Headers) -> None:
        """Check the headers of a call, before its body arrives."""
        if not messages.is_grpc(headers):
            self._http2.respond(stream, messages.NOT_GRPC)
            return
        try:
            call = GrpcCall(messages.call_head(headers), self._address)
            self._calls[stream.id] = call
            self._used_at = self._loop.time()
            self._state.begin()
            if self._service.tokens.is_stale:
                self._state.refreshed_tokens().add_done_callback(lambda done: self._admit_later(stream, call, done))
            else:
                self._state.admit(call, self._admitted(call))
        except CrannogError as error:
            self._respond_error(stream, error)

    def _admit_later(self, stream: Stream, call: GrpcCall, done: asyncio.Future[None]) -> None:
        """Admit a call once the tokens are known, unless it is being written already, where that is done."""
        if call.is_writing or call.ended or done.cancelled():
            return
        try:
            done.result()
            self._state.admit(call, self._admitted(call))
        except CrannogError as error:
            self._respond_error(stream, error)
            self._flush()

    def _admitted(self, call: GrpcCall) -> Caller:
        return admitted(
            self._service, authorization=call.head.authorization, host="localhost", origin=None, address=call.address
        )

    def body_received(self, stream: Stream) -> None:
        """Check the limits while a body arrives."""
        try:
            messages.check_size(stream.body, self._state.limit)
            self._state.hold(self._calls[stream.id], len(stream.body))
        except CrannogError as error:
            self._respond_error(stream, error)

    def request_ended(self, stream: Stream) -> None:
        """Write the spans of a call in a thread."""
        call = self._calls[stream.id]
        try:
            messages.check_size(stream.body, self._state.limit)
            self._state.hold(call, len(stream.body))
            body, encoding = messages.message_of(stream.body, call.head.encoding)
        except CrannogError as error:
            self._respond_error(stream, error)
            return
        stream.body = bytearray()
        call.is_writing = True  # counted until it is done, even if the client no longer waits
        work = self._loop.run_in_executor(self._state.threads, self._write, call, body, encoding)
        work.add_done_callback(lambda done: self._respond(stream, call, done))

    def stream_closed(self, stream: Stream) -> None:
        """Release a call that is not being written."""
        call = self._calls.pop(stream.id, None)
        if call is not None and not call.is_writing:
            self._state.end(call)

    def _write(self, call: GrpcCall, body: bytes, encoding: str) -> bytes | CrannogError:
        """Write spans, in a thread; return the message of the response, or the error."""
        try:
            if call.caller is None:
                self._service.tokens.refresh()
                call.caller = self._admitted(call)
            if encoding in ENCODINGS:
                bodies = self._service.bodies
                body, encoding = bodies.decompressed(call, body, encoding, bodies.spans), UNCOMPRESSED[0]
            outcome = keep(self._service, call.caller, body, _PROTOBUF, encoding)
            self._record(call, outcome)
            return response_message(outcome)
        except CrannogError as error:
            failure = error
        except Exception as error:
            log.error("a request failed", exc_info=error)
            failure = CrannogError("the server failed on this request; its log has the details")
        self._record(call, failure)
        return failure

    def _record(self, call: GrpcCall, result: WriteOutcome | CrannogError) -> None:
        """Count a call that ended, and add it to the audit."""
        status = http_status_of(result) if isinstance(result, CrannogError) else 200
        self._service.metrics.request("POST", messages.EXPORT, status, time.perf_counter() - call.started)
        audit = self._service.audit
        if not audit.on:
            return
        noted = Call(self._service, os.urandom(16).hex(), call.caller or NOBODY, call.address, started=call.started)
        noted.tables = (SPANS,)
        if isinstance(result, CrannogError):
            noted.status, noted.error_code = status, result.code
        else:
            noted.status, noted.rows, noted.rejected = 200, result.accepted, result.rejected
        audit.sum_up(noted, _VERB)

    def _respond(self, stream: Stream, call: GrpcCall, done: asyncio.Future[bytes | CrannogError]) -> None:
        self._state.end(call)
        self._used_at = self._loop.time()
        if done.cancelled():
            return
        result = done.result()
        if isinstance(result, CrannogError):
            self._respond_error(stream, result)
        else:
            self._http2.respond(stream, messages.RESPONSE_HEADERS, messages.framed(result), messages.RESPONSE_TRAILERS)
        self._flush()

    def _respond_error(self, stream: Stream, error: CrannogError) -> None:
        call = self._calls.get(stream.id)
        if call is not None and not call.is_writing:
            self._record(call, error)
        self._http2.respond(stream, messages.error_headers(error))
