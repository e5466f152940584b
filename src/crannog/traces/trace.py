"""Spans as values, and their order in the tree of a trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from crannog.api.traces import Event, Link, Span
from crannog.traces.attribute_values import to_python
from crannog.traces.span_table import SPAN_KINDS

STATUS_NAMES = ("UNSET", "OK", "ERROR")
ERROR_STATUS = 2


def span_from_row(row: dict[str, Any]) -> Span:
    """Return a row of the span table as a span."""
    parent = row["parent_span_id"]
    code = row["status_code"]
    return Span(
        trace_id=row["trace_id"].hex(),
        span_id=row["span_id"].hex(),
        parent_span_id=None if parent is None else parent.hex(),
        name=row["span_name"],
        service=row["service_name"],
        kind=row["span_kind"] or SPAN_KINDS[0],
        start_ns=row["start_ns"],
        end_ns=row["end_ns"],
        status=STATUS_NAMES[code] if 0 <= code < len(STATUS_NAMES) else str(code),
        status_message=row["status_message"] or "",
        attributes=_python_values(row["attributes"]),
        resource=_python_values(row["resource_attributes"]),
        scope_name=row["scope_name"],
        scope_version=row["scope_version"] or "",
        scope_attributes=_python_values(row["scope_attributes"]),
        events=tuple(
            Event(
                event["name"], event["time_ns"], _python_values(event["attributes"]), event["dropped_attributes_count"]
            )
            for event in row["events"] or ()
        ),
        links=tuple(
            Link(
                link["trace_id"].hex(),
                link["span_id"].hex(),
                link["trace_state"],
                _python_values(link["attributes"]),
                link["dropped_attributes_count"],
                link["flags"],
            )
            for link in row["links"] or ()
        ),
        trace_state=row["trace_state"],
        flags=row["flags"],
        reported_end_ns=row["reported_end_ns"],
        **{name: row[name] for name in _LLM_COLUMNS},
    )


_LLM_COLUMNS = (
    "input",
    "output",
    "model",
    "provider",
    "input_tokens",
    "output_tokens",
    "session_id",
    "user_id",
    "cost",
    "total_input_tokens",
    "total_output_tokens",
    "total_cost",
)
SPAN_COLUMNS = (
    *("trace_id", "span_id", "parent_span_id", "span_name", "service_name", "span_kind", "start_ns", "end_ns"),
    *("status_code", "status_message", "attributes", "resource_attributes", "events", "links", "trace_state", "flags"),
    *("scope_name", "scope_version", "scope_attributes", "reported_end_ns", *_LLM_COLUMNS),
)
"""The columns of a span value; reads select only these."""


def _python_values(pairs: Sequence[tuple[str, str | None]] | None) -> dict[str, Any]:
    return {key: None if text is None else to_python(text) for key, text in pairs} if pairs else {}


def in_tree_order(spans: Iterable[Span]) -> list[Span]:
    """Return spans in tree order, with their depths: roots first, then orphans, then cycles of parents.

    Without recursion and with each span visited once, so neither deep trees nor cycles can make it hang.
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
    ordered_spans: list[Span] = []
    seen: set[str] = set()
    _append_subtrees([*roots, *orphans], children, ordered_spans, seen)
    for span in ordered:
        if span.span_id not in seen:
            _append_subtrees([replace(span, in_cycle=True)], children, ordered_spans, seen)
    return ordered_spans


def _append_subtrees(
    top_spans: list[Span], children: dict[str, list[Span]], ordered_spans: list[Span], seen: set[str]
) -> None:
    stack = [(span, 0) for span in reversed(top_spans)]
    while stack:
        span, depth = stack.pop()
        if span.span_id in seen:
            continue
        seen.add(span.span_id)
        ordered_spans.append(span if span.depth == depth else replace(span, depth=depth))
        stack += [(child, depth + 1) for child in reversed(children.get(span.span_id, ()))]
