"""Figures about spans: metrics, dependencies, attributes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One bucket of time of one group; buckets without spans, or traces, have none.

    `quantiles_ns` are those that were asked for besides, in their order. `seconds` is how long it is, within the time asked for, and what `rate` is per second of; durations are nanoseconds.
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
    """A key of attributes; `examples` are values as they are kept (see `crannog.traces.attribute_values`), long ones cut."""

    key: str
    level: str
    type: str
    uses: int
    examples: tuple[str, ...]
