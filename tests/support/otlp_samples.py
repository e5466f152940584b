"""OTLP requests for tests: any that protobuf can say, those of the real SDK, and one form to compare them in."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    EntityRef,
    InstrumentationScope,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

START = 1_760_000_000_123_456_789
LATEST = 2**63 - 1

# -- any request -----------------------------------------------------------------------------------------------

texts = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            "",
            "a|b",
            "k=1",
            "back\\slash",
            'quo"te',
            "\x00\x07\x1f",
            "line\nand\ttab\r\b\f",
            "Łódź 🦀",
            "$x",
            "{}",
            "[1]",
            "{bad",
        ]
    ),
    st.sampled_from(
        [
            '"m"',
            '"m"\n',
            "NaN",
            "7",
            "0.5",
            "1e-5",
            "AGENT",
            '{"input": 3, "input_cached": 4.0, "total": 1.5}',
            '{"prompt_tokens": 2}',
        ]
    ),
)
keys = st.one_of(
    st.sampled_from(
        [
            *(
                "k",
                "k2",
                "a=b",
                "a|b",
                "",
                "$bytes",
                "service.name",
                "http.method",
                "input.value",
                "output.value",
                "user.id",
            ),
            *(
                "langfuse.observation.usage_details",
                "mlflow.chat.tokenUsage",
                "mlflow.llm.model",
                "mlflow.spanOutputs",
                "llm.cost.total",
            ),
            *(
                "openinference.span.kind",
                "pydantic_ai.all_messages",
                "gen_ai.aggregated_usage.input_tokens",
                "mlflow.llm.cost",
            ),
            *(
                "gen_ai.input.messages",
                "gen_ai.usage.input_tokens",
                "llm.token_count.completion",
                "gen_ai.request.model",
            ),
            *(
                "llm.input_messages.0.message.role",
                "llm.input_messages.0.message.content",
                "gen_ai.completion.1.content",
            ),
        ]
    ),
    st.text(max_size=6),
)
whole = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1]))
doubles = st.one_of(
    st.floats(), st.sampled_from([0.0, -0.0, 1.0, 1e15, 1e16, 1e21, 1e22, 1e-5, 1e-7, 5e-324, 1.7976931348623157e308])
)
unsigned = st.one_of(st.just(0), st.integers(0, 2**32 - 1))


def _nested(inner: st.SearchStrategy[AnyValue]) -> st.SearchStrategy[AnyValue]:
    pair = st.builds(KeyValue, key=keys, value=inner)
    return st.one_of(
        st.builds(lambda items: AnyValue(array_value=ArrayValue(values=items)), st.lists(inner, max_size=3)),
        st.builds(lambda items: AnyValue(kvlist_value=KeyValueList(values=items)), st.lists(pair, max_size=3)),
    )


plain_values = st.one_of(
    st.builds(lambda x: AnyValue(string_value=x), texts),
    st.builds(lambda x: AnyValue(int_value=x), whole),
    st.builds(lambda x: AnyValue(double_value=x), doubles),
    st.builds(lambda x: AnyValue(bool_value=x), st.booleans()),
    st.builds(lambda x: AnyValue(bytes_value=x), st.binary(max_size=5)),
    st.just(AnyValue()),
)
values = st.one_of(plain_values, st.recursive(plain_values, _nested, max_leaves=6))
pairs = st.one_of(st.builds(KeyValue, key=keys, value=values), st.builds(KeyValue, key=keys))
attribute_lists = st.lists(pairs, max_size=5)

good_ids = {16: st.binary(min_size=16, max_size=16).filter(any), 8: st.binary(min_size=8, max_size=8).filter(any)}


def ids(length: int) -> st.SearchStrategy[bytes]:
    """Mostly good ones."""
    return st.one_of(
        good_ids[length], good_ids[length], good_ids[length], st.sampled_from([b"", bytes(length), b"x" * (length - 1)])
    )


times = st.one_of(st.integers(START, START + 10**12), st.sampled_from([0, 1, 999, LATEST, 2**64 - 1, START]))
events = st.builds(
    Span.Event, time_unix_nano=times, name=texts, attributes=attribute_lists, dropped_attributes_count=unsigned
)
links = st.builds(
    Span.Link,
    trace_id=ids(16),
    span_id=ids(8),
    trace_state=texts,
    attributes=attribute_lists,
    dropped_attributes_count=unsigned,
    flags=unsigned,
)
statuses = st.one_of(st.none(), st.builds(Status, message=texts, code=st.sampled_from([0, 1, 2, 7])))
spans = st.builds(
    Span,
    trace_id=ids(16),
    span_id=ids(8),
    parent_span_id=st.one_of(st.just(b""), ids(8)),
    trace_state=texts,
    flags=unsigned,
    name=st.one_of(texts, st.just("long " * 500)),
    kind=st.sampled_from([0, 1, 2, 3, 4, 5, 17, -3]),
    start_time_unix_nano=times,
    end_time_unix_nano=st.one_of(times, st.just(LATEST), st.just(LATEST)),
    attributes=attribute_lists,
    dropped_attributes_count=unsigned,
    events=st.lists(events, max_size=2),
    dropped_events_count=unsigned,
    links=st.lists(links, max_size=2),
    dropped_links_count=unsigned,
    status=statuses,
)
scopes = st.one_of(
    st.none(),
    st.builds(
        InstrumentationScope, name=texts, version=texts, attributes=attribute_lists, dropped_attributes_count=unsigned
    ),
)
refs = st.builds(
    EntityRef,
    schema_url=texts,
    type=texts,
    id_keys=st.lists(texts, max_size=2),
    description_keys=st.lists(texts, max_size=1),
)
resources = st.one_of(
    st.none(),
    st.builds(
        Resource, attributes=attribute_lists, dropped_attributes_count=unsigned, entity_refs=st.lists(refs, max_size=1)
    ),
)
scope_spans = st.builds(ScopeSpans, scope=scopes, spans=st.lists(spans, max_size=3), schema_url=texts)
resource_spans = st.builds(
    ResourceSpans, resource=resources, scope_spans=st.lists(scope_spans, max_size=2), schema_url=texts
)
requests = st.builds(ExportTraceServiceRequest, resource_spans=st.lists(resource_spans, max_size=3))


# -- one form to compare in ------------------------------------------------------------------------------------


def comparable(request: ExportTraceServiceRequest) -> list[bytes]:
    """Each span with its resource and scope, as bytes, in an order of its own; what means the same is the same."""
    listed = []
    for group in request.resource_spans:
        for scope in group.scope_spans:
            for span in scope.spans:
                one = ResourceSpans(schema_url=group.schema_url)
                if group.HasField("resource"):
                    one.resource.CopyFrom(group.resource)
                    _tidy(one.resource.attributes)
                alone = one.scope_spans.add(schema_url=scope.schema_url)
                if scope.HasField("scope"):
                    alone.scope.CopyFrom(scope.scope)
                    _tidy(alone.scope.attributes)
                alone.spans.append(span)
                kept = alone.spans[0]
                if not any(kept.parent_span_id):
                    kept.parent_span_id = b""
                if kept.HasField("status") and not kept.status.code and not kept.status.message:
                    kept.ClearField("status")
                for holder in (kept, *kept.events, *kept.links):
                    _tidy(holder.attributes)
                listed.append(one.SerializeToString(deterministic=True))
    return sorted(listed)


def _tidy(attributes: Any) -> None:
    """Keys in order, values of one key in theirs, a missing value as an empty one; NaN of one kind."""
    found = sorted(attributes, key=lambda pair: pair.key)
    copies = [KeyValue(key=pair.key, value=pair.value) for pair in found]
    del attributes[:]
    for pair in copies:
        pair.value.SetInParent()
        _tidy_value(pair.value)
    attributes.extend(copies)


def _tidy_value(value: AnyValue) -> None:
    if value.HasField("double_value") and value.double_value != value.double_value:
        value.double_value = float("nan")
    for item in value.array_value.values if value.HasField("array_value") else ():
        _tidy_value(item)
    for pair in value.kvlist_value.values if value.HasField("kvlist_value") else ():
        pair.value.SetInParent()
        _tidy_value(pair.value)


# -- plain requests --------------------------------------------------------------------------------------------


def request_of(*made: Span, service: str = "shop", scope: str = "tests") -> ExportTraceServiceRequest:
    """One resource, one scope, these spans."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.append(attribute("service.name", service))
    inside = group.scope_spans.add()
    inside.scope.name = scope
    inside.spans.extend(made)
    return request


def span(
    trace: int,
    number: int,
    parent: int | None = None,
    *,
    start: int = START,
    took: int = 1_000_001,
    name: str | None = None,
    **more: Any,
) -> Span:
    attributes = more.pop("attributes", {})
    return Span(
        trace_id=trace_id(trace),
        span_id=span_id(number),
        parent_span_id=b"" if parent is None else span_id(parent),
        name=f"op {number}" if name is None else name,
        start_time_unix_nano=start,
        end_time_unix_nano=start + took,
        attributes=[attribute(key, value) for key, value in attributes.items()],
        **more,
    )


def trace_id(number: int) -> bytes:
    """An id that looks random, so that ids spread over their range."""
    return random.Random(number).randbytes(16)


def span_id(number: int) -> bytes:
    return number.to_bytes(8)


def attribute(key: str, value: Any) -> KeyValue:
    return KeyValue(key=key, value=any_value(value))


def any_value(value: Any) -> AnyValue:
    match value:
        case None:
            return AnyValue()
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case list():
            return AnyValue(array_value=ArrayValue(values=[any_value(item) for item in value]))
    return AnyValue(kvlist_value=KeyValueList(values=[attribute(key, item) for key, item in value.items()]))


# -- the real SDK ----------------------------------------------------------------------------------------------


def recorded_by_sdk(service: str, work: Any) -> ExportTraceServiceRequest:
    """Run `work(tracer)` under the OpenTelemetry SDK and return what its exporter would send."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.resources import Resource as SdkResource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=SdkResource.create({"service.name": service, "service.version": "1.2.3"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    work(provider.get_tracer("tests.tracer", "0.1", attributes={"scope.kind": "test"}))
    provider.shutdown()
    return encode_spans(exporter.get_finished_spans())
