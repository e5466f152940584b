"""Requests that offer another protocol are served as HTTP/1.1, body and all, and the connection stays in step."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from otlp_samples import request_of, span, trace_id
from servers import Server, serving

NAME = "t.upgrade.rows"
ROWS = f"/api/v1/tables/{NAME}/rows"
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}
OFFERS = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
    "websocket": b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 13\r\n",
    "unknown": b"UPGRADE: IRC/6.9\r\ncOnNeCtIoN: uPgRaDe\r\n",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("upgrade") / "warehouse") as running:
        with running.client() as client:
            assert client.put(f"/api/v1/tables/{NAME}", json={"schema": SCHEMA}).status_code == 201
        yield running


def ports(server: Server) -> tuple[int, int]:
    """The ports of the API and of OTLP over HTTP."""
    for _ in range(200):
        if found := re.search(r"OTLP on port (\d+) \(HTTP\)", "".join(server.lines)):
            return int(server.url.rpartition(":")[2]), int(found[1])
        time.sleep(0.05)
    raise AssertionError(server.lines)


def kept_ids(server: Server) -> set[int]:
    """The rows that are there, read from the staged files themselves."""
    files = [str(path) for path in (server.warehouse / "t" / "upgrade" / "rows").rglob("stage/*.parquet")]
    return (
        {row[0] for row in duckdb.sql(f"SELECT id FROM read_parquet({files}, union_by_name := true)").fetchall()}
        if files
        else set()
    )


def has_trace(server: Server, number: int) -> bool:
    with server.client() as client:
        return client.get(f"/api/v1/traces/{trace_id(number).hex()}").status_code == 200


class Connection:
    """One connection, kept open from answer to answer."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self._socket.sendall(part)
            time.sleep(0.02)  # so that each is read by itself

    def answer(self) -> tuple[int, bytes]:
        status = int(self._file.readline().split()[1])
        length = 0
        while line := self._file.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        return status, self._file.read(length)

    def is_closed(self) -> bool:
        return self._file.read(1) == b""


def post(path: str, body: bytes, kind: str, further: bytes) -> tuple[bytes, bytes]:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n".encode()
    )
    return head + further + b"\r\n", body


def row(number: int) -> bytes:
    return json.dumps([{"id": number}]).encode()


GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.mark.parametrize("offer", OFFERS)
def test_a_request_that_offers_an_upgrade_keeps_its_body(server: Server, offer: str) -> None:
    """However it is cut on its way; and what follows on the connection is answered in turn."""
    further, first = OFFERS[offer], 100 * (1 + list(OFFERS).index(offer))
    with Connection(ports(server)[0]) as connection:
        for number, cut in enumerate(("whole", "head and body", "in the head", "in the body", "byte by byte"), first):
            head, body = post(ROWS, row(number), "application/json", further)
            whole = head + body
            parts = {
                "whole": [whole],
                "head and body": [head, body],
                "in the head": [whole[:80], whole[80:]],
                "in the body": [whole[:-4], whole[-4:]],
                "byte by byte": [head[:-2], *(bytes([byte]) for byte in head[-2:] + body)],
            }[cut]
            connection.send(*parts)
            status, answer = connection.answer()
            assert (status, json.loads(answer)["rows"]) == (200, 1), cut
            connection.send(GET + b"\r\n")
            assert connection.answer() == (200, b'{"status":"ok"}'), cut
        chunked = head.replace(f"Content-Length: {len(body)}".encode(), b"Transfer-Encoding: chunked")
        body = row(first + 50)
        connection.send(chunked, b"4\r\n" + body[:4] + b"\r\n", b"%x\r\n%b\r\n0\r\n\r\n" % (len(body) - 4, body[4:]))
        assert connection.answer()[0] == 200
        connection.send(GET + further + b"\r\n")
        assert connection.answer() == (200, b'{"status":"ok"}')
    assert kept_ids(server) >= {*range(first, first + 5), first + 50}


def test_requests_sent_ahead_are_answered_in_turn(server: Server) -> None:
    numbers = range(1_000, 1_010)
    with Connection(ports(server)[0]) as connection:
        sent = [
            part
            for number in numbers
            for part in (*post(ROWS, row(number), "application/json", OFFERS["h2c"]), GET, OFFERS["websocket"], b"\r\n")
        ]
        connection.send(b"".join(sent))
        for _ in numbers:
            status, answer = connection.answer()
            assert (status, json.loads(answer)["rows"]) == (200, 1)
            assert connection.answer() == (200, b'{"status":"ok"}')
    assert kept_ids(server) >= set(numbers)


def test_a_body_is_never_read_as_a_request(server: Server) -> None:
    """A body that looks like a request once was one, and another's answer came first."""
    inner = f"DELETE /api/v1/tables/{NAME} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    for port, path in zip(ports(server), (ROWS, "/v1/traces"), strict=True):
        with Connection(port) as connection:
            connection.send(*post(path, inner, "application/json", OFFERS["h2c"]))
            assert connection.answer()[0] == 400
            connection.send(*post(path, b"x", "application/json", b"Connection: close\r\n"))
            assert connection.answer()[0] == 400
            assert connection.is_closed()
    with server.client() as client:
        assert client.get(f"/api/v1/tables/{NAME}").status_code == 200


def test_a_tunnel_is_refused(server: Server) -> None:
    for port in ports(server):
        with Connection(port) as connection:
            connection.send(b"CONNECT /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\n\r\nGET")
            status, answer = connection.answer()
            assert (status, json.loads(answer)["error"]["code"]) == (400, "bad_request")
            assert connection.is_closed()


def test_spans_that_come_with_an_upgrade_are_kept(server: Server) -> None:
    api, otlp = ports(server)
    for number, (port, path) in enumerate([(otlp, "/v1/traces"), (api, "/api/v1/traces/otlp")], 1):
        with Connection(port) as connection:
            body = request_of(span(number, 1)).SerializeToString()
            connection.send(*post(path, body, "application/x-protobuf", OFFERS["h2c"]))
            assert connection.answer()[0] == 200
        assert has_trace(server, number)


def test_curl_with_http2_keeps_its_rows(server: Server, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    spans = tmp_path / "spans"
    spans.write_bytes(request_of(span(11, 1)).SerializeToString())
    api, otlp = ports(server)
    curl = ["curl", "-sS", "--http2", "--fail-with-body"]
    rows = [*curl, f"http://127.0.0.1:{api}{ROWS}", "-H", "Content-Type: application/json", "-d", '[{"id": 2000}]']
    done = subprocess.run(rows, capture_output=True, check=True)
    assert json.loads(done.stdout)["rows"] == 1
    traces = [
        *curl,
        f"http://127.0.0.1:{otlp}/v1/traces",
        "-H",
        "Content-Type: application/x-protobuf",
        "--data-binary",
        f"@{spans}",
    ]
    subprocess.run(traces, capture_output=True, check=True)
    assert 2_000 in kept_ids(server)
    assert has_trace(server, 11)


JAVA = """
import java.net.URI;
import java.net.http.*;
import java.nio.file.*;

public class Send {
    public static void main(String[] given) throws Exception {
        HttpClient client = HttpClient.newHttpClient();  // HTTP/2 preferred, as is the default
        for (int place = 0; place < given.length; place += 3) {
            Path file = Path.of(given[place + 2]);
            for (int round = 0; round < 2; round++) {
                var body = round == 0 ? HttpRequest.BodyPublishers.ofFile(file)
                    : HttpRequest.BodyPublishers.ofInputStream(() -> { try { return Files.newInputStream(file); } catch (Exception e) { throw new RuntimeException(e); } });
                var request = HttpRequest.newBuilder(URI.create(given[place])).header("Content-Type", given[place + 1]).POST(body).build();
                var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
                System.out.println(answer.statusCode() + " " + answer.version() + " " + answer.body());
            }
        }
    }
}
"""


def test_javas_client_keeps_its_rows(server: Server, tmp_path: Path) -> None:
    """It offers h2c with each request on plain HTTP; so does OpenTelemetry's SDK for Java with the JDK's sender."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("there is no java here")
    (tmp_path / "Send.java").write_text(JAVA)
    rows, spans = tmp_path / "rows", tmp_path / "spans"
    rows.write_bytes(json.dumps([{"id": 10_000 + number} for number in range(5_000)]).encode())
    spans.write_bytes(request_of(span(21, 1)).SerializeToString())
    api, otlp = ports(server)
    sent: list[Any] = [f"http://127.0.0.1:{api}{ROWS}", "application/json", rows]
    sent += [f"http://127.0.0.1:{otlp}/v1/traces", "application/x-protobuf", spans]
    done = subprocess.run(
        [java, tmp_path / "Send.java", *sent], capture_output=True, text=True, timeout=120, check=True
    )
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["200"] * 4, done.stdout
    assert [json.loads(line.split(" ", 2)[2])["rows"] for line in lines[:2]] == [5_000, 5_000]
    assert kept_ids(server) >= set(range(10_000, 15_000))
    assert has_trace(server, 21)
