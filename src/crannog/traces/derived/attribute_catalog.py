"""The catalogue of attributes: which keys there are, at which level, with which types of values."""

from __future__ import annotations

import datetime as dt
from typing import Any

from crannog.api.traces import AttributeKey
from crannog.engine.open_table import OpenTable
from crannog.traces.derived.definitions import ATTRIBUTE_KEYS
from crannog.traces.derived.views import DerivedViews


def attribute_keys(
    views: DerivedViews, spans: OpenTable, first: dt.date | None = None, last: dt.date | None = None, *, limit: int
) -> list[AttributeKey]:
    """Return the keys that spans of some days have, those used most first."""
    examples = ", ".join(f"min(example_{number}) AS example_{number}" for number in (1, 2, 3))
    found = views.query(
        spans,
        ATTRIBUTE_KEYS,
        lambda rows: (
            f"SELECT key, level, type, sum(use_count)::VARCHAR AS uses, {examples} FROM {rows} GROUP BY key, level, type"
            f" ORDER BY sum(use_count) DESC, key, level, type LIMIT {int(limit)}"
        ),
        first=first,
        last=last,
    )
    return [_key(row) for row in found.to_pylist()]


def _key(row: dict[str, Any]) -> AttributeKey:
    examples = [row[f"example_{number}"] for number in (1, 2, 3)]
    kept = tuple(example for example in examples if example is not None)
    return AttributeKey(row["key"], row["level"], row["type"], int(row["uses"]), kept)
