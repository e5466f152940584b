"""Serves an application on a socket from its own thread, with limits on the head of a request."""

from __future__ import annotations

import asyncio
import socket
import threading
from functools import partial
from typing import Any

import uvicorn
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from crannog.errors import CallerError, Unavailable
from crannog.formats.encode import json_bytes
from crannog.settings import Settings

_MAX_HEAD_BYTES = 1 << 18


class LimitedProtocol(HttpToolsProtocol):  # type: ignore[misc]
    """Uvicorn's protocol with limits on the time and size of a head; uvicorn limits idle connections."""

    parser: HttpRequestParser
    _in_head = True
    _head_bytes = 0
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, head_s: float, **options: Any) -> None:
        super().__init__(**options)
        self._head_s = head_s

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._timer = self.loop.call_later(self._head_s, self._close_if_late)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self._parse(memoryview(data))
        except HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES:
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
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        if self._timer is None:
            self._timer = self.loop.call_later(self._head_s, self._close_if_late)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            self.scope["method"] = self.parser.get_method().decode("ascii")
            return
        super().on_headers_complete()
        self._in_head = False
        self._cancel_timer()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _close_if_late(self) -> None:
        if self._in_head and (self.cycle is None or self._head_bytes):
            self.transport.close()
        self._timer = None

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        # Data that is not HTTP gets an error of the same shape as everything else.
        error = {
            "code": CallerError.code,
            "message": f"not a valid HTTP/1.1 request: {msg}",
            "retry_after_s": None,
        }
        body = json_bytes({"error": error})
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        self.transport.write(head % len(body) + body)
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

    def __init__(self, app: ASGIApp, bound: socket.socket, settings: Settings, *, name: str) -> None:
        self.port: int = bound.getsockname()[1]
        self._name = name
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=partial(LimitedProtocol, settings.http_stall_s),
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
