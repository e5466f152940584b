"""SQL over HTTP ends on time, EXPLAIN too, and /readyz tells what is degraded."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from crannog.engine.sql import running_queries
from crannog.engine.sql.queries import Queries
from crannog.server.http_server import HttpServer
from crannog.server.routes import sql as routes
from crannog.storage import local
from doors import serving_here

# Billions of rows, one after the other: it runs for minutes, and DuckDB ends it at once.
LONG = "SELECT sum(a.id * b.id % 7) AS n FROM range(10000000) a JOIN range(100000) b ON a.id % 7 = b.id % 7"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HttpServer]:
    with serving_here(tmp_path / "warehouse", sql_running=1) as made:
        yield made


def explained(server: HttpServer, **fields: Any) -> httpx.Response:
    body = {"sql": LONG, "analyze": True, "engine": "local", **fields}
    return httpx.post(f"{server.url}/api/v1/sql/explain", json=body, timeout=60)


def test_explain_analyze_is_cancelled_by_its_id_and_ends_at_its_timeout(server: HttpServer) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(explained, server, query_id="e1")
        ends = time.monotonic() + 20
        while httpx.delete(f"{server.url}/api/v1/sql/e1").status_code != 200:
            assert time.monotonic() < ends
            time.sleep(0.05)
        assert waiting.result(20).json()["error"]["code"] == "cancelled"
    answer = explained(server, timeout_s=0.3)
    assert (answer.status_code, answer.json()["error"]["code"]) == (408, "timed_out")


def test_explain_takes_one_place_among_the_running_queries(server: HttpServer) -> None:
    body = {"sql": "EXPLAIN SELECT 1", "timeout_s": 10}
    assert httpx.post(f"{server.url}/api/v1/sql", json=body, timeout=30).status_code == 200


def test_a_query_that_does_not_end_is_answered_and_gives_its_place_back(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, answer = threading.Event(), Queries._answer

    def endless(self: Queries, statement: Any, *rest: Any) -> Any:
        if "held" in statement.text:
            held.wait(30)
        return answer(self, statement, *rest)

    monkeypatch.setattr(Queries, "_answer", endless)
    monkeypatch.setattr(running_queries, "GRACE_S", 0.2)
    monkeypatch.setattr(routes, "GRACE_S", 0.2)
    began = time.monotonic()
    body = {"sql": "SELECT 1 AS held", "timeout_s": 0.3}
    stuck = httpx.post(f"{server.url}/api/v1/sql", json=body, timeout=30)
    assert (stuck.status_code, stuck.json()["error"]["code"]) == (408, "timed_out")
    assert time.monotonic() - began < 3
    free = httpx.post(f"{server.url}/api/v1/sql", json={"sql": "SELECT 2 AS n", "timeout_s": 5}, timeout=30)
    assert free.json()["rows"] == [[2]]
    held.set()


def test_readyz_tells_what_is_degraded_without_names(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def degraded() -> list[dict[str, str]]:
        found: list[dict[str, str]] = httpx.get(f"{server.url}/readyz").json()["degraded"]
        return found

    assert degraded() == []
    conditions = server.service.lake.operations.warehouse.conditions
    conditions.note("fold:shop.eu.orders", "Spark ran out of memory")
    monkeypatch.setattr(local, "_full", [])
    local._unavailable("write", "shop/eu/orders", OSError(errno.ENOSPC, "full"))
    monkeypatch.setattr("crannog.spark.session.SparkRuntime.incident", lambda self: (1.0, "Spark was restarted: …"))
    found = degraded()
    assert [each["what"] for each in found] == ["spark", "disk", "maintenance"]
    assert found[0]["since"] == "1970-01-01T00:00:01+00:00"
    assert "free some space" in found[1]["message"]
    assert "a maintenance task fails" in found[2]["message"]
    assert "orders" not in str(found)
    conditions.clear("fold:shop.eu.orders")
    assert [each["what"] for each in degraded()] == ["spark", "disk"]
