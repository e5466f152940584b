"""Value types of traces, the same for an embedded lake and a server; needs only the standard library."""

from crannog.api.traces.metrics import AttributeKey, Dependency, MetricPoint
from crannog.api.traces.retention import DeriveReport, ErasurePlan, TraceExpiry, WriteOutcome
from crannog.api.traces.search import SpanPage, Suggestion, TracePage, TraceSummary
from crannog.api.traces.spans import Event, Link, Span, Trace
from crannog.api.traces.traces import Traces
from crannog.api.traces.views import Path, PathChange, ShownSpan, TraceComparison, TraceView

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
    "Span",
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
