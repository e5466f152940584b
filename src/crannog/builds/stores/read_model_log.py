"""Logs whose reads are queries of the read model, in whichever database that is.

In a database with transactions the read model itself holds the events (`DatabaseLog`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, Protocol, TypeVar, cast

from crannog.api.operations import AnyOperation, Operation, Q, R
from crannog.builds import requests as ops
from crannog.builds.append_plan import check_changes, checked_batch, plan
from crannog.builds.events import BuildEvent
from crannog.builds.log import EventLog
from crannog.builds.read_model import event_queries, state_queries
from crannog.builds.read_model.apply import add_events, prunable, remove_events
from crannog.builds.read_model.event_queries import events_by_id
from crannog.builds.read_model.tables import Connection, last_index, prepare, refuse_foreign_tables, stored_version
from crannog.builds.results import LogStats


class ModelLog(EventLog):
    """Every read is a query of the model, which has every event committed before the read began."""

    @abstractmethod
    def reading(self, *, snapshot: bool = False) -> AbstractContextManager[Connection]:
        """Lend a connection that sees every event committed before the call; with `snapshot` all its queries see one state."""

    @abstractmethod
    def size(self) -> tuple[int | None, dict[str, Any]]:
        """Return the size of the log in bytes, if known, and facts about its store."""

    def call(self, operation: Operation[Q, R], request: Q) -> R:
        if operation is ops.STATS:
            return cast(R, self._stats())
        if isinstance(request, ops.EventQuery):
            snapshot = request.needs_several_queries
        else:
            snapshot = operation not in _SINGLE_QUERIES
        with self.reading(snapshot=snapshot) as model:
            result: R = _QUERIES[operation](model, request)
            return result

    def _stats(self) -> LogStats:
        with self.reading(snapshot=True) as model:
            # In two subqueries each reads one end of the index; together they would read all of it.
            [(first, last)] = model.query(
                "SELECT (SELECT min(timestamp) FROM events), (SELECT max(timestamp) FROM events)"
            )
            builds, partitions, runs = (
                model.query(f"SELECT count(*) FROM {table}")[0][0] for table in ("builds", "partitions", "job_runs")
            )
            by_kind = event_queries.events_by_kind(model)
            head, version = last_index(model), stored_version(model)
        size, store = self.size()
        return LogStats(
            self.uri,
            version or 0,
            sum(by_kind.values()),
            head,
            first,
            last,
            by_kind,
            builds,
            partitions,
            runs,
            size,
            store,
        )

    def check_store(self) -> Iterator[str]:
        """Yield problems of the store itself; stores override it with the checks they can make."""
        yield from ()


_QUERIES: dict[AnyOperation, Callable[[Connection, Any], Any]] = {
    ops.LIST_EVENTS: event_queries.events_page,
    ops.GET_EVENT: event_queries.event,
    ops.HEAD: lambda model, _: ops.Head(last_index(model)),
    ops.LIST_BUILDS: state_queries.builds_page,
    ops.GET_BUILD: state_queries.build,
    ops.BUILD_PARTITIONS: state_queries.build_partitions,
    ops.RECENT_PARTITIONS: state_queries.recent_partitions,
    ops.PARTITION_STATUS: state_queries.partition,
    ops.ACTIVE_BUILDS: state_queries.active_builds,
    ops.EDGES: state_queries.edges,
    ops.LIST_JOBS: state_queries.jobs,
    ops.LIST_RUNS: state_queries.job_runs,
    ops.ACTIVITY: state_queries.activity,
    ops.PRUNABLE: prunable,
}
_SINGLE_QUERIES = frozenset(
    {
        ops.GET_EVENT,
        ops.HEAD,
        ops.GET_BUILD,
        ops.BUILD_PARTITIONS,
        ops.RECENT_PARTITIONS,
        ops.PARTITION_STATUS,
        ops.LIST_RUNS,
    }
)
"""The reads that need no snapshot, since they are one statement each."""


class Database(Protocol):
    """Lends connections for one transaction each."""

    def writing(self) -> AbstractContextManager[Connection]:
        """Lend the only writing connection, in a transaction: durable when the block ends, rolled back if it raises."""

    def reading(self, *, snapshot: bool = False) -> AbstractContextManager[Connection]:
        """Lend a connection that sees every committed event; with `snapshot` all its queries see one state."""

    def close(self) -> None:
        """End all connections."""


D = TypeVar("D", bound=Database)


class DatabaseLog(ModelLog, Generic[D]):
    """Appends and removals are transactions of the database."""

    def __init__(self, uri: str, database: D, *, check_states: bool) -> None:
        self.uri = uri
        self._check_states = check_states
        self.database = database
        try:
            with database.writing() as model:
                if model.flavour == "sqlite":
                    refuse_foreign_tables(model, uri)
                self.migration = prepare(model, uri)
        except BaseException:
            database.close()
            raise

    def append_events(self, events: Iterable[BuildEvent], *, check_states: bool | None = None) -> list[int]:
        batch = checked_batch(events)
        if not batch:
            return []
        with self.database.writing() as model:
            planned = plan(batch, events_by_id(model, [event.event_id for event in batch]), last_index(model))
            if self._check_states if check_states is None else check_states:
                check_changes(model, planned.fresh)
            if planned.fresh:
                with self._batched(model):
                    add_events(model, planned.fresh)
        return planned.indexes

    def _batched(self, model: Connection) -> AbstractContextManager[object]:
        """Group the statements of a batch as suits the database; by default they run one by one."""
        return nullcontext()

    def remove_events(self, indexes: Iterable[int]) -> int:
        listed = ops.checked_indexes(indexes)
        with self.database.writing() as model:
            return remove_events(model, listed)

    def reading(self, *, snapshot: bool = False) -> AbstractContextManager[Connection]:
        return self.database.reading(snapshot=snapshot)

    def close(self) -> None:
        self.database.close()
