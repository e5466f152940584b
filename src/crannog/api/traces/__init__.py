"""Value types of traces, the same for an embedded lake and a server; needs only the standard library."""

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
from crannog.api.traces.skeleton import Skeleton, SpanFlag
from crannog.api.traces.spans import Event, Link, Path, PathChange, ShownSpan, Span, Trace, TraceComparison, TraceView
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
    "Suggestion",
    "Trace",
    "TraceComparison",
    "TraceExpiry",
    "TracePage",
    "TraceSummary",
    "TraceView",
    "Traces",
    "WriteOutcome",
]
