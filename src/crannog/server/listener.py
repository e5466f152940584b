"""Serves an application on a socket from its own thread."""

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
