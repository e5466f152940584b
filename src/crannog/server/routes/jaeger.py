"""Jaeger's query API, v1 and v3, for Jaeger's own pages and Grafana: our search and traces, in its shapes and errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from crannog.errors import CallerError, CrannogError, NotFound
from crannog.server.answers import answer
from crannog.server.call import call_of
from crannog.traces.jaeger import questions, v1, v3
from crannog.traces.spans import SPANS
from crannog.traces.traces import Traces

router = APIRouter(tags=["jaeger"], include_in_schema=False)

_MOST_TRACES = 1_000
_NO_TRACE = "trace not found"


async def _v1(request: Request, work: Callable[[Traces], dict[str, Any]]) -> Response:
    """Answer in the envelope of v1, errors too."""
    call = call_of(request)
    try:
        call.need("read", SPANS)
        return answer(await call.service.threads.run("read", lambda: work(call.service.lake.traces)))
    except CrannogError as error:
        call.error_code = error.code
        told = {"code": error.http_status, "msg": _NO_TRACE if isinstance(error, NotFound) else error.message}
        return answer(v1.envelope(None, errors=[told]), error.http_status)


async def _v3(request: Request, work: Callable[[Traces], dict[str, Any]]) -> Response:
    """Answer as v3 does, errors too."""
    call = call_of(request)
    try:
        call.need("read", SPANS)
        return answer(await call.service.threads.run("read", lambda: work(call.service.lake.traces)))
    except CrannogError as error:
        call.error_code = error.code
        return answer(v3.refusal(error.http_status, error.message), error.http_status)


# -- v1 ----------------------------------------------------------------------------------------------------------------


@router.get("/api/services")
async def services(request: Request) -> Response:
    def found(traces: Traces) -> dict[str, Any]:
        names = traces.services()
        return v1.envelope(names, total=len(names))

    return await _v1(request, found)


@router.get("/api/services/{service:path}/operations")
async def operation_names(request: Request, service: str) -> Response:
    def found(traces: Traces) -> dict[str, Any]:
        names = traces.operations(service)
        return v1.envelope(names, total=len(names))

    return await _v1(request, found)


@router.get("/api/operations")
async def operations(request: Request) -> Response:
    asked = request.query_params

    def found(traces: Traces) -> dict[str, Any]:
        if not asked.get("service"):
            raise CallerError("parameter 'service' is required")
        listed = _operations(traces, asked["service"], asked.get("spanKind"))
        return v1.envelope(listed, total=len(listed))

    return await _v1(request, found)


def _operations(traces: Traces, service: str, kind: str | None) -> list[dict[str, str]]:
    found = [{"name": name, "spanKind": (of or "").lower()} for name, of in traces.operations_by_kind(service)]
    return [operation for operation in found if not kind or operation["spanKind"] == kind.lower()]


@router.get("/api/traces")
async def traces(request: Request) -> Response:
    asked = request.query_params

    def found(traces: Traces) -> dict[str, Any]:
        ids = questions.listed(asked.getlist("traceID"))
        return _named(traces, ids) if ids else _searched(traces)

    def _searched(traces: Traces) -> dict[str, Any]:
        now = time.time_ns()
        limit = _limit(asked.get("limit"), 100)
        page = traces.search(
            service=asked.get("service") or None,
            operation=asked.get("operation") or None,
            where=questions.filter_of(questions.tags_of(asked.getlist("tag"), asked.get("tags"))),
            min_duration_ms=questions.duration_ms(asked.get("minDuration"), "minDuration"),
            max_duration_ms=questions.duration_ms(asked.get("maxDuration"), "maxDuration"),
            start=questions.microseconds(asked.get("start"), "start") or now - 2 * questions.DAY_NS,
            end=questions.microseconds(asked.get("end"), "end") or now + questions.DAY_NS,
            limit=limit,
        )
        return v1.envelope([v1.trace_of(traces.get(summary.trace_id)) for summary in page.traces], limit=limit)

    return await _v1(request, found)


def _named(traces: Traces, ids: list[str]) -> dict[str, Any]:
    if len(ids) > _MOST_TRACES:
        raise CallerError(f"{len(ids):,} traces were asked for; {_MOST_TRACES:,} is the most")
    found, missing = [], []
    for trace_id in ids:
        try:
            found.append(v1.trace_of(traces.get(trace_id)))
        except NotFound:
            missing.append({"code": 404, "msg": _NO_TRACE, "traceID": trace_id})
    return v1.envelope(found, errors=missing)


def _limit(text: str | None, default: int) -> int:
    if not text:
        return default
    if not text.isdigit() or not 0 < int(text) <= _MOST_TRACES:
        raise CallerError(f"limit is a whole number from 1 to {_MOST_TRACES:,}, got {text[:40]!r}")
    return int(text)


@router.get("/api/traces/{trace_id}")
async def trace(request: Request, trace_id: str) -> Response:
    return await _v1(request, lambda traces: v1.envelope([v1.trace_of(traces.get(trace_id))]))


@router.get("/api/dependencies")
async def dependencies(request: Request) -> Response:
    asked = request.query_params

    def found(traces: Traces) -> dict[str, Any]:
        end_ms = _milliseconds(asked.get("endTs"), "endTs") or time.time_ns() // 10**6
        lookback_ms = _milliseconds(asked.get("lookback"), "lookback") or 86_400_000
        edges = traces.dependencies((end_ms - lookback_ms) * 10**6, end_ms * 10**6)
        listed = [{"parent": edge.parent, "child": edge.child, "callCount": edge.calls} for edge in edges]
        return v1.envelope(listed, total=len(listed))

    return await _v1(request, found)


def _milliseconds(text: str | None, name: str) -> int | None:
    if not text:
        return None
    if not text.isdigit() or len(text) > 15:
        raise CallerError(f"{name} is a number of milliseconds, got {text[:40]!r}")
    return int(text)


@router.get("/api/metrics/minstep")
async def least_step(request: Request) -> Response:
    return await _v1(request, lambda _: v1.envelope(1000))


@router.get("/api/metrics/{what}")
async def metrics(request: Request, what: str) -> Response:
    asked = request.query_params

    def found(traces: Traces) -> dict[str, Any]:
        if what not in ("latencies", "calls", "errors"):
            raise NotFound(f"there is no metric {what!r}; there are latencies, calls, errors and minstep")
        names = questions.listed(asked.getlist("service"))
        if not names:
            raise CallerError("parameter 'service' is required")
        return _series(traces, what, names)

    def _series(traces: Traces, what: str, names: list[str]) -> dict[str, Any]:
        end_ms = _milliseconds(asked.get("endTs"), "endTs") or time.time_ns() // 10**6
        lookback_ms = _milliseconds(asked.get("lookback"), "lookback") or 3_600_000
        step_s = max(1, (_milliseconds(asked.get("step"), "step") or 5_000) // 1000)
        per_s = (_milliseconds(asked.get("ratePer"), "ratePer") or 600_000) / 1000
        by_operation = asked.get("groupByOperation") == "true"
        quantile = _quantile(asked.get("quantile")) if what == "latencies" else ""
        kinds = questions.listed(asked.getlist("spanKind")) or ["server"]
        families = []
        for service in names:
            points = traces.metrics(
                start=(end_ms - lookback_ms) * 10**6,
                end=end_ms * 10**6,
                step=f"{step_s}s",
                group_by=["operation"] if by_operation else None,
                where=_of_kinds(service, kinds),
            )
            families += _lines(service, points, lambda point: _value(what, quantile, per_s, point))
        name = f"service_{'operation_' if by_operation else ''}{'call_rate' if what == 'calls' else 'error_rate' if what == 'errors' else 'latencies'}"
        return v1.series(name, f"{what} of {', '.join(names)}", families)

    return await _v1(request, found)


def _of_kinds(service: str, kinds: list[str]) -> str:
    import json

    wanted = [kind.lower().removeprefix("span_kind_") for kind in kinds]
    return f"service = {json.dumps(service, ensure_ascii=False)} and kind in ({', '.join(map(json.dumps, wanted))})"


def _quantile(text: str | None) -> str:
    known = {0.5: "p50_ns", 0.95: "p95_ns", 0.99: "p99_ns"}
    try:
        return known[float(text or "0.95")]
    except (ValueError, KeyError):
        raise CallerError(f"quantile is one of 0.5, 0.95 and 0.99, got {str(text)[:40]!r}") from None


def _value(what: str, quantile: str, per_s: float, point: Any) -> float:
    if what == "latencies":
        return float(getattr(point, quantile)) / 10**6
    return float(point.rate) * per_s if what == "calls" else float(point.error_rate)


def _lines(service: str, points: Any, value: Callable[[Any], float]) -> list[tuple[dict[str, str], list[tuple[int, float]]]]:
    found: dict[tuple[tuple[str, str], ...], list[tuple[int, float]]] = {}
    for point in points:
        labels = {"service_name": service, **{name: str(of) for name, of in point.group.items()}}
        found.setdefault(tuple(labels.items()), []).append((int(point.start.timestamp() * 1000), value(point)))
    return [(dict(labels), line) for labels, line in found.items()]


# -- v3 ----------------------------------------------------------------------------------------------------------------


@router.get("/api/v3/services")
async def services_v3(request: Request) -> Response:
    return await _v3(request, lambda traces: {"services": traces.services()})


@router.get("/api/v3/operations")
async def operations_v3(request: Request) -> Response:
    asked = request.query_params

    def found(traces: Traces) -> dict[str, Any]:
        service = asked.get("service")
        if not service:
            raise CallerError("malformed parameter 'service': it is required")
        return {"operations": _operations(traces, service, asked.get("span_kind") or asked.get("spanKind"))}

    return await _v3(request, found)


@router.get("/api/v3/traces/{trace_id}")
async def trace_v3(request: Request, trace_id: str) -> Response:
    return await _v3(request, lambda traces: {"result": traces.export([trace_id])})


@router.get("/api/v3/traces")
async def traces_v3(request: Request) -> Response:
    def found(traces: Traces) -> dict[str, Any]:
        ids = _searched_v3(request, traces)
        if not ids:
            raise NotFound("no traces found")
        return {"result": traces.export(ids)}

    return await _v3(request, found)


@router.get("/api/v3/trace-summaries")
async def summaries_v3(request: Request) -> Response:
    return await _v3(request, lambda traces: v3.summaries_of([traces.get(found) for found in _searched_v3(request, traces)]))


def _searched_v3(request: Request, traces: Traces) -> list[str]:
    given = request.query_params

    def asked(name: str) -> str | None:
        head, *more = name.split("_")
        return given.get(f"query.{name}") or given.get(f"query.{head}{''.join(part.capitalize() for part in more)}")

    page = traces.search(
        service=asked("service_name"),
        operation=asked("operation_name"),
        where=questions.filter_of(questions.tags_of((), asked("attributes"))),
        min_duration_ms=questions.duration_ms(asked("duration_min"), "query.duration_min"),
        max_duration_ms=questions.duration_ms(asked("duration_max"), "query.duration_max"),
        start=questions.moment(asked("start_time_min"), "query.start_time_min"),
        end=questions.moment(asked("start_time_max"), "query.start_time_max"),
        limit=_limit(asked("search_depth"), 100),
    )
    return [summary.trace_id for summary in page.traces]
