"""A trace and its spans as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened during a span."""

    name: str
    time_ns: int
    attributes: dict[str, Any]
    dropped_attributes_count: int = 0


@dataclass(frozen=True, slots=True)
class Link:
    """A span of this or another trace that a span refers to."""

    trace_id: str
    span_id: str
    trace_state: str
    attributes: dict[str, Any]
    dropped_attributes_count: int = 0
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """One span; ids are hexadecimal, attributes are Python values.

    `depth` counts from 0. The parent of an `orphan` has not arrived; a span `in_cycle` is its own ancestor, and the cycle is
    opened there. Both have depth 0 and come after the roots. If the span was sent with an end before its start,
    `reported_end_ns` is that end, `end_ns` is the start, and `warnings` says so.
    """

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    service: str
    kind: str
    start_ns: int
    end_ns: int
    status: str
    status_message: str
    attributes: dict[str, Any]
    resource: dict[str, Any]
    scope_name: str
    scope_version: str
    scope_attributes: dict[str, Any]
    events: tuple[Event, ...]
    links: tuple[Link, ...]
    trace_state: str
    flags: int
    input: str | None = None
    output: str | None = None
    model: str | None = None
    provider: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    session_id: str | None = None
    user_id: str | None = None
    cost: float | None = None
    total_input_tokens: int | None = None
    total_output_tokens: int | None = None
    total_cost: float | None = None
    reported_end_ns: int | None = None
    depth: int = 0
    orphan: bool = False
    in_cycle: bool = False

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def warnings(self) -> tuple[str, ...]:
        """Descriptions of invalid values in the span as it was sent."""
        return () if self.reported_end_ns is None else (early_end_warning(self.start_ns, self.reported_end_ns),)

    @property
    def is_error(self) -> bool:
        return self.status == "ERROR"


def early_end_warning(start_ns: int, reported_end_ns: int) -> str:
    """Return the warning for a span that was sent with an end before its start."""
    reported = f"{reported_end_ns}, {start_ns - reported_end_ns:,} ns before its start" if reported_end_ns else "0"
    return f"the span was sent with an end of {reported}; it is shown to end when it started"


@dataclass(frozen=True, slots=True)
class Trace:
    """The spans of one trace in tree order: parents before children, siblings by start, each span once.

    `truncated` means that the trace has more spans than these.
    """

    trace_id: str
    spans: tuple[Span, ...] = field(repr=False)
    truncated: bool = False

    @property
    def start_ns(self) -> int:
        return min(span.start_ns for span in self.spans)

    @property
    def end_ns(self) -> int:
        return max(span.end_ns for span in self.spans)

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def root(self) -> Span | None:
        """The first span without a parent; None while it is missing."""
        return next((span for span in self.spans if span.parent_span_id is None), None)

    @property
    def services(self) -> tuple[str, ...]:
        return tuple(sorted({span.service for span in self.spans}))

    @property
    def error_count(self) -> int:
        return sum(span.is_error for span in self.spans)
