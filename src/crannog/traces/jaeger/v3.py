"""Traces as Jaeger's v3 API shows them: OTLP in JSON, and summaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crannog.verbs.traces import Trace


def summary_of(trace: Trace) -> dict[str, Any]:
    """Return the summary of one trace."""
    root = trace.root
    spans = Counter(span.service for span in trace.spans)
    errors = Counter(span.service for span in trace.spans if span.is_error)
    return {
        "traceId": trace.trace_id,
        "rootServiceName": root.service if root else "",
        "rootOperationName": root.name if root else "",
        "minStartTimeUnixNano": str(trace.start_ns),
        "maxEndTimeUnixNano": str(trace.end_ns),
        "spanCount": len(trace.spans),
        "errorSpanCount": trace.error_count,
        "orphanSpanCount": sum(span.orphan for span in trace.spans),
        "services": [{"name": name, "spanCount": spans[name], "errorSpanCount": errors[name]} for name in sorted(spans)],
    }


def summaries_of(traces: Iterable[Trace]) -> dict[str, Any]:
    """Return the summaries of traces."""
    return {"summaries": [summary_of(trace) for trace in traces]}


def refusal(status: int, message: str) -> dict[str, Any]:
    """Return an error in the API's shape."""
    return {"error": {"httpCode": status, "message": message}}
