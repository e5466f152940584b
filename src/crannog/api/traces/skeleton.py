"""A whole trace as columns, small enough that a viewer can hold a million spans."""

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
class Skeleton:
    """All spans of a trace in tree order, without ids and attributes.

    The columns of `table`, an Arrow table, are `depth`, `start_us` (from the start of the trace) and `duration_us`, both
    rounded down, `name` and `service` (dictionaries) and `flags` (see `SpanFlag`). Numbers have the smallest type that holds
    those of this trace; times of a trace of more than 71 minutes are doubles.
    """

    table: Any

    @property
    def trace_id(self) -> str:
        return self._text("trace_id")

    @property
    def start_ns(self) -> int:
        return int(self._text("start_ns"))

    @property
    def end_ns(self) -> int:
        return int(self._text("end_ns"))

    @property
    def spans(self) -> int:
        return int(self._text("spans"))

    @property
    def is_complete(self) -> bool:
        """False if the trace has more spans than were read (`trace_tree_spans_limit`)."""
        return self._text("complete") == "true"

    @property
    def etag(self) -> str:
        """A text that changes when the trace does; it may also change when its spans move to other files."""
        return self._text("etag")

    def _text(self, name: str) -> str:
        return str(self.table.schema.metadata[name.encode()].decode())

    def as_dict(self) -> dict[str, Any]:
        """Return the figures of the trace, and `columns` as lists."""
        table = self.table
        figures = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
        return {
            **{
                name: int(text) if text.lstrip("-").isdecimal() and name not in _TEXTS else text
                for name, text in figures.items()
            },
            "complete": self.is_complete,
            "columns": {name: table[name].to_pylist() for name in table.column_names},
        }


_TEXTS = ("trace_id", "etag")
