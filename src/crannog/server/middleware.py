"""The layers around all routes: the id, caller, limits, errors and record of a request; compression; spans of the server itself.

Plain ASGI layers: one that wraps requests and responses in objects would cost as much as a small write.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import anyio.to_thread
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crannog.errors import CrannogError, Forbidden, Overloaded, Refused, Unauthorized, Unavailable, needed_for
from crannog.server.admission import admitted
from crannog.server.requests import Call
from crannog.server.responses import error_answer
from crannog.server.routes.pages import is_page
from crannog.server.scopes import NOBODY, Caller
from crannog.server.service import Service
from crannog.server.sessions import check_same_origin, session_of
from crannog.settings import Settings

log = logging.getLogger("crannog.server")
_VALID_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,128}")
# A token may have been put in the place of a name.
_TOKEN = re.compile(r"crannog_[A-Za-z0-9\-]+_[0-9a-f]{16,}")
_OPEN = frozenset({"/healthz", "/readyz", "/api/docs", "/api/openapi.json"})
_NOT_LOGGED = frozenset({"/healthz", "/readyz", "/metrics"})
_REFUSALS = (Unauthorized.http_status, Forbidden.http_status, Overloaded.http_status)
_SESSION = "/api/v1/session"
_SESSION_PATHS = "/api/v1/"
_CLIENT_CLOSED = 499
_SENT_AT_ONCE = 1 << 14
_LOGGED_PATH = 1_000


class Stalled(Exception):
    """The client stopped reading its response."""


@dataclass(slots=True)
class _Reply:
    """Sends the response of a call, with the id of the request. Raises Stalled if the client stops reading."""

    send: Send
    call: Call
    is_head: bool
    stall_s: float

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.call.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self.call.request_id.encode())]
            await self.send(message)
            return
        if self.is_head:
            message = {**message, "body": b""}
        if not message.get("more_body") and len(message.get("body", b"")) < _SENT_AT_ONCE:
            await self.send(message)  # fits into the socket's buffer
            return
        try:
            async with asyncio.timeout(self.stall_s):
                await self.send(message)
        except TimeoutError:
            raise Stalled from None


class RequestMiddleware:
    """The outermost layer; a protocol with another form of errors or of credentials overrides those methods."""

    open_paths = _OPEN

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    def error_response(self, scope: Scope, error: CrannogError) -> Response:
        """Return the response to a request that failed."""
        return error_answer(error)

    def authorization(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str:
        """Return the credentials of a request as the value of an Authorization header."""
        return headers.get(b"authorization", b"").decode("latin-1")

    def audit(self, call: Call, path: str, verb: str) -> None:
        """Record a request to a route in the audit, if it is one that counts; what strangers send only in sums."""
        is_recorded = path.startswith(("/api/", "/query/")) and path not in self.open_paths
        if call.caller is NOBODY:
            if is_recorded or call.status in _REFUSALS:
                self._service.audit.sum_up(call, verb)
        elif is_recorded or call.status == Forbidden.http_status:
            self._service.audit.note(call, verb)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        service = self._service
        headers = dict(scope["headers"])
        sent_id = headers.get(b"x-request-id", b"")
        request_id = sent_id.decode() if _VALID_ID.fullmatch(sent_id) else os.urandom(16).hex()
        client = scope.get("client")
        call = scope["crannog.call"] = Call(service, request_id, NOBODY, client[0] if client else "", headers)
        is_head = scope["method"] == "HEAD"
        # Every route that takes GET takes HEAD too: the same work and head, and no body.
        inner = {**scope, "method": "GET"} if is_head else scope
        reply = _Reply(send, call, is_head, service.settings.http_stall_s)
        with service.requests_lock:
            service.requests += 1
            running = service.requests
        try:
            if running > service.settings.http_requests:
                raise Overloaded(
                    f"{running - 1:,} requests are being served, which is the limit; try again shortly", retry_after_s=1
                )
            call.caller = await self._admitted(scope, headers, call.address)
            await self._app(inner, receive, reply)
        except CrannogError as error:
            call.error_code = error.code
            await self.error_response(scope, error)(scope, receive, reply)
        except asyncio.CancelledError:
            # The server is stopping and cannot wait any longer.
            if not call.status:
                call.error_code = Unavailable.code
                stopping = Unavailable("the server is stopping; try again shortly", retry_after_s=5)
                await self.error_response(scope, stopping)(scope, receive, reply)
            raise
        except ClientDisconnect:
            call.status = _CLIENT_CLOSED
        except Stalled:
            call.error_code = "stalled"
            _abort(send)
        except Exception as error:
            call.error_code = call.error_code or "error"
            if not call.status:
                await self.error_response(scope, unexpected(call, error))(scope, receive, reply)
        finally:
            with service.requests_lock:
                service.requests -= 1
            service.bodies.release(call)
            self._record(scope, call, inner.get("route"))

    async def _admitted(self, scope: Scope, headers: Mapping[bytes, bytes], address: str) -> Caller:
        """Return the caller. Raises Unauthorized, Forbidden or Overloaded."""
        service, tokens = self._service, self._service.tokens
        if scope["path"] in self.open_paths:
            return NOBODY
        if tokens.is_stale:
            await service.threads.run("read", tokens.refresh)
        origin, session = headers.get(b"origin"), ""
        if tokens.required and b"cookie" in headers and b"authorization" not in headers:
            session = self._session(scope, headers)
        try:
            return admitted(
                service,
                authorization=self.authorization(scope, headers),
                host=headers.get(b"host", b"localhost").decode("latin-1"),
                origin=None if origin is None else origin.decode("latin-1"),
                address=address,
                session=session,
            )
        except Unauthorized:
            if scope["path"] == _SESSION or (scope["method"] in ("GET", "HEAD") and is_page(scope["path"])):
                return NOBODY
            raise

    def _session(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str:
        """Return the session of a request that may have one; OTLP has other paths. Raises Forbidden to other sites."""
        session = session_of(headers) if scope["path"].startswith(_SESSION_PATHS) else ""
        if session:
            check_same_origin(scope["method"], headers)
        return session

    def _record(self, scope: Scope, call: Call, route: Any) -> None:
        """Count a request that ended, and add it to the audit and the log."""
        scope["route"] = route  # for the layers around this one
        path = getattr(route, "path", "unknown")
        elapsed_ms = call.elapsed_ms
        self._service.metrics.request(scope["method"], path, call.status, elapsed_ms / 1000)
        if self._service.audit.on:
            self.audit(call, path, str(getattr(route, "name", scope["method"])))
        if log.isEnabledFor(logging.INFO) and path not in _NOT_LOGGED:
            fields: dict[str, Any] = {
                "method": scope["method"],
                "path": _TOKEN.sub("crannog_…", scope["path"])[:_LOGGED_PATH],
                "status": call.status,
                "elapsed_ms": round(elapsed_ms, 2),
                "who": call.caller.name,
                "rows": call.rows,
                "error": call.error_code or None,
            }
            log.info("request", extra={"request_id": call.request_id, "fields": fields})


def unexpected(call: Call, error: Exception) -> CrannogError:
    """Log an unexpected error, and return one that shows nothing of it."""
    if isinstance(error, RecursionError):
        # Only code that follows the nesting of the request recurses; how deep it may go depends on the thread.
        call.error_code = Refused.code
        return Refused("the request is nested too deeply; in SQL, use WITH to name parts of the statement")
    if not isinstance(error, Stalled):
        log.error("a request failed", exc_info=error, extra={"request_id": call.request_id})
    call.error_code = CrannogError.code
    return CrannogError(
        f"the server failed on this request; its log has the details under request id {call.request_id}"
    )


def _abort(send: Send) -> None:
    # An orderly close would wait for the client to read the rest.
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if transport is not None:
        transport.abort()


_MIN_BYTES = 1_024
_IN_A_THREAD = 1 << 16
_GZIP = 16 + zlib.MAX_WBITS


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self, mode: Any = ..., /) -> bytes: ...


class CompressionMiddleware:
    """A plain ASGI layer: decides at the first part of a body, then compresses part by part."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        encoding = _accepted_encoding(scope) if scope["type"] == "http" else None
        if encoding is None:
            await self._app(scope, receive, send)
            return
        start: Message = {}
        compressor: _Compressor | None = None
        decided = False

        async def send_compressed(message: Message) -> None:
            nonlocal compressor, decided
            if message["type"] == "http.response.start":
                start.update(message)
                return
            body, more = message.get("body", b""), message.get("more_body", False)
            if not decided:
                decided = True
                if (more or len(body) >= _MIN_BYTES) and not _is_compressed(start):
                    compressor = _compressor(encoding)
                    start["headers"] = _compressed_headers(start["headers"], encoding)
                await send(start)
            if compressor is not None:
                body = await _compress(compressor, encoding, body, more)
            await send({"type": "http.response.body", "body": body, "more_body": more})

        await self._app(scope, receive, send_compressed)


def _accepted_encoding(scope: Scope) -> str | None:
    header = next((value for name, value in scope["headers"] if name == b"accept-encoding"), b"").decode("latin-1")
    if not header:
        return None
    accepted = set()
    for item in header.lower().split(","):
        name, _, rest = item.strip().partition(";")
        if rest.replace(" ", "") not in ("q=0", "q=0.0"):
            accepted.add(name.strip())
    return next((name for name in ("zstd", "gzip") if name in accepted), None)


def _is_compressed(start: Message) -> bool:
    return any(name == b"content-encoding" for name, _ in start["headers"])


def _compressed_headers(headers: Any, encoding: str) -> list[tuple[bytes, bytes]]:
    others = [(name, value) for name, value in headers if name != b"content-length"]
    return [*others, (b"content-encoding", encoding.encode()), (b"vary", b"accept-encoding")]


def _compressor(encoding: str) -> _Compressor:
    if encoding == "zstd":
        import zstandard

        compressor: _Compressor = zstandard.ZstdCompressor(level=1).compressobj()
        return compressor
    return zlib.compressobj(1, zlib.DEFLATED, _GZIP)


async def _compress(compressor: _Compressor, encoding: str, body: bytes, more: bool) -> bytes:
    def compressed() -> bytes:
        out = compressor.compress(body)
        if not more:
            return out + compressor.flush()
        # Each part is flushed, since a client waits for the progress or the batch in it.
        return out + (compressor.flush(1) if encoding == "zstd" else compressor.flush(zlib.Z_SYNC_FLUSH))

    return compressed() if len(body) < _IN_A_THREAD else await anyio.to_thread.run_sync(compressed)


def traced(app: ASGIApp, settings: Settings) -> ASGIApp:
    """Return the application, each request in a span if the settings name where to send them."""
    return TracingMiddleware(app, settings.spans_endpoint) if settings.spans_endpoint else app


class TracingMiddleware:
    """A plain ASGI layer around all others."""

    def __init__(self, app: ASGIApp, endpoint: str) -> None:
        with needed_for("the setting spans_endpoint"):
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._app = app
        # A provider of its own: the process may run inside a program that has another.
        self._provider = TracerProvider(resource=Resource.create({"service.name": "crannog"}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        self._tracer: Any = self._provider.get_tracer("crannog.server")

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind, Status, StatusCode

        carrier = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in (b"traceparent", b"tracestate")
        }
        with self._tracer.start_as_current_span(
            scope["method"], context=extract(carrier), kind=SpanKind.SERVER
        ) as span:

            async def send_and_record(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(Status(StatusCode.ERROR))
                await send(message)

            await self._app(scope, receive, send_and_record)
            call, path = scope.get("crannog.call"), getattr(scope.get("route"), "path", "unknown")
            span.update_name(f"{scope['method']} {path}")
            span.set_attribute("http.request.method", scope["method"])
            span.set_attribute("http.route", path)
            if call is not None:
                span.set_attribute("crannog.request_id", call.request_id)
                span.set_attribute("crannog.tables", list(map(str, call.tables)))
                if call.rows is not None:
                    span.set_attribute("crannog.rows", call.rows)
