"""What the read model needs of a database: three operations, and the few places where SQLite and PostgreSQL differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

_CHUNK = 500


class Connection(Protocol):
    """One connection, used by one thread at a time. SQL is the subset that both databases know, with `?` for values."""

    flavour: str
    """`sqlite` or `postgresql`; only the table definitions depend on it."""

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run a statement; return the number of rows it changed."""

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for each row of values."""

    def matches_glob(self, column: str) -> str:
        """Return the condition that `column` matches a pattern with `*`, `?` and `[…]`, which is given as one value."""

    def glob_value(self, pattern: str) -> str:
        """Return the value for `matches_glob` that a pattern corresponds to."""

    def without_index(self, column: str) -> str:
        """Return an expression for the column that does not use its index, where the planner has no statistics to choose one."""


def one_of(column: str, listed: Sequence[Any]) -> str:
    """Return the condition that a column has one of some values."""
    return f"{column} = ?" if len(listed) == 1 else f"{column} IN ({', '.join('?' * len(listed))})"


def in_chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield values in chunks that fit into one statement."""
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]
