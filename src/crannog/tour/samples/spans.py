"""Generated spans, and OTLP requests of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = 1, 2, 3, 4, 5
MS = 1_000_000
_TRACES_PER_BODY = 100


@dataclass(slots=True)
class Made:
    """A generated span; times in nanoseconds."""

    trace_id: str
    span_id: str
    parent_id: str
    service: str
    name: str
    kind: int
    start: int
    end: int
    attributes: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    events: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)

    def as_otlp(self) -> dict[str, Any]:
        """Return the span as OTLP's JSON has it."""
        return {
            "traceId": self.trace_id,
            "spanId": self.span_id,
            "parentSpanId": self.parent_id,
            "name": self.name,
            "kind": self.kind,
            "startTimeUnixNano": str(self.start),
            "endTimeUnixNano": str(self.end),
            "attributes": _pairs(self.attributes),
            "events": [
                {"timeUnixNano": str(at), "name": name, "attributes": _pairs(attributes)}
                for at, name, attributes in self.events
            ],
            "links": [{"traceId": trace, "spanId": span} for trace, span in self.links],
            "status": {"code": 2, "message": self.error} if self.error else {},
        }


def _pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(each) for each in value]}}
    return {"stringValue": str(value)}


def otlp_bodies(traces: Iterable[list[Made]]) -> Iterator[bytes]:
    """Yield requests of OTLP's JSON with some traces each."""
    left = iter(traces)
    while some := list(islice(left, _TRACES_PER_BODY)):
        services: dict[str, list[dict[str, Any]]] = {}
        for span in (span for trace in some for span in trace):
            services.setdefault(span.service, []).append(span.as_otlp())
        yield json.dumps({"resourceSpans": [_resource(service, spans) for service, spans in services.items()]}).encode()


def _resource(service: str, spans: list[dict[str, Any]]) -> dict[str, Any]:
    resource = {
        "service.name": service,
        "service.version": "2.4.1",
        "deployment.environment.name": "demo",
        "host.name": f"{service}-1",
        "telemetry.sdk.language": "python",
    }
    scope = {"name": f"{service}.instrumentation", "version": "1.2.0"}
    return {"resource": {"attributes": _pairs(resource)}, "scopeSpans": [{"scope": scope, "spans": spans}]}
