"""Converts values to JSON types."""

from __future__ import annotations

import base64
import datetime as dt
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any


def to_plain_json(value: Any) -> Any:
    """Convert a value to JSON types: times to ISO 8601, bytes to base64, decimals and NaN or infinity to strings."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (dt.date, dt.datetime)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, Mapping):
        return {
            name if isinstance(name, str) else str(to_plain_json(name)): to_plain_json(inner)
            for name, inner in value.items()
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain_json(inner) for inner in value]
    return str(value)
