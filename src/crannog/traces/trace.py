"""Rows of the span table as spans, and their order in the tree of a trace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from crannog.api.traces import Event, Link, Span
from crannog.engine.duckdb.engine import quoted
from crannog.formats.json_values import from_lossless_json
from crannog.traces.span_table import COPY_ORDER, SPAN_KINDS

STATUS_NAMES = ("UNSET", "OK", "ERROR")
ERROR_STATUS = 2
SPAN_COLUMNS = (
    *("trace_id", "span_id", "parent_span_id", "span_name", "service_name", "span_kind", "start_ns", "end_ns"),
    *("status_code", "status_message", "attributes", "resource_attributes", "scope_name", "scope_version"),
    *("scope_attributes", "events", "links", "trace_state", "flags", "input", "output", "model", "provider"),
    *("input_tokens", "output_tokens", "session_id", "user_id", "cost", "total_input_tokens", "total_output_tokens"),
    *("total_cost", "reported_end_ns"),
)
"""The columns of a span value, in the order of its fields; reads select only these."""
SPAN_SQL = ", ".join(map(quoted, dict.fromkeys([*SPAN_COLUMNS, *COPY_ORDER])))
"""These columns, and those that order the copies of a span."""
_SPAN_ID, _PARENT, _START = (SPAN_COLUMNS.index(name) for name in ("span_id", "parent_span_id", "start_ns"))
_Pairs = Sequence[tuple[str, str | None]] | None


def span_values(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Return the values of the fields of each span, without its place in the tree."""
    read = {name: rows[name].to_pylist() for name in SPAN_COLUMNS}
    converted = {
        "trace_id": [trace_id.hex() for trace_id in read["trace_id"]],
        "span_id": [span_id.hex() for span_id in read["span_id"]],
        "parent_span_id": [None if parent is None else parent.hex() for parent in read["parent_span_id"]],
        "span_kind": [kind or SPAN_KINDS[0] for kind in read["span_kind"]],
        "status_code": [
            STATUS_NAMES[code] if 0 <= code < len(STATUS_NAMES) else str(code) for code in read["status_code"]
        ],
        "status_message": [message or "" for message in read["status_message"]],
        "attributes": _python_values(read["attributes"]),
        "resource_attributes": _python_values(read["resource_attributes"]),
        "scope_version": [version or "" for version in read["scope_version"]],
        "scope_attributes": _python_values(read["scope_attributes"]),
        "events": [
            tuple(
                Event(event["name"], event["time_ns"], attributes, event["dropped_attributes_count"])
                for event, attributes in _with_attributes(events)
            )
            if events
            else ()
            for events in read["events"]
        ],
        "links": [
            tuple(
                Link(
                    link["trace_id"].hex(),
                    link["span_id"].hex(),
                    link["trace_state"],
                    attributes,
                    link["dropped_attributes_count"],
                    link["flags"],
                )
                for link, attributes in _with_attributes(links)
            )
            if links
            else ()
            for links in read["links"]
        ],
    }
    return list(zip(*(read | converted).values(), strict=True))


def _python_values(column: Sequence[_Pairs]) -> list[dict[str, Any]]:
    """Return stored attributes with their Python values; of a repeated key, the last value."""
    # Parsed at once: a call for each value would take several times as long.
    texts = [text or "null" for pairs in column if pairs for _, text in pairs]
    values = iter(json.loads(f"[{','.join(texts)}]"))
    return [
        {
            key: from_lossless_json(value) if isinstance(value, (dict, list)) else value
            for (key, _), value in zip(pairs, values, strict=False)
        }
        if pairs
        else {}
        for pairs in column
    ]


def _with_attributes(items: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    return zip(items, _python_values([item["attributes"] for item in items]), strict=True)


def spans_in_tree_order(rows: pa.Table) -> list[Span]:
    """Return the spans of a trace, with their depths: roots first, then orphans, then cycles of parents.

    Without recursion and with each span visited once, so neither deep trees nor cycles can make it hang.
    """
    spans = sorted(span_values(rows), key=lambda values: (values[_START], values[_SPAN_ID]))
    known = {values[_SPAN_ID] for values in spans}
    children: dict[str | None, list[tuple[Any, ...]]] = {}
    roots, orphans = [], []
    for values in spans:
        if values[_PARENT] is None:
            roots.append(values)
        elif values[_PARENT] not in known:
            orphans.append(values)
        else:
            children.setdefault(values[_PARENT], []).append(values)
    ordered: list[Span] = []
    seen: set[str] = set()
    for top in (*roots, *orphans, *spans):
        stack = [(top, 0)]
        while stack:
            values, depth = stack.pop()
            span_id, parent = values[_SPAN_ID], values[_PARENT]
            if span_id in seen:
                continue
            seen.add(span_id)
            has_parent = parent in known
            place = (depth, parent is not None and not has_parent, has_parent and not depth)
            ordered.append(Span(*(values + place)))
            stack += [(child, depth + 1) for child in reversed(children.get(span_id, ()))]
    return ordered
