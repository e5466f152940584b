"""SQL: one statement in, an answer out, whole or as a stream; explained, or cancelled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from crannog.api import table_requests as ops
from crannog.api.arguments import checked_query_id
from crannog.api.operations import AnyOperation
from crannog.api.result import Result
from crannog.engine.sql.running_queries import GRACE_S
from crannog.errors import Cancelled, CrannogError, Forbidden
from crannog.formats import encode
from crannog.names import TableName
from crannog.server.openapi import LIST, OBJECT, gives
from crannog.server.operations import add_routes
from crannog.server.requests import Call, call_of
from crannog.server.responses import MEDIA, answer, batch_parts, error_body, table_parts, wanted_form
from crannog.server.running_work import client_left
from crannog.server.streaming import Put, WholeResponse, given_up_after, send_parts, thread_response, watched

router = APIRouter(prefix="/api/v1", tags=["sql"])
_KIND = "sql"
_ANSWER = {
    "type": "object",
    "required": ["columns", "rows", "row_count", "truncated", "engine", "elapsed_ms", "query_id"],
    "properties": {
        "columns": {"type": "array", "items": {"type": "object", "required": ["name", "type"]}},
        "rows": {"type": "array", "items": {"type": "array"}},
        "row_count": {"type": "integer"},
        "truncated": {"type": "boolean"},
        "engine": {"type": "string"},
        "elapsed_ms": {"type": "number"},
        "query_id": {"type": "string"},
    },
}


async def _sql(request: Request, _operation: AnyOperation, wanted: ops.RunSql) -> Response:
    call, form = call_of(request), wanted_form(request)
    query_id = checked_query_id(wanted.query_id)

    def make(put: Put) -> WholeResponse:
        with _counted_query(call, wanted.sql, query_id):
            _check_tables(call, wanted.sql)
            statement = replace(wanted, query_id=query_id)
            operations = call.service.lake.operations
            result = operations.sql(statement, visible=_readable(call), owner=call.caller.owner)
            call.rows, call.engine = result.row_count, result.engine
        parts = _as_json(result) if form == "json" else table_parts(result.table, form)
        return send_parts(put, result.table.nbytes, parts, _headers(result))

    limit_s = _limit_s(call, wanted.timeout_s)
    return await thread_response(request, "query", make, MEDIA[form], lambda: client_left(call), limit_s=limit_s)


def _as_json(result: Result) -> Iterator[bytes]:
    after = {
        "row_count": result.row_count,
        "truncated": result.truncated,
        "engine": result.engine,
        "elapsed_ms": round(result.elapsed_ms, 3),
        "query_id": result.query_id,
    }
    return encode.json_response(result.table, {"columns": result.columns}, after)


def _headers(result: Result) -> dict[str, str]:
    return {
        "Crannog-Query-Id": quote(result.query_id),
        "Crannog-Engine": result.engine,
        "Crannog-Truncated": str(result.truncated).lower(),
        "Crannog-Elapsed-Ms": f"{result.elapsed_ms:.3f}",
        "Crannog-Why": quote(result.why),
    }


async def _stream(request: Request, _operation: AnyOperation, wanted: ops.StreamSql) -> Response:
    call, form, query_id = call_of(request), wanted_form(request), checked_query_id(wanted.query_id)

    def failed(error: Exception) -> bytes:
        known = error if isinstance(error, CrannogError) else CrannogError(f"the stream failed: {type(error).__name__}")
        call.error_code = known.code
        return encode.json_bytes(error_body(known))

    def make(put: Put) -> None:
        with _counted_query(call, wanted.sql, query_id):
            _check_tables(call, wanted.sql)
            statement = replace(wanted, max_rows=None, query_id=query_id)
            operations = call.service.lake.operations
            with operations.stream(statement, visible=_readable(call), owner=call.caller.owner) as found:
                call.rows, call.engine = 0, found.engine
                head = {
                    "Crannog-Query-Id": quote(found.query_id),
                    "Crannog-Engine": found.engine,
                    "Crannog-Truncated": "false",
                }
                put((head, None))
                for part in batch_parts(found.schema, found, form, failed):
                    put(part)

    limit_s = _limit_s(call, wanted.timeout_s)
    return await thread_response(request, "query", make, MEDIA[form], lambda: client_left(call), limit_s=limit_s)


async def _explain(request: Request, _operation: AnyOperation, wanted: ops.ExplainSql) -> Response:
    call, query_id = call_of(request), checked_query_id(wanted.query_id)

    def run_explain() -> dict[str, object]:
        with _counted_query(call, wanted.sql, query_id):
            _check_tables(call, wanted.sql)
            operations = call.service.lake.operations
            return operations.explain(replace(wanted, query_id=query_id), owner=call.caller.owner).as_dict()

    explained = watched(request, call.service.threads.endless("query", run_explain), lambda: client_left(call))
    return answer(await given_up_after(_limit_s(call, wanted.timeout_s), explained))


def _limit_s(call: Call, timeout_s: float | None) -> float:
    """Return when a query is given up that does not end at its timeout."""
    return (timeout_s or call.service.settings.sql_timeout_s) + 2 * GRACE_S


add_routes(router, ops.SQL, _sql, answers=gives(_ANSWER, rows=True), typed=True)
add_routes(router, ops.STREAM, _stream, answers=gives(LIST, rows=True), typed=True)
add_routes(router, ops.EXPLAIN, _explain, answers=gives(OBJECT), typed=True)


@router.delete("/sql/{query_id:path}", responses=gives(OBJECT))
async def cancel(request: Request, query_id: str) -> Response:
    """End a query that runs or waits. Everybody may end their own, an admin all."""
    call = call_of(request)
    service = call.service
    await service.threads.run("read", lambda: service.work.cancel_query(_KIND, query_id, call))
    return answer({"query_id": query_id, "cancelled": True})


def _check_tables(call: Call, text: str) -> None:
    """Check the right to read every table that a statement names, before any is opened."""
    _check_connected(call)
    tables = call.service.lake.operations.queries.tables_in(text)
    _check_connected(call)  # a long statement takes a while to parse
    if (
        not tables
        and not call.caller.may_everywhere("read")
        and not any(map(_readable(call), map(TableName.parse, call.service.lake.tables())))
    ):
        raise Forbidden(f"{call.caller.name} may not run SQL: it needs the right to read at least one table")
    call.need("read", *tables)


def _check_connected(call: Call) -> None:
    if call.left:
        raise Cancelled("the client went away before its query began")


def _readable(call: Call) -> Callable[[TableName], bool]:
    return lambda name: call.caller.may("read", name)


@contextmanager
def _counted_query(call: Call, text: str, query_id: str) -> Iterator[None]:
    """Count a query, whatever its outcome, and register its owner while it runs."""
    call.sql, outcome, started = text, "error", time.perf_counter()
    operations = call.service.lake.operations
    try:
        with call.service.work.query(_KIND, call, query_id, partial(operations.cancel, query_id, call.caller.owner)):
            yield
        outcome = call.error_code or "answered"
    except CrannogError as error:
        outcome = error.code
        raise
    finally:
        call.service.metrics.query(call.engine, outcome, time.perf_counter() - started)
