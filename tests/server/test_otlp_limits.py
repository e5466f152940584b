"""OTLP has the limits, deadlines and counts of all other requests, and spends no memory on strangers."""

from __future__ import annotations

import gzip
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zstandard

from crannog.server.auth import Tokens
from crannog.server.otlp import http2_frames as h2
from crannog.server.otlp.http2 import Connection, Stream
from crannog.server.otlp.http2_frames import Http2Error
from doors import Doors, receiving
from grpc_wire import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    HEADERS,
    PREFACE,
    SETTINGS,
    Wire,
    connected,
    data,
    frame,
    message,
)
from otlp_samples import request_of, span

UNAVAILABLE, UNAUTHENTICATED, DEADLINE_EXCEEDED = 14, 16, 4
RESOURCE_EXHAUSTED = 8


def body_of(number: int) -> bytes:
    return request_of(span(number, 1, name="sent")).SerializeToString()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """Receivers that want a token."""
    with receiving(tmp_path_factory.mktemp("closed"), http_stall_s=1.0) as doors:
        Tokens(doors.lake.operations.warehouse.storage).create("sender", ["write"])
        doors.service.tokens._read_at = float("-inf")
        yield doors


def started(wire: Wire, body: bytes = b"", **headers: str) -> int:
    """Begin a call, and send a part of its body."""
    stream = wire.stream()
    wire.sock.sendall(frame(HEADERS, END_HEADERS, stream, wire.head(**headers)))
    for at in range(0, len(body), 16_384):
        wire.sock.sendall(frame(DATA, 0, stream, body[at : at + 16_384]))
    return stream


@pytest.mark.parametrize("is_stale", [True, False])
def test_a_caller_without_a_token_is_refused_before_its_body_is_read(closed: Doors, is_stale: bool) -> None:
    closed.service.tokens.refresh()
    if is_stale:
        closed.service.tokens._read_at = float("-inf")
    with connected(closed.grpc_address) as wire:
        stream = started(wire, b"\0" + (50 << 20).to_bytes(4) + b"x" * 1_000)
        assert wire.answer(stream).status == UNAUTHENTICATED
    assert (closed.service.bodies.held, closed.service.requests) == (0, 0)
    address = closed.address.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=20) as sock:
        sock.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
            b"Content-Length: 50000000\r\n\r\n"
        )
        assert b" 401 " in sock.recv(1_000).partition(b"\r\n")[0]
    assert closed.service.bodies.held == 0


def test_bodies_wait_in_little_memory_while_the_tokens_are_read(closed: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    ends, reads = threading.Event(), closed.service.tokens.refresh
    monkeypatch.setattr(closed.service.tokens, "refresh", lambda: (ends.wait(20), reads()))
    closed.service.tokens._read_at = float("-inf")
    try:
        with connected(closed.grpc_address) as wire:
            streams = [started(wire, b"\0" + (1 << 20).to_bytes(4) + b"x" * 900_000) for _ in range(45)]
            read_all(wire)
            refused = [stream for stream in streams if stream in wire.answers and wire.answers[stream].ended]
            assert refused
            assert {wire.answers[stream].status for stream in refused} == {UNAVAILABLE}
            assert closed.service.bodies.held < 40 << 20
            ends.set()
            waiting = next(stream for stream in streams if stream not in refused)
            assert wire.answer(waiting).status == UNAUTHENTICATED
    finally:
        ends.set()


def read_all(wire: Wire) -> None:
    """Take what the server has sent."""
    wire.sock.settimeout(0.2)
    with suppress(TimeoutError):
        while wire.read():
            pass
    wire.sock.settimeout(20)


def test_calls_over_grpc_count_among_all_requests_and_bodies(tmp_path: Path) -> None:
    with receiving(tmp_path, http_requests=10, http_bodies_bytes=1 << 20) as doors:
        with connected(doors.grpc_address) as wire:
            started(wire, b"\0" + (900_000).to_bytes(4) + b"x" * 500_000)
            _until(lambda: doors.service.bodies.held == 500_005)
            assert doors.service.requests == 1
            assert doors.post(b"x" * 600_000).status_code == 429
            assert wire.call(message(b"x" * 600_000, packed=False)).status == UNAVAILABLE
            # What it unpacks to counts.
            packed = gzip.compress(b"\n\x00" * 400_000)
            assert wire.call(message(packed, packed=True), grpc_encoding="gzip").status == UNAVAILABLE
        _until(lambda: doors.service.bodies.held == doors.service.requests == 0)
        doors.service.requests = 10
        with connected(doors.grpc_address) as wire:
            assert wire.call(message(body_of(1), packed=False)).status == UNAVAILABLE
        doors.service.requests = 0
        doors.call(body_of(2))
        assert b'route="/opentelemetry.proto.collector.trace.v1.TraceService/Export",status="200"' in (
            doors.service.metrics.page()
        )


def _until(holds: Any) -> None:
    ends = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_a_message_that_unpacks_to_too_much_is_refused(closed: Doors, tmp_path: Path, packing: str) -> None:
    huge = bytes(80 << 20)
    packed = gzip.compress(huge, 1) if packing == "gzip" else zstandard.ZstdCompressor().compress(huge)
    with receiving(tmp_path) as doors:
        assert doors.post(packed, content_encoding=packing).status_code == 413
        with connected(doors.grpc_address) as wire:
            assert wire.call(message(packed, packed=True), grpc_encoding=packing).status == RESOURCE_EXHAUSTED
        assert doors.service.bodies.held == 0


# -- deadlines -----------------------------------------------------------------------------------------------------


def test_who_trickles_is_cut_off(tmp_path: Path) -> None:
    """A call has the time of a request; a preface, a block of headers and an idle connection have theirs."""
    with receiving(tmp_path, http_stall_s=0.4, http_request_s=1.2, http_keep_alive_s=1) as doors:
        host, port = doors.grpc_address.split(":")
        ended: dict[str, float] = {}
        began = time.monotonic()

        def trickle(what: str, first: bytes, part: bytes) -> None:
            with socket.create_connection((host, int(port)), timeout=20) as sock, suppress(OSError):
                sock.sendall(first)
                while time.monotonic() - began < 10:
                    sock.sendall(part)
                    time.sleep(0.1)
                    sock.settimeout(0.001)
                    with suppress(TimeoutError):
                        if sock.recv(1_000) == b"":
                            break
            ended[what] = time.monotonic() - began

        greeting = PREFACE + frame(SETTINGS, 0, 0)
        threads = [
            threading.Thread(target=trickle, args=given)
            for given in (
                ("preface", b"", PREFACE[:1]),
                ("headers", greeting + frame(HEADERS, 0, 1, b""), frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b")),
                ("idle", greeting, frame(6, 0, 0, b"12345678")),
            )
        ]
        for thread in threads:
            thread.start()
        with connected(doors.grpc_address) as wire:
            stream = started(wire, b"\0" + (10_000).to_bytes(4))
            while not (wire.answers.get(stream) and wire.answers[stream].ended) and time.monotonic() - began < 10:
                wire.sock.sendall(frame(DATA, 0, stream, b"x"))
                time.sleep(0.05)
                wire.sock.settimeout(0.01)
                with suppress(TimeoutError):
                    wire.read()
            assert wire.answers[stream].status == DEADLINE_EXCEEDED
            assert time.monotonic() - began < 4
        for thread in threads:
            thread.join()
        assert all(seconds < 4 for seconds in ended.values()), ended


# -- frames without requests ---------------------------------------------------------------------------------------


class Handler:
    """Answers nothing, or at once."""

    connection: Connection

    def request_started(self, stream: Stream, headers: Any) -> None:
        pass

    def body_received(self, stream: Stream) -> None:
        pass

    def request_ended(self, stream: Stream) -> None:
        self.connection.respond(stream, b"\x88", b"message", b"\x88")

    def stream_closed(self, stream: Stream) -> None:
        pass


def with_streams(count: int, window: int) -> Connection:
    """A connection of a client that reads no responses."""
    handler = Handler()
    handler.connection = connection = Connection(handler)
    connection.receive(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HL", h2.INITIAL_WINDOW_SIZE, window)))
    head = h2.header_block([(":method", "POST"), (":scheme", "http"), (":path", "/")])
    for number in range(count):
        connection.receive(frame(HEADERS, END_HEADERS, 2 * number + 1, head) + data(2 * number + 1, b"x"))
    return connection


@pytest.mark.parametrize(
    "flood",
    [
        frame(SETTINGS, 0, 0, struct.pack(">HL", h2.INITIAL_WINDOW_SIZE, 0)),
        frame(SETTINGS, 0, 0, struct.pack(">HL", h2.INITIAL_WINDOW_SIZE, 0) * 2_700),
        frame(8, 0, 0, (1).to_bytes(4)),
        frame(6, 0, 0, b"12345678"),
        frame(2, 0, 1, struct.pack(">LB", 0, 1)),
        frame(DATA, 0, 1, b""),
        frame(99, 0, 1, b""),
    ],
    ids=["settings", "many settings", "window", "ping", "priority", "empty data", "unknown"],
)
def test_frames_without_requests_end_the_connection_before_they_take_long(flood: bytes) -> None:
    connection = with_streams(900, 0)
    began = time.process_time()
    with pytest.raises(Http2Error) as ended:
        for _ in range(200_000):
            connection.receive(flood)
            connection.outgoing.clear()
    assert ended.value.code == h2.ENHANCE_YOUR_CALM
    assert time.process_time() - began < 2


def test_responses_that_a_client_does_not_allow_are_given_up() -> None:
    connection = with_streams(3, 0)
    assert len(connection.streams) == 3
    connection.reset_unread()
    assert len(connection.streams) == 3
    connection.reset_unread()
    assert not connection.streams
