"""The build event log: the routes of its declared operations, and those whose bodies are events or a stream of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from crannog.api.operations import AnyOperation
from crannog.api.reports import Progress
from crannog.builds import requests as ops
from crannog.builds.build_views import JobGraphView, compare, draw, job_graph
from crannog.builds.event_values import from_json, to_json
from crannog.builds.events import BuildEvent
from crannog.builds.log import EventLog
from crannog.builds.open_log import EVENTS
from crannog.builds.results import plain
from crannog.builds.upkeep import check, prune, wipe_build
from crannog.errors import BadRows, CallerError, CrannogError
from crannog.formats.row_limits import JsonLimits
from crannog.server.openapi import LIST, OBJECT, gives, parameter, takes
from crannog.server.operations import RequestReader, add_routes, result_schema
from crannog.server.requests import Call, call_of, form_of
from crannog.server.responses import JSON, NDJSON, error_body
from crannog.server.streaming import Put, ThreadOutput, ThreadResponse, long_work

router = APIRouter(prefix="/api/v1", tags=["builds"])

_AS_OF = parameter(
    "as_of", "query", {"type": "integer", "minimum": 0}, "Read the log as it stood when this index was its last."
)
# Derived from reads of the log, by the functions that Python has for them.
_DERIVED: dict[AnyOperation, Callable[[EventLog, Any], Any]] = {
    ops.GRAPH: lambda log, query: _flowchart(job_graph(log, query.build_request_id)),
    ops.COMPARE: lambda log, query: compare(log, query.first, query.second),
    ops.LINEAGE: lambda log, query: log.get_lineage(
        query.partition_ref, query.direction, depth=query.depth, limit=query.limit
    ),
    ops.MANIFESTS: lambda log, query: log.get_manifests(query.build_request_id, query.partition_ref),
}


_LARGE = 1 << 18


def _flowchart(graph: JobGraphView) -> ops.Flowchart:
    return ops.Flowchart(draw(graph), graph.nodes, graph.edges)


def _response(result: Any) -> Response:
    """Return a response with a result of the log, its numbers as exact as in the events."""
    return Response(to_json(plain(result)).encode(), media_type=JSON)


async def _read(request: Request, operation: AnyOperation, query: Any) -> Response:
    """Read the log, or an earlier state of it."""
    call, as_of = call_of(request), request.query_params.get("as_of")
    if as_of is not None and not as_of.isdecimal():
        raise CallerError(f"the request does not fit: query.as_of: it is the index of an event, got {as_of[:40]!r}")
    index = None if as_of is None else int(as_of)

    def read() -> Response:
        log = call.service.build_log.as_of(index)
        derived = _DERIVED.get(operation)
        return _response(log.call(operation, query) if derived is None else derived(log, query))

    return await call.service.threads.run("read", read)


async def _list_events(request: Request, operation: AnyOperation, query: ops.EventQuery) -> Response:
    # A filter that is misspelt and ignored would give everything.
    if request.method == "GET" and (unknown := sorted(request.query_params.keys() - _EVENT_PARAMETERS)):
        raise CallerError(f"events have no parameter {unknown[0]}; they have {', '.join(sorted(_EVENT_PARAMETERS))}")
    return await _read(request, operation, query)


async def _remove(request: Request, _: AnyOperation, wanted: ops.RemoveEvents) -> Response:
    return await _written(request, lambda log: ops.Removed(log.remove_events(wanted.indexes)))


async def _written(request: Request, write: Callable[[EventLog], Any]) -> Response:
    call = call_of(request)
    return _response(await call.service.threads.run("write", lambda: write(call.service.build_log.get())))


async def _prune(request: Request, _: AnyOperation, wanted: ops.PruneLog) -> Response:
    call = call_of(request)
    if not wanted.dry_run:
        call.need("admin", EVENTS)

    def work(log: EventLog, progress: Progress) -> Any:
        return prune(
            log, before_ns=wanted.before_ns, keep_events=wanted.keep_events, dry_run=wanted.dry_run, batch=wanted.batch,
            progress=lambda removed: progress(f"{removed:,} events removed", 0.0),
        )  # fmt: skip

    return await _run_job(request, work)


async def _check(request: Request, *_: Any) -> Response:
    return await _run_job(request, lambda log, _: check(log))


async def _compact(request: Request, *_: Any) -> Response:
    def work(log: EventLog, _: Progress) -> ops.SpaceReport:
        act = getattr(log, "give_back_space", None)
        if act is None:
            raise CallerError(f"{log.uri} has no space to give back")
        before = log.stats().bytes
        act()
        return ops.SpaceReport(before, log.stats().bytes)

    return await _run_job(request, work)


async def _run_job(request: Request, work: Callable[[EventLog, Progress], Any]) -> Response:
    build_log = call_of(request).service.build_log
    return await long_work(request, lambda progress, _: plain(work(build_log.get(), progress)))


_FOLLOW = RequestReader(ops.LIST_EVENTS, ops.LIST_EVENTS.routes[0], typed=True)
_EVENT_PARAMETERS = {
    each["name"] for each in RequestReader(ops.LIST_EVENTS, ops.LIST_EVENTS.routes[1]).described()["parameters"]
} | {"as_of"}

add_routes(router, ops.LIST_EVENTS, _list_events, owner=EVENTS, typed=True, parameters=(_AS_OF,))
for _query in ops.QUERIES:
    _answers = gives(result_schema(_query))
    add_routes(router, _query, _read, answers=_answers, owner=EVENTS, typed=True, parameters=(_AS_OF,))
add_routes(router, ops.PRUNABLE, _read, owner=EVENTS)
add_routes(router, ops.REMOVE, _remove, owner=EVENTS, typed=True)
for _job, _carry_out in ((ops.PRUNE, _prune), (ops.CHECK, _check), (ops.COMPACT, _compact)):
    add_routes(router, _job, _carry_out, answers=gives(OBJECT, progress=True), owner=EVENTS, typed=True)


@router.post(
    "/builds/events",
    responses=gives(OBJECT),
    openapi_extra=takes({JSON: {"oneOf": [OBJECT, LIST]}, NDJSON: {"type": "string"}}),
)
async def append_events(
    request: Request,
    check_states: Annotated[bool, Query(description="Refuse a status that cannot follow the last one.")] = False,
) -> Response:
    """Store one event, or all of several or none; return their indexes once they are durable."""
    call = call_of(request)
    # Whether a status may follow shows something of the events before.
    call.need("write" if check_states else "ingest", EVENTS)
    form = form_of(request, ("json", "ndjson"))
    data = await call.service.bodies.read(request)

    def append(log: EventLog) -> dict[str, list[int]]:
        events = _events(data, form)
        call.rows = len(events)
        return {"indexes": log.append_events(events, check_states=check_states)}

    return await _written(request, append)


def _events(data: bytes, form: str) -> list[BuildEvent]:
    if not data:
        raise CallerError("the body is empty; a batch without events is [] in JSON, an empty line in NDJSON")
    if len(data) > _LARGE:
        JsonLimits.of_size(len(data)).check(data, "the body")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadRows(f"the body is not UTF-8: {error}") from None
    if form == "ndjson":
        found = [from_json(line, f"line {number}") for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    else:
        one = from_json(text, "the body")
        found = one if isinstance(one, list) else [one]
    return [_event(place, given) for place, given in enumerate(found)]


def _event(place: int, given: Any) -> BuildEvent:
    try:
        return BuildEvent.from_dict(given).at(None)
    except BadRows as error:
        raise BadRows(f"event {place} (counting from 0): {error.message}; nothing of the batch was kept") from None


@router.post("/builds/wipe", responses=gives(OBJECT))
async def wipe(
    request: Request, build_request_id: Annotated[str, Query(description="The id of a build request.")]
) -> Response:
    """Remove every event of one build from the log."""
    call_of(request).need("admin", EVENTS)
    return await _written(request, lambda log: ops.Removed(wipe_build(log, build_request_id)))


@router.post(
    "/builds/events/follow",
    responses=gives(OBJECT, progress=True),
    openapi_extra={"requestBody": _FOLLOW.described()["requestBody"]},
)
async def follow(
    request: Request,
    beat_s: Annotated[
        float,
        Query(ge=0.02, le=60, description="After this long without an event, an empty object shows that all is well."),
    ] = 0.9,
) -> Response:
    """Stream each event once, in commit order, as it is committed: lines of JSON, until the client disconnects.

    Without `since` from the head on. A line `{}` comes when nothing else does; an error is the last line.
    """
    call, stop = call_of(request), threading.Event()
    call.need("read", EVENTS)
    query = await _FOLLOW.read(request)

    def stream_events(put: Put) -> None:
        with call.service.work.job(stop.set):
            try:
                _follow(call, query, beat_s, stop, put)
            except CrannogError as error:
                call.error_code = error.code
                put(to_json({"error": error_body(error)}).encode() + b"\n")

    return ThreadResponse(ThreadOutput(call.service.threads, "job", stream_events, cancel=stop.set), NDJSON)


def _follow(call: Call, query: ops.EventQuery, beat_s: float, stop: threading.Event, put: Put) -> None:
    log, filter = call.service.build_log.get(), query.conditions()
    head = log.head()
    position = head if query.since is None else query.since
    while not stop.is_set():
        for event in log.follow(position, idle_s=beat_s, poll_s=min(0.05, beat_s), stop=stop, **filter):
            put(event.as_json().encode() + b"\n")
            position = event.index or position
        # What the filter passes over was looked at, up to where the log stood before.
        position, head = max(position, head), log.head()
        put(b"{}\n")
