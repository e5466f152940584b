"""Traces: spans in over gRPC, HTTP and in the process, folded and compacted, then traces by id and searches against SQLite and DuckDB."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from queries import live_files
from span_days import add_days, copied_id
from stopwatch import Line, median_ms, quantile, timed

from crannog.embedded import EmbeddedLake
from crannog.settings import load_settings

if TYPE_CHECKING:
    from run import Bench

_SERVICES = [f"service-{number}" for number in range(10)]
_NAMES = [f"operation-{number}" for number in range(10)]
_PER_TRACE, _HOURS, _DAYS = 5, 24, 10
_START_NS = 1_760_000_000 * 10**9 // (86_400 * 10**9) * 86_400 * 10**9
_SPANS = "crannog.traces.spans"


def traces(bench: Bench) -> None:
    """Traces: 1M spans of 10 services, 5 a trace, 3 attributes each, in 24 hours; then 10 attributes; then ten days of them."""
    total = 100_000 if bench.quick else 1_000_000
    settings = load_settings(
        otlp_http_port=0, otlp_grpc_port=0, staged_rows_limit=50_000_000, staged_bytes_limit=16 * 1024**3, audit=False
    )
    with EmbeddedLake(str(bench.folder / "traces"), settings=settings) as lake:
        lake.traces.write_otlp(_request(100, 10 * total, 3))  # loads what it needs
        lake.table(_SPANS).fold()
        _arrive(bench, lake, total)
        table = lake.table(_SPANS)
        rows = table.count()
        folded = table.fold()
        compacted = table.compact()
        where = "Traces: storage by Spark"
        bench.results.add(where, Line("fold", folded.staged_rows / folded.seconds, "spans/s", more_is_better=True))
        if not compacted.skipped:
            bench.results.add(where, Line("compaction", rows / compacted.seconds, "spans/s", more_is_better=True))
        bench.results.add(
            where, Line("on disk, 3 and 10 attributes mixed", table.describe()["bytes"] / rows, "bytes/span")
        )
        first_day = _in_process(total) // _PER_TRACE
        with _sqlite(lake, bench.folder / "spans.sqlite") as peer:
            _ask(bench, lake, [(trace, 0) for trace in range(first_day)], peer)
        if not bench.quick:
            add_days(lake, _SPANS, _DAYS - 1)
            _ask(bench, lake, [(trace, day) for trace in range(first_day) for day in range(_DAYS)], None)


def _arrive(bench: Bench, lake: EmbeddedLake, total: int) -> None:
    from crannog.server.http_server import HttpServer

    where = "Traces: spans to the acknowledgement"
    share = total // 10
    # In the process, in requests of 10,000; most of the spans come this way.
    bodies = [_request(10_000, number * 10_000, 3) for number in range(_in_process(total) // 10_000)]
    alone, together = bodies[::2], bodies[1::2]
    spent = timed(lambda: [lake.traces.write_otlp(body) for body in alone])
    spent_together = timed(lambda: _at_once(together, [lake.traces.write_otlp] * 2))
    folded = lake.table(_SPANS).fold()
    bench.results.add(
        "Traces: storage by Spark",
        Line("on disk, 3 attributes", folded.bytes_written / folded.staged_rows, "bytes/span", aim="≤ 60"),
    )
    for what, some, took in (("", alone, spent), (", 2 callers", together, spent_together)):
        line = Line(
            f"in the process, 10,000 a request, 3 attributes{what}",
            len(some) * 10_000 / took,
            "spans/s",
            aim="≥ 200,000/s",
            more_is_better=True,
        )
        bench.results.add(where, line)
    first = total
    for attributes in (3, 10):
        bodies = [_request(1_000, first + number * 1_000, attributes) for number in range(share // 1_000)]
        first += share
        spent = timed(lambda bodies=bodies: [lake.traces.write_otlp(body) for body in bodies])
        bench.results.add(
            where,
            Line(
                f"in the process, 1,000 a request, {attributes} attributes",
                share / spent,
                "spans/s",
                more_is_better=True,
            ),
        )
    for attributes in (3, 10):
        _stages(bench, attributes)
    server = HttpServer(lake, "127.0.0.1", 0)
    server.start()
    assert server.receivers is not None
    url, address = f"http://127.0.0.1:{server.receivers.http_port}/v1/traces", f"127.0.0.1:{server.receivers.grpc_port}"
    for way, aim, senders in (
        ("HTTP", "≥ 60,000/s", [_by_http(url) for _ in range(4)]),
        ("gRPC", "", [_by_grpc(address) for _ in range(4)]),
    ):
        for attributes in (3, 10):
            bodies = [_request(1_000, first + number * 1_000, attributes) for number in range(share // 1_000)]
            first += share
            spent = timed(lambda bodies=bodies, senders=senders: _at_once(bodies, senders))
            bench.results.add(
                where,
                Line(
                    f"over {way}, 1,000 a request, {attributes} attributes, 4 clients",
                    share / spent,
                    "spans/s",
                    aim=aim if attributes == 3 else "",
                    more_is_better=True,
                ),
            )
    server.stop_accepting()
    server.join(10)
    server.close()


def _stages(bench: Bench, attributes: int) -> None:
    """Processor time of a span at each stage on its way in."""
    from crannog.protocol.staged_files import Change, build_segment, encode, staged_schema
    from crannog.traces.ingest.decode import PROTOBUF, parse_protobuf, read_request, resource_spans

    body = _request(10_000, 0, attributes)
    request = parse_protobuf(body)
    rows = read_request(body, content_type=PROTOBUF, encoding=None, limit=len(body)).rows
    columns = {field.name: field.type for field in staged_schema(rows.schema)}
    segment = build_segment([Change("bench", "append", rows, int(rows.nbytes), at_us=1)], 1, "bench", columns)
    checked, read, flat, written = (
        _processor_us(act)
        for act in (
            lambda: parse_protobuf(body),
            lambda: resource_spans(request),
            lambda: read_request(body, content_type=PROTOBUF, encoding=None, limit=len(body)),
            lambda: encode(segment, table_id="bench", schema_version="0"),
        )
    )
    where = "Traces: processor time to ingest a span"
    for stage, spent in (
        ("checked by protobuf", checked),
        ("read by ptars", read),
        ("made flat", flat - checked - read),
        ("written as Parquet", written),
    ):
        bench.results.add(where, Line(f"{stage}, {attributes} attributes", spent, "µs"))


def _processor_us(act: Callable[[], object]) -> float:
    act()
    started = time.process_time()
    for _ in range(10):
        act()
    return (time.process_time() - started) * 1e6 / 10 / 10_000


def _in_process(total: int) -> int:
    """Return how many spans come in large requests, inside the process."""
    return total - 6 * (total // 10)


def _request(count: int, first: int, attributes: int) -> bytes:
    """Return a request with spans `first` to `first + count`, five a trace, spread over a day."""
    chance = random.Random(first)
    request = ExportTraceServiceRequest()
    by_service = {}
    for name in _SERVICES:
        resource = request.resource_spans.add()
        resource.resource.attributes.add(key="service.name").value.string_value = name
        by_service[name] = resource.scope_spans.add(scope={"name": "bench"})
    for number in range(first, first + count):
        trace, place = divmod(number, _PER_TRACE)
        start = _START_NS + (trace * 7919 % (_HOURS * 3600)) * 10**9 + place * 10**6
        span = by_service[_SERVICES[(trace + place) % 10]].spans.add(
            trace_id=_trace_id(trace),
            span_id=(number + 1).to_bytes(8),
            parent_span_id=b"" if place == 0 else (number - place + 1).to_bytes(8),
            name=_NAMES[chance.randrange(10)],
            kind=Span.SPAN_KIND_SERVER if place == 0 else Span.SPAN_KIND_CLIENT,
            start_time_unix_nano=start,
            end_time_unix_nano=start + chance.randrange(10**6, 5 * 10**8),
        )
        if chance.random() < 0.02:
            span.status.code = 2
        for attribute in range(attributes):
            pair = span.attributes.add(key=f"attribute.{attribute}")
            if attribute % 3 == 2:
                pair.value.int_value = chance.randrange(1000)
            else:
                pair.value.string_value = f"value {chance.randrange(50)}"
    return bytes(request.SerializeToString())


def _trace_id(trace: int) -> bytes:
    return ((trace + 1) * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8) + (trace + 1).to_bytes(8)


def _by_http(url: str) -> Callable[[bytes], object]:
    client = httpx.Client(headers={"Content-Type": "application/x-protobuf"}, timeout=120)
    return lambda body: client.post(url, content=body).raise_for_status()


def _by_grpc(address: str) -> Callable[[bytes], object]:
    import grpc

    export = grpc.insecure_channel(address).unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
    return lambda body: export(body, timeout=120)


def _at_once(bodies: Sequence[bytes], senders: Sequence[Callable[[bytes], object]]) -> None:
    def work(place: int) -> None:
        for body in bodies[place :: len(senders)]:
            senders[place](body)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(senders))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _ask(bench: Bench, lake: EmbeddedLake, traces: Sequence[tuple[int, int]], peer: sqlite3.Connection | None) -> None:
    """Ask for traces, each by its number and its day, and search; `peer` holds the same spans."""
    where = f"Traces: queries on {lake.table(_SPANS).count():,} folded spans"
    files = duckdb.connect()
    files.execute(f"CREATE VIEW spans AS SELECT * FROM read_parquet({live_files(lake, _SPANS)!r})")
    ids = [
        copied_id(_trace_id(trace), day) for trace, day in random.Random(1).sample(traces, 20 if bench.quick else 100)
    ]
    ours = [timed(lambda of=of: lake.traces.get(of.hex())) * 1000 for of in ids]
    others: dict[str, sqlite3.Connection | duckdb.DuckDBPyConnection] = (
        {"SQLite, indexed": peer} if peer is not None else {}
    )
    others["DuckDB on files"] = files
    spent = {
        name: [
            timed(
                lambda of=of, of_peer=of_peer: of_peer.execute(
                    "SELECT * FROM spans WHERE trace_id = ?", [of]
                ).fetchall()
            )
            * 1000
            for of in ids
        ]
        for name, of_peer in others.items()
    }
    for name, share, aim in (("p50", 0.5, "≤ 10 ms at 1M, ≤ 1.5x of it at 10M"), ("p95", 0.95, "≤ 20 ms at 1M")):
        peers = {other: quantile(times, share) for other, times in spent.items()}
        bench.results.add(where, Line(f"a trace by its id, {name}", quantile(ours, share), peers=peers, aim=aim))
    middle = _START_NS + 12 * 3600 * 10**9
    for what, conditions, sql in (
        ("newest 50 of a service", {"service": "service-3"}, "service_name = 'service-3'"),
        ("newest 50 with an attribute", {"attributes": {"attribute.0": "value 7"}}, None),
        ("newest 50 with errors, an hour", {"has_errors": True, "start": middle, "end": middle + 3600 * 10**9}, None),
    ):
        times = [
            timed(lambda conditions=conditions: lake.traces.search(limit=50, **conditions)) * 1000
            for _ in range(5 if bench.quick else 15)
        ]
        peers = {}
        if sql is not None:
            text = f"SELECT trace_id, max(start_ns) AS newest FROM spans WHERE {sql} GROUP BY trace_id ORDER BY newest DESC LIMIT 50"
            peers = {
                name: median_ms(lambda of_peer=of_peer, text=text: of_peer.execute(text).fetchall(), 5)
                for name, of_peer in others.items()
            }
        for name, share in (("p50", 0.5), ("p95", 0.95)):
            bench.results.add(
                where, Line(f"{what}, {name}", quantile(times, share), peers=peers if share == 0.5 else {})
            )
    _ask_as_jaeger(bench, lake, where)


def _ask_as_jaeger(bench: Bench, lake: EmbeddedLake, where: str) -> None:
    """Measure the trace list of Jaeger's pages, with their default and maximum number of traces; the peer reads whole traces."""
    for count in (20, 1_500):
        found = lake.traces.search(limit=count).traces
        ids = [one.trace_id for one in found]
        whole = median_ms(lambda ids=ids: [trace.error_count for trace in lake.trace_store.get_many(ids)], 5)
        ours = median_ms(lambda found=found: lake.trace_store.jaeger_summaries(found), 5)
        bench.results.add(
            where,
            Line(
                f"Jaeger's summaries of {len(found):,} traces",
                ours,
                peers={"whole traces": whole},
                aim="≤ 1/5 of whole traces",
            ),
        )


@contextmanager
def _sqlite(lake: EmbeddedLake, path: Path) -> Iterator[sqlite3.Connection]:
    """Hold the same spans in SQLite, with indexes by trace and by service and time."""
    rows = lake.sql(
        "SELECT trace_id, span_id, service_name, span_name, start_ns, duration_ns, status_code, search_blob FROM crannog.traces.spans",
        max_rows=5_000_000,
    ).to_arrow()
    with closing(sqlite3.connect(path)) as peer:
        peer.execute(
            "CREATE TABLE spans (trace_id BLOB, span_id BLOB, service_name TEXT, span_name TEXT, start_ns INT, duration_ns INT, status_code INT, search_blob TEXT)"
        )
        for batch in rows.to_batches(max_chunksize=50_000):
            peer.executemany(
                "INSERT INTO spans VALUES (?,?,?,?,?,?,?,?)",
                zip(*(column.to_pylist() for column in batch.columns), strict=True),
            )
        peer.execute("CREATE INDEX by_trace ON spans (trace_id)")
        peer.execute("CREATE INDEX by_service ON spans (service_name, start_ns)")
        peer.commit()
        yield peer
