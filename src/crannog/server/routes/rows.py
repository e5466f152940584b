"""Changes of rows: append, upsert, delete, erase, each durable and visible when it is answered; and evolve."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from starlette.responses import Response

from crannog.api import table_requests as ops
from crannog.api.arguments import checked_batch_id
from crannog.api.reports import Cancellation, ErasureReceipt, EvolveReport, Progress, WriteReceipt
from crannog.api.table_requests import Definition
from crannog.engine.open_table import OpenTable
from crannog.errors import CrannogError
from crannog.names import TableName
from crannog.server.arrow_bodies import arrow_schema, arrow_table
from crannog.server.openapi import BatchId, Name, gives, takes_json, takes_rows
from crannog.server.requests import call_of, document, form_of, keys_from, rows_from
from crannog.server.responses import answer
from crannog.server.streaming import long_work
from crannog.tables.operations import definition_of

router = APIRouter(prefix="/api/v1/tables", tags=["rows"])


class Keys(BaseModel):
    """Keys of rows, and who takes them out for what reason. With an Arrow body, actor and reason are query parameters."""

    model_config = ConfigDict(extra="forbid")

    keys: list[Any]
    actor: str = ""
    reason: str = ""


KEYS: TypeAdapter[Keys] = TypeAdapter(Keys)


@router.post("/{name}/rows", responses=gives(WriteReceipt), openapi_extra=takes_rows())
async def append(request: Request, name: Name, batch_id: BatchId = None) -> Response:
    """Keep rows. On a table with a key, each replaces the row of its key."""
    return await _write(request, "append", name, batch_id)


@router.put("/{name}/rows", responses=gives(WriteReceipt), openapi_extra=takes_rows())
async def upsert(request: Request, name: Name, batch_id: BatchId = None) -> Response:
    """Keep rows, each replacing the row of its key."""
    return await _write(request, "upsert", name, batch_id)


@router.post("/{name}/delete", responses=gives(WriteReceipt), openapi_extra=takes_json(Keys, arrow=True))
async def delete(request: Request, name: Name, actor: str = "", reason: str = "", batch_id: BatchId = None) -> Response:
    """Hide the rows of these keys immediately from every query; the next fold removes them from the base.

    Programs that read the Delta table directly, without Crannog, see the rows until that fold.
    """
    return await _write(request, "delete", name, batch_id, actor, reason)


async def _write(
    request: Request, verb: str, name: str, batch_id: str | None, actor: str = "", reason: str = ""
) -> Response:
    call = call_of(request)
    service = call.service
    table_name = TableName.parse(name)
    call.need("write", table_name)
    # In the query string for ids that no header can hold. Checked before the body is read.
    batch_id = checked_batch_id(request.query_params.get("batch_id", batch_id))
    form = form_of(request) if verb != "delete" else form_of(request, ("json", "arrow"))
    data = await service.bodies.read(request)

    def write(table: OpenTable) -> WriteReceipt:
        definition = definition_of(table)
        if verb == "delete":
            keys, who, why = keys_in(data, form, definition, actor, reason, service.settings.max_rows_per_call)
            return table.delete(keys, actor=who, reason=why, batch_id=batch_id)
        return table.write(verb, rows_from(data, form, definition, service.settings), batch_id)

    outcome, kept = "kept", 0
    try:
        operations = service.lake.operations
        receipt = await service.threads.run("write", lambda: operations.change(verb, table_name, write))
        call.rows = receipt.rows
        kept = 0 if receipt.duplicate else receipt.rows
        outcome = "duplicate" if receipt.duplicate else "kept"
    except CrannogError as error:
        outcome = error.code
        raise
    finally:
        service.metrics.write(verb, outcome, kept, time.perf_counter() - call.started)
    return answer(receipt)


def keys_in(data: bytes, form: str, table: Definition, actor: str, reason: str, most: int) -> tuple[Any, str, str]:
    """Read the keys of a delete or an erase, and who and why."""
    if form == "arrow":
        return arrow_table(data, most_rows=most, most_bytes=1 << 40), actor, reason
    wanted: Keys = document(data, KEYS)
    return keys_from(wanted.keys, table), wanted.actor or actor, wanted.reason or reason


jobs = APIRouter(prefix="/api/v1/tables", tags=["maintenance"])


class EvolveOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    table_schema: dict[str, Any] = Field(alias="schema", description="The JSON Schema that the table should have.")


_EVOLVE = TypeAdapter(EvolveOptions)


@jobs.post(
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


@jobs.post("/{name}/erase", responses=gives(ErasureReceipt, progress=True), openapi_extra=takes_json(Keys, arrow=True))
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
        return operations.run(ops.ERASE, ops.EraseRows(table_name, keys, who, why), progress, cancellation)

    return await long_work(request, work)
