"""Jobs on tables whose bodies are keys or a schema: erase and evolve; and the tasks of the scheduler."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from starlette.responses import Response

from crannog.api import table_requests as ops
from crannog.api.cancellation import Cancellation
from crannog.api.reports import ErasureReceipt, EvolveReport, Progress
from crannog.names import TableName
from crannog.server.arrow_bodies import arrow_schema
from crannog.server.jobs import long_work
from crannog.server.openapi import LIST, Name, gives, takes_json
from crannog.server.request_context import call_of
from crannog.server.request_parsing import document, form_of
from crannog.server.responses import answer
from crannog.server.routes.rows import Keys, keys_in
from crannog.tables.operations import definition_of

router = APIRouter(prefix="/api/v1/tables", tags=["maintenance"])


class EvolveOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    table_schema: dict[str, Any] = Field(alias="schema", description="The JSON Schema that the table should have.")


_EVOLVE = TypeAdapter(EvolveOptions)


@router.post(
    "/{name}/evolve", responses=gives(EvolveReport, progress=True), openapi_extra=takes_json(EvolveOptions, arrow=True)
)
async def evolve(request: Request, name: Name) -> Response:
    """Add nullable columns or widen types."""
    call = call_of(request)
    call.table("admin", name)
    form = form_of(request, ("json", "arrow"))
    data = await call.service.bodies.read(request)
    schema = arrow_schema(data) if form == "arrow" else document(data, _EVOLVE).table_schema
    table = call.service.lake.table
    return await long_work(
        request, lambda progress, cancellation: table(name).evolve(schema, progress=progress, cancellation=cancellation)
    )


@router.post(
    "/{name}/erase", responses=gives(ErasureReceipt, progress=True), openapi_extra=takes_json(Keys, arrow=True)
)
async def erase(
    request: Request, name: Name, actor: Annotated[str, Query()] = "", reason: Annotated[str, Query()] = ""
) -> Response:
    """Remove these keys from every file of the table, old versions included, and prove it."""
    call = call_of(request)
    call.written_table("admin", name)
    form = form_of(request, ("json", "arrow"))
    data = await call.service.bodies.read(request)
    table_name, operations = TableName.parse(name), call.service.lake.operations
    most = call.service.settings.max_rows_per_call
    keys, who, why = await call.service.threads.run(
        "read",
        lambda: operations.change(
            "erase",
            table_name,
            lambda table: keys_in(data, form, definition_of(table, fresh=True), actor, reason, most),
        ),
    )

    def work(progress: Progress, cancellation: Cancellation) -> ErasureReceipt:
        # What was noted and not kept yet is looked through as well.
        call.service.audit.flush()
        return operations.erase(ops.EraseRows(table_name, keys, who, why), progress, cancellation)

    return await long_work(request, work)


tasks_router = APIRouter(prefix="/api/v1", tags=["maintenance"])


@tasks_router.get("/tasks", responses=gives(LIST))
async def tasks(request: Request) -> Response:
    """The control table: state, owner, last result and next run of each task on a table that the caller may read."""
    from crannog.names import TableName

    call = call_of(request)
    found = await call.service.threads.run("read", call.service.lake.tasks)
    return answer(
        [task for task in found if call.caller.may("read", TableName.parse(task["task_name"].partition(":")[2]))]
    )
