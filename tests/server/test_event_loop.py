"""Nothing that waits or takes long runs on the event loop: the server answers others meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import zstandard

from crannog.embedded import EmbeddedLake
from crannog.formats.row_bodies import parse_document, parse_rows
from crannog.server.app import make_app
from crannog.server.service import Service
from crannog.settings import load_settings
from crannog.spark import session
from crannog.spark.session import SparkRuntime
from test_server_routes import error

NAMES = 20_000
MANY = {f"n{number}": 1 for number in range(NAMES)}
TWICE = json.dumps(MANY).encode()[:-1] + b', "n19999": 2}'


class App:
    """The application in this process, and how late its event loop was at most while a request was served."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._app = make_app(service)

    def ask(self, method: str, path: str, **request: Any) -> tuple[httpx.Response, float]:
        async def send() -> tuple[httpx.Response, float]:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False, client=("127.0.0.1", 123))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7117") as client:
                work = asyncio.ensure_future(client.request(method, path, **request))
                late = 0.0
                while not work.done():
                    began = time.monotonic()
                    await asyncio.sleep(0.005)
                    late = max(late, time.monotonic() - began)
                return await work, late

        return asyncio.run(send())


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    folder = tmp_path_factory.mktemp("loop")
    settings = load_settings(warehouse=str(folder / "warehouse"), audit=False)
    with pytest.MonkeyPatch.context() as patch, EmbeddedLake(settings.warehouse, settings=settings) as lake:
        if session._process_wide is None:
            patch.setattr(session, "_process_wide", SparkRuntime(settings))
        service = Service(lake)
        running = App(service)
        running.ask("GET", "/api/v1/tables")  # what is loaded with the first request
        yield running
        service.threads.close()


def test_a_storage_or_a_spark_that_hangs_stops_nobody(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    ends, hangs = threading.Event(), threading.Event()
    runtime = session.spark_runtime(app.service.settings)

    def hold() -> None:
        with runtime._lock:  # as who waits for a Java process that stands still
            hangs.set()
            ends.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    hangs.wait(5)
    monkeypatch.setattr(app.service.lake.operations.warehouse.storage, "names", lambda folder: ends.wait(20))
    try:
        answer, late = app.ask("GET", "/readyz")
        assert (answer.status_code, answer.json()["status"]) == (503, "storage")
        assert "did not answer" in answer.json()["message"]
        assert late < 0.5
        assert app.ask("GET", "/healthz")[0].status_code == 200
    finally:
        ends.set()
        holder.join()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/v1/sql", json.dumps({"sql": "SELECT 1", **MANY}).encode()),
        ("POST", "/api/v1/sql", TWICE),
        ("PUT", "/api/v1/tables/a.b.c", TWICE),
        ("PUT", "/api/v1/tables/a.b.c", json.dumps(MANY).encode()),
        ("PUT", "/api/v1/tables/a.b.c", b'{"schema": {}, "key": [' + b"1," * 1_000_000 + b"1]}"),
        ("POST", "/api/v1/traces/search", b'{"limit": [' + b"[]," * 1_000_000 + b"1]}"),
        ("POST", "/query/compact", TWICE),
        ("POST", "/api/v1/session", b'{"token": "' + b"x" * 100_000 + b'"}'),
    ],
)
def test_a_document_with_too_much_in_it_is_refused_and_stops_nobody(
    app: App, method: str, path: str, body: bytes
) -> None:
    began = time.monotonic()
    headers = {"Content-Type": "application/json", "Origin": "http://127.0.0.1:7117", "Sec-Fetch-Site": "same-origin"}
    answer, late = app.ask(method, path, content=body, headers=headers)
    assert answer.status_code in (400, 413), answer.text[:300]
    assert len(answer.text) < 10_000
    assert time.monotonic() - began < 3
    assert late < 0.5


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("path", ["/api/v1/sql", "/api/v1/traces/search", "/api/v1/tables/a.b.c/fold"])
def test_a_packed_document_is_unpacked_within_the_limit_of_documents(app: App, encoding: str, path: str) -> None:
    pack: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress,
        "deflate": zlib.compress,
        "zstd": zstandard.ZstdCompressor().compress,
    }
    body = pack[encoding](b'{"sql": "' + b" " * (8 << 20) + b'"}')
    assert len(body) < 10_000
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    answer, late = app.ask("POST", path, content=body, headers=headers)
    assert "4,194,304 bytes" in error(answer, 413, "too_large")
    assert late < 0.5
    assert app.service.bodies.held == 0


def test_what_bodies_unpack_to_is_counted(tmp_path: Path) -> None:
    from servers import in_process

    with in_process(tmp_path, http_bodies_bytes=1 << 20) as (service, ask):
        ask(
            "PUT",
            "/api/v1/tables/a.b.c",
            json={"schema": {"type": "object", "properties": {"id": {"type": "integer"}}}},
        )
        body = gzip.compress(b"[" + b" " * (4 << 20) + b"]")
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        assert "bodies of" in error(
            ask("POST", "/api/v1/tables/a.b.c/rows", content=body, headers=headers), 429, "overloaded"
        )
        assert service.bodies.held == 0


def test_names_are_compared_in_linear_time(tmp_path: Path) -> None:
    """Twenty thousand names, each compared with all others, took 13 seconds."""
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    wide = ",".join(MANY).encode() + b"\n" + b",".join([b"1"] * NAMES) + b"\n"
    began = time.process_time()
    for body in (TWICE, b"[" + TWICE + b"]"):
        with pytest.raises(Exception, match="twice"):
            parse_document(body, "the body", strict=True)
        with pytest.raises(Exception, match="twice"):
            parse_rows(body, "json", schema, "the body", strict=True)
    import crannog

    with crannog.connect(str(tmp_path)) as lake:
        table = lake.create_table("a.b.c", schema)
        repeated = pa.Table.from_arrays([pa.array([1])] * NAMES, names=[*[*MANY][:-1], "n0"])
        for rows in (repeated, parse_rows(wide, "csv", schema, "the body", strict=True)):
            with pytest.raises(crannog.CrannogError, match="and 19,980 more") as refused:
                table.append(rows)
            assert len(str(refused.value)) < 1_000
    assert time.process_time() - began < 4


@pytest.mark.slow
def test_a_java_process_that_stands_still_stops_nobody(tmp_path: Path) -> None:
    from servers import serving

    columns = {"type": "object", "properties": {"id": {"type": "integer"}}}
    with serving(tmp_path / "warehouse", spark_at_start=True) as server, server.client() as client:
        ends = time.monotonic() + 120
        while client.get("/readyz").json()["spark"] != "ready":
            assert time.monotonic() < ends
            time.sleep(0.2)
        client.put("/api/v1/tables/a.b.c", json={"schema": columns})
        client.post("/api/v1/tables/a.b.c/rows", json=[{"id": 1}])
        tasks = Path(f"/proc/{server.process.pid}/task")
        children = [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]
        java = next(pid for pid in children if "java" in Path(f"/proc/{pid}/cmdline").read_bytes().decode("latin-1"))
        os.kill(java, signal.SIGSTOP)
        try:
            jobs = [
                threading.Thread(target=lambda: suppressed(server.url, "/api/v1/tables/a.b.c/fold", {})),
                threading.Thread(
                    target=lambda: suppressed(server.url, "/api/v1/sql", {"sql": "SELECT 1", "engine": "spark"})
                ),
            ]
            for job in jobs:
                job.start()
            time.sleep(1)
            for path in (
                "/healthz",
                "/readyz",
                "/metrics",
                "/api/v1/tasks",
                "/api/v1/upkeep",
                "/api/v1/cache",
                "/api/v1/tables",
            ):
                began = time.monotonic()
                assert client.get(path).status_code in (200, 503), path
                assert time.monotonic() - began < 2, path
            assert client.post("/api/v1/tables/a.b.c/rows", json=[{"id": 2}]).status_code == 200
        finally:
            with suppress(ProcessLookupError):  # it may have been replaced
                os.kill(java, signal.SIGCONT)


def suppressed(url: str, path: str, document: dict[str, Any]) -> None:
    """Send a request whose answer does not matter."""
    with suppress(httpx.HTTPError):
        httpx.post(f"{url}{path}", json=document, timeout=10)


def test_a_file_with_too_many_columns_is_refused_at_its_first_line(app: App) -> None:
    body = b",".join(b"n%d" % number for number in range(20_001)) + b"\n"
    answer, late = app.ask("POST", "/api/v1/tables/a.b.loaded/load?create=true&file=f.csv", content=body)
    assert "20,000 is the most" in error(answer, 400, "bad_request")
    assert late < 0.5
