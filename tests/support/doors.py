"""The doors of traces in this process: OTLP over HTTP and gRPC on free ports, and the whole API, over one lake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from crannog.embedded import EmbeddedLake
from crannog.server.http_server import HttpServer
from crannog.server.otlp.receivers import Receivers
from crannog.server.service import Service
from crannog.settings import Settings

PROTOBUF, JSON = "application/x-protobuf", "application/json"
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class Doors:
    """Receivers that run, and how to knock at them."""

    def __init__(self, lake: EmbeddedLake, service: Service, receivers: Receivers) -> None:
        self.lake, self.service, self.receivers = lake, service, receivers
        self.address = f"http://127.0.0.1:{receivers.http_port}"
        self.grpc_address = f"127.0.0.1:{receivers.grpc_port}"
        self._http = httpx.Client(base_url=self.address, timeout=60)
        self._channel = grpc.insecure_channel(self.grpc_address)
        self._export = self._channel.unary_unary(EXPORT)

    def post(self, body: bytes, media: str = PROTOBUF, path: str = "/v1/traces", **headers: str) -> httpx.Response:
        """Send a body over HTTP; headers by name, with _ for -."""
        extra = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._http.post(path, content=body, headers={"Content-Type": media, **extra})

    def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        return self._http.request(method, path, **request)

    def call(self, body: bytes, metadata: Sequence[tuple[str, str]] = (), **options: Any) -> ExportTraceServiceResponse:
        """Send a body over gRPC; raises grpc.RpcError."""
        return ExportTraceServiceResponse.FromString(self._export(body, metadata=metadata, timeout=60, **options))

    def close(self) -> None:
        self._http.close()
        self._channel.close()


def status_of(error: grpc.RpcError) -> Status:
    """The google.rpc.Status in an error's trailing metadata."""
    found: Any = error
    return Status.FromString(dict(found.trailing_metadata())["grpc-status-details-bin"])


def retry_info(status: Status) -> RetryInfo | None:
    for detail in status.details:
        if detail.Is(RetryInfo.DESCRIPTOR):
            info = RetryInfo()
            detail.Unpack(info)
            return info
    return None


@contextmanager
def receiving(folder: Path, **settings: Any) -> Iterator[Doors]:
    """Run both receivers over a lake of their own."""
    own_settings = Settings(
        warehouse=str(folder / "warehouse"),
        otlp_http_port=0,
        otlp_grpc_port=0,
        audit=False,
        spark_memory_mb=1024,
        **settings,
    )
    with EmbeddedLake(own_settings.warehouse, settings=own_settings) as lake:
        service = Service(lake)
        receivers = Receivers(service, "127.0.0.1")
        receivers.start()
        doors = Doors(lake, service, receivers)
        try:
            yield doors
        finally:
            doors.close()
            receivers.stop_accepting(0)
            receivers.join(10)
            service.threads.close()


@contextmanager
def serving_here(folder: Path, **settings: Any) -> Iterator[HttpServer]:
    """Run the whole HTTP API over a lake in this process, so that a test sees both sides."""
    own_settings = Settings(
        warehouse=str(folder / "warehouse"),
        port=0,
        otlp_http_port=0,
        otlp_grpc_port=0,
        audit=False,
        spark_memory_mb=1024,
        **settings,
    )
    with EmbeddedLake(own_settings.warehouse, settings=own_settings) as lake:
        server = HttpServer(lake, "127.0.0.1", 0)
        server.start()
        try:
            yield server
        finally:
            server.stop_accepting()
            if not server.join(2):
                server.abort()
                server.join(5)
            server.close()
