"""Reads the body of a write request, of any content type, into rows of the span table.

OTLP in protobuf or JSON and Zipkin's JSON become one OTLP request. The protobuf library checks it, ptars converts it to
nested Arrow.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from crannog.errors import CallerError, TooLarge, needed_for
from crannog.formats.row_bodies import ENCODINGS, UNCOMPRESSED, decompressed
from crannog.formats.row_limits import JsonLimits
from crannog.traces.ingest.attributes import offsets_of
from crannog.traces.ingest.flatten import RejectedSpans, span_rows
from crannog.traces.ingest.message_count import ANY_BYTES, check_messages


def parse_protobuf(body: bytes) -> ExportTraceServiceRequest:
    """Parse a request. Raises CallerError if the bytes are not valid, TooLarge if it has too many messages."""
    if len(body) > ANY_BYTES:
        check_messages(body)
    try:
        request: ExportTraceServiceRequest = ExportTraceServiceRequest.FromString(body)
        return request
    except DecodeError as error:
        raise CallerError(
            f"the body of {len(body):,} bytes is not a valid OTLP ExportTraceServiceRequest in protobuf ({error})"
        ) from None


def resource_spans(request: ExportTraceServiceRequest) -> pa.Array:
    """Return the resource spans of a request as Arrow.

    ptars gets the request as protobuf serializes it, not the original bytes: it accepts some bytes that protobuf refuses,
    and reads repeated fields differently.
    """
    try:
        return _read(request)
    except ValueError:
        # Protobuf keeps unknown fields, some of which ptars cannot skip. They are not stored.
        request.DiscardUnknownFields()
    try:
        return _read(request)
    except ValueError as error:
        raise CallerError(f"the request cannot be read: {str(error)[:200]}") from None


def _read(request: ExportTraceServiceRequest) -> pa.Array:
    return _handler().list_to_record_batch([request.SerializeToString()]).column("resource_spans").flatten()


@cache
def _handler() -> Any:
    with needed_for("OTLP"):
        from ptars import HandlerPool

    return HandlerPool([ExportTraceServiceRequest.DESCRIPTOR.file]).get_for_message(
        ExportTraceServiceRequest.DESCRIPTOR
    )


_LARGE_JSON = 1 << 18
_IDS = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")


def parse_json(body: bytes, what: str) -> Any:
    """Parse JSON. Raises CallerError with the position of an error, TooLarge if it holds far more values than spans have."""
    is_large = len(body) > _LARGE_JSON
    if is_large:
        JsonLimits.of_size(len(body)).check(body, "the body")
    try:
        return json.loads(body, object_pairs_hook=_object if is_large else None)
    except (ValueError, RecursionError) as error:
        raise CallerError(f"the body of {len(body):,} bytes is not valid {what}: {str(error)[:200]}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Between two calls of a function other threads run; otherwise they would wait until all is parsed.
    return dict(pairs)


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


_KINDS = {
    "CLIENT": Span.SPAN_KIND_CLIENT,
    "SERVER": Span.SPAN_KIND_SERVER,
    "PRODUCER": Span.SPAN_KIND_PRODUCER,
    "CONSUMER": Span.SPAN_KIND_CONSUMER,
}
_STATUS = {"OK": Status.STATUS_CODE_OK, "ERROR": Status.STATUS_CODE_ERROR, "UNSET": Status.STATUS_CODE_UNSET}
_SCOPE_TAGS = (("otel.scope.name", "otel.library.name"), ("otel.scope.version", "otel.library.version"))
_MAX_UINT64 = 2**64 - 1


def parse_zipkin(body: bytes, *, now_ns: int) -> ExportTraceServiceRequest:
    """Parse a list of Zipkin spans. Raises CallerError if it is invalid.

    A span without any time starts now. The server's half of a shared span gets its own id, with the client's span as its
    parent, because span ids are unique in a trace.
    """
    document = parse_json(body, "JSON")
    if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
        raise CallerError("Zipkin v2 JSON must be an array of spans")
    request = ExportTraceServiceRequest()
    scopes: dict[tuple[str, str, str], Any] = {}
    for given in document:
        try:
            tags = {str(key): _text(value) for key, value in (given.get("tags") or {}).items()}
            service = _text(_endpoint(given, "localEndpoint").get("serviceName"))
            name, version = (next((tags.pop(key) for key in keys if key in tags), "") for keys in _SCOPE_TAGS)
            key = service, name, version
            if key not in scopes:
                scopes[key] = _scope(request, service, name, version)
            scopes[key].spans.append(_span(given, tags, now_ns))
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise CallerError(f"a span in the body is not a valid Zipkin span ({str(error)[:200]})") from None
    return request


def _scope(request: ExportTraceServiceRequest, service: str, name: str, version: str) -> Any:
    resource = request.resource_spans.add()
    if service:
        resource.resource.attributes.append(_pair("service.name", service))
    scope = resource.scope_spans.add()
    if name or version:
        scope.scope.name, scope.scope.version = name, version
    return scope


def _span(given: dict[str, Any], tags: dict[str, str], now_ns: int) -> Span:
    trace_id, span_id = _id(given.get("traceId"), 32), _id(given.get("id"), 16)
    parent = _id(given.get("parentId"), 16) if given.get("parentId") else b""
    if given.get("shared") and given.get("kind") == "SERVER" and len(span_id) == 8:
        parent, span_id = span_id, hashlib.blake2b(trace_id + span_id + b"server", digest_size=8).digest()
    annotations = [annotation for annotation in given.get("annotations") or [] if isinstance(annotation, dict)]
    start = (
        _us(given.get("timestamp"))
        or min((_us(annotation.get("timestamp")) for annotation in annotations), default=0)
        or now_ns // 1000
    )
    span = Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_span_id=parent,
        name=_text(given.get("name")),
        kind=_KINDS.get(_text(given.get("kind")), Span.SPAN_KIND_INTERNAL),
        start_time_unix_nano=min(start * 1000, _MAX_UINT64),
        end_time_unix_nano=min((start + _us(given.get("duration"))) * 1000, _MAX_UINT64),
        trace_state=tags.pop("w3c.tracestate", ""),
    )
    _set_status(span, tags)
    span.attributes.extend(_pair(key, value) for key, value in tags.items())
    _add_endpoint(span, _endpoint(given, "localEndpoint"), "net.host", None)
    _add_endpoint(span, _endpoint(given, "remoteEndpoint"), "net.peer", "peer.service")
    for annotation in annotations:
        span.events.add(
            time_unix_nano=min(_us(annotation.get("timestamp")) * 1000, _MAX_UINT64),
            name=_text(annotation.get("value")),
        )
    return span


def _set_status(span: Span, tags: dict[str, str]) -> None:
    code = tags.pop("otel.status_code", "").upper()
    message = tags.pop("otel.status_description", "")
    span.status.code = _STATUS.get(code, Status.STATUS_CODE_UNSET)
    error = tags.get("error", "false")
    if error.lower() != "false" and span.status.code != Status.STATUS_CODE_OK:
        # Zipkin marks an error by this tag, which may have a message and stays an attribute. OpenTelemetry's exporters
        # also send the status code, but the message only in this tag.
        span.status.code = Status.STATUS_CODE_ERROR
        message = message or (error if error.lower() != "true" else "")
    if message:
        span.status.message = message


def _add_endpoint(span: Span, endpoint: dict[str, Any], prefix: str, service_key: str | None) -> None:
    if service_key and endpoint.get("serviceName"):
        span.attributes.append(_pair(service_key, _text(endpoint["serviceName"])))
    for name in ("ipv4", "ipv6"):
        if endpoint.get(name):
            span.attributes.append(_pair(f"{prefix}.ip", _text(endpoint[name])))
            break
    if endpoint.get("port"):
        port = KeyValue(key=f"{prefix}.port")
        port.value.int_value = int(endpoint["port"])
        span.attributes.append(port)


def _pair(key: str, value: str) -> KeyValue:
    pair = KeyValue(key=key)
    pair.value.string_value = value
    return pair


def _endpoint(given: dict[str, Any], name: str) -> dict[str, Any]:
    found = given.get(name)
    return found if isinstance(found, dict) else {}


def _id(given: Any, digits: int) -> bytes:
    """Return an id padded to its full length, as Zipkin's may be shorter; invalid ids become bytes that are rejected."""
    return bytes_of_hex(given.rjust(digits, "0")) if isinstance(given, str) and given else b""


def _us(given: Any) -> int:
    return max(int(given), 0) if given else 0


def _text(given: Any) -> str:
    return "" if given is None else given if isinstance(given, str) else str(given)


PROTOBUF, JSON = "application/x-protobuf", "application/json"
ZIPKIN = "application/vnd.zipkin.v2+json"
"""Zipkin's JSON has no type of its own; its door says this one."""
_PROTOBUF_ALIAS = "application/protobuf"


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """The decompressed body of a request, and the message in it."""

    body: bytes
    message: ExportTraceServiceRequest


ConvertedSpans = tuple[pa.Table, RejectedSpans]
"""The valid spans of a request as rows, and the rejected ones."""


@dataclass(frozen=True, slots=True)
class ReceivedSpans:
    """The decompressed body, its valid spans as rows, and the rejected spans."""

    body: bytes
    rows: pa.Table
    rejected: RejectedSpans


def media_type(content_type: str) -> str:
    """Return a content type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def read_request(
    body: bytes, *, content_type: str = PROTOBUF, encoding: str | None = None, limit: int
) -> ReceivedSpans:
    """Read the spans of a request. Raises as `parsed_request`."""
    request = parsed_request(body, content_type=content_type, encoding=encoding, limit=limit)
    try:
        return ReceivedSpans(request.body, *converted(request))
    except CallerError as error:
        raise not_stored(error) from None


def parsed_request(body: bytes, *, content_type: str, encoding: str | None, limit: int) -> ParsedRequest:
    """Parse the body of a request.

    Raises CallerError if it is invalid or its type is unknown, TooLarge if it has more than `limit` bytes.
    """
    content = _decompressed(body, (encoding or "").strip().lower(), limit)
    try:
        return ParsedRequest(content, request_of(content, content_type))
    except CallerError as error:
        raise not_stored(error) from None


def not_stored(error: CallerError) -> CallerError:
    """Return an error of a request that says that nothing of it was stored."""
    return type(error)(f"{error.message}; nothing was stored")


def converted(request: ParsedRequest) -> ConvertedSpans:
    """Convert one request to rows. Raises CallerError."""
    return span_rows(resource_spans(request.message))


def converted_together(requests: Sequence[ParsedRequest]) -> list[ConvertedSpans] | None:
    """Convert requests to rows as `converted` does each of them; None if one needs to be looked at by itself."""
    messages = [request.message.SerializeToString() for request in requests]
    try:
        lists = _handler().list_to_record_batch(messages).column("resource_spans")
        rows, rejected = span_rows(lists.flatten())
    except (ValueError, CallerError):
        return None
    if rejected.count:
        return None
    resources = lists.flatten().field("scope_spans")
    scopes = resources.flatten().field("spans")
    ends = offsets_of(scopes).take(offsets_of(resources).take(offsets_of(lists))).to_pylist()
    return [(rows.slice(start, end - start), rejected) for start, end in pairwise(ends)]


def request_of(body: bytes, content_type: str) -> ExportTraceServiceRequest:
    """Read an OTLP request from an uncompressed body. Raises CallerError if it cannot be read."""
    kind = media_type(content_type)
    if kind in (PROTOBUF, _PROTOBUF_ALIAS):
        return parse_protobuf(body)
    if kind == JSON:
        return parse_otlp_json(body)
    if kind == ZIPKIN:
        return parse_zipkin(body, now_ns=time.time_ns())
    raise CallerError(f"content type {content_type!r} is not supported; send {PROTOBUF} or {JSON}")


def _decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    if encoding in ENCODINGS:
        return decompressed(body, encoding, limit)
    if encoding not in UNCOMPRESSED:
        raise CallerError(f"content encoding {encoding!r} is not supported; use {', '.join(ENCODINGS)} or none")
    if len(body) > limit:
        raise TooLarge(f"the request has more than {limit:,} bytes, the limit; send fewer spans per request")
    return body
