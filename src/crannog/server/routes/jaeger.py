"""Jaeger's query API, v1 and v3, for Jaeger's own pages and Grafana: our search and traces, in its shapes and errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from crannog.errors import CallerError, CrannogError, NotFound, TooLarge
from crannog.server.request_context import call_of
from crannog.server.responses import answer
from crannog.server.trace_queries import asked_of_traces
from crannog.traces.jaeger import monitor, requests, v1, v3
from crannog.traces.span_table import SPANS

if TYPE_CHECKING:
    from crannog.api.traces import Trace, TraceSummary
    from crannog.traces.traces import Traces

    Work = Callable[[Traces], dict[str, Any]]

router = APIRouter(tags=["jaeger"], include_in_schema=False)

_MOST_TRACES = 1_500  # what Jaeger's own pages ask for at most
_TRACES = 100
_MOST_SPANS = 200_000  # in one answer, so that no question fills the memory
_NO_TRACE = "trace not found"
_MIN_STEP_MS = 1_000


async def _asked(request: Request, work: Work, refusal: Callable[[int, str], dict[str, Any]]) -> Response:
    call = call_of(request)
    try:
        call.need("read", SPANS)
        # Written in the thread: many traces take their time.
        return await asked_of_traces(request, lambda traces: answer(work(traces)))
    except CrannogError as error:
        call.error_code = error.code
        return answer(refusal(error.http_status, error.message), error.http_status)


async def _v1(request: Request, work: Work) -> Response:
    """Answer in the envelope of v1, errors too."""
    return await _asked(request, work, _refusal_v1)


def _refusal_v1(code: int, message: str) -> dict[str, Any]:
    return v1.envelope(None, errors=[{"code": code, "msg": message}])


async def _v3(request: Request, work: Work) -> Response:
    """Answer as v3 does, errors too."""
    return await _asked(request, work, v3.refusal)


def _trace(traces: Traces, trace_id: str) -> Trace:
    try:
        return traces.get(requests.trace_id(trace_id))
    except NotFound:
        raise NotFound(_NO_TRACE) from None


def _fitting(counts: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Return the ids of traces, given with their spans, that fit into one answer, the first always, and of those that do not."""
    ids, held = list(counts), accumulate(counts.values())
    fit = max(1, sum(spans <= _MOST_SPANS for spans in held))
    return ids[:fit], ids[fit:]


def _counts(found: Sequence[TraceSummary]) -> dict[str, int]:
    return {summary.trace_id: summary.span_count for summary in found}


def _limit(text: str | None, name: str) -> int:
    if not text:
        return _TRACES
    if not text.isdecimal() or not 0 < int(text) <= _MOST_TRACES:
        raise CallerError(
            f"malformed parameter '{name}': it is a whole number from 1 to {_MOST_TRACES:,}, got {text[:40]!r}"
        )
    return int(text)


def _operations(traces: Traces, service: str | None, kind: str | None) -> list[dict[str, str]]:
    if not service:
        raise CallerError("parameter 'service' is required")
    found = [{"name": name, "spanKind": (of or "").lower()} for name, of in traces.operations_by_kind(service)]
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
    asked = request.query_params
    return await _v1(request, lambda traces: _counted(_operations(traces, asked.get("service"), asked.get("spanKind"))))


def _counted(listed: list[Any]) -> dict[str, Any]:
    return v1.envelope(listed, total=len(listed))


@router.get("/api/traces")
async def traces(request: Request) -> Response:
    asked = request.query_params

    def found(traces: Traces) -> dict[str, Any]:
        ids = requests.listed(asked.getlist("traceID"))
        return _named(traces, ids) if ids else _searched(traces)

    def _searched(traces: Traces) -> dict[str, Any]:
        now = time.time_ns()
        least, most = (requests.duration_ns(asked.get(name), name) for name in ("minDuration", "maxDuration"))
        start, end = (requests.microseconds(asked.get(name), name) for name in ("start", "end"))
        page = traces.search(
            service=asked.get("service") or None,
            operation=asked.get("operation") or None,
            where=requests.filter_of(requests.tags_of(asked.getlist("tag"), asked.get("tags")), least, most),
            start=now - 2 * requests.DAY_NS if start is None else start,
            # Its clients mean the end included, to the microsecond; without one, what clocks ahead of ours sent counts too.
            end=now + requests.DAY_NS if end is None else end + 1_000,
            limit=_limit(asked.get("limit"), "limit"),
        )
        ids, others = _fitting(_counts(page.traces))
        return v1.envelope(
            [v1.trace_of(trace) for trace in traces.get_many(ids)], errors=[_left_out(trace_id) for trace_id in others]
        )

    return await _v1(request, found)


def _named(traces: Traces, ids: list[str]) -> dict[str, Any]:
    if len(ids) > _MOST_TRACES:
        raise CallerError(f"{len(ids):,} traces were asked for; {_MOST_TRACES:,} is the most")
    asked = {requests.trace_id(text): text for text in ids}
    counts = traces.span_counts(list(asked))
    fit, others = _fitting({trace_id: counts[trace_id] for trace_id in asked if trace_id in counts})
    missing = [
        {"code": NotFound.http_status, "msg": _NO_TRACE, "traceID": text}
        for trace_id, text in asked.items()
        if trace_id not in counts
    ]
    found = [v1.trace_of(trace) for trace in traces.get_many(fit)]
    return v1.envelope(found, errors=[*missing, *(_left_out(asked[trace_id]) for trace_id in others)])


def _left_out(trace_id: str) -> dict[str, Any]:
    return {
        "code": TooLarge.http_status,
        "msg": f"left out, the answer has more than {_MOST_SPANS:,} spans already: ask for it alone",
        "traceID": trace_id,
    }


@router.get("/api/traces/{trace_id}")
async def trace(request: Request, trace_id: str) -> Response:
    return await _v1(request, lambda traces: v1.envelope([v1.trace_of(_trace(traces, trace_id))]))


@router.post("/api/transform")
async def transform(request: Request) -> Response:
    """Show the traces of an OTLP file, which Jaeger's pages send here when somebody opens one; nothing is kept."""
    call = call_of(request)
    try:
        call.need("read", SPANS)
        body = await call.service.bodies.read(request)
        return await call.service.threads.run(
            "read", lambda: answer(_transformed(body, call.service.settings.otlp_request_bytes))
        )
    except CrannogError as error:
        call.error_code = error.code
        return answer(_refusal_v1(error.http_status, error.message), error.http_status)


def _transformed(body: bytes, limit: int) -> dict[str, Any]:
    from crannog.traces.jaeger.transform import traces_of  # here: a server does not load it before it is asked

    found, rejected = traces_of(body, bytes_limit=limit, spans_limit=_MOST_SPANS)
    errors = [{"code": CallerError.http_status, "msg": rejected.message}] if rejected.count else []
    return v1.envelope([v1.trace_of(trace) for trace in found], errors=errors)


@router.get("/api/dependencies")
async def dependencies(request: Request) -> Response:
    asked = request.query_params

    def found(traces: Traces) -> dict[str, Any]:
        end_ms = requests.milliseconds(asked.get("endTs"), "endTs") or time.time_ns() // 10**6
        lookback_ms = requests.milliseconds(asked.get("lookback"), "lookback") or 86_400_000
        edges = traces.dependencies((end_ms - lookback_ms) * 10**6, end_ms * 10**6)
        return _counted([{"parent": edge.parent, "child": edge.child, "callCount": edge.calls} for edge in edges])

    return await _v1(request, found)


@router.get("/api/metrics/minstep")
async def least_step(request: Request) -> Response:
    return await _v1(request, lambda _: v1.envelope(_MIN_STEP_MS))


@router.get("/api/metrics/{what}")
async def metrics(request: Request, what: str) -> Response:
    asked = request.query_params
    names, kinds = (requests.listed(asked.getlist(name)) for name in ("service", "spanKind"))
    return await _v1(
        request, lambda traces: monitor.family(traces.metrics, what, asked, names, kinds, time.time_ns() // 10**6)
    )


# -- v3 ----------------------------------------------------------------------------------------------------------------


@router.get("/api/v3/services")
async def services_v3(request: Request) -> Response:
    return await _v3(request, lambda traces: {"services": traces.services()})


@router.get("/api/v3/operations")
async def operations_v3(request: Request) -> Response:
    asked = request.query_params
    kind = asked.get("span_kind") or asked.get("spanKind")
    return await _v3(request, lambda traces: {"operations": _operations(traces, asked.get("service"), kind)})


@router.get("/api/v3/traces/{trace_id}")
async def trace_v3(request: Request, trace_id: str) -> Response:
    def found(traces: Traces) -> dict[str, Any]:
        try:
            return {"result": v3.traces_of(traces.export([requests.trace_id(trace_id)]))}
        except NotFound:
            raise NotFound(_NO_TRACE) from None

    return await _v3(request, found)


@router.get("/api/v3/traces")
async def traces_v3(request: Request) -> Response:
    def found(traces: Traces) -> dict[str, Any]:
        ids, others = _fitting(_counts(_searched_v3(request, traces)))
        if not ids:
            raise NotFound("No traces found")
        if others:
            raise TooLarge(
                f"the {len(ids) + len(others):,} traces found have more than {_MOST_SPANS:,} spans; ask for fewer with query.search_depth"
            )
        return {"result": v3.traces_of(traces.export(ids))}

    return await _v3(request, found)


@router.get("/api/v3/trace-summaries")
async def summaries_v3(request: Request) -> Response:
    return await _v3(request, lambda traces: v3.summaries_of(traces.jaeger_summaries(_searched_v3(request, traces))))


def _searched_v3(request: Request, traces: Traces) -> Sequence[TraceSummary]:
    given = request.query_params

    def asked(name: str) -> str | None:
        head, *more = name.split("_")
        return given.get(f"query.{name}") or given.get(f"query.{head}{''.join(part.capitalize() for part in more)}")

    least, most = (requests.duration_ns(asked(name), f"query.{name}") for name in ("duration_min", "duration_max"))
    page = traces.search(
        service=asked("service_name"),
        operation=asked("operation_name"),
        where=requests.filter_of(requests.tags_of((), asked("attributes")), least, most),
        start=requests.moment(asked("start_time_min"), "query.start_time_min"),
        end=requests.moment(asked("start_time_max"), "query.start_time_max") + 1,
        limit=_limit(asked("search_depth") or asked("num_traces"), "query.search_depth"),
    )
    return page.traces
