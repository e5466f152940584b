"""Times, durations and time steps in the forms that callers write."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
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


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_WORDS = {"second": "1s", "minute": "1m", "hour": "1h", "day": "1d", "week": "1w", "month": "1mo", "year": "1y"}
_CALENDAR = {"mo": "month", "y": "year"}
_STEP = re.compile(r"([1-9][0-9]{0,5})(s|m|h|d|w|mo|y)")
# 1970 began on a Thursday; weeks begin on Mondays.
_FIRST_MONDAY_S = 4 * 86_400


@dataclass(frozen=True, slots=True)
class Step:
    """A number of seconds, or a calendar month or year."""

    seconds: int
    calendar: str | None = None

    @property
    def is_whole_minutes(self) -> bool:
        """Return whether each bucket consists of whole minutes."""
        return self.calendar is not None or self.seconds % 60 == 0

    def begin(self, second: int) -> int:
        """Return the second in which the bucket of `second` begins; for steps of seconds only."""
        return (second - self._shift) // self.seconds * self.seconds + self._shift

    def begin_sql(self, seconds: str) -> str:
        """Return the DuckDB SQL of the second at which the bucket of `seconds` begins."""
        if self.calendar is not None:
            return f"cast(epoch(date_trunc('{self.calendar}', make_timestamp({seconds} * 1000000))) AS BIGINT)"
        return f"(({seconds} - {self._shift}) // {self.seconds} * {self.seconds} + {self._shift})"

    @property
    def _shift(self) -> int:
        return _FIRST_MONDAY_S if self.seconds % _SECONDS["w"] == 0 else 0

    def end(self, begin: int) -> int:
        """Return the second at which the bucket that begins at `begin` ends."""
        if self.calendar is None:
            return begin + self.seconds
        first = _EPOCH + dt.timedelta(seconds=begin)
        later = (
            first.replace(year=first.year + 1)
            if self.calendar == "year"
            else (first + dt.timedelta(days=32)).replace(day=1)
        )
        return int((later - _EPOCH).total_seconds())


def parse_step(text: str) -> Step:
    """Parse a step such as "30s", "5m", "1h", "1d", "1w", "1mo", "1y" or "minute". Raises CallerError if it is invalid."""
    match = _STEP.fullmatch(_WORDS.get(text, text)) if isinstance(text, str) else None
    if match is None or (match[2] in _CALENDAR and match[1] != "1"):
        raise CallerError(
            f'step must be a number of s, m, h, d or w such as "5m", or "1mo" or "1y", got {text!r}'[:200]
        )
    if match[2] in _CALENDAR:
        return Step(28 * 86_400 if match[2] == "mo" else 365 * 86_400, _CALENDAR[match[2]])
    return Step(int(match[1]) * _SECONDS[match[2]])
