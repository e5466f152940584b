"""The frame around every request: its id, who asks, limits, the one shape of errors, and what is told of it after.

A plain ASGI layer: a middleware that wraps requests and responses in objects would cost as much as a small write.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
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
_SANE_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,128}")
# Somebody may put a token where a name belongs.
_TOKEN = re.compile(r"crannog_[A-Za-z0-9\-]+_[0-9a-f]{16,}")
_OPEN = frozenset({"/healthz", "/readyz", "/api/docs", "/api/openapi.json"})
_NOBODY = Caller("nobody", ())
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
_CLIENT_LEFT = 499
_AT_ONCE = 1 << 14
_LOGGED_PATH = 1_000


class Stalled(Exception):
    """The client stopped reading its answer."""


class Frame:
    """The outermost layer."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        service = self._service
        headers = _headers(scope)
        given = headers.get(b"x-request-id", b"")
        request_id = given if _SANE_ID.fullmatch(given) else os.urandom(16).hex().encode()
        client = scope.get("client")
        call = Call(service, request_id.decode(), _NOBODY, client[0] if client else "")
        scope["crannog.call"] = call
        is_head = scope["method"] == "HEAD"
        # Every route that takes GET takes HEAD too: the same work and head, and no body.
        asked = {**scope, "method": "GET"} if is_head else scope

        async def reply(message: Message) -> None:
            if message["type"] == "http.response.start":
                call.status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
                await send(message)
                return
            if is_head:
                message = {**message, "body": b""}
            if not message.get("more_body") and len(message.get("body", b"")) < _AT_ONCE:
                await send(message)  # goes into the socket's buffer
                return
            try:
                async with asyncio.timeout(service.settings.http_stall_s):
                    await send(message)
            except TimeoutError:
                raise Stalled from None

        service.requests += 1
        try:
            if service.requests > service.settings.http_requests:
                raise Overloaded(
                    f"{service.requests - 1:,} requests are being served, which is the most; try again shortly",
                    retry_after_s=1,
                )
            call.caller = await self._admitted(scope, headers, call.address)
            await self._app(asked, receive, reply)
        except CrannogError as error:
            call.error_code = error.code
            await error_answer(error)(scope, receive, reply)
        except asyncio.CancelledError:
            # The server stops and can wait no longer.
            if not call.status:
                call.error_code = Unavailable.code
                await error_answer(Unavailable("the server is stopping; try again shortly", retry_after_s=5))(
                    scope, receive, reply
                )
            raise
        except ClientDisconnect:
            call.status = _CLIENT_LEFT
        except Stalled:
            call.error_code = "stalled"
            _abort(send)
        except Exception as error:
            call.error_code = call.error_code or "error"
            if not call.status:
                await unknown(call, error)(scope, receive, reply)
        finally:
            service.requests -= 1
            service.bodies.give_back(call)
            scope["route"] = asked.get("route")
            self._tell(scope, call)

    async def _admitted(self, scope: Scope, headers: dict[bytes, bytes], address: str) -> Caller:
        """Return who asks; raises Unauthorized, Forbidden or Overloaded."""
        service, tokens = self._service, self._service.tokens
        if scope["path"] in _OPEN:
            return _NOBODY
        if tokens.is_stale:
            await service.threads.run("read", tokens.refresh)
        origin = headers.get(b"origin")
        return admitted(
            service,
            authorization=headers.get(b"authorization", b"").decode("latin-1"),
            host=headers.get(b"host", b"localhost").decode("latin-1"),
            origin=None if origin is None else origin.decode("latin-1"),
            address=address,
        )

    def _tell(self, scope: Scope, call: Call) -> None:
        """Count the request, note it for the audit and log it."""
        route = scope.get("route")
        path = getattr(route, "path", "unknown")
        elapsed_ms = call.elapsed_ms
        self._service.metrics.request(scope["method"], path, call.status, elapsed_ms / 1000)
        if path.startswith(("/api/v1/", "/query/")) or call.status in (401, 403):
            self._service.audit.note(call, str(getattr(route, "name", scope["method"])))
        if log.isEnabledFor(logging.INFO) and path not in _QUIET:
            told: dict[str, Any] = {
                "method": scope["method"],
                "path": _TOKEN.sub("crannog_…", scope["path"])[:_LOGGED_PATH],
                "status": call.status,
                "elapsed_ms": round(elapsed_ms, 2),
            }
            told |= {"who": call.caller.name, "rows": call.rows, "error": call.error_code or None}
            log.info("request", extra={"request_id": call.request_id, "told": told})


def unknown(call: Call, error: Exception) -> Response:
    """Answer to whatever nobody thought of: told in the log, never shown."""
    if isinstance(error, RecursionError):
        # Nothing here recurses but into what was sent, and how deep that may go depends on the thread that reads it.
        call.error_code = Refused.code
        return error_answer(
            Refused("the request is nested too deeply to be worked on; for SQL, use WITH to name its parts")
        )
    if not isinstance(error, Stalled):
        log.error("a request failed", exc_info=error, extra={"request_id": call.request_id})
    call.error_code = CrannogError.code
    return error_answer(
        CrannogError(f"the server failed on this request; its log tells more under the request id {call.request_id}")
    )


def _headers(scope: Scope) -> dict[bytes, bytes]:
    wanted = (b"x-request-id", b"authorization", b"host", b"origin")
    return {name: value for name, value in scope["headers"] if name in wanted}


def _abort(send: Send) -> None:
    # An orderly close would wait for the client to read what it does not read.
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if transport is not None:
        transport.abort()
