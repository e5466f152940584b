"""The way of many small requests, straight to their handlers: FastAPI's costs as much as a small write.

The routes stand in FastAPI too, for the document and for whatever does not look exactly like them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from crannog.errors import CrannogError
from crannog.server.requests import call_of
from crannog.server.responses import error_answer
from crannog.server.routes import rows, sql

_ROWS = re.compile(r"/api/v1/tables/([^/]+)/rows")


class _Route:
    """What the frame wants to know of a route."""

    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self.name = name


_ROWS_PATH = "/api/v1/tables/{name}/rows"
_WRITES: dict[str, tuple[_Route, Callable[..., Awaitable[Response]]]] = {
    "POST": (_Route(_ROWS_PATH, "append"), rows.append),
    "PUT": (_Route(_ROWS_PATH, "upsert"), rows.upsert),
}
_SQL = _Route("/api/v1/sql", "sql")


class Shortcut:
    """A plain ASGI layer before the routes."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = _handler(scope)
        if handler is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await handler(request)
        except CrannogError as error:
            call_of(request).error_code = error.code
            response = error_answer(error)
        await response(scope, receive, send)


def _handler(scope: Scope) -> Callable[[Request], Awaitable[Response]] | None:
    if scope["type"] != "http" or scope["method"] not in _WRITES:
        return None
    if scope["path"] == _SQL.path and scope["method"] == "POST":
        scope["route"] = _SQL
        return sql.sql
    found = _ROWS.fullmatch(scope["path"])
    if found is None:
        return None
    scope["route"], write = _WRITES[scope["method"]]
    name = found[1]

    def handle(request: Request) -> Awaitable[Any]:
        return write(request, name, request.headers.get("crannog-batch-id"))

    return handle
