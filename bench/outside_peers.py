"""Peers that need an environment of their own (requirements/peers.txt): DuckLake and ClickHouse, embedded as chdb.

Run by `bench/outside.py` with that environment's Python; prints one JSON object.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

ROWS_PER_COMMIT, SPANS_PER_INSERT = 10, 10_000


def ducklake(folder: Path, commits: int) -> dict[str, float]:
    """Commits of ten rows each, with data inlining, and then a query over all of them."""
    import duckdb

    spec = importlib.util.find_spec("duckdb_extension_ducklake")
    assert spec is not None
    assert spec.origin is not None
    [extension] = Path(spec.origin).parent.glob("extensions/*/ducklake.duckdb_extension")
    connection: Any = duckdb.connect()
    connection.execute(f"LOAD '{extension}'")
    connection.execute(
        f"ATTACH 'ducklake:{folder / 'catalog.ducklake'}' AS lake (DATA_PATH '{folder / 'data'}', DATA_INLINING_ROW_LIMIT 100)"
    )
    connection.execute("CREATE TABLE lake.events (id BIGINT, amount DOUBLE, note VARCHAR)")
    started = time.perf_counter()
    for number in range(commits):
        rows = ", ".join(f"({number * 10 + row}, {row / 7}, 'note {row}')" for row in range(ROWS_PER_COMMIT))
        connection.execute(f"INSERT INTO lake.events VALUES {rows}")
    taken = time.perf_counter() - started
    started = time.perf_counter()
    found = connection.execute("SELECT count(*), sum(amount), max(note) FROM lake.events").fetchall()
    query_ms = (time.perf_counter() - started) * 1000
    assert found[0][0] == commits * ROWS_PER_COMMIT
    return {"commits_per_s": commits / taken, "query_ms": query_ms}


_SPANS = """
CREATE TABLE spans (
  Timestamp DateTime64(9) CODEC(Delta, ZSTD(1)), TraceId String CODEC(ZSTD(1)), SpanId String CODEC(ZSTD(1)),
  ParentSpanId String CODEC(ZSTD(1)), SpanName LowCardinality(String) CODEC(ZSTD(1)), SpanKind LowCardinality(String) CODEC(ZSTD(1)),
  ServiceName LowCardinality(String) CODEC(ZSTD(1)), ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
  SpanAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)), Duration UInt64 CODEC(ZSTD(1)),
  StatusCode LowCardinality(String) CODEC(ZSTD(1)),
  INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1
) ENGINE = MergeTree PARTITION BY toDate(Timestamp) ORDER BY (ServiceName, SpanName, toDateTime(Timestamp))
"""


def clickhouse(folder: Path, spans: int) -> dict[str, float]:
    """Spans in the columns of the OpenTelemetry exporter, inserted 10,000 at a time without a durable acknowledgement."""
    from chdb import session

    clickhouse = session.Session(str(folder / "clickhouse"))
    clickhouse.query(_SPANS)
    before = _cpu_s()
    for first in range(0, spans, SPANS_PER_INSERT):
        clickhouse.query(_insert(first))
    insert_us = (_cpu_s() - before) / spans * 1e6
    before = _cpu_s()
    clickhouse.query("OPTIMIZE TABLE spans FINAL")
    merge_us = (_cpu_s() - before) / spans * 1e6
    size = str(clickhouse.query("SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND table = 'spans'", "CSV"))
    wanted = str(clickhouse.query("SELECT any(TraceId) FROM spans", "CSV")).strip().strip('"')
    times = []
    for _ in range(20):
        started = time.perf_counter()
        clickhouse.query(f"SELECT * FROM spans WHERE TraceId = '{wanted}' FORMAT Arrow")
        times.append(time.perf_counter() - started)
    clickhouse.close()
    return {
        "insert_us": insert_us,
        "merge_us": merge_us,
        "bytes_per_span": float(size) / spans,
        "trace_ms": sorted(times)[len(times) // 2] * 1000,
    }


def _insert(first: int) -> str:
    # Five spans a trace, five attributes, as the load of sustained.py. The values are made by ClickHouse itself, which costs
    # less than reading them from a client: the figures are lower bounds.
    attributes = ", ".join(
        f"'attribute.{number}', concat('value ', toString(rand({number}) % 50))" for number in range(5)
    )
    return (
        "INSERT INTO spans SELECT now64(9), lower(hex(sipHash128(intDiv(number, 5)))), lower(hex(sipHash64(number))),"
        " if(number % 5 = 0, '', lower(hex(sipHash64(number - number % 5)))), concat('operation-', toString(rand(7) % 10)),"
        " if(number % 5 = 0, 'Server', 'Client'), concat('service-', toString(number % 10)),"
        " map('service.name', concat('service-', toString(number % 10))),"
        f" map({attributes}), rand(8) % 500000000, if(rand(9) % 50 = 0, 'Error', 'Unset')"
        f" FROM numbers({first}, {SPANS_PER_INSERT})"
    )


def _cpu_s() -> float:
    spent = os.times()
    return spent.user + spent.system


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=1_000)
    parser.add_argument("--spans", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        print(
            json.dumps(
                {"ducklake": ducklake(Path(name), given.commits), "clickhouse": clickhouse(Path(name), given.spans)}
            )
        )
