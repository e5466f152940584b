"""Results of metric queries: points, dependencies and attribute keys."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One time bucket of one group; empty buckets have no point.

    `seconds` is the length of the bucket within the time range of the query; `rate` is the count per second of it.
    Durations are in nanoseconds. `quantiles_ns` has the additional quantiles, in the order of the query.
    """

    start: dt.datetime
    seconds: float
    group: Mapping[str, Any]
    count: int
    rate: float
    errors: int
    error_rate: float
    avg_ns: float
    p50_ns: int
    p95_ns: int
    p99_ns: int
    quantiles_ns: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.start.tzinfo is not dt.UTC:  # read from JSON, the zone is an object of another kind
            object.__setattr__(self, "start", self.start.astimezone(dt.UTC))


@dataclass(frozen=True, slots=True)
class Dependency:
    """Calls from one service to another: spans of the child whose parent is a span of the parent."""

    parent: str
    child: str
    calls: int
    errors: int


@dataclass(frozen=True, slots=True)
class AttributeKey:
    """An attribute key; `examples` are stored values (see `crannog.traces.attribute_values`), cut if they are long."""

    key: str
    level: str
    type: str
    uses: int
    examples: tuple[str, ...]
