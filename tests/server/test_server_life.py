"""A server's life: it starts, is the only one, stops in order, and loses nothing when it is killed."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pyarrow.parquet as pq
import pytest

from crannog.errors import CallerError, Unavailable
from crannog.server.http_server import _check_tls
from crannog.server.lock import PATH, ServerLock, server_of
from crannog.storage import process_locks
from servers import PROGRAM, Server, self_signed, serving
from test_server_routes import NOTE

NAME = "t.life.notes"
ROWS = f"/api/v1/tables/{NAME}/rows"


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("many") / "warehouse") as server:
        with server.client() as client:
            client.put(f"/api/v1/tables/{NAME}", json={"schema": NOTE})
        yield server


def staged(warehouse: Path) -> Counter[int]:
    """How often each id stands in the staged files, read without Crannog; a pack and its originals are the same rows."""
    rows: dict[tuple[int, int], int] = {}
    for file in Path(warehouse, *NAME.split(".")).glob("_crannog/*/stage/*.parquet"):
        with suppress(FileNotFoundError):  # packed meanwhile
            for row in pq.read_table(file, columns=["id", "_seq", "_ord"]).to_pylist():
                rows[row["_seq"], row["_ord"]] = row["id"]
    return Counter(rows.values())


# -- one server ------------------------------------------------------------------------------------------------------


def test_a_second_server_is_refused(running: Server) -> None:
    assert server_of(running.warehouse) == running.url
    run = [PROGRAM, "--warehouse", str(running.warehouse), "serve", "--port", "0"]
    second = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 3
    assert f"process {running.process.pid} at {running.url}" in second.stderr


def test_a_full_disk_is_reported_by_a_starting_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(process_locks.os, "pwrite", full)
        with pytest.raises(Unavailable, match="No space left on device; free some space"):
            ServerLock(tmp_path)
    ServerLock(tmp_path).release()


def test_the_lock_is_free_when_it_is_released(tmp_path: Path) -> None:
    lock = ServerLock(tmp_path)
    lock.publish("http://127.0.0.1:1")
    assert server_of(tmp_path) == "http://127.0.0.1:1"
    lock.release()
    assert server_of(tmp_path) is None
    (tmp_path / PATH).write_text("not JSON")
    ServerLock(tmp_path).release()


def test_a_look_takes_no_lock_and_a_short_one_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ServerLock(tmp_path).release()
    with (tmp_path / PATH).open("rb") as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)  # as earlier versions did for a moment
        threading.Timer(0.1, lambda: fcntl.flock(looker, fcntl.LOCK_UN)).start()
        lock = ServerLock(tmp_path)
    lock.publish("http://127.0.0.1:1")
    monkeypatch.delattr(fcntl, "flock")
    assert server_of(tmp_path) == "http://127.0.0.1:1"
    lock.release()
    assert server_of(tmp_path) is None


def test_who_can_only_read_the_warehouse_cannot_take_the_lock(tmp_path: Path) -> None:
    (tmp_path / "_crannog").mkdir()
    (tmp_path / PATH).touch(mode=0o644)  # as earlier versions created it
    lock = ServerLock(tmp_path)
    assert (tmp_path / PATH).stat().st_mode & 0o077 == 0
    lock.release()


def test_a_port_that_is_taken_is_told(running: Server, tmp_path: Path) -> None:
    port = str(urlsplit(running.url).port)
    run = [PROGRAM, "--warehouse", str(tmp_path / "other"), "serve", "--port", port]
    second = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 5
    assert f"cannot listen on 127.0.0.1 port {port}" in second.stderr


def test_tls_by_setting(warehouse: Path, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    with serving(warehouse, tls_certificate=certificate, tls_key=key) as server:
        assert server.url.startswith("https://")
        import ssl

        with httpx.Client(base_url=server.url, verify=ssl.create_default_context(cafile=str(certificate))) as client:
            assert client.get("/healthz").json() == {"status": "ok"}


def test_tls_files_that_are_none_are_told_at_once(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    (tmp_path / "garbage.pem").write_text("garbage")
    (tmp_path / "other").mkdir()
    locked = tmp_path / "locked.pem"
    subprocess.run(
        ["openssl", "ec", "-in", str(key), "-aes256", "-passout", "pass:secret", "-out", str(locked)],
        check=True,
        capture_output=True,
    )
    others_key = self_signed(tmp_path / "other")[1]
    for files, said in (
        ((certificate, tmp_path / "garbage.pem"), "both are PEM"),
        ((tmp_path / "garbage.pem", key), "both are PEM"),
        ((certificate, others_key), "both are PEM"),
        ((certificate, locked), "has a password"),
        ((certificate, tmp_path / "nowhere.pem"), "cannot read"),
        ((certificate, ""), "needs both"),
    ):
        with pytest.raises(CallerError, match=said):
            _check_tls(*map(str, files))
    _check_tls(str(certificate), str(key))


# -- its end ---------------------------------------------------------------------------------------------------------


def test_the_end_does_not_wait_for_a_java_process_that_only_starts(warehouse: Path) -> None:
    with serving(warehouse, spark_at_start=True, fold_rows=1, scheduler_tick_s=0.1) as server:
        with server.client() as client:
            client.put(f"/api/v1/tables/{NAME}", json={"schema": NOTE})
            client.post(ROWS, json=[{"id": 1}])
            time.sleep(1)  # a fold is due, and waits for Spark
            assert client.get("/readyz").json()["spark"] == "starting"
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 6


class Producers:
    """Threads that append one row after another, each with a batch id, and remember what was acknowledged."""

    def __init__(self, server: Server, count: int, first: int = 0) -> None:
        self.acknowledged: set[int] = set()
        self.sent: set[int] = set()
        self._stop = threading.Event()
        self._server = server
        self._threads = [
            threading.Thread(target=self._run, args=(first + number * 1_000_000,)) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        with self._server.client() as client:
            while not self._stop.is_set():
                number += 1
                self.sent.add(number)
                try:
                    answer = client.post(ROWS, json=[{"id": number}], headers={"Crannog-Batch-Id": f"b{number}"})
                except httpx.TransportError:
                    return
                if answer.status_code != 200:
                    return
                self.acknowledged.add(number)

    def until(self, count: int) -> None:
        for _ in range(1200):
            if len(self.acknowledged) >= count:
                return
            time.sleep(0.05)
        raise AssertionError(f"only {len(self.acknowledged)} were acknowledged")

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)


def killed_under_load(warehouse: Path, lives: int, rows: int) -> None:
    acknowledged: set[int] = set()
    sent: set[int] = set()
    for life in range(lives):
        server = Server(warehouse)
        try:
            with server.client() as client:
                made = client.put(f"/api/v1/tables/{NAME}", json={"schema": NOTE})
                assert made.status_code == (200 if life else 201)
            producers = Producers(server, 4, first=life * 10_000_000)
            producers.until(rows)
        finally:
            server.kill()
        assert server_of(warehouse) is None, "the lock of a killed server is gone"
        producers.end()
        acknowledged |= producers.acknowledged
        sent |= producers.sent
        there = staged(warehouse)
        assert acknowledged <= there.keys(), sorted(acknowledged - there.keys())[:10]
        assert there.keys() <= sent
        assert set(there.values()) == {1}
    with serving(warehouse) as server, server.client() as client:
        # Whoever got no answer sends the batch again, and everything stands there once.
        for number in sent - acknowledged:
            assert (
                client.post(ROWS, json=[{"id": number}], headers={"Crannog-Batch-Id": f"b{number}"}).status_code == 200
            )
        assert client.get(f"/api/v1/tables/{NAME}/count").json() == {"rows": len(sent)}
        assert client.post("/api/v1/sql", json={"sql": f"SELECT count(DISTINCT id) AS n FROM {NAME}"}).json()[
            "rows"
        ] == [[len(sent)]]
    assert staged(warehouse) == Counter(sent)


def test_killed_under_load_every_acknowledged_row_is_there_once(warehouse: Path) -> None:
    killed_under_load(warehouse, lives=1, rows=150)


@pytest.mark.slow
def test_killed_again_and_again_every_acknowledged_row_is_there_once(warehouse: Path) -> None:
    killed_under_load(warehouse, lives=8, rows=1_500)


def test_told_to_stop_it_answers_what_runs_and_leaves(warehouse: Path) -> None:
    server = Server(warehouse)
    try:
        with server.client() as client:
            client.put(f"/api/v1/tables/{NAME}", json={"schema": NOTE})
            client.post(ROWS, json=[{"id": number} for number in range(1, 4_000)], headers={"Crannog-Batch-Id": "many"})
        producers = Producers(server, 4, first=10_000_000)
        producers.until(20)
        answers: list[httpx.Response] = []
        endless = f"SELECT count(*) FROM {NAME} a, {NAME} b, {NAME} c WHERE a.id + b.id + c.id < 0"

        def ask() -> None:
            with server.client() as client:
                answers.append(client.post("/api/v1/sql", json={"sql": endless, "timeout_s": 100}))

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.5)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 20
        producers.end()
        asking.join(20)
    finally:
        server.kill()
    # The query could not finish in the time there was: it was taken back, and told so.
    assert [answer.json()["error"]["code"] for answer in answers] == ["cancelled"]
    there = staged(warehouse)
    assert producers.acknowledged <= there.keys()
    assert set(there.values()) == {1}
    assert server.lines[-1] == "stopped\n"
    assert "Traceback" not in server.log()


def test_a_second_signal_does_not_wait(warehouse: Path) -> None:
    server = Server(warehouse)
    with server.client() as client:
        client.put(f"/api/v1/tables/{NAME}", json={"schema": NOTE})
        client.post(ROWS, json=[{"id": number} for number in range(4_000)])
        endless = {"sql": f"SELECT count(*) FROM {NAME} a, {NAME} b, {NAME} c WHERE a.id + b.id + c.id < 0"}
        asking = threading.Thread(target=lambda: _quietly(client, endless))
        asking.start()
        time.sleep(0.3)
        began = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        server.process.send_signal(signal.SIGINT)
        server.process.wait(20)
        assert time.monotonic() - began < 6
        asking.join(20)


def _quietly(client: httpx.Client, body: dict[str, str]) -> None:
    with suppress(httpx.TransportError):
        client.post("/api/v1/sql", json=body)


# -- many ------------------------------------------------------------------------------------------------------------


def test_a_thousand_connections_are_served(running: Server) -> None:
    """Open together, each with an append of its own; all are kept, in few files."""
    before = staged(running.warehouse).total()
    parts = urlsplit(running.url)

    async def one(number: int, opened: asyncio.Barrier) -> tuple[bytes, int]:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        await opened.wait()
        body = b'{"id": %d}' % number
        head = f"POST {ROWS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        said = await reader.read()
        writer.close()
        return said.partition(b"\r\n")[0], json.loads(said.rpartition(b"\r\n\r\n")[2])["sequence"]

    async def all_of_them(count: int) -> list[tuple[bytes, int]]:
        opened = asyncio.Barrier(count)
        return await asyncio.wait_for(asyncio.gather(*(one(number, opened) for number in range(count))), 90)

    found = asyncio.run(all_of_them(1_000))
    assert {line for line, _ in found} == {b"HTTP/1.1 200 OK"}
    assert staged(running.warehouse).total() == before + 1_000
    # Callers that wait together share a commit.
    assert len({sequence for _, sequence in found}) < 500
