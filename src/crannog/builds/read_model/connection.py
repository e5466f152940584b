"""What the read model asks of a database: three acts, and the few things SQLite and PostgreSQL say differently."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class Connection(Protocol):
    """One connection, used by one thread at a time. SQL is the common part of SQLite and PostgreSQL, with `?` for values."""

    flavour: str
    """`sqlite` or `postgresql`: for the definitions of tables alone."""

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run a statement; return how many rows it touched."""

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for each of `rows`."""

    def matches_glob(self, column: str) -> str:
        """Return the condition that `column` matches a pattern with *, ? and […], given as one value."""

    def glob(self, pattern: str) -> str:
        """Return a pattern as `matches_glob` wants its value."""

    def aside(self, column: str) -> str:
        """Return a column to be compared without its index, where the database has no statistics to choose one by."""
