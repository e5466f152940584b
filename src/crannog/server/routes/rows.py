"""Changes of rows: append, upsert, delete. Each is durable and visible when it is answered."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, TypeAdapter
from starlette.responses import Response

from crannog.api.batch_ids import checked_batch_id
from crannog.api.reports import WriteReceipt
from crannog.api.table_requests import Definition
from crannog.engine.open_table import OpenTable
from crannog.errors import CrannogError
from crannog.names import TableName
from crannog.server.arrow_bodies import arrow_table
from crannog.server.openapi import BatchId, Name, gives, takes_json, takes_rows
from crannog.server.request_context import call_of
from crannog.server.request_parsing import document, form_of, keys_from, rows_from
from crannog.server.responses import answer
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
