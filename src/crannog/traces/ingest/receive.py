"""Reads the body of a write request, of any content type, into rows of the span table."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from crannog.errors import CallerError, TooLarge
from crannog.formats.row_bodies import ENCODINGS, UNCOMPRESSED, decompressed
from crannog.traces.ingest.decode import parse_protobuf, resource_spans
from crannog.traces.ingest.flatten import span_rows
from crannog.traces.ingest.otlp_json import parse_otlp_json
from crannog.traces.ingest.span_validation import RejectedSpans
from crannog.traces.ingest.zipkin import parse_zipkin

PROTOBUF, JSON = "application/x-protobuf", "application/json"
ZIPKIN = "application/vnd.zipkin.v2+json"
"""Zipkin's JSON has no type of its own; its door says this one."""
_PROTOBUF_ALIAS = "application/protobuf"


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
    """Read the spans of a request.

    Raises CallerError if the body is invalid or its type is unknown, TooLarge if it has more than `limit` bytes.
    """
    content = _decompressed(body, (encoding or "").strip().lower(), limit)
    try:
        request = request_of(content, content_type)
        return ReceivedSpans(content, *span_rows(resource_spans(request)))
    except CallerError as error:
        raise type(error)(f"{error.message}; nothing was stored") from None


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
