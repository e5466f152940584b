"""OTLP over HTTP, and Zipkin's v2 JSON: the routes of spans, in the same middleware as the API.

Ids, limits, bodies, metrics and log lines are those of every request. Responses and errors follow the protocol: a
`google.rpc.Status` in the encoding of the request, and plain text for a wrong path, method or content type.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from crannog.api.traces.requests import WriteSpans
from crannog.errors import (
    CallerError,
    Conflict,
    CrannogError,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    Overloaded,
    TimedOut,
    TooLarge,
    Unauthorized,
    Unavailable,
    UnsupportedMedia,
)
from crannog.formats.row_bodies import ENCODINGS
from crannog.server.middleware import RequestMiddleware
from crannog.server.requests import Call
from crannog.server.scopes import Caller
from crannog.server.service import Service
from crannog.traces.span_table import SPANS

if TYPE_CHECKING:
    from crannog.api.traces import WriteOutcome

LANGFUSE_TRACES = "/api/public/otel/v1/traces"


def bearer_of(authorization: str) -> str:
    """Return Basic credentials as a bearer token: the password is the token, and the user name is ignored.

    Langfuse's public key is the user, its secret key the password. Any other header is returned as it is.
    """
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() != "basic":
        return authorization
    try:
        _, _, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
    except ValueError:  # not base64, beyond ASCII, or not UTF-8
        password = ""
    return f"Bearer {password}"


_PROTOBUF, _PROTOBUF_TOO, _JSON = "application/x-protobuf", "application/protobuf", "application/json"
_ZIPKIN = "application/vnd.zipkin.v2+json"
_TEXT = "text/plain; charset=utf-8"


class _Route(NamedTuple):
    """A path that takes spans, with the name and path that metrics and log lines show."""

    path: str
    name: str
    media_types: tuple[str, ...]


_ROUTES = {
    route.path: route
    for route in (
        _Route("/v1/traces", "otlp", (_PROTOBUF, _PROTOBUF_TOO, _JSON)),
        _Route(LANGFUSE_TRACES, "langfuse", (_PROTOBUF, _PROTOBUF_TOO, _JSON)),
        _Route("/api/v2/spans", "zipkin", (_JSON,)),
    )
}


def otlp_app(service: Service) -> ASGIApp:
    """Return the application that receives spans."""
    return _OtlpMiddleware(_SpanRoutes(service), service)


class _OtlpMiddleware(RequestMiddleware):
    open_paths = frozenset()

    def error_response(self, scope: Scope, error: CrannogError) -> Response:
        media_type = _media_type(scope["crannog.call"])
        headers = {"retry-after": str(max(1, round(retry_s(error))))} if may_retry(error) else {}
        if error.http_status == 401:
            headers["www-authenticate"] = "Bearer"
        route = _ROUTES.get(scope["path"])
        if route is None or media_type not in route.media_types or isinstance(error, MethodNotAllowed):
            if isinstance(error, MethodNotAllowed):
                headers["allow"] = "POST"
            return Response(f"{error.message}\n", http_status_of(error), headers, _TEXT)
        body = status_json(error) if media_type == _JSON else status_of(error).SerializeToString()
        return Response(body, http_status_of(error), headers, media_type)

    def authorization(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str:
        given = headers.get(b"authorization", b"").decode("latin-1")
        return bearer_of(given) if scope["path"] == LANGFUSE_TRACES else given

    def audit(self, call: Call, path: str, verb: str) -> None:
        self._service.audit.sum_up(call, verb)


class _SpanRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, call = self._service, scope["crannog.call"]
        scope["route"] = route = _ROUTES.get(scope["path"])
        if route is None:
            raise NotFound(f"there is no {scope['path'][:200]} here; spans go to {', '.join(_ROUTES)}")
        if scope["method"] != "POST":
            raise MethodNotAllowed(f"{route.path} takes POST, not {scope['method'][:20]}")
        media_type = _media_type(call)
        if media_type not in route.media_types:
            raise UnsupportedMedia(
                f"content type {media_type[:80]!r} is not supported; send {' or '.join(route.media_types)}"
            )
        call.need("ingest", SPANS)
        body = await service.bodies.receive(call, receive, service.bodies.spans)
        if not body and b"content-length" not in call.headers and b"transfer-encoding" not in call.headers:
            raise CallerError("the request has no body; send Content-Length: 0 for a message without spans")
        encoding = call.header(b"content-encoding").strip().lower()
        is_zipkin = route.name == "zipkin"
        content_type = _ZIPKIN if is_zipkin else media_type

        def write() -> WriteOutcome:
            if encoding not in ENCODINGS:
                return write_spans(service, body, content_type, encoding)
            message = service.bodies.decompressed(call, body, encoding, service.bodies.spans)
            return write_spans(service, message, content_type, None)

        outcome = await service.threads.run("write", write)
        call.rows, call.rejected = outcome.accepted, outcome.rejected
        if is_zipkin:
            await _send(send, 202, b"", _TEXT)
        else:
            await _send(send, 200, _json(outcome) if media_type == _JSON else response_message(outcome), media_type)


def _media_type(call: Call) -> str:
    return call.header(b"content-type").partition(";")[0].strip().lower()


def _json(outcome: WriteOutcome) -> bytes:
    if not outcome.rejected:
        return b"{}"
    partial = {"rejectedSpans": str(outcome.rejected), "errorMessage": outcome.message}
    return json.dumps({"partialSuccess": partial}).encode()


def response_message(outcome: WriteOutcome) -> bytes:
    """Return the response in protobuf: empty if every span was accepted."""
    if not outcome.rejected:
        return b""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTracePartialSuccess,
        ExportTraceServiceResponse,
    )

    partial = ExportTracePartialSuccess(rejected_spans=outcome.rejected, error_message=outcome.message)
    return bytes(ExportTraceServiceResponse(partial_success=partial).SerializeToString())


async def _send(send: Send, status: int, body: bytes, content_type: str) -> None:
    # Written without a response object, which would take as long as the rest of the middleware.
    headers = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


_VERB = "spans"


def keep(service: Service, caller: Caller, body: bytes, content_type: str, encoding: str | None) -> WriteOutcome:
    """Check that the caller may write spans, then write those of a request."""
    caller.check("ingest", [SPANS])
    return write_spans(service, body, content_type, encoding)


def write_spans(service: Service, body: bytes, content_type: str, encoding: str | None) -> WriteOutcome:
    """Write the spans of a request; durable when it returns."""
    started = time.perf_counter()
    result, rows = "kept", 0
    try:
        outcome = service.lake.trace_store.write(WriteSpans(body, content_type, encoding))
        rows = 0 if outcome.duplicate else outcome.accepted
        result = "duplicate" if outcome.duplicate else "kept"
        return outcome
    except CrannogError as error:
        result = error.code
        raise
    finally:
        service.metrics.write(_VERB, result, rows, time.perf_counter() - started)


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
