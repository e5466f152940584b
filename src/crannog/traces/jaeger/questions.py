"""What Jaeger's clients ask, in the words of our search: times, durations and tags."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from crannog.errors import CallerError
from crannog.traces.find.times import UNITS, nanoseconds

DAY_NS = 86_400 * 10**9
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
# Microseconds since 1970 have 16 digits, until far in the future; some clients send milliseconds or nanoseconds.
_FEWEST_US, _MOST_US = 10**14, 10**17
# Tags that Jaeger makes of a span's own fields.
_OWN = {"span.kind": "kind", "otel.status_code": "status", "otel.scope.name": "scope", "otel.status_description": "status_message"}


def duration_ms(text: str | None, name: str) -> float | None:
    """Read a duration as Go writes it: 100ms, 1.2s, 1h30m."""
    if not text:
        return None
    parts = _DURATION.findall(text)
    if "".join(number + unit for number, unit in parts) != text:
        raise CallerError(f"{name} is a duration such as 100ms, 1.2s or 1h30m, got {text[:80]!r}")
    return sum(float(number) * UNITS[unit] for number, unit in parts) / 10**6


def microseconds(text: str | None, name: str) -> int | None:
    """Read a time in microseconds since 1970, told by its size from milliseconds and nanoseconds; return nanoseconds."""
    if not text:
        return None
    if not re.fullmatch(r"-?[0-9]{1,20}", text):
        raise CallerError(f"{name} is a time in microseconds since 1970, got {text[:80]!r}")
    value = int(text)
    if 0 < abs(value) < _FEWEST_US and abs(value) >= _FEWEST_US // 1000:
        return value * 10**6
    return value if abs(value) >= _MOST_US else value * 1000


def moment(text: str | None, name: str) -> int:
    """Read a time in RFC 3339; a plus sign may have become a space on its way."""
    if not text:
        raise CallerError(f"{name} is needed: a time in RFC 3339, like 2026-01-31T12:00:00Z")
    return nanoseconds(re.sub(r" (\d\d:\d\d)$", r"+\1", text.strip()), name)


def tags_of(pairs: Iterable[str], document: str | None) -> dict[str, str]:
    """Read tags: `key:value` each, and a JSON object of texts."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, colon, value = pair.partition(":")
        if not colon or not key:
            raise CallerError(f"a tag is given as key:value, got {pair[:80]!r}")
        found[key] = value
    if document:
        try:
            more = json.loads(document)
        except ValueError:
            more = None
        if not isinstance(more, dict):
            raise CallerError(f"tags are a JSON object of texts, got {document[:80]!r}")
        found |= {key: value if isinstance(value, str) else json.dumps(value) for key, value in more.items()}
    return found


def filter_of(tags: Mapping[str, str]) -> str | None:
    """Return the filter that spans with all these tags meet. A tag's value is text: it means a number or a truth as well."""
    terms = []
    for key, value in tags.items():
        if key == "error" and value in ("true", "false"):
            terms.append("error" if value == "true" else "not error")
        elif key in _OWN:
            terms.append(f"{_OWN[key]} = {json.dumps(value.lower() if key == 'span.kind' else value, ensure_ascii=False)}")
        else:
            wanted = [json.dumps(value, ensure_ascii=False), *_also(value)]
            terms.append(f"{json.dumps(key, ensure_ascii=False)} in ({', '.join(wanted)})")
    return " and ".join(terms) or None


def _also(value: str) -> list[str]:
    if value in ("true", "false") or re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,15})?", value):
        return [value]
    return []


def listed(value: Any) -> list[str]:
    """Return a parameter that may be given once or several times, or with commas, as a list."""
    return [part for item in value for part in str(item).split(",") if part]
