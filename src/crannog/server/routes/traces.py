"""Traces: the routes of the declared operations, and the few whose answers have several forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from crannog.api.operations import AnyOperation
from crannog.api.reports import Cancellation, ErasureReceipt, Progress
from crannog.api.traces import requests as ops
from crannog.api.traces.requests import PROTOBUF, DownloadTrace, EraseTraces
from crannog.formats.encode import json_bytes
from crannog.formats.json_values import to_lossless_json
from crannog.server.openapi import NAMES, OBJECT, gives, takes
from crannog.server.operations import RequestReader, add_routes, result_schema
from crannog.server.requests import call_of, check_message
from crannog.server.responses import JSON, answer, wanted_form
from crannog.server.streaming import long_work
from crannog.server.trace_columns import columns_answer
from crannog.server.trace_queries import KIND, LIMITS, lines_of_traces, run_trace_query
from crannog.traces.span_table import SPANS

if TYPE_CHECKING:
    from crannog.traces.store import TraceStore

router = APIRouter(prefix="/api/v1", tags=["traces"])


async def _answered(request: Request, work: Callable[[TraceStore], Any]) -> Response:
    """Answer with the exact values: see `crannog.formats.json_values`."""

    def body(store: TraceStore) -> bytes:
        result = work(store)
        return json_bytes(to_lossless_json(result.as_dict() if hasattr(result, "as_dict") else result))

    # Encoded in the thread, too: a trace of many spans takes time to write.
    return Response(await run_trace_query(request, body), media_type=JSON)


async def _query(request: Request, operation: AnyOperation, wanted: Any) -> Response:
    return await _answered(request, lambda store: store.call(operation, wanted))


async def _run_job(request: Request, operation: AnyOperation, wanted: Any) -> Response:
    store = call_of(request).service.lake.trace_store
    return await long_work(request, lambda progress, cancellation: store.run(operation, wanted, progress, cancellation))


for _operation in ops.QUERIES:
    add_routes(
        router,
        _operation,
        _query,
        answers=gives(result_schema(_operation)),
        owner=SPANS,
        parameters=tuple(LIMITS["parameters"]),
    )
add_routes(router, ops.DERIVE, _run_job, answers=gives(OBJECT, progress=True), owner=SPANS)
add_routes(router, ops.EXPIRE, _run_job, answers=gives(OBJECT, progress=True), owner=SPANS)


for _of_columns in ops.COLUMN_QUERIES:
    add_routes(
        router,
        _of_columns,
        columns_answer,
        answers=gives(OBJECT, arrow=True),
        owner=SPANS,
        parameters=tuple(LIMITS["parameters"]),
    )


async def _download(request: Request, operation: AnyOperation, wanted: DownloadTrace) -> Response:
    name = f"trace-{wanted.trace_id[:32]}.{wanted.format[:16]}.json"
    # Both are checked before the first byte; until then they may be any text.
    is_plain = re.fullmatch(r"[\w.-]+", name, re.ASCII) is not None
    headers = {"Content-Disposition": f'attachment; filename="{name}"'} if is_plain else {}
    return await lines_of_traces(request, lambda store: store.lines(operation, wanted), JSON, headers)


add_routes(
    router,
    ops.DOWNLOAD,
    _download,
    answers=gives(OBJECT),
    owner=SPANS,
    parameters=tuple(LIMITS["parameters"]),
)

_EXPORT = RequestReader(ops.EXPORT, ops.EXPORT.routes[0])
_ERASE = RequestReader(ops.ERASE, ops.ERASE.routes[0])


@router.get("/services/{service:path}/operations", responses=gives(NAMES), openapi_extra=LIMITS)
async def operations(request: Request, service: str, kind: str | None = None) -> Response:
    """The operations of a service."""
    call_of(request).need("read", SPANS)
    return await _answered(request, lambda store: store.traces.operations(service, kind))


@router.get("/traces/{trace_id}/otlp", responses=gives(OBJECT, lines=True), openapi_extra=LIMITS)
async def export(request: Request, trace_id: str) -> Response:
    """A trace as OTLP in JSON, in protobuf where that is accepted, or of any size as lines of requests."""
    return await _exported(request, [trace_id])


@router.post(
    "/traces/export",
    responses=gives(OBJECT, lines=True),
    openapi_extra=_EXPORT.described() | LIMITS,
)
async def export_traces(request: Request) -> Response:
    """Several traces as one OTLP request in JSON, in protobuf where that is accepted, or of any size as lines of requests."""
    call_of(request).need("read", SPANS)
    return await _exported(request, (await _EXPORT.read(request)).trace_ids)


async def _exported(request: Request, trace_ids: Sequence[str]) -> Response:
    call_of(request).need("read", SPANS)
    if PROTOBUF in request.headers.get("accept", ""):
        body = await run_trace_query(request, lambda store: store.traces.export_protobuf(trace_ids))
        return Response(body, media_type=PROTOBUF)
    if wanted_form(request, ("json", "ndjson")) == "ndjson":
        return await lines_of_traces(request, lambda store: store.traces.export_lines(trace_ids))
    return await _answered(request, lambda store: store.traces.export(trace_ids))


@router.post(
    "/traces/erase",
    responses=gives(OBJECT, progress=True),
    openapi_extra=_ERASE.described(),
)
async def erase(request: Request) -> Response:
    """Erase traces for good, and prove it. With `dry_run`, only count them."""
    call = call_of(request)
    call.need("admin", SPANS)
    wanted = await _ERASE.read(request)
    if wanted.dry_run:
        return answer(await run_trace_query(request, lambda store: store.erasure_plan(wanted)))
    named = wanted if wanted.actor else _by(wanted, call.caller.name)

    def work(progress: Progress, cancellation: Cancellation) -> ErasureReceipt:
        # Audit entries that are not written yet are searched as well.
        call.service.audit.flush()
        return call.service.lake.trace_store.erase(named, progress, cancellation)

    return await long_work(request, work)


def _by(wanted: EraseTraces, actor: str) -> EraseTraces:
    return EraseTraces(trace_ids=wanted.trace_ids, where=wanted.where, actor=actor, reason=wanted.reason)


@router.delete("/traces/questions/{query_id:path}", responses=gives(OBJECT))
async def cancel(request: Request, query_id: str) -> Response:
    """Cancel a query that was sent with the header `Crannog-Query-Id`: one's own, or any as an admin."""
    call = call_of(request)
    service = call.service
    await service.threads.run("read", lambda: service.work.cancel_query(KIND, query_id, call))
    return answer({"query_id": query_id, "cancelled": True})


@router.post(
    "/traces/otlp",
    responses=gives(OBJECT),
    openapi_extra=takes({PROTOBUF: {"type": "string", "format": "binary"}, JSON: OBJECT}),
)
async def write_otlp(request: Request) -> Response:
    """Keep the spans of an OTLP request, as the receivers do; the answer counts them."""
    from crannog.server.otlp.http_app import keep

    call = call_of(request)
    call.need("ingest", SPANS)
    body = await call.service.bodies.read(request, call.service.bodies.spans)
    check_message(body, request.headers)
    kind = request.headers.get("content-type", PROTOBUF)
    done = await call.service.threads.run("write", lambda: keep(call.service, call.caller, body, kind, None))
    call.rows, call.rejected = done.accepted, done.rejected
    return Response(json_bytes(to_lossless_json(done)), media_type=JSON)
