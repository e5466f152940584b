"""What a search gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from crannog.api.traces.spans import Span


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """A trace in a list, told from all of its spans, each counted once; no root yet has no name."""

    trace_id: str
    root_service: str | None
    root_operation: str | None
    start_ns: int
    duration_ns: int
    span_count: int
    error_count: int
    services: tuple[str, ...]

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns

    @property
    def has_errors(self) -> bool:
        return self.error_count > 0


@dataclass(frozen=True, slots=True)
class TracePage:
    """A page of traces; a cursor is None where there is nothing more. `total` counts all pages, if it was asked for."""

    traces: tuple[TraceSummary, ...]
    next_cursor: str | None = None
    previous_cursor: str | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class SpanPage:
    """A page of spans, as `TracePage`."""

    spans: tuple[Span, ...] = field(repr=False)
    next_cursor: str | None = None
    previous_cursor: str | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Something to type next: a name, a key or an attribute's value, and in how many spans it was seen."""

    value: Any
    count: int
