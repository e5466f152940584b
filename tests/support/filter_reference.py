"""The meaning of a filter, span by span in Python: slow, plain, and what the tests compare the SQL with."""

from __future__ import annotations

import operator as operators
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crannog.api.traces import Span
from crannog.traces.attribute_values import double_json, escaped_value
from crannog.traces.search.filter_sql import lower_case, search_words
from crannog.traces.search.filter_tree import (
    EVENT_NAME,
    NEGATED_OPERATORS,
    And,
    Compare,
    Exists,
    Field,
    Filter,
    Level,
    Not,
    OneOf,
    Or,
    Type,
    Value,
)

_ORDER = {"<": operators.lt, "<=": operators.le, ">": operators.gt, ">=": operators.ge, "=": operators.eq}
_NAMES = {
    "operation": "name", "scope": "scope_name", "session": "session_id", "user": "user_id",
    "duration": "duration_ns", "start": "start_ns", "end": "end_ns", "error": "is_error",
}  # fmt: skip


def matches(filter: Filter, span: Span, blob: str) -> bool:
    """Tell whether a span, whose search blob is `blob`, meets a filter."""
    match filter:
        case And(terms):
            return all(matches(term, span, blob) for term in terms)
        case Or(terms):
            return any(matches(term, span, blob) for term in terms)
        case Not(term):
            return not matches(term, span, blob)
        case Exists(field):
            return any(True for _ in _values(field, span))
        case OneOf(field, values, negated):
            return any(negated != any(_meets(found, "=", value) for value in values) for found in _values(field, span))
        case Compare(field, operator, value) if field.type is Type.WORDS:
            return _says(operator, str(value), span, blob)
        case Compare(field, operator, value):
            if operator in NEGATED_OPERATORS:
                return any(not _meets(found, NEGATED_OPERATORS[operator], value) for found in _values(field, span))
            return any(_meets(found, operator, value) for found in _values(field, span))


def _values(field: Field, span: Span) -> Iterator[Any]:
    """Yield what a field stands for; nothing if the span does not have it."""
    if field.level is Level.COLUMN:
        found = (
            span.parent_span_id is None if field.name == "root" else getattr(span, _NAMES.get(field.name, field.name))
        )
        if field.name == "status_message" and not found:
            return
        if found is not None:
            yield found
        return
    if field == EVENT_NAME:
        yield from (event.name for event in span.events)
        return
    held = {
        Level.ANY: [span.attributes, span.resource, span.scope_attributes],
        Level.SPAN: [span.attributes],
        Level.RESOURCE: [span.resource],
        Level.SCOPE: [span.scope_attributes],
        Level.EVENT: [event.attributes for event in span.events],
        Level.LINK: [link.attributes for link in span.links],
    }
    yield from (attributes[field.name] for attributes in held[field.level] if field.name in attributes)


def _kind(value: Any) -> type | None:
    """Return what a value can be compared with: texts, numbers and truths keep apart, nothing else compares."""
    if isinstance(value, bool):
        return bool
    return (
        float
        if isinstance(value, (int, float)) or hasattr(value, "denominator")
        else str
        if isinstance(value, str)
        else None
    )


def _meets(found: Any, operator: str, value: Value) -> bool:
    if operator == "is":
        return _text(found) == value
    if _kind(found) is None or _kind(found) is not _kind(value):
        return False
    if operator == "contains":
        return str(value) in found
    if operator == "=~":
        return bool(pc.match_substring_regex(pa.array([found]), str(value))[0].as_py())
    return bool(_ORDER[operator](found, value))


def _text(found: Any) -> str | None:
    match found:
        case bool():
            return "true" if found else "false"
        case int():
            return str(found)
        case float():
            return double_json(found)
    return found if isinstance(found, str) else None


def _says(operator: str, wanted: str, span: Span, blob: str) -> bool:
    texts = [text for text in (span.input, span.output) if text is not None]
    if operator == "contains":
        return escaped_value(wanted) in blob or any(wanted in text for text in texts)
    return all(
        lower_case(escaped_value(word)) in lower_case(blob) or any(word in lower_case(text) for text in texts)
        for word in search_words(wanted)
    )
