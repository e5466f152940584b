"""OTLP over HTTP, and Zipkin's v2 JSON: the routes of spans, in the same middleware as the API.

Ids, limits, bodies, metrics and log lines are those of every request. Responses and errors follow the protocol: a
`google.rpc.Status` in the encoding of the request, and plain text for a wrong path, method or content type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from crannog.errors import CallerError, CrannogError, MethodNotAllowed, NotFound, UnsupportedMedia
from crannog.formats.row_bodies import UNCOMPRESSED
from crannog.server.bodies import BodyLimit
from crannog.server.middleware import RequestMiddleware
from crannog.server.otlp.langfuse import LANGFUSE_TRACES, bearer_of
from crannog.server.otlp.otlp_errors import http_status_of, may_retry, retry_s, status_json, status_of
from crannog.server.otlp.span_writes import write_spans
from crannog.server.request_context import Call
from crannog.server.service import Service
from crannog.traces.span_table import SPANS

if TYPE_CHECKING:
    from crannog.api.traces import WriteOutcome

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

    def is_audited(self, path: str, status: int) -> bool:
        return False  # a row for each batch would be as much writing as the batches


class _SpanRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._limit = BodyLimit(service.settings.otlp_request_bytes, "CRANNOG_OTLP_REQUEST_BYTES")

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
        call.need("write", SPANS)
        body = await service.bodies.receive(call, receive, self._limit)
        if not body and b"content-length" not in call.headers and b"transfer-encoding" not in call.headers:
            raise CallerError("the request has no body; send Content-Length: 0 for a message without spans")
        encoding = call.header(b"content-encoding").strip().lower()
        if encoding not in UNCOMPRESSED:
            service.bodies.hold_for_decompression(call, len(body), self._limit)
        is_zipkin = route.name == "zipkin"
        content_type = _ZIPKIN if is_zipkin else media_type
        outcome = await service.threads.run("write", lambda: write_spans(service, body, content_type, encoding))
        call.rows = outcome.accepted
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
