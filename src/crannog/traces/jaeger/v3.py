"""Traces in the shape of Jaeger's v3 API: OTLP in JSON, and summaries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from crannog.api.traces.spans import early_end_warning

if TYPE_CHECKING:
    from crannog.traces.jaeger.summaries import JaegerSummary


_WARNINGS = "@jaeger@warnings"
"""The attribute in which Jaeger keeps its warnings about a span."""


def traces_of(request: dict[str, Any]) -> dict[str, Any]:
    """Return exported OTLP in JSON as Jaeger shows it: a span that ends before it starts gets a warning and no duration."""
    for resource in request.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                start_ns, end_ns = (int(span.get(f"{name}TimeUnixNano", 0)) for name in ("start", "end"))
                if end_ns < start_ns:
                    warnings = [{"stringValue": early_end_warning(start_ns, end_ns)}]
                    span["endTimeUnixNano"] = str(start_ns)
                    span.setdefault("attributes", []).append(
                        {"key": _WARNINGS, "value": {"arrayValue": {"values": warnings}}}
                    )
    return request


def summary_of(trace: JaegerSummary) -> dict[str, Any]:
    """Return the summary of one trace."""
    return {
        "traceId": trace.trace_id,
        "rootServiceName": trace.root_service,
        "rootOperationName": trace.root_operation,
        "minStartTimeUnixNano": str(trace.start_ns),
        "maxEndTimeUnixNano": str(trace.end_ns),
        "spanCount": sum(service.spans for service in trace.services),
        "errorSpanCount": sum(service.errors for service in trace.services),
        "orphanSpanCount": trace.orphans,
        "services": [
            {"name": service.name, "spanCount": service.spans, "errorSpanCount": service.errors}
            for service in trace.services
        ],
    }


def summaries_of(traces: Iterable[JaegerSummary]) -> dict[str, Any]:
    """Return the summaries of traces."""
    return {"summaries": [summary_of(trace) for trace in traces]}


def error(status: int, message: str) -> dict[str, Any]:
    """Return an error in the API's shape."""
    return {"error": {"httpCode": status, "message": message}}
