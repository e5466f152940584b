"""Both receivers as one part that starts and stops."""

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
        """Bind both ports; Unavailable if one cannot be had."""
        settings = service.settings
        bound = listening(host, settings.otlp_http_port, "give another with CRANNOG_OTLP_HTTP_PORT")
        try:
            self._grpc = GrpcReceiver(service, host, settings.otlp_grpc_port)
        except BaseException:
            bound.close()
            raise
        self._http = Listener(otlp_app(service), bound, settings, name="otlp-http")
        self.http_port, self.grpc_port = self._http.port, self._grpc.port

    def start(self) -> None:
        """Return once requests are taken."""
        # Beside the start, which need not wait for it: the first request will.
        threading.Thread(
            target=import_module, args=("crannog.traces.traces",), name="crannog-otlp-load", daemon=True
        ).start()
        self._http.start()
        self._grpc.start()

    def refuse_new(self, grace_s: float) -> None:
        """Take no more requests; what runs may finish."""
        self._http.refuse_new()
        self._grpc.stop(grace_s)

    def join(self, timeout_s: float) -> bool:
        """Wait for what runs; False if something still does."""
        ends = time.monotonic() + timeout_s
        done = self._http.join(timeout_s)
        return self._grpc.join(max(0.0, ends - time.monotonic())) and done

    def cut_off(self) -> None:
        """No longer wait for clients."""
        self._http.cut_off()
