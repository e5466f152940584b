"""The operations on traces, each with its request."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crannog.api.operations import AnyOperation, Operation, get, in_query, post
from crannog.api.reports import ErasureReceipt
from crannog.api.traces import results
from crannog.api.traces.analysis import Differences, Heatmap, SessionPage, UsagePoint
from crannog.api.traces.columns import Skeleton, TraceMatches
from crannog.api.traces.messages import TraceMessages
from crannog.api.traces.spans import SpanPlace, Trace, TraceComparison, TraceView
from crannog.errors import CallerError

PROTOBUF = "application/x-protobuf"
ZIPKIN = "application/vnd.zipkin.v2+json"

Time = int | str | dt.datetime
"""A point in time: nanoseconds since 1970, ISO 8601 text or a datetime."""
Value = str | int | float | bool


def _time(values: list[str]) -> int | str | None:
    text = values[-1]
    # Eight digits are a date without dashes; realistic nanoseconds have more.
    return int(text) if text.lstrip("-").isdecimal() and len(text) != 8 else text or None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanSelection:
    """Selects spans: a span must match all given arguments."""

    service: str | None = None
    operation: str | None = None
    text: str | None = None
    attributes: Mapping[str, Value | Sequence[Value]] | None = None
    attribute_pairs: Sequence[str] = field(default=(), metadata=in_query("attribute"))
    """Attributes as `key=value`, for query strings; the value is text and also matches a number or a boolean."""
    where: str | None = None
    start: Time | None = field(default=None, metadata=in_query("start", _time))
    end: Time | None = field(default=None, metadata=in_query("end", _time))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanQuery(SpanSelection):
    """Find spans: one page, with the cursors of the next and the previous one."""

    limit: int = 50
    cursor: str | None = None
    order: str = "newest"
    count: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceQuery(SpanQuery):
    """Find traces: one page, with the cursors of the next and the previous one."""

    has_errors: bool | None = None
    min_duration_ms: float | None = None
    max_duration_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionQuery(SpanSelection):
    """Suggest completions: services, operations, attribute keys, or values of `key`."""

    what: str
    prefix: str = ""
    key: str | None = None
    limit: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricQuery:
    """Return counts, rates, errors and latencies over time, of spans or of whole traces."""

    service: str | None = None
    operation: str | None = None
    kind: str | None = None
    start: Time | None = field(default=None, metadata=in_query("start", _time))
    end: Time | None = field(default=None, metadata=in_query("end", _time))
    step: str = "1m"
    group_by: Sequence[str] | str | None = None
    where: str | Mapping[str, Value | Sequence[Value]] | None = None
    of: str = "spans"
    quantiles: Sequence[float] = field(default=(), metadata=in_query("quantile"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapQuery(SpanSelection):
    """Return counts of spans by start and duration, with examples: latency over time, to be drawn."""

    times: int = 60
    min_duration_ms: float | None = None
    max_duration_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceQuery(SpanSelection):
    """Return what distinguishes the selected spans from all others that match: the values whose shares differ most."""

    selected: str | None = None
    selected_start: Time | None = field(default=None, metadata=in_query("selected_start", _time))
    selected_end: Time | None = field(default=None, metadata=in_query("selected_end", _time))
    min_duration_ms: float | None = None
    max_duration_ms: float | None = None
    limit: int = 50
    values: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery(SpanSelection):
    """Return sessions (conversations) that have a matching span, with users, models, tokens and cost, the last active first."""

    offset: int = 0
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageQuery(SpanSelection):
    """Return calls to language models with their tokens and cost, over time and by fields or attributes."""

    step: str | None = None
    group_by: Sequence[str] | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQuery:
    """Return the messages of a trace's spans, or of one span, in one form for all conventions."""

    trace_id: str
    span_id: str | None = None
    offset: int = 0
    limit: int = 100
    max_chars: int = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyQuery:
    """Return which services call which."""

    start: Time | None = field(default=None, metadata=in_query("start", _time))
    end: Time | None = field(default=None, metadata=in_query("end", _time))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeKeyQuery:
    """Return the attribute keys that are in use, the most frequent first."""

    first: dt.date | None = None
    last: dt.date | None = None


@dataclass(frozen=True, slots=True)
class TraceById:
    """Return all spans of a trace in tree order, up to `trace_spans_limit`."""

    trace_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowQuery:
    """Return a window of a trace's tree."""

    trace_id: str
    offset: int = 0
    limit: int = 1_000
    depth: int | None = None
    under: str | None = None
    around: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceQuery:
    """Return where a span is in its trace: its row number in tree order, and its ancestors."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindQuery(SpanSelection):
    """Find spans in a trace: the row numbers of those that match and of their ancestors, as Arrow or JSON."""

    trace_id: str
    limit: int = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SkeletonQuery:
    """Return a whole trace as columns in tree order: Arrow, or JSON for a small one."""

    trace_id: str
    limit: int = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonQuery:
    """Compare two traces."""

    before: str
    after: str
    limit: int = 1_000
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class ServiceQuery:
    """Return the names of all services."""


@dataclass(frozen=True, slots=True)
class OperationQuery:
    """Return the operations of a service with each of their kinds, as pairs of a name and a kind or null."""

    service: str


@dataclass(frozen=True, slots=True)
class ExportTraces:
    """Return traces as OTLP: in JSON, or in protobuf or lines of JSON by `Accept`."""

    trace_ids: Sequence[str]

    def __post_init__(self) -> None:
        if isinstance(self.trace_ids, str):
            raise CallerError("trace_ids must be a list of trace ids, got a single text")


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadTrace:
    """Return a trace of any size as a JSON file: in the form of OTLP, of Jaeger, or of Perfetto (Chrome trace events)."""

    trace_id: str
    format: str = "otlp"


@dataclass(frozen=True, slots=True)
class WriteSpans:
    """Store the spans of an OTLP or Zipkin request."""

    body: bytes
    content_type: str = PROTOBUF
    encoding: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.body, (bytes, bytearray, memoryview)):
            raise CallerError(f"body must be bytes, got {type(self.body).__name__}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeriveTables:
    """Fold staged spans, and update summaries, metrics, dependencies and attribute keys."""

    anew: Sequence[dt.date] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireTraces:
    """Drop spans that started before a day, and everything derived from them."""

    before: dt.date
    service: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.before, dt.date) or isinstance(self.before, dt.datetime):
            raise CallerError(f"before must be a date, got {self.before!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSelection:
    """Count the traces that an erasure would remove."""

    trace_ids: Sequence[str] | None = None
    where: str | Mapping[str, Value | Sequence[Value]] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.trace_ids, str):
            raise CallerError("trace_ids must be a list of trace ids, got a single text")


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseTraces(TraceSelection):
    """Erase traces permanently, and verify it. With `dry_run`, only count them."""

    actor: str = ""
    reason: str = ""
    dry_run: bool = False
    erasure_id: str | None = None


SEARCH = Operation("search", TraceQuery, results.TracePage, "read", (post("/traces/search"), get("/traces")))
SEARCH_SPANS = Operation("search_spans", SpanQuery, results.SpanPage, "read", (post("/traces/spans"),))
COMPLETE = Operation(
    "complete", CompletionQuery, list[results.Suggestion], "read", (post("/traces/complete"), get("/traces/complete"))
)
METRICS = Operation(
    "metrics", MetricQuery, list[results.MetricPoint], "read", (post("/traces/metrics"), get("/traces/metrics"))
)
HEATMAP = Operation("heatmap", HeatmapQuery, Heatmap, "read", (post("/traces/heatmap"), get("/traces/heatmap")))
DIFFERENCES = Operation(
    "differences", DifferenceQuery, Differences, "read", (post("/traces/differences"), get("/traces/differences"))
)
SESSIONS = Operation("sessions", SessionQuery, SessionPage, "read", (post("/traces/sessions"), get("/traces/sessions")))
USAGE = Operation("usage", UsageQuery, list[UsagePoint], "read", (post("/traces/usage"), get("/traces/usage")))
DEPENDENCIES = Operation(
    "dependencies",
    DependencyQuery,
    list[results.Dependency],
    "read",
    (post("/traces/dependencies"), get("/dependencies")),
)
ATTRIBUTE_KEYS = Operation(
    "attribute_keys", AttributeKeyQuery, list[results.AttributeKey], "read", (get("/traces/attributes"),)
)
COMPARE = Operation("compare", ComparisonQuery, TraceComparison, "read", (get("/traces/compare"),))
GET = Operation("get", TraceById, Trace, "read", (get("/traces/{trace_id}/spans"),))
SHOW = Operation("show", WindowQuery, TraceView, "read", (get("/traces/{trace_id}"),))
SKELETON = Operation("skeleton", SkeletonQuery, Skeleton, "read", (get("/traces/{trace_id}/skeleton"),))
PLACE = Operation("place", PlaceQuery, SpanPlace, "read", (get("/traces/{trace_id}/place"),))
FIND = Operation(
    "find", FindQuery, TraceMatches, "read", (post("/traces/{trace_id}/find"), get("/traces/{trace_id}/find"))
)
MESSAGES = Operation("messages", MessageQuery, TraceMessages, "read", (get("/traces/{trace_id}/messages"),))
SERVICES = Operation("services", ServiceQuery, list[str], "read", (get("/services"),))
OPERATIONS_BY_KIND = Operation(
    "operations_by_kind", OperationQuery, list[tuple[str, str | None]], "read", (get("/operations"),)
)
EXPORT = Operation("export", ExportTraces, dict[str, Any], "read", (post("/traces/export"),))
EXPORT_PROTOBUF = Operation("export_protobuf", ExportTraces, bytes, "read", (post("/traces/export"),))
EXPORT_LINES = Operation("export_lines", ExportTraces, str, "read", (post("/traces/export"),))
DOWNLOAD = Operation("download", DownloadTrace, str, "read", (get("/traces/{trace_id}/download"),))
WRITE = Operation("write_otlp", WriteSpans, results.WriteOutcome, "write", (post("/traces/otlp"),))
DERIVE = Operation("derive", DeriveTables, results.DeriveReport, "admin", (post("/traces/derive"),))
EXPIRE = Operation("expire", ExpireTraces, results.TraceExpiry, "admin", (post("/traces/expire"),))
ERASURE_PLAN = Operation("erasure_plan", EraseTraces, results.ErasurePlan, "admin", (post("/traces/erase"),))
ERASE = Operation("erase", EraseTraces, ErasureReceipt, "admin", (post("/traces/erase"),))

QUERIES = (
    SEARCH,
    SEARCH_SPANS,
    COMPLETE,
    METRICS,
    HEATMAP,
    DIFFERENCES,
    SESSIONS,
    USAGE,
    DEPENDENCIES,
    ATTRIBUTE_KEYS,
    COMPARE,
    GET,
    SHOW,
    PLACE,
    MESSAGES,
    SERVICES,
    OPERATIONS_BY_KIND,
)
"""The operations that answer with one JSON document; an order in which fixed paths come before `/traces/{trace_id}`."""
COLUMN_QUERIES: tuple[AnyOperation, ...] = (SKELETON, FIND)
"""The operations that answer with columns, as Arrow or JSON."""
