"""Jobs on tables: fold, compact, vacuum, expire, evolve, erase. They may take long: see `work`."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from starlette.responses import Response

from crannog.api.cancellation import Cancellation
from crannog.api.reports import (
    CompactReport,
    ErasureReceipt,
    EvolveReport,
    ExpireReport,
    FoldReport,
    Progress,
    VacuumReport,
)
from crannog.errors import CallerError
from crannog.server.arrow_bodies import arrow_schema
from crannog.server.jobs import long_work
from crannog.server.openapi import LIST, Name, gives, takes_json
from crannog.server.request_context import call_of
from crannog.server.request_parsing import document, form_of
from crannog.server.responses import answer
from crannog.server.routes.rows import Keys, keys_in

router = APIRouter(prefix="/api/v1/tables", tags=["upkeep"])


class CompactOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    dry_run: bool = False


class VacuumOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    retention_hours: float | None = Field(None, ge=0, le=1_000_000)
    force: bool = False
    dry_run: bool = False


class ExpireOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    before: str = Field(description="Rows before this day go, YYYY-MM-DD.", examples=["2026-01-31"])
    column: str | None = None


class EvolveOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    table_schema: dict[str, Any] = Field(alias="schema", description="The JSON Schema that the table should have.")


_COMPACT, _VACUUM = TypeAdapter(CompactOptions), TypeAdapter(VacuumOptions)
_EXPIRE, _EVOLVE = TypeAdapter(ExpireOptions), TypeAdapter(EvolveOptions)


async def _options(request: Request, shape: TypeAdapter[Any], otherwise: Any = None) -> Any:
    """Read the options of a job; an empty body means none, where that will do."""
    form_of(request, ("json",))
    data = await call_of(request).service.bodies.read(request)
    return otherwise if otherwise is not None and not data.strip() else document(data, shape)


@router.post("/{name}/fold", responses=gives(FoldReport, progress=True))
async def fold(request: Request, name: Name) -> Response:
    """Bring everything staged into the base, once."""
    call = call_of(request)
    call.table("write", name)
    await call.service.bodies.read(request)
    return await long_work(
        request,
        lambda progress, cancellation: call.service.lake.table(name).fold(progress=progress, cancellation=cancellation),
    )


@router.post(
    "/{name}/compact",
    responses=gives(CompactReport, progress=True),
    openapi_extra=takes_json(CompactOptions, required=False),
)
async def compact(request: Request, name: Name) -> Response:
    """Fold, then merge small files into large, clustered ones."""
    call = call_of(request)
    call.table("admin", name)
    options = await _options(request, _COMPACT, CompactOptions())
    table = call.service.lake.table
    return await long_work(
        request,
        lambda progress, cancellation: table(name).compact(
            dry_run=options.dry_run, progress=progress, cancellation=cancellation
        ),
    )


@router.post(
    "/{name}/vacuum",
    responses=gives(VacuumReport, progress=True),
    openapi_extra=takes_json(VacuumOptions, required=False),
)
async def vacuum(request: Request, name: Name) -> Response:
    """Delete the files that no version within the retention, no reader and no job needs."""
    call = call_of(request)
    call.table("admin", name)
    options = await _options(request, _VACUUM, VacuumOptions())
    table = call.service.lake.table
    return await long_work(
        request,
        lambda _progress, _cancellation: table(name).vacuum(
            options.retention_hours, force=options.force, dry_run=options.dry_run
        ),
    )


@router.post("/{name}/expire", responses=gives(ExpireReport, progress=True), openapi_extra=takes_json(ExpireOptions))
async def expire(request: Request, name: Name) -> Response:
    """Drop the rows before a day."""
    call = call_of(request)
    call.table("admin", name)
    options = await _options(request, _EXPIRE)
    try:
        before = dt.date.fromisoformat(options.before)
    except ValueError:
        raise CallerError(f"before is a day like 2026-01-31, got {options.before[:40]!r}") from None
    table = call.service.lake.table
    return await long_work(
        request,
        lambda progress, cancellation: table(name).expire(
            before, column=options.column, progress=progress, cancellation=cancellation
        ),
    )


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
    table = await call.service.threads.run("read", lambda: call.service.lake.table(name))
    table.check_change("erase")
    keys, who, why = await call.service.threads.run(
        "read", lambda: keys_in(data, form, table, actor, reason, call.service.settings.max_rows_per_call)
    )

    def work(progress: Progress, cancellation: Cancellation) -> ErasureReceipt:
        # What was noted and not kept yet is looked through as well.
        call.service.audit.flush()
        return table.erase(keys, actor=who, reason=why, progress=progress, cancellation=cancellation)

    return await long_work(request, work)


tasks_router = APIRouter(prefix="/api/v1", tags=["upkeep"])


@tasks_router.get("/tasks", responses=gives(LIST))
async def tasks(request: Request) -> Response:
    """The control table: state, owner, last result and next run of each task on a table that the caller may read."""
    from crannog.names import TableName

    call = call_of(request)
    found = await call.service.threads.run("read", call.service.lake.tasks)
    return answer(
        [task for task in found if call.caller.may("read", TableName.parse(task["task_name"].partition(":")[2]))]
    )
