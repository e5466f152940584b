"""The steps of the demo that use a server: a client, and spans over OTLP."""

from __future__ import annotations

import json
import statistics
import time
from typing import TYPE_CHECKING, Any

from crannog.cli.plain_output import counted
from crannog.tour.data import ORDERS, Tour, order, took

if TYPE_CHECKING:
    from crannog.embedded import EmbeddedLake
    from crannog.server.http_server import HttpServer
    from crannog.tour.notes import Notes

_INSERTS = 2_000
_REQUESTS, _TRACES = 20, 100
_TREE = (
    ("shop", "POST /checkout", 120),
    ("shop", "validate cart", 8),
    ("stock", "reserve", 30),
    ("pay", "charge", 60),
    ("pay", "bank", 45),
)
_PARENTS = (None, 0, 0, 0, 3)


def served(tour: Tour, note: Notes) -> None:
    """Write and query through a server, as from another machine."""
    import crannog

    server = _server(tour)
    try:
        with crannog.connect(server.url) as far:
            table, before = far.table(ORDERS), tour.orders.count()
            times = [took(lambda: table.upsert([order(10)])) for _ in range(30)]
            p50 = statistics.median(times)
            note.figure(
                "http_upsert_p50_ms",
                round(p50, 2),
                "1 row over HTTP",
                f"{p50:.1f} ms until acknowledged (median of 30)",
            )

            def produce() -> None:
                with far.producer(ORDERS) as producer:
                    for number in range(_INSERTS):
                        producer.insert(order(900_000 + number))

            ms = took(produce)
            note.figure(
                "producer_rows_per_s",
                round(_INSERTS / ms * 1000),
                "a producer",
                f"{_INSERTS / ms * 1000:,.0f} rows per second, in batches, each stored once",
            )
            question = f"SELECT count(*) AS n, sum(quantity) AS items FROM {ORDERS}"
            note.check(
                "the client gets the same result as this process",
                far.sql(question).rows() == tour.lake.sql(question).rows(),
            )
            note.check(f"all {_INSERTS:,} rows are stored, once", tour.orders.count() == before + _INSERTS)
    finally:
        _end(server)


def traces(tour: Tour, note: Notes) -> None:
    """Receive spans over OTLP, search them, derive tables with Spark, and erase a trace."""
    import httpx

    from crannog.cli.traces import show_trace

    now = time.time_ns()
    bodies = [json.dumps(_request(now, number)).encode() for number in range(_REQUESTS)]
    spans = _REQUESTS * _TRACES * len(_TREE)
    server = _server(tour)
    assert server.receivers is not None
    address = f"http://127.0.0.1:{server.receivers.http_port}/v1/traces"
    try:
        with httpx.Client(headers={"Content-Type": "application/json"}, timeout=60) as client:
            answers: list[int] = []
            ms = took(
                lambda: answers.extend(client.post(address, content=body).status_code for body in [*bodies, bodies[0]])
            )
        note.figure(
            "spans_per_s",
            round(spans / ms * 1000),
            "OTLP over HTTP",
            f"{counted(spans, 'span')} in {ms:.0f} ms, each request durable when acknowledged; one was sent twice",
        )
        note.check("every request was acknowledged", set(answers) == {200})
    finally:
        _end(server)
    store = _lake(tour).traces
    page = store.search(service="pay", has_errors=True, limit=5, count=True)
    search_ms = took(lambda: store.search(service="pay", has_errors=True, limit=5))
    note.figure(
        "search_ms",
        round(search_ms, 1),
        "search",
        f"{page.total} traces with an error in pay, the newest five in {search_ms:.0f} ms",
    )
    note.check(
        "one in ten has the error, and the repeated request is counted once", page.total == _REQUESTS * _TRACES // 10
    )
    found = page.traces[0].trace_id
    view = store.show(found)
    note.exhibit(lambda: show_trace(view, details=False))
    [fresh] = store.metrics(service="pay", operation="charge", step="1d", start=now - 10**12)[:1]
    report = store.derive()
    [derived] = store.metrics(service="pay", operation="charge", step="1d", start=now - 10**12)[:1]
    note.figure(
        "derive_s",
        round(report.seconds, 1),
        "Spark",
        f"folded the spans and derived summaries, metrics, edges and keys in {report.seconds:.1f} s",
    )
    note.check(
        "metrics are the same before and after",
        (fresh.count, fresh.errors)
        == (derived.count, derived.errors)
        == (_REQUESTS * _TRACES, _REQUESTS * _TRACES // 10),
    )
    edges = {(edge.parent, edge.child): edge.calls for edge in store.dependencies()}
    note.check(
        "the calls between services are known: shop → stock, shop → pay",
        edges == {("shop", "stock"): _REQUESTS * _TRACES, ("shop", "pay"): _REQUESTS * _TRACES},
    )
    receipt = store.erase([found], actor="demo", reason="requested")
    note.check(
        "the trace is erased, and the receipt proves it",
        receipt.rows_erased >= len(_TREE) and not any(place.after for place in receipt.places),
    )


def _lake(tour: Tour) -> EmbeddedLake:
    from crannog.embedded import EmbeddedLake

    assert isinstance(tour.lake, EmbeddedLake)
    return tour.lake


def _server(tour: Tour) -> HttpServer:
    from crannog.server.http_server import HttpServer

    server = HttpServer(_lake(tour), "127.0.0.1", 0)
    server.start()
    return server


def _end(server: HttpServer) -> None:
    server.stop_accepting()
    server.join(10)
    server.close()


def _request(now: int, number: int) -> dict[str, Any]:
    """Return a request with generated traces: one checkout each, every tenth with a declined card."""
    resources: dict[str, list[dict[str, Any]]] = {}
    for trace in range(_TRACES):
        start, failed = now + (number * _TRACES + trace) * 10**6, trace % 10 == 9
        trace_id = f"{number + 1:08x}{trace + 1:024x}"
        for place, ((service, name, ms), parent) in enumerate(zip(_TREE, _PARENTS, strict=True)):
            span: dict[str, Any] = {
                "traceId": trace_id,
                "spanId": f"{place + 1:016x}",
                "name": name,
                "kind": 2 if parent is None or _TREE[parent][0] != service else 1,
                "startTimeUnixNano": str(start + place * 2 * 10**6),
                "endTimeUnixNano": str(start + (place * 2 + ms) * 10**6),
                "attributes": [
                    {"key": "customer", "value": {"stringValue": f"customer {trace}"}},
                    {"key": "cart.items", "value": {"intValue": str(trace % 7 + 1)}},
                ],
            }
            if parent is not None:
                span["parentSpanId"] = f"{parent + 1:016x}"
            if failed and name == "charge":
                span["status"] = {"code": 2, "message": "card declined"}
            resources.setdefault(service, []).append(span)
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]},
                "scopeSpans": [{"scope": {"name": "demo"}, "spans": spans}],
            }
            for service, spans in resources.items()
        ]
    }
