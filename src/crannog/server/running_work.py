"""What a server runs for its callers: queries, which have ids and can be cancelled, and jobs.

An id belongs to the caller who sent it. Nobody learns from an id, or ends by it, what another caller runs; an admin may end
everything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from crannog.errors import Conflict, NotFound

if TYPE_CHECKING:
    from crannog.server.requests import Call

Cancel = Callable[[], object]


class RunningWork:
    """The queries and jobs that run. Safe for threads."""

    def __init__(self) -> None:
        self._queries: dict[tuple[str, str, str], Cancel] = {}
        self._jobs: set[Cancel] = set()
        self._lock = threading.Lock()

    @contextmanager
    def query(self, kind: str, call: Call, query_id: str, cancel: Cancel) -> Iterator[None]:
        """Register a query of a call while the block runs; each kind of query has ids of its own.

        Raises Conflict if the caller runs another one with this id, whose registration stays.
        """
        key = (kind, query_id, call.caller.owner)
        with self._lock:
            if key in self._queries:
                raise Conflict(f"a query with the id {query_id!r} is already running; use another id, or none")
            self._queries[key] = call.cancel = cancel
        try:
            yield
        finally:
            with self._lock:
                del self._queries[key]
                call.cancel = None

    @contextmanager
    def job(self, cancel: Cancel) -> Iterator[None]:
        """Register a job while the block runs."""
        with self._lock:
            self._jobs.add(cancel)
        try:
            yield
        finally:
            with self._lock:
                self._jobs.discard(cancel)

    def cancel_query(self, kind: str, query_id: str, call: Call) -> None:
        """Cancel the caller's query with an id; for an admin that has none, those of all callers. Raises NotFound."""
        with self._lock:
            own = self._queries.get((kind, query_id, call.caller.owner))
            found = [own] if own is not None else []
            if not found and call.caller.may_everywhere("admin"):
                found = [cancel for key, cancel in self._queries.items() if key[:2] == (kind, query_id)]
        if not found:
            raise NotFound(f"no query {query_id!r} of yours runs; it may have ended")
        for cancel in found:
            cancel()

    def cancel_all(self) -> None:
        """Cancel all queries and jobs, when the server stops."""
        with self._lock:
            found = [*self._queries.values(), *self._jobs]
        for cancel in found:
            with suppress(Exception):
                cancel()


def client_left(call: Call) -> None:
    """Cancel the query that a call runs, since nobody waits for it any more; one that has not begun does not begin."""
    call.left = True
    cancel = call.cancel
    if cancel is not None:
        with suppress(NotFound):
            cancel()
