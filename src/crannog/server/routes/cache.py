"""Tables held in memory; also under the names `/query/…` that older clients use."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter
from starlette.responses import Response

from crannog.api.operations import Operation
from crannog.api.table_requests import COMPACT, EVICT, PIN, CompactTable, EvictTable, PinTable
from crannog.names import TableName
from crannog.server.openapi import OBJECT, gives, takes_json
from crannog.server.requests import call_of, document, form_of
from crannog.server.responses import answer
from crannog.server.routes.tables import read, run_job

router = APIRouter(prefix="/api/v1/cache", tags=["cache"])
aliases = APIRouter(prefix="/query", tags=["aliases"])


class Which(BaseModel):
    """A table, by its name."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(validation_alias=AliasChoices("name", "table", "table_name"))


_WHICH: TypeAdapter[Which] = TypeAdapter(Which)


@router.get("", responses=gives(OBJECT))
async def stats(request: Request) -> Response:
    """The tables held in memory, those that the caller may read, and the limit."""
    call = call_of(request)
    found = await call.service.threads.run("read", lambda: call.service.lake.cache.stats())
    found["tables"] = [entry for entry in found["tables"] if call.caller.may("read", TableName.parse(entry["name"]))]
    return answer(found)


async def _named(request: Request) -> str:
    given = request.query_params.get("name") or request.query_params.get("table")
    form_of(request, ("json",))
    data = await call_of(request).service.bodies.read(request)
    if given is not None and not data.strip():
        return given
    found: Which = document(data, _WHICH)
    return found.name


async def _named_table(request: Request, right: str) -> TableName:
    return call_of(request).named_table(right, await _named(request))


async def _call(request: Request, operation: Operation[Any, Any], kind: type[Any]) -> Response:
    return await read(request, operation, kind(await _named_table(request, operation.right)))


@aliases.post("/cache/pin", responses=gives(OBJECT), openapi_extra=takes_json(Which))
async def pin_by_body(request: Request) -> Response:
    """The same as PUT /api/v1/cache/{name}."""
    return await _call(request, PIN, PinTable)


@aliases.post("/cache/evict", responses=gives(OBJECT), openapi_extra=takes_json(Which))
async def evict_by_body(request: Request) -> Response:
    """The same as DELETE /api/v1/cache/{name}."""
    return await _call(request, EVICT, EvictTable)


@aliases.get("/cache/stats", responses=gives(OBJECT))
async def stats_by_alias(request: Request) -> Response:
    """The same as GET /api/v1/cache."""
    return await stats(request)


@aliases.post("/compact", responses=gives(OBJECT), openapi_extra=takes_json(Which))
async def compact_by_body(request: Request) -> Response:
    """The same as POST /api/v1/tables/{name}/compact."""
    return await run_job(request, COMPACT, CompactTable(await _named_table(request, "admin")))
