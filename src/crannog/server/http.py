"""The HTTP server as a part that starts and stops: its socket, its thread, its end."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading

import uvicorn

from crannog.access.tokens import Tokens
from crannog.embedded import EmbeddedLake
from crannog.errors import CallerError, Unavailable
from crannog.server import spans
from crannog.server.app import make_app
from crannog.server.connections import protocol
from crannog.server.service import Service

_START_S = 30.0
_BACKLOG = 2_048


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that is bound; Unavailable says why it cannot be."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(family, kind)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        return bound
    except OSError as error:
        raise Unavailable(f"cannot listen on {host} port {port}: {error.strerror or error}; give another with --host and --port") from None


class HttpServer:
    """Serves a lake over HTTP from a thread of its own."""

    def __init__(self, lake: EmbeddedLake, host: str, port: int) -> None:
        """Bind; CallerError if others could reach it and no token keeps them out."""
        settings, loopback = lake.settings, is_loopback(host)
        if not loopback and not Tokens(lake.warehouse.storage).list():
            raise CallerError(
                f"will not listen on {host}: without tokens everybody who reaches it could do everything."
                " Make one first (`crannog token create NAME --scope admin`), or listen on 127.0.0.1"
            )
        _check_tls(settings.tls_certificate, settings.tls_key)
        self._socket = listening(host, port)
        self.service = Service(lake, loopback=loopback)
        self._app = app = spans.traced(make_app(self.service), settings)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=protocol(settings.http_stall_s),
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
        scheme = "https" if settings.tls_certificate else "http"
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{scheme}://{shown}:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="crannog-http", daemon=True)

    def start(self) -> None:
        """Return once requests are taken."""
        self.service.audit.start()
        self._thread.start()
        waited = threading.Event()
        for _ in range(int(_START_S / 0.005)):
            if self._server.started:
                return
            if not self._thread.is_alive():
                break
            waited.wait(0.005)
        raise Unavailable("the HTTP server did not start; its log tells why")

    def refuse_new(self) -> None:
        """Take no more connections; what runs goes on."""
        self.service.draining = True
        self._server.should_exit = True

    def join(self, timeout_s: float) -> bool:
        """Wait for what runs; False if something still does."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self, timeout_s: float = 5.0) -> None:
        """Keep what is noted for the audit, send what is left of spans, and let the threads go."""
        self.service.audit.stop(timeout_s)
        if isinstance(self._app, spans.Traced):
            self._app.close()
        self.service.threads.close()

    def cut_off(self) -> None:
        """Take back what still runs, and no longer wait for clients."""
        self.service.cancel_all()
        self._server.force_exit = True


def _check_tls(certificate: str, key: str) -> None:
    if bool(certificate) != bool(key):
        raise CallerError("TLS takes both CRANNOG_TLS_CERTIFICATE and CRANNOG_TLS_KEY")
    for path in (certificate, key):
        if path and not os.access(path, os.R_OK):
            raise CallerError(f"cannot read {path}, which TLS needs")
