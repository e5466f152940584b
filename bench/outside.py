"""Crannog beside DuckLake and ClickHouse, which run in an environment of their own (`outside_peers.py`)."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from stopwatch import Line, timed

if TYPE_CHECKING:
    from run import Bench

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv-peers" / "bin" / "python"
_ROWS = 10
_SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("note", pa.string())])


def ducklake_and_clickhouse(bench: Bench) -> None:
    """Many commits of ten rows beside DuckLake; a million spans beside ClickHouse."""
    if not PEERS.exists():
        print("  left out: `make bench` installs these peers", file=sys.stderr)
        return
    commits, spans = (100, 100_000) if bench.quick else (1_000, 1_000_000)
    theirs = _peers(commits, spans)
    table = bench.lake.create_table("bench.b.commits", _SCHEMA)
    given = [
        [{"id": number * _ROWS + row, "amount": row / 7, "note": f"note {row}"} for row in range(_ROWS)]
        for number in range(commits)
    ]
    started = time.perf_counter()
    for rows in given:
        table.append(rows)
    ours = commits / (time.perf_counter() - started)
    where = "Many commits of ten rows, durable (DuckLake: data inlining)"
    peers = {"DuckLake": theirs["ducklake"]["commits_per_s"]}
    bench.results.add(where, Line("commits", ours, "/s", peers=peers, more_is_better=True))
    query = "SELECT count(*), sum(amount), max(note) FROM bench.b.commits"
    first_ms = timed(lambda: bench.lake.sql(query).rows()) * 1000
    peers = {"DuckLake": theirs["ducklake"]["query_ms"]}
    bench.results.add(where, Line("a query over all of them, the first", first_ms, peers=peers))
    _spans(bench, theirs["clickhouse"], spans)


def _peers(commits: int, spans: int) -> Any:
    command = [str(PEERS), str(HERE / "outside_peers.py"), "--commits", str(commits), "--spans", str(spans)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(found.stdout.strip().splitlines()[-1])


def _spans(bench: Bench, clickhouse: dict[str, float], spans: int) -> None:
    from sustained import SPANS, Template

    import crannog

    where = (
        "Spans beside ClickHouse (its own values, inserts of 10,000, not durable; ours: OTLP, 1,000 a request, durable)"
    )
    template = Template(1)
    with (
        tempfile.TemporaryDirectory(dir=bench.folder) as folder,
        crannog.connect(folder, staged_rows_limit=50_000_000, staged_bytes_limit=16 * 1024**3) as lake,
    ):
        before = time.process_time()
        for _ in range(spans // SPANS):
            lake.traces.write_otlp(template.fill())
        receive_us = (time.process_time() - before) / spans * 1e6
        report = lake.table("crannog.traces.spans").fold()
        trace_id = lake.traces.search(limit=1).traces[0].trace_id
        lake.traces.get(trace_id)
        trace_ms = statistics.median(timed(lambda: lake.traces.get(trace_id)) for _ in range(20)) * 1000
    add = bench.results.add
    add(
        where, Line("processor time to receive a span", receive_us, "µs", peers={"ClickHouse": clickhouse["insert_us"]})
    )
    size = report.bytes_written / spans
    add(where, Line("size of a span on disk", size, "bytes", peers={"ClickHouse": clickhouse["bytes_per_span"]}))
    add(where, Line("a trace by its id", trace_ms, peers={"ClickHouse": clickhouse["trace_ms"]}))
