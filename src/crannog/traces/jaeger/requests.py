"""What Jaeger's clients ask, in the words of our search: ids, times, durations and tags."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from crannog.errors import CallerError
from crannog.traces.search.times import UNITS, nanoseconds

DAY_NS = 86_400 * 10**9
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
# Microseconds since 1970 have 16 digits, until far in the future; some clients send milliseconds or nanoseconds.
_FEWEST_US, _MOST_US = 10**14, 10**17
# Tags that Jaeger makes of a span's own fields.
_OWN = {
    "span.kind": "kind",
    "otel.status_code": "status",
    "otel.scope.name": "scope",
    "otel.status_description": "status_message",
}
_IN_ANY_CASE = ("kind", "status")


def trace_id(text: str) -> str:
    """Read a trace id; zeros in front may be left out."""
    if not re.fullmatch(r"[0-9a-fA-F]{1,32}", text):
        raise CallerError(f"malformed trace id {text[:80]!r}: it has up to 32 hexadecimal digits")
    return text.rjust(32, "0")


def duration_ns(text: str | None, name: str) -> int | None:
    """Read a duration as Go writes it: 100ms, 1.2s, 1h30m."""
    if not text:
        return None
    parts = _DURATION.findall(text)
    if text != "0" and "".join(number + unit for number, unit in parts) != text:
        raise CallerError(f"malformed parameter '{name}': a duration is like 100ms, 1.2s or 1h30m, got {text[:80]!r}")
    return round(sum(float(number) * UNITS[unit] for number, unit in parts))


def microseconds(text: str | None, name: str) -> int | None:
    """Read a time in microseconds since 1970, told by its size from milliseconds and nanoseconds; return nanoseconds."""
    if not text:
        return None
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise CallerError(f"malformed parameter '{name}': a time is in microseconds since 1970, got {text[:80]!r}")
    value = int(text)
    if _FEWEST_US // 1000 <= abs(value) < _FEWEST_US:
        return value * 10**6
    return value if abs(value) >= _MOST_US else value * 1000


def milliseconds(text: str | None, name: str) -> int | None:
    """Read a number of milliseconds."""
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise CallerError(f"malformed parameter '{name}': it is a number of milliseconds, got {text[:80]!r}")
    return int(text)


def moment(text: str | None, name: str) -> int:
    """Read a time in RFC 3339; a plus sign may have become a space on its way."""
    if not text:
        raise CallerError(f"malformed parameter '{name}': it is required, a time in RFC 3339 like 2026-01-31T12:00:00Z")
    return nanoseconds(re.sub(r"(T.*) (\d\d:\d\d)$", r"\1+\2", text.strip()), name)


def tags_of(pairs: Iterable[str], document: str | None) -> dict[str, str]:
    """Read tags: `key:value` each, and a JSON object of texts."""
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
                f"malformed 'tags' parameter, expecting a JSON object of texts, received: {document[:80]}"
            )
        found |= {key: value if isinstance(value, str) else json.dumps(value) for key, value in more.items()}
    return found


def filter_of(tags: Mapping[str, str], least_ns: int | None = None, most_ns: int | None = None) -> str | None:
    """Return the filter of spans that have all these tags and a duration within bounds.

    A tag's value is text: it means a number or a truth as well.
    """
    if least_ns is not None and most_ns is not None and most_ns < least_ns:
        raise CallerError("'maxDuration' should be greater than 'minDuration'")
    terms = [f"duration {sign} {bound}ns" for sign, bound in ((">=", least_ns), ("<=", most_ns)) if bound is not None]
    for key, value in tags.items():
        if key == "error" and value in ("true", "false"):
            terms.append("error" if value == "true" else "not error")
        elif key in _OWN:
            own = _OWN[key]
            terms.append(f"{own} = {_quoted(value.lower() if own in _IN_ANY_CASE else value)}")
        else:
            terms.append(f"{_quoted(key)} in ({', '.join([_quoted(value), *_also(value)])})")
    return " and ".join(terms) or None


def with_attributes(where: str | None, pairs: Iterable[str]) -> str | None:
    """Return a filter that also asks for attributes, each given as key=value."""
    wanted = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise CallerError(f"an attribute is given as key=value, got {pair[:80]!r}")
        wanted[key] = value
    if not wanted:
        return where
    if where:
        from crannog.traces.search.filter_parser import parsed  # here: a server does not load it before it is asked

        parsed(where)  # by itself: a mistake is told with its place in what was written
    return " and ".join(f"({part})" for part in (where, filter_of(wanted)) if part)


def of_kinds(kinds: Iterable[str]) -> dict[str, str]:
    """Return the arguments of metrics of spans of these kinds, which may be named as OTLP's enumeration does."""
    named = [kind.lower().removeprefix("span_kind_") for kind in kinds]
    # Of one kind there are figures at hand; a filter is asked of the spans.
    return {"kind": named[0]} if len(named) == 1 else {"where": f"kind in ({', '.join(map(_quoted, named))})"}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _also(value: str) -> list[str]:
    if value in ("true", "false") or re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,15})?", value):
        return [value]
    return []


def listed(values: Iterable[Any]) -> list[str]:
    """Return a parameter that may be given once or several times, or with commas, as a list."""
    return [part for item in values for part in str(item).split(",") if part]
