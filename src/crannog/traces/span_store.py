"""The span table as queries read it: each call is one query, with a time limit, and an id by which it can be cancelled."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Self, TypeVar

from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.engine.sql.running_queries import RunningQueries, cancelled_by, check_cancelled, current_query
from crannog.engine.tables import Tables
from crannog.engine.warehouse import Warehouse
from crannog.errors import NotFound
from crannog.traces.derived.views import DerivedViews
from crannog.traces.span_table import SPANS, existing_spans
from crannog.traces.tree.tree import TreeCache

T = TypeVar("T")


class SpanStore:
    """Reads the span table and the tables derived from it. Safe for threads."""

    def __init__(self, warehouse: Warehouse, tables: Tables) -> None:
        self.settings = warehouse.settings
        self.views = DerivedViews(tables)
        self.trees = TreeCache(warehouse.settings.trace_tree_spans_limit)
        self._tables = tables
        # Separate from SQL queries, so that neither waits for the other.
        self._running = RunningQueries(warehouse.settings)
        self._query_id: str | None = None
        self._timeout_s: float | None = None
        self._owner = ""

    def within(self, timeout_s: float | None, query_id: str | None, owner: str = "") -> Self:
        """Return the same store with a time limit for each call, and an id of an owner by which `cancel` ends it."""
        limited = copy.copy(self)
        limited._timeout_s, limited._query_id, limited._owner = timeout_s, query_id, owner
        return limited

    def cancel(self, query_id: str, owner: str = "") -> None:
        """Cancel a running or waiting call. Raises NotFound if no call of the owner has this id."""
        self._running.cancel(query_id, owner)

    @contextmanager
    def query_scope(self) -> Iterator[None]:
        """Run a block as one call, with one time limit and one id; nested scopes belong to the outer one.

        Raises TimedOut, Cancelled, Conflict if a call with this id is running, Overloaded if too many are waiting.
        """
        if current_query.get() is not None:
            yield
            return
        with self._running.running(self._query_id, self._timeout_s, self._owner) as running, cancelled_by(running):
            yield

    def stream(self, steps: Generator[T, None, None]) -> Generator[T, None, None]:
        """Yield from `steps` as one call, which ends with the last step or when the generator is closed."""
        with ExitStack() as stack:
            running = current_query.get() or stack.enter_context(
                self._running.running(self._query_id, self._timeout_s, self._owner)
            )
            stack.enter_context(closing(steps))
            while True:
                # Between two steps, the caller may run other queries in this thread, which do not belong to this one.
                with cancelled_by(running):
                    check_cancelled()
                    try:
                        step = next(steps)
                    except StopIteration:
                        return
                yield step

    def read(self, act: Callable[[OpenTable], T], nothing: T) -> T:
        """Read from the span table; returns `nothing` if it does not exist, because reads do not create it."""
        with self.query_scope():
            return self.read_in_scope(act, nothing)

    def read_newest(self, act: Callable[[OpenTable, Snapshot], T], nothing: T) -> T:
        """Read from the newest snapshot of the span table, as `read`."""
        with self.query_scope():
            return self.read_in_scope(lambda table: table.newest(lambda snapshot: act(table, snapshot)), nothing)

    def read_in_scope(self, act: Callable[[OpenTable], T], nothing: T) -> T:
        """Read as `read`, as part of the current call."""
        try:
            table = existing_spans(self._tables)
        except NotFound:
            return nothing
        try:
            return act(table)
        except (NotFound, FileNotFoundError):
            self._tables.forget(SPANS)
        try:
            return act(existing_spans(self._tables))
        except (NotFound, FileNotFoundError):
            return nothing
