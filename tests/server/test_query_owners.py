"""Ids of queries belong to their caller: nobody ends, disturbs or learns of another's query by its id."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from crannog.engine.sql.queries import Queries
from crannog.engine.sql.running_queries import current_query
from crannog.server.auth import Tokens
from crannog.server.http_server import HttpServer
from crannog.traces.store import TraceStore
from doors import serving_here

ID = "report-1"


class Held:
    """Holds queries where they begin, until they are cancelled or released."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.started = threading.Semaphore(0)

    def hold(self, check: Callable[[], None]) -> None:
        self.started.release()
        while not self.go.wait(0.01):
            check()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """Hold all queries that name the table `slow`, and all queries for services."""
    found, answer, call = Held(), Queries._answer, TraceStore.call

    def slow_answer(self: Queries, statement: Any, engine: str, running: Any, most: int) -> Any:
        if "slow" in statement.text:
            found.hold(running.check)
        return answer(self, statement, engine, running, most)

    def slow_call(self: TraceStore, operation: Any, request: Any) -> Any:
        if operation.name == "services":
            running = current_query.get()
            assert running is not None
            found.hold(running.check)
        return call(self, operation, request)

    monkeypatch.setattr(Queries, "_answer", slow_answer)
    monkeypatch.setattr(TraceStore, "call", slow_call)
    return found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[HttpServer, dict[str, str]]]:
    with serving_here(tmp_path) as server:
        tokens = Tokens(server.service.lake.operations.warehouse.storage)
        made = {
            name: tokens.create(name, [scope]) for name, scope in (("one", "read"), ("two", "read"), ("root", "admin"))
        }
        server.service.lake.create_table("a.b.slow", {"type": "object", "properties": {"id": {"type": "integer"}}})
        server.service.tokens.refresh()
        yield server, made


def client(served: tuple[HttpServer, dict[str, str]], who: str) -> httpx.Client:
    server, tokens = served
    return httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {tokens[who]}"}, timeout=30)


def leave(
    served: tuple[HttpServer, dict[str, str]], who: str, method: str, path: str, body: bytes, **more: str
) -> None:
    """Send a request and go away; returns when the server has noticed."""
    server, tokens = served
    headers = {"Host": "x", "Authorization": f"Bearer {tokens[who]}", "Content-Length": str(len(body)), **more}
    head = "\r\n".join([f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""])
    with socket.create_connection(("127.0.0.1", httpx.URL(server.url).port or 0)) as gone:
        gone.sendall(head.encode() + body)
        time.sleep(0.1)
    deadline = time.monotonic() + 10
    while server.service.requests > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.service.requests == 1, "only the first query still runs"


def held_query(pool: ThreadPoolExecutor, held: Held, send: Callable[[], httpx.Response]) -> Future[httpx.Response]:
    asking = pool.submit(send)
    assert held.started.acquire(timeout=20)
    return asking


def test_a_query_of_sql_belongs_to_its_caller(served: tuple[HttpServer, dict[str, str]], held: Held) -> None:
    slow, quick = ({"sql": text, "query_id": ID} for text in ("SELECT count(*) AS n FROM a.b.slow", "SELECT 1 AS n"))
    with client(served, "one") as one, client(served, "two") as two, ThreadPoolExecutor() as pool:
        first = held_query(pool, held, lambda: one.post("/api/v1/sql", json=slow))
        for path in ("/api/v1/sql", "/api/v1/sql/stream"):
            answer = two.post(path, json=quick)
            assert answer.status_code == 200, "the id of another says nothing"
        leave(served, "two", "POST", "/api/v1/sql", json.dumps(slow).encode())
        assert two.delete(f"/api/v1/sql/{ID}").status_code == 404
        with client(served, "one") as again:
            assert again.post("/api/v1/sql", json=quick).status_code == 409
        leave(served, "one", "POST", "/api/v1/sql", json.dumps(slow).encode())
        assert not first.done()
        held.go.set()
        assert first.result(20).json()["rows"] == [[0]]
        held.go.clear()
        for ender in ("one", "root"):
            asking = held_query(pool, held, lambda: one.post("/api/v1/sql", json=slow))
            with client(served, ender) as other:
                assert other.delete(f"/api/v1/sql/{ID}").status_code == 200
            assert asking.result(20).status_code == 499


def test_a_query_of_traces_belongs_to_its_caller(served: tuple[HttpServer, dict[str, str]], held: Held) -> None:
    path, named = "/api/v1/services", {"Crannog-Query-Id": ID}
    with client(served, "one") as one, client(served, "two") as two, ThreadPoolExecutor() as pool:
        first = held_query(pool, held, lambda: one.get(path, headers=named))
        assert two.get("/api/v1/services/shop/operations", headers=named).status_code == 200
        leave(served, "two", "GET", path, b"", **named)
        assert two.delete(f"/api/v1/traces/questions/{ID}").status_code == 404
        leave(served, "one", "GET", path, b"", **named)
        assert not first.done()
        held.go.set()
        assert first.result(20).json() == []
