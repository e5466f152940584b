"""Reads and writes OTLP in JSON: protobuf's JSON form, except that ids are hexadecimal."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from crannog.errors import CallerError

_IDS = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")


def parse_json(body: bytes, what: str) -> Any:
    """Parse JSON. Raises CallerError with the position of an error."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise CallerError(f"the body of {len(body):,} bytes is not valid {what}: {str(error)[:200]}") from None


def parse_otlp_json(body: bytes) -> ExportTraceServiceRequest:
    """Parse a request, ignoring unknown fields. Ids that are not hexadecimal become empty, so that their spans are rejected."""
    document = parse_json(body, "JSON")
    if not isinstance(document, dict):
        raise CallerError(f"an OTLP request must be a JSON object with resourceSpans, got {_json_type_name(document)}")
    for holder in _spans_and_links(document):
        for name in _IDS:
            if name in holder:
                holder[name] = _base64_of_hex(holder[name])
    try:
        request = ExportTraceServiceRequest()
        json_format.ParseDict(document, request, ignore_unknown_fields=True)
        return request
    # Values of unexpected types raise various errors.
    except (json_format.ParseError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CallerError(f"the JSON is not a valid OTLP request: {str(error)[:300]}") from None


def json_of_request(request: ExportTraceServiceRequest) -> dict[str, Any]:
    """Return a request as OTLP JSON: ids in hexadecimal, enums as numbers, 64-bit integers as text."""
    document: dict[str, Any] = json_format.MessageToDict(request, use_integers_for_enums=True)
    for holder in _spans_and_links(document):
        for name in _IDS:
            if name in holder:
                holder[name] = base64.b64decode(holder[name]).hex()
    return document


def _spans_and_links(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every span and link."""
    for resource in _listed(document, "resourceSpans", "resource_spans"):
        for scope in _listed(resource, "scopeSpans", "scope_spans"):
            for span in _listed(scope, "spans"):
                yield span
                yield from _listed(span, "links")


def _listed(holder: dict[str, Any], *names: str) -> Iterator[dict[str, Any]]:
    for name in names:
        found = holder.get(name)
        if isinstance(found, list):
            yield from (item for item in found if isinstance(item, dict))


def _base64_of_hex(given: Any) -> str:
    return base64.b64encode(bytes_of_hex(given)).decode()


def bytes_of_hex(given: Any) -> bytes:
    """Return the bytes of hexadecimal text; empty if it is invalid."""
    try:
        return binascii.unhexlify(given) if isinstance(given, str) else b""
    except ValueError:
        return b""


def _json_type_name(value: Any) -> str:
    kinds: dict[Callable[..., Any], str] = {list: "an array", str: "text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")
