"""Tables: list, create, describe, drop, what is known about them, and the jobs on them; most come from their declarations."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import pyarrow as pa
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from starlette.responses import Response

from crannog.api import table_requests as ops
from crannog.api.operations import Operation
from crannog.api.table_requests import CreateTable
from crannog.embedded import EmbeddedLake
from crannog.engine.owned_tables import is_system
from crannog.names import RAW_PREFIX, TableName
from crannog.server.arrow_bodies import arrow_schema
from crannog.server.openapi import LIST, OBJECT, Name, Raw, gives, takes_json
from crannog.server.operations import add_routes
from crannog.server.requests import Call, call_of, document, form_of
from crannog.server.responses import ARROW, answer, schema_bytes, wanted_form
from crannog.server.streaming import long_work, rows_answer, rows_response

router = APIRouter(prefix="/api/v1", tags=["tables"])
Columns = Annotated[list[str], Query(description="Only with an Arrow schema: JSON has it in its body.")]


class Definition(BaseModel):
    """What a table is: its columns as a JSON Schema, and how it is laid out."""

    model_config = ConfigDict(extra="forbid")

    table_schema: dict[str, Any] = Field(
        alias="schema", description="A JSON Schema: an object with a property for each column."
    )
    key: list[str] | str | None = None
    partition_by: list[str] | str = []
    cluster_by: list[str] | str = []
    bloom: list[str] | str = []


_DEFINITION: TypeAdapter[Definition] = TypeAdapter(Definition)


@router.get("/tables", responses=gives(LIST))
async def tables(
    request: Request, system: Annotated[bool, Query(description="List the server's own tables too.")] = False
) -> Response:
    """List the tables that the caller may read."""
    call = call_of(request)
    names = await call.service.threads.run("read", call.service.lake.tables)
    parsed = [TableName.parse(name) for name in names]
    shown = [name for name in parsed if call.caller.may("read", name) and (system or not is_system(name))]
    return answer([{"name": str(name)} for name in shown])


@router.put(
    "/tables/{name}",
    responses={**gives(OBJECT), **gives(OBJECT, status=201)},
    openapi_extra=takes_json(Definition, arrow=True),
)
async def create_table(
    request: Request,
    name: Name,
    key: Columns = [],  # noqa: B006
    partition_by: Columns = [],  # noqa: B006
    cluster_by: Columns = [],  # noqa: B006
    bloom: Columns = [],  # noqa: B006
    if_exists: Annotated[Literal["error", "ok"], Query()] = "ok",
) -> Response:
    """Make a table: 201 if it was made, 200 if it stood there with this definition, 409 if with another."""
    call = call_of(request)
    call.written_table("admin", name)
    form = form_of(request, ("json", "arrow"))
    data = await call.service.bodies.read(request)
    if form == "arrow":
        schema: Any = arrow_schema(data)
        layout: dict[str, Any] = {"key": key, "partition_by": partition_by, "cluster_by": cluster_by, "bloom": bloom}
    else:
        wanted = document(data, _DEFINITION)
        schema = wanted.table_schema
        layout = {part: getattr(wanted, part) for part in ("key", "partition_by", "cluster_by", "bloom")}
    layout["key"] = layout["key"] or ()

    def make() -> tuple[bool, dict[str, Any]]:
        request = CreateTable(TableName.parse(name), schema, **layout, if_exists=if_exists)
        made = call.service.lake.operations.call(ops.CREATE, request)
        return made, call.service.lake.table(name).describe()

    made, described = await call.service.threads.run("write", make)
    return answer(described, 201 if made else 200)


@router.get("/tables/{name}/schema", responses=gives(OBJECT, arrow=True))
async def schema(request: Request, name: Name) -> Response:
    """The columns, the system's included; in Arrow a stream without rows. The key is in the header Crannog-Key too, as JSON."""
    found = await _read(request, name, lambda lake: (lake.table(name).schema, lake.table(name).key))
    columns: pa.Schema = found[0]
    headers = {"Crannog-Key": _ascii_json(found[1])}
    if wanted_form(request, ("json", "arrow")) == "arrow":
        return Response(schema_bytes(columns), headers=headers, media_type=ARROW)
    fields = [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in columns]
    return answer({"columns": fields, "key": list(found[1])}, headers=headers)


def _ascii_json(values: tuple[str, ...]) -> str:
    import json

    return json.dumps(list(values))


@router.get("/tables/{name}/tombstones", responses=gives(LIST, arrow=True))
async def tombstones(request: Request, name: Name) -> Response:
    """List the deletes that are not folded yet; as Arrow where the keys have types that JSON has not."""
    return await _listing(request, name, lambda lake: lake.table(name).tombstones())


@router.get("/tables/{name}/audit", responses=gives(LIST, arrow=True))
async def audit(request: Request, name: Name) -> Response:
    """List the deletes that were carried out."""
    return await _listing(request, name, lambda lake: lake.table(name).audit())


@router.get("/tables/{name}/preview", responses=gives(LIST, rows=True))
async def preview(
    request: Request, name: Name, n: Annotated[int, Query(ge=0, le=1_000_000_000)] = 100, raw: Raw = False
) -> Response:
    """Show some rows."""
    call = call_of(request)
    call.table("read", name)
    return await rows_answer(request, lambda: call.service.lake.table(name).preview(n, raw=raw))


@router.get("/tables/{name}/rows", responses=gives(LIST, rows=True))
async def rows(request: Request, name: Name, raw: Raw = False) -> Response:
    """All rows."""
    call = call_of(request)
    call.table("read", name)
    return await rows_answer(request, lambda: call.service.lake.table(name).to_arrow(raw=raw))


async def _read(request: Request, name: str, act: Any) -> Any:
    call: Call = call_of(request)
    call.table("read", name)
    lake: EmbeddedLake = call.service.lake
    return await call.service.threads.run("read", lambda: act(lake))


async def _listing(request: Request, name: str, act: Any) -> Response:
    found = await _read(request, name, act)
    if wanted_form(request, ("json", "arrow")) == "arrow":
        return rows_response(pa.Table.from_pylist(found), "arrow")
    return answer(found)


jobs = APIRouter(prefix="/api/v1", tags=["maintenance"])
cache = APIRouter(prefix="/api/v1", tags=["cache"])


@jobs.get("/tasks", responses=gives(LIST))
async def tasks(request: Request) -> Response:
    """The control table: state, owner, last result and next run of each task on a table that the caller may read."""
    call = call_of(request)
    found = await call.service.threads.run("read", call.service.lake.tasks)
    return answer(
        [task for task in found if call.caller.may("read", TableName.parse(task["task_name"].partition(":")[2]))]
    )


async def run_job(request: Request, operation: Operation[Any, Any], wanted: Any) -> Response:
    """Run a job, and answer with its report or with its progress."""
    run = call_of(request).service.lake.operations.run
    return await long_work(request, lambda progress, cancellation: run(operation, wanted, progress, cancellation))


async def read(request: Request, operation: Operation[Any, Any], wanted: Any) -> Response:
    """Answer with what an operation returns."""
    return answer(_document(operation, wanted, await _result(request, "read", operation, wanted)))


async def _change(request: Request, operation: Operation[Any, Any], wanted: Any) -> Response:
    return answer(_document(operation, wanted, await _result(request, "write", operation, wanted)))


async def _result(request: Request, kind: str, operation: Operation[Any, Any], wanted: Any) -> Any:
    call = call_of(request)
    return await call.service.threads.run(kind, lambda: call.service.lake.operations.call(operation, wanted))


async def _count(request: Request, operation: Operation[Any, Any], wanted: ops.CountRows) -> Response:
    # A raw name in the path means the same as the parameter.
    is_raw = f".{RAW_PREFIX}" in request.url.path
    return await read(request, operation, replace(wanted, raw=True) if is_raw else wanted)


def _document(operation: Operation[Any, Any], wanted: Any, result: Any) -> Any:
    """Return the JSON document of a result; a bare value is a field of an object."""
    if operation is ops.COUNT:
        return {"rows": result}
    if operation is ops.DROP:
        return {"name": str(wanted.name), "dropped": True}
    if operation is ops.EVICT:
        return {"name": str(wanted.name), "evicted": result}
    return result


add_routes(router, ops.DESCRIBE, read, answers=gives(OBJECT))
add_routes(router, ops.DROP, _change, answers=gives(OBJECT), typed=True)
add_routes(router, ops.HISTORY, read, answers=gives(LIST))
add_routes(router, ops.COUNT, _count, answers=gives({"type": "object", "properties": {"rows": {"type": "integer"}}}))
for _job in (ops.FOLD, ops.COMPACT, ops.VACUUM, ops.EXPIRE):
    add_routes(jobs, _job, run_job, answers=gives(_job.result, progress=True), typed=True)
add_routes(cache, ops.PIN, read, answers=gives(OBJECT), typed=True)
add_routes(cache, ops.EVICT, read, answers=gives(OBJECT), typed=True)
