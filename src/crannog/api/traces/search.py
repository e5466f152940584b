"""Results of searches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from crannog.api.traces.spans import Span


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """A trace in a list, summarized from all its spans, each counted once. The root's names are None until it arrives."""

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
    """A page of traces; a cursor is None if there is no such page. `total` counts all pages, if requested."""

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
    """A completion: a name, a key or an attribute value, and the number of spans that have it."""

    value: Any
    count: int
