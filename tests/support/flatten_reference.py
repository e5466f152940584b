"""The same table as `flatten` makes, span by span from protobuf's objects: slow, plain, and what the tests compare with."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from crannog.traces.attribute_values import WORD_SEPARATOR, escaped_name, escaped_value, repeated_key_json, to_json
from crannog.traces.ingest.flatten import REASONS, RejectedSpans, entity_refs_text, rejection_reason
from crannog.traces.ingest.llm_dialects import (
    AGGREGATE_MARKERS,
    COLUMN_KEYS,
    COST_COLUMNS,
    COST_PATTERN,
    COUNT_COLUMNS,
    COUNT_PATTERN,
    JSON_KEYS,
    MESSAGE_KEYS,
    PAYLOAD_COLUMNS,
    QUOTED_PATTERN,
    TOTAL_COLUMNS,
    USAGE_KEYS,
    conversation_json,
    payload_json,
    usage_number,
)
from crannog.traces.span_table import SCHEMA, SPAN_KINDS, UNKNOWN_SERVICE

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
Triple = tuple[str, str, bool]


def flat_by_objects(request: ExportTraceServiceRequest) -> tuple[pa.Table, RejectedSpans]:
    """Return the spans of a request that can be kept as a table of `SCHEMA`, and what was rejected."""
    rows = []
    counts: dict[str, int] = {}
    for resource_spans in request.resource_spans:
        shared = _of_resource(resource_spans)
        for scope_spans in resource_spans.scope_spans:
            scoped = shared | _of_scope(scope_spans)
            for span in scope_spans.spans:
                reason = rejection_reason(
                    span.trace_id, span.span_id, span.parent_span_id, span.start_time_unix_nano, span.end_time_unix_nano
                )
                if reason is None:
                    rows.append(_row(span, scoped))
                else:
                    counts[reason] = counts.get(reason, 0) + 1
    ordered = {reason: counts[reason] for reason in REASONS if reason in counts}
    return pa.Table.from_pylist(rows, schema=SCHEMA), RejectedSpans(ordered)


def _of_resource(resource_spans: Any) -> dict[str, Any]:
    resource = resource_spans.resource
    names = [text for key, text, _ in triples(resource.attributes) if key == "service.name"]
    return {
        "service_name": (names[-1] if names else "") or UNKNOWN_SERVICE,
        "resource_attributes": pairs(resource.attributes) if resource_spans.HasField("resource") else None,
        "resource_dropped_attributes_count": resource.dropped_attributes_count,
        "resource_schema_url": resource_spans.schema_url or None,
        "resource_entity_refs": _entity_refs(resource),
    }


def _entity_refs(resource: Resource) -> str | None:
    empty = {"schema_url": "", "type": "", "id_keys": [], "description_keys": []}
    refs = [empty | json_format.MessageToDict(ref, preserving_proto_field_name=True) for ref in resource.entity_refs]
    return entity_refs_text(refs) if refs else None


def _of_scope(scope_spans: Any) -> dict[str, Any]:
    scope = scope_spans.scope
    return {
        "scope_name": scope.name,
        "scope_version": scope.version or None,
        "scope_attributes": pairs(scope.attributes) if scope_spans.HasField("scope") else None,
        "scope_dropped_attributes_count": scope.dropped_attributes_count,
        "scope_schema_url": scope_spans.schema_url or None,
    }


def _row(span: Span, shared: dict[str, Any]) -> dict[str, Any]:
    start, reported = span.start_time_unix_nano, span.end_time_unix_nano
    end = max(start, reported)
    found = triples(span.attributes)
    parent = span.parent_span_id
    return {
        **shared,
        **llm_columns_of_span(found),
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_span_id": parent if any(parent) else None,
        "flags": span.flags,
        "trace_state": span.trace_state,
        "span_name": span.name,
        "span_kind": SPAN_KINDS[span.kind] if 0 < span.kind < len(SPAN_KINDS) else None,
        "start_time": _instant(start),
        "end_time": _instant(end),
        "duration_ms": (end - start) // 1_000_000,
        "status_code": span.status.code,
        "status_message": span.status.message or None,
        "attributes": pairs(span.attributes),
        "events": [_event(event) for event in span.events],
        "links": [_link(link) for link in span.links],
        "search_blob": _blob(span, shared, found),
        "partition_date": _instant(start).date(),
        "start_ns": start,
        "end_ns": end,
        "duration_ns": end - start,
        "reported_end_ns": reported if reported < start else None,
        "trace_hi": int.from_bytes(span.trace_id[:8], signed=True),
        "start_minute": start // 60_000_000_000,
        "kind": span.kind,
        "dropped_attributes_count": span.dropped_attributes_count,
        "dropped_events_count": span.dropped_events_count,
        "dropped_links_count": span.dropped_links_count,
    }


def _event(event: Span.Event) -> dict[str, Any]:
    time_ns = _signed(event.time_unix_nano)
    return {
        "name": event.name,
        "timestamp": _instant(time_ns),
        "time_ns": time_ns,
        "attributes": pairs(event.attributes),
        "dropped_attributes_count": event.dropped_attributes_count,
    }


def _link(link: Span.Link) -> dict[str, Any]:
    return {
        "trace_id": link.trace_id,
        "span_id": link.span_id,
        "trace_state": link.trace_state,
        "attributes": pairs(link.attributes),
        "dropped_attributes_count": link.dropped_attributes_count,
        "flags": link.flags,
    }


def _blob(span: Span, shared: dict[str, Any], found: Sequence[Triple]) -> str:
    words = [escaped_name(shared["service_name"]), escaped_name(span.name), escaped_name(shared["scope_name"])]
    if span.status.message:
        words.append(escaped_name(span.status.message))
    words += [f"{escaped_name(key)}={escaped_value(text)}" for key, text, _ in found]
    words += [escaped_name(event.name) for event in span.events]
    return f"|{WORD_SEPARATOR.join(words)}|"


def triples(attributes: Iterable[KeyValue]) -> list[Triple]:
    """Return each attribute's key, its value in words, and whether it is text."""
    found = []
    for attribute in attributes:
        is_text = attribute.value.HasField("string_value")
        as_json = to_json(attribute.value)
        text = attribute.value.string_value if is_text else "" if as_json == "null" else as_json
        found.append((attribute.key, text, is_text))
    return found


def pairs(attributes: Iterable[KeyValue]) -> list[tuple[str, str]]:
    """Return attributes as they are kept; a key sent more than once has all its values."""
    found: dict[str, list[str]] = {}
    for attribute in attributes:
        found.setdefault(attribute.key, []).append(to_json(attribute.value))
    return [(key, texts[0] if len(texts) == 1 else repeated_key_json(texts)) for key, texts in found.items()]


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _instant(nanoseconds: int) -> dt.datetime:
    microseconds = abs(nanoseconds) // 1000 * (1 if nanoseconds >= 0 else -1)
    return _EPOCH + dt.timedelta(microseconds=microseconds)


def llm_columns_of_span(attributes: Sequence[tuple[str, str, bool]]) -> dict[str, str | int | float | None]:
    """Return the value of each column from the attributes (key, text, is it text) of one span."""
    columns: dict[str, str | int | float | None] = dict.fromkeys(COLUMN_KEYS)
    for column, keys in COLUMN_KEYS.items():
        for wanted in keys:
            candidates = ((_text_for(column, key, text), is_text) for key, text, is_text in attributes if key == wanted)
            found = [(text, is_text) for text, is_text in candidates if is_usable(column, text)]
            if found:
                text, is_text = found[-1]
                if column in PAYLOAD_COLUMNS:
                    columns[column] = payload_json(text, is_text=is_text, is_json=wanted in JSON_KEYS)
                elif column in COUNT_COLUMNS:
                    columns[column] = int(text.removesuffix(".0"))
                else:
                    columns[column] = float(text) if column in COST_COLUMNS else text
                break
    for column, pattern in MESSAGE_KEYS.items():
        if columns[column] is None:
            columns[column] = conversation_json(attributes, pattern)
    if any(marks_aggregate(key, text) for key, text, _ in attributes):
        for total, own in TOTAL_COLUMNS.items():
            columns[total] = columns[own] if columns[total] is None else columns[total]
            columns[own] = None
    return columns


def _text_for(column: str, key: str, text: str) -> str:
    if key in USAGE_KEYS:
        return usage_number(text, column)
    inner = re.fullmatch(QUOTED_PATTERN, text) if key in JSON_KEYS and column not in PAYLOAD_COLUMNS else None
    return text if inner is None else inner[1]


def marks_aggregate(key: str, text: str) -> bool:
    """Return whether an attribute marks a span that stands for several calls, or none."""
    if key not in AGGREGATE_MARKERS:
        return False
    values = AGGREGATE_MARKERS[key]
    return values is None or text in values


def is_usable(column: str, text: str) -> bool:
    """Return whether a column accepts a value: not empty, an integer for a count, a number of 0 or more for a cost."""
    if column in COUNT_COLUMNS:
        return bool(re.fullmatch(COUNT_PATTERN, text))
    return bool(re.fullmatch(COST_PATTERN, text)) if column in COST_COLUMNS else bool(text)
