"""Traces: search, show, compare, metrics, services, dependencies, export, expiry and erasure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, TypeAdapter
from starlette.responses import Response

from crannog.errors import CallerError
from crannog.server.answers import answer, wanted_form
from crannog.server.call import call_of
from crannog.server.described import OBJECT, gives, takes_json
from crannog.server.incoming import document
from crannog.server.work import long_work
from crannog.traces.spans import SPANS
from crannog.traces.traces import Traces

router = APIRouter(prefix="/api/v1", tags=["traces"])

Time = Annotated[str | None, Query(description="ISO text, or nanoseconds since 1970.")]
Filter = Annotated[str | None, Query(description="A filter, like `service = \"shop\" and duration > 250ms`.")]


async def _read(request: Request, work: Callable[[Traces], Any]) -> Response:
    call = call_of(request)
    call.need("read", SPANS)
    return answer(await call.service.threads.run("read", lambda: work(call.service.lake.traces)))


def _time(text: str | None) -> str | int | None:
    return int(text) if text and text.lstrip("-").isdigit() else text or None


@router.get("/traces", responses=gives(OBJECT))
async def search(
    request: Request,
    service: str | None = None,
    operation: str | None = None,
    text: str | None = None,
    attribute: Annotated[list[str] | None, Query(description="key=value; several must all be there.")] = None,
    where: Filter = None,
    has_errors: bool | None = None,
    min_duration_ms: float | None = None,
    max_duration_ms: float | None = None,
    start: Time = None,
    end: Time = None,
    limit: int = 50,
    cursor: str | None = None,
    order: str = "newest",
    count: bool = False,
) -> Response:
    """Find traces; a page, and the cursors of the next and the previous one."""
    from crannog.traces.jaeger.questions import filter_of

    pairs = {key: value for key, _, value in (pair.partition("=") for pair in attribute or ())}
    both = " and ".join(f"({part})" for part in (where, filter_of(pairs)) if part) or None
    return await _read(
        request,
        lambda traces: traces.search(
            service=service,
            operation=operation,
            text=text,
            where=both,
            has_errors=has_errors,
            min_duration_ms=min_duration_ms,
            max_duration_ms=max_duration_ms,
            start=_time(start),
            end=_time(end),
            limit=limit,
            cursor=cursor,
            order=order,
            count=count,
        ),
    )


@router.get("/traces/metrics", responses=gives(OBJECT))
async def metrics(
    request: Request,
    service: str | None = None,
    operation: str | None = None,
    kind: str | None = None,
    where: Filter = None,
    start: Time = None,
    end: Time = None,
    step: str = "1m",
    group_by: Annotated[list[str] | None, Query(description="Fields or attributes.")] = None,
) -> Response:
    """Counts, rates, errors and latencies by time."""
    return await _read(
        request,
        lambda traces: traces.metrics(
            service=service, operation=operation, kind=kind, where=where, start=_time(start), end=_time(end), step=step, group_by=group_by
        ),
    )


@router.get("/traces/complete", responses=gives(OBJECT))
async def complete(
    request: Request, what: str, prefix: str = "", key: str | None = None, where: Filter = None, limit: int = 20
) -> Response:
    """What could be typed next: a service, an operation, an attribute's key, or a value of `key`."""
    return await _read(request, lambda traces: traces.complete(what, prefix, key=key, where=where, limit=limit))


@router.get("/traces/compare", responses=gives(OBJECT))
async def compare(request: Request, before: str, after: str, limit: int = 1_000) -> Response:
    """What changed from one trace to another."""
    return await _read(request, lambda traces: traces.compare(before, after, limit))


@router.get("/traces/{trace_id}", responses=gives(OBJECT))
async def show(
    request: Request, trace_id: str, offset: int = 0, limit: int = 1_000, depth: int | None = None, under: str | None = None
) -> Response:
    """A window of a trace's tree."""
    return await _read(request, lambda traces: traces.show(trace_id, offset, limit, depth=depth, under=under))


@router.get("/traces/{trace_id}/otlp", responses=gives(OBJECT))
async def export(request: Request, trace_id: str) -> Response:
    """A trace as OTLP, in JSON, or in protobuf where that is accepted."""
    call = call_of(request)
    if "application/x-protobuf" in request.headers.get("accept", ""):
        call.need("read", SPANS)
        body = await call.service.threads.run("read", lambda: call.service.lake.traces.export_protobuf([trace_id]))
        return Response(body, media_type="application/x-protobuf")
    wanted_form(request, ("json",))
    return await _read(request, lambda traces: traces.export([trace_id]))


@router.get("/services", responses=gives(OBJECT))
async def services(request: Request) -> Response:
    """The names of all services."""
    return await _read(request, lambda traces: traces.services())


@router.get("/services/{service}/operations", responses=gives(OBJECT))
async def operations(request: Request, service: str, kind: str | None = None) -> Response:
    """The operations of a service."""
    return await _read(request, lambda traces: traces.operations(service, kind))


@router.get("/dependencies", responses=gives(OBJECT))
async def dependencies(request: Request, start: Time = None, end: Time = None) -> Response:
    """Which services call which."""
    return await _read(request, lambda traces: traces.dependencies(_time(start), _time(end)))


class Doomed(BaseModel):
    """Traces to erase: those named, or those with a span that meets a filter. A dry run only counts."""

    model_config = ConfigDict(extra="forbid")

    trace_ids: list[str] | None = None
    where: str | None = None
    actor: str = ""
    reason: str = ""
    dry_run: bool = False


class Old(BaseModel):
    """Spans to drop: those that started before a day, of one service or of all."""

    model_config = ConfigDict(extra="forbid")

    before: str
    service: str | None = None


_DOOMED: TypeAdapter[Doomed] = TypeAdapter(Doomed)
_OLD: TypeAdapter[Old] = TypeAdapter(Old)


@router.post("/traces/erase", responses=gives(OBJECT), openapi_extra=takes_json(Doomed))
async def erase(request: Request) -> Response:
    """Erase traces for good, and prove it."""
    call = call_of(request)
    call.need("admin", SPANS)
    asked: Doomed = document(await call.service.bodies.read(request), _DOOMED)
    traces = call.service.lake.traces
    if asked.dry_run:
        plan = await call.service.threads.run("read", lambda: traces.erasure_plan(asked.trace_ids, asked.where))
        return answer(plan.as_dict())
    return await long_work(
        request,
        lambda progress, cancellation: traces.erase(
            asked.trace_ids,
            asked.where,
            actor=asked.actor or call.caller.name,
            reason=asked.reason,
            copies=call.service.lake.copies,
            progress=progress,
            cancellation=cancellation,
        ),
    )


@router.post("/traces/expire", responses=gives(OBJECT), openapi_extra=takes_json(Old))
async def expire(request: Request) -> Response:
    """Drop old spans, and what was derived from them."""
    call = call_of(request)
    call.need("admin", SPANS)
    asked: Old = document(await call.service.bodies.read(request), _OLD)
    try:
        before = dt.date.fromisoformat(asked.before)
    except ValueError:
        raise CallerError(f"a day is given as YYYY-MM-DD, like 2026-01-31, got {asked.before[:40]!r}") from None
    traces = call.service.lake.traces
    return await long_work(
        request,
        lambda progress, cancellation: traces.expire(before, asked.service, progress=progress, cancellation=cancellation),
    )
