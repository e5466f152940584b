"""Logs whose reads are queries of the read model, in whichever database that is.

In a database with transactions the read model itself holds the events (`DatabaseLog`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, Protocol, TypeVar

from crannog.builds.append_plan import check_changes, checked_batch, plan
from crannog.builds.event_values import BuildRequestStatus, PartitionStatus, is_name
from crannog.builds.events import BuildEvent
from crannog.builds.log import LARGEST_PAGE, EventLog, page_arguments, whole_number
from crannog.builds.read_model import event_queries, state_queries
from crannog.builds.read_model.apply import add_events, prunable, remove_events
from crannog.builds.read_model.event_queries import events_by_id
from crannog.builds.read_model.tables import Connection, last_index, prepare, refuse_foreign_tables, stored_version
from crannog.builds.results import (
    ActivitySummary,
    BuildPage,
    BuildSummary,
    Edge,
    EventPage,
    JobRun,
    JobSummary,
    LogStats,
    PartitionSummary,
)

T = TypeVar("T")
_MOST = 1_000_000


class ModelLog(EventLog):
    """Every read is a query of the model, which has every event committed before the read began."""

    @abstractmethod
    def reading(self, *, snapshot: bool = False) -> AbstractContextManager[Connection]:
        """Lend a connection that sees every event committed before the call; with `snapshot` all its queries see one state."""

    @abstractmethod
    def size(self) -> tuple[int | None, dict[str, Any]]:
        """Return the size of the log in bytes, if known, and facts about its store."""

    def list_events(
        self, since: int | None = None, limit: int = 100, descending: bool = False, **filter: Any
    ) -> EventPage:
        start, wanted = page_arguments(since, limit, descending, filter)
        with self.reading(snapshot=event_queries.needs_several_queries(wanted)) as model:
            return event_queries.events_page(model, wanted, since=start, limit=limit, descending=descending)

    def get_event(self, event_id: str) -> BuildEvent | None:
        return self._query_by_id(event_id, event_queries.event)

    def head(self) -> int:
        with self.reading() as model:
            return last_index(model)

    def get_latest_partition_status(self, partition_ref: str) -> PartitionSummary | None:
        return self._query_by_id(partition_ref, state_queries.partition)

    def get_active_builds_for_partition(self, partition_ref: str) -> list[str]:
        if not is_name(partition_ref):
            return []
        with self.reading(snapshot=True) as model:
            return state_queries.active_builds(model, partition_ref)

    def list_build_requests(
        self, status: BuildRequestStatus | str | None = None, limit: int = 50, offset: int = 0
    ) -> BuildPage:
        wanted = None if status is None else BuildRequestStatus.read(status)
        whole_number(limit, "limit", least=1, most=LARGEST_PAGE)
        whole_number(offset, "offset", least=0, most=2**62)
        with self.reading(snapshot=True) as model:
            return state_queries.builds_page(model, wanted, limit, offset)

    def get_build(self, build_request_id: str) -> BuildSummary | None:
        return self._query_by_id(build_request_id, state_queries.build)

    def get_build_partitions(self, build_request_id: str) -> dict[str, PartitionStatus]:
        return self._query_by_id(build_request_id, state_queries.build_partitions) or {}

    def list_recent_partitions(self, limit: int = 50) -> list[PartitionSummary]:
        whole_number(limit, "limit", least=1, most=LARGEST_PAGE)
        with self.reading() as model:
            return list(state_queries.recent_partitions(model, limit))

    def list_job_runs(
        self, build_request_id: str | None = None, job_label: str | None = None, limit: int = 1_000
    ) -> list[JobRun]:
        whole_number(limit, "limit", least=1, most=LARGEST_PAGE)
        if not all(name is None or is_name(name) for name in (build_request_id, job_label)):
            return []
        with self.reading() as model:
            return list(
                state_queries.job_runs(model, build_request_id=build_request_id, job_label=job_label, limit=limit)
            )

    def list_jobs(self, limit: int = 1_000) -> list[JobSummary]:
        whole_number(limit, "limit", least=1, most=LARGEST_PAGE)
        with self.reading(snapshot=True) as model:
            return list(state_queries.jobs(model, limit))

    def get_activity_summary(self, recent: int = 10) -> ActivitySummary:
        whole_number(recent, "recent", least=1, most=1_000)
        with self.reading(snapshot=True) as model:
            return state_queries.activity(model, recent)

    def list_edges(self, partition_refs: Iterable[str], *, upstream: bool) -> list[Edge]:
        refs = [ref for ref in dict.fromkeys(partition_refs) if is_name(ref)]
        with self.reading(snapshot=True) as model:
            return state_queries.edges(model, refs, upstream=upstream)

    def list_prunable(self, before_ns: int | None, keep_events: int | None, limit: int) -> list[int]:
        for value, name in ((before_ns, "before_ns"), (keep_events, "keep_events"), (limit, "limit")):
            if value is not None:
                whole_number(value, name, least=0, most=2**63 - 1)
        with self.reading(snapshot=True) as model:
            return prunable(model, before_ns, keep_events, limit)

    def stats(self) -> LogStats:
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

    def _query_by_id(self, name: Any, query: Callable[[Connection, str], T]) -> T | None:
        if not is_name(name):
            return None
        with self.reading() as model:
            return query(model, name)


def checked_indexes(indexes: Iterable[int]) -> list[int]:
    """Return valid indexes, sorted and without duplicates."""
    return sorted({whole_number(index, "index", least=1, most=2**62) for index in indexes})


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
        listed = checked_indexes(indexes)
        with self.database.writing() as model:
            return remove_events(model, listed)

    def reading(self, *, snapshot: bool = False) -> AbstractContextManager[Connection]:
        return self.database.reading(snapshot=snapshot)

    def close(self) -> None:
        self.database.close()
