"""The middleware of every request: its id, the caller, limits, the form of errors, and what is recorded at its end.

A plain ASGI layer: a middleware that wraps requests and responses in objects would cost as much as a small write.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crannog.errors import CrannogError, Overloaded, Refused, Unavailable
from crannog.server.admission import admitted
from crannog.server.auth.scopes import Caller
from crannog.server.request_context import Call
from crannog.server.responses import error_answer
from crannog.server.service import Service

log = logging.getLogger("crannog.server")
_VALID_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,128}")
# A token may have been put in the place of a name.
_TOKEN = re.compile(r"crannog_[A-Za-z0-9\-]+_[0-9a-f]{16,}")
_OPEN = frozenset({"/healthz", "/readyz", "/api/docs", "/api/openapi.json"})
_NOBODY = Caller("nobody", ())
_NOT_LOGGED = frozenset({"/healthz", "/readyz", "/metrics"})
_CLIENT_CLOSED = 499
_SENT_AT_ONCE = 1 << 14
_LOGGED_PATH = 1_000


class Stalled(Exception):
    """The client stopped reading its response."""


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

    def is_audited(self, path: str, status: int) -> bool:
        """Return whether a request to a route is recorded in the audit."""
        return path.startswith(("/api/v1/", "/query/")) or status in (401, 403)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        service = self._service
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request_id = given if _VALID_ID.fullmatch(given) else os.urandom(16).hex().encode()
        client = scope.get("client")
        call = Call(service, request_id.decode(), _NOBODY, client[0] if client else "", headers)
        scope["crannog.call"] = call
        is_head = scope["method"] == "HEAD"
        # Every route that takes GET takes HEAD too: the same work and head, and no body.
        inner = {**scope, "method": "GET"} if is_head else scope

        async def reply(message: Message) -> None:
            if message["type"] == "http.response.start":
                call.status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
                await send(message)
                return
            if is_head:
                message = {**message, "body": b""}
            if not message.get("more_body") and len(message.get("body", b"")) < _SENT_AT_ONCE:
                await send(message)  # fits into the socket's buffer
                return
            try:
                async with asyncio.timeout(service.settings.http_stall_s):
                    await send(message)
            except TimeoutError:
                raise Stalled from None

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
            return _NOBODY
        if tokens.is_stale:
            await service.threads.run("read", tokens.refresh)
        origin = headers.get(b"origin")
        return admitted(
            service,
            authorization=self.authorization(scope, headers),
            host=headers.get(b"host", b"localhost").decode("latin-1"),
            origin=None if origin is None else origin.decode("latin-1"),
            address=address,
        )

    def _record(self, scope: Scope, call: Call, route: Any) -> None:
        """Count a request that ended, and add it to the audit and the log."""
        scope["route"] = route  # for the layers around this one
        path = getattr(route, "path", "unknown")
        elapsed_ms = call.elapsed_ms
        self._service.metrics.request(scope["method"], path, call.status, elapsed_ms / 1000)
        if self.is_audited(path, call.status):
            self._service.audit.note(call, str(getattr(route, "name", scope["method"])))
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


def unknown(call: Call, error: Exception) -> Response:
    """Return the response to a request that failed in an unexpected way."""
    return error_answer(unexpected(call, error))


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
