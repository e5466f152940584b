"""OTLP bytes, checked once by the protobuf library and read into nested Arrow by ptars."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from crannog.errors import CallerError
from crannog.missing import needed_for


def parse_protobuf(body: bytes) -> ExportTraceServiceRequest:
    """Read a request; CallerError if the bytes are none."""
    try:
        request: ExportTraceServiceRequest = ExportTraceServiceRequest.FromString(body)
        return request
    except DecodeError as error:
        raise CallerError(
            f"the body of {len(body):,} bytes is no OTLP ExportTraceServiceRequest in protobuf ({error})"
        ) from None


def resource_spans(request: ExportTraceServiceRequest) -> pa.Array:
    """Return the request's resource spans as Arrow.

    ptars is given what protobuf writes of it, not what came in: there it is lax, takes some bytes that protobuf
    refuses and reads fields that were sent twice in its own way.
    """
    try:
        return _read(request)
    except ValueError:
        # Protobuf carries fields along that it does not know, some of which ptars does not even skip. We keep none.
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
