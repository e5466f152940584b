"""Reads OTLP protobuf: the protobuf library checks it, ptars converts it to nested Arrow."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from crannog.errors import CallerError
from crannog.missing import needed_for


def parse_protobuf(body: bytes) -> ExportTraceServiceRequest:
    """Parse a request. Raises CallerError if the bytes are not valid."""
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
