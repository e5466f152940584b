"""The receivers of OTLP, by the protocol's own rules: the real SDK's exporters, answers, refusals and when to retry."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import zstandard
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from crannog.errors import Conflict, Unavailable
from crannog.server.auth import Tokens
from crannog.traces.ingest.decode import json_of_request
from doors import JSON, PROTOBUF, Doors, receiving, retry_info, status_of
from otlp_samples import request_of, span, span_id, trace_id


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with receiving(tmp_path_factory.mktemp("received"), otlp_request_bytes=1 << 20) as running:
        yield running


def kept(doors: Doors, trace: int) -> list[str]:
    """The names of a trace's spans; none if it is not there."""
    found = doors.lake.traces.search(where=f'trace_id = "{trace_id(trace).hex()}"')
    return [one.name for one in doors.lake.traces.get(trace_id(trace).hex()).spans] if found.traces else []


# -- the real SDK --------------------------------------------------------------------------------------------------


def _exporters(doors: Doors) -> dict[str, Any]:
    web, near = f"{doors.address}/v1/traces", f"http://{doors.grpc_address}"
    return {
        "grpc": lambda: GrpcExporter(endpoint=near, insecure=True),
        "grpc-gzip": lambda: GrpcExporter(endpoint=near, insecure=True, compression=grpc.Compression.Gzip),
        "http": lambda: HttpExporter(endpoint=web),
        "http-gzip": lambda: HttpExporter(endpoint=web, compression=Compression.Gzip),
        "http-deflate": lambda: HttpExporter(endpoint=web, compression=Compression.Deflate),
    }


@pytest.mark.parametrize("way", ["grpc", "grpc-gzip", "http", "http-gzip", "http-deflate"])
def test_the_sdk_sends_a_trace_and_it_is_there(doors: Doors, way: str) -> None:
    provider = TracerProvider(resource=Resource.create({"service.name": way}))
    provider.add_span_processor(BatchSpanProcessor(_exporters(doors)[way]()))
    tracer = provider.get_tracer("tests")
    with (
        tracer.start_as_current_span("root") as root,
        tracer.start_as_current_span("child", attributes={"k": 1, "l": ["a", "b"]}) as child,
    ):
        child.add_event("noted", {"why": "a test"})
    provider.shutdown()
    found = doors.lake.traces.get(f"{root.get_span_context().trace_id:032x}")
    assert [(one.name, one.service, one.depth) for one in found.spans] == [("root", way, 0), ("child", way, 1)]
    assert found.spans[1].attributes == {"k": 1, "l": ["a", "b"]}
    assert [event.name for event in found.spans[1].events] == ["noted"]
    assert way in doors.lake.traces.services()


# -- what is taken -------------------------------------------------------------------------------------------------

PACKED = {
    "identity": lambda body: body,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": lambda body: zstandard.ZstdCompressor().compress(body),
}


@pytest.mark.parametrize("media", [PROTOBUF, "application/protobuf", JSON, "application/json; charset=utf-8"])
@pytest.mark.parametrize("encoding", list(PACKED))
def test_every_type_and_encoding_is_read_and_answered_in_the_type_it_came_in(
    doors: Doors, media: str, encoding: str
) -> None:
    number = 1_000 + sum(map(ord, media + encoding))
    request = request_of(span(number, 1, name="one"), service="types")
    body = json.dumps(json_of_request(request)).encode() if "json" in media else request.SerializeToString()
    answer = doors.post(PACKED[encoding](body), media, content_encoding=encoding)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == media.partition(";")[0]
    assert answer.content == (b"{}" if "json" in media else b"")  # partial_success is not set
    assert kept(doors, number) == ["one"]


def test_an_empty_request_succeeds(doors: Doors) -> None:
    assert doors.post(b"").status_code == 200
    assert doors.post(b"{}", JSON).json() == {}
    assert not doors.call(b"").HasField("partial_success")


def test_ids_in_json_are_hexadecimal_in_any_case_in_links_too(doors: Doors) -> None:
    linked = {"traceId": trace_id(9).hex().upper(), "spanId": span_id(10).hex().upper()}
    document = {
        "traceId": trace_id(2_000).hex().upper(),
        "spanId": "00000000000000AB",
        "name": "hex",
        "links": [linked],
        "unknownField": {"a": 1},
    }
    document |= {"startTimeUnixNano": "1760000000000000001", "endTimeUnixNano": 1760000000000000002, "kind": 2}
    answer = doors.post(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [document]}]}]}).encode(), JSON)
    assert answer.json() == {}
    [found] = doors.lake.traces.get(trace_id(2_000).hex()).spans
    assert (found.span_id, found.kind, found.start_ns, found.end_ns) == (
        "00000000000000ab",
        "SERVER",
        1760000000000000001,
        1760000000000000002,
    )
    assert (found.links[0].trace_id, found.links[0].span_id) == (trace_id(9).hex(), span_id(10).hex())


def test_spans_that_cannot_be_kept_are_told_in_partial_success_and_the_others_are_kept(doors: Doors) -> None:
    bad = span(2_100, 2)
    bad.span_id = b"short"
    too_late = span(2_100, 3)
    too_late.end_time_unix_nano = 2**63
    for number, send in ((2_100, "http"), (2_101, "json"), (2_102, "grpc")):
        request = request_of(span(number, 1, name="good"), bad, too_late)
        if send == "grpc":
            answer = doors.call(request.SerializeToString())
        elif send == "http":
            sent = doors.post(request.SerializeToString())
            assert sent.status_code == 200
            answer = ExportTraceServiceResponse.FromString(sent.content)
        else:
            outcome = doors.post(json.dumps(json_of_request(request)).encode(), JSON).json()["partialSuccess"]
            assert outcome["rejectedSpans"] == "2"  # a 64-bit number
            assert "after the year 2262" in outcome["errorMessage"]
            continue
        assert answer.partial_success.rejected_spans == 2
        assert "span id is not 8 bytes" in answer.partial_success.error_message
    assert [kept(doors, number) for number in (2_100, 2_101, 2_102)] == [["good"]] * 3


def test_logs_sent_to_the_traces_endpoint_are_rejected(doors: Doors) -> None:
    # LogRecord's first fields are times and texts: decoded as a span, it has no ids.
    answer = doors.post(
        json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "a log"}]}]}]}).encode(), JSON
    )
    assert answer.json()["partialSuccess"]["rejectedSpans"] == "1"


@pytest.mark.parametrize("way", ["http", "grpc"])
def test_the_same_request_again_is_kept_once(doors: Doors, way: str) -> None:
    number = {"http": 2_200, "grpc": 2_201}[way]
    body = request_of(span(number, 1), span(number, 2, 1)).SerializeToString()
    before = _rows(doors)
    for _ in range(3):
        if way == "http":
            assert doors.post(body).status_code == 200
        else:
            assert not doors.call(body).HasField("partial_success")
    # A proxy that packs it makes it no other request.
    doors.post(gzip.compress(body), content_encoding="gzip")
    assert _rows(doors) == before + 2


def _rows(doors: Doors) -> int:
    return doors.lake.table("crannog.traces.spans").count()


def test_zipkin_spans_are_taken_as_json(doors: Doors) -> None:
    document = {
        "traceId": trace_id(2_300).hex(),
        "id": "b7ad6b7169203331",
        "name": "get",
        "timestamp": 1_760_000_000_000_000,
        "duration": 1_000,
    }
    answer = doors.post(
        json.dumps([{**document, "kind": "SERVER", "localEndpoint": {"serviceName": "zip"}}]).encode(),
        JSON,
        "/api/v2/spans",
    )
    assert (answer.status_code, answer.content) == (202, b"")
    [found] = doors.lake.traces.get(trace_id(2_300).hex()).spans
    assert (found.name, found.service, found.kind, found.duration_ns) == ("get", "zip", "SERVER", 1_000_000)
    wrong = doors.post(b'{"not": "a list"}', JSON, "/api/v2/spans")
    assert (wrong.status_code, wrong.json()["code"]) == (400, 3)


# -- refusals ------------------------------------------------------------------------------------------------------


def test_a_body_that_cannot_be_read_is_400_with_a_status_in_its_own_encoding(doors: Doors) -> None:
    answer = doors.post(b"\xff\xff")
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROTOBUF)
    status = Status.FromString(answer.content)
    assert status.code == 3
    assert "nothing was stored" in status.message
    assert "retry-after" not in answer.headers
    answer = doors.post(b"{bad", JSON)
    assert (answer.status_code, answer.headers["content-type"], answer.json()["code"]) == (400, JSON, 3)
    for encoding in ("gzip", "deflate", "zstd", "snappy"):
        assert doors.post(b"no such thing", content_encoding=encoding).status_code == 400
    with pytest.raises(grpc.RpcError) as refused:
        doors.call(b"\xff\xff")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert status_of(refused.value).code == 3
    assert retry_info(status_of(refused.value)) is None


def test_bodies_nested_beyond_reason_are_400(doors: Doors) -> None:
    # By hand: protobuf would not make it.
    value = _field(1, b"deep")
    for _ in range(3_000):
        value = _field(5, _field(1, value))
    deep = span(2_600, 1).SerializeToString() + _field(9, _field(1, b"deep") + _field(2, value))
    body = _field(1, _field(2, _field(2, deep)))
    assert doors.post(body).status_code == 400
    for text in (
        "[" * 200_000,
        '{"resourceSpans":' * 5_000,
        '{"resourceSpans":[{"a":' + "[" * 5_000 + "]" * 5_000 + "}]}",
    ):
        assert doors.post(text.encode(), JSON).status_code in (200, 400)  # an unknown field may be as deep as it likes
        assert doors.post(text.encode(), JSON, "/api/v2/spans").status_code == 400
    with pytest.raises(grpc.RpcError) as refused:
        doors.call(body)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_numbers_without_end_are_400(doors: Doors) -> None:
    for name in ("timestamp", "duration"):
        document = f'[{{"traceId": "{trace_id(2_601).hex()}", "id": "01", "{name}": 1e400}}]'
        assert doors.post(document.encode(), JSON, "/api/v2/spans").status_code == 400
    for name, value in (
        ("startTimeUnixNano", "1e400"),
        ("kind", "1e400"),
        ("flags", "-1e999"),
        ("startTimeUnixNano", "1e30"),
        ("name", "NaN"),
    ):
        document = f'{{"resourceSpans": [{{"scopeSpans": [{{"spans": [{{"traceId": "{trace_id(2_601).hex()}", "spanId": "{span_id(1).hex()}", "{name}": {value}}}]}}]}}]}}'
        assert doors.post(document.encode(), JSON).status_code == 400
    assert kept(doors, 2_601) == []


def test_fields_that_nobody_knows_are_left_out_even_strange_ones(doors: Doors) -> None:
    # A group with a field of number 0 in it: protobuf carries it along, others refuse it.
    for number, strange in (
        (2_700, b"\x9b\x06\x02\x00\x9c\x06"),
        (2_701, b"\x9b\x06\x9c\x06"),
        (2_702, _field(15, b"x")),
    ):
        assert doors.post(request_of(span(number, 1, name="kept")).SerializeToString() + strange).status_code == 200
        assert kept(doors, number) == ["kept"]


@pytest.mark.parametrize("depth", [10, 40, 44, 45, 46, 47, 48, 60])
def test_values_nested_up_to_the_limit_of_protobuf_are_kept_and_deeper_ones_refused(doors: Doors, depth: int) -> None:
    value = _field(1, b"deep")
    for _ in range(depth):
        value = _field(5, _field(1, value))
    deep = span(2_800 + depth, 1).SerializeToString() + _field(9, _field(1, b"deep") + _field(2, value))
    answer = doors.post(_field(1, _field(2, _field(2, deep))))
    assert answer.status_code in (200, 400)
    assert (kept(doors, 2_800 + depth) == ["op 1"]) is (answer.status_code == 200)
    assert answer.status_code == 200 or depth > 40


def _field(number: int, payload: bytes) -> bytes:
    """A field of protobuf that holds bytes, text or a message."""
    size, length = b"", len(payload)
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + payload


def test_other_methods_paths_and_types_are_told_in_plain_text(doors: Doors) -> None:
    for answer, status in (
        (doors.ask("GET", "/v1/traces"), 405),
        (doors.ask("PUT", "/api/v2/spans"), 405),
        (doors.post(b"", "text/html"), 415),
        (doors.ask("POST", "/v1/traces", content=b""), 415),
        (doors.post(b"", PROTOBUF, "/api/v2/spans"), 415),
        (doors.ask("POST", "/v1/metrics"), 404),
    ):
        assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (status, "text/plain")
    assert doors.ask("GET", "/v1/traces").headers["allow"] == "POST"


@pytest.mark.parametrize("way", ["plain", "gzip", "announced"])
def test_what_is_too_large_after_unpacking_is_413_and_not_to_be_retried(doors: Doors, way: str) -> None:
    body = request_of(span(2_400, 1, attributes={"long": "x" * (2 << 20)})).SerializeToString()
    packed = {"plain": body, "gzip": gzip.compress(body), "announced": body}[way]
    answer = doors.post(packed, **({"content_encoding": "gzip"} if way == "gzip" else {}))
    assert answer.status_code == 413
    assert Status.FromString(answer.content).code == 8
    assert "retry-after" not in answer.headers
    assert kept(doors, 2_400) == []


@pytest.mark.parametrize("packing", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_what_is_too_large_over_grpc_is_resource_exhausted_without_retry_info(
    doors: Doors, packing: grpc.Compression
) -> None:
    body = request_of(span(2_401, 1, attributes={"long": "x" * (2 << 20)})).SerializeToString()
    with pytest.raises(grpc.RpcError) as refused:
        doors.call(body, compression=packing)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    # gRPC itself refuses it, or we do; neither says when to retry.
    details = dict(refused.value.trailing_metadata()).get("grpc-status-details-bin")
    assert details is None or retry_info(Status.FromString(details)) is None
    assert kept(doors, 2_401) == []


def test_a_chunked_body_that_never_ends_is_cut_at_the_limit(doors: Doors) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(64):
            yield b"\x00" * (1 << 16)

    with suppress(httpx.TransportError):  # the server may close before all was sent
        assert doors.ask("POST", "/v1/traces", content=parts(), headers={"Content-Type": PROTOBUF}).status_code == 413
    assert doors.post(b"").status_code == 200


def test_a_client_that_leaves_in_the_middle_keeps_nothing_and_harms_nobody(doors: Doors) -> None:
    body = request_of(span(2_402, 1)).SerializeToString()
    host, port = doors.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as half:
        head = f"POST /v1/traces HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: {PROTOBUF}\r\nContent-Length: {len(body)}\r\n\r\n"
        half.sendall(head.encode() + body[: len(body) // 2])
    assert doors.post(b"").status_code == 200
    assert kept(doors, 2_402) == []


# -- when to come back ---------------------------------------------------------------------------------------------


def test_at_a_limit_clients_are_told_to_come_back_and_nothing_is_kept(tmp_path: Path) -> None:
    with receiving(tmp_path, staged_rows_limit=2) as full:
        assert full.post(request_of(span(1, 1), span(1, 2)).SerializeToString()).status_code == 200
        more = request_of(span(2, 1)).SerializeToString()
        answer = full.post(more)
        assert (answer.status_code, int(answer.headers["retry-after"]) >= 1) == (429, True)
        status = Status.FromString(answer.content)
        info = retry_info(status)
        assert status.code == 14
        assert info is not None
        assert info.retry_delay.ToNanoseconds() > 0
        answer = full.post(json.dumps(json_of_request(request_of(span(2, 1)))).encode(), JSON)
        assert (answer.status_code, answer.json()["code"]) == (429, 14)
        with pytest.raises(grpc.RpcError) as refused:
            full.call(more)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        info = retry_info(status_of(refused.value))
        assert info is not None
        assert info.retry_delay.ToNanoseconds() > 0
        assert kept(full, 2) == []


@pytest.mark.parametrize(
    "failure", [Unavailable("the storage is away"), Conflict("another writer won")], ids=["unavailable", "conflict"]
)
def test_a_failure_that_may_pass_is_503_with_a_time_to_retry(
    doors: Doors, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise failure

    monkeypatch.setattr(doors.lake.trace_store, "write", fails)
    body = request_of(span(2_500, 1)).SerializeToString()
    answer = doors.post(body)
    assert (answer.status_code, int(answer.headers["retry-after"]) >= 1) == (503, True)
    assert retry_info(Status.FromString(answer.content)) is not None
    with pytest.raises(grpc.RpcError) as refused:
        doors.call(body)
    assert refused.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED)
    assert retry_info(status_of(refused.value)) is not None


def test_what_nobody_thought_of_is_an_error_without_its_insides(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(doors.lake.trace_store, "write", fails)
    answer = doors.post(b"")
    assert answer.status_code == 500
    assert b"a secret" not in answer.content
    with pytest.raises(grpc.RpcError) as refused:
        doors.call(b"")
    assert refused.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in refused.value.details()


# -- who may -------------------------------------------------------------------------------------------------------


def test_with_tokens_both_doors_ask_for_one_that_may_write_spans(tmp_path: Path) -> None:
    with receiving(tmp_path) as doors:
        tokens = Tokens(doors.lake.operations.warehouse.storage)
        writer, reader = (
            tokens.create(name, [scope]) for name, scope in (("w", "write:crannog.traces"), ("r", "read"))
        )
        doors.service.tokens.refresh()
        body = request_of(span(1, 1)).SerializeToString()
        for token, status, code in (
            (None, 401, "UNAUTHENTICATED"),
            ("crannog_x_0", 401, "UNAUTHENTICATED"),
            (reader, 403, "PERMISSION_DENIED"),
        ):
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            answer = doors.post(body, **headers)
            assert answer.status_code == status
            assert ("www-authenticate" in answer.headers) is (status == 401)
            assert Status.FromString(answer.content).code == grpc.StatusCode[code].value[0]
            with pytest.raises(grpc.RpcError) as refused:
                doors.call(body, metadata=list(headers.items()))
            assert refused.value.code() is grpc.StatusCode[code]
        assert kept(doors, 1) == []
        assert doors.post(body, authorization=f"Bearer {writer}").status_code == 200
        assert not doors.call(
            request_of(span(2, 1)).SerializeToString(), [("authorization", f"Bearer {writer}")]
        ).HasField("partial_success")
        assert (kept(doors, 1), kept(doors, 2)) == (["op 1"], ["op 1"])


LANGFUSE = "/api/public/otel/v1/traces"


def basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def test_langfuses_clients_send_to_a_path_of_their_own(doors: Doors) -> None:
    sent = doors.post(request_of(span(7_700, 1)).SerializeToString(), path=LANGFUSE, **basic("pk-lf-1", "sk-lf-1"))
    assert (sent.status_code, sent.content) == (200, b"")
    answer = doors.post(json.dumps(json_of_request(request_of(span(7_701, 1)))).encode(), JSON, LANGFUSE)
    assert (answer.status_code, answer.json()) == (200, {})
    assert (doors.ask("GET", LANGFUSE).status_code, doors.post(b"", "text/plain", LANGFUSE).status_code) == (405, 415)
    assert (kept(doors, 7_700), kept(doors, 7_701)) == (["op 1"], ["op 1"])


def test_with_tokens_langfuses_secret_key_is_one(tmp_path: Path) -> None:
    with receiving(tmp_path) as doors:
        tokens = Tokens(doors.lake.operations.warehouse.storage)
        writer, reader = (
            tokens.create(name, [scope]) for name, scope in (("w", "write:crannog.traces"), ("r", "read"))
        )
        doors.service.tokens.refresh()
        send = partial(doors.post, request_of(span(1, 1)).SerializeToString())
        refused = [
            basic("pk", "crannog_x_0"),
            basic(writer, ""),
            {"authorization": "Basic !"},
            {"authorization": "Basic /w=="},
            {},
        ]
        assert [send(path=LANGFUSE, **headers).status_code for headers in refused] == [401] * len(refused)
        assert send(path=LANGFUSE, **basic("pk", reader)).status_code == 403
        assert send(**basic("pk", writer)).status_code == 401, "only on Langfuse's path"
        assert kept(doors, 1) == []
        assert send(path=LANGFUSE, **basic("pk", writer)).status_code == 200
        other = request_of(span(2, 1)).SerializeToString()
        assert doors.post(other, path=LANGFUSE, authorization=f"Bearer {writer}").status_code == 200
        assert (kept(doors, 1), kept(doors, 2)) == (["op 1"], ["op 1"])


def test_a_web_page_cannot_send_spans_to_a_server_without_tokens(doors: Doors) -> None:
    assert doors.post(b"", origin="http://evil.example").status_code == 403
    assert doors.post(b"", host="evil.example").status_code == 403
