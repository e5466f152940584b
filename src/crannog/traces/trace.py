"""A trace as people see it: its spans as values, in the order of their tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from crannog.traces.spans import KINDS
from crannog.traces.values import to_python

STATUS = ("UNSET", "OK", "ERROR")
ERROR = 2


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
    """One span; ids are hexadecimal, attributes plain Python values.

    `depth` counts from 0. `orphan` marks a span whose parent is not (yet) there, `in_cycle` one whose ancestors lead
    back to it, cut open there; both stand at depth 0, after the roots.
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
    depth: int = 0
    orphan: bool = False
    in_cycle: bool = False

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def is_error(self) -> bool:
        return self.status == "ERROR"


@dataclass(frozen=True, slots=True)
class Trace:
    """The spans of one trace in tree order: parents before children, siblings by start; never the same span twice.

    `truncated` tells that there are more spans than are held here.
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


def span_of(row: dict[str, Any]) -> Span:
    """Return a row of the span table as a span."""
    parent = row["parent_span_id"]
    code = row["status_code"]
    return Span(
        trace_id=row["trace_id"].hex(),
        span_id=row["span_id"].hex(),
        parent_span_id=None if parent is None else parent.hex(),
        name=row["span_name"],
        service=row["service_name"],
        kind=row["span_kind"] or KINDS[0],
        start_ns=row["start_ns"],
        end_ns=row["end_ns"],
        status=STATUS[code] if 0 <= code < len(STATUS) else str(code),
        status_message=row["status_message"] or "",
        attributes=_values(row["attributes"]),
        resource=_values(row["resource_attributes"]),
        scope_name=row["scope_name"],
        scope_version=row["scope_version"] or "",
        scope_attributes=_values(row["scope_attributes"]),
        events=tuple(
            Event(event["name"], event["time_ns"], _values(event["attributes"]), event["dropped_attributes_count"])
            for event in row["events"] or ()
        ),
        links=tuple(
            Link(
                link["trace_id"].hex(),
                link["span_id"].hex(),
                link["trace_state"],
                _values(link["attributes"]),
                link["dropped_attributes_count"],
                link["flags"],
            )
            for link in row["links"] or ()
        ),
        trace_state=row["trace_state"],
        flags=row["flags"],
        **{name: row[name] for name in _LLM},
    )


_LLM = (
    "input", "output", "model", "provider", "input_tokens", "output_tokens", "session_id", "user_id",
)
COLUMNS = (
    *("trace_id", "span_id", "parent_span_id", "span_name", "service_name", "span_kind", "start_ns", "end_ns"),
    *("status_code", "status_message", "attributes", "resource_attributes", "events", "links", "trace_state", "flags"),
    *("scope_name", "scope_version", "scope_attributes", *_LLM),
)
"""What a span is made of; a read that asks for no more opens no other column."""


def _values(pairs: Sequence[tuple[str, str | None]] | None) -> dict[str, Any]:
    return {key: None if text is None else to_python(text) for key, text in pairs or ()}


def in_tree_order(spans: Iterable[Span]) -> list[Span]:
    """Order spans as a tree, with their depth: roots first, then orphans, then what only a cycle holds together.

    Works without recursion and visits each span once, so neither depth nor a cycle can hang it.
    """
    ordered = sorted(spans, key=lambda span: (span.start_ns, span.span_id))
    known = {span.span_id for span in ordered}
    children: dict[str, list[Span]] = {}
    roots, orphans = [], []
    for span in ordered:
        if span.parent_span_id is None:
            roots.append(span)
        elif span.parent_span_id not in known:
            orphans.append(replace(span, orphan=True))
        else:
            children.setdefault(span.parent_span_id, []).append(span)
    placed: list[Span] = []
    seen: set[str] = set()
    _place([*roots, *orphans], children, placed, seen)
    for span in ordered:
        if span.span_id not in seen:
            _place([replace(span, in_cycle=True)], children, placed, seen)
    return placed


def _place(tops: list[Span], children: dict[str, list[Span]], placed: list[Span], seen: set[str]) -> None:
    waiting = [(span, 0) for span in reversed(tops)]
    while waiting:
        span, depth = waiting.pop()
        if span.span_id in seen:
            continue
        seen.add(span.span_id)
        placed.append(span if span.depth == depth else replace(span, depth=depth))
        waiting += [(child, depth + 1) for child in reversed(children.get(span.span_id, ()))]
