"""Starts and stops the HTTP server: its socket, its threads, its receivers."""

from __future__ import annotations

import os
import ssl
import time

from crannog.api.arguments import is_loopback
from crannog.embedded import EmbeddedLake
from crannog.errors import CallerError, Unavailable
from crannog.server.app import make_app
from crannog.server.auth import Tokens
from crannog.server.listener import Listener, listening
from crannog.server.middleware import TracingMiddleware, traced
from crannog.server.otlp.receivers import Receivers
from crannog.server.service import Service

_GRACE_S = 10.0


class HttpServer:
    """Serves a lake over HTTP and receives spans over OTLP, in its own threads."""

    def __init__(self, lake: EmbeddedLake, host: str, port: int) -> None:
        """Bind the ports. Raises CallerError if other machines could reach them and there is no token."""
        settings, loopback = lake.settings, is_loopback(host)
        tokens = Tokens(lake.operations.warehouse.storage)
        try:
            tokens.refresh()
        except Unavailable:  # on loopback, requests say so until the storage answers
            if not loopback:
                raise
        self.trouble = tokens.trouble
        """Why no request can be admitted, for who starts the server; empty if one can."""
        if not loopback and not tokens.any_valid:
            raise CallerError(
                f"will not listen on {host}: without tokens, everyone who reaches it has all rights."
                " Create one first (`crannog token create NAME --scope admin`), or listen on 127.0.0.1"
            )
        _check_tls(settings.tls_certificate, settings.tls_key)
        bound = listening(host, port, "choose another with --host and --port")
        self.service = Service(lake, loopback=loopback)
        self._app = traced(make_app(self.service), settings)
        self._listener = Listener(self._app, bound, self.service, name="http")
        self.receivers = Receivers(self.service, host) if settings.otlp else None
        if self.receivers is not None:
            self.service.otlp_ports = (self.receivers.http_port, self.receivers.grpc_port)
        scheme = "https" if settings.tls_certificate else "http"
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{scheme}://{shown}:{self._listener.port}"

    def start(self) -> None:
        """Return once requests are accepted."""
        self.service.audit.start()
        self._listener.start()
        if self.receivers is not None:
            self.receivers.start()

    def stop_accepting(self) -> None:
        """Accept no more connections; running requests continue."""
        self.service.draining = True
        self._listener.stop_accepting()
        if self.receivers is not None:
            self.receivers.stop_accepting(_GRACE_S)

    def join(self, timeout_s: float) -> bool:
        """Wait for running requests; return False if some still run."""
        ends = time.monotonic() + timeout_s
        done = self._listener.join(timeout_s)
        return (self.receivers is None or self.receivers.join(max(0.0, ends - time.monotonic()))) and done

    def close(self, timeout_s: float = 5.0) -> None:
        """Write the rest of the audit, send the remaining spans, and release the threads."""
        self.service.audit.stop(timeout_s)
        if isinstance(self._app, TracingMiddleware):
            self._app.close()
        self.service.threads.close()
        self.service.build_log.close()

    def cancel_running(self) -> None:
        """Cancel the queries and jobs that still run; their clients get an error."""
        self.service.work.cancel_all()

    def abort(self) -> None:
        """Stop waiting for clients."""
        self._listener.abort()
        if self.receivers is not None:
            self.receivers.abort()


def _check_tls(certificate: str, key: str) -> None:
    if bool(certificate) != bool(key):
        raise CallerError("TLS needs both CRANNOG_TLS_CERTIFICATE and CRANNOG_TLS_KEY")
    for path in (certificate, key):
        if path and not os.access(path, os.R_OK):
            raise CallerError(f"cannot read {path}, which TLS needs")
    if certificate:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise CallerError(
                f"TLS cannot use {certificate} with {key}: {reason}; both are PEM, the key is the certificate's and has no password"
            ) from None


def _no_password() -> str:
    # Without this, OpenSSL would prompt for one on the terminal.
    raise ValueError("the key has a password")
