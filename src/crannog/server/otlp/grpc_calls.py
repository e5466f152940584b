"""The calls of one gRPC connection: checked as they arrive, written in a thread, and acknowledged when durable."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

from crannog.errors import CrannogError, Overloaded, TimedOut
from crannog.server.admission import admitted
from crannog.server.otlp import grpc_messages as messages
from crannog.server.otlp.http2 import Connection, Stream
from crannog.server.otlp.http2_frames import PREFACE, PROTOCOL_ERROR, Headers, Http2Error
from crannog.server.otlp.http_app import http_status_of, keep, response_message
from crannog.server.requests import Call
from crannog.server.scopes import NOBODY, Caller
from crannog.server.service import Service
from crannog.traces.span_table import SPANS

if TYPE_CHECKING:
    from crannog.api.traces import WriteOutcome

log = logging.getLogger("crannog.otlp")

_PROTOBUF = "application/x-protobuf"
_VERB = "otlp_grpc"
# Limit of all bodies that are being received, as a multiple of the largest one.
_MAX_BODIES = 16
# A client that does not read its responses, or floods us with PINGs, is disconnected.
_MAX_UNREAD_BYTES = 1 << 20
_HTTP_1_RESPONSE = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"


class GrpcState:
    """State that all connections share. Used by the thread of the event loop only."""

    def __init__(self, service: Service, threads: ThreadPoolExecutor) -> None:
        self.service, self.threads = service, threads
        self.limit = service.settings.otlp_request_bytes
        self.calls = 0
        self.body_bytes = 0
        self.connections: set[GrpcConnection] = set()
        self.stopping = False

    def check_limits(self) -> None:
        """Raise Overloaded if too many calls or bytes are being received."""
        if self.calls > self.service.settings.http_requests:
            raise Overloaded(
                f"{self.calls - 1:,} requests are being served, which is the limit; try again shortly", retry_after_s=1
            )
        if self.body_bytes > _MAX_BODIES * self.limit:
            raise Overloaded(
                f"requests of {self.body_bytes:,} bytes are being received, which is the limit; try again shortly",
                retry_after_s=1,
            )


class _Call:
    __slots__ = ("address", "body_bytes", "caller", "head", "is_writing", "started")

    def __init__(self, head: messages.CallHead, address: str) -> None:
        self.head, self.address = head, address
        self.caller: Caller | None = None
        self.body_bytes = 0
        self.is_writing = False
        self.started = time.perf_counter()


class GrpcConnection(asyncio.Protocol):
    """The connection of one client."""

    def __init__(self, state: GrpcState) -> None:
        self._state = state
        self._service = state.service
        self._http2 = Connection(self)
        self._calls: dict[int, _Call] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._address = ""
        self._transport: asyncio.Transport | None = None
        self._has_received = False

    # -- the socket ----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class is not a subclass of it
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if peer else ""
        self._state.connections.add(self)
        self._schedule_check()
        # Nothing is sent before the client's preface: it may not speak HTTP/2.
        if self._state.stopping:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._state.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        for call in self._calls.values():
            if not call.is_writing:
                self._release(call)
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
        """Refuse requests that stalled, and close a connection that never sent anything."""
        if not self._has_received and self._transport is not None:
            self._transport.abort()
            return
        stall_s = self._service.settings.http_stall_s
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
            call = _Call(messages.call_head(headers), self._address)
            self._calls[stream.id] = call
            self._state.calls += 1
            self._state.check_limits()
            if not self._service.tokens.is_stale:  # otherwise in the thread, since reading them may take long
                call.caller = self._admitted(call)
        except CrannogError as error:
            self._respond_error(stream, error)

    def _admitted(self, call: _Call) -> Caller:
        return admitted(
            self._service, authorization=call.head.authorization, host="localhost", origin=None, address=call.address
        )

    def body_received(self, stream: Stream) -> None:
        """Check the limits while a body arrives."""
        self._count_body(stream)
        try:
            messages.check_size(stream.body, self._state.limit)
            self._state.check_limits()
        except CrannogError as error:
            self._respond_error(stream, error)

    def _count_body(self, stream: Stream) -> _Call:
        call = self._calls[stream.id]
        self._state.body_bytes += len(stream.body) - call.body_bytes
        call.body_bytes = len(stream.body)
        return call

    def request_ended(self, stream: Stream) -> None:
        """Write the spans of a call in a thread."""
        call = self._count_body(stream)
        try:
            messages.check_size(stream.body, self._state.limit)
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
            self._release(call)

    def _release(self, call: _Call) -> None:
        self._state.calls -= 1
        self._state.body_bytes -= call.body_bytes

    def _write(self, call: _Call, body: bytes, encoding: str) -> bytes | CrannogError:
        """Write spans, in a thread; return the message of the response, or the error."""
        try:
            if call.caller is None:
                self._service.tokens.refresh()
                call.caller = self._admitted(call)
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

    def _record(self, call: _Call, result: WriteOutcome | CrannogError) -> None:
        """Add a call that ended to the audit."""
        audit = self._service.audit
        if not audit.on:
            return
        noted = Call(self._service, os.urandom(16).hex(), call.caller or NOBODY, call.address, started=call.started)
        noted.tables = (SPANS,)
        if isinstance(result, CrannogError):
            noted.status, noted.error_code = http_status_of(result), result.code
        else:
            noted.status, noted.rows, noted.rejected = 200, result.accepted, result.rejected
        audit.sum_up(noted, _VERB)

    def _respond(self, stream: Stream, call: _Call, done: asyncio.Future[bytes | CrannogError]) -> None:
        self._release(call)
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
