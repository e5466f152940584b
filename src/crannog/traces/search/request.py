"""A checked search request: a filter for spans, conditions on whole traces, and an order."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from crannog.api.traces.requests import SpanSelection, TraceQuery
from crannog.errors import CallerError
from crannog.traces.jaeger.requests import with_attributes
from crannog.traces.search.filter_parser import MAX_COMPARISONS, MAX_VALUES, parse_filter
from crannog.traces.search.filter_tree import FIELDS, TEXT, Compare, Field, Filter, Level, OneOf, all_of
from crannog.traces.times import milliseconds_to_ns, parse_time

TRACE_ORDERS = ("newest", "oldest", "longest", "shortest", "most_spans", "most_errors")
SPAN_ORDERS = ("newest", "oldest", "longest", "shortest")
MAX_RESULTS = 10_000


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One span of a trace must match `filter`; the other conditions are for the whole trace."""

    filter: Filter
    order: str = "newest"
    has_errors: bool | None = None
    min_duration_ns: int | Fraction | None = None
    max_duration_ns: int | Fraction | None = None

    @property
    def digest(self) -> str:
        """A hash that identifies the search in its cursors."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    @property
    def has_trace_conditions(self) -> bool:
        return self.has_errors is not None or self.min_duration_ns is not None or self.max_duration_ns is not None


def span_filter(selection: SpanSelection) -> Filter:
    """Combine the arguments of a search into one filter. Raises CallerError if one of them is invalid."""
    attributes = selection.attributes
    terms: list[Filter] = []
    for name, value in (("service", selection.service), ("operation", selection.operation)):
        if value is not None:
            terms.append(Compare(FIELDS[name], "=", _text(name, value)))
    if selection.start is not None:
        terms.append(Compare(FIELDS["start"], ">=", parse_time(selection.start, "start")))
    if selection.end is not None:
        terms.append(Compare(FIELDS["start"], "<", parse_time(selection.end, "end")))
    if selection.text is not None:
        terms.append(Compare(TEXT, "~", _text("text", selection.text)))
    if attributes is not None and not isinstance(attributes, Mapping):
        raise CallerError(f"attributes must be a mapping of keys to values, got {type(attributes).__name__}")
    if attributes and len(attributes) > MAX_COMPARISONS:
        raise CallerError(f"attributes has {len(attributes):,} keys; a search takes at most {MAX_COMPARISONS:,}")
    terms += [_attribute(key, value) for key, value in (attributes or {}).items()]
    return all_of(*terms, parse_filter(with_attributes(selection.where, selection.attribute_pairs)))


def trace_search_request(query: TraceQuery) -> SearchRequest:
    """Check the arguments of a search for traces. Raises CallerError if one of them is invalid."""
    filter = span_filter(query)
    if query.has_errors not in (None, True, False):
        raise CallerError(f"has_errors must be true, false or omitted, got {query.has_errors!r}")
    return SearchRequest(
        filter,
        checked_order(query.order, TRACE_ORDERS),
        query.has_errors,
        milliseconds_to_ns(query.min_duration_ms, "min_duration_ms"),
        milliseconds_to_ns(query.max_duration_ms, "max_duration_ms"),
    )


def checked_order(order: str, known: tuple[str, ...]) -> str:
    if order not in known:
        raise CallerError(f"order must be one of {', '.join(known)}, got {order!r}")
    return order


def checked_limit(limit: int, name: str = "limit") -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_RESULTS:
        raise CallerError(f"{name} must be an integer from 1 to {MAX_RESULTS:,}, got {limit!r}")
    return limit


def _attribute(key: str, value: Any) -> Filter:
    field = Field(Level.ANY, _text("an attribute key", key))
    if isinstance(value, (list, tuple, set, frozenset)):
        if not 0 < len(value) <= MAX_VALUES:
            raise CallerError(f"attribute {key!r}: a list must have 1 to {MAX_VALUES:,} values, got {len(value):,}")
        return OneOf(field, tuple(_value(key, item) for item in value))
    return Compare(field, "=", _value(key, value))


def _value(key: str, value: Any) -> str | int | float | bool:
    if isinstance(value, str):
        return _text(f"attribute {key!r}", value)
    if isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise CallerError(f"attribute {key!r}: the value must be text, a finite number, true or false, got {value!r}"[:300])


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise CallerError(f"{name} must be text, got {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise CallerError(f"{name} has an unpaired surrogate, which UTF-8 cannot encode") from None
    return value
