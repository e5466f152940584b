"""The scope `ingest`: a sender of rows, spans and build events, who reads nothing and changes nothing that is there."""

from __future__ import annotations

import json
from collections.abc import Iterator

import grpc
import httpx
import pyarrow as pa
import pytest

from build_samples import partition
from crannog.builds import PartitionStatus, open_log
from crannog.errors import Forbidden
from crannog.remote.lake import RemoteLake
from crannog.server.auth import Tokens
from crannog.server.http_server import HttpServer
from doors import EXPORT, serving_here
from otlp_samples import request_of, span, trace_id

LOG, KEYED = "shop.eu.clicks", "shop.eu.orders"
Sender = tuple[HttpServer, str]


@pytest.fixture(scope="module")
def sender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sender]:
    with serving_here(tmp_path_factory.mktemp("ingest")) as server:
        lake = server.service.lake
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
        lake.create_table(LOG, schema).append([{"id": 1, "text": "a secret"}])
        lake.create_table(KEYED, schema, key="id").append([{"id": 1, "text": "a secret"}])
        tokens = Tokens(lake.operations.warehouse.storage)
        token = tokens.create("sender", ["ingest:shop.eu", "ingest:crannog.traces", "ingest:crannog.builds"])
        server.service.tokens.refresh()
        yield server, token


@pytest.fixture
def http(sender: Sender) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=sender[0].url, headers={"Authorization": f"Bearer {sender[1]}"}) as client:
        yield client


def test_rows_are_sent_and_not_read(sender: Sender, http: httpx.Client) -> None:
    answer = http.post(f"/api/v1/tables/{LOG}/rows", json=[{"id": 2, "text": "b"}])
    assert (answer.status_code, answer.json()["rows"]) == (200, 1)
    with RemoteLake(*((sender[0].url, sender[1]))) as remote:
        assert remote.table(LOG).append([{"id": 3, "text": "c"}]).rows == 1
        with pytest.raises(Forbidden, match="may not write"):
            remote.table(KEYED).append([{"id": 1, "text": "replaced"}])
    assert sender[0].service.lake.table(KEYED).get(1)["text"] == "a secret"
    for method, path, body in (
        ("PUT", "/rows", [{"id": 1}]),
        ("POST", "/delete", {"keys": [1]}),
        ("POST", "/fold", {}),
        ("POST", "/load?file=a.json", [{"id": 1}]),
    ):
        refused = http.request(method, f"/api/v1/tables/{KEYED}{path}", json=body)
        assert refused.status_code == 403, path
    assert http.put("/api/v1/tables/shop.eu.another", json={"schema": {"type": "object"}}).status_code == 403
    assert http.post("/api/v1/tables/hr.eu.people/rows", json=[{"id": 2}]).status_code == 403


def test_spans_and_build_events_are_sent_and_not_read(sender: Sender, http: httpx.Client) -> None:
    server, token = sender
    assert server.receivers is not None
    spans = [request_of(span(number, 1)).SerializeToString() for number in range(1, 4)]
    bearer = {"Authorization": f"Bearer {token}"}
    otlp, protobuf = f"http://127.0.0.1:{server.receivers.http_port}", {"Content-Type": "application/x-protobuf"}
    assert httpx.post(f"{otlp}/v1/traces", content=spans[0], headers=bearer | protobuf).status_code == 200
    assert http.post("/api/v1/traces/otlp", content=spans[1], headers=protobuf).status_code == 200
    zipkin = [{"traceId": "a" * 32, "id": "b" * 16, "name": "x", "timestamp": 1_790_000_000_000_000, "duration": 1}]
    assert httpx.post(f"{otlp}/api/v2/spans", json=zipkin, headers=bearer).status_code == 202
    with grpc.insecure_channel(f"127.0.0.1:{server.receivers.grpc_port}") as channel:
        channel.unary_unary(EXPORT)(spans[2], metadata=[("authorization", f"Bearer {token}")], timeout=30)
    assert len(server.service.lake.traces.get(trace_id(3).hex()).spans) == 1
    with open_log(server.url, token=token) as log:
        assert log.append_event(partition("b", "p", PartitionStatus.BUILDING)) == 1
        with pytest.raises(Forbidden):
            log.append_events([partition("b", "p", PartitionStatus.AVAILABLE)], check_states=True)
        with pytest.raises(Forbidden):
            log.get_event("e")


def test_no_route_shows_anything(http: httpx.Client) -> None:
    paths = http.get("/api/openapi.json").json()["paths"]
    open_to_all = {
        "/healthz", "/readyz", "/api/v1/session", "/api/v1/changes", "/api/v1/tables/{name}/schema",
        "/api/v1/tables", "/api/v1/tasks", "/api/v1/cache", "/query/cache/stats", "/api/v1/upkeep", "/api/v1/receipts", "/api/v1/search",
    }  # fmt: skip
    for path, methods in paths.items():
        address = path.replace("{name}", LOG).replace("{trace_id}", trace_id(1).hex())
        if "get" in methods and path not in ("/api/v1/changes", "/metrics"):
            answer = http.get(address, params={"q": "e", "limit": 5})
            assert answer.status_code in (400, 403, 404) or path in open_to_all, (path, answer.text)
            if path in open_to_all - {"/healthz", "/readyz", "/api/v1/session", "/api/v1/tables/{name}/schema"}:
                assert answer.json() in ([], {"tables": []}) or answer.json().get("tables") == [], (path, answer.text)
            assert "a secret" not in answer.text
    for path in ("/metrics", "/api/services", "/api/traces?service=x", "/api/v3/services"):
        assert http.get(path).status_code == 403, path
    for text in ("SELECT 1", f"SELECT * FROM {LOG}", "SHOW TABLES", f"DESCRIBE {LOG}"):
        for path in ("/api/v1/sql", "/api/v1/sql/stream", "/api/v1/sql/explain"):
            assert http.post(path, content=json.dumps({"sql": text})).status_code == 403, (path, text)
