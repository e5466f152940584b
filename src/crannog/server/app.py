"""The application: all routes, the way to them, and the layers around them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from inspect import signature
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from crannog.errors import CallerError, CrannogError, MethodNotAllowed, NotFound
from crannog.server.middleware import CompressionMiddleware, RequestMiddleware, unexpected
from crannog.server.requests import call_of
from crannog.server.responses import error_answer
from crannog.server.routes import (
    builds,
    changes,
    health,
    jaeger,
    load,
    pages,
    rows,
    search,
    session,
    sql,
    tables,
    traces,
)
from crannog.server.service import Service
from crannog.version import VERSION

_Handler = Callable[[Request], Awaitable[Response]]
_ROUTERS = [
    *(module.router for module in (tables, rows, load, sql)),
    tables.cache,
    *(module.router for module in (builds, traces, jaeger, search, session, changes, health, pages)),
    rows.jobs,
    tables.jobs,
    tables.aliases,
]
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


def make_app(service: Service) -> ASGIApp:
    """Return the application that serves a lake."""
    return RequestMiddleware(CompressionMiddleware(_Dispatcher(api(service))), service)


class _Dispatcher:
    """Calls handlers that take the request alone directly, since FastAPI's way to them costs as much as a small write.

    The table of routes is FastAPI's, which serves the others, and the requests that fit none.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        # By method and number of slashes, so that few are tried; in FastAPI's order. None is for FastAPI to call.
        self._routes: dict[tuple[str, int], list[tuple[re.Pattern[str], APIRoute, _Handler | None]]] = {}
        for route in (route for router in _ROUTERS for route in router.routes):
            # What may contain slashes at the end mostly has none, and is found here then.
            if isinstance(route, APIRoute) and (":path}" not in route.path or route.path.endswith("{key:path}")):
                takes_request_alone = [*signature(route.endpoint).parameters] == ["request"] and not route.dependencies
                entry = (route.path_regex, route, route.endpoint if takes_request_alone else None)
                for method in route.methods or ():
                    self._routes.setdefault((method, route.path.count("/")), []).append(entry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"]
            for pattern, route, handler in self._routes.get((scope["method"], path.count("/")), ()):
                if found := pattern.match(path):
                    if handler is None:
                        break
                    scope["route"], scope["path_params"] = route, found.groupdict()
                    response = await handler(Request(scope, receive, send))
                    await response(scope, receive, send)
                    return
        await self._app(scope, receive, send)


def api(service: Service) -> FastAPI:
    """Return the routes alone."""
    app = FastAPI(
        title="Crannog",
        version=VERSION,
        summary="A lakehouse for operational data.",
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Spans and figures are ours: FastAPI's would show addresses and messages to whatever the process exports to.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
    app.state.service = service
    for router in _ROUTERS:
        app.include_router(router)
    for kind, handler in {
        CrannogError: _known,
        HTTPException: _routing,
        RequestValidationError: _wrong,
        Exception: _unknown,
    }.items():
        app.add_exception_handler(kind, handler)
    return app


async def _known(request: Request, error: Any) -> Response:
    call_of(request).error_code = error.code
    return error_answer(error)


async def _routing(request: Request, error: Any) -> Response:
    known: CrannogError
    headers = error.headers
    if error.status_code == 404:
        known = NotFound(
            f"there is no {request.method} {request.url.path[:200]}; GET /api/openapi.json lists what there is"
        )
    elif error.status_code == 405:
        allowed = ", ".join(_methods_of(request.app, request.scope))
        headers = {"Allow": allowed}
        known = MethodNotAllowed(f"{request.url.path[:200]} does not take {request.method}; it takes {allowed}")
    else:
        known = CallerError(str(error.detail))
    call_of(request).error_code = known.code
    return error_answer(known, headers)


def _methods_of(app: FastAPI, scope: Scope) -> list[str]:
    """Return the methods that an address takes: several routes may share it, and each knows its own only."""
    taken = {
        method
        for method in _METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in app.routes)
    }
    return [method for method in _METHODS if method in taken or (method == "HEAD" and "GET" in taken)]


async def _wrong(request: Request, error: Any) -> Response:
    wrong = [
        f"{'.'.join(map(str, item['loc']))}: {item['msg'][:1].lower()}{item['msg'][1:]}" for item in error.errors()[:5]
    ]
    return await _known(request, CallerError(f"the request does not fit: {'; '.join(wrong)}"))


async def _unknown(request: Request, error: Exception) -> Response:
    return error_answer(unexpected(call_of(request), error))
