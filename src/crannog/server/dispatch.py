"""Routes of declared operations: the right, the request and the OpenAPI description come from the declaration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from crannog.api.operations import Operation, Route
from crannog.names import TableName
from crannog.server.openapi import gives
from crannog.server.operations import RequestReader
from crannog.server.request_context import call_of

CarryOut = Callable[[Request, Operation[Any, Any], Any], Awaitable[Response]]
"""Carries out the request of an operation and answers it."""


def add_routes(
    router: APIRouter,
    operation: Operation[Any, Any],
    carry_out: CarryOut,
    *,
    answers: dict[int | str, dict[str, Any]] | None = None,
    owner: TableName | None = None,
    typed: bool = False,
    parameters: tuple[dict[str, Any], ...] = (),
) -> None:
    """Add the routes of an operation.

    The caller needs the operation's right to `owner`, or to the table in the path. `answers` describes the answer,
    `parameters` are headers that the routes take besides; see `RequestReader` for `typed`.
    """
    for route in operation.routes:
        reader = RequestReader(operation, route, typed=typed)
        description = reader.described()
        description["parameters"] = [*description["parameters"], *parameters]
        router.add_api_route(
            route.path,
            _endpoint(operation, reader, carry_out, owner),
            methods=[route.method],
            name=operation.name,
            operation_id=_operation_id(operation, route),
            description=operation.summary,
            responses=answers or gives({"type": "object"}),
            openapi_extra=description,
        )


def _endpoint(
    operation: Operation[Any, Any], reader: RequestReader[Any], carry_out: CarryOut, owner: TableName | None
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        call = call_of(request)
        if owner is not None:
            call.need(operation.right, owner)
        elif "name" in request.path_params:
            request.path_params["name"] = call.named_table(operation.right, request.path_params["name"])
        return await carry_out(request, operation, await reader.read(request))

    return endpoint


def _operation_id(operation: Operation[Any, Any], route: Route) -> str:
    words = [word for word in route.path.split("/") if word and not word.startswith("{")]
    return "_".join([operation.name, *words, route.method.lower()])
