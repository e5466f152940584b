"""Jaeger's query API, v1 and v3, for Jaeger's UI and Grafana: our search and traces in its shapes, errors included."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams
from starlette.responses import Response

from crannog.errors import CallerError, CrannogError, NotFound, TooLarge
from crannog.server.requests import Call, call_of
from crannog.server.responses import JSON, answer
from crannog.server.trace_queries import run_trace_query
from crannog.traces.jaeger import monitor, requests, responses
from crannog.traces.span_table import SPANS

if TYPE_CHECKING:
    from crannog.api.traces import Trace, TraceSummary
    from crannog.traces.store import EmbeddedTraces

    Work = Callable[[EmbeddedTraces], dict[str, Any]]
    ErrorShape = Callable[[int, str], dict[str, Any]]

router = APIRouter(tags=["jaeger"], include_in_schema=False)

_MAX_TRACES = 1_500  # the highest limit that Jaeger's UI sends
_DEFAULT_TRACES = 100
_MAX_SPANS = 200_000  # in one response, to bound the memory that a request takes
_NO_TRACE = "trace not found"
_MIN_STEP_MS = 1_000


async def _respond(
    request: Request, work: Work, error_shape: ErrorShape, encode: Callable[[dict[str, Any]], Response]
) -> Response:
    call = call_of(request)
    try:
        call.need("read", SPANS)
        # Encoded in the thread: a response with many traces takes a while.
        return await run_trace_query(request, lambda store: encode(work(store.traces)))
    except CrannogError as error:
        return _error(call, error, error_shape)


def _error(call: Call, error: CrannogError, shape: ErrorShape) -> Response:
    call.error_code = error.code
    return answer(shape(error.http_status, error.message), error.http_status)


async def _v1(request: Request, work: Work) -> Response:
    """Respond in the envelope of v1, also with errors."""
    pretty = request.query_params.get("prettyPrint", "") not in ("", "false")
    return await _respond(request, work, _error_v1, _indented if pretty else answer)


def _indented(value: dict[str, Any]) -> Response:
    text = json.dumps(value, ensure_ascii=False, indent=4)
    return Response(text.encode("utf-8", "backslashreplace"), media_type=JSON)


def _error_v1(code: int, message: str) -> dict[str, Any]:
    return responses.envelope_v1(None, errors=[{"code": code, "msg": message}])


async def _v3(request: Request, work: Work) -> Response:
    """Respond as v3 does, also with errors."""
    return await _respond(request, work, responses.error_v3, answer)


def _trace(traces: EmbeddedTraces, trace_id: str) -> Trace:
    try:
        return traces.get(requests.trace_id(trace_id))
    except NotFound:
        raise NotFound(_NO_TRACE) from None


def _split_by_size(span_counts: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Return the ids of the traces that fit into one response, which the first always does, and of the others."""
    ids, totals = list(span_counts), accumulate(span_counts.values())
    fit = max(1, sum(total <= _MAX_SPANS for total in totals))
    return ids[:fit], ids[fit:]


def _span_counts(found: Sequence[TraceSummary]) -> dict[str, int]:
    return {summary.trace_id: summary.span_count for summary in found}


def _limit(text: str | None, name: str) -> int:
    if not text:
        return _DEFAULT_TRACES
    if not text.isdecimal() or not 0 < int(text) <= _MAX_TRACES:
        raise CallerError(
            f"malformed parameter '{name}': expected a whole number from 1 to {_MAX_TRACES:,}, got {text[:40]!r}"
        )
    return int(text)


def _operations(traces: EmbeddedTraces, service: str | None, kind: str | None) -> list[dict[str, str]]:
    if not service:
        raise CallerError("parameter 'service' is required")
    found = [{"name": name, "spanKind": (own or "").lower()} for name, own in traces.operations_by_kind(service)]
    return [operation for operation in found if not kind or operation["spanKind"] == kind.lower()]


# -- v1 ----------------------------------------------------------------------------------------------------------------


@router.get("/api/services")
async def services(request: Request) -> Response:
    return await _v1(request, lambda traces: _counted(traces.services()))


@router.get("/api/services/{service:path}/operations")
async def operation_names(request: Request, service: str) -> Response:
    return await _v1(request, lambda traces: _counted(traces.operations(service)))


@router.get("/api/operations")
async def operations(request: Request) -> Response:
    params = request.query_params
    return await _v1(
        request, lambda traces: _counted(_operations(traces, params.get("service"), params.get("spanKind")))
    )


def _counted(items: list[Any]) -> dict[str, Any]:
    return responses.envelope_v1(items, total=len(items))


@router.get("/api/traces")
async def traces(request: Request) -> Response:
    ids = requests.listed(request.query_params.getlist("traceID"))
    return await _v1(request, lambda traces: _by_id(traces, ids) if ids else _search(traces, request.query_params))


def _search(traces: EmbeddedTraces, params: QueryParams) -> dict[str, Any]:
    now = time.time_ns()
    min_ns, max_ns = (requests.duration_ns(params.get(name), name) for name in ("minDuration", "maxDuration"))
    start, end = (requests.microseconds(params.get(name), name) for name in ("start", "end"))
    page = traces.search(
        service=params.get("service") or None,
        operation=params.get("operation") or None,
        where=requests.filter_of(requests.tags_of(params.getlist("tag"), params.get("tags")), min_ns, max_ns),
        start=now - 2 * requests.DAY_NS if start is None else start,
        # Clients mean an inclusive end, in microseconds. Without one, spans of clocks that run ahead are included.
        end=now + requests.DAY_NS if end is None else end + 1_000,
        limit=_limit(params.get("limit"), "limit"),
    )
    ids, others = _split_by_size(_span_counts(page.traces))
    found = [responses.trace_v1(trace) for trace in traces.store.get_many(ids)]
    return responses.envelope_v1(found, errors=[_too_large(trace_id) for trace_id in others])


def _by_id(traces: EmbeddedTraces, ids: list[str]) -> dict[str, Any]:
    if len(ids) > _MAX_TRACES:
        raise CallerError(f"{len(ids):,} trace ids were given; the limit is {_MAX_TRACES:,}")
    given = {requests.trace_id(text): text for text in ids}
    counts = traces.store.span_counts(list(given))
    fit, others = _split_by_size({trace_id: counts[trace_id] for trace_id in given if trace_id in counts})
    missing = [
        {"code": NotFound.http_status, "msg": _NO_TRACE, "traceID": text}
        for trace_id, text in given.items()
        if trace_id not in counts
    ]
    found = [responses.trace_v1(trace) for trace in traces.store.get_many(fit)]
    return responses.envelope_v1(found, errors=[*missing, *(_too_large(given[trace_id]) for trace_id in others)])


def _too_large(trace_id: str) -> dict[str, Any]:
    return {
        "code": TooLarge.http_status,
        "msg": f"left out, since the response already has {_MAX_SPANS:,} spans or more: request it by itself",
        "traceID": trace_id,
    }


@router.get("/api/traces/{trace_id}")
async def trace(request: Request, trace_id: str) -> Response:
    return await _v1(request, lambda traces: responses.envelope_v1([responses.trace_v1(_trace(traces, trace_id))]))


@router.post("/api/transform")
async def transform(request: Request) -> Response:
    """Show the traces of an OTLP file that was opened in Jaeger's UI; nothing is stored."""
    call = call_of(request)
    try:
        call.need("read", SPANS)
        body = await call.service.bodies.read(request, call.service.bodies.spans)
        limit = call.service.settings.otlp_request_bytes
        return await call.service.threads.run("read", lambda: answer(_transformed(body, limit)))
    except CrannogError as error:
        return _error(call, error, _error_v1)


def _transformed(body: bytes, max_bytes: int) -> dict[str, Any]:
    # Here: a server does not load it before it is needed.
    from crannog.traces.jaeger.transform import file_traces

    file = file_traces(body, max_bytes=max_bytes, max_spans=_MAX_SPANS)
    # Jaeger's UI shows the warnings of spans, and ignores errors beside data.
    errors = [{"code": CallerError.http_status, "msg": file.message}] if file.message else []
    return responses.envelope_v1(
        [responses.trace_v1(trace, file.warnings(trace.trace_id)) for trace in file.traces], errors=errors
    )


@router.get("/api/dependencies")
async def dependencies(request: Request) -> Response:
    params = request.query_params

    def found(traces: EmbeddedTraces) -> dict[str, Any]:
        end_ms = requests.milliseconds(params.get("endTs"), "endTs") or time.time_ns() // 10**6
        lookback_ms = requests.milliseconds(params.get("lookback"), "lookback") or 86_400_000
        edges = traces.dependencies((end_ms - lookback_ms) * 10**6, end_ms * 10**6)
        return _counted([{"parent": edge.parent, "child": edge.child, "callCount": edge.calls} for edge in edges])

    return await _v1(request, found)


@router.get("/api/metrics/minstep")
async def min_step(request: Request) -> Response:
    return await _v1(request, lambda _: responses.envelope_v1(_MIN_STEP_MS))


@router.get("/api/metrics/{metric}")
async def metrics(request: Request, metric: str) -> Response:
    params = request.query_params
    services, kinds = (requests.listed(params.getlist(name)) for name in ("service", "spanKind"))
    now_ms = time.time_ns() // 10**6
    return await _v1(
        request, lambda traces: monitor.metric_family(traces.metrics, metric, params, services, kinds, now_ms)
    )


# -- v3 ----------------------------------------------------------------------------------------------------------------


@router.get("/api/v3/services")
async def services_v3(request: Request) -> Response:
    return await _v3(request, lambda traces: {"services": traces.services()})


@router.get("/api/v3/operations")
async def operations_v3(request: Request) -> Response:
    params = request.query_params
    kind = params.get("span_kind") or params.get("spanKind")
    return await _v3(request, lambda traces: {"operations": _operations(traces, params.get("service"), kind)})


@router.get("/api/v3/traces/{trace_id}")
async def trace_v3(request: Request, trace_id: str) -> Response:
    def found(traces: EmbeddedTraces) -> dict[str, Any]:
        try:
            return {"result": responses.traces_v3(traces.export([requests.trace_id(trace_id)]))}
        except NotFound:
            raise NotFound(_NO_TRACE) from None

    return await _v3(request, found)


@router.get("/api/v3/traces")
async def traces_v3(request: Request) -> Response:
    def found(traces: EmbeddedTraces) -> dict[str, Any]:
        ids, others = _split_by_size(_span_counts(_search_v3(request, traces)))
        if not ids:
            raise NotFound("No traces found")
        if others:
            raise TooLarge(
                f"the {len(ids) + len(others):,} traces found have more than {_MAX_SPANS:,} spans; lower query.search_depth"
            )
        return {"result": responses.traces_v3(traces.export(ids))}

    return await _v3(request, found)


@router.get("/api/v3/trace-summaries")
async def summaries_v3(request: Request) -> Response:
    return await _v3(
        request, lambda traces: responses.summaries_v3(traces.store.jaeger_summaries(_search_v3(request, traces)))
    )


def _search_v3(request: Request, traces: EmbeddedTraces) -> Sequence[TraceSummary]:
    params = request.query_params

    def param(name: str) -> str | None:
        head, *more = name.split("_")
        return params.get(f"query.{name}") or params.get(f"query.{head}{''.join(part.capitalize() for part in more)}")

    min_ns, max_ns = (requests.duration_ns(param(name), f"query.{name}") for name in ("duration_min", "duration_max"))
    page = traces.search(
        service=param("service_name"),
        operation=param("operation_name"),
        where=requests.filter_of(requests.tags_of((), param("attributes")), min_ns, max_ns),
        start=requests.moment(param("start_time_min"), "query.start_time_min"),
        end=requests.moment(param("start_time_max"), "query.start_time_max") + 1,
        limit=_limit(param("search_depth") or param("num_traces"), "query.search_depth"),
    )
    return page.traces


# The audit calls reads by the names of their routes.
for _route in router.routes:
    if isinstance(_route, APIRoute):
        _route.name = f"jaeger_{_route.name}"
