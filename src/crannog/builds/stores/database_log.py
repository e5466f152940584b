"""A log in a database with transactions, where the read model itself holds the events."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, Protocol, TypeVar

from crannog.builds.append_plan import checked_batch, plan
from crannog.builds.events import BuildEvent
from crannog.builds.read_model.apply import add_events
from crannog.builds.read_model.connection import Connection
from crannog.builds.read_model.event_queries import events_by_id
from crannog.builds.read_model.removal import remove_events
from crannog.builds.read_model.tables import last_index, prepare, refuse_foreign_tables
from crannog.builds.stores.read_model_log import ModelLog, checked_indexes
from crannog.builds.transitions import check_changes


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
