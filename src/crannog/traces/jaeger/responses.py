"""Traces in the shapes of Jaeger's API: v1 has spans with tags and references, v3 has OTLP in JSON, and summaries."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crannog.api.traces.spans import early_end_warning

if TYPE_CHECKING:
    from crannog.api.traces import Event, Span, Trace
    from crannog.traces.jaeger.summaries import JaegerSummary

_SERVICE = "service.name"
# JavaScript loses digits of larger whole numbers.
_LARGEST_NUMBER = 2**53 - 1


class Processes:
    """The processes of a trace in v1: a service with the attributes of its resource, each once."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[str, Any]] = {}
        self._names: dict[str, str] = {}

    def span(self, span: Span, warnings: Sequence[str] = ()) -> dict[str, Any]:
        """Return a span, and add its process."""
        process = {
            "serviceName": span.service,
            "tags": tags({key: value for key, value in span.resource.items() if key != _SERVICE}),
        }
        text = json.dumps(process, sort_keys=True)
        if text not in self._names:
            self._names[text] = f"p{len(self._names) + 1}"
            self.by_name[self._names[text]] = process
        return _span(span, self._names[text], warnings)


def trace_v1(trace: Trace, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """Return one trace; the warnings are added to each of its spans."""
    processes = Processes()
    spans = [processes.span(span, warnings) for span in trace.spans]
    truncated = [f"the trace has more spans than the {len(spans):,} shown"] if trace.truncated else []
    return {
        "traceID": shown_id(trace.trace_id),
        "spans": spans,
        "processes": processes.by_name,
        "warnings": [*truncated, *warnings] or None,
    }


def shown_id(trace_id: str) -> str:
    """Return a trace id as Jaeger prints it: 16 digits where the high half is zero."""
    return trace_id.removeprefix("0" * 16) if trace_id.startswith("0" * 16) else trace_id


def _span(span: Span, process: str, warnings: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "traceID": shown_id(span.trace_id),
        "spanID": span.span_id,
        "operationName": span.name,
        "references": _references(span),
        "startTime": span.start_ns // 1000,
        "duration": span.duration_ns // 1000,
        "tags": _span_tags(span),
        "logs": [_log(event) for event in span.events],
        "processID": process,
        "warnings": [*span.warnings, *warnings] or None,
    }
    if span.flags & 0xFF:
        found["flags"] = span.flags & 0xFF
    return found


def _references(span: Span) -> list[dict[str, str]]:
    parents = [] if span.parent_span_id is None else [("CHILD_OF", span.trace_id, span.parent_span_id)]
    linked = [("FOLLOWS_FROM", link.trace_id, link.span_id) for link in span.links]
    return [
        {"refType": kind, "traceID": shown_id(trace_id), "spanID": span_id}
        for kind, trace_id, span_id in (*parents, *linked)
    ]


def _span_tags(span: Span) -> list[dict[str, Any]]:
    before = {"otel.scope.name": span.scope_name, "otel.scope.version": span.scope_version}
    after: dict[str, Any] = {}
    if span.kind != "UNSPECIFIED":
        after["span.kind"] = span.kind.lower()
    if span.status != "UNSET":
        after["otel.status_code"] = span.status
    if span.is_error:
        after["error"] = True
    after |= {
        name: value
        for name, value in (("otel.status_description", span.status_message), ("w3c.tracestate", span.trace_state))
        if value
    }
    return [*tags({name: value for name, value in before.items() if value}), *tags(span.attributes), *tags(after)]


def _log(event: Event) -> dict[str, Any]:
    named = tags({"event": event.name}) if event.name else []
    return {"timestamp": event.time_ns // 1000, "fields": [*named, *tags(event.attributes)]}


def tags(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return attributes as typed tags; values of types that Jaeger does not have become JSON in a string."""
    return [{"key": key, **_typed(value)} for key, value in values.items()]


def _typed(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"type": "bool", "value": value}
    if isinstance(value, int):
        return {"type": "int64", "value": value if abs(value) <= _LARGEST_NUMBER else str(value)}
    if isinstance(value, float):
        # JSON has neither NaN nor infinity.
        finite = value == value and abs(value) != float("inf")
        return {"type": "float64", "value": value} if finite else {"type": "string", "value": str(value)}
    if isinstance(value, bytes):
        return {"type": "binary", "value": base64.b64encode(value).decode()}
    if isinstance(value, str):
        return {"type": "string", "value": value}
    return {"type": "string", "value": "" if value is None else json.dumps(value, default=_text, ensure_ascii=False)}


def _text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def envelope_v1(
    data: Any, *, total: int = 0, limit: int = 0, errors: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return the envelope of every response of the API."""
    return {"data": data, "total": total, "limit": limit, "offset": 0, "errors": list(errors) or None}


_WARNINGS = "@jaeger@warnings"
"""The attribute in which Jaeger keeps its warnings about a span."""


def traces_v3(request: dict[str, Any]) -> dict[str, Any]:
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


def _summary_v3(trace: JaegerSummary) -> dict[str, Any]:
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


def summaries_v3(traces: Iterable[JaegerSummary]) -> dict[str, Any]:
    """Return the summaries of traces."""
    return {"summaries": [_summary_v3(trace) for trace in traces]}


def error_v3(status: int, message: str) -> dict[str, Any]:
    """Return an error in the API's shape."""
    return {"error": {"httpCode": status, "message": message}}
