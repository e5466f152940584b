"""Errors as OTLP defines them: HTTP statuses that clients retry or not, gRPC codes, and `google.rpc.Status`."""

from __future__ import annotations

import json
from typing import Any

from crannog.errors import (
    CallerError,
    Conflict,
    CrannogError,
    Forbidden,
    Overloaded,
    TimedOut,
    TooLarge,
    Unauthorized,
    Unavailable,
)

INVALID_ARGUMENT, DEADLINE_EXCEEDED, PERMISSION_DENIED, RESOURCE_EXHAUSTED = 3, 4, 7, 8
UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 12, 13, 14, 16
# Statuses that clients of the protocol retry; they give up on most others.
_SERVICE_UNAVAILABLE, _GATEWAY_TIMEOUT = 503, 504


class Unimplemented(CallerError):
    """A method or a compression that this server does not have; gRPC has its own code for it."""


_CODES: tuple[tuple[type[CrannogError], int], ...] = (
    (Unimplemented, UNIMPLEMENTED),
    (TooLarge, RESOURCE_EXHAUSTED),
    (Unauthorized, UNAUTHENTICATED),
    (Forbidden, PERMISSION_DENIED),
    (CallerError, INVALID_ARGUMENT),
    # Clients retry this one; they give up on RESOURCE_EXHAUSTED without a delay.
    (Overloaded, UNAVAILABLE),
    (TimedOut, DEADLINE_EXCEEDED),
    (Conflict, UNAVAILABLE),
    (Unavailable, UNAVAILABLE),
)
_RETRY_S = 1.0


def code_of(error: CrannogError) -> int:
    """Return the gRPC code of an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), INTERNAL)


def http_status_of(error: CrannogError) -> int:
    """Return the HTTP status of an error: one that clients retry where that helps."""
    if isinstance(error, TimedOut):
        return _GATEWAY_TIMEOUT
    return _SERVICE_UNAVAILABLE if isinstance(error, Conflict) else error.http_status


def may_retry(error: CrannogError) -> bool:
    """Return whether the same request may succeed later."""
    return code_of(error) in (UNAVAILABLE, DEADLINE_EXCEEDED)


def retry_s(error: CrannogError) -> float:
    """Return the seconds after which a client should retry."""
    return error.retry_after_s or _RETRY_S


def status_of(error: CrannogError) -> Any:
    """Return an error as a `google.rpc.Status`, with the delay of a retry where one helps."""
    from google.protobuf.any_pb2 import Any as Packed
    from google.protobuf.duration_pb2 import Duration
    from google.rpc.error_details_pb2 import RetryInfo
    from google.rpc.status_pb2 import Status

    status = Status(code=code_of(error), message=error.message)
    if may_retry(error):
        wait = Duration()
        wait.FromNanoseconds(int(retry_s(error) * 1e9))
        detail = Packed()
        detail.Pack(RetryInfo(retry_delay=wait))
        status.details.append(detail)
    return status


def status_json(error: CrannogError) -> bytes:
    """Return an error as the JSON form of a `google.rpc.Status`."""
    return json.dumps({"code": code_of(error), "message": error.message}).encode()
