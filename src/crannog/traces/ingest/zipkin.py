"""Converts Zipkin v2 JSON to an OTLP request, which is then read like any other."""

from __future__ import annotations

import hashlib
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from crannog.errors import CallerError
from crannog.traces.ingest.otlp_json import bytes_of_hex, parse_json

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
