"""What an OTLP client is told: the response, or google.rpc.Status, in the encoding it spoke.

The two small messages of google.rpc are written by hand, so that a server needs no further package for them.
"""

from __future__ import annotations

import json

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from crannog.errors import CallerError, CrannogError, Overloaded, TooLarge, Unavailable
from crannog.traces.otlp.receive import JSON, media_type

INVALID_ARGUMENT, RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE = 3, 8, 13, 14
"""Codes of gRPC."""

_RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"


def response(rejected: int, message: str) -> ExportTraceServiceResponse:
    """Return the answer to a request that was taken; `partial_success` is set only where spans were rejected."""
    answer = ExportTraceServiceResponse()
    if rejected:
        answer.partial_success.rejected_spans = rejected
        answer.partial_success.error_message = message
    return answer


def response_body(rejected: int, message: str, content_type: str) -> bytes:
    """Return the body of the answer, in JSON to a client that sent JSON and in protobuf otherwise."""
    if media_type(content_type) != JSON:
        return bytes(response(rejected, message).SerializeToString())
    said = {"partialSuccess": {"rejectedSpans": str(rejected), "errorMessage": message}} if rejected else {}
    return json.dumps(said, ensure_ascii=False).encode()


def grpc_code(error: CrannogError) -> int:
    """Return gRPC's code of an error; only UNAVAILABLE makes a client send the same again."""
    if isinstance(error, TooLarge):
        return RESOURCE_EXHAUSTED
    if isinstance(error, CallerError):
        return INVALID_ARGUMENT
    return UNAVAILABLE if error.retryable and isinstance(error, (Overloaded, Unavailable)) else INTERNAL


def status(error: CrannogError) -> bytes:
    """Return google.rpc.Status in protobuf, with RetryInfo where the client may try again."""
    code = grpc_code(error)
    message = _bytes_field(2, error.message.encode())
    details = b""
    if code == UNAVAILABLE:
        details = _bytes_field(3, _bytes_field(1, _RETRY_INFO) + _bytes_field(2, _bytes_field(1, _duration(error.retry_after_s or 1.0))))
    return _number_field(1, code) + message + details


def status_body(error: CrannogError, content_type: str) -> bytes:
    """Return the body of a refusal, in the client's encoding."""
    if media_type(content_type) != JSON:
        return status(error)
    return json.dumps({"code": grpc_code(error), "message": error.message}, ensure_ascii=False).encode()


def _duration(seconds: float) -> bytes:
    whole = int(seconds)
    return _number_field(1, whole) + _number_field(2, int((seconds - whole) * 1e9))


def _number_field(field: int, number: int) -> bytes:
    return bytes([field << 3]) + _varint(number)


def _bytes_field(field: int, data: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
