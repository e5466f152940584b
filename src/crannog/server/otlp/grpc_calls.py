"""The calls of one gRPC connection: checked as they come in, their spans kept in a thread, answered when those are durable."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from crannog.errors import CrannogError, Overloaded, TimedOut
from crannog.server.admission import admitted
from crannog.server.auth.scopes import Caller
from crannog.server.otlp import grpc_messages as messages
from crannog.server.otlp.http2 import Connection, Stream
from crannog.server.otlp.http2_frames import PREFACE, PROTOCOL_ERROR, ConnectionBroken
from crannog.server.otlp.http2_headers import Headers
from crannog.server.otlp.http_app import response_message
from crannog.server.otlp.span_writes import keep
from crannog.server.service import Service

log = logging.getLogger("crannog.otlp")

_PROTOBUF = "application/x-protobuf"
# Bodies that are being received take up to so many times the largest one, all connections together.
_LARGEST_BODIES = 16
# A client that takes none of its answers, or asks for PING after PING, is cut off.
_LARGEST_BACKLOG = 1 << 20
_OVER_HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"


class Receiving:
    """What all connections share: the threads, and how much is under way. Used by the event loop's thread alone."""

    def __init__(self, service: Service, threads: ThreadPoolExecutor) -> None:
        self.service, self.threads = service, threads
        self.limit = service.settings.otlp_request_bytes
        self.calls = 0
        self.body_bytes = 0
        self.connections: set[GrpcConnection] = set()
        self.stopping = False

    def check_room(self) -> None:
        """Raise Overloaded while too much is under way."""
        if self.calls > self.service.settings.http_requests:
            raise Overloaded(
                f"{self.calls - 1:,} requests are being served, which is the most; try again shortly", retry_after_s=1
            )
        if self.body_bytes > _LARGEST_BODIES * self.limit:
            raise Overloaded(
                f"requests of {self.body_bytes:,} bytes are being received, which is the most; try again shortly",
                retry_after_s=1,
            )


class _Call:
    __slots__ = ("address", "body_bytes", "caller", "head", "working")

    def __init__(self, head: messages.CallHead, address: str) -> None:
        self.head, self.address = head, address
        self.caller: Caller | None = None
        self.body_bytes = 0
        self.working = False


class GrpcConnection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, receiving: Receiving) -> None:
        self._receiving = receiving
        self._service = receiving.service
        self._http2 = Connection(self)
        self._calls: dict[int, _Call] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._address = ""
        self._transport: asyncio.Transport | None = None
        self._heard = False

    # -- the socket ----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if peer else ""
        self._receiving.connections.add(self)
        self._look_later()
        # The client greets first: what it says may be no HTTP/2.
        if self._receiving.stopping:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._receiving.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        for call in self._calls.values():
            if not call.working:
                self._release(call)
        self._calls.clear()

    def data_received(self, data: bytes) -> None:
        try:
            self._http2.receive(data)
        except ConnectionBroken as error:
            self._break(error, data)
            return
        self._heard = True
        self._flush()

    def _break(self, error: ConnectionBroken, data: bytes) -> None:
        if not self._heard and error.code == PROTOCOL_ERROR and data[:4].isalpha() and not PREFACE.startswith(data[:4]):
            told = f"this port takes OTLP over gRPC; OTLP over HTTP goes to port {self._service.settings.otlp_http_port}\n".encode()
            self._send(_OVER_HTTP % (len(told), told))
        else:
            self._http2.leave(error.code, error.message)
            self._flush()
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        if self._http2.outgoing:
            self._send(bytes(self._http2.outgoing))
            self._http2.outgoing.clear()
        if self._http2.leaving and not self._http2.streams and self._transport is not None:
            self._transport.close()

    def _send(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > _LARGEST_BACKLOG:
            self._transport.abort()

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(self._service.settings.http_stall_s, self._look)

    def _look(self) -> None:
        """Cut off who stopped in the middle of a request, or never began to speak."""
        if not self._heard and self._transport is not None:
            self._transport.abort()
            return
        stall_s = self._service.settings.http_stall_s
        for stream in self._http2.idle_streams():
            self._refuse(
                stream,
                TimedOut(
                    f"the client sent nothing for {stall_s:g} s in the middle of a request; nothing of it was kept"
                ),
            )
        self._flush()
        self._look_later()

    def leave(self) -> None:
        """Take no more calls; those that run are answered, then the connection is closed."""
        self._http2.leave()
        self._flush()

    def cut_off(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # -- calls ---------------------------------------------------------------------------------------------------------

    def begun(self, stream: Stream, headers: Headers) -> None:
        """Check the head of a call, before its body comes."""
        if not messages.is_grpc(headers):
            self._http2.answer(stream, messages.NOT_GRPC)
            return
        try:
            call = _Call(messages.call_head(headers), self._address)
            self._calls[stream.id] = call
            self._receiving.calls += 1
            self._receiving.check_room()
            if not self._service.tokens.is_stale:  # otherwise in the thread: to read them takes its time
                call.caller = self._admitted(call)
        except CrannogError as error:
            self._refuse(stream, error)

    def _admitted(self, call: _Call) -> Caller:
        return admitted(
            self._service, authorization=call.head.authorization, host="localhost", origin=None, address=call.address
        )

    def grown(self, stream: Stream) -> None:
        """Stop a body that is too large, or one too many."""
        self._count_body(stream)
        try:
            messages.check_size(stream.body, self._receiving.limit)
            self._receiving.check_room()
        except CrannogError as error:
            self._refuse(stream, error)

    def _count_body(self, stream: Stream) -> _Call:
        call = self._calls[stream.id]
        self._receiving.body_bytes += len(stream.body) - call.body_bytes
        call.body_bytes = len(stream.body)
        return call

    def ended(self, stream: Stream) -> None:
        """Keep the spans of a call in a thread."""
        call = self._count_body(stream)
        try:
            messages.check_size(stream.body, self._receiving.limit)
            body, encoding = messages.message_of(stream.body, call.head.encoding)
        except CrannogError as error:
            self._refuse(stream, error)
            return
        stream.body = bytearray()
        call.working = True  # and counted until it is over, whether the client waits for it or not
        work = self._loop.run_in_executor(self._receiving.threads, self._kept, call, body, encoding)
        work.add_done_callback(lambda done: self._answer(stream, call, done))

    def gone(self, stream: Stream) -> None:
        """Forget a call."""
        call = self._calls.pop(stream.id, None)
        if call is not None and not call.working:
            self._release(call)

    def _release(self, call: _Call) -> None:
        self._receiving.calls -= 1
        self._receiving.body_bytes -= call.body_bytes

    def _kept(self, call: _Call, body: bytes, encoding: str) -> bytes | CrannogError:
        """Keep spans, in a thread; return the answer's message, or why there is none."""
        try:
            caller = call.caller
            if caller is None:
                self._service.tokens.refresh()
                caller = self._admitted(call)
            return response_message(keep(self._service, caller, body, _PROTOBUF, encoding))
        except CrannogError as error:
            return error
        except Exception as error:
            log.error("a request failed", exc_info=error)
            return CrannogError("the server failed on this request; its log tells more")

    def _answer(self, stream: Stream, call: _Call, done: asyncio.Future[bytes | CrannogError]) -> None:
        self._release(call)
        if done.cancelled():
            return
        result = done.result()
        if isinstance(result, CrannogError):
            self._refuse(stream, result)
        else:
            self._http2.answer(stream, messages.ANSWER_HEAD, messages.framed(result), messages.ANSWER_END)
        self._flush()

    def _refuse(self, stream: Stream, error: CrannogError) -> None:
        self._http2.answer(stream, messages.refusal(error))
