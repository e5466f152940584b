"""One question about traces from a request: in a thread, within its limits, taken back when the client goes away."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from starlette.requests import Request

from crannog.errors import CallerError, Cancelled, NotFound
from crannog.server.call import Call, call_of
from crannog.server.outflow import watched
from crannog.verbs.asked import checked_query_id, checked_timeout

if TYPE_CHECKING:
    from crannog.traces.traces import Traces

QUERY_ID, TIMEOUT = "Crannog-Query-Id", "Crannog-Timeout-S"
LIMITS: dict[str, Any] = {
    "parameters": [
        {"name": TIMEOUT, "in": "header", "schema": {"type": "number"}, "description": "Seconds after which it is ended; else `sql_timeout_s`."},
        {"name": QUERY_ID, "in": "header", "schema": {"type": "string"}, "description": "An id by which it can be ended."},
    ]
}
"""How routes that ask about traces describe their headers."""
T = TypeVar("T")


async def asked_of_traces(request: Request, work: Callable[[Traces], T]) -> T:
    """Return what the work gives; all that it asks is one question. The body must have been read."""
    call, service = call_of(request), call_of(request).service
    given = request.headers.get(QUERY_ID)
    query_id, timeout_s = checked_query_id(unquote(given) if given else None), _seconds(request.headers.get(TIMEOUT))

    def cancel() -> None:
        call.left = True
        with suppress(NotFound):
            service.lake.traces.cancel(query_id)

    def asked() -> T:
        _check_still_there(call)
        traces = service.lake.traces.within(timeout_s=timeout_s, query_id=query_id)
        with service.running(key_of(query_id), call.caller.name, lambda: service.lake.traces.cancel(query_id)), traces.question():
            _check_still_there(call)
            return work(traces)

    found: T = await watched(request, service.threads.endless("traces", asked), cancel)
    return found


def key_of(query_id: str) -> object:
    """Return what a question is kept in mind by while it runs; queries of SQL have ids of their own."""
    return "traces", query_id


def _check_still_there(call: Call) -> None:
    if call.left:
        raise Cancelled("the client went away before its question began")


def _seconds(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return checked_timeout(float(text))
    except ValueError:
        raise CallerError(f"the header {TIMEOUT} is a number of seconds, got {text[:40]!r}") from None
