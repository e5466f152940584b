"""OTLP to the span table and back: the columnar way equals the plain one, and an export equals what came in."""

from __future__ import annotations

import base64
import gzip
import json
import random
import zlib
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from crannog.api.traces import Span, Trace
from crannog.errors import CallerError, TooLarge
from crannog.traces.attribute_values import attribute_word, to_python
from crannog.traces.export import request_of_rows
from crannog.traces.ingest import flatten
from crannog.traces.ingest.decode import (
    JSON,
    ZIPKIN,
    ParsedRequest,
    ReceivedSpans,
    converted,
    converted_together,
    json_of_request,
    read_request,
    resource_spans,
)
from crannog.traces.ingest.flatten import span_rows
from crannog.traces.ingest.llm_dialects import COLUMN_KEYS
from crannog.traces.jaeger.responses import trace_v1, traces_v3
from crannog.traces.span_table import SCHEMA
from crannog.traces.trace import span_values
from flatten_reference import flat_by_objects
from otlp_samples import START, attribute, comparable, recorded_by_sdk, request_of, requests, span, trace_id

MANY = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
LIMIT = 64 * 1024 * 1024


def matches(blob: str, key: str, value: str) -> bool:
    """`match_attr` for one blob in Python."""
    return attribute_word(key, value) in blob


def both(request: ExportTraceServiceRequest) -> pa.Table:
    """The table of a request, after the two ways to it were compared."""
    fast, rejected = span_rows(resource_spans(request))
    slow, also_rejected = flat_by_objects(request)
    fast.validate(full=True)
    assert fast.schema.equals(SCHEMA)
    assert rejected == also_rejected
    for name in SCHEMA.names:
        assert fast[name].to_pylist() == slow[name].to_pylist(), name
    return fast


def read(body: bytes, **how: Any) -> ReceivedSpans:
    return read_request(body, limit=LIMIT, **how)


# -- any request -----------------------------------------------------------------------------------------------


@MANY
@given(requests)
def test_the_columnar_way_gives_what_the_plain_one_gives(request: ExportTraceServiceRequest) -> None:
    both(request)


@MANY
@given(st.lists(requests, min_size=2, max_size=4))
def test_requests_converted_together_give_what_each_gives_alone(several: list[ExportTraceServiceRequest]) -> None:
    parsed = [ParsedRequest(request.SerializeToString(), request) for request in several]
    alone = [converted(request) for request in parsed]
    together = converted_together(parsed)
    if any(rejected.count for _, rejected in alone):
        assert together is None, "each request reports its own rejected spans"
        return
    assert together is not None
    for (rows, rejected), (expected, _) in zip(together, alone, strict=True):
        assert rejected.count == 0
        assert rows.schema.equals(SCHEMA)
        assert rows.to_pylist() == expected.to_pylist()


@MANY
@given(requests)
def test_an_export_equals_what_came_in(request: ExportTraceServiceRequest) -> None:
    rows, rejected = span_rows(resource_spans(request))
    back = request_of_rows(rows)
    good = ExportTraceServiceRequest()
    good.CopyFrom(request)
    for group in good.resource_spans:
        for scope in group.scope_spans:
            kept = [one for one in scope.spans if flat_by_objects(request_of(one))[0].num_rows]
            del scope.spans[:]
            scope.spans.extend(kept)
    assert comparable(back) == comparable(good)
    assert rows.num_rows + rejected.count == sum(
        len(scope.spans) for group in request.resource_spans for scope in group.scope_spans
    )


@settings(MANY, max_examples=60)
@given(requests)
def test_json_gives_what_protobuf_gives(request: ExportTraceServiceRequest) -> None:
    document = json_of_request(request)
    got = read(json.dumps(document).encode(), content_type="application/json; charset=utf-8")
    wanted, rejected = span_rows(resource_spans(request))
    assert got.rows.to_pylist() == wanted.to_pylist()
    assert got.rejected == rejected


@settings(MANY, max_examples=60)
@given(requests, st.randoms(use_true_random=False))
def test_a_damaged_body_is_refused_or_read_as_protobuf_reads_it(
    request: ExportTraceServiceRequest, chance: random.Random
) -> None:
    body = bytearray(request.SerializeToString())
    for _ in range(20):
        damaged = _damaged(body, chance)
        try:
            wanted = flat_by_objects(ExportTraceServiceRequest.FromString(bytes(damaged)))
        except Exception:
            with pytest.raises(CallerError, match="not a valid OTLP"):
                read(bytes(damaged))
        else:
            got = read(bytes(damaged))
            assert got.rows.to_pylist() == wanted[0].to_pylist()
            assert got.rejected == wanted[1]


def _damaged(body: bytearray, chance: random.Random) -> bytearray:
    damaged = bytearray(body)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(damaged) + 1)
        match chance.randrange(4):
            case 0 if damaged:
                damaged[place % len(damaged)] ^= 1 << chance.randrange(8)
            case 1:
                damaged[place:place] = chance.randbytes(3)
            case 2:
                del damaged[place : place + 2]
            case _:
                damaged = damaged[:place] + damaged
    return damaged


@pytest.mark.slow
def test_20_000_damaged_bodies_of_each_encoding_end_in_an_answer_or_a_refusal() -> None:
    chance = random.Random(7)
    request = recorded_by_sdk("shop", _sample)
    bodies = {
        "application/x-protobuf": request.SerializeToString(),
        JSON: json.dumps(json_of_request(request)).encode(),
    }
    for content_type, body in bodies.items():
        answered = 0
        for _ in range(20_000):
            try:
                answered += read(bytes(_damaged(bytearray(body), chance)), content_type=content_type).rows.num_rows
            except CallerError:
                pass
        assert answered


# -- what one sees ---------------------------------------------------------------------------------------------


def test_values_keep_their_types() -> None:
    given_values: dict[str, Any] = {
        "text": "Łódź", "empty": "", "whole": 1, "double": 1.0, "tiny": 5e-324, "nothing": None, "yes": True,
        "bytes": b"\x00\xff", "huge": 2**63 - 1, "quote": 'a "b" \\ \n \x01', "array": [1, 1.5, "x", [None, b"z"]],
        "map": {"a": {"b": {"c": {"d": {"e": [True]}}}}}, "infinite": float("inf"),
    }  # fmt: skip
    rows = both(request_of(span(1, 1, attributes=given_values)))
    stored = dict(rows["attributes"][0].as_py())
    assert {key: to_python(text) for key, text in stored.items()} == given_values
    assert (stored["whole"], stored["double"], stored["yes"], stored["text"]) == ("1", "1.0", "true", '"Łódź"')
    assert stored["bytes"] == '{"$bytes":"AP8="}'
    for text in stored.values():
        json.loads(text)


EVERY_VALUE: list[Any] = [
    *(chr(code) for code in range(0x80)), "".join(map(chr, range(0x100))), "\t\t\n\r\b\f", "\\t", '\\"', "Łódź 🦀", "{}", "[1]", "{bad", "$x", "",
    0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, True, False, None, b"", b"\x00\xff",
    0.0, -0.0, 1.0, -1.5, 1e10, 1e15, 1e16, 1e21, 1e22, 1e-5, 1e-7, 5e-324, 1.7976931348623157e308, 0.1,
    float("nan"), float("inf"), float("-inf"),
    [], [[]], [1, 1.0, "1", True, None, b"1"], {}, {"a": {}}, {"$bytes": "AA=="}, {"$each": [1]}, {"$map": []}, {"a": {"b": {"c": {"d": {"e": ["\t"]}}}}},
]  # fmt: skip


def test_every_value_is_kept_at_every_level() -> None:
    """All at once, where the random requests have only a few each."""
    pairs = [attribute(f"k{number}", value) for number, value in enumerate(EVERY_VALUE)]
    sent = span(1, 1)
    sent.attributes.extend(pairs)
    sent.events.add(name="e").attributes.extend(pairs)
    sent.links.add(trace_id=trace_id(2)).attributes.extend(pairs)
    request = request_of(sent)
    request.resource_spans[0].resource.attributes.extend(pairs)
    request.resource_spans[0].scope_spans[0].scope.attributes.extend(pairs)
    rows = both(request)
    assert comparable(request_of_rows(rows)) == comparable(request)
    stored = dict(rows["attributes"][0].as_py())
    for number, value in enumerate(EVERY_VALUE):
        text = stored[f"k{number}"]
        if isinstance(value, str):
            assert json.loads(text) == value
            assert matches(rows["search_blob"][0].as_py(), f"k{number}", value)
        assert repr(to_python(text)) == repr(value)


def test_a_key_sent_twice_keeps_both_values_and_shows_the_last() -> None:
    sent = span(1, 1)
    sent.attributes.extend([attribute("k", 1), attribute("other", "x"), attribute("k", "two")])
    rows = both(request_of(sent))
    [(key, text), _] = rows["attributes"][0].as_py()
    assert (key, text, to_python(text)) == ("k", '{"$each":[1,"two"]}', "two")
    assert [pair.value.WhichOneof("value") for pair in request_of_rows(rows).resource_spans[0].scope_spans[0].spans[0].attributes] == [
        "int_value", "string_value", "string_value",
    ]  # fmt: skip
    blob = rows["search_blob"][0].as_py()
    assert matches(blob, "k", "1")
    assert matches(blob, "k", "two")


def test_times_keep_their_nanoseconds_and_the_date_is_that_of_the_start_in_utc() -> None:
    last_of_day = 1_760_054_399_999_999_999  # 2025-10-09T23:59:59.999999999Z
    rows = both(request_of(span(1, 1, start=last_of_day, took=2_000_000_001), span(1, 2, start=0, took=0)))
    row, oldest = rows.to_pylist()
    assert (row["start_ns"], row["end_ns"], row["duration_ns"], row["duration_ms"]) == (
        last_of_day,
        last_of_day + 2_000_000_001,
        2_000_000_001,
        2000,
    )
    assert (str(row["start_time"]), str(row["partition_date"])) == ("2025-10-09 23:59:59.999999+00:00", "2025-10-09")
    assert str(oldest["partition_date"]) == "1970-01-01"
    assert row["trace_hi"] == int.from_bytes(trace_id(1)[:8], signed=True)


def test_spans_that_cannot_be_kept_are_counted_by_reason_and_the_others_are_kept() -> None:
    good, future = span(1, 1), span(1, 2, start=START + 10**18)
    bad = [span(1, number) for number in range(3, 9)]
    bad[0].trace_id = b"short"
    bad[1].trace_id = bytes(16)
    bad[2].span_id = bytes(8)
    bad[3].span_id = b""
    bad[4].parent_span_id = b"odd"
    bad[5].end_time_unix_nano = 2**63
    zero_parent = span(1, 10)
    zero_parent.parent_span_id = bytes(8)
    request = request_of(good, *bad, future, zero_parent)
    rows = both(request)
    assert [one.as_py() for one in rows["span_id"]] == [good.span_id, future.span_id, zero_parent.span_id]
    assert rows["parent_span_id"].null_count == 3
    rejected = read(request.SerializeToString()).rejected
    assert rejected.count == 6
    assert list(rejected.by_reason.values()) == [2, 2, 1, 1]
    assert rejected.message.startswith(
        "6 spans were rejected, do not send them again: 2 because the trace id is not 16 bytes"
    )


def test_a_span_that_ends_before_it_starts_is_kept_and_marked() -> None:
    never_ended, stepped, good = span(1, 1), span(1, 2), span(1, 3)
    never_ended.end_time_unix_nano = 0
    stepped.end_time_unix_nano = START - 5
    request = request_of(never_ended, stepped, good)
    rows = both(request)
    assert read(request.SerializeToString()).rejected.count == 0
    assert [(row["end_ns"], row["duration_ns"], row["duration_ms"]) for row in rows.to_pylist()[:2]] == [
        (START, 0, 0)
    ] * 2
    assert rows["end_time"][0] == rows["start_time"][0]
    assert rows["reported_end_ns"].to_pylist() == [0, START - 5, None]
    assert comparable(request_of_rows(rows)) == comparable(request), "an export has the ends as they were sent"
    shown = [Span(*values) for values in span_values(rows)]
    assert [one.warnings for one in shown] == [
        ("the span was sent with an end of 0; it is shown to end when it started",),
        (f"the span was sent with an end of {START - 5}, 5 ns before its start; it is shown to end when it started",),
        (),
    ]
    jaeger = trace_v1(Trace(trace_id(1).hex(), tuple(shown)))["spans"]
    assert [one["warnings"] for one in jaeger] == [list(shown[0].warnings), list(shown[1].warnings), None]
    assert [one["duration"] for one in jaeger] == [0, 0, 1000]
    [group] = traces_v3(json_of_request(request_of_rows(rows)))["resourceSpans"]
    for one, odd in zip(group["scopeSpans"][0]["spans"], shown, strict=True):
        assert int(one["endTimeUnixNano"]) == odd.end_ns
        warned = {pair["key"]: pair["value"] for pair in one.get("attributes", ())}
        assert warned == (
            {"@jaeger@warnings": {"arrayValue": {"values": [{"stringValue": odd.warnings[0]}]}}} if odd.warnings else {}
        )


def test_logs_sent_as_traces_are_rejected() -> None:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    logs = ExportLogsServiceRequest()
    record = logs.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=START)
    record.severity_text = "INFO"
    try:
        got = read(logs.SerializeToString())
    except CallerError:
        return
    assert (got.rows.num_rows, got.rejected.count) == (0, 1)


def test_a_request_without_spans_is_fine() -> None:
    for request in (ExportTraceServiceRequest(), request_of()):
        got = read(request.SerializeToString())
        assert (got.rows.num_rows, got.rejected.count, got.rejected.message) == (0, 0, "")
        assert got.rows.schema.equals(SCHEMA)


def test_a_request_that_swells_is_refused_before_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_of(*[span(1, number) for number in range(1, 100)])
    request.resource_spans[0].resource.attributes.append(attribute("large", "x" * 10_000))
    monkeypatch.setattr(flatten, "_MAX_SHARED_BYTES", 500_000)
    with pytest.raises(TooLarge, match="99 spans"):
        span_rows(resource_spans(request))
    for scope in request.resource_spans[0].scope_spans:
        del scope.spans[10:]
    assert span_rows(resource_spans(request))[0].num_rows == 10


# -- search blob -----------------------------------------------------------------------------------------------


def test_the_blob_finds_whole_attributes_only() -> None:
    sent = span(
        1,
        1,
        name="GET /x",
        attributes={"k": 10, "path": "/a|k=1|", "s": "x\\p", "a=b": "c", "a": "b=d", "flag": True, "none": None},
    )
    sent.status.message = "k=3"
    sent.events.add(name="k=4")
    blob = both(request_of(sent, service="k=5"))["search_blob"][0].as_py()
    assert blob.startswith("|k\\e5| |GET /x| |tests| |k\\e3| |k=10| |path=/a\\pk=1\\p|")
    assert [value for value in ("10", "1", "0", "3", "4", "5", "") if matches(blob, "k", value)] == ["10"]
    assert matches(blob, "path", "/a|k=1|")
    assert matches(blob, "s", "x\\p")
    assert not matches(blob, "s", "x|")
    assert matches(blob, "a=b", "c")
    assert not matches(blob, "a", "b=c")
    assert matches(blob, "a", "b=d")
    assert matches(blob, "flag", "true")
    assert matches(blob, "none", "")


# -- LLM dialects ----------------------------------------------------------------------------------------------


def llm(**attributes: Any) -> dict[str, Any]:
    given_keys = {key.replace("__", "."): value for key, value in attributes.items()}
    other = span(1, 2, attributes={"k": 1})
    rows = both(request_of(span(1, 1, attributes=given_keys), other))
    [row, empty] = rows.select(list(COLUMN_KEYS)).to_pylist()
    assert not any(empty.values()), "the neighbour has none of it"
    assert {key for key, _ in rows["attributes"][0].as_py()} == set(given_keys), "the originals are kept"
    return {name: value for name, value in row.items() if value is not None}


def test_each_dialect_gives_the_same_columns() -> None:
    messages = '[{"role":"user","parts":[]}]'
    assert llm(
        gen_ai__input__messages=messages, gen_ai__output__messages="[]", gen_ai__request__model="m", gen_ai__response__model="m-1",
        gen_ai__usage__input_tokens=12, gen_ai__usage__output_tokens=3, gen_ai__conversation__id="c1", gen_ai__provider__name="acme",
    ) == {
        "input": messages, "output": "[]", "model": "m-1", "input_tokens": 12, "output_tokens": 3, "session_id": "c1", "provider": "acme",
    }  # fmt: skip
    assert llm(
        input__value="hello", output__value='{"a":1}', llm__model_name="m", llm__token_count__prompt=1, llm__token_count__completion=2.0,
        session__id="s", user__id=7,
    ) == {
        "input": '"hello"', "output": '{"a":1}', "model": "m", "input_tokens": 1, "output_tokens": 2, "session_id": "s", "user_id": "7",
    }  # fmt: skip
    for names in (
        ("mlflow.spanInputs", "mlflow.spanOutputs"),
        ("langfuse.observation.input", "langfuse.observation.output"),
        ("traceloop.entity.input", "traceloop.entity.output"),
        ("ai.prompt", "ai.response.text"),
        ("scouter.tracing.input", "scouter.tracing.output"),
        ("gen_ai.prompt", "gen_ai.completion"),
        ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result"),
    ):
        assert llm(**{names[0]: "in", names[1]: ["out", 1]}) == {"input": '"in"', "output": '["out",1]'}
    assert llm(**{"gen_ai.system": "acme", "gen_ai.usage.prompt_tokens": "4", "gen_ai.usage.completion_tokens": -1}) == {
        "provider": "acme", "input_tokens": 4,
    }  # fmt: skip
    assert llm(**{"scouter.tracing.label": "checkout"}) == {"label": "checkout"}


def test_a_conversation_spread_over_attributes_is_put_together() -> None:
    found = llm(
        **{
            "llm.input_messages.1.message.content": "and?",
            "llm.input_messages.0.message.role": "system",
            "llm.input_messages.0.message.content": 'be "kind"',
            "llm.input_messages.1.message.role": "user",
            "llm.input_messages.10.message.role": "user",
            "gen_ai.completion.0.content": "yes",
        }
    )
    assert json.loads(found["input"]) == [
        {"role": "system", "content": 'be "kind"'}, {"role": "user", "content": "and?"}, {"role": "user"},
    ]  # fmt: skip
    assert json.loads(found["output"]) == [{"content": "yes"}]
    assert llm(**{"input.value": "whole", "llm.input_messages.0.message.content": "part"}) == {"input": '"whole"'}


def test_of_a_dialects_key_sent_twice_the_last_counts() -> None:
    sent = span(1, 1)
    for value in ("first", "second", "last"):
        sent.attributes.append(attribute("gen_ai.request.model", value))
        sent.attributes.append(attribute("input.value", value))
    [row] = both(request_of(sent)).to_pylist()
    assert (row["model"], row["input"]) == ("last", '"last"')


def test_only_objects_of_usage_belong_to_two_columns() -> None:
    keys = Counter(key for keys in COLUMN_KEYS.values() for key in keys)
    assert {key for key, columns in keys.items() if columns > 1} == {
        "langfuse.observation.usage_details",
        "mlflow.chat.tokenUsage",
    }


# -- the real SDK ----------------------------------------------------------------------------------------------


def _sample(tracer: Any) -> None:
    with tracer.start_as_current_span(
        "parent", kind=SpanKind.SERVER, attributes={"http.method": "GET", "sizes": [1, 2]}
    ) as parent:
        parent.add_event("cache miss", {"key": "a|b"})
        try:
            with tracer.start_as_current_span(
                "child", kind=SpanKind.CLIENT, links=[Link(parent.get_span_context(), {"why": "test"})]
            ):
                raise ValueError("no such thing")
        except ValueError:
            parent.set_status(Status(StatusCode.ERROR, "child failed"))


def test_what_the_sdk_sends_is_kept_whole() -> None:
    request = recorded_by_sdk("shop", _sample)
    rows = both(request)
    assert comparable(request_of_rows(rows)) == comparable(request)
    child, parent = rows.to_pylist()
    assert (parent["service_name"], parent["span_kind"], parent["status_code"], parent["status_message"]) == (
        "shop",
        "SERVER",
        2,
        "child failed",
    )
    assert child["parent_span_id"] == parent["span_id"]
    assert dict(parent["attributes"]) == {"http.method": '"GET"', "sizes": "[1,2]"}
    assert dict(parent["scope_attributes"]) == {"scope.kind": '"test"'}
    assert dict(parent["resource_attributes"])["service.version"] == '"1.2.3"'
    assert child["events"][0]["name"] == "exception"
    assert child["links"][0]["span_id"] == parent["span_id"]


# -- JSON ------------------------------------------------------------------------------------------------------


def test_json_takes_what_senders_write() -> None:
    document = {
        "resourceSpans": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "web"}}]},
                "scopeSpans": [
                    {
                        "scope": {"name": "s", "unknown": [1]},
                        "spans": [
                            {
                                "traceId": trace_id(1).hex().upper(),
                                "spanId": "EEE19B7EC3C1B174",
                                "parentSpanId": "",
                                "name": "I'm a span",
                                "kind": "SPAN_KIND_SERVER",
                                "startTimeUnixNano": str(START),
                                "endTimeUnixNano": START + 5,
                                "status": {"code": 2},
                                "attributes": [
                                    {"key": "n", "value": {"intValue": "9007199254740993"}},
                                    {"key": "b", "value": {"bytesValue": base64.b64encode(b"\xff").decode()}},
                                ],
                                "links": [{"traceId": trace_id(2).hex(), "spanId": "00000000000000ff"}],
                                "unknownField": {"a": 1},
                            },
                            {"traceId": "not hex", "spanId": "eee19b7ec3c1b175", "name": "bad"},
                            {"traceId": 17, "spanId": None, "name": "worse"},
                        ],
                    }
                ],
            }
        ],
        "more": None,
    }
    got = read(json.dumps(document).encode(), content_type=JSON)
    [row] = got.rows.to_pylist()
    assert (row["trace_id"], row["span_id"].hex(), row["kind"], row["status_code"]) == (
        trace_id(1),
        "eee19b7ec3c1b174",
        2,
        2,
    )
    assert (row["start_ns"], row["end_ns"], row["parent_span_id"]) == (START, START + 5, None)
    assert dict(row["attributes"]) == {"n": "9007199254740993", "b": '{"$bytes":"/w=="}'}
    assert row["links"][0]["trace_id"] == trace_id(2)
    assert got.rejected.count == 2


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"null", b"7", b"{", b'{"resourceSpans": 7}', b'{"resourceSpans": [7]}', b'{"resourceSpans":[{"scopeSpans":{}}]}',
        b"\xff\xfe", b"[" * 100_000, b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":7}]}]}]}',
        b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"\\ud800"}]}]}]}',
        b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"flags":-1}]}]}]}',
    ],
)  # fmt: skip
def test_json_that_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(CallerError, match="nothing was stored"):
        read(body, content_type=JSON)


def test_deeply_nested_values_end_in_an_answer_or_a_refusal() -> None:
    shallow = refused = 0
    for depth in (5, 20, 40, 46, 90, 1000, 5000):
        value = attribute("deep", 1).value.SerializeToString()
        for _ in range(depth):
            value = _field(5, _field(1, value))  # an AnyValue with an array of one
        named = _field(1, b"deep") + _field(2, value)
        sent = span(1, 1).SerializeToString() + _field(9, named)
        try:
            rows = read(_field(1, _field(2, _field(2, sent)))).rows
        except CallerError:
            refused += 1
        else:
            assert dict(rows["attributes"][0].as_py())["deep"] == "[" * depth + "1" + "]" * depth
            shallow += 1
    assert shallow >= 3
    assert refused >= 2


def _field(number: int, data: bytes) -> bytes:
    """A protobuf field with bytes, by hand: the library refuses to make one so deep."""
    size, length = b"", len(data)
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + data


# -- Zipkin ----------------------------------------------------------------------------------------------------


def zipkin(*spans: dict[str, Any]) -> ReceivedSpans:
    return read(json.dumps(spans).encode(), content_type=ZIPKIN)


def test_zipkin_spans_become_the_same_rows() -> None:
    client = {
        "traceId": "463ac35c9f6413ad", "id": "a2fb4a1d1a96d312", "parentId": "463ac35c9f6413ad", "name": "get", "kind": "CLIENT",
        "timestamp": 1_472_470_996_199_000, "duration": 207_000,
        "localEndpoint": {"serviceName": "frontend", "ipv4": "127.0.0.1", "port": 8080},
        "remoteEndpoint": {"serviceName": "backend", "ipv6": "::1"},
        "annotations": [{"timestamp": 1_472_470_996_238_000, "value": "wr"}],
        "tags": {"http.path": "/api", "otel.status_code": "ERROR", "otel.status_description": "bad", "otel.scope.name": "lib"},
    }  # fmt: skip
    server = {
        **client,
        "kind": "SERVER",
        "shared": True,
        "localEndpoint": {"serviceName": "backend"},
        "tags": {"error": "it broke"},
    }
    got = zipkin(client, server, {"traceId": "zz", "id": "1"})
    first, second = got.rows.to_pylist()
    assert got.rejected.count == 1
    assert (first["trace_id"].hex(), first["span_id"].hex()) == ("0000000000000000463ac35c9f6413ad", "a2fb4a1d1a96d312")
    assert (first["service_name"], first["span_kind"], first["duration_ns"], first["scope_name"]) == (
        "frontend",
        "CLIENT",
        207_000_000,
        "lib",
    )
    assert (first["status_code"], first["status_message"], first["events"][0]["name"]) == (2, "bad", "wr")
    assert {key: to_python(text) for key, text in first["attributes"]} == {
        "http.path": "/api", "net.host.ip": "127.0.0.1", "net.host.port": 8080, "peer.service": "backend", "net.peer.ip": "::1",
    }  # fmt: skip
    assert (second["parent_span_id"], second["status_code"], second["status_message"]) == (
        first["span_id"],
        2,
        "it broke",
    )
    assert second["span_id"] != first["span_id"]


def test_zipkins_error_tag_is_the_status_message_where_there_is_no_other() -> None:
    def status(**tags: str) -> tuple[int, str | None]:
        sent = {"traceId": "463ac35c9f6413ad", "id": "a2fb4a1d1a96d312", "timestamp": 1_472_470_996_199_000}
        [row] = zipkin(
            {**sent, "tags": {key.replace("__", "."): value for key, value in tags.items()}}
        ).rows.to_pylist()
        assert ("error" in dict(row["attributes"])) is ("error" in tags), "the tag itself is kept"
        return row["status_code"], row["status_message"]

    assert status(otel__status_code="ERROR", error="it broke") == (2, "it broke"), (
        "as OpenTelemetry's exporters send it"
    )
    assert status(otel__status_code="error", error="true") == (2, None)
    assert status(otel__status_code="ERROR", error="it broke", otel__status_description="said") == (2, "said")
    assert status(error="it broke") == (2, "it broke")
    assert status(error="") == (2, None)
    assert status(otel__status_code="UNSET", error="it broke") == (2, "it broke")
    assert status(otel__status_code="OK", error="it was retried") == (1, None)
    assert status(error="false") == (0, None)


@pytest.mark.parametrize(
    "body", [b"{}", b"[1]", b'[{"tags": 7}]', b'[{"timestamp": "soon"}]', b'[{"tags": {"a": "\\ud800"}}]', b"[{]"]
)
def test_what_is_no_zipkin_is_refused(body: bytes) -> None:
    with pytest.raises(CallerError, match="nothing was stored"):
        read(body, content_type=ZIPKIN)


# -- bodies ----------------------------------------------------------------------------------------------------


def packings(body: bytes) -> dict[str, bytes]:
    bare = zlib.compressobj(wbits=-15)
    streamed = zstandard.ZstdCompressor().compressobj()
    return {
        "gzip": gzip.compress(body),
        "GZIP ": gzip.compress(body[:10]) + gzip.compress(body[10:]),
        "deflate": zlib.compress(body),
        "Deflate": bare.compress(body) + bare.flush(),
        "zstd": zstandard.ZstdCompressor().compress(body),
        "Zstd": streamed.compress(body) + streamed.flush(),
        "identity": body,
    }


def test_bodies_are_unpacked() -> None:
    body = request_of(*[span(1, number) for number in range(1, 50)]).SerializeToString()
    for encoding, packed in packings(body).items():
        assert read(packed, encoding=encoding).body == body, encoding
        if encoding != "identity":
            for cut in (len(packed) - 1, len(packed) // 2):
                with pytest.raises(CallerError):
                    read(packed[:cut], encoding=encoding)
            with pytest.raises(CallerError):
                read(b"not packed at all", encoding=encoding)
    with pytest.raises(CallerError, match="br"):
        read(body, encoding="br")
    with pytest.raises(CallerError, match="text/plain"):
        read(body, content_type="text/plain")


def test_a_body_is_measured_after_it_is_unpacked() -> None:
    bomb = bytes(50_000_000)
    for encoding, packed in packings(bomb).items():
        with pytest.raises(TooLarge, match="10,000 bytes"):
            read_request(packed, encoding=encoding, limit=10_000)
    exact = request_of(span(1, 1)).SerializeToString()
    for encoding, packed in packings(exact).items():
        assert read_request(packed, encoding=encoding, limit=len(exact)).rows.num_rows == 1
        with pytest.raises(TooLarge):
            read_request(packed, encoding=encoding, limit=len(exact) - 1)
