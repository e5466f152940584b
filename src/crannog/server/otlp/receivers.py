"""Starts and stops both OTLP receivers."""

from __future__ import annotations

import threading
import time
from importlib import import_module

from crannog.server.listener import Listener, listening
from crannog.server.otlp.grpc_server import GrpcReceiver
from crannog.server.otlp.http_app import otlp_app
from crannog.server.service import Service


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
        self._http = Listener(otlp_app(service), bound, settings, name="otlp-http")
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
