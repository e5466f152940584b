"""Bodies that are not whole, or not there at all: refused, unless an empty batch says that it is one."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from crannog.server.otlp.http_app import otlp_app
from servers import in_process
from test_server_routes import ARROW, error, stream_of

NAME = "t.bodies.rows"
ROWS = f"/api/v1/tables/{NAME}/rows"
PROTOBUF = "application/x-protobuf"
DEFINITION = {
    "schema": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
    "key": ["id"],
}
EMPTY = pa.table({"id": pa.array([], pa.int64())})
Ask = Any


@pytest.fixture(scope="module")
def senders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ask, Ask]]:
    """How to ask the API and the receiver of spans, with headers that need not be true."""
    with in_process(tmp_path_factory.mktemp("bodies"), build_log="sqlite::memory:") as (service, ask):
        assert ask("PUT", f"/api/v1/tables/{NAME}", json=DEFINITION).status_code == 201

        def sent(path: str, **request: Any) -> httpx.Response:
            async def send() -> httpx.Response:
                transport = httpx.ASGITransport(otlp_app(service), client=("127.0.0.1", 123))
                async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:4318") as client:
                    request_made = client.build_request("POST", path, **request)
                    if request.get("content") is None:
                        del request_made.headers["content-length"]  # as curl sends it, without a body
                    return await client.send(request_made)

            return asyncio.run(send())

        yield ask, sent


@pytest.mark.parametrize(("length", "body"), [("200", b'[{"id": 1}]'), ("3", b"[]"), ("10", b""), ("1", b"[]")])
def test_a_body_of_another_length_than_it_says_is_refused(senders: tuple[Ask, Ask], length: str, body: bytes) -> None:
    ask, sent = senders
    headers = {"Content-Length": length, "Content-Type": "application/json"}
    assert "Content-Length says" in error(ask("POST", ROWS, content=body, headers=headers), 400, "bad_request")
    assert "Content-Length says" in error(
        ask("POST", f"/api/v1/tables/{NAME}/fold", content=body, headers=headers), 400, "bad_request"
    )
    for path in ("/v1/traces", "/api/v2/spans"):
        answer = sent(path, content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, 3)
        assert "Content-Length says" in answer.json()["message"]
    assert ask("GET", f"/api/v1/tables/{NAME}/count").json() == {"rows": 0}


@pytest.mark.parametrize("verb", ["POST", "PUT"])
@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson", "text/csv", ARROW])
@pytest.mark.parametrize("packed", [False, True])
def test_an_empty_body_is_no_batch(senders: tuple[Ask, Ask], verb: str, kind: str, packed: bool) -> None:
    ask, _ = senders
    headers = {"Content-Type": kind, **({"Content-Encoding": "gzip"} if packed else {})}
    bodies = [b"", b"\xef\xbb\xbf", *([b" \n"] if "/json" in kind else [])]
    for body in bodies if kind != ARROW else [b""]:
        error(ask(verb, ROWS, content=gzip.compress(body) if packed else body, headers=headers), 400, "bad_request")
    error(ask(verb, ROWS, content=b"", headers=headers), 400, "bad_request")


@pytest.mark.parametrize(
    ("kind", "body"),
    [("application/json", b"[]"), ("application/x-ndjson", b"\n"), ("text/csv", b"id\n"), (ARROW, stream_of(EMPTY))],
)
def test_a_batch_without_rows_is_one_where_it_says_so(senders: tuple[Ask, Ask], kind: str, body: bytes) -> None:
    ask, _ = senders
    answer = ask("POST", ROWS, content=body, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["rows"]) == (200, 0)


def test_an_empty_body_is_no_batch_of_build_events(senders: tuple[Ask, Ask]) -> None:
    ask, _ = senders
    for kind in ("application/json", "application/x-ndjson"):
        error(ask("POST", "/api/v1/builds/events", content=b"", headers={"Content-Type": kind}), 400, "bad_request")
    answer = ask("POST", "/api/v1/builds/events", json=[])
    assert (answer.status_code, answer.json()) == (200, {"indexes": []})


def test_a_message_without_spans_has_a_length(senders: tuple[Ask, Ask]) -> None:
    """Zero bytes are a protobuf message without spans, to be answered with success, where the request says that it has a body."""
    ask, sent = senders
    declared = {"Content-Type": PROTOBUF, "Content-Length": "0"}
    assert sent("/v1/traces", content=b"", headers=declared).status_code == 200
    assert (
        sent(
            "/v1/traces", content=gzip.compress(b""), headers={"Content-Type": PROTOBUF, "Content-Encoding": "gzip"}
        ).status_code
        == 200
    )
    assert ask("POST", "/api/v1/traces/otlp", content=b"", headers=declared).status_code == 200
    assert sent("/v1/traces", content=b"{}", headers={"Content-Type": "application/json"}).status_code == 200
    assert sent("/api/v2/spans", content=b"[]", headers={"Content-Type": "application/json"}).status_code == 202
    assert sent("/v1/traces", headers={"Content-Type": PROTOBUF}).status_code == 400
    assert sent("/v1/traces", content=b"", headers={**declared, "Content-Encoding": "gzip"}).status_code == 400
    for path in ("/v1/traces", "/api/v2/spans"):
        assert sent(path, content=b"", headers={"Content-Type": "application/json"}).status_code == 400
