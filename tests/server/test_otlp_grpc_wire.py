"""OTLP over gRPC byte by byte: what is packed in any way, what no library would send, and what would wear a server out."""

from __future__ import annotations

import gzip
import random
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import zstandard
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from crannog.errors import NotFound
from doors import Doors, receiving
from grpc_wire import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    connected,
    data,
    frame,
    message,
)
from otlp_samples import request_of, span, trace_id

OK, INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, UNAVAILABLE = 0, 3, 4, 8, 12, 14
PROTOCOL_ERROR, FRAME_SIZE_ERROR, ENHANCE_YOUR_CALM = 1, 6, 11
LIMIT = 1 << 20


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with receiving(tmp_path_factory.mktemp("wire"), otlp_request_bytes=LIMIT, http_stall_s=1.0) as doors:
        yield doors


def body_of(number: int, **more: Any) -> bytes:
    return request_of(span(number, 1, name="sent", **more)).SerializeToString()


def wait_until(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.01)


def kept(doors: Doors, number: int) -> bool:
    try:
        return bool(doors.lake.traces.get(trace_id(number).hex()).spans)
    except NotFound:
        return False


# -- how it is packed ----------------------------------------------------------------------------------------------

PACKED: dict[str, Callable[[bytes], bytes]] = {
    "identity": lambda body: body,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": lambda body: zstandard.ZstdCompressor().compress(body),
}


@pytest.mark.parametrize("encoding", list(PACKED))
def test_spans_are_kept_however_they_are_packed(doors: Doors, encoding: str) -> None:
    number = 1_000 + len(encoding)
    with connected(doors.grpc_address) as wire:
        answer = wire.call(
            message(PACKED[encoding](body_of(number)), packed=encoding != "identity"), grpc_encoding=encoding
        )
        assert (answer.status, answer.body) == (OK, message(b"", packed=False))
        assert "zstd" in answer.headers["grpc-accept-encoding"].split(",")
        # A client that packs may leave a small message as it is.
        assert wire.call(message(body_of(number + 10), packed=False), grpc_encoding=encoding).status == OK
    assert kept(doors, number)
    assert kept(doors, number + 10)


def test_zstd_as_a_stream_writes_it_is_read(doors: Doors) -> None:
    packer = (
        zstandard.ZstdCompressor().compressobj()
    )  # no size in the frame's head, as Go's and Rust's packers write it
    body = body_of(1_100, attributes={"long": "x" * 300_000})
    with connected(doors.grpc_address) as wire:
        assert (
            wire.call(message(packer.compress(body) + packer.flush(), packed=True), grpc_encoding="zstd").status == OK
        )
    assert kept(doors, 1_100)


@pytest.mark.parametrize("encoding", ["snappy", "foo", "br", "%0a", "x" * 5_000])
def test_an_unknown_encoding_is_unimplemented_and_says_which_are_known(doors: Doors, encoding: str) -> None:
    with connected(doors.grpc_address) as wire:
        answer = wire.call(message(b"packed somehow", packed=True), grpc_encoding=encoding)
        assert answer.status == UNIMPLEMENTED
        assert answer.headers["grpc-accept-encoding"] == "identity,deflate,gzip,zstd"
        assert "identity, deflate, gzip, zstd" in answer.headers["grpc-message"]
        # The client falls back, on the same connection.
        assert wire.call(message(body_of(1_200), packed=False)).status == OK


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_what_is_packed_badly_or_to_no_end_is_refused(doors: Doors, encoding: str) -> None:
    bomb = PACKED[encoding](b"\x00" * (LIMIT + 1))
    with connected(doors.grpc_address) as wire:
        assert wire.call(message(b"no such thing", packed=True), grpc_encoding=encoding).status == INVALID_ARGUMENT
        assert (
            wire.call(message(PACKED[encoding](body_of(1_300))[:-3], packed=True), grpc_encoding=encoding).status
            == INVALID_ARGUMENT
        )
        assert wire.call(message(bomb, packed=True), grpc_encoding=encoding).status == RESOURCE_EXHAUSTED
    assert not kept(doors, 1_300)


# -- messages ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00\x00",
        message(b"abc", packed=False)[:-1],
        message(b"", packed=False) * 2,
        message(b"", packed=True),
        b"\x07\0\0\0\0",
    ],
    ids=["none", "half a prefix", "cut", "two", "packed and not", "unknown flag"],
)
def test_a_call_without_exactly_one_message_is_refused(doors: Doors, payload: bytes) -> None:
    with connected(doors.grpc_address) as wire:
        answer = wire.call(payload)
        assert answer.status == INVALID_ARGUMENT
        assert "nothing was kept" in answer.headers["grpc-message"]


def test_a_message_is_too_large_as_soon_as_it_says_so(doors: Doors) -> None:
    with connected(doors.grpc_address) as wire:
        stream = wire.stream()
        wire.sock.sendall(
            frame(HEADERS, END_HEADERS, stream, wire.head()) + frame(DATA, 0, stream, b"\0" + (LIMIT + 1).to_bytes(4))
        )
        assert wire.answer(stream).status == RESOURCE_EXHAUSTED
        # What was on its way disturbs nobody.
        wire.sock.sendall(frame(DATA, END_STREAM, stream, b"more"))
        assert wire.call(message(body_of(1_400), packed=False)).status == OK


def test_other_methods_and_types_are_told(doors: Doors) -> None:
    with connected(doors.grpc_address) as wire:
        answer = wire.call(message(b"", packed=False), path="/opentelemetry.proto.collector.logs.v1.LogsService/Export")
        assert answer.status == UNIMPLEMENTED
        assert "TraceService/Export" in answer.headers["grpc-message"]
        assert wire.call(b"{}", content_type="application/json").headers[":status"] == "415"
        assert wire.call(message(body_of(1_450), packed=False), content_type="application/grpc+proto").status == OK


def test_rejected_spans_come_back_in_the_answer(doors: Doors) -> None:
    bad = span(1_500, 2)
    bad.span_id = b"short"
    with connected(doors.grpc_address) as wire:
        answer = wire.call(message(request_of(span(1_500, 1), bad).SerializeToString(), packed=False))
    assert ExportTraceServiceResponse.FromString(answer.body[5:]).partial_success.rejected_spans == 1


# -- frames --------------------------------------------------------------------------------------------------------


def test_a_call_may_come_byte_by_byte_padded_and_in_pieces(doors: Doors) -> None:
    with connected(doors.grpc_address) as wire:
        stream, head, body = wire.stream(), wire.head(), message(body_of(1_600), packed=False)
        sent = (
            frame(HEADERS, 0, stream, head[:7])
            + frame(CONTINUATION, 0, stream, head[7:9])
            + frame(CONTINUATION, END_HEADERS, stream, head[9:])
        )
        sent += (
            frame(DATA, PADDED, stream, b"\x03" + body[:4] + b"\0\0\0")
            + frame(DATA, 0, stream)
            + frame(0x7E, 0xFF, 0, b"unknown")
        )
        sent += frame(DATA, 0, stream, body[4:]) + frame(DATA, END_STREAM, stream)
        for byte in sent:
            wire.sock.sendall(bytes([byte]))
        assert wire.answer(stream).status == OK
    assert kept(doors, 1_600)


def test_calls_may_be_interleaved(doors: Doors) -> None:
    with connected(doors.grpc_address) as wire:
        streams = {wire.stream(): message(body_of(number), packed=False) for number in range(1_700, 1_720)}
        for stream in streams:
            wire.sock.sendall(frame(HEADERS, END_HEADERS, stream, wire.head()))
        for stream, body in streams.items():
            wire.sock.sendall(frame(DATA, 0, stream, body[:50]))
        for stream, body in reversed(streams.items()):
            wire.sock.sendall(frame(DATA, END_STREAM, stream, body[50:]))
        assert {wire.answer(stream).status for stream in streams} == {OK}
    assert all(kept(doors, number) for number in range(1_700, 1_720))


def test_an_answer_waits_for_the_clients_window(doors: Doors) -> None:
    with connected(doors.grpc_address, settings=struct.pack(">HL", 4, 0)) as wire:
        stream = wire.stream()
        wire.sock.sendall(
            frame(HEADERS, END_HEADERS, stream, wire.head()) + data(stream, message(body_of(1_800), packed=False))
        )
        wire.sock.sendall(frame(PING, 0, 0, b"are you "))
        while not wire.pongs or stream not in wire.answers:
            wire.read()
        assert wire.answers[stream].body == b""
        wire.sock.sendall(
            frame(WINDOW_UPDATE, 0, stream, (3).to_bytes(4)) + frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 2))
        )
        assert (wire.answer(stream).status, wire.answer(stream).body) == (OK, message(b"", packed=False))


def test_a_body_of_another_size_than_announced_is_not_kept(doors: Doors) -> None:
    body = message(body_of(1_900), packed=False)
    with connected(doors.grpc_address) as wire:
        assert wire.call(body, content_length=str(len(body) + 1)).reset == PROTOCOL_ERROR
        assert not kept(doors, 1_900)
        assert wire.call(body, content_length=str(len(body))).status == OK


def test_a_malformed_head_ends_its_stream_alone(doors: Doors) -> None:
    body = message(body_of(1_950), packed=False)
    with connected(doors.grpc_address) as wire:
        assert wire.call(body, connection="close").reset == PROTOCOL_ERROR
        assert wire.call(body, content_length="many").reset == PROTOCOL_ERROR
        assert not kept(doors, 1_950)
        assert wire.call(body, x_note=" spaces around it ").status == OK  # as gRPC's C library lets them through


def test_a_client_that_opens_no_more_streams_gets_its_answers(doors: Doors) -> None:
    body = message(body_of(1_960), packed=False)
    with connected(doors.grpc_address) as wire:
        stream = wire.stream()
        wire.sock.sendall(frame(HEADERS, END_HEADERS, stream, wire.head()) + frame(DATA, 0, stream, body[:9]))
        goaway = frame(GOAWAY, 0, 0, struct.pack(">LL", 0, 0) + b"bye")
        for part in (goaway[:5], goaway[5:12], goaway[12:], data(stream, body[9:])):
            wire.sock.sendall(part)
        assert wire.answer(stream).status == OK
        wire.sock.sendall(frame(GOAWAY, 0, stream, bytes(8)))
        assert wire.until_closed() == PROTOCOL_ERROR
    assert kept(doors, 1_960)


def test_a_client_that_stops_in_the_middle_is_told_so(doors: Doors) -> None:
    with connected(doors.grpc_address) as wire, connected(doors.grpc_address) as silent:
        stream = wire.stream()
        wire.sock.sendall(frame(HEADERS, END_HEADERS, stream, wire.head()) + frame(DATA, 0, stream, b"\0"))
        assert wire.answer(stream).status == DEADLINE_EXCEEDED
        # Who only holds a connection may do so.
        assert silent.call(message(body_of(2_000), packed=False)).status == OK
    host, port = doors.grpc_address.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as mute:
        while mute.recv(1_000):
            pass


def test_http_1_is_told_where_it_belongs(doors: Doors) -> None:
    host, port = doors.grpc_address.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        sock.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b"".join(iter(lambda: sock.recv(1_000), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"OTLP over HTTP is on port" in answer


# -- what would wear a server out ----------------------------------------------------------------------------------


def test_streams_that_are_opened_only_to_be_reset_end_the_connection(doors: Doors) -> None:
    with connected(doors.grpc_address) as wire:
        for _ in range(2_000):
            stream = wire.stream()
            try:
                wire.sock.sendall(
                    frame(HEADERS, END_HEADERS, stream, wire.head()) + frame(RST_STREAM, 0, stream, (8).to_bytes(4))
                )
            except OSError:
                break
        assert wire.until_closed() in (ENHANCE_YOUR_CALM, None)  # None: the reset overtook it
    assert doors.call(body_of(2_100)) is not None
    # What such a client opened counts no longer, or calls of others would be refused one day.
    wait_until(lambda: not doors.receivers._grpc._state.calls)


@pytest.mark.parametrize("piece", [b"", b"\x00\x01a\x01b" * 500], ids=["empty", "long"])
def test_a_header_block_without_end_ends_the_connection(doors: Doors, piece: bytes) -> None:
    with connected(doors.grpc_address) as wire:
        wire.sock.sendall(frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1, piece) * 60)
        assert wire.until_closed() == ENHANCE_YOUR_CALM


def test_a_frame_that_is_too_long_ends_the_connection(doors: Doors) -> None:
    with connected(doors.grpc_address) as wire:
        wire.sock.sendall((16_385).to_bytes(3) + bytes([DATA, 0, 0, 0, 0, 1]))
        assert wire.until_closed() == FRAME_SIZE_ERROR


def test_who_takes_no_answers_is_cut_off(doors: Doors) -> None:
    with connected(doors.grpc_address) as wire:
        pings = frame(PING, 0, 0, b"12345678") * 10_000
        with pytest.raises(OSError):
            for _ in range(1_000):
                wire.sock.sendall(pings)


def test_more_calls_than_are_served_at_once_are_told_to_come_back(tmp_path: Path) -> None:
    with receiving(tmp_path, http_requests=2) as small, connected(small.grpc_address) as wire:
        streams = [wire.stream() for _ in range(4)]
        for stream in streams:
            wire.sock.sendall(frame(HEADERS, END_HEADERS, stream, wire.head()))
        assert [wire.answer(stream).status for stream in streams[2:]] == [UNAVAILABLE, UNAVAILABLE]
        for number, stream in enumerate(streams[:2]):
            wire.sock.sendall(data(stream, message(body_of(number), packed=False)))
        assert [wire.answer(stream).status for stream in streams[:2]] == [OK, OK]
        assert wire.call(message(body_of(3), packed=False)).status == OK  # there is room again


def test_calls_that_nobody_waits_for_count_until_they_are_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    with receiving(tmp_path, http_requests=2) as small, connected(small.grpc_address) as wire:
        write = small.lake.trace_store.write

        def slow(*arguments: Any, **named: Any) -> Any:
            assert go_on.wait(20)
            return write(*arguments, **named)

        monkeypatch.setattr(small.service.lake.trace_store, "write", slow)
        for number in range(2):
            stream = wire.stream()
            wire.sock.sendall(
                frame(HEADERS, END_HEADERS, stream, wire.head()) + data(stream, message(body_of(number), packed=False))
            )
            wire.sock.sendall(frame(RST_STREAM, 0, stream, (8).to_bytes(4)))
        assert wire.call(message(body_of(2), packed=False)).status == UNAVAILABLE
        go_on.set()
        while wire.call(message(body_of(2), packed=False)).status != OK:
            pass
        # There was room as soon as one of the two was over; the other may still be written.
        wait_until(lambda: all(kept(small, number) for number in range(3)))


def test_noise_harms_nobody(doors: Doors) -> None:
    def noise(seed: int) -> None:
        rng = random.Random(seed)
        with connected(doors.grpc_address) as wire:
            good = frame(HEADERS, END_HEADERS, 1, wire.head()) + data(1, message(body_of(1), packed=False))
            for _ in range(20):
                kind, stream = rng.randrange(11), rng.choice((0, 1, 1, 3, 2, 2**31 - 1))
                good += frame(kind, rng.randrange(256), stream, rng.randbytes(rng.choice((0, 4, 5, 6, 8, 100))))
            spoilt = bytearray(good)
            for _ in range(rng.choice((0, 1, 5))):
                spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
            try:
                wire.sock.sendall(bytes(spoilt))
                wire.sock.shutdown(socket.SHUT_WR)
            except OSError:
                return
            while wire.sock.recv(1 << 16):
                pass

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(noise, range(300)))
    assert not doors.call(body_of(2_200)).HasField("partial_success")
    assert kept(doors, 2_200)


# -- the end -------------------------------------------------------------------------------------------------------


def test_a_server_that_stops_answers_what_it_took_and_takes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, go_on = threading.Event(), threading.Event()
    with receiving(tmp_path) as doors:
        write = doors.lake.trace_store.write

        def slow(*arguments: Any, **named: Any) -> Any:
            held.set()
            assert go_on.wait(20)
            return write(*arguments, **named)

        monkeypatch.setattr(doors.service.lake.trace_store, "write", slow)
        with connected(doors.grpc_address) as wire:
            stream = wire.stream()
            wire.sock.sendall(
                frame(HEADERS, END_HEADERS, stream, wire.head()) + data(stream, message(body_of(1), packed=False))
            )
            assert held.wait(20)
            doors.receivers.stop_accepting(20)
            while wire.goaway is None:
                wire.read()
            late = wire.stream()
            wire.sock.sendall(
                frame(HEADERS, END_HEADERS, late, wire.head()) + data(late, message(body_of(2), packed=False))
            )
            go_on.set()
            assert wire.answer(stream).status == OK
            assert not wire.until_closed()
            assert not wire.answers.get(late) or not wire.answers[late].ended
        monkeypatch.undo()
        assert doors.receivers.join(20)
        assert (kept(doors, 1), kept(doors, 2)) == (True, False)


def test_the_greeting_may_come_in_pieces(doors: Doors) -> None:
    host, port = doors.grpc_address.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        for part in (PREFACE[:3], PREFACE[3:], frame(SETTINGS, 0, 0), frame(PING, 0, 0, b"12345678")):
            sock.sendall(part)
        got = b""
        while frame(PING, 1, 0, b"12345678") not in got:
            got += sock.recv(1_000)
