"""The build event log: following it as lines of JSON, and keeping it small and whole."""

from __future__ import annotations

import threading
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, TypeAdapter
from starlette.responses import Response

from crannog.builds.event_values import to_json
from crannog.builds.log import whole_number
from crannog.builds.results import plain
from crannog.builds.upkeep import check, prune, wipe_build
from crannog.errors import CallerError, CrannogError
from crannog.server.openapi import OBJECT, gives, takes_json
from crannog.server.requests import Call, call_of
from crannog.server.responses import NDJSON, error_body
from crannog.server.routes.builds import TABLE, Wanted, body, read_log, result_response
from crannog.server.streaming import FlowResponse, Put, ThreadOutput, long_work

router = APIRouter(prefix="/api/v1/builds", tags=["builds"])


class Retention(BaseModel):
    """What to remove: events before a time, or all but the newest ones."""

    model_config = ConfigDict(extra="forbid")

    before_ns: int | None = None
    keep_events: int | None = None
    dry_run: bool = False
    batch: int = 1_000


class Removal(BaseModel):
    """The indexes of events."""

    model_config = ConfigDict(extra="forbid")

    indexes: list[int]


_WANTED: TypeAdapter[Wanted] = TypeAdapter(Wanted)
_RETENTION: TypeAdapter[Retention] = TypeAdapter(Retention)
_REMOVAL: TypeAdapter[Removal] = TypeAdapter(Removal)


@router.post("/events/follow", responses=gives(OBJECT, progress=True), openapi_extra=takes_json(Wanted))
async def follow(
    request: Request,
    beat_s: Annotated[
        float,
        Query(ge=0.02, le=60, description="After so long without an event an empty object says that all is well."),
    ] = 0.9,
) -> Response:
    """Each event once, in commit order, as it is committed: lines of JSON, until the client goes away.

    Without `since` from the head on. A line `{}` comes when nothing else does; an error is the last line.
    """
    wanted: Wanted = await body(request, _WANTED)
    call, stop = call_of(request), threading.Event()
    call.need("read", TABLE)

    def stream_events(put: Put) -> None:
        with call.service.running(stop, call.caller.name, stop.set):
            try:
                _follow(call, wanted, beat_s, stop, put)
            except CrannogError as error:
                call.error_code = error.code
                put(to_json({"error": error_body(error)}).encode() + b"\n")

    return FlowResponse(ThreadOutput(call.service.threads, "job", stream_events, cancel=stop.set), NDJSON)


def _follow(call: Call, wanted: Wanted, beat_s: float, stop: threading.Event, put: Put) -> None:
    log, filter = call.service.build_log.get(), wanted.filter()
    head = log.head()
    position = head if wanted.since is None else whole_number(wanted.since, "since", least=0, most=2**62)
    while not stop.is_set():
        for event in log.follow(position, idle_s=beat_s, poll_s=min(0.05, beat_s), stop=stop, **filter):
            put(event.as_json().encode() + b"\n")
            position = event.index or position
        # What the filter passes over was looked at, up to where the log stood before.
        position, head = max(position, head), log.head()
        put(b"{}\n")


@router.get("/prunable", responses=gives(OBJECT))
async def list_prunable(
    request: Request, before_ns: int | None = None, keep_events: int | None = None, limit: int = 1_000
) -> Response:
    """The indexes that a retention may remove, oldest first."""
    whole_number(limit, "limit", least=1, most=10_000_000)
    return await read_log(request, lambda log: {"indexes": log.list_prunable(before_ns, keep_events, limit)})


@router.post("/events/remove", responses=gives(OBJECT), openapi_extra=takes_json(Removal))
async def remove_events(request: Request) -> Response:
    """Take events out for good, in one step."""
    given = await body(request, _REMOVAL)
    call = call_of(request)
    call.need("admin", TABLE)
    removed = await call.service.threads.run("write", lambda: call.service.build_log.get().remove_events(given.indexes))
    return result_response({"removed": removed})


@router.post("/prune", responses=gives(OBJECT, progress=True), openapi_extra=takes_json(Retention))
async def prune_log(request: Request) -> Response:
    """Remove old events in batches; each partition's latest status stays."""
    given: Retention = await body(request, _RETENTION)
    call = call_of(request)
    call.need("read" if given.dry_run else "admin", TABLE)

    def work(progress: Any, _: Any) -> Any:
        log = call.service.build_log.get()
        return plain(
            prune(
                log, before_ns=given.before_ns, keep_events=given.keep_events, dry_run=given.dry_run, batch=given.batch,
                progress=lambda removed: progress(f"{removed:,} events removed", 0.0),
            )
        )  # fmt: skip

    return await long_work(request, work)


@router.post("/wipe", responses=gives(OBJECT))
async def wipe(
    request: Request, build_request_id: Annotated[str, Query(description="The id of a build request.")]
) -> Response:
    """Take every event of one build out of the log."""
    call = call_of(request)
    call.need("admin", TABLE)
    removed = await call.service.threads.run(
        "write", lambda: wipe_build(call.service.build_log.get(), build_request_id)
    )
    return result_response({"removed": removed})


@router.post("/check", responses=gives(OBJECT, progress=True))
async def check_log(request: Request) -> Response:
    """Read everything again and compare."""
    call = call_of(request)
    call.need("read", TABLE)
    return await long_work(request, lambda progress, _: plain(check(call.service.build_log.get())))


@router.post("/compact", responses=gives(OBJECT, progress=True))
async def compact(request: Request) -> Response:
    """Give back the space of removed events; a Delta log is folded and compacted by Spark."""
    call = call_of(request)
    call.need("admin", TABLE)

    def work(progress: Any, _: Any) -> Any:
        log = call.service.build_log.get()
        act = getattr(log, "give_back_space", None)
        if act is None:
            raise CallerError(f"{log.uri} has no space to give back")
        before = log.stats().bytes
        act()
        return {"bytes_before": before, "bytes_after": log.stats().bytes}

    return await long_work(request, work)
