"""One query about traces from a request: in a thread, within its limits, cancelled when the client disconnects."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from crannog.errors import CallerError, Cancelled
from crannog.server.requests import Call, call_of
from crannog.server.responses import NDJSON
from crannog.server.running_work import client_left
from crannog.server.streaming import Put, WholeResponse, thread_response, watched

if TYPE_CHECKING:
    from crannog.traces.store import TraceStore

QUERY_ID, TIMEOUT = "Crannog-Query-Id", "Crannog-Timeout-S"
LIMITS: dict[str, Any] = {
    "parameters": [
        {
            "name": TIMEOUT,
            "in": "header",
            "schema": {"type": "number", "exclusiveMinimum": 0, "maximum": 86_400},
            "description": "Seconds after which it is ended; else `sql_timeout_s`.",
        },
        {
            "name": QUERY_ID,
            "in": "header",
            "schema": {"type": "string"},
            "description": "An id by which it can be ended.",
        },
    ]
}
"""The headers of routes that query traces, for the OpenAPI document."""
KIND = "traces"
T = TypeVar("T")


async def run_trace_query(request: Request, work: Callable[[TraceStore], T]) -> T:
    """Run work in a thread as one query and return its result. The body must have been read."""
    query = _query_of(request)

    def run() -> T:
        with query.running() as store:
            return work(store)

    found: T = await watched(request, query.call.service.threads.endless("traces", run), query.cancel)
    return found


async def lines_of_traces(
    request: Request,
    work: Callable[[TraceStore], Generator[str, None, None]],
    media_type: str = NDJSON,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Stream lines as they are produced. A failure before the first is an error; later, the response breaks off."""
    query = _query_of(request)

    def make(put: Put) -> WholeResponse:
        with query.running() as store, closing(work(store)) as lines:
            first = next(lines, None)
            if first is None:
                return {}, b""
            put((dict(headers or {}), None))
            put(f"{first}\n".encode())
            for line in lines:
                put(f"{line}\n".encode())
        return None

    return await thread_response(request, "traces", make, media_type, query.cancel)


async def streamed_trace(
    request: Request, work: Callable[[TraceStore, Put], WholeResponse], media_type: str
) -> Response:
    """Respond with what work returns or puts: headers and bytes."""
    query = _query_of(request)

    def make(put: Put) -> WholeResponse:
        with query.running() as store:
            return work(store, put)

    return await thread_response(request, "traces", make, media_type, query.cancel)


@dataclass(frozen=True)
class _TraceQuery:
    """A query of a request, with its limits."""

    call: Call
    query_id: str
    timeout_s: float | None

    @contextmanager
    def running(self) -> Iterator[TraceStore]:
        """Register the query while the block runs, in a thread."""
        call, service = self.call, self.call.service
        _check_connected(call)
        owner = call.caller.owner
        store = service.lake.trace_store.within(self.timeout_s, self.query_id, owner)
        cancel = partial(service.lake.trace_store.cancel, self.query_id, owner)
        with service.work.query(KIND, call, self.query_id, cancel), store.query_scope():
            _check_connected(call)
            yield store

    def cancel(self) -> None:
        """Cancel a query whose client disconnected; it does not start if it has not yet."""
        client_left(self.call)


def _query_of(request: Request) -> _TraceQuery:
    """Read the limits of a query; the store checks them."""
    query_id, timeout = request.headers.get(QUERY_ID), request.headers.get(TIMEOUT)
    try:
        timeout_s = float(timeout) if timeout else None
    except ValueError:
        raise CallerError(f"the header {TIMEOUT} is a number of seconds, got {str(timeout)[:40]!r}") from None
    return _TraceQuery(call_of(request), unquote(query_id) if query_id else uuid.uuid4().hex, timeout_s)


def _check_connected(call: Call) -> None:
    if call.left:
        raise Cancelled("the client disconnected before its query started")
