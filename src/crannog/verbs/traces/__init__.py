"""Traces as values: plain, the same from a folder and from a server. Needs nothing but the standard library."""

from crannog.verbs.traces.figures import AttributeKey, Dependency, MetricPoint
from crannog.verbs.traces.found import SpanPage, Suggestion, TracePage, TraceSummary
from crannog.verbs.traces.kept import DeriveReport, ErasurePlan, TraceExpiry, WriteOutcome
from crannog.verbs.traces.shown import Path, PathChange, ShownSpan, TraceComparison, TraceView
from crannog.verbs.traces.spans import Event, Link, Span, Trace
from crannog.verbs.traces.verbs import TracedLake, TraceVerbs

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
    "TraceVerbs",
    "TraceView",
    "TracedLake",
    "WriteOutcome",
]
