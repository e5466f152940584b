"""OTLP over gRPC. Requests come as bytes, so that nothing is decoded twice."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from crannog.access.scopes import Caller
from crannog.errors import CrannogError, Overloaded, Unavailable
from crannog.server.admission import admitted
from crannog.server.otlp.http_app import answer_message
from crannog.server.otlp.keeping import keep
from crannog.server.otlp.refusals import code_of, status_of
from crannog.server.service import Service

if TYPE_CHECKING:
    import grpc

log = logging.getLogger("crannog.otlp")

_SERVICE, _METHOD = "opentelemetry.proto.collector.trace.v1.TraceService", "Export"
_PROTOBUF = "application/x-protobuf"


class _Threads(ThreadPoolExecutor):
    @property
    def waiting(self) -> int:
        """How many requests wait for a thread; their bodies are not read yet."""
        return self._work_queue.qsize()


class GrpcReceiver:
    """The gRPC server, on a port of its own."""

    def __init__(self, service: Service, host: str, port: int) -> None:
        """Bind; Unavailable if the port cannot be had."""
        import grpc

        self._service = service
        self._stopped: threading.Event | None = None
        settings = service.settings
        self._threads = _Threads(settings.http_threads, thread_name_prefix="crannog-otlp")
        # No maximum_concurrent_rpcs: gRPC would answer RESOURCE_EXHAUSTED, and clients would throw the spans away.
        self._server = grpc.server(
            self._threads,
            options=[
                # Holds after unpacking, too: gRPC then answers RESOURCE_EXHAUSTED, which clients do not retry.
                ("grpc.max_receive_message_length", settings.otlp_request_bytes),
                ("grpc.so_reuseport", 0),
            ],
        )
        handler = grpc.unary_unary_rpc_method_handler(self._export)
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler})])
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if settings.tls_certificate:
                with open(settings.tls_key, "rb") as key, open(settings.tls_certificate, "rb") as certificate:
                    credentials = grpc.ssl_server_credentials([(key.read(), certificate.read())])
                self.port = self._server.add_secure_port(address, credentials)
            else:
                self.port = self._server.add_insecure_port(address)
        except (RuntimeError, OSError) as error:
            raise Unavailable(
                f"cannot listen on {host} port {port} for OTLP over gRPC: {error}; give another with CRANNOG_OTLP_GRPC_PORT"
            ) from None

    def start(self) -> None:
        self._server.start()

    def stop(self, grace_s: float) -> None:
        """Take no more requests; what runs may finish."""
        self._stopped = self._server.stop(grace_s)

    def join(self, timeout_s: float) -> bool:
        """Wait for what runs once it is told to stop; False if something still does."""
        return self._stopped is None or self._stopped.wait(timeout_s)

    def _export(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return answer_message(keep(self._service, self._caller(context), body, _PROTOBUF, None))
        except CrannogError as error:
            _abort(context, error)
        except Exception as error:
            log.error("a request failed", exc_info=error)
            _abort(context, CrannogError("the server failed on this request; its log tells more"))
        raise AssertionError("an abort raises")

    def _caller(self, context: grpc.ServicerContext) -> Caller:
        service = self._service
        if self._threads.waiting > service.settings.http_requests:
            raise Overloaded(f"{self._threads.waiting:,} requests wait, which is too many; try again shortly", retry_after_s=1)
        if service.tokens.is_stale:
            service.tokens.refresh()
        headers: dict[str, Any] = dict(context.invocation_metadata())
        return admitted(
            service, authorization=str(headers.get("authorization", "")), host="localhost", origin=None, address=_address(context.peer())
        )


def _abort(context: grpc.ServicerContext, error: CrannogError) -> None:
    import grpc

    code = next(known for known in grpc.StatusCode if known.value[0] == code_of(error))
    context.set_trailing_metadata((("grpc-status-details-bin", status_of(error).SerializeToString()),))
    context.abort(code, error.message)


def _address(peer: str) -> str:
    """Return the address in a peer's name: ipv4:127.0.0.1:5000, ipv6:[::1]:5000 (its brackets may be escaped)."""
    return peer.partition(":")[2].rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]")
