"""The declared operations on tables and on memory whose requests and answers need no form of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from crannog.api import table_requests as ops
from crannog.api.operations import Operation
from crannog.names import RAW_PREFIX
from crannog.server.dispatch import add_routes
from crannog.server.jobs import long_work
from crannog.server.openapi import LIST, OBJECT, gives
from crannog.server.request_context import call_of
from crannog.server.responses import answer

tables = APIRouter(prefix="/api/v1", tags=["tables"])
jobs = APIRouter(prefix="/api/v1", tags=["maintenance"])
cache = APIRouter(prefix="/api/v1", tags=["cache"])


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


add_routes(tables, ops.DESCRIBE, read, answers=gives(OBJECT))
add_routes(tables, ops.DROP, _change, answers=gives(OBJECT), typed=True)
add_routes(tables, ops.HISTORY, read, answers=gives(LIST))
add_routes(tables, ops.COUNT, _count, answers=gives({"type": "object", "properties": {"rows": {"type": "integer"}}}))
for _job in (ops.FOLD, ops.COMPACT, ops.VACUUM, ops.EXPIRE):
    add_routes(jobs, _job, run_job, answers=gives(_job.result, progress=True), typed=True)
add_routes(cache, ops.PIN, read, answers=gives(OBJECT), typed=True)
add_routes(cache, ops.EVICT, read, answers=gives(OBJECT), typed=True)
