"""Tables held in memory; also under the names `/query/…` that older clients use."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter
from starlette.responses import Response

from crannog.names import TableName
from crannog.server.jobs import long_work
from crannog.server.openapi import OBJECT, Name, gives, takes_json
from crannog.server.request_context import Call, call_of
from crannog.server.request_parsing import document, form_of
from crannog.server.responses import answer

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


@router.put("/{name}", responses=gives(OBJECT))
async def pin(request: Request, name: Name) -> Response:
    """Hold a table in memory until it is evicted."""
    return await _pin(call_of(request), name)


@router.delete("/{name}", responses=gives(OBJECT))
async def evict(request: Request, name: Name) -> Response:
    """Let go of a table."""
    return await _evict(call_of(request), name)


async def _pin(call: Call, name: str) -> Response:
    call.table("write", name)
    return answer(await call.service.threads.run("read", lambda: call.service.lake.cache.pin(name)))


async def _evict(call: Call, name: str) -> Response:
    call.table("write", name)
    evicted = await call.service.threads.run("read", lambda: call.service.lake.cache.evict(name))
    return answer({"name": name, "evicted": evicted})


async def _named(request: Request) -> str:
    given = request.query_params.get("name") or request.query_params.get("table")
    form_of(request, ("json",))
    data = await call_of(request).service.bodies.read(request)
    if given is not None and not data.strip():
        return given
    found: Which = document(data, _WHICH)
    return found.name


@aliases.post("/cache/pin", responses=gives(OBJECT), openapi_extra=takes_json(Which))
async def pin_by_body(request: Request) -> Response:
    """The same as PUT /api/v1/cache/{name}."""
    return await _pin(call_of(request), await _named(request))


@aliases.post("/cache/evict", responses=gives(OBJECT), openapi_extra=takes_json(Which))
async def evict_by_body(request: Request) -> Response:
    """The same as DELETE /api/v1/cache/{name}."""
    return await _evict(call_of(request), await _named(request))


@aliases.get("/cache/stats", responses=gives(OBJECT))
async def stats_by_alias(request: Request) -> Response:
    """The same as GET /api/v1/cache."""
    return await stats(request)


@aliases.post("/compact", responses=gives(OBJECT), openapi_extra=takes_json(Which))
async def compact_by_body(request: Request) -> Response:
    """The same as POST /api/v1/tables/{name}/compact."""
    call = call_of(request)
    name = await _named(request)
    call.table("admin", name)
    return await long_work(
        request,
        lambda progress, cancellation: call.service.lake.table(name).compact(
            progress=progress, cancellation=cancellation
        ),
    )
