"""The log in PostgreSQL: the read model is the record, as with SQLite."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from crannog.builds.events import BuildEvent
from crannog.builds.intake import checked, find, plan
from crannog.builds.model.apply import add_events, remove_events
from crannog.builds.model.connection import Connection
from crannog.builds.model.tables import ALL_TABLES, last_index, prepare
from crannog.builds.model_log import ModelLog, checked_indexes
from crannog.builds.open_log import shown
from crannog.builds.postgres_database import PostgresDatabase
from crannog.builds.transitions import check_changes


class PostgresLog(ModelLog):
    """Events in one PostgreSQL database, in the schema that its address leads to."""

    def __init__(self, uri: str, *, check_states: bool = False) -> None:
        self.uri = shown(uri)
        self._check_states = check_states
        self.database = PostgresDatabase(uri, self.uri)
        try:
            with self.database.writing() as model:
                self.migration = prepare(model, self.uri)
        except BaseException:
            self.database.close()
            raise

    def append_events(self, events: Iterable[BuildEvent]) -> list[int]:
        batch = checked(events)
        if not batch:
            return []
        with self.database.writing() as model:
            planned = plan(batch, find(model, [event.event_id for event in batch]), last_index(model))
            if self._check_states:
                check_changes(model, planned.fresh)
            if planned.fresh:
                with model.raw.pipeline():  # the statements of a batch in few round trips
                    add_events(model, planned.fresh)
        return planned.indexes

    def remove_events(self, indexes: Iterable[int]) -> int:
        listed = checked_indexes(indexes)
        with self.database.writing() as model:
            return remove_events(model, listed)

    def reading(self, *, whole: bool = False) -> AbstractContextManager[Connection]:
        return self.database.reading(whole=whole)

    def size(self) -> tuple[int | None, dict[str, Any]]:
        with self.database.reading() as model:
            [(total,)] = model.query(
                "SELECT COALESCE(sum(pg_total_relation_size(to_regclass(name))), 0) FROM unnest(?::text[]) AS name", (list(ALL_TABLES),)
            )
            [(version,)] = model.query("SHOW server_version")
        return int(total), {"backend": "postgresql", "server_version": version}

    def give_back_space(self) -> None:
        """Make the space of removed events free for new ones, and the end of the files for others, while writers go on."""
        with self.database.reading() as model:
            for table in ALL_TABLES:
                model.run(f"VACUUM {table}")

    def close(self) -> None:
        self.database.close()
