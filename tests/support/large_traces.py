"""Traces that viewers break on: one with everything odd about it, and ones of any number of spans."""

from __future__ import annotations

import random
from collections.abc import Iterator

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from crannog.tour.samples.spans import CLIENT, INTERNAL, MS, SERVER, Made

ODD_SPANS = 300
ODD_LEVELS = 45
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
_SERVICES = ("gateway", "orders", "payments", "stock", "mail", "ledger", "search", "images")
_BODY_SPANS = 20_000


def odd_trace(trace_id: str, now: int) -> list[Made]:
    """Make a trace of 300 spans: 45 levels, two orphans, a cycle, skewed clocks, errors, links, hostile text, a long payload."""
    dice = random.Random(5)
    spans: list[Made] = []

    def add(parent: int | None, name: str, service: str, start_ms: float, length_ms: float) -> int:
        number = len(spans)
        start = now + int(start_ms * MS)
        parent_id = "" if parent is None else spans[parent].span_id
        spans.append(
            Made(trace_id, f"{number + 1:016x}", parent_id, service, name, INTERNAL, start, start + int(length_ms * MS))
        )
        return number

    root = add(None, "GET /checkout", "gateway", 0, 1_000)
    spans[root].kind = SERVER
    spans[root].attributes = {"http.route": "/checkout", "hostile": HOSTILE, "payload": "long " * 20_000}
    parent = root
    for level in range(1, ODD_LEVELS):
        parent = add(parent, f"level {level}", _SERVICES[level % 8], 5 + level, 900 - 15 * level)
    for number in range(ODD_SPANS - ODD_LEVELS - 7):
        started = 50 + dice.random() * 800
        child = add(root, f"query {number % 12}", _SERVICES[number % 8], started, 5 + dice.random() * 90)
        spans[child].attributes = {"db.statement": f"SELECT {number}", "row": number}
        if number % 40 == 3:
            spans[child].error = "the connection was reset"
            spans[child].events = [
                (
                    spans[child].start + MS,
                    "exception",
                    {
                        "exception.type": "ConnectionError",
                        "exception.message": f"reset by {HOSTILE}",
                        "exception.stacktrace": 'Traceback (most recent call last):\n  File "shop.py", line 3, in pay\n    send()',
                    },
                )
            ]
    early = add(root, "starts before its parent", "stock", -40, 100)
    late = add(root, "ends after its parent", "mail", 900, 400)
    spans[late].links = [("ab" * 16, "cd" * 8), (trace_id, spans[early].span_id)]
    spans[late].kind = CLIENT
    for place in range(2):
        orphan = add(None, "orphan", "ledger", 200 + place, 40)
        spans[orphan].parent_id = "ee" * 8
    first = add(None, "in a cycle", "images", 300, 50)
    second = add(first, "in the same cycle", "images", 310, 20)
    spans[first].parent_id = spans[second].span_id
    add(root, HOSTILE, f"service {HOSTILE}", 400, 30)
    assert len(spans) == ODD_SPANS
    return spans


def large_trace(count: int, trace_id: bytes, start_ns: int, seed: int = 3) -> Iterator[bytes]:
    """Yield OTLP requests, in protobuf, with all spans of a trace: bushy, up to 40 levels, a hundredth of them with errors."""
    dice = random.Random(seed)
    length = count * 20
    # The spans that are open, as (number, end) in µs from the start of the trace.
    open_spans = [(0, length)]
    request, groups = _request()
    _add(groups[0], trace_id, 0, None, start_ns, 0, length, "run the pipeline", error=False)
    for number in range(1, count):
        start = number * length // count
        while len(open_spans) > 1 and (open_spans[-1][1] <= start or dice.random() < 0.45 or len(open_spans) > 40):
            open_spans.pop()
        parent, parent_end = open_spans[-1]
        most = min(parent_end - start, length // 8)
        span_length = max(1, int(most * (0.3 + 0.65 * dice.random())))
        service = (len(open_spans) * 3 + number % 3) % 8
        name = f"{('read', 'write', 'call', 'parse')[number % 4]} {number % 97}"
        _add(groups[service], trace_id, number, parent, start_ns, start, span_length, name, number % 100 == 7)
        open_spans.append((number, start + span_length))
        if number % _BODY_SPANS == 0:
            yield request.SerializeToString()
            request, groups = _request()
    yield request.SerializeToString()


def _request() -> tuple[ExportTraceServiceRequest, list[object]]:
    request = ExportTraceServiceRequest()
    groups: list[object] = []
    for service in _SERVICES:
        resource = request.resource_spans.add()
        pair = resource.resource.attributes.add()
        pair.key, pair.value.string_value = "service.name", service
        groups.append(resource.scope_spans.add().spans)
    return request, groups


def _add(
    group: object,
    trace_id: bytes,
    number: int,
    parent: int | None,
    origin: int,
    start: int,
    length: int,
    name: str,
    error: bool,
) -> None:
    span = group.add()  # type: ignore[attr-defined]
    span.trace_id = trace_id
    span.span_id = (number + 1).to_bytes(8, "big")
    if parent is not None:
        span.parent_span_id = (parent + 1).to_bytes(8, "big")
    span.name, span.kind = name, 1
    span.start_time_unix_nano = origin + start * 1_000
    span.end_time_unix_nano = origin + (start + length) * 1_000
    pair = span.attributes.add()
    pair.key, pair.value.int_value = "item", number
    if error:
        span.status.code, span.status.message = 2, "it failed"
