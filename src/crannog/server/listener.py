"""An application on a socket, served from a thread of its own: how it starts, how it ends."""

from __future__ import annotations

import socket
import threading

import uvicorn
from starlette.types import ASGIApp

from crannog.errors import Unavailable
from crannog.server.connections import protocol
from crannog.settings import Settings

_START_S = 30.0
_BACKLOG = 2_048


def listening(host: str, port: int, hint: str) -> socket.socket:
    """Return a socket that is bound; Unavailable says why it cannot be, and gives the hint."""
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
        self._thread = threading.Thread(target=self._server.run, args=([bound],), name=f"crannog-{name}", daemon=True)

    def start(self) -> None:
        """Return once requests are taken."""
        self._thread.start()
        waited = threading.Event()
        for _ in range(int(_START_S / 0.005)):
            if self._server.started:
                return
            if not self._thread.is_alive():
                break
            waited.wait(0.005)
        raise Unavailable(f"the {self._name} server did not start; its log tells why")

    def refuse_new(self) -> None:
        """Take no more connections; what runs goes on."""
        self._server.should_exit = True

    def join(self, timeout_s: float) -> bool:
        """Wait for what runs; False if something still does."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def cut_off(self) -> None:
        """No longer wait for clients."""
        self._server.force_exit = True
