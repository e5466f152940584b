"""Starts and stops both OTLP receivers; that of gRPC has its own port and event loop, in its own thread."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

from crannog.errors import Unavailable
from crannog.server.listener import Listener, listening
from crannog.server.otlp.grpc_calls import GrpcConnection
from crannog.server.otlp.grpc_state import GrpcState
from crannog.server.otlp.http_app import otlp_app
from crannog.server.service import Service
from crannog.settings import Settings

_BACKLOG = 2_048
_START_S = 30.0


class GrpcReceiver:
    """The gRPC server."""

    def __init__(self, service: Service, host: str, port: int) -> None:
        """Bind the port. Raises Unavailable if that fails."""
        settings = service.settings
        self._tls = _tls(settings)
        self._bound = listening(host, port, "choose another with CRANNOG_OTLP_GRPC_PORT")
        self._bound.setsockopt(
            socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1
        )  # inherited by connections; detects clients that vanished
        self.port: int = self._bound.getsockname()[1]
        self._state = GrpcState(service, ThreadPoolExecutor(settings.http_threads, thread_name_prefix="crannog-otlp"))
        self._loop = _new_loop()
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self._grace_s = 0.0
        self._thread = threading.Thread(target=self._run, name="crannog-otlp-grpc", daemon=True)

    def start(self) -> None:
        """Return once requests are accepted."""
        self._thread.start()
        if not self._started.wait(_START_S):
            raise Unavailable("the otlp-grpc server did not start; see its log")

    def stop(self, grace_s: float) -> None:
        """Accept no more requests; running ones may finish."""
        self._grace_s = grace_s
        if self._stop is None:
            self._bound.close()
        elif self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)

    def join(self, timeout_s: float) -> bool:
        """Wait for running requests after `stop`; return False if some still run."""
        if self._stop is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()
            self._state.threads.shutdown(wait=False)

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        listener = await self._loop.create_server(
            lambda: GrpcConnection(self._state), sock=self._bound, ssl=self._tls, backlog=_BACKLOG
        )
        self._started.set()
        await self._stop.wait()
        listener.close()
        state = self._state
        state.stopping = True
        for connection in list(state.connections):
            connection.go_away()
        ends = self._loop.time() + self._grace_s
        while (state.connections or state.calls) and self._loop.time() < ends:
            await asyncio.sleep(0.01)
        for connection in list(state.connections):
            connection.abort()
        while state.calls:  # their clients are gone, but their writes may still become durable
            await asyncio.sleep(0.01)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not available on Windows
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if not settings.tls_certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key or None)
    except (OSError, ValueError) as error:
        raise Unavailable(f"cannot use TLS with the certificate {settings.tls_certificate}: {error}") from None
    context.set_alpn_protocols(["h2"])
    return context


class Receivers:
    """OTLP over HTTP and over gRPC into the spans of a lake."""

    def __init__(self, service: Service, host: str) -> None:
        """Bind both ports. Raises Unavailable if one fails."""
        settings = service.settings
        bound = listening(host, settings.otlp_http_port, "choose another with CRANNOG_OTLP_HTTP_PORT")
        try:
            self._grpc = GrpcReceiver(service, host, settings.otlp_grpc_port)
        except BaseException:
            bound.close()
            raise
        self._http = Listener(otlp_app(service), bound, service, name="otlp-http")
        self.http_port, self.grpc_port = self._http.port, self._grpc.port

    def start(self) -> None:
        """Return once requests are accepted."""
        # In the background: only the first request has to wait for it.
        threading.Thread(
            target=import_module, args=("crannog.traces.store",), name="crannog-otlp-load", daemon=True
        ).start()
        self._http.start()
        self._grpc.start()

    def stop_accepting(self, grace_s: float) -> None:
        """Accept no more requests; running ones may finish."""
        self._http.stop_accepting()
        self._grpc.stop(grace_s)

    def join(self, timeout_s: float) -> bool:
        """Wait for running requests; return False if some still run."""
        ends = time.monotonic() + timeout_s
        done = self._http.join(timeout_s)
        return self._grpc.join(max(0.0, ends - time.monotonic())) and done

    def abort(self) -> None:
        """Stop waiting for clients."""
        self._http.abort()
