"""Questions about traces as documents, with typed values and of any length, which is how programs ask; and spans in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, TypeAdapter
from starlette.responses import Response

from crannog.errors import NotFound
from crannog.formats.encode import dumped
from crannog.formats.lossless_json import marked
from crannog.server.bodies import check_message
from crannog.server.openapi import LIST, OBJECT, gives, takes, takes_json
from crannog.server.request_context import call_of
from crannog.server.request_parsing import document
from crannog.server.responses import JSON, answer, wanted_form
from crannog.server.trace_queries import LIMITS, asked_of_traces, key_of, lines_of_traces
from crannog.traces.span_table import SPANS

if TYPE_CHECKING:
    from crannog.traces.traces import Traces

router = APIRouter(tags=["traces"])
PROTOBUF = "application/x-protobuf"


class _Question(BaseModel):
    """Values are checked by the store, in the words that a caller in Python would get."""

    model_config = ConfigDict(extra="forbid")

    @property
    def given(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


class Chosen(_Question):
    """Which spans: all that is given must hold of one. `attributes` is an object of keys and typed values."""

    service: Any = None
    operation: Any = None
    text: Any = None
    attributes: Any = None
    where: Any = None
    start: Any = None
    end: Any = None


class SpanQuestion(Chosen):
    """A page of spans."""

    limit: Any = 50
    cursor: Any = None
    order: Any = "newest"
    count: Any = False


class TraceQuestion(SpanQuestion):
    """A page of traces."""

    has_errors: Any = None
    min_duration_ms: Any = None
    max_duration_ms: Any = None


class CompleteQuestion(Chosen):
    """What could be typed next."""

    what: Any
    prefix: Any = ""
    key: Any = None
    limit: Any = 20


class MetricQuestion(_Question):
    """Figures by time."""

    service: Any = None
    operation: Any = None
    kind: Any = None
    start: Any = None
    end: Any = None
    step: Any = "1m"
    group_by: Any = None
    where: Any = None
    of: Any = "spans"
    quantiles: Any = ()


class DependencyQuestion(_Question):
    """Which services call which, in a time."""

    start: Any = None
    end: Any = None


class Named(_Question):
    """Traces by their ids."""

    trace_ids: list[str]


async def read(request: Request, work: Callable[[Traces], Any]) -> Response:
    """Answer with what was read, exactly: see `crannog.formats.lossless_json`."""
    call = call_of(request)
    call.need("read", SPANS)
    # In the thread, too: a trace of many spans takes its time to write.
    return Response(await asked_of_traces(request, lambda traces: dumped(marked(work(traces)))), media_type=JSON)


async def exported(request: Request, trace_ids: Sequence[str]) -> Response:
    """Answer with traces as OTLP: in JSON, or in protobuf or in lines of JSON where that is accepted."""
    call_of(request).need("read", SPANS)
    if PROTOBUF not in request.headers.get("accept", ""):
        if wanted_form(request, ("json", "ndjson")) == "ndjson":
            return await lines_of_traces(request, lambda traces: traces.export_lines(trace_ids))
        return await read(request, lambda traces: traces.export(trace_ids))
    return Response(
        await asked_of_traces(request, lambda traces: traces.export_protobuf(trace_ids)), media_type=PROTOBUF
    )


async def _asked(request: Request, shape: type[_Question], work: Callable[[Traces, dict[str, Any]], Any]) -> Response:
    call = call_of(request)
    call.need("read", SPANS)
    asked: _Question = document(await call.service.bodies.read(request), TypeAdapter(shape))
    return await read(request, lambda traces: work(traces, asked.given))


@router.post("/traces/search", responses=gives(OBJECT), openapi_extra=takes_json(TraceQuestion) | LIMITS)
async def search_question(request: Request) -> Response:
    """Find traces."""
    return await _asked(request, TraceQuestion, lambda traces, asked: traces.search(**asked))


@router.post("/traces/spans", responses=gives(OBJECT), openapi_extra=takes_json(SpanQuestion) | LIMITS)
async def span_question(request: Request) -> Response:
    """Find spans."""
    return await _asked(request, SpanQuestion, lambda traces, asked: traces.search_spans(**asked))


@router.post("/traces/complete", responses=gives(LIST), openapi_extra=takes_json(CompleteQuestion) | LIMITS)
async def complete_question(request: Request) -> Response:
    """What could be typed next, within the spans of a filter."""
    return await _asked(request, CompleteQuestion, lambda traces, asked: traces.complete(**asked))


@router.post("/traces/metrics", responses=gives(LIST), openapi_extra=takes_json(MetricQuestion) | LIMITS)
async def metric_question(request: Request) -> Response:
    """Counts, rates, errors and latencies by time."""
    return await _asked(request, MetricQuestion, lambda traces, asked: traces.metrics(**asked))


@router.post("/traces/dependencies", responses=gives(LIST), openapi_extra=takes_json(DependencyQuestion) | LIMITS)
async def dependency_question(request: Request) -> Response:
    """Which services call which."""
    return await _asked(request, DependencyQuestion, lambda traces, asked: traces.dependencies(**asked))


@router.post("/traces/export", responses=gives(OBJECT, lines=True), openapi_extra=takes_json(Named) | LIMITS)
async def export_question(request: Request) -> Response:
    """Several traces as one OTLP request, in JSON, or in protobuf where that is accepted; of any size as lines of requests."""
    call = call_of(request)
    call.need("read", SPANS)
    asked: Named = document(await call.service.bodies.read(request), TypeAdapter(Named))
    return await exported(request, asked.trace_ids)


@router.delete("/traces/questions/{query_id:path}", responses=gives(OBJECT))
async def cancel(request: Request, query_id: str) -> Response:
    """End a question that was asked with the header `Crannog-Query-Id`. Everybody may end their own, an admin all."""
    call = call_of(request)
    service = call.service
    owner = service.owner(key_of(query_id))
    if owner is None or (owner != call.caller.name and not call.caller.may_everywhere("admin")):
        raise NotFound(f"no question {query_id!r} of yours runs; it may have ended")
    await service.threads.run("read", lambda: service.lake.traces.cancel(query_id))
    return answer({"query_id": query_id, "cancelled": True})


@router.post(
    "/traces/otlp",
    responses=gives(OBJECT),
    openapi_extra=takes({PROTOBUF: {"type": "string", "format": "binary"}, JSON: OBJECT}),
)
async def write_otlp(request: Request) -> Response:
    """Keep the spans of an OTLP request, as the receivers do; the answer counts them."""
    from crannog.server.otlp.span_writes import keep

    call = call_of(request)
    call.need("write", SPANS)
    body = await call.service.bodies.read(request)
    check_message(body, request.headers)
    kind = request.headers.get("content-type", PROTOBUF)
    done = await call.service.threads.run("write", lambda: keep(call.service, call.caller, body, kind, None))
    call.rows = done.accepted
    return Response(dumped(marked(done)), media_type=JSON)
