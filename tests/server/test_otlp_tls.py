"""With TLS by setting, both receivers speak it: the real SDK sends over it, with a token; nothing comes in without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter

from crannog.server.auth import Tokens
from crannog.traces.span_table import SPANS
from doors import EXPORT, PROTOBUF, Doors, receiving
from otlp_samples import request_of, span
from servers import self_signed


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def doors(tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Doors]:
    for name in (
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
    ):  # the library under the SDK takes these before the file it is given
        monkeypatch.delenv(name, raising=False)
    with receiving(tmp_path, tls_certificate=str(certificate[0]), tls_key=str(certificate[1])) as doors:
        yield doors


def exporters(doors: Doors, certificate: Path, **headers: str) -> list[SpanExporter]:
    """The SDK's own exporters over gRPC and HTTP, which trust the certificate."""
    trusted: Any = grpc.ssl_channel_credentials(certificate.read_bytes())
    http = f"https://127.0.0.1:{httpx.URL(doors.address).port}/v1/traces"
    return [
        GrpcExporter(
            endpoint=f"https://{doors.grpc_address}", credentials=trusted, headers=tuple(headers.items()), timeout=10
        ),
        HttpExporter(endpoint=http, certificate_file=str(certificate), headers=headers, timeout=10),
    ]


def sent(exporter: SpanExporter, name: str) -> None:
    """Send one span by the SDK."""
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.get_tracer("tests").start_span(name).end()
    provider.shutdown()


def kept(doors: Doors) -> list[str]:
    return doors.lake.traces.operations("shop")


def test_the_sdk_sends_over_tls_with_a_token_that_may_write(doors: Doors, certificate: tuple[Path, Path]) -> None:
    tokens = Tokens(doors.lake.operations.warehouse.storage)
    writer, reader = (tokens.create(name, [scope]) for name, scope in (("w", "write:crannog.traces"), ("r", "read")))
    doors.service.tokens.refresh()
    for headers in ({}, {"authorization": "Bearer crannog_x_0"}, {"authorization": f"Bearer {reader}"}):
        for exporter in exporters(doors, certificate[0], **headers):
            sent(exporter, "refused")
    assert kept(doors) == []
    for place, exporter in enumerate(exporters(doors, certificate[0], authorization=f"Bearer {writer}")):
        sent(exporter, f"kept {place}")
    assert kept(doors) == ["kept 0", "kept 1"]


def test_nothing_comes_in_without_tls(doors: Doors) -> None:
    body = request_of(span(1, 1)).SerializeToString()
    with pytest.raises(httpx.TransportError):
        httpx.post(f"{doors.address}/v1/traces", content=body, headers={"Content-Type": PROTOBUF}, timeout=5)
    with grpc.insecure_channel(doors.grpc_address) as channel, pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(EXPORT)(body, timeout=5)
    assert raised.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    assert SPANS not in doors.lake.operations.tables.names()


def test_a_sender_that_does_not_know_the_certificate_sends_nothing(doors: Doors) -> None:
    body = request_of(span(1, 1)).SerializeToString()
    with suppress(httpx.ConnectError):
        httpx.post(
            f"{doors.address.replace('http:', 'https:')}/v1/traces",
            content=body,
            headers={"Content-Type": PROTOBUF},
            timeout=5,
        )
        raise AssertionError("it trusted a certificate that it does not know")
    assert SPANS not in doors.lake.operations.tables.names()
