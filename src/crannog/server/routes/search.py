"""One box that finds anything: tables, services, operations, traces and builds, by a part of the name or the beginning of an id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from crannog.api.table_requests import LIST_TABLES, ListTables
from crannog.builds.log import EventLog
from crannog.builds.open_log import EVENTS
from crannog.errors import CallerError
from crannog.names import TableName
from crannog.server.openapi import LIST, gives
from crannog.server.requests import call_of
from crannog.server.responses import answer
from crannog.server.routes.tables import result_of
from crannog.server.trace_queries import LIMITS, run_trace_query
from crannog.traces.span_table import SPANS

if TYPE_CHECKING:
    from crannog.traces.store import TraceStore

router = APIRouter(prefix="/api/v1", tags=["search"])
_LONGEST = 200
_MOST = 50
_RECENT_BUILDS = 1_000
Found = dict[str, Any]


@router.get("/search", responses=gives(LIST), openapi_extra=LIMITS)
async def search(
    request: Request,
    q: Annotated[str, Query(description="A part of a name, or the beginning of an id.")],
    limit: Annotated[int, Query(description=f"Results of each kind, up to {_MOST}.")] = 10,
) -> Response:
    """Find tables, services, operations, traces and builds that the caller may read.

    Names match by a part of them, ignoring case; traces by at least 8 digits of their id; builds by the beginning of their id.
    """
    text = q.strip()
    if not 0 < len(text) <= _LONGEST:
        raise CallerError(f"q is text of 1 to {_LONGEST} characters")
    if not 1 <= limit <= _MOST:
        raise CallerError(f"limit is a whole number from 1 to {_MOST}, got {limit}")
    call = call_of(request)
    names = await result_of(request, LIST_TABLES, ListTables(system=True))
    found: list[Found] = await call.service.threads.run(
        "read", lambda: _tables(text, [name for name in names if call.caller.may("read", TableName.parse(name))], limit)
    )
    if str(SPANS) in names and call.caller.may("read", SPANS):
        found += await run_trace_query(request, lambda store: _of_traces(store, text, limit))
    service = call.service
    if (service.settings.build_log or str(EVENTS) in names) and call.caller.may("read", EVENTS):
        found += await service.threads.run("read", lambda: _builds(service.build_log.get(), text, limit))
    return answer(found)


def _tables(text: str, names: Sequence[str], limit: int) -> list[Found]:
    wanted = text.lower()

    def rank(name: str) -> tuple[bool, bool, str]:
        parts = name.lower().split(".")
        return not name.lower().startswith(wanted), not parts[-1].startswith(wanted), name

    matching = sorted((name for name in names if wanted in name.lower()), key=rank)
    return [{"kind": "table", "name": name} for name in matching[:limit]]


def _of_traces(store: TraceStore, text: str, limit: int) -> list[Found]:
    # Loaded with the first search: it takes the decoder of OTLP along.
    from crannog.traces.find_names import operations_like, services_like, trace_ids_like

    return [
        *({"kind": "trace", "name": trace_id} for trace_id in trace_ids_like(store, text, limit)),
        *({"kind": "service", "name": name} for name in services_like(store, text, limit)),
        *(
            {"kind": "operation", "name": name, "service": service}
            for service, name in operations_like(store, text, limit)
        ),
    ]


def _builds(log: EventLog, text: str, limit: int) -> list[Found]:
    exact = log.get_build(text)
    recent = log.list_build_requests(limit=_RECENT_BUILDS).builds
    listed = {build.build_request_id: build for build in ([exact] if exact else []) + list(recent)}
    matching = [build for name, build in listed.items() if name.lower().startswith(text.lower())]
    return [
        {"kind": "build", "name": build.build_request_id, "status": build.status.label} for build in matching[:limit]
    ]
