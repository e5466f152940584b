"""The log in PostgreSQL."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from crannog.builds.open_log import shown
from crannog.builds.read_model.connection import Connection
from crannog.builds.read_model.tables import ALL_TABLES
from crannog.builds.stores.database_log import DatabaseLog
from crannog.builds.stores.postgres_database import PostgresConnection, PostgresDatabase


class PostgresLog(DatabaseLog[PostgresDatabase]):
    """Events in one PostgreSQL database, in the schema that its address leads to."""

    def __init__(self, uri: str, *, check_states: bool = False) -> None:
        name = shown(uri)
        super().__init__(name, PostgresDatabase(uri, name), check_states=check_states)

    def _batched(self, model: Connection) -> AbstractContextManager[object]:
        assert isinstance(model, PostgresConnection)
        few_round_trips: AbstractContextManager[object] = model.raw.pipeline()
        return few_round_trips

    def size(self) -> tuple[int | None, dict[str, Any]]:
        with self.database.reading() as model:
            [(total,)] = model.query(
                "SELECT COALESCE(sum(pg_total_relation_size(to_regclass(name))), 0) FROM unnest(?::text[]) AS name",
                (list(ALL_TABLES),),
            )
            [(version,)] = model.query("SHOW server_version")
        return int(total), {"backend": "postgresql", "server_version": version}

    def give_back_space(self) -> None:
        """Make the space of removed events free for new ones, and the end of the files for others, while writers go on."""
        with self.database.reading() as model:
            for table in ALL_TABLES:
                model.run(f"VACUUM {table}")
