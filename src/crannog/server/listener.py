"""Serves an application on a socket from its own thread, with limits on the head of a request."""

from __future__ import annotations

import asyncio
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from crannog.errors import CallerError, Overloaded, Unavailable
from crannog.formats.encode import json_bytes

if TYPE_CHECKING:
    from crannog.server.service import Service

_MAX_HEAD_BYTES = 1 << 18
# Bytes of chunks that are not the body: their sizes, their extensions, and the trailers behind the last.
_MAX_FRAMING_BYTES = 1 << 17
_MAX_PIPELINED = 64
_MIN_UNREAD_BYTES = 1 << 26


class LimitedProtocol(HttpToolsProtocol):  # type: ignore[misc]
    """Uvicorn's protocol with limits on the time and size of whatever a client sends beside bodies, whose readers have their own.

    A connection is closed that is one too many, whose head takes long or is large, whose chunks are all but data, that
    is idle, or that goes on sending after it was answered.
    """

    parser: HttpRequestParser
    _in_head = True
    _head_bytes = 0
    _timer: asyncio.TimerHandle | None = None
    _in_body = False
    _has_progress = False
    _framing_bytes = 0
    _unread_bytes = 0
    _unread_timer: asyncio.TimerHandle | None = None
    _is_counted = False

    def __init__(self, service: Service, **options: Any) -> None:
        super().__init__(**options)
        self._counted = service.connections
        self._stall_s = service.settings.http_stall_s
        # A client that sends too large a body reads the answer when it has sent it: cut off early, it would see a reset.
        self._max_unread_bytes = max(_MIN_UNREAD_BYTES, 4 * service.settings.http_body_bytes)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        refusal = self._counted.admit(self._address)
        self._is_counted = refusal is None
        if refusal is not None:
            self._send_error(b"503 Service Unavailable", Overloaded.code, refusal, retry_after_s=1)
            return
        self._timer = self.loop.call_later(self._stall_s, self._close_if_late)

    def data_received(self, data: bytes) -> None:
        self._has_progress = False
        body_bytes = len(self.cycle.body) if self._in_body else 0
        try:
            self._parse(memoryview(data))
        except HttpParserError:
            if not self.transport.is_closing():
                self.send_400_response("Invalid HTTP request received.")
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES:
                self.transport.abort()
            return
        has_body = self._has_progress or len(self.cycle.body) > body_bytes
        self._framing_bytes = 0 if has_body else self._framing_bytes + len(data)
        if self._unread_timer is not None:
            self._unread_bytes += len(data)
            self._framing_bytes = 0
        if self._framing_bytes > _MAX_FRAMING_BYTES or self._unread_bytes > self._max_unread_bytes:
            self.transport.abort()

    def _parse(self, data: memoryview) -> None:
        while True:
            try:
                self.parser.feed_data(data)
                return
            except HttpParserUpgrade as stopped:
                data = data[stopped.args[0] :]
            if self.scope["method"] == "CONNECT":
                raise HttpParserError("CONNECT is not supported")
            self._parse_head_without_upgrade()

    def _parse_head_without_upgrade(self) -> None:
        """Feed the head to a new parser, which then reads the body by Content-Length or chunks."""
        line = f"{self.scope['method']} {self.url.decode('latin-1')} HTTP/{self.parser.get_http_version()}".encode(
            "latin-1"
        )
        headers = [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        self.parser = HttpRequestParser(self)
        # Same as uvicorn: a client may send more after a request that closes the connection.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.parser.feed_data(b"\r\n".join([line, *headers, b"", b""]))

    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        if self._timer is None:
            self._timer = self.loop.call_later(self._stall_s, self._close_if_late)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            self.scope["method"] = self.parser.get_method().decode("ascii")
            return
        if len(self.pipeline) >= _MAX_PIPELINED:
            self.transport.abort()
            raise HttpParserError("too many requests at once")
        super().on_headers_complete()
        self.headers: list[
            tuple[bytes, bytes]
        ] = []  # for the trailers, which are not headers: they would come behind all checks
        self._in_head, self._in_body, self._has_progress = False, True, True
        self._framing_bytes = self._unread_bytes = 0
        self._cancel_timer()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._in_body, self._has_progress = False, True
        super().on_message_complete()
        if self._unread_timer is not None:
            # The rest of a body that nobody read: now the connection is idle.
            self._cancel_unread_timer()
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body and self.cycle.response_complete and not self.transport.is_closing():
            # The client may send the rest, to be able to read the answer then, but not without end.
            self._unset_keepalive_if_required()
            self._cancel_unread_timer()
            self._unread_timer = self.loop.call_later(self._stall_s, self.transport.abort)

    def _close_if_late(self) -> None:
        if self._in_head and (self.cycle is None or self._head_bytes):
            self.transport.close()
        self._timer = None

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cancel_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        self._cancel_unread_timer()
        self._unset_keepalive_if_required()
        if self._is_counted:
            self._is_counted = False
            self._counted.leave(self._address)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._send_error(b"400 Bad Request", CallerError.code, f"not a valid HTTP/1.1 request: {msg}")

    def _send_error(self, status: bytes, code: str, message: str, retry_after_s: int | None = None) -> None:
        # What never becomes a request gets an error of the same shape as everything else.
        body = json_bytes({"error": {"code": code, "message": message, "retry_after_s": retry_after_s}})
        retry = b"" if retry_after_s is None else b"retry-after: %d\r\n" % retry_after_s
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\nconnection: close\r\n%bcontent-length: %d\r\n\r\n"
        self.transport.write(head % (status, retry, len(body)) + body)
        self.transport.close()


_START_S = 30.0
_BACKLOG = 2_048


def listening(host: str, port: int, hint: str) -> socket.socket:
    """Return a bound socket. Raises Unavailable, with the hint, if that fails."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        bound = socket.socket(family, kind)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        return bound
    except OSError as error:
        raise Unavailable(f"cannot listen on {host} port {port}: {error.strerror or error}; {hint}") from None


class Listener:
    """Serves one application."""

    def __init__(self, app: ASGIApp, bound: socket.socket, service: Service, *, name: str) -> None:
        settings = service.settings
        self.port: int = bound.getsockname()[1]
        self._name = name
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=partial(LimitedProtocol, service),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=settings.http_keep_alive_s,
                backlog=_BACKLOG,
                ssl_certfile=settings.tls_certificate or None,
                ssl_keyfile=settings.tls_key or None,
            )
        )
        self._thread = threading.Thread(target=self._server.run, args=([bound],), name=f"crannog-{name}", daemon=True)

    def start(self) -> None:
        """Return once requests are accepted."""
        self._thread.start()
        never = threading.Event()
        for _ in range(int(_START_S / 0.005)):
            if self._server.started:
                return
            if not self._thread.is_alive():
                break
            never.wait(0.005)
        raise Unavailable(f"the {self._name} server did not start; see its log")

    def stop_accepting(self) -> None:
        """Accept no more connections; running requests continue."""
        self._server.should_exit = True

    def join(self, timeout_s: float) -> bool:
        """Wait for running requests; return False if some still run."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def abort(self) -> None:
        """Stop waiting for clients."""
        self._server.force_exit = True
