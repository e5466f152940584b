"""The values in an event: text, times and JSON, checked once when the event is created."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from crannog.errors import BadRows, CallerError

LARGEST_TIMESTAMP = 2**63 - 1
LONGEST_ID = 1_024
LARGEST_EVENT_BYTES = 16 * 1024**2
_DEEPEST_JSON = 100
_LARGEST_NUMBER_BITS = 8_192
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def text(value: Any, where: str) -> str:
    """Return text that every store can hold. Raises BadRows otherwise."""
    if not isinstance(value, str):
        raise BadRows(f"{where} is text, got {type(value).__name__}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadRows(f"{where} has half of a surrogate pair, which no store can hold as text") from None
    return value


def identifier(value: Any, where: str) -> str:
    """Return an identifier: text that is not empty, not too long, and without NUL, which PostgreSQL refuses."""
    found = text(value, where)
    if not found:
        raise BadRows(f"{where} is empty; it is required")
    if len(found) > LONGEST_ID:
        raise BadRows(f"{where} has {len(found):,} characters; {LONGEST_ID:,} is the most")
    if "\0" in found:
        raise BadRows(f"{where} contains NUL, which no identifier may have")
    return found


def optional_identifier(value: Any, where: str) -> str | None:
    """Return an identifier, or None for None or empty text."""
    return None if value is None or value == "" else identifier(value, where)


def identifiers(values: Any, where: str) -> tuple[str, ...]:
    """Return identifiers as a tuple, in their order, repetitions included."""
    if isinstance(values, (str, bytes, Mapping)):
        raise BadRows(f"{where} is a list of names, got {type(values).__name__}")
    try:
        listed = tuple(values)
    except TypeError:
        raise BadRows(f"{where} is a list of names, got {type(values).__name__}") from None
    return tuple(identifier(value, f"{where}[{place}]") for place, value in enumerate(listed))


def timestamp(value: Any, where: str) -> int:
    """Return nanoseconds since 1970 in UTC: 0 or more, in 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRows(f"{where} is a whole number of nanoseconds since 1970, got {type(value).__name__}")
    if not 0 <= value <= LARGEST_TIMESTAMP:
        raise BadRows(f"{where} is {value}; it must lie between 0 and {LARGEST_TIMESTAMP} nanoseconds")
    return int(value)


def is_name(value: Any) -> bool:
    """Tell whether text can be an identifier in a log. Raises CallerError if it is not text."""
    if not isinstance(value, str):
        raise CallerError(f"an id is text, got {type(value).__name__}")
    if "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def json_value(value: Any, where: str) -> Any:
    """Return a copy of a JSON value, typed models as objects. Raises BadRows, with the place, if it is not JSON.

    Integers of any size, the order of names, and the difference between 1 and 1.0 are preserved.
    """
    return _copied(value, where, 0)


def _copied(value: Any, where: str, depth: int) -> Any:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return text(value, where)
    if isinstance(value, int):
        if value.bit_length() > _LARGEST_NUMBER_BITS:
            raise BadRows(f"{where} is a number of {value.bit_length():,} bits; {_LARGEST_NUMBER_BITS:,} is the most")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BadRows(f"{where} is {value}, which JSON cannot hold")
        return float(value)
    if depth >= _DEEPEST_JSON:
        raise BadRows(f"{where} is nested deeper than {_DEEPEST_JSON} levels")
    if isinstance(value, Mapping):
        copied = {}
        for name, inner in value.items():
            if not isinstance(name, str):
                raise BadRows(f"{where} has the name {name!r}; names in JSON are text")
            copied[text(name, where)] = _copied(inner, f"{where}.{name}", depth + 1)
        return copied
    if isinstance(value, (list, tuple)):
        return [_copied(inner, f"{where}[{place}]", depth + 1) for place, inner in enumerate(value)]
    if hasattr(value, "as_json"):
        return _copied(value.as_json(), where, depth + 1)
    if hasattr(value, "model_dump"):
        return _copied(value.model_dump(mode="json"), where, depth + 1)
    raise BadRows(f"{where} is {type(value).__name__}, which is not a JSON value")


def to_json(value: Any) -> str:
    """Return a JSON value as the text that is stored."""
    return _JSON.encode(value)


def from_json(written: str, where: str) -> Any:
    """Parse JSON text. Raises BadRows, with the place, if it is not JSON."""
    try:
        return json.loads(written, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadRows(f"{where} is not JSON: {error}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
