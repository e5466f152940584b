"""Rows of a trace as columns: small enough that a viewer can hold a million spans."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import Any


class SpanFlag(IntFlag):
    """The bits of the column `flags`."""

    ERROR = 1
    """Its status is ERROR."""
    ROOT = 2
    """It was sent without a parent."""
    ORPHAN = 4
    """Its parent has not arrived."""
    IN_CYCLE = 8
    """A cycle of parents was opened at this span."""
    STARTS_EARLY = 16
    """It starts before its parent: clocks differ."""
    ENDS_LATE = 32
    """It ends after its parent: clocks differ, or the parent did not wait for it."""
    CRITICAL = 64
    """It is on the critical path."""


@dataclass(frozen=True, slots=True)
class TraceColumns:
    """Columns about one trace; `table` is an Arrow table, whose metadata has figures about the trace."""

    table: Any

    @property
    def trace_id(self) -> str:
        return self._text("trace_id")

    @property
    def spans(self) -> int:
        """The number of spans of the trace."""
        return int(self._text("spans"))

    @property
    def etag(self) -> str:
        """A text that changes when the trace does; it may also change when its spans move to other files."""
        return self._text("etag")

    @property
    def is_complete(self) -> bool:
        """False if something was left out because of a limit."""
        return self._text("complete") == "true"

    def _text(self, name: str) -> str:
        return str(self.table.schema.metadata[name.encode()].decode())

    def as_dict(self) -> dict[str, Any]:
        """Return the figures of the trace, and `columns` as lists."""
        figures = {key.decode(): value.decode() for key, value in self.table.schema.metadata.items()}
        numbers = {name: int(text) for name, text in figures.items() if name not in ("trace_id", "etag", "complete")}
        columns = {name: self.table[name].to_pylist() for name in self.table.column_names}
        return {**figures, **numbers, "complete": self.is_complete, "columns": columns}


@dataclass(frozen=True, slots=True)
class Skeleton(TraceColumns):
    """All spans of a trace in tree order, without ids and attributes.

    The columns of `table`, an Arrow table, are `depth`, `start_us` (from the start of the trace) and `duration_us`, both
    rounded down, `name` and `service` (dictionaries) and `flags` (see `SpanFlag`). Numbers have the smallest type that holds
    those of this trace; times of a trace of more than 71 minutes are doubles. It is not complete if the trace has more spans
    than were read (`trace_tree_spans_limit`).
    """

    @property
    def start_ns(self) -> int:
        return int(self._text("start_ns"))

    @property
    def end_ns(self) -> int:
        return int(self._text("end_ns"))


@dataclass(frozen=True, slots=True)
class TraceMatches(TraceColumns):
    """The spans of a trace that match, and their ancestors, by row number in tree order.

    The columns of `table`, an Arrow table, are `row` and `match`, which is 0 for an ancestor that does not match itself. It is
    not complete if there are more matches than the limit; `matches` counts all of them.
    """

    @property
    def matches(self) -> int:
        return int(self._text("matches"))

    @property
    def rows(self) -> list[int]:
        """The row numbers of the matches."""
        return [row for row, match in self._pairs() if match]

    @property
    def ancestors(self) -> list[int]:
        """The row numbers of their ancestors that do not match."""
        return [row for row, match in self._pairs() if not match]

    def _pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.table["row"].to_pylist(), self.table["match"].to_pylist(), strict=True))
