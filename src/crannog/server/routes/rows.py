"""Changes of rows: append, upsert, delete, erase, each durable and visible when it is answered; and evolve."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from starlette.responses import Response

from crannog.api import table_requests as ops
from crannog.api.arguments import checked_batch_id
from crannog.api.operations import AnyOperation
from crannog.api.reports import Cancellation, Progress, WriteReceipt
from crannog.engine.open_table import OpenTable
from crannog.errors import CrannogError
from crannog.formats.row_limits import JsonLimits, RowLimit
from crannog.names import TableName
from crannog.server.arrow_bodies import arrow_schema, arrow_table
from crannog.server.openapi import BATCH_ID, TEXT, gives, parameter, takes_json, takes_rows
from crannog.server.operations import add_routes
from crannog.server.requests import call_of, document, form_of, keys_from, rows_from
from crannog.server.responses import answer
from crannog.server.routes.tables import run_job
from crannog.server.streaming import long_work
from crannog.tables.operations import definition_of

router = APIRouter(prefix="/api/v1", tags=["rows"])
jobs = APIRouter(prefix="/api/v1", tags=["maintenance"])


class Keys(BaseModel):
    """Keys of rows, and who takes them out for what reason. With an Arrow body, actor and reason are query parameters."""

    model_config = ConfigDict(extra="forbid")

    keys: list[Any]
    actor: str = ""
    reason: str = ""


class ErasedKeys(Keys):
    """Keys of rows to erase; erasures with the same id have one receipt. With an Arrow body, it is a query parameter."""

    erasure_id: str | None = None


class EvolveOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    table_schema: dict[str, Any] = Field(alias="schema", description="The JSON Schema that the table should have.")


# A key that is a list is an error, and the engine reports the first.
_KEY_LISTS = 1_000
_KEYS, _ERASED, _EVOLVE = TypeAdapter(Keys), TypeAdapter(ErasedKeys), TypeAdapter(EvolveOptions)


async def _write(request: Request, operation: AnyOperation, name: TableName) -> Response:
    """Append, upsert or delete."""
    call, verb = call_of(request), operation.name
    service, is_delete = call.service, operation is ops.DELETE
    # In the query string for ids that no header can hold. Checked before the body is read.
    batch_id = checked_batch_id(request.query_params.get("batch_id", request.headers.get("crannog-batch-id")))
    form = form_of(request, ("json", "arrow")) if is_delete else form_of(request)
    data = await service.bodies.read(request)

    def write(table: OpenTable) -> WriteReceipt:
        if is_delete:
            keys, actor, reason, _ = _keys_in(request, data, form, name, definition_of(table), _KEYS)
            return table.delete(keys, actor=actor, reason=reason, batch_id=batch_id)
        definition = definition_of(table)
        if definition.key and operation is ops.APPEND:
            call.need("write", name)  # by the key it replaces rows
        return table.write(verb, rows_from(data, form, name, definition, service.settings), batch_id)

    outcome, written = "kept", 0
    try:
        operations = service.lake.operations
        receipt = await service.threads.run("write", lambda: operations.change(verb, name, write))
        call.rows = receipt.rows
        written = 0 if receipt.duplicate else receipt.rows
        outcome = "duplicate" if receipt.duplicate else "kept"
    except CrannogError as error:
        outcome = error.code
        raise
    finally:
        service.metrics.write(verb, outcome, written, time.perf_counter() - call.started)
    return answer(receipt)


def _keys_in(
    request: Request, data: bytes, form: str, name: TableName, table: ops.Definition, shape: TypeAdapter[Any]
) -> tuple[Any, str, str, str | None]:
    """Read the keys of a delete or an erase, who and why, and the id of an erasure."""
    query = request.query_params
    actor, reason, erasure_id = query.get("actor", ""), query.get("reason", ""), query.get("erasure_id")
    settings = call_of(request).service.settings
    limit = RowLimit(settings.max_rows_per_call, str(name))
    if form == "arrow":
        return arrow_table(data, limit, most_bytes=settings.http_body_bytes), actor, reason, erasure_id
    # Each key is a value, or an object of values.
    most = JsonLimits(_KEY_LISTS, 1 + limit.rows, _KEY_LISTS + limit.rows * max(1, len(table.key)))
    wanted: Keys = document(data, shape, most)
    limit.check(len(wanted.keys))
    given_id = wanted.erasure_id if isinstance(wanted, ErasedKeys) else None
    return keys_from(wanted.keys, table), wanted.actor or actor, wanted.reason or reason, given_id or erasure_id


async def _evolve(request: Request, operation: AnyOperation, name: TableName) -> Response:
    form = form_of(request, ("json", "arrow"))

    def parse(data: bytes) -> Any:
        return arrow_schema(data) if form == "arrow" else document(data, _EVOLVE).table_schema

    schema = await call_of(request).service.bodies.document(request, parse)
    return await run_job(request, operation, ops.EvolveTable(name, schema))


async def _erase(request: Request, operation: AnyOperation, name: TableName) -> Response:
    form, service = form_of(request, ("json", "arrow")), call_of(request).service
    data, operations = await service.bodies.read(request), service.lake.operations

    def read_keys(table: OpenTable) -> tuple[Any, str, str, str | None]:
        return _keys_in(request, data, form, name, definition_of(table, fresh=True), _ERASED)

    found = await service.threads.run("read", lambda: operations.change("erase", name, read_keys))
    wanted = ops.EraseRows(name, *found)

    def work(progress: Progress, cancellation: Cancellation) -> Any:
        # Audit entries that are not written yet are searched as well.
        service.audit.flush()
        return operations.run(operation, wanted, progress, cancellation)

    return await long_work(request, work)


_NOTES = [parameter("actor", "query", TEXT), parameter("reason", "query", TEXT)]
for _operation in (ops.APPEND, ops.UPSERT):
    add_routes(router, _operation, _write, answers=gives(WriteReceipt), takes=takes_rows(), parameters=[BATCH_ID])
_TAKES_KEYS = takes_json(Keys, arrow=True)
add_routes(router, ops.DELETE, _write, answers=gives(WriteReceipt), takes=_TAKES_KEYS, parameters=[*_NOTES, BATCH_ID])
add_routes(
    jobs,
    ops.EVOLVE,
    _evolve,
    answers=gives(ops.EVOLVE.result, progress=True),
    takes=takes_json(EvolveOptions, arrow=True),
)
add_routes(
    jobs,
    ops.ERASE,
    _erase,
    answers=gives(ops.ERASE.result, progress=True),
    takes=takes_json(ErasedKeys, arrow=True),
    parameters=[*_NOTES, parameter("erasure_id", "query", TEXT, "Erasures with the same id have one receipt.")],
)
