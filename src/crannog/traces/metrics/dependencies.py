"""Dependencies: which services call which in a time range."""

from __future__ import annotations

import datetime as dt
from typing import Any

from crannog.api.traces import Dependency
from crannog.engine.open_table import OpenTable
from crannog.traces.derived.definitions import EDGES
from crannog.traces.derived.views import DerivedViews
from crannog.traces.search.times import parse_time

_NS_PER_MINUTE = 60 * 10**9
_MINUTES_PER_DAY = 24 * 60
_LAST_MINUTE = (2**63 - 1) // _NS_PER_MINUTE
_EPOCH = dt.date(1970, 1, 1)
_MAX_DEPENDENCIES = 100_000


def dependencies(views: DerivedViews, spans: OpenTable, start: Any = None, end: Any = None) -> list[Dependency]:
    """Return the calls between services, sorted by name, in whole minutes: from that of `start` to the last before `end`."""
    first = None if start is None else max(0, parse_time(start, "start") // _NS_PER_MINUTE)
    last = None if end is None else min(_LAST_MINUTE, -(-parse_time(end, "end") // _NS_PER_MINUTE) - 1)
    if last is not None and last < (first or 0):
        return []
    conditions = [f"minute >= {first}"] if first is not None else []
    conditions += [f"minute <= {last}"] if last is not None else []
    found = views.query(
        spans,
        EDGES,
        lambda rows: (
            "SELECT parent_service, child_service, sum(call_count)::VARCHAR AS calls, sum(error_count)::VARCHAR AS errors"
            f" FROM {rows} WHERE {' AND '.join(conditions) or 'true'} GROUP BY ALL ORDER BY ALL LIMIT {_MAX_DEPENDENCIES}"
        ),
        first=_day(first),
        last=_day(last),
    )
    return [
        Dependency(row["parent_service"], row["child_service"], int(row["calls"]), int(row["errors"]))
        for row in found.to_pylist()
    ]


def _day(minute: int | None) -> dt.date | None:
    return None if minute is None else _EPOCH + dt.timedelta(days=min(minute, _LAST_MINUTE) // _MINUTES_PER_DAY)
