"""The application: all routes, in their frame."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from crannog.errors import CallerError, CrannogError, MethodNotAllowed, NotFound
from crannog.server.answers import error_answer
from crannog.server.call import call_of
from crannog.server.frame import Frame, Stalled
from crannog.server.packing import Packing
from crannog.server.routes import cache, rows, sql, state, tables, upkeep
from crannog.server.service import Service
from crannog.version import VERSION

log = logging.getLogger("crannog.server")


def make_app(service: Service) -> ASGIApp:
    """Return the application that serves a lake."""
    return Frame(Packing(api(service)), service)


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
    )
    app.state.service = service
    for module in (tables, rows, upkeep, sql, cache, state):
        app.include_router(module.router)
    app.include_router(upkeep.tasks_router)
    app.include_router(cache.aliases)
    for kind, handler in {CrannogError: _known, HTTPException: _routing, RequestValidationError: _wrong, Exception: _unknown}.items():
        app.add_exception_handler(kind, handler)
    return app


async def _known(request: Request, error: Any) -> Response:
    call_of(request).error_code = error.code
    return error_answer(error)


async def _routing(request: Request, error: Any) -> Response:
    known: CrannogError
    if error.status_code == 404:
        known = NotFound(f"there is no {request.method} {request.url.path[:200]}; GET /api/openapi.json lists what there is")
    elif error.status_code == 405:
        known = MethodNotAllowed(f"{request.url.path[:200]} does not take {request.method}")
    else:
        known = CallerError(str(error.detail))
    call_of(request).error_code = known.code
    return error_answer(known, error.headers)


async def _wrong(request: Request, error: Any) -> Response:
    wrong = [f"{'.'.join(map(str, item['loc']))}: {item['msg'][:1].lower()}{item['msg'][1:]}" for item in error.errors()[:5]]
    return await _known(request, CallerError(f"the request does not fit: {'; '.join(wrong)}"))


async def _unknown(request: Request, error: Exception) -> Response:
    """Whatever nobody thought of: told in the log, never shown."""
    call = call_of(request)
    if not isinstance(error, Stalled):
        log.error("a request failed", exc_info=error, extra={"request_id": call.request_id})
    known = CrannogError(f"the server failed on this request; its log tells more under the request id {call.request_id}")
    call.error_code = known.code
    return error_answer(known)
