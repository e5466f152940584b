"""Tables: list, make, describe, drop, and what is known about them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pyarrow as pa
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from starlette.responses import Response

from crannog.api.table_requests import CreateTable
from crannog.embedded import EmbeddedLake
from crannog.engine.owned_tables import is_system
from crannog.names import TableName
from crannog.server.arrow_bodies import arrow_schema
from crannog.server.openapi import LIST, OBJECT, Name, Raw, gives, takes_json
from crannog.server.request_context import Call, call_of
from crannog.server.request_parsing import document, form_of
from crannog.server.responses import ARROW, answer, schema_bytes, wanted_form
from crannog.server.row_responses import rows_answer, rows_response

router = APIRouter(prefix="/api/v1/tables", tags=["tables"])
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


@router.get("", responses=gives(LIST))
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
    "/{name}",
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
        made = call.service.lake.operations.create(request)
        return made, call.service.lake.table(name).describe()

    made, described = await call.service.threads.run("write", make)
    return answer(described, 201 if made else 200)


@router.get("/{name}/schema", responses=gives(OBJECT, arrow=True))
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


@router.get("/{name}/tombstones", responses=gives(LIST, arrow=True))
async def tombstones(request: Request, name: Name) -> Response:
    """List the deletes that are not folded yet; as Arrow where the keys have types that JSON has not."""
    return await _listing(request, name, lambda lake: lake.table(name).tombstones())


@router.get("/{name}/audit", responses=gives(LIST, arrow=True))
async def audit(request: Request, name: Name) -> Response:
    """List the deletes that were carried out."""
    return await _listing(request, name, lambda lake: lake.table(name).audit())


@router.get("/{name}/preview", responses=gives(LIST, rows=True))
async def preview(
    request: Request, name: Name, n: Annotated[int, Query(ge=0, le=1_000_000_000)] = 100, raw: Raw = False
) -> Response:
    """Show some rows."""
    call = call_of(request)
    call.table("read", name)
    return await rows_answer(request, lambda: call.service.lake.table(name).preview(n, raw=raw))


@router.get("/{name}/rows", responses=gives(LIST, rows=True))
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
