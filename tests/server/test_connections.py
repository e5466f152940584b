"""Connections: how many there may be, and what a client may send on one beside requests."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

import servers
from crannog.server import connections
from crannog.settings import Settings
from doors import serving_here
from servers import serving

STALL_S = 0.5


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    folder = tmp_path_factory.mktemp("connections")
    with serving_here(folder, http_stall_s=STALL_S, http_keep_alive_s=1, http_body_bytes=1 << 20) as server:
        yield place(server.url)


def place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 0)


def opened(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=20)


def until_closed(connection: socket.socket) -> bytes:
    said = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            said += part
    return said


def seconds_until_closed(connection: socket.socket, part: bytes, every_s: float) -> float:
    """Send a part again and again until the server closes; return how long that took."""
    began = time.monotonic()
    with suppress(OSError):
        while time.monotonic() - began < 15:
            connection.sendall(part)
            time.sleep(every_s)
    return time.monotonic() - began


def is_quick(address: tuple[str, int]) -> bool:
    """Tell whether the server answers at once; the machine may be busy now and then."""
    for _ in range(5):
        began = time.monotonic()
        httpx.get(f"http://{address[0]}:{address[1]}/healthz").raise_for_status()
        if time.monotonic() - began < 0.5:
            return True
    return False


CHUNKED = b"POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "rest",
    [
        b"2\r\n{}\r\n0\r\nX-Trailer: ",  # one trailer that does not end
        b"2\r\n{}\r\n0\r\n",  # trailers that do not end
        b"2;a=",  # the extension of a chunk
    ],
)
def test_a_chunked_body_without_end_is_cut_off(address: tuple[str, int], rest: bytes) -> None:
    part = b"X-More: x\r\n" * 6_000 if rest.endswith(b"0\r\n") else b"x" * 65_536
    with opened(address) as connection:
        connection.sendall(CHUNKED + rest)
        assert seconds_until_closed(connection, part, 0) < 5
    assert is_quick(address)


def test_trailers_are_no_headers(address: tuple[str, int]) -> None:
    body = json.dumps({"sql": "SELECT 1 AS n"}).encode()
    with opened(address) as connection:
        connection.sendall(
            CHUNKED + b"%x\r\n%b\r\n0\r\nAccept: text/csv\r\nContent-Type: text/xml\r\n\r\n" % (len(body), body)
        )
        said = connection.recv(65_536)
    assert b" 200 " in said.partition(b"\r\n")[0]
    assert b"application/json" in said


@pytest.mark.parametrize(
    "head",
    [
        b"POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2710\r\n",
    ],
)
def test_a_client_that_trickles_after_its_answer_is_cut_off(address: tuple[str, int], head: bytes) -> None:
    with opened(address) as connection:
        connection.sendall(head)
        assert connection.recv(100).startswith(b"HTTP/1.1 ")
        assert seconds_until_closed(connection, b"x", 0.1) < STALL_S + 3


def test_a_client_that_sends_a_lot_after_its_answer_is_cut_off(address: tuple[str, int]) -> None:
    with opened(address) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999\r\n\r\n")
        assert seconds_until_closed(connection, b"x" * (1 << 20), 0) < STALL_S


def test_line_breaks_keep_no_connection_open(address: tuple[str, int]) -> None:
    with opened(address) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        assert seconds_until_closed(connection, b"\r\n", 0.1) < 4


def test_a_connection_whose_rest_was_not_read_is_used_again(address: tuple[str, int]) -> None:
    with opened(address) as connection:
        for _ in range(2):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n")
            assert connection.recv(1_000).startswith(b"HTTP/1.1 200")
            connection.sendall(b"abc")
        began = time.monotonic()
        assert until_closed(connection) == b""
        assert 0.5 < time.monotonic() - began < 4


def test_only_some_requests_may_be_sent_ahead(address: tuple[str, int]) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with opened(address) as connection:
        connection.sendall(request * 30)
        said = b""
        while said.count(b"HTTP/1.1 200") < 30:
            said += connection.recv(65_536)
    with opened(address) as connection:
        connection.sendall(request * 5_000)
        assert until_closed(connection).count(b"HTTP/1.1 200") < 5_000


# -- how many ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [{"http_connections": 10}, {"http_connections_per_address": 10}])
def test_connections_beyond_a_limit_are_told_so(tmp_path: Path, limit: dict[str, int]) -> None:
    with serving_here(tmp_path, **limit) as server, ExitStack() as held:
        assert server.receivers is not None
        ports = (place(server.url)[1], server.receivers.http_port, server.receivers.grpc_port)
        mine = [held.enter_context(opened(("127.0.0.1", ports[number % 3]))) for number in range(10)]
        mine[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert mine[0].recv(100).startswith(b"HTTP/1.1 200")
        for port in ports[:2]:
            with opened(("127.0.0.1", port)) as refused:
                head, _, body = until_closed(refused).partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 503 ")
                assert "which is the limit" in json.loads(body)["error"]["message"]
        with opened(("127.0.0.1", ports[2])) as refused:
            assert until_closed(refused) == b""
        assert server.service.connections.refused == 3
        for connection in mine:
            connection.close()
        for _ in range(100):
            if not server.service.connections.count:
                break
            time.sleep(0.02)
        assert server.service.connections.count == 0
        assert httpx.get(f"{server.url}/healthz").status_code == 200


def test_connections_get_half_of_the_file_descriptors(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "descriptors", lambda: 200)
    counted = connections.Connections(settings)
    assert [counted.admit("10.0.0.1") for _ in range(100)] == [None] * 100
    assert "100 connections" in str(counted.admit("10.0.0.2"))
    counted.leave("10.0.0.1")
    assert counted.admit("10.0.0.2") is None


@pytest.mark.slow
def test_a_process_with_few_file_descriptors_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections get half of them: what serves the others goes on, and one too many gets an answer."""
    program = tmp_path / "limited"
    program.write_text(f'#!/bin/sh\nulimit -n 200\nexec {servers.PROGRAM} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(servers, "PROGRAM", str(program))
    with serving(tmp_path / "warehouse", otlp=False) as server, ExitStack() as held, server.client() as client:
        client.get("/healthz")
        mine = [held.enter_context(opened(place(server.url))) for _ in range(300)]
        refused = [connection for connection in mine[150:] if until_closed(connection).startswith(b"HTTP/1.1 503")]
        assert len(refused) == 150
        columns = {"type": "object", "properties": {"id": {"type": "integer"}}}
        assert client.put("/api/v1/tables/a.b.d", json={"schema": columns}).status_code == 201
        assert client.post("/api/v1/tables/a.b.d/rows", json=[{"id": 1}]).json()["rows"] == 1
        assert client.get("/readyz").status_code == 200
        assert "connections are refused" in server.log()
        assert server.log().count("connections are refused") == 1
