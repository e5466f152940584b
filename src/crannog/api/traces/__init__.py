"""Value types of traces, the same for an embedded lake and a server; needs only the standard library."""

from crannog.api.traces.columns import Skeleton, SpanFlag, TraceColumns, TraceMatches
from crannog.api.traces.results import (
    AttributeKey,
    Dependency,
    DeriveReport,
    ErasurePlan,
    MetricPoint,
    SpanPage,
    Suggestion,
    TraceExpiry,
    TracePage,
    TraceSummary,
    WriteOutcome,
)
from crannog.api.traces.spans import (
    Event,
    Link,
    Path,
    PathChange,
    ShownSpan,
    Span,
    SpanPlace,
    Trace,
    TraceComparison,
    TraceView,
)
from crannog.api.traces.traces import Traces

__all__ = [
    "AttributeKey",
    "Dependency",
    "DeriveReport",
    "ErasurePlan",
    "Event",
    "Link",
    "MetricPoint",
    "Path",
    "PathChange",
    "ShownSpan",
    "Skeleton",
    "Span",
    "SpanFlag",
    "SpanPage",
    "SpanPlace",
    "Suggestion",
    "Trace",
    "TraceColumns",
    "TraceComparison",
    "TraceExpiry",
    "TraceMatches",
    "TracePage",
    "TraceSummary",
    "TraceView",
    "Traces",
    "WriteOutcome",
]
