"""The build event log: one route for each method of the Python interface.

Ids and partitions are query parameters: they may have any letters, slashes too. An unknown one has an empty answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, TypeAdapter
from starlette.responses import Response

from crannog.builds.build_views import compare, mermaid
from crannog.builds.event_values import from_json, to_json
from crannog.builds.events import BuildEvent
from crannog.builds.log import EventLog
from crannog.builds.results import plain
from crannog.errors import BadRows, CallerError
from crannog.names import TableName
from crannog.server.openapi import LIST, OBJECT, OBJECT_OR_NULL, gives, takes, takes_json
from crannog.server.requests import Call, call_of, document, form_of
from crannog.server.responses import JSON, NDJSON

TABLE = TableName.parse("crannog.builds.build_events")

Id = Annotated[str, Query(description="The id of a build request.")]
Ref = Annotated[str, Query(description="A partition.")]
Limit = Annotated[int, Query(description="Return at most this many.")]
Texts = Annotated[list[str], Query()]
AsOf = Annotated[int | None, Query(ge=0, description="Read the log as it stood when this index was its last.")]


def past(request: Request, as_of: AsOf = None) -> None:
    """Record which state of the log a request reads, for `read_log`."""
    request.state.as_of = as_of


writes = APIRouter(prefix="/api/v1/builds", tags=["builds"])
reads = APIRouter(prefix="/api/v1/builds", tags=["builds"], dependencies=[Depends(past)])


class Wanted(BaseModel):
    """Which events: strictly after `since`, and every part given must hold, by one of its values."""

    model_config = ConfigDict(extra="forbid")

    since: int | None = None
    limit: int = 100
    descending: bool = False
    build_request_ids: list[str] | None = None
    partition_refs: list[str] | None = None
    partition_globs: list[str] | None = None
    job_labels: list[str] | None = None
    job_run_ids: list[str] | None = None
    kinds: list[str] | None = None
    start_ns: int | None = None
    end_ns: int | None = None

    def filter(self) -> dict[str, Any]:
        return self.model_dump(exclude={"since", "limit", "descending"}, exclude_none=True)


class EdgesOf(BaseModel):
    """Partitions, and which way to look from them."""

    model_config = ConfigDict(extra="forbid")

    partition_refs: list[str]
    upstream: bool = True


_WANTED: TypeAdapter[Wanted] = TypeAdapter(Wanted)
_EDGES: TypeAdapter[EdgesOf] = TypeAdapter(EdgesOf)
_PARAMETERS = {
    name.removesuffix("s") if name.endswith(("ids", "refs", "globs", "labels", "kinds")) else name
    for name in Wanted.model_fields
} | {"as_of"}
_EVENTS: dict[str, Any] = {"oneOf": [OBJECT, LIST]}


def result_response(value: Any) -> Response:
    """Return a response with a result of the log, its numbers as exact as in the events."""
    return Response(to_json(plain(value)).encode(), media_type=JSON)


async def read_log(request: Request, question: Callable[[EventLog], Any]) -> Response:
    """Read the log, or an earlier state of it, if the caller may."""
    call = call_of(request)
    call.need("read", TABLE)
    index = getattr(request.state, "as_of", None)
    return result_response(
        await call.service.threads.run("read", lambda: plain(question(call.service.build_log.as_of(index))))
    )


# -- events ------------------------------------------------------------------------------------------------------


@writes.post("/events", responses=gives(OBJECT), openapi_extra=takes({JSON: _EVENTS, NDJSON: {"type": "string"}}))
async def append_events(
    request: Request,
    check_states: Annotated[bool, Query(description="Refuse a status that cannot follow the last one.")] = False,
) -> Response:
    """Keep one event, or all of several or none; answers their indexes once they are durable."""
    call = call_of(request)
    call.need("write", TABLE)
    form = form_of(request, ("json", "ndjson"))
    data = await call.service.bodies.read(request)

    def keep() -> list[int]:
        events = _events(data, form)
        call.rows = len(events)
        return call.service.build_log.get().append_events(events, check_states=check_states)

    return result_response({"indexes": await call.service.threads.run("write", keep)})


def _events(data: bytes, form: str) -> list[BuildEvent]:
    if not data:
        raise CallerError("the body is empty; a batch without events is [] in JSON, an empty line in NDJSON")
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


@reads.get("/events", responses=gives(OBJECT))
async def list_events(
    request: Request,
    since: int | None = None,
    limit: Limit = 100,
    descending: bool = False,
    build_request_id: Texts = [],  # noqa: B006
    partition_ref: Texts = [],  # noqa: B006
    partition_glob: Texts = [],  # noqa: B006
    job_label: Texts = [],  # noqa: B006
    job_run_id: Texts = [],  # noqa: B006
    kind: Texts = [],  # noqa: B006
    start_ns: int | None = None,
    end_ns: int | None = None,
) -> Response:
    """A page of events, strictly after the index `since`; go on after its `next_index` while it `has_more`."""
    # A filter that is misspelt and passed over would give everything.
    if unknown := sorted(request.query_params.keys() - _PARAMETERS):
        raise CallerError(f"events have no parameter {unknown[0]}; they have {', '.join(sorted(_PARAMETERS))}")
    given = Wanted(
        since=since, limit=limit, descending=descending, build_request_ids=build_request_id or None, partition_refs=partition_ref or None,
        partition_globs=partition_glob or None, job_labels=job_label or None, job_run_ids=job_run_id or None, kinds=kind or None,
        start_ns=start_ns, end_ns=end_ns,
    )  # fmt: skip
    return await read_log(
        request, lambda log: log.list_events(given.since, given.limit, given.descending, **given.filter())
    )


@reads.post("/events/query", responses=gives(OBJECT), openapi_extra=takes_json(Wanted))
async def query_events(request: Request) -> Response:
    """The same, for filters that are too long for an address."""
    given = await body(request, _WANTED)
    return await read_log(
        request, lambda log: log.list_events(given.since, given.limit, given.descending, **given.filter())
    )


async def body(request: Request, shape: TypeAdapter[Any]) -> Any:
    """Read a document."""
    call: Call = call_of(request)
    form_of(request, ("json",))
    return document(await call.service.bodies.read(request), shape)


@reads.get("/event", responses=gives(OBJECT_OR_NULL))
async def get_event(request: Request, event_id: Annotated[str, Query(description="The id of an event.")]) -> Response:
    """One event, or null."""
    return await read_log(request, lambda log: log.get_event(event_id))


@reads.get("/head", responses=gives(OBJECT))
async def head(request: Request) -> Response:
    """The largest index given."""
    return await read_log(request, lambda log: {"index": log.head()})


# -- builds ------------------------------------------------------------------------------------------------------


@reads.get("", responses=gives(OBJECT))
async def list_build_requests(
    request: Request, status: str | None = None, limit: Limit = 50, offset: int = 0
) -> Response:
    """Builds, the one that began last first, and how many there are."""
    return await read_log(request, lambda log: log.list_build_requests(status, limit, offset))


@reads.get("/build", responses=gives(OBJECT_OR_NULL))
async def get_build(request: Request, build_request_id: Id) -> Response:
    """A build as it stands, or null."""
    return await read_log(request, lambda log: log.get_build(build_request_id))


@reads.get("/build/partitions", responses=gives(OBJECT))
async def get_build_partitions(request: Request, build_request_id: Id) -> Response:
    """What became of each partition in one build."""
    return await read_log(request, lambda log: log.get_build_partitions(build_request_id))


@reads.get("/build/graph", responses=gives(OBJECT))
async def get_graph(request: Request, build_request_id: Id) -> Response:
    """The plan of a build as a mermaid diagram, coloured by how its jobs went."""
    return await read_log(request, lambda log: {"mermaid": mermaid(log, build_request_id)})


@reads.get("/compare", responses=gives(OBJECT))
async def compare_builds(request: Request, first: Id, second: Id) -> Response:
    """Where two builds differ."""
    return await read_log(request, lambda log: compare(log, first, second))


# -- partitions and jobs -----------------------------------------------------------------------------------------


@reads.get("/partitions", responses=gives(LIST))
async def list_recent_partitions(request: Request, limit: Limit = 50) -> Response:
    """The partitions whose status changed last, newest first."""
    return await read_log(request, lambda log: log.list_recent_partitions(limit))


@reads.get("/partitions/status", responses=gives(OBJECT_OR_NULL))
async def get_latest_partition_status(request: Request, partition_ref: Ref) -> Response:
    """The last status of a partition by commit order, or null."""
    return await read_log(request, lambda log: log.get_latest_partition_status(partition_ref))


@reads.get("/partitions/active", responses=gives(LIST))
async def get_active_builds_for_partition(request: Request, partition_ref: Ref) -> Response:
    """The unfinished builds that are about a partition; delegation is followed."""
    return await read_log(request, lambda log: log.get_active_builds_for_partition(partition_ref))


@reads.get("/lineage", responses=gives(OBJECT))
async def get_lineage(
    request: Request,
    partition_ref: Ref,
    direction: Literal["upstream", "downstream"] = "upstream",
    depth: int = 100,
    limit: Limit = 10_000,
) -> Response:
    """What a partition was made from, or went into."""
    return await read_log(request, lambda log: log.get_lineage(partition_ref, direction, depth=depth, limit=limit))


@reads.post("/edges", responses=gives(LIST), openapi_extra=takes_json(EdgesOf))
async def list_edges(request: Request) -> Response:
    """What partitions were made from, or went into, one step far."""
    given = await body(request, _EDGES)
    return await read_log(request, lambda log: log.list_edges(given.partition_refs, upstream=given.upstream))


@reads.get("/manifests", responses=gives(LIST))
async def get_manifests(
    request: Request, build_request_id: str | None = None, partition_ref: str | None = None
) -> Response:
    """The manifests that jobs left, oldest first."""
    return await read_log(request, lambda log: log.get_manifests(build_request_id, partition_ref))


@reads.get("/jobs", responses=gives(LIST))
async def list_jobs(request: Request, limit: Limit = 1_000) -> Response:
    """Each job with its success rate, durations, retries and last run."""
    return await read_log(request, lambda log: log.list_jobs(limit))


@reads.get("/runs", responses=gives(LIST))
async def list_job_runs(
    request: Request, build_request_id: str | None = None, job_label: str | None = None, limit: Limit = 1_000
) -> Response:
    """Runs of jobs, newest first."""
    return await read_log(request, lambda log: log.list_job_runs(build_request_id, job_label, limit))


@reads.get("/activity", responses=gives(OBJECT))
async def get_activity_summary(request: Request, recent: int = 10) -> Response:
    """The log at a glance."""
    return await read_log(request, lambda log: log.get_activity_summary(recent))


@reads.get("/stats", responses=gives(OBJECT))
async def stats(request: Request) -> Response:
    """How large the log is and how it is kept."""
    return await read_log(request, lambda log: log.stats())


router = APIRouter()
router.include_router(writes)
router.include_router(reads)
