"""OTLP over gRPC: a port of its own, served by an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor

from crannog.errors import Unavailable
from crannog.server.listener import listening
from crannog.server.otlp.grpc_calls import GrpcConnection, Receiving
from crannog.server.service import Service
from crannog.settings import Settings

_BACKLOG = 2_048
_START_S = 30.0


class GrpcReceiver:
    """The gRPC server."""

    def __init__(self, service: Service, host: str, port: int) -> None:
        """Bind; Unavailable if the port cannot be had."""
        settings = service.settings
        self._tls = _tls(settings)
        self._bound = listening(host, port, "give another with CRANNOG_OTLP_GRPC_PORT")
        self._bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # inherited: a client that is gone is noticed
        self.port: int = self._bound.getsockname()[1]
        self._receiving = Receiving(
            service, ThreadPoolExecutor(settings.http_threads, thread_name_prefix="crannog-otlp")
        )
        self._loop = _new_loop()
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self._grace_s = 0.0
        self._thread = threading.Thread(target=self._run, name="crannog-otlp-grpc", daemon=True)

    def start(self) -> None:
        """Return once requests are taken."""
        self._thread.start()
        if not self._started.wait(_START_S):
            raise Unavailable("the otlp-grpc server did not start; its log tells why")

    def stop(self, grace_s: float) -> None:
        """Take no more requests; what runs may finish."""
        self._grace_s = grace_s
        if self._stop is None:
            self._bound.close()
        elif self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)

    def join(self, timeout_s: float) -> bool:
        """Wait for what runs once it is told to stop; False if something still does."""
        if self._stop is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()
            self._receiving.threads.shutdown(wait=False)

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        listener = await self._loop.create_server(
            lambda: GrpcConnection(self._receiving), sock=self._bound, ssl=self._tls, backlog=_BACKLOG
        )
        self._started.set()
        await self._stop.wait()
        listener.close()
        receiving = self._receiving
        receiving.stopping = True
        for connection in list(receiving.connections):
            connection.leave()
        ends = self._loop.time() + self._grace_s
        while (receiving.connections or receiving.calls) and self._loop.time() < ends:
            await asyncio.sleep(0.01)
        for connection in list(receiving.connections):
            connection.cut_off()
        while receiving.calls:  # nobody waits for their answers any more, but what they write may still become durable
            await asyncio.sleep(0.01)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
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
        raise Unavailable(f"cannot speak TLS with the certificate {settings.tls_certificate}: {error}") from None
    context.set_alpn_protocols(["h2"])
    return context
