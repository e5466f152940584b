"""Tables held in memory; also under the names `/query/…` that older clients use."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter
from starlette.responses import Response

from crannog.api.operations import AnyOperation
from crannog.api.table_requests import (
    CACHE_STATS,
    COMPACT,
    EVICT,
    PIN,
    CompactTable,
    EvictTable,
    GetCacheStats,
    PinTable,
)
from crannog.names import TableName
from crannog.server.openapi import OBJECT, gives, takes_json
from crannog.server.operations import add_routes
from crannog.server.requests import call_of, document, form_of
from crannog.server.responses import answer
from crannog.server.routes.tables import read, result_of, run_job

router = APIRouter(prefix="/api/v1", tags=["cache"])
aliases = APIRouter(prefix="/query", tags=["aliases"])


class Which(BaseModel):
    """A table, by its name."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(validation_alias=AliasChoices("name", "table", "table_name"))


_WHICH: TypeAdapter[Which] = TypeAdapter(Which)


async def _stats(request: Request, operation: AnyOperation, wanted: GetCacheStats) -> Response:
    found, may = await result_of(request, operation, wanted), call_of(request).caller.may
    return answer({**found, "tables": [held for held in found["tables"] if may("read", TableName.parse(held["name"]))]})


for _operation in (PIN, EVICT):
    add_routes(router, _operation, read, answers=gives(OBJECT), typed=True)
add_routes(router, CACHE_STATS, _stats, answers=gives(OBJECT))


async def _table_of(request: Request, operation: AnyOperation) -> TableName:
    """Return the table that a request names in its body or its query string, if the caller has the right to it."""
    name = request.query_params.get("name") or request.query_params.get("table")
    form_of(request, ("json",))
    data = await call_of(request).service.bodies.read(request)
    if name is None or data.strip():
        name = document(data, _WHICH).name
    return call_of(request).named_table(operation.right, name)


@aliases.post("/cache/pin", responses=gives(OBJECT), openapi_extra=takes_json(Which))
async def pin_by_body(request: Request) -> Response:
    """The same as PUT /api/v1/cache/{name}."""
    return await read(request, PIN, PinTable(await _table_of(request, PIN)))


@aliases.post("/cache/evict", responses=gives(OBJECT), openapi_extra=takes_json(Which))
async def evict_by_body(request: Request) -> Response:
    """The same as DELETE /api/v1/cache/{name}."""
    return await read(request, EVICT, EvictTable(await _table_of(request, EVICT)))


@aliases.get("/cache/stats", responses=gives(OBJECT))
async def stats_by_alias(request: Request) -> Response:
    """The same as GET /api/v1/cache."""
    return await _stats(request, CACHE_STATS, GetCacheStats())


@aliases.post("/compact", responses=gives(OBJECT), openapi_extra=takes_json(Which))
async def compact_by_body(request: Request) -> Response:
    """The same as POST /api/v1/tables/{name}/compact."""
    return await run_job(request, COMPACT, CompactTable(await _table_of(request, COMPACT)))
