"""The steps of the demo that query, or use a server: SQL on three engines, the build log, a client, and spans over OTLP."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx

import crannog
from crannog.builds import (
    BuildEvent,
    BuildRequestEvent,
    BuildRequestStatus,
    JobEvent,
    JobStatus,
    PartitionEvent,
    PartitionStatus,
)
from crannog.cli.output import counted
from crannog.cli.traces import show_trace
from crannog.server.http_server import HttpServer
from crannog.tour.shared import ORDERS, READINGS, Notes, Tour, order, took

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
_QUESTION = f"SELECT customer, count(*) AS orders, sum(amount) AS total FROM {ORDERS} GROUP BY customer ORDER BY total DESC, customer LIMIT 5"
_BUILDS = 20


def served(tour: Tour, note: Notes) -> None:
    """Write and query through a server, as from another machine."""
    with _server(tour) as server, crannog.connect(server.url) as far:
        table, before = far.table(ORDERS), tour.orders.count()
        p50 = statistics.median(took(lambda: table.upsert([order(10)])) for _ in range(30))
        note.figure("http_upsert_p50_ms", p50, "1 row over HTTP", f"{p50:.1f} ms until acknowledged (median of 30)")

        def produce() -> None:
            with far.producer(ORDERS) as producer:
                for number in range(_INSERTS):
                    producer.insert(order(900_000 + number))

        rate = _INSERTS / took(produce) * 1000
        note.figure(
            "producer_rows_per_s",
            round(rate),
            "a producer",
            f"{rate:,.0f} rows per second, in batches, each stored once",
        )
        question = f"SELECT count(*) AS n, sum(quantity) AS items FROM {ORDERS}"
        note.check(
            "the client gets the same result as this process",
            far.sql(question).rows() == tour.lake.sql(question).rows(),
        )
        note.check(f"all {_INSERTS:,} rows are stored, once", tour.orders.count() == before + _INSERTS)


def traces(tour: Tour, note: Notes) -> None:
    """Receive spans over OTLP, search them, derive tables with Spark, and erase a trace."""
    now, total = time.time_ns(), _REQUESTS * _TRACES
    _send_spans(tour, note, now)
    found = _search(tour, note)
    store = tour.lake.traces

    def charged() -> tuple[int, int]:
        [series] = store.metrics(service="pay", operation="charge", step="1d", start=now - 10**12)[:1]
        return series.count, series.errors

    fresh = charged()
    report = store.derive()
    note.figure(
        "derive_s",
        report.seconds,
        "Spark",
        f"folded the spans and derived summaries, metrics, edges and keys in {report.seconds:.1f} s",
    )
    note.check("metrics are the same before and after", fresh == charged() == (total, total // 10))
    edges = {(edge.parent, edge.child): edge.calls for edge in store.dependencies()}
    note.check(
        "the calls between services are known: shop → stock, shop → pay",
        edges == {("shop", "stock"): total, ("shop", "pay"): total},
    )
    receipt = store.erase([found], actor="demo", reason="requested")
    note.check(
        "the trace is erased, and the receipt proves it",
        receipt.rows_erased >= len(_TREE) and not any(place.after for place in receipt.places),
    )


def _send_spans(tour: Tour, note: Notes, now: int) -> None:
    bodies = [json.dumps(_request(now, number)).encode() for number in range(_REQUESTS)]
    answers: list[int] = []
    with _server(tour) as server, httpx.Client(headers={"Content-Type": "application/json"}, timeout=60) as client:
        assert server.receivers is not None
        address = f"http://127.0.0.1:{server.receivers.http_port}/v1/traces"
        ms = took(
            lambda: answers.extend(client.post(address, content=body).status_code for body in [*bodies, bodies[0]])
        )
    spans = _REQUESTS * _TRACES * len(_TREE)
    note.figure(
        "spans_per_s",
        round(spans / ms * 1000),
        "OTLP over HTTP",
        f"{counted(spans, 'span')} in {ms:.0f} ms, each request durable when acknowledged; one was sent twice",
    )
    note.check("every request was acknowledged", set(answers) == {200})


def _search(tour: Tour, note: Notes) -> str:
    """Search for traces with an error, show one, and return its id."""
    store = tour.lake.traces
    page = store.search(service="pay", has_errors=True, limit=5, count=True)
    ms = took(lambda: store.search(service="pay", has_errors=True, limit=5))
    note.figure("search_ms", ms, "search", f"{page.total} traces with an error in pay, the newest five in {ms:.0f} ms")
    note.check(
        "one in ten has the error, and the repeated request is counted once", page.total == _REQUESTS * _TRACES // 10
    )
    view = store.show(page.traces[0].trace_id)
    note.exhibit(lambda: show_trace(view, details=False))
    return page.traces[0].trace_id


@contextmanager
def _server(tour: Tour) -> Iterator[HttpServer]:
    server = HttpServer(tour.lake, "127.0.0.1", 0)
    server.start()
    try:
        yield server
    finally:
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


def sql(tour: Tour, note: Notes) -> None:
    """Run one query on three engines."""
    lake = tour.lake
    lake.cache.pin(ORDERS)
    answers = {}
    for engine in ("spark", "local", "hot"):
        answers[engine] = lake.sql(_QUESTION, engine=engine).to_arrow()
        p50 = statistics.median(took(partial(lake.sql, _QUESTION, engine=engine)) for _ in range(5))
        note.figure(f"sql_{engine}_p50_ms", p50, engine, f"{p50:.1f} ms (median of 5)")
    same = answers["spark"].equals(answers["local"]) and answers["spark"].equals(answers["hot"])
    note.check("the three results are equal, including names and types", same)
    chosen = lake.sql(f"SELECT count(*) AS n FROM {READINGS}")
    note.fact("automatic choice", f"a count of {READINGS} ran on {chosen.engine}: {chosen.why}")
    known = answers["hot"].to_pylist()[0]["customer"]
    key = lake.sql(f"SELECT min(order_id) AS k FROM {ORDERS} WHERE customer = '{known}'").rows()[0]["k"]
    changed_rows = f"SELECT count(*) AS n FROM {ORDERS} WHERE order_id = '{key}' AND quantity = 77"
    before = lake.sql(changed_rows, engine="hot").rows()
    [row] = lake.sql(f"SELECT * FROM {ORDERS} WHERE order_id = '{key}'").rows()
    tour.orders.upsert([{name: value for name, value in row.items() if not name.startswith("_")} | {"quantity": 77}])
    after = lake.sql(changed_rows, engine="hot").rows()
    note.check("a table in memory shows an upsert at the next read", (before, after) == ([{"n": 0}], [{"n": 1}]))


def builds(tour: Tour, note: Notes) -> None:
    """Write the events of some builds to the same warehouse."""
    with tour.lake.builds as log:
        times = []
        for number in range(_BUILDS):
            build, ref, run = f"build-{number}", f"sales/2026-01-{number + 1:02}", f"run-{number}"
            good = number % 5 != 4
            payloads = (
                BuildRequestEvent(BuildRequestStatus.RECEIVED, (ref,)),
                JobEvent(run, "//sales:load", (ref,), JobStatus.RUNNING),
                JobEvent(run, "//sales:load", (ref,), JobStatus.COMPLETED if good else JobStatus.FAILED),
                PartitionEvent(ref, PartitionStatus.AVAILABLE if good else PartitionStatus.FAILED, "", run),
                BuildRequestEvent(BuildRequestStatus.COMPLETED if good else BuildRequestStatus.FAILED, (ref,)),
            )
            times += [took(partial(log.append_event, BuildEvent.new(build, payload))) for payload in payloads]
        p50 = statistics.median(times)
        note.figure("build_event_p50_ms", p50, "one event", f"{p50:.1f} ms until acknowledged")
        status = log.get_latest_partition_status("sales/2026-01-05")
        failed = log.list_build_requests(status=BuildRequestStatus.FAILED)
        read_ms = took(lambda: log.list_build_requests(limit=50))
        note.figure("build_list_ms", read_ms, "list of builds", f"{read_ms:.2f} ms")
        note.check(
            "the log shows which builds failed",
            status is not None and status.status is PartitionStatus.FAILED and failed.total == _BUILDS // 5,
        )
    counted = tour.lake.sql("SELECT count(*) AS n FROM crannog.builds.build_events").rows()
    note.check("the same events can be queried as a table", counted == [{"n": _BUILDS * 5}])
