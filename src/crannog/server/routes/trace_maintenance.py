"""How long traces are kept: erasure, expiry, and what is derived from spans; long work, told as it goes."""

from __future__ import annotations

import datetime as dt
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, TypeAdapter
from starlette.responses import Response

from crannog.api.cancellation import Cancellation
from crannog.api.reports import ErasureReceipt, Progress
from crannog.errors import CallerError
from crannog.server.jobs import long_work
from crannog.server.openapi import OBJECT, gives, takes_json
from crannog.server.request_context import call_of
from crannog.server.request_parsing import document
from crannog.server.responses import answer
from crannog.server.trace_queries import asked_of_traces
from crannog.traces.span_table import SPANS

router = APIRouter(tags=["traces"])


class _Order(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Doomed(_Order):
    """Traces to erase: those named, or those with a span that meets a filter. A dry run only counts."""

    trace_ids: list[str] | None = None
    where: str | dict[str, Any] | None = None
    actor: str = ""
    reason: str = ""
    dry_run: bool = False


class Old(_Order):
    """Spans to drop: those that started before a day, of some services or of all."""

    before: str
    service: str | list[str] | None = None


class Derived(_Order):
    """Days to work out anew from all their spans; without any, only what is new is added."""

    anew: list[str] = []


@router.post("/traces/erase", responses=gives(OBJECT, progress=True), openapi_extra=takes_json(Doomed))
async def erase(request: Request) -> Response:
    """Erase traces for good, and prove it."""
    call = call_of(request)
    call.need("admin", SPANS)
    asked: Doomed = document(await call.service.bodies.read(request), TypeAdapter(Doomed))
    traces = call.service.lake.traces
    if asked.dry_run:
        return answer(await asked_of_traces(request, lambda traces: traces.erasure_plan(asked.trace_ids, asked.where)))

    def work(progress: Progress, cancellation: Cancellation) -> ErasureReceipt:
        # What was noted and not kept yet is looked through as well.
        call.service.audit.flush()
        return traces.erase(
            asked.trace_ids,
            asked.where,
            actor=asked.actor or call.caller.name,
            reason=asked.reason,
            progress=progress,
            cancellation=cancellation,
        )

    return await long_work(request, work)


@router.post("/traces/expire", responses=gives(OBJECT, progress=True), openapi_extra=takes_json(Old))
async def expire(request: Request) -> Response:
    """Drop old spans, and what was derived from them."""
    call = call_of(request)
    call.need("admin", SPANS)
    asked: Old = document(await call.service.bodies.read(request), TypeAdapter(Old))
    before, traces = _day(asked.before), call.service.lake.traces
    return await long_work(
        request,
        lambda progress, cancellation: traces.expire(
            before, asked.service, progress=progress, cancellation=cancellation
        ),
    )


@router.post("/traces/derive", responses=gives(OBJECT, progress=True), openapi_extra=takes_json(Derived))
async def derive(request: Request) -> Response:
    """Fold what is staged, and bring summaries, metrics, dependencies and attributes up to it."""
    call = call_of(request)
    call.need("admin", SPANS)
    asked: Derived = document(await call.service.bodies.read(request), TypeAdapter(Derived))
    days, traces = [_day(text) for text in asked.anew], call.service.lake.traces
    return await long_work(
        request, lambda progress, cancellation: traces.derive(days, progress=progress, cancellation=cancellation)
    )


def _day(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise CallerError(f"a day is given as YYYY-MM-DD, like 2026-01-31, got {text[:40]!r}") from None
