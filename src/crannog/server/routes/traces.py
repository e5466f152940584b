"""Traces: search, show, compare, metrics, services, dependencies, export; by plain addresses, for people and scripts."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from crannog.errors import CallerError
from crannog.server.openapi import LIST, NAMES, OBJECT, gives
from crannog.server.routes import trace_maintenance, trace_queries
from crannog.server.routes.trace_queries import exported, read
from crannog.server.trace_queries import LIMITS
from crannog.traces.jaeger.requests import with_attributes

router = APIRouter(prefix="/api/v1", tags=["traces"])
_BY_KIND = {"type": "array", "items": {"type": "array", "items": {"type": ["string", "null"]}}}

Time = Annotated[str | None, Query(description="ISO text, or nanoseconds since 1970.")]
Day = Annotated[str | None, Query(description="A day as YYYY-MM-DD.")]
Filter = Annotated[str | None, Query(description='A filter, like `service = "shop" and duration > 250ms`.')]
Pairs = Annotated[
    list[str] | None,
    Query(description="key=value; several must all be there. A number or a truth may be written as text."),
]


def _time(text: str | None) -> str | int | None:
    # Eight digits are a day written without dashes, which nanoseconds of our time never look like.
    return int(text) if text and text.lstrip("-").isdecimal() and len(text) != 8 else text or None


def _day(text: str | None) -> dt.date | None:
    try:
        return dt.date.fromisoformat(text) if text else None
    except ValueError:
        raise CallerError(f"a day is given as YYYY-MM-DD, like 2026-01-31, got {str(text)[:40]!r}") from None


@router.get("/traces", responses=gives(OBJECT), openapi_extra=LIMITS)
async def search(
    request: Request,
    service: str | None = None,
    operation: str | None = None,
    text: str | None = None,
    attribute: Pairs = None,
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
    return await read(
        request,
        lambda traces: traces.search(
            service=service,
            operation=operation,
            text=text,
            where=with_attributes(where, attribute or ()),
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


@router.get("/traces/metrics", responses=gives(LIST), openapi_extra=LIMITS)
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
    of: Annotated[
        str, Query(description="`spans`, or `traces`: whole ones, of which one span meets what is asked.")
    ] = "spans",
    quantile: Annotated[list[float] | None, Query(description="Further quantiles, like 0.9.")] = None,
) -> Response:
    """Counts, rates, errors and latencies by time."""
    return await read(
        request,
        lambda traces: traces.metrics(
            service=service,
            operation=operation,
            kind=kind,
            where=where,
            start=_time(start),
            end=_time(end),
            step=step,
            group_by=group_by,
            of=of,
            quantiles=quantile or (),
        ),
    )


@router.get("/traces/complete", responses=gives(LIST), openapi_extra=LIMITS)
async def complete(
    request: Request, what: str, prefix: str = "", key: str | None = None, where: Filter = None, limit: int = 20
) -> Response:
    """What could be typed next: a service, an operation, an attribute's key, or a value of `key`."""
    return await read(request, lambda traces: traces.complete(what, prefix, key=key, where=where, limit=limit))


@router.get("/traces/attributes", responses=gives(LIST), openapi_extra=LIMITS)
async def attribute_keys(request: Request, first: Day = None, last: Day = None) -> Response:
    """The keys of attributes, those used most first."""
    return await read(request, lambda traces: traces.attribute_keys(_day(first), _day(last)))


@router.get("/traces/compare", responses=gives(OBJECT), openapi_extra=LIMITS)
async def compare(request: Request, before: str, after: str, limit: int = 1_000, tolerance: float = 0.0) -> Response:
    """What changed from one trace to another."""
    return await read(request, lambda traces: traces.compare(before, after, limit, tolerance=tolerance))


@router.get("/traces/{trace_id}", responses=gives(OBJECT), openapi_extra=LIMITS)
async def show(
    request: Request,
    trace_id: str,
    offset: int = 0,
    limit: int = 1_000,
    depth: int | None = None,
    under: str | None = None,
) -> Response:
    """A window of a trace's tree."""
    return await read(request, lambda traces: traces.show(trace_id, offset, limit, depth=depth, under=under).as_dict())


@router.get("/traces/{trace_id}/spans", responses=gives(OBJECT), openapi_extra=LIMITS)
async def get(request: Request, trace_id: str) -> Response:
    """All spans of a trace in tree order, up to `trace_spans_limit`."""
    return await read(request, lambda traces: traces.get(trace_id))


@router.get("/traces/{trace_id}/otlp", responses=gives(OBJECT, lines=True), openapi_extra=LIMITS)
async def export(request: Request, trace_id: str) -> Response:
    """A trace as OTLP, in JSON, or in protobuf where that is accepted; of any size as lines of requests."""
    return await exported(request, [trace_id])


@router.get("/services", responses=gives(NAMES), openapi_extra=LIMITS)
async def services(request: Request) -> Response:
    """The names of all services."""
    return await read(request, lambda traces: traces.services())


@router.get("/services/{service:path}/operations", responses=gives(NAMES), openapi_extra=LIMITS)
async def operations(request: Request, service: str, kind: str | None = None) -> Response:
    """The operations of a service."""
    return await read(request, lambda traces: traces.operations(service, kind))


@router.get("/operations", responses=gives(_BY_KIND), openapi_extra=LIMITS)
async def operations_by_kind(request: Request, service: str) -> Response:
    """The operations of a service, each with each kind it has, as pairs of a name and a kind or null."""
    return await read(request, lambda traces: traces.operations_by_kind(service))


@router.get("/dependencies", responses=gives(LIST), openapi_extra=LIMITS)
async def dependencies(request: Request, start: Time = None, end: Time = None) -> Response:
    """Which services call which."""
    return await read(request, lambda traces: traces.dependencies(_time(start), _time(end)))


for _more in (trace_queries, trace_maintenance):
    router.include_router(_more.router)
