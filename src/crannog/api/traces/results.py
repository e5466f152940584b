"""Results of writes, searches, metrics and maintenance of traces."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crannog.api.reports import ExpireReport, Report
from crannog.api.traces.spans import Span


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """A trace in a list, summarized from all its spans, each counted once. The root's names are None until it arrives."""

    trace_id: str
    root_service: str | None
    root_operation: str | None
    start_ns: int
    duration_ns: int
    span_count: int
    error_count: int
    services: tuple[str, ...]

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns

    @property
    def has_errors(self) -> bool:
        return self.error_count > 0


@dataclass(frozen=True, slots=True)
class TracePage:
    """A page of traces; a cursor is None if there is no such page. `total` counts all pages, if requested."""

    traces: tuple[TraceSummary, ...]
    next_cursor: str | None = None
    previous_cursor: str | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class SpanPage:
    """A page of spans, as `TracePage`."""

    spans: tuple[Span, ...] = field(repr=False)
    next_cursor: str | None = None
    previous_cursor: str | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A completion: a name, a key or an attribute value, and the number of spans that have it."""

    value: Any
    count: int


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


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """The result of a write: `message` says why spans were rejected, `duplicate` whether the request was stored before."""

    accepted: int
    rejected: int
    message: str
    duplicate: bool


@dataclass(frozen=True, slots=True)
class DeriveReport(Report):
    """The result of a derive: the rows written and the days recomputed, by table."""

    spans_version: int
    rows_written: Mapping[str, int]
    days_anew: Mapping[str, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class TraceExpiry(Report):
    """The result of an expiry: the spans dropped, the tables derived, and the bytes that the vacuum freed."""

    spans: ExpireReport
    derived: DeriveReport
    bytes_given_back: int


@dataclass(frozen=True, slots=True)
class ErasurePlan(Report):
    """What an erasure would erase."""

    traces: int
    spans: int
    services: Mapping[str, int]
    days: Mapping[dt.date, int]
