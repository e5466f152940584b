"""A trace and its spans as values."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
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


@dataclass(frozen=True, slots=True)
class ShownSpan:
    """A span with its position in the tree.

    `order` counts from 0 over the whole trace. `self_ns` is the time in which no child was running, `critical_ns` the time
    in which it delayed the end of the trace. `path` has the ids from the top to the span, at most the last 128.
    `starts_early` and `ends_late` compare it with its parent: clocks differ, or the parent did not wait for it.
    """

    span: Span
    order: int
    path: tuple[str, ...] = field(repr=False)
    self_ns: int
    critical_ns: int
    children: int
    descendants: int
    starts_early: bool
    ends_late: bool

    @property
    def depth(self) -> int:
        return self.span.depth


@dataclass(frozen=True, slots=True)
class TraceView:
    """A window of a trace in tree order, and figures about the whole trace.

    `total` counts the spans within `depth` and `under`, of which `spans` begins at `offset`; `next_offset` is None at the
    end. `truncated` means that the trace has more spans than were read.
    """

    trace_id: str
    spans: tuple[ShownSpan, ...] = field(repr=False)
    offset: int
    total: int
    next_offset: int | None
    span_count: int
    error_count: int
    start_ns: int
    end_ns: int
    services: tuple[str, ...]
    deepest: int
    roots: int
    orphans: int
    cycles: int
    skewed: int
    critical_path: tuple[str, ...] = field(repr=False)
    """Span ids in tree order, at most 1,000."""
    truncated: bool

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def is_root_missing(self) -> bool:
        return not self.roots

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, with each span and its position as one dict."""
        placed = [_fields(shown) for shown in self.spans]
        return {**_fields(self), "spans": [{**_fields(place.pop("span")), **place} for place in placed]}


def view_document(flat: dict[str, Any]) -> dict[str, Any]:
    """Convert the result of `TraceView.as_dict` back to nested fields."""
    of_span = {one.name for one in fields(Span)}
    spans = [
        {
            "span": {name: value for name, value in span.items() if name in of_span},
            **{name: value for name, value in span.items() if name not in of_span},
        }
        for span in flat["spans"]
    ]
    return {**flat, "spans": spans}


@dataclass(frozen=True, slots=True)
class SpanPlace:
    """Where a span is in its trace: its row number in tree order, and those of its ancestors, from the top.

    The rows of its subtree follow it: `descendants` of them.
    """

    trace_id: str
    span_id: str
    row: int
    depth: int
    ancestors: tuple[int, ...]
    path: tuple[str, ...] = field(repr=False)
    """The ids from the top to the span. If there are more than 10,000, this and `ancestors` have the last."""
    children: int
    descendants: int
    span_count: int


Path = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PathChange:
    """The difference between two traces in the spans at one path.

    `change` is added, removed, slower, faster or same, by the mean duration of the spans.
    """

    path: Path
    change: str
    count_before: int
    count_after: int
    duration_before_ns: int
    duration_after_ns: int
    self_before_ns: int
    self_after_ns: int

    @property
    def difference_ns(self) -> int:
        return self.duration_after_ns - self.duration_before_ns


@dataclass(frozen=True, slots=True)
class TraceComparison:
    """The differences between two traces; `changes` has the largest first."""

    trace_id_before: str
    trace_id_after: str
    duration_before_ns: int
    duration_after_ns: int
    spans_before: int
    spans_after: int
    changes: tuple[PathChange, ...] = field(repr=False)
    paths: int
    """The number of all paths; `changes` has at most as many as the limit."""

    def of(self, change: str) -> tuple[PathChange, ...]:
        """Return the changes of one kind."""
        return tuple(path for path in self.changes if path.change == change)


def _fields(value: Any) -> dict[str, Any]:
    return {attribute.name: getattr(value, attribute.name) for attribute in fields(value)}
