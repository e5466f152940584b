"""Values formatted for the cells of a table."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from typing import Any

from crannog.formats.plain_json import to_plain_json

_LONGEST_CELL = 200


def shown(value: Any) -> str:
    """Return a value as one short line."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dt.datetime):
        return moment(value)
    if isinstance(value, (Mapping, list, tuple)):
        text = json.dumps(to_plain_json(value), ensure_ascii=False)
    else:
        text = str(to_plain_json(value))
    text = " ".join(text.splitlines()) if "\n" in text or "\r" in text else text
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"


def moment(value: dt.datetime) -> str:
    """Return a time in UTC, without trailing zeros."""
    text = value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=" ")
    return text.rstrip("0").rstrip(".") if "." in text else text


def of_bytes(count: float) -> str:
    """Return a size in a suitable unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: 1 row, 2 rows."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") and noun != "key" else f"{count:,} {noun}s"


def ago(time: dt.timedelta) -> str:
    """Return a duration in its largest unit."""
    seconds = max(0.0, time.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
