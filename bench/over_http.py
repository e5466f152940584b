"""The server over HTTP: writes by many clients, SQL against an embedded connection, single rows against SQLite behind FastAPI and Datasette."""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import datasette_api
from data import ORDERS, order_rows, orders
from stopwatch import Line, medians_ms

from crannog.formats.encode import arrow

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from servers import serving

if TYPE_CHECKING:
    from run import Bench

_ARROW = "application/vnd.apache.arrow.stream"
_WRITES = "HTTP: rows to the acknowledgement"
_READS = "HTTP: SQL and single rows"
_TABLE, _READ = "bench.http.orders", "bench.http.read"


def writes_and_reads(bench: Bench) -> None:
    """Over HTTP: 1, 100 and 10,000 rows a request by 1, 8 and 64 clients; SQL; single rows."""
    with (
        serving(bench.folder / "served", staged_rows_limit=50_000_000, staged_bytes_limit=16 * 1024**3) as server,
        _running(_sqlite(bench)) as peer,
    ):
        with server.client() as client:
            schema = b"".join(arrow(ORDERS, ()))
            client.put(
                f"/api/v1/tables/{_TABLE}?key=order_id", content=schema, headers={"Content-Type": _ARROW}
            ).raise_for_status()
        seconds = 1.0 if bench.quick else 4.0
        for rows, clients in ((rows, clients) for rows in (1, 100, 10_000) for clients in (1, 8, 64)):
            ours = _measured(
                server.url,
                f"/api/v1/tables/{_TABLE}/rows",
                _bodies(bench, rows),
                clients,
                seconds,
                _ARROW if rows > 100 else "application/json",
            )
            theirs = _measured(peer, "/rows", _bodies(bench, rows, text=True), clients, seconds, "application/json")
            what = f"{rows:,} rows a request, {clients} clients"
            bench.results.add(
                _WRITES,
                Line(
                    f"{what}: rows/s",
                    ours.rate * rows,
                    "rows/s",
                    {"SQLite + FastAPI": theirs.rate * rows},
                    more_is_better=True,
                ),
            )
            bench.results.add(_WRITES, Line(f"{what}: p50", ours.p50_ms, peers={"SQLite + FastAPI": theirs.p50_ms}))
            bench.results.add(_WRITES, Line(f"{what}: p99", ours.p99_ms, peers={"SQLite + FastAPI": theirs.p99_ms}))
        _reads(bench, server.url, peer, seconds)


def _reads(bench: Bench, url: str, peer: str, seconds: float) -> None:
    import httpx

    import crannog

    many = 10_000 if bench.quick else 100_000
    rows = orders(many, first=bench.fresh(many))
    with crannog.connect(str(bench.folder / "served")) as lake, httpx.Client(base_url=url, timeout=60) as client:
        lake.create_table(_READ, ORDERS, key="order_id").append(rows)
        count = f"SELECT region, count(*) AS n, sum(price) AS total FROM {_READ} GROUP BY region"
        wide = f"SELECT * FROM {_READ} LIMIT 10000"
        for what, text in (("a sum by group", count), ("10,000 whole rows", wide)):
            document = {"sql": text}
            spent = medians_ms(
                {
                    "Arrow": lambda document=document: client.post(
                        "/api/v1/sql", json=document, headers={"Accept": _ARROW, "Accept-Encoding": "identity"}
                    ).raise_for_status(),
                    "JSON": lambda document=document: client.post(
                        "/api/v1/sql", json=document, headers={"Accept-Encoding": "identity"}
                    ).raise_for_status(),
                    "embedded": lambda text=text: lake.sql(text),
                },
                5 if bench.quick else 20,
            )
            for form in ("Arrow", "JSON"):
                bench.results.add(
                    _READS, Line(f"{what}, as {form}", spent[form], peers={"embedded": spent["embedded"]})
                )
        client.put(f"/api/v1/cache/{_READ}").raise_for_status()
    keys = rows["order_id"].slice(0, 1_000).to_pylist()
    written = [json.dumps(row, default=lambda value: value.isoformat()) for row in rows.slice(0, 1_000).to_pylist()]
    _measured(peer, "/rows", [f"[{', '.join(written)}]".encode()], 1, 0.01, "application/json")
    paths = [f"/api/v1/tables/{_READ}/rows/{key}".encode() for key in keys]
    with ExitStack() as held:
        peers = {"SQLite + FastAPI": (peer, "/rows/{}")}
        if program := datasette_api.installed(bench.folder / "datasette"):
            shown = held.enter_context(_running(lambda port: datasette_api.command(program, _file(bench), port)))
            peers["Datasette"] = (shown, f"/{_file(bench).stem}/orders/{{}}.json")
        for clients in (1, 8):
            ours = _measured(url, "", paths, clients, seconds, "", method="GET").p50_ms
            theirs = {
                name: _measured(
                    place, "", [path.format(key).encode() for key in keys], clients, seconds, "", method="GET"
                ).p50_ms
                for name, (place, path) in peers.items()
            }
            bench.results.add(_READS, Line(f"one row by its key, hot, {clients} clients: p50", ours, peers=theirs))


class _Measured:
    """What many requests took."""

    def __init__(self, spent: Sequence[float], seconds: float) -> None:
        self.rate = len(spent) / seconds
        self.p50_ms = statistics.median(spent) * 1000
        self.p99_ms = sorted(spent)[max(0, int(len(spent) * 0.99) - 1)] * 1000


def _measured(
    url: str, path: str, bodies: Sequence[bytes], clients: int, seconds: float, media: str, method: str = "POST"
) -> _Measured:
    """Send requests over as many connections as there are clients, each after its last one was answered."""
    parts = urlsplit(url)
    given = iter(list(bodies) * 1_000)
    spent: list[float] = []

    async def client(until: Callable[[], bool]) -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        while not until():
            body = next(given)
            target, content = (path, body) if method == "POST" else (body.decode(), b"")
            head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media}\r\nContent-Length: {len(content)}\r\n\r\n"
            started = time.perf_counter()
            writer.write(head.encode() + content)
            line = await reader.readline()
            answer = await _body(reader)
            assert b" 200 " in line, answer
            spent.append(time.perf_counter() - started)
        writer.close()

    async def all_of_them() -> float:
        started = time.perf_counter()
        end = started + seconds
        await asyncio.gather(*(client(lambda: time.perf_counter() > end) for _ in range(clients)))
        return time.perf_counter() - started

    return _Measured(spent, asyncio.run(all_of_them()))


def _bodies(bench: Bench, rows: int, *, text: bool = False) -> list[bytes]:
    many = {1: 2_000, 100: 100, 10_000: 8}[rows]
    if rows > 100 and not text:
        tables = (orders(rows, first=bench.fresh(rows)) for _ in range(many))
        return [b"".join(arrow(table.schema, table.to_batches())) for table in tables]
    given = (order_rows(rows, first=bench.fresh(rows)) for _ in range(many))
    return [json.dumps(listed, default=lambda value: value.isoformat()).encode() for listed in given]


async def _body(reader: asyncio.StreamReader) -> bytes:
    """Read the headers and the body of an answer, told by its length or sent in chunks."""
    size, chunked = 0, False
    while (header := (await reader.readline()).lower()) != b"\r\n":
        if header.startswith(b"content-length:"):
            size = int(header.split(b":")[1])
        chunked |= header.startswith(b"transfer-encoding:") and b"chunked" in header
    if not chunked:
        return await reader.readexactly(size)
    parts = []
    while length := int(await reader.readline(), 16):
        parts.append(await reader.readexactly(length))
        await reader.readline()
    await reader.readline()
    return b"".join(parts)


def _file(bench: Bench) -> Path:
    return bench.folder / "http.db"


def _sqlite(bench: Bench) -> Callable[[int], list[str]]:
    return lambda port: [sys.executable, str(Path(__file__).parent / "sqlite_api.py"), str(_file(bench)), str(port)]


@contextmanager
def _running(command: Callable[[int], list[str]]) -> Iterator[str]:
    """Run a peer's server on a free port of loopback and yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(command(port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
