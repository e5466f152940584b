"""`crannog serve` takes spans on the ports it tells, shows them everywhere, and keeps them when it is killed or stopped."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from crannog.remote.lake import RemoteLake
from doors import PROTOBUF
from otlp_samples import request_of, span, trace_id
from servers import Server, serving


def ports(server: Server) -> tuple[int, int]:
    """The ports of OTLP over HTTP and gRPC, as the server says them."""
    for _ in range(100):
        found = re.search(r"port (\d+) \(HTTP\) and (\d+) \(gRPC\)", "".join(server.lines))
        if found:
            return int(found[1]), int(found[2])
        time.sleep(0.05)
    raise AssertionError(server.lines)


def test_spans_of_the_sdk_are_shown_at_every_door_and_outlive_the_server(tmp_path: Path) -> None:
    ids = []
    with serving(tmp_path / "warehouse") as server:
        http_port, grpc_port = ports(server)
        for exporter in (
            GrpcExporter(endpoint=f"http://127.0.0.1:{grpc_port}", insecure=True),
            HttpExporter(endpoint=f"http://127.0.0.1:{http_port}/v1/traces"),
        ):
            provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
            provider.add_span_processor(BatchSpanProcessor(exporter))
            with provider.get_tracer("tests").start_as_current_span("checkout", attributes={"user.id": "u1"}) as root:
                ids.append(f"{root.get_span_context().trace_id:032x}")
            provider.shutdown()
        with RemoteLake(server.url) as lake, server.client() as api:
            for one in ids:
                assert lake.traces.get(one).spans[0].attributes == {"user.id": "u1"}
                assert api.get(f"/api/traces/{one}").json()["data"][0]["spans"][0]["operationName"] == "checkout"
            found = api.get("/api/traces", params={"service": "shop", "tags": '{"user.id":"u1"}'}).json()
            assert {trace["traceID"].rjust(32, "0") for trace in found["data"]} == set(ids)
            assert lake.sql("SELECT count(*) AS n FROM crannog.traces.spans").rows() == [{"n": 2}]
        server.kill()
    with serving(tmp_path / "warehouse") as server, RemoteLake(server.url) as lake:
        assert {found.trace_id for found in lake.traces.search(service="shop").traces} == set(ids)


@pytest.mark.slow
def test_a_server_that_is_told_to_stop_under_load_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    kept: list[int] = []
    with serving(tmp_path / "warehouse") as server:
        http_port, _ = ports(server)

        def send(first: int) -> None:
            with httpx.Client(timeout=30) as client:
                for number in range(first, first + 100_000):
                    body = request_of(span(number, 1)).SerializeToString()
                    try:
                        answer = client.post(
                            f"http://127.0.0.1:{http_port}/v1/traces", content=body, headers={"Content-Type": PROTOBUF}
                        )
                    except httpx.TransportError:
                        return
                    if answer.status_code != 200:
                        assert answer.status_code in (429, 503)
                        return
                    kept.append(number)

        senders = [threading.Thread(target=send, args=(place * 1_000_000,)) for place in range(4)]
        for sender in senders:
            sender.start()
        time.sleep(3)
        assert server.stop() == 0
        for sender in senders:
            sender.join(30)
    assert kept
    with serving(tmp_path / "warehouse") as server, RemoteLake(server.url) as lake:
        rows = (
            lake.sql("SELECT trace_id FROM crannog.traces.spans", max_rows=1_000_000).to_arrow().column(0).to_pylist()
        )
    assert {trace_id(number) for number in kept} <= set(rows)
    assert len(rows) == len(set(rows))
