"""Parameters of Jaeger's query API as arguments of our search: ids, times, durations and tags."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from crannog.errors import CallerError
from crannog.traces.times import DURATION_UNITS_NS, parse_time

DAY_NS = 86_400 * 10**9
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ns|us|µs|μs|ms|s|m|h)\s*")
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern})+")
# Microseconds since 1970 have 16 digits, until far in the future; some clients send milliseconds or nanoseconds.
_MIN_US, _MAX_US = 10**14, 10**17
# Tags that Jaeger makes from fields of a span.
_FIELDS = {
    "span.kind": "kind",
    "otel.status_code": "status",
    "otel.scope.name": "scope",
    "otel.status_description": "status_message",
}
_CASE_INSENSITIVE = ("kind", "status")


def trace_id(text: str) -> str:
    """Read a trace id; leading zeros may be left out."""
    if not re.fullmatch(r"[0-9a-fA-F]{1,32}", text):
        raise CallerError(f"malformed trace id {text[:80]!r}: expected up to 32 hexadecimal digits")
    return text.rjust(32, "0")


def duration_ns(text: str | None, name: str) -> int | None:
    """Read a duration as Go writes it, with or without spaces: 100ms, 1.2 s, 1h30m."""
    text = (text or "").strip()
    if not text:
        return None
    if text != "0" and not _DURATION.fullmatch(text):
        raise CallerError(
            f"malformed parameter '{name}': expected a duration like 100ms, 1.2s or 1h30m, got {text[:80]!r}"
        )
    return round(sum(float(number) * DURATION_UNITS_NS[unit] for number, unit in _DURATION_PART.findall(text)))


def microseconds(text: str | None, name: str) -> int | None:
    """Read a time in microseconds since 1970, or by its size in milliseconds or nanoseconds; return nanoseconds."""
    if not text:
        return None
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise CallerError(f"malformed parameter '{name}': expected microseconds since 1970, got {text[:80]!r}")
    value = int(text)
    if _MIN_US // 1000 <= abs(value) < _MIN_US:
        return value * 10**6
    return value if abs(value) >= _MAX_US else value * 1000


def milliseconds(text: str | None, name: str) -> int | None:
    """Read a number of milliseconds."""
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise CallerError(f"malformed parameter '{name}': expected a number of milliseconds, got {text[:80]!r}")
    return int(text)


def moment(text: str | None, name: str) -> int:
    """Read a time in RFC 3339; a plus sign may arrive as a space."""
    if not text:
        raise CallerError(f"parameter '{name}' is required: a time in RFC 3339 like 2026-01-31T12:00:00Z")
    return parse_time(re.sub(r"(T.*) (\d\d:\d\d)$", r"\1+\2", text.strip()), name)


def tags_of(pairs: Iterable[str], document: str | None) -> dict[str, str]:
    """Read tags, given as `key:value` pairs and as a JSON object of strings."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, colon, value = pair.partition(":")
        if not colon or not key:
            raise CallerError(f"malformed 'tag' parameter, expecting key:value, received: {pair[:80]}")
        found[key] = value
    if document:
        try:
            more = json.loads(document)
        except (ValueError, RecursionError):
            more = None
        if not isinstance(more, dict):
            raise CallerError(
                f"malformed 'tags' parameter, expecting a JSON object of strings, received: {document[:80]}"
            )
        found |= {key: value if isinstance(value, str) else json.dumps(value) for key, value in more.items()}
    return found


def filter_of(tags: Mapping[str, str], min_ns: int | None = None, max_ns: int | None = None) -> str | None:
    """Return the filter for spans that have all these tags and a duration within bounds.

    A tag's value is text, which also matches the number or boolean that it spells.
    """
    if min_ns is not None and max_ns is not None and max_ns < min_ns:
        raise CallerError("'maxDuration' should be greater than 'minDuration'")
    terms = [f"duration {sign} {bound}ns" for sign, bound in ((">=", min_ns), ("<=", max_ns)) if bound is not None]
    for key, value in tags.items():
        if key == "error" and value in ("true", "false"):
            terms.append("error" if value == "true" else "not error")
        elif key in _FIELDS:
            field = _FIELDS[key]
            terms.append(f"{field} = {_quoted(value.lower() if field in _CASE_INSENSITIVE else value)}")
        else:
            terms.append(f"{_quoted(key)} in ({', '.join([_quoted(value), *_unquoted(value)])})")
    return " and ".join(terms) or None


def with_attributes(where: str | None, pairs: Iterable[str]) -> str | None:
    """Return a filter that also requires attributes, each given as key=value."""
    wanted = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise CallerError(f"an attribute is given as key=value, got {pair[:80]!r}")
        wanted[key] = value
    if not wanted:
        return where
    if where:
        from crannog.traces.search.filter_parser import parse_filter  # here: not loaded before it is needed

        parse_filter(where)  # by itself, so that an error names the position in what the caller wrote
    return " and ".join(f"({part})" for part in (where, filter_of(wanted)) if part)


def of_kinds(kinds: Iterable[str]) -> dict[str, str]:
    """Return the arguments that limit metrics to spans of these kinds; OTLP's names of kinds are accepted too."""
    named = [kind.lower().removeprefix("span_kind_") for kind in kinds]
    # One kind is answered from the derived metrics, a filter from the spans.
    return {"kind": named[0]} if len(named) == 1 else {"where": f"kind in ({', '.join(map(_quoted, named))})"}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _unquoted(value: str) -> list[str]:
    if value in ("true", "false") or re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,15})?", value):
        return [value]
    return []


def listed(values: Iterable[Any]) -> list[str]:
    """Return the values of a parameter that may be repeated or separated by commas."""
    return [part for item in values for part in str(item).split(",") if part]
