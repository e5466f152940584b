"""OTLP over HTTP goes through the same middleware as the API: ids, limits, bodies, metrics and log lines."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import time
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.rpc.status_pb2 import Status
from prometheus_client.parser import text_string_to_metric_families

from call_counts import calls_by_function
from crannog.server.otlp.http_app import otlp_app
from crannog.server.service import Service
from doors import JSON, PROTOBUF, Doors, receiving, retry_info, serving_here
from otlp_samples import request_of, span, trace_id

TRACES, LANGFUSE, ZIPKIN = "/v1/traces", "/api/public/otel/v1/traces", "/api/v2/spans"


def batch(trace: int, spans: int = 1) -> bytes:
    return bytes(request_of(*(span(trace, number + 1) for number in range(spans))).SerializeToString())


def served(service: Service) -> dict[tuple[str, str, str], float]:
    """The requests that ended, by method, route and status."""
    return {
        (sample.labels["method"], sample.labels["route"], sample.labels["status"]): sample.value
        for family in text_string_to_metric_families(service.metrics.page().decode())
        for sample in family.samples
        if sample.name == "crannog_requests_total"
    }


def test_every_response_has_the_id_of_its_request(tmp_path: Path) -> None:
    with receiving(tmp_path) as doors:
        assert doors.post(batch(1), x_request_id="mine-1").headers["x-request-id"] == "mine-1"
        made = [
            doors.post(batch(2), x_request_id="no id"),
            doors.post(b"\xff"),
            doors.post(b"{", JSON),
            doors.post(b"", "text/html"),
            doors.ask("GET", TRACES),
            doors.ask("POST", "/v1/metrics"),
        ]
        assert [answer.status_code for answer in made] == [200, 400, 400, 415, 405, 404]
        assert len({answer.headers["x-request-id"] for answer in made}) == len(made)


def test_requests_are_counted_by_route(tmp_path: Path) -> None:
    with receiving(tmp_path) as doors:
        doors.post(batch(1))
        doors.post(batch(2), path=LANGFUSE)
        doors.post(b"[]", JSON, ZIPKIN)
        doors.post(b"\xff")
        doors.ask("GET", TRACES)
        doors.ask("POST", "/made/up/by/a/client")
        assert served(doors.service) == {
            ("POST", TRACES, "200"): 1,
            ("POST", LANGFUSE, "200"): 1,
            ("POST", ZIPKIN, "202"): 1,
            ("POST", TRACES, "400"): 1,
            ("GET", TRACES, "405"): 1,
            ("POST", "unknown", "404"): 1,
        }
        assert doors.service.requests == 0


def test_requests_are_logged_as_those_of_the_api(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with receiving(tmp_path) as doors, caplog.at_level(logging.INFO, "crannog.server"):
        doors.post(batch(1, spans=3), x_request_id="r1")
        doors.post(b"\xff", x_request_id="r2")
    lines = {record.__dict__["request_id"]: record.__dict__["fields"] for record in caplog.records}
    assert lines["r1"].pop("elapsed_ms") > 0
    assert lines["r1"] == {
        "method": "POST",
        "path": TRACES,
        "status": 200,
        "who": "local",
        "rows": 3,
        "error": None,
    }
    assert (lines["r2"]["status"], lines["r2"]["error"]) == (400, "bad_request")


def test_an_unexpected_error_is_logged_under_the_id_in_its_response(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("a secret")

    with receiving(tmp_path) as doors:
        monkeypatch.setattr(doors.lake.trace_store, "write", fails)
        answer = doors.post(batch(1))
    [record] = [record for record in caplog.records if record.exc_info]
    assert record.__dict__["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["x-request-id"] in Status.FromString(answer.content).message


def test_no_batch_is_audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving(tmp_path) as doors:
        notes: list[Any] = []
        monkeypatch.setattr(doors.service.audit, "note", lambda *arguments: notes.append(arguments))
        doors.post(batch(1))
        assert doors.post(batch(2), host="elsewhere").status_code == 403
        assert notes == []


def check_overloaded(answer: httpx.Response, word: str) -> None:
    status = Status.FromString(answer.content)
    assert (answer.status_code, status.code, answer.headers["retry-after"]) == (429, 14, "1")
    assert word in status.message
    assert retry_info(status) is not None


def test_the_limit_on_all_bodies_holds(tmp_path: Path) -> None:
    with receiving(tmp_path, http_bodies_bytes=4_096) as doors:
        bodies = doors.service.bodies
        bodies.held = 4_090  # of requests to the API
        check_overloaded(doors.post(batch(1)), "the limit is 4,096")
        assert doors.post(batch(1), JSON).status_code == 429
        assert bodies.held == 4_090
        bodies.held = 2_000
        assert doors.post(batch(1)).status_code == 200
        packed = gzip.compress(batch(2, spans=20))
        # What it unpacks to counts, too.
        bodies.held = others = 4_096 - len(packed) - 100
        check_overloaded(doors.post(packed, content_encoding="gzip"), "the limit is 4,096")
        assert bodies.held == others
        bodies.held = 0
        assert doors.post(packed, content_encoding="gzip").status_code == 200
        assert bodies.held == 0


def test_the_limit_on_all_requests_is_shared_with_the_api(tmp_path: Path) -> None:
    with serving_here(tmp_path, http_requests=1) as server:
        assert server.receivers is not None
        spans_at = f"http://127.0.0.1:{server.receivers.http_port}{TRACES}"
        server.service.requests = 1
        check_overloaded(httpx.post(spans_at, content=batch(1), headers={"Content-Type": PROTOBUF}), "1 requests")
        assert httpx.get(f"{server.url}/api/v1/tables").status_code == 429
        server.service.requests = 0
        assert httpx.post(spans_at, content=batch(1), headers={"Content-Type": PROTOBUF}).status_code == 200
        found = httpx.get(f"{server.url}/metrics").text
        assert 'crannog_requests_total{method="POST",route="/v1/traces",status="200"} 1.0' in found


def test_a_body_has_as_long_as_a_request(tmp_path: Path) -> None:
    with receiving(tmp_path, http_request_s=0.3, http_stall_s=5) as doors:
        host, port = doors.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            head = f"POST {TRACES} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {JSON}\r\nContent-Length: 1000\r\n\r\n"
            slow.sendall(head.encode())
            slow.settimeout(0.05)
            answer = b""
            until = time.monotonic() + 10
            while not answer and time.monotonic() < until:
                slow.sendall(b" ")
                try:
                    answer = slow.recv(65_536)
                except TimeoutError:
                    continue
        assert answer.startswith(b"HTTP/1.1 504")
        assert b"did not arrive within 0.3 s" in answer
        assert doors.service.bodies.held == 0


def test_a_token_without_the_right_is_refused_before_the_body_is_read(doors_with_reader: tuple[Doors, str]) -> None:
    doors, reader = doors_with_reader
    host, port = doors.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        head = f"POST {TRACES} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {JSON}\r\nAuthorization: Bearer {reader}\r\n"
        client.sendall(f"{head}Content-Length: 1000\r\n\r\n".encode())
        assert client.recv(65_536).startswith(b"HTTP/1.1 403")


@pytest.fixture
def doors_with_reader(tmp_path: Path) -> Any:
    with receiving(tmp_path) as doors:
        reader = doors.service.tokens.create("r", ["read"])
        doors.service.tokens.refresh()
        yield doors, reader


class Here(Executor):
    """Runs work in the thread that submits it, where its calls are counted."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


def test_the_calls_of_one_batch(tmp_path: Path) -> None:
    with receiving(tmp_path) as doors:
        service = doors.service
        service.threads._pools["write"] = Here()  # type: ignore[assignment]
        app = otlp_app(service)

        async def post(body: bytes) -> list[Any]:
            sent: list[Any] = []
            headers = [(b"content-type", PROTOBUF.encode()), (b"content-length", b"%d" % len(body))]
            scope = {"type": "http", "method": "POST", "path": TRACES, "headers": headers, "client": ("127.0.0.1", 1)}

            async def receive() -> Any:
                return {"type": "http.request", "body": body, "more_body": False}

            async def send(message: Any) -> None:
                sent.append(message)

            await app(scope, receive, send)
            return sent

        for number in range(3):
            assert asyncio.run(post(batch(number + 1)))[0]["status"] == 200
        found = calls_by_function(lambda: asyncio.run(post(batch(9))))
        assert doors.lake.traces.get(trace_id(9).hex()).spans
        server = {name: count for name, count in found.items() if name[0].startswith("server/")}
        assert sum(server.values()) <= 32, server
        assert len({module for module, _ in server}) <= 12, server
