"""What a server does not take: too much, too slow, half, broken. Always a clear answer, and nothing is kept of it."""

from __future__ import annotations

import gzip
import json
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import crannog
from servers import Server, in_process, serving
from test_server_routes import ARROW, error, stream_of

NAME = "t.limits.rows"
ROWS = f"/api/v1/tables/{NAME}/rows"
SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "f": {"type": "number"}, "s": {"type": "string"}},
    "required": ["id"],
}
LIMIT = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    warehouse = tmp_path_factory.mktemp("limits") / "warehouse"
    with serving(warehouse, http_body_bytes=LIMIT, http_stall_s=1, http_requests=2_000) as running:
        with running.client() as client:
            assert client.put(f"/api/v1/tables/{NAME}", json={"schema": SCHEMA}).status_code == 201
        yield running


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def kept(server: Server) -> int:
    """The rows that are there, read from the files by another process."""
    with crannog.connect(str(server.warehouse)) as lake:
        return lake.table(NAME).count()


def connected(server: Server) -> socket.socket:
    parts = urlsplit(server.url)
    assert parts.hostname
    assert parts.port
    return socket.create_connection((parts.hostname, parts.port), timeout=20)


def answered(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    data = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            data += part
    return data


# -- size ----------------------------------------------------------------------------------------------------------


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(http: httpx.Client, server: Server) -> None:
    assert f"{LIMIT:,} bytes" in error(http.post(ROWS, content=b"[" + b" " * LIMIT + b"]"), 413, "too_large")
    with connected(server) as connection:
        connection.sendall(f"POST {ROWS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n".encode())
        assert b" 413 " in connection.recv(65_536).partition(b"\r\n")[0]


def test_a_body_that_does_not_say_its_size_is_refused_when_it_is_too_large(http: httpx.Client) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * (LIMIT // 32)

    with suppress(httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
        error(http.post(ROWS, content=parts()), 413, "too_large")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_small_body_that_unpacks_to_too_much_is_refused(http: httpx.Client, encoding: str) -> None:
    """A few kilobytes that stand for gigabytes, without the server ever holding them."""
    huge = b" " * (64 << 20)
    packed = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.ZstdCompressor(level=3).compress}[
        encoding
    ](huge)
    assert len(packed) < LIMIT
    assert "the decompressed body" in error(
        http.post(ROWS, content=packed, headers={"Content-Encoding": encoding}), 413, "too_large"
    )


def test_arrow_buffers_that_unpack_to_too_much_are_refused(http: httpx.Client) -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"id": pa.array([0] * 5_000_000, pa.int64())})
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    data = sink.getvalue().to_pybytes()
    assert len(data) < LIMIT
    error(http.post(ROWS, content=data, headers={"Content-Type": ARROW}), 413, "too_large")
    # One long text that every row means.
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), pa.array(["x" * 100_000]))
    meant = stream_of(pa.table({"id": range(10_000), "s": words}))
    error(http.post(ROWS, content=meant, headers={"Content-Type": ARROW}), 413, "too_large")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "raw deflate", "two gzips", "two frames"])
def test_packed_bodies_are_unpacked(http: httpx.Client, server: Server, encoding: str) -> None:
    before = kept(server)
    body = json.dumps([{"id": number} for number in range(1000)]).encode()
    half = len(body) // 2
    raw = zlib.compressobj(wbits=-15)
    zstd = zstandard.ZstdCompressor()
    packed = {
        "gzip": lambda: gzip.compress(body),
        "deflate": lambda: zlib.compress(body),
        "zstd": lambda: zstd.compress(body),
        "raw deflate": lambda: raw.compress(body) + raw.flush(),
        "two gzips": lambda: gzip.compress(body[:half]) + gzip.compress(body[half:]),
        "two frames": lambda: zstd.compress(body[:half]) + zstd.compress(body[half:]),
    }[encoding]()
    word = {"raw deflate": "deflate", "two gzips": "gzip", "two frames": "zstd"}.get(encoding, encoding)
    assert http.post(ROWS, content=packed, headers={"Content-Encoding": word}).json()["rows"] == 1000
    assert kept(server) == before + 1000


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("harm", ["cut", "garbage", "flipped"])
def test_packed_bodies_that_are_broken_are_refused(http: httpx.Client, encoding: str, harm: str) -> None:
    body = json.dumps([{"id": number} for number in range(1000)]).encode()
    compress = {
        "gzip": gzip.compress,
        "deflate": zlib.compress,
        "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    }[encoding]
    packed = bytearray(compress(body))
    if harm == "cut":
        packed = packed[: len(packed) // 2]
    elif harm == "garbage":
        packed = bytearray(b"\x07garbage")
    else:
        packed[-3] ^= 0xFF
    assert f"not valid {encoding}" in error(
        http.post(ROWS, content=bytes(packed), headers={"Content-Encoding": encoding}), 400, "bad_request"
    )


def test_encodings_and_types_that_are_not_known_are_told(http: httpx.Client) -> None:
    assert "gzip, deflate or zstd" in error(
        http.post(ROWS, content=b"[]", headers={"Content-Encoding": "br"}), 415, "unsupported_media"
    )
    error(http.post(ROWS, content=b"[]", headers={"Content-Encoding": "gzip, gzip"}), 415, "unsupported_media")
    assert "text/csv" in error(
        http.post(ROWS, content=b"<a/>", headers={"Content-Type": "text/xml"}), 415, "unsupported_media"
    )


def test_answers_are_packed_where_that_pays(server: Server) -> None:
    for encoding, unpack in (
        ("gzip", gzip.decompress),
        ("zstd", lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data)),
    ):
        with (
            server.client() as client,
            client.stream("GET", "/api/openapi.json", headers={"Accept-Encoding": encoding}) as answer,
        ):
            assert answer.headers["content-encoding"] == encoding
            assert json.loads(unpack(b"".join(answer.iter_raw())))["openapi"].startswith("3.")
    with server.client() as client:
        assert "content-encoding" not in client.get("/healthz").headers
        assert (
            "content-encoding" not in client.get("/api/openapi.json", headers={"Accept-Encoding": "identity"}).headers
        )


# -- broken --------------------------------------------------------------------------------------------------------

BROKEN: list[tuple[str, bytes, int]] = [
    ("application/json", b"[{", 400),
    ("application/json", b"\xff\xfe", 400),
    ("application/json", b'[{"id": 1, "id": 2}]', 400),
    ("application/json", b'{"id": 1, "id": 2}', 400),
    ("application/json", b'[{"id": 1, "f": NaN}]', 400),
    ("application/json", b'[{"id": 1, "f": -Infinity}]', 400),
    ("application/json", b"[" * 100_000 + b"]" * 100_000, 400),
    ("application/json", b'[{"id": ' + b"[" * 5_000 + b"]" * 5_000 + b"}]", 400),
    ("application/json", b'[{"id": ' + b"9" * 5_000 + b"}]", 400),
    ("application/json", b'[{"id": "x"}]', 422),
    ("application/json", b'[{"id": 1.5}]', 422),
    ("application/json", b'[{"id": 18446744073709551616}]', 422),
    ("application/json", b'[{"f": 1}]', 422),
    ("application/json", b'[{"id": 1, "z": 1}]', 412),
    ("application/json", b'[1, "two", null]', 422),
    ("application/json", b'"text"', 422),
    ("application/json", b"7", 422),
    ("application/json", b"null", 422),
    ("application/x-ndjson", b'{"id": 1}\n{"id": ', 400),
    ("application/x-ndjson", b'{"id": 1, "id": 2}\n', 400),
    ("application/x-ndjson", b'{"id": 1, "f": NaN}\n', 400),
    ("application/x-ndjson", b'{"id": "x"}\n', 422),
    ("application/x-ndjson", b"\x00\x01", 400),
    ("text/csv", b"", 400),
    ("text/csv", b"id\n1,2\n", 400),
    ("text/csv", b"id\nx\n", 422),
    ("text/csv", b"id,id\n1,2\n", 412),
    ("text/csv", b"nothing\n1\n", 412),
    ("text/csv", b"id\n\xff\n", 400),
    ("text/csv", b"\x80\n1\n", 400),
    (ARROW, b"", 400),
    (ARROW, b"not arrow", 400),
    (ARROW, b"\xff\xff\xff\xff\xff\xff\xff\x7f", 400),
    (ARROW, stream_of(pa.table({"id": [1, 2]}))[:-40], 400),
    (ARROW, stream_of(pa.table({"id": ["a"]})), 412),
    (ARROW, stream_of(pa.table({"z": [1]})), 412),
    (ARROW, stream_of(pa.table({"id": [None]})), 422),
]


@pytest.mark.parametrize(
    ("media", "body", "status"),
    BROKEN,
    ids=[f"{media.rpartition('/')[2][:8]}-{number}" for number, (media, _, _) in enumerate(BROKEN)],
)
def test_broken_bodies_are_told_so_and_nothing_is_kept(
    http: httpx.Client, server: Server, media: str, body: bytes, status: int
) -> None:
    before = http.get(f"/api/v1/tables/{NAME}/count").json()
    refused = http.post(ROWS, content=body, headers={"Content-Type": media})
    assert refused.status_code in (status, 412, 422) if status >= 412 else refused.status_code == status, refused.text
    assert set(refused.json()["error"]) == {"code", "message", "retry_after_s"}
    assert refused.json()["error"]["message"]
    assert http.get(f"/api/v1/tables/{NAME}/count").json() == before


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    media=st.sampled_from(["application/json", "application/x-ndjson", "text/csv", ARROW]),
    body=st.binary(max_size=200),
    valid=st.booleans(),
    seed=st.randoms(use_true_random=False),
)
def test_no_bytes_are_a_failure_of_the_server(any_app: Any, media: str, body: bytes, valid: bool, seed: Any) -> None:
    """Random bytes, and right ones with a few bytes changed: kept, or refused; never a 5xx."""
    if valid:
        rows = [{"id": 1, "s": "a", "f": 0.5}, {"id": 2, "s": None, "f": None}]
        right = {
            "application/json": json.dumps(rows).encode(),
            "application/x-ndjson": "\n".join(map(json.dumps, rows)).encode(),
            "text/csv": b"id,s,f\n1,a,0.5\n2,,\n",
            ARROW: stream_of(pa.Table.from_pylist(rows)),
        }[media]
        changed = bytearray(right)
        for _ in range(seed.randint(1, 3)):
            changed[seed.randrange(len(changed))] = seed.randrange(256)
        body = bytes(changed)
    answer = any_app("POST", ROWS, content=body, headers={"Content-Type": media})
    assert answer.status_code < 500, answer.text
    assert answer.status_code == 200 or set(answer.json()["error"]) == {"code", "message", "retry_after_s"}


@pytest.fixture(scope="module")
def any_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with in_process(tmp_path_factory.mktemp("any")) as (_, ask):
        assert ask("PUT", f"/api/v1/tables/{NAME}", json={"schema": SCHEMA}).status_code == 201
        yield ask


# -- slow and gone -------------------------------------------------------------------------------------------------


def test_a_client_that_stalls_in_a_body_is_told_and_nothing_is_kept(server: Server) -> None:
    before = kept(server)
    with connected(server) as connection:
        connection.sendall(
            f'POST {ROWS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n[{{"id": 1}}, '.encode()
        )
        said = b""
        while b"timed_out" not in said and (part := connection.recv(65_536)):
            said += part
    assert b" 408 " in said.partition(b"\r\n")[0]
    assert b"timed_out" in said
    assert kept(server) == before


def test_a_client_that_sends_no_head_is_cut_off(server: Server) -> None:
    with connected(server) as silent, connected(server) as slow:
        slow.sendall(b"GET /healthz HT")
        began = time.monotonic()
        assert answered(silent) == b""
        answered(slow)
        assert time.monotonic() - began < 15


def test_a_head_without_end_is_cut_off_and_what_is_no_http_is_told(server: Server) -> None:
    with connected(server) as endless:
        endless.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises(OSError):
            for _ in range(10_000):
                endless.sendall(b"X-More: " + b"x" * 65_536 + b"\r\n")
    for nonsense in (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET /caf\xe9 HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        with connected(server) as connection:
            connection.sendall(nonsense)
            head, _, body = answered(connection).partition(b"\r\n\r\n")
            assert b" 400 " in head.partition(b"\r\n")[0]
            assert set(json.loads(body)["error"]) == {"code", "message", "retry_after_s"}
    with connected(server) as twice:
        # The second request of a connection has the same time for its head as the first.
        twice.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in twice.recv(100)
        twice.sendall(b"GET /healthz HT")
        assert b"HTTP/1.1 200" not in answered(twice)


def test_a_client_that_does_not_read_its_answer_is_cut_off(server: Server) -> None:
    """Its thread and its query are free again."""
    with server.client() as client:
        name = "t.limits.wide"
        client.put(f"/api/v1/tables/{name}", json={"schema": SCHEMA})
        rows = stream_of(pa.table({"id": range(5_000), "s": ["x" * 150] * 5_000}))
        for _ in range(40):
            assert (
                client.post(f"/api/v1/tables/{name}/rows", content=rows, headers={"Content-Type": ARROW}).status_code
                == 200
            )
    with connected(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = json.dumps({"sql": f"SELECT * FROM {name}", "query_id": "unread"}).encode()
        connection.sendall(
            b"POST /api/v1/sql/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % len(body)
            + body
        )
        assert b" 200 " in connection.recv(100)
        with server.client() as client:
            for _ in range(150):
                again = client.post("/api/v1/sql", json={"sql": "SELECT 1", "query_id": "unread"})
                if again.status_code == 200:
                    break
                assert again.status_code == 409
                time.sleep(0.1)
            assert again.status_code == 200


@pytest.mark.parametrize("how", ["closed", "reset"])
def test_an_upload_that_breaks_off_leaves_nothing(server: Server, how: str) -> None:
    before = kept(server)
    with connected(server) as connection:
        connection.sendall(
            f'POST {ROWS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nContent-Length: 1000\r\n\r\n{{"id": 1}}\n{{"id": 2}}\n'.encode()
        )
        if how == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    time.sleep(0.2)
    assert kept(server) == before


# -- how many ------------------------------------------------------------------------------------------------------


def test_more_requests_than_may_be_served_are_told_to_wait(tmp_path: Path) -> None:
    with in_process(tmp_path, http_requests=1) as (service, ask):
        service.requests = 1
        refused = ask("GET", "/api/v1/tables")
        assert "being served" in error(refused, 429, "overloaded")
        assert refused.headers["retry-after"] == "1"
        service.requests = 0
        assert ask("GET", "/api/v1/tables").status_code == 200


def test_more_bytes_of_bodies_than_may_be_held_are_told_to_wait(tmp_path: Path) -> None:
    with in_process(tmp_path, http_bodies_bytes=2048) as (service, ask):
        ask("PUT", f"/api/v1/tables/{NAME}", json={"schema": SCHEMA})
        service.bodies.held = 2000
        assert "bodies of" in error(
            ask("POST", ROWS, json=[{"id": number} for number in range(100)]), 429, "overloaded"
        )
        assert service.bodies.held == 2000
        service.bodies.held = 0
        assert ask("POST", ROWS, json=[{"id": 1}]).status_code == 200
        assert service.bodies.held == 0


def test_work_that_takes_too_long_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_process(tmp_path, http_request_s=0.3) as (service, ask):
        monkeypatch.setattr(service.lake.operations.tables, "names", lambda: time.sleep(1))
        error(ask("GET", "/api/v1/tables"), 408, "timed_out")


def test_what_is_nested_too_deeply_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the recursion ends, the request is to blame, not the server."""

    def endless(*arguments: Any, **named: Any) -> Any:
        return endless(*arguments, **named)

    with in_process(tmp_path, java_home=str(tmp_path)) as (service, ask):
        ask("PUT", f"/api/v1/tables/{NAME}", json={"schema": SCHEMA})
        shapes = {
            "SELECT * FROM ({}) AS t": f"SELECT * FROM {NAME}",
            "SELECT ({})": "SELECT 1",
            f"SELECT id FROM {NAME} WHERE EXISTS ({{}})": "SELECT 1",
        }
        for outer, inner in shapes.items():
            statement = inner
            for depth in range(1, 131):
                statement = outer.format(statement)
                if depth in (20, 119, 130):
                    for path in ("/api/v1/sql", "/api/v1/sql/explain"):
                        answered = ask("POST", path, json={"sql": statement})
                        assert answered.status_code == 200 or "nested" in error(answered, 400, "refused"), (
                            depth,
                            outer,
                        )
        monkeypatch.setattr(service.lake.operations, "sql", endless)
        assert "nested too deeply" in error(ask("POST", "/api/v1/sql", json={"sql": "SELECT 1"}), 400, "refused")
        monkeypatch.setattr(service.lake.operations.tables, "names", endless)
        assert "nested too deeply" in error(ask("GET", "/api/v1/tables"), 400, "refused")


def test_a_failure_nobody_thought_of_shows_no_more_than_a_request_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with in_process(tmp_path) as (service, ask):
        monkeypatch.setattr(service.lake.operations.tables, "names", lambda: 1 / 0)
        message = error(ask("GET", "/api/v1/tables", headers={"X-Request-Id": "r-1"}), 500, "error")
    assert "r-1" in message
    assert "division" not in message
    assert "ZeroDivisionError" in caplog.text


def test_rows_and_previews_keep_to_the_limit_of_a_result(tmp_path: Path) -> None:
    with in_process(tmp_path, sql_rows_ceiling=50, sql_result_bytes=100_000) as (_, ask):
        ask("PUT", f"/api/v1/tables/{NAME}", json={"schema": SCHEMA})
        ask("POST", ROWS, json=[{"id": number} for number in range(60)])
        for path in (ROWS, f"{ROWS}?order=id", f"{ROWS}?limit=55", f"/api/v1/tables/{NAME}/preview?n=55"):
            assert "more than 50 rows" in error(ask("GET", path), 413, "too_large")
        assert len(ask("GET", f"/api/v1/tables/{NAME}/preview?n=50").json()) == 50
        assert len(ask("GET", f"{ROWS}?limit=49").json()) == 49
        ask("POST", ROWS, json=[{"id": 1_000 + number, "s": "x" * 10_000} for number in range(20)])
        assert "100,000 bytes" in error(ask("GET", f"{ROWS}?order=-id&limit=30"), 413, "too_large")
