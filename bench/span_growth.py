"""How reads of spans grow with their number: one, ten and a hundred million, a million a day.

At each power of ten another process opens the warehouse and reads: a trace by its id, and the newest 50 of a service, with an
attribute, with errors, and above a duration. `make bench-growth`; a hundred million spans take hours and 10 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import otlp
from span_days import add_days, copied_id
from stopwatch import Line, Results, quantile, timed

from crannog.embedded import EmbeddedLake
from crannog.settings import load_settings

_AIMS = {"a trace by its id": "≤ 1.5x of 1M", "open the table": "≤ 2,000 ms at 100M"}
_SEARCHES: dict[str, dict[str, Any]] = {
    "newest 50 of a service": {"service": "service-3"},
    "newest 50 with an attribute": {"attributes": {"attribute.0": "value 7"}},
    "newest 50 with errors": {"has_errors": True},
    "newest 50 above a duration": {"min_duration_ms": 400},
}


def grow(results: Results, folder: Path, spans: int, a_day: int) -> None:
    """Fill a warehouse day by day, and measure it at each power of ten."""
    settings = load_settings(
        otlp_http_port=0, otlp_grpc_port=0, staged_rows_limit=50_000_000, staged_bytes_limit=16 * 1024**3, audit=False
    )
    size, have = a_day, 0
    while size <= spans:
        with EmbeddedLake(str(folder), settings=settings) as lake:
            if not have:
                for first in range(0, a_day, 10_000):
                    lake.traces.write_otlp(otlp._request(10_000, first, 3))
                lake.table(otlp._SPANS).fold()
            else:
                add_days(lake, otlp._SPANS, size // a_day - 1, first=have // a_day)
            lake.traces.derive()
            stored = lake.table(otlp._SPANS).describe()
        have = size
        where = f"{size:,} spans"
        results.add(where, Line("on disk", stored["bytes"] / size, "bytes/span"))
        _read(results, where, folder, size, a_day)
        size *= 10


def _read(results: Results, where: str, folder: Path, spans: int, a_day: int) -> None:
    command = [sys.executable, __file__, "--read", str(folder), "--spans", str(spans), "--a-day", str(a_day)]
    found = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()[-1])
    for name, value in found["ms"].items():
        results.add(where, Line(name, value, "ms", aim=_AIMS.get(name, "≤ 30 ms at 10M, ≤ 2x at 100M")))
    results.add(where, Line("memory of the reading process", found["mb"], "MB"))


def read(folder: Path, spans: int, a_day: int) -> dict[str, Any]:
    """Open the warehouse in this process and measure it."""
    began = time.perf_counter()
    with EmbeddedLake(str(folder)) as lake:
        lake.table(otlp._SPANS).describe()
        measured = {"open the table": (time.perf_counter() - began) * 1000}
        chance = random.Random(1)
        ids = [
            copied_id(otlp._trace_id(chance.randrange(a_day // otlp._PER_TRACE)), chance.randrange(spans // a_day))
            for _ in range(60)
        ]
        times = [timed(lambda of=of: lake.traces.get(of.hex())) * 1000 for of in ids]
        measured["the first trace by its id"] = times[0]
        measured["a trace by its id"] = quantile(times[10:], 0.5)
        for name, conditions in _SEARCHES.items():
            times = [timed(lambda c=conditions: lake.traces.search(limit=50, **c)) * 1000 for _ in range(11)]
            measured[name] = quantile(times[1:], 0.5)
        status = Path("/proc/self/status").read_text()
        resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return {"ms": measured, "mb": int(resident.split()[1]) / 1024}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=100_000_000)
    parser.add_argument("--a-day", type=int, default=1_000_000)
    parser.add_argument("--read", type=Path, help="measure a warehouse that is there; the bench calls itself so")
    given = parser.parse_args()
    if given.read:
        print(json.dumps(read(given.read, given.spans, given.a_day)))
    else:
        with tempfile.TemporaryDirectory(prefix="crannog-growth-") as name:
            grow(Results(), Path(name) / "warehouse", given.spans, given.a_day)
