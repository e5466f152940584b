"""Infers the types of text columns and converts whole columns to values.

Text becomes a number, a time or a boolean only where it can be nothing else: 007, +49 30 1234, NA and 1,000 stay text.
"""

from __future__ import annotations

import functools

import pyarrow as pa
import pyarrow.compute as pc

INSTANT = pa.timestamp("us", "UTC")
_YEAR = r"(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_DAY = rf"^{_YEAR}-[0-9]{{2}}-[0-9]{{2}}"
_TIME = r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
_ZONE = r"(Z|[+-][0-9]{2}:?[0-9]{2})$"
_PATTERNS = {
    "boolean": r"^(?i:true|false)$",
    "integer": r"^(0|-?[1-9][0-9]{0,18})$",
    "float": r"^-?((0|[1-9][0-9]*)(\.[0-9]+)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$",
    "date": rf"{_DAY}$",
    "zoned": rf"{_DAY}{_TIME}{_ZONE}",
    "unzoned": rf"{_DAY}{_TIME}$",
}
_TYPES = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "float": pa.float64(),
    "date": pa.date32(),
    "zoned": INSTANT,
    "unzoned": INSTANT,
}
_PLAIN_INTEGER = r"^-?[0-9]{1,18}$"
_TRAILING_ZEROS = r"(\.[0-9]{6})0+"
_MAX_FLOAT_DIGITS = 17  # a float preserves every digit of a number of 17 digits
_SAFE_DIGITS = 15
_EXACT_BELOW = 1 << 53
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
CALENDAR = ("date", "zoned", "unzoned")


class TextTypeInference:
    """The possible types of a text column, narrowed by every part of it. Empty text and nulls do not count."""

    def __init__(self, kinds: tuple[str, ...] = tuple(_PATTERNS)) -> None:
        self._kinds = list(kinds)
        self._seen = False

    def observe(self, column: pa.Array) -> None:
        """Drop the types that do not fit a value of this part."""
        if not self._kinds:
            return
        values = column.filter(pc.greater(pc.binary_length(column), 0))
        if not len(values):
            return
        self._seen = True
        was_whole = False
        for kind in list(self._kinds):
            if kind == "float" and was_whole:
                continue  # every whole number is one; those that are too large took it out
            fits = _is_all(values, kind)
            if kind == "integer" and fits:
                was_whole = True
                if "float" in self._kinds and not _is_exact_as_float(values):
                    self._kinds.remove("float")
            if not fits:
                self._kinds.remove(kind)

    @property
    def type(self) -> pa.DataType | None:
        """The type of the column; None if it has no values."""
        if not self._seen:
            return None
        return _TYPES[self._kinds[0]] if self._kinds else pa.string()


def _is_all(values: pa.Array, kind: str) -> bool:
    # Checking the first few values saves most of the work: most types fail at once.
    for part in (values[:32], values):
        if not pc.all(pc.match_substring_regex(part, _PATTERNS[kind])).as_py():
            return False
    if kind == "boolean":
        return True
    if kind == "float":
        return _keeps_digits(values)
    try:
        _cast(values, _TYPES[kind])
    except pa.ArrowInvalid:
        return False
    return True


def _is_exact_as_float(values: pa.Array) -> bool:
    ends = pc.min_max(pc.cast(values, pa.int64()))
    return bool(ends["min"].as_py() >= -_EXACT_BELOW and ends["max"].as_py() <= _EXACT_BELOW)


def _keeps_digits(values: pa.Array) -> bool:
    if pc.max(pc.binary_length(values)).as_py() > _MAX_FLOAT_DIGITS:
        digits = pc.utf8_ltrim(pc.replace_substring_regex(values, r"[eE].*$|[-.]", ""), "0")
        if pc.max(pc.binary_length(digits)).as_py() > _MAX_FLOAT_DIGITS:
            return False
    if pc.max(pc.binary_length(values)).as_py() > _SAFE_DIGITS:
        whole = values.filter(pc.match_substring_regex(values, rf"^-?[0-9]{{{_SAFE_DIGITS + 1},}}$"))
        if len(whole) and not _is_exact_as_float(whole):
            return False
    return bool(pc.all(pc.is_finite(pc.cast(values, pa.float64()))).as_py())


def read_column(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.Array | None]:
    """Convert a text column to a type, with null where Arrow cannot be trusted, and a mask of those rows (None if none).

    Empty text in a column that is not text is null.
    """
    if pa.types.is_string(kind):
        return column, None
    pattern = _pattern(kind)
    if pattern is None:
        unread = pc.fill_null(pc.greater(pc.binary_length(column), 0), False)
        return pa.nulls(len(column), kind), unread
    fits = pc.fill_null(pc.match_substring_regex(column, pattern), False)
    has_text = pc.fill_null(pc.greater(pc.binary_length(column), 0), False)
    unread = pc.and_not(has_text, fits)
    if not pc.all(fits).as_py():
        column = pc.if_else(fits, column, pa.scalar(None, pa.string()))
    try:
        values = _cast(column, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(column), kind), has_text
    return values, unread if pc.any(unread).as_py() else None


@functools.lru_cache(maxsize=64)
def _pattern(kind: pa.DataType) -> str | None:
    types = pa.types
    if types.is_integer(kind):
        return _PLAIN_INTEGER
    if types.is_floating(kind):
        return _PATTERNS["float"] if kind == pa.float64() else None
    if types.is_boolean(kind):
        return _PATTERNS["boolean"]
    if types.is_date(kind):
        return _PATTERNS["date"]
    if types.is_timestamp(kind):
        # Strip trailing zeros before the cast; finer fractions are read value by value, and refused there.
        return (
            rf"{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}(\.[0-9]{{1,6}}0{{0,3}})?)?(Z|[+-][0-9]{{2}}:?[0-9]{{2}})?$"
        )
    if types.is_decimal(kind):
        return r"^-?[0-9]{1,38}(\.[0-9]{1,38})?$"
    return None


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return _instants(column)
    if pa.types.is_integer(kind) and kind != pa.int64():
        return pc.cast(pc.cast(column, pa.int64()), kind)
    return pc.cast(column, kind)


def _instants(column: pa.Array) -> pa.Array:
    """Parse times; one without a time zone is UTC, the zone of every time in a table."""
    if (pc.max(pc.binary_length(column)).as_py() or 0) >= len("2026-01-31T00:00:00.0000000"):
        column = pc.replace_substring_regex(column, _TRAILING_ZEROS, r"\1")
    zoned = pc.match_substring_regex(column, _ZONE)
    if not pc.any(zoned).as_py():
        found = pc.cast(pc.cast(column, pa.timestamp("us")), INSTANT)
    else:
        if not pc.all(zoned).as_py():
            column = pc.if_else(zoned, column, pc.binary_join_element_wise(column, "Z", ""))
        found = pc.cast(column, INSTANT)
    ends = pc.min_max(found.view(pa.int64()))
    if ends["min"].as_py() is not None and (ends["min"].as_py() < _FIRST_US or ends["max"].as_py() > _LAST_US):
        raise pa.ArrowInvalid("outside the years 1 to 9999")
    return found
