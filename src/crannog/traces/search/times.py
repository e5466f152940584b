"""Times and durations in the forms that callers write, as nanoseconds."""

from __future__ import annotations

import datetime as dt
import re
from fractions import Fraction
from typing import Any

from crannog.errors import CallerError

DURATION_UNITS_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FRACTION = re.compile(r"(.*?T?\d\d:\d\d:\d\d)[.,](\d{1,9})(.*)", re.DOTALL)


def parse_time(time: Any, name: str = "a time") -> int:
    """Return a time in nanoseconds since 1970, from nanoseconds, a datetime or ISO text; UTC if it names no time zone."""
    if isinstance(time, bool) or not isinstance(time, (int, str, dt.datetime)):
        raise CallerError(f"{name} must be nanoseconds, a datetime or ISO text, got {type(time).__name__}")
    if isinstance(time, int):
        return time
    if isinstance(time, dt.datetime):
        return _of_datetime(time)
    # Up to nine digits of a second, of which a datetime holds six.
    match = _FRACTION.fullmatch(time.strip())
    whole, digits = (match[1] + match[3], match[2].ljust(9, "0")) if match else (time.strip(), "0")
    try:
        return _of_datetime(dt.datetime.fromisoformat(whole)) + int(digits)
    except (ValueError, OverflowError):
        raise CallerError(f"{name} must be ISO text such as 2026-01-31T12:00:00Z, got {time[:80]!r}") from None


def _of_datetime(time: dt.datetime) -> int:
    since = (time if time.tzinfo else time.replace(tzinfo=dt.UTC)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000


def milliseconds_to_ns(duration: Any, name: str) -> int | Fraction | None:
    """Convert milliseconds to nanoseconds, exactly; None stays None."""
    if duration is None:
        return None
    if isinstance(duration, bool) or not isinstance(duration, (int, float)) or not abs(duration) < 10**15:
        raise CallerError(f"{name} must be a number of milliseconds, got {duration!r}")
    exact = Fraction(duration) * 10**6
    return int(exact) if exact.denominator == 1 else exact
