"""Tables: list, create, describe, drop, what is known about them, the jobs on them, and those held in memory.

Most routes come from their declarations; `/query/…` has the names that older clients use.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from fastapi import APIRouter, Request
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter, field_validator
from starlette.responses import Response

from crannog.api import table_requests as ops
from crannog.api.operations import AnyOperation
from crannog.engine.maintenance.receipts import summed
from crannog.engine.snapshot import ResultLimit
from crannog.errors import NotFound
from crannog.formats.encode import row_bytes
from crannog.formats.row_bodies import key_of_texts
from crannog.names import TableName
from crannog.server.arrow_bodies import arrow_schema
from crannog.server.openapi import LIST, OBJECT, TEXT, gives, parameter, takes_json
from crannog.server.operations import add_routes
from crannog.server.requests import call_of, document, form_of
from crannog.server.responses import ARROW, JSON, answer, schema_bytes, wanted_form
from crannog.server.streaming import long_work, rows_answer, rows_response

router = APIRouter(prefix="/api/v1", tags=["tables"])
jobs = APIRouter(prefix="/api/v1", tags=["maintenance"])
_LAYOUT = ("key", "partition_by", "cluster_by", "bloom")
_MOST_COLUMNS = 1_000


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

    @field_validator(*_LAYOUT, mode="before")
    @classmethod
    def _few(cls, value: Any) -> Any:
        # An error for each of a million wrong names would take more memory than the request.
        if isinstance(value, list) and len(value) > _MOST_COLUMNS:
            raise ValueError(f"a list of {len(value):,} columns; {_MOST_COLUMNS:,} is the most")
        return value


_DEFINITION: TypeAdapter[Definition] = TypeAdapter(Definition)


async def _tables(request: Request, operation: AnyOperation, wanted: ops.ListTables) -> Response:
    may = call_of(request).caller.may
    return await _answered(
        request,
        operation,
        wanted,
        lambda names: [{"name": name} for name in names if may("read", TableName.parse(name))],
    )


async def _create(request: Request, operation: AnyOperation, name: TableName) -> Response:
    call, query = call_of(request), request.query_params
    form = form_of(request, ("json", "arrow"))

    def parse(data: bytes) -> tuple[Any, dict[str, Any]]:
        if form == "arrow":
            return arrow_schema(data), {part: query.getlist(part) for part in _LAYOUT}
        wanted = document(data, _DEFINITION)
        return wanted.table_schema, {part: getattr(wanted, part) for part in _LAYOUT}

    schema, layout = await call.service.bodies.document(request, parse)
    layout["key"] = layout["key"] or ()
    create = ops.CreateTable(name, schema, **layout, if_exists=query.get("if_exists", "ok"))

    def work() -> Response:
        run = call.service.lake.operations.call
        created = run(operation, create)
        return answer(run(ops.DESCRIBE, ops.DescribeTable(name)), 201 if created else 200)

    return await call.service.threads.run("write", work)


async def _schema(request: Request, operation: AnyOperation, wanted: ops.GetDefinition) -> Response:
    is_arrow = wanted_form(request, ("json", "arrow")) == "arrow"

    def shape(found: ops.Definition) -> Response:
        headers = {"Crannog-Key": json.dumps(found.key)}
        if is_arrow:
            return Response(schema_bytes(found.schema), headers=headers, media_type=ARROW)
        columns = [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in found.schema]
        return answer({"columns": columns, "key": list(found.key)}, headers=headers)

    return await _answered(request, operation, wanted, shape)


async def result_of(request: Request, operation: AnyOperation, wanted: Any, kind: str = "read") -> Any:
    """Return what an operation returns, carried out in a thread."""
    service = call_of(request).service
    return await service.threads.run(kind, lambda: service.lake.operations.call(operation, wanted))


async def _answered(
    request: Request, operation: AnyOperation, wanted: Any, shape: Callable[[Any], Any], kind: str = "read"
) -> Response:
    """Answer with what `shape` makes of a result. It is encoded in the thread, too: a long list takes time to write."""
    service = call_of(request).service

    def work() -> Response:
        shaped = shape(service.lake.operations.call(operation, wanted))
        return shaped if isinstance(shaped, Response) else answer(shaped)

    return await service.threads.run(kind, work)


async def read(request: Request, operation: AnyOperation, wanted: Any) -> Response:
    """Answer with what an operation returns; a bare value is a field of an object."""

    def shape(found: Any) -> Any:
        if operation is ops.COUNT:
            return {"rows": found}
        if operation is ops.DROP:
            return {"name": str(wanted.name), "dropped": True}
        return {"name": str(wanted.name), "evicted": found} if operation is ops.EVICT else found

    return await _answered(request, operation, wanted, shape, "write" if operation is ops.DROP else "read")


async def _listing(request: Request, operation: AnyOperation, wanted: Any) -> Response:
    is_arrow = wanted_form(request, ("json", "arrow")) == "arrow"

    def shape(found: Any) -> Any:
        return rows_response(pa.Table.from_pylist(found), "arrow") if is_arrow else found

    return await _answered(request, operation, wanted, shape)


async def _rows(request: Request, _operation: AnyOperation, wanted: ops.PageRows | ops.PreviewRows) -> Response:
    service = call_of(request).service
    most = ResultLimit(service.settings.sql_rows_ceiling, service.settings.sql_result_bytes)

    def read() -> tuple[pa.Table, dict[str, str]]:
        found = service.lake.operations.rows(wanted, most)
        cursors = {"Crannog-Next-Cursor": found.next_cursor, "Crannog-Previous-Cursor": found.previous_cursor}
        return found.rows, {name: cursor for name, cursor in cursors.items() if cursor is not None}

    return await rows_answer(request, read)


async def _row(request: Request, operation: AnyOperation, wanted: ops.GetRow) -> Response:
    service = call_of(request).service
    texts = [wanted.key] if isinstance(wanted.key, str) else wanted.key

    def key_of(table: ops.Definition) -> Any:
        return key_of_texts(texts, table.schema, table.key)

    found = await service.threads.run("read", lambda: service.lake.operations.row(wanted.name, key_of))
    if wanted_form(request, ("json", "arrow")) == "arrow":
        return rows_response(found, "arrow")
    return Response(row_bytes(found), media_type=JSON)


async def run_job(request: Request, operation: AnyOperation, wanted: Any) -> Response:
    """Run a job, and answer with its report or with its progress."""
    run = call_of(request).service.lake.operations.run
    return await long_work(request, lambda progress, cancellation: run(operation, wanted, progress, cancellation))


async def _tasks(request: Request, operation: AnyOperation, wanted: Any) -> Response:
    may = call_of(request).caller.may

    def readable(found: Any) -> Any:
        return [task for task in found if may("read", TableName.parse(task["task_name"].partition(":")[2]))]

    return await _answered(request, operation, wanted, readable)


async def _upkeep(request: Request, operation: AnyOperation, wanted: ops.ListUpkeep) -> Response:
    call = call_of(request)
    if wanted.names:
        call.need("read", *map(TableName.parse, wanted.names))
        return await _answered(request, operation, wanted, lambda found: found)

    def of_readable(listed: Any) -> Any:
        names = [name for name in listed if call.caller.may("read", TableName.parse(name))]
        upkeep = ops.ListUpkeep(names, wanted.storage)
        return call.service.lake.operations.call(operation, upkeep) if names else []

    return await _answered(request, ops.LIST_TABLES, ops.ListTables(system=True), of_readable)


async def _receipts(request: Request, operation: AnyOperation, wanted: Any) -> Response:
    """Answer with receipts, each with the parts of the tables that the caller may read."""
    may = call_of(request).caller.may

    def readable(found: Any) -> Any:
        receipts = [
            summed(entry["erasure_id"], parts)
            for entry in ([found] if operation is ops.RECEIPT else found)
            if (parts := [part for part in entry["receipts"] if may("read", TableName.parse(part["table"]))])
        ]
        if operation is ops.RECEIPT and not receipts:
            raise NotFound(f"there is no receipt of an erasure {wanted.erasure_id}; GET /api/v1/receipts lists them")
        return receipts[0] if operation is ops.RECEIPT else receipts

    return await _answered(request, operation, wanted, readable)


_COLUMNS = {"type": "array", "items": TEXT}
add_routes(router, ops.LIST_TABLES, _tables, answers=gives(LIST))
add_routes(router, ops.DEFINITION, _schema, answers=gives(OBJECT, arrow=True))
add_routes(
    router,
    ops.CREATE,
    _create,
    answers={**gives(OBJECT), **gives(OBJECT, status=201)},
    takes=takes_json(Definition, arrow=True),
    parameters=[
        *(
            parameter(part, "query", _COLUMNS, "Only with an Arrow schema: JSON has it in its body.")
            for part in _LAYOUT
        ),
        parameter("if_exists", "query", {**TEXT, "enum": ["error", "ok"], "default": "ok"}),
    ],
)
add_routes(router, ops.DESCRIBE, read, answers=gives(OBJECT))
add_routes(router, ops.DROP, read, answers=gives(OBJECT), typed=True)
add_routes(router, ops.HISTORY, read, answers=gives(LIST))
add_routes(router, ops.COUNT, read, answers=gives({"type": "object", "properties": {"rows": {"type": "integer"}}}))
for _list in (ops.TOMBSTONES, ops.DELETES):
    add_routes(router, _list, _listing, answers=gives(LIST, arrow=True))
for _read in (ops.PREVIEW, ops.READ):
    add_routes(router, _read, _rows, answers=gives(LIST, rows=True))
add_routes(router, ops.FACETS, read, answers=gives(ops.FACETS.result))
add_routes(router, ops.ROW, _row, answers=gives(OBJECT, arrow=True))
for _job in (ops.FOLD, ops.COMPACT, ops.VACUUM, ops.EXPIRE):
    add_routes(jobs, _job, run_job, answers=gives(_job.result, progress=True), typed=True)
add_routes(jobs, ops.UPKEEP, _upkeep, answers=gives(LIST))
add_routes(jobs, ops.RECEIPTS, _receipts, answers=gives(LIST))
add_routes(jobs, ops.RECEIPT, _receipts, answers=gives(OBJECT))
add_routes(jobs, ops.TASKS, _tasks, answers=gives(LIST))


cache = APIRouter(prefix="/api/v1", tags=["cache"])
aliases = APIRouter(prefix="/query", tags=["aliases"])


class Which(BaseModel):
    """A table, by its name."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(validation_alias=AliasChoices("name", "table", "table_name"))


_WHICH: TypeAdapter[Which] = TypeAdapter(Which)


async def _stats(request: Request, operation: AnyOperation, wanted: ops.GetCacheStats) -> Response:
    found, may = await result_of(request, operation, wanted), call_of(request).caller.may
    return answer({**found, "tables": [held for held in found["tables"] if may("read", TableName.parse(held["name"]))]})


for _operation in (ops.PIN, ops.EVICT):
    add_routes(cache, _operation, read, answers=gives(OBJECT), typed=True)
add_routes(cache, ops.CACHE_STATS, _stats, answers=gives(OBJECT))


async def _table_of(request: Request, operation: AnyOperation) -> TableName:
    """Return the table that a request names in its body or its query string, if the caller has the right to it."""
    name = request.query_params.get("name") or request.query_params.get("table")
    form_of(request, ("json",))

    def parse(data: bytes) -> str:
        return name if name is not None and not data.strip() else document(data, _WHICH).name

    named = await call_of(request).service.bodies.document(request, parse)
    return call_of(request).named_table(operation.right, named)


@aliases.post("/cache/pin", responses=gives(OBJECT), openapi_extra=takes_json(Which))
async def pin_by_body(request: Request) -> Response:
    """The same as PUT /api/v1/cache/{name}."""
    return await read(request, ops.PIN, ops.PinTable(await _table_of(request, ops.PIN)))


@aliases.post("/cache/evict", responses=gives(OBJECT), openapi_extra=takes_json(Which))
async def evict_by_body(request: Request) -> Response:
    """The same as DELETE /api/v1/cache/{name}."""
    return await read(request, ops.EVICT, ops.EvictTable(await _table_of(request, ops.EVICT)))


@aliases.get("/cache/stats", responses=gives(OBJECT))
async def stats_by_alias(request: Request) -> Response:
    """The same as GET /api/v1/cache."""
    return await _stats(request, ops.CACHE_STATS, ops.GetCacheStats())


@aliases.post("/compact", responses=gives(OBJECT), openapi_extra=takes_json(Which))
async def compact_by_body(request: Request) -> Response:
    """The same as POST /api/v1/tables/{name}/compact."""
    return await run_job(request, ops.COMPACT, ops.CompactTable(await _table_of(request, ops.COMPACT)))
