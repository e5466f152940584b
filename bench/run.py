"""Measure Crannog and its peers side by side in one run, print ratios, write them to bench/RESULTS.md.

The machine is shared and noisy: trust ratios within a run, not absolute times.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import builds
import otlp
import outside
import over_http
import pages
import peers
import queries
import sustained
from data import ORDERS, SPANS, order_rows, orders, spans
from stopwatch import Line, Results, median_ms, timed, timed_threads

import crannog
from crannog.embedded import EmbeddedLake

HERE = Path(__file__).parent
Section = Callable[["Bench"], None]


class Bench:
    """What the sections share: a folder, a lake, Spark, the results."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.folder = folder
        self.quick = quick
        self.results = Results()
        self.lake = crannog.connect(
            str(folder / "warehouse"), staged_rows_limit=50_000_000, staged_bytes_limit=16 * 1024**3
        )
        assert isinstance(self.lake, EmbeddedLake)
        self.session: Any = self.lake.operations.warehouse.spark()
        self._next = 1_000_000_000

    def fresh(self, count: int) -> int:
        """Return the first of `count` order numbers that nobody used."""
        first, self._next = self._next, self._next + count
        return first


def appends(bench: Bench) -> None:
    """Acknowledged append of 1, 1,000 and 100,000 rows."""
    table = bench.lake.create_table("bench.b.appends", ORDERS)
    spark = peers.SparkDelta(bench.session, bench.folder / "spark")
    rust = peers.DeltaRs(bench.folder / "delta-rs")
    sqlite = peers.Sqlite(bench.folder / "sqlite.db")
    for count, repeats, slow_repeats in ((1, 200, 8), (1_000, 60, 6), (100_000, 5, 3)):
        given = [order_rows(count, first=bench.fresh(count)) for _ in range(repeats + 1)]
        ours = median_ms(_each(table.append, given), repeats)
        arrow = [orders(count, first=bench.fresh(count)) for _ in range(repeats + 1)]
        ours_arrow = median_ms(_each(table.append, arrow), repeats)
        others = {
            "Spark": median_ms(lambda rows=arrow[0]: spark.append(rows), slow_repeats, warm_up=2),
            "delta-rs": median_ms(lambda rows=arrow[0]: rust.append(rows), slow_repeats),
            "SQLite": median_ms(_each(sqlite.append, given), repeats),
        }
        aim = {1: "≥ 100x Spark, ≥ 8x delta-rs", 1_000: "faster than SQLite"}.get(count, "")
        bench.results.add(
            "Append, to the acknowledgement", Line(f"{count:,} rows as dicts", ours, peers=others, aim=aim)
        )
        bench.results.add("Append, to the acknowledgement", Line(f"{count:,} rows as Arrow", ours_arrow, peers=others))


def _each(work: Callable[[Any], object], given: list[Any]) -> Callable[[], object]:
    left = iter(given * 2)
    return lambda: work(next(left))


def threads(bench: Bench) -> None:
    """Sustained 1-row appends by 1, 4 and 16 threads."""
    table = bench.lake.create_table("bench.b.threads", ORDERS)
    sqlite = peers.Sqlite(bench.folder / "threads.db")
    lock = threading.Lock()
    seconds = 2.0 if bench.quick else 5.0

    def locked(rows: list[dict[str, Any]]) -> None:
        with lock:  # one connection, as SQLite's writers queue anyway
            sqlite.append(rows)

    for count in (1, 4, 16):
        ours = _rate(table.append, count, seconds)
        line = Line(
            f"{count} thread(s), 1 row a call",
            ours,
            "acks/s",
            {"SQLite": _rate(locked, count, seconds)},
            "≥ 2,000/s" if count == 16 else "",
            more_is_better=True,
        )
        bench.results.add("Sustained appends by group commit", line)


def _rate(append: Callable[[list[dict[str, Any]]], object], count: int, seconds: float) -> float:
    [row] = order_rows(1)
    done = [0] * count
    ends = time.perf_counter() + seconds

    def work(number: int) -> None:
        while time.perf_counter() < ends:
            append([{**row, "order_id": f"{number}-{done[number]}"}])
            done[number] += 1

    return sum(done) / timed_threads(work, count)


def upserts(bench: Bench) -> None:
    """Upsert of 1 and 1,000 rows into 1M: to the acknowledgement, and folded, against MERGE."""
    size = 200_000 if bench.quick else 1_000_000
    table = bench.lake.create_table("bench.b.upserts", ORDERS, key=["order_id"])
    everything = orders(size)
    table.append(everything)
    table.compact()
    spark = peers.SparkDelta(bench.session, bench.folder / "spark-merge")
    spark.append(everything)
    rust = peers.DeltaRs(bench.folder / "delta-rs-merge")
    rust.append(everything)
    table.upsert(orders(1))
    for count in (1, 1_000):
        step = size // count
        changed = everything.take(list(range(0, step * count, step)))
        given = changed.to_pylist()
        ours = median_ms(lambda rows=given: table.upsert(rows), 30)
        others = {
            "Spark MERGE": median_ms(lambda rows=changed: spark.merge(rows), 2),
            "delta-rs merge": median_ms(lambda rows=changed: rust.merge(rows), 3),
        }
        aim = "≥ 1,000x Spark" if count == 1_000 else ""
        where = f"Upsert into {size:,} rows"
        bench.results.add(where, Line(f"{count:,} rows, to the acknowledgement", ours, peers=others, aim=aim))
        table.fold()
        table.upsert(given)
        bench.results.add(
            where, Line(f"{count:,} rows, seen by a count in the same process", median_ms(table.count, 5, warm_up=0))
        )
        bench.results.add(where, Line(f"{count:,} rows, folded by Spark", timed(table.fold) * 1000, peers=others))


def visibility(bench: Bench) -> None:
    """From the acknowledgement to visible, in the writing process and in another connection."""
    table = bench.lake.create_table("bench.b.visible", ORDERS)
    with crannog.connect(str(bench.folder / "warehouse")) as other_lake:
        other = other_lake.table("bench.b.visible")
        here, there = [], []
        for number in range(50):
            table.append(order_rows(1, first=bench.fresh(1)))
            here.append(timed(lambda want=number + 1: _until(lambda: table.count() == want)))
            there.append(timed(lambda want=number + 1: _until(lambda: other.count() == want)))
    bench.results.add("From acknowledged to visible", Line("counted in the writing process", sorted(here)[25] * 1000))
    bench.results.add("From acknowledged to visible", Line("counted by another connection", sorted(there)[25] * 1000))


def _until(holds: Callable[[], bool]) -> None:
    while not holds():
        pass


def pipeline(bench: Bench) -> None:
    """Fold and compaction of spans, against Delta's own append and Z-order."""
    size = 200_000 if bench.quick else 1_000_000
    parts = 10
    table = bench.lake.create_table("bench.b.spans", SPANS, cluster_by=["start_time", "trace_id"])
    spark = peers.SparkDelta(bench.session, bench.folder / "spark-spans")
    made = [spans(size // parts, first=number * size // parts) for number in range(parts)]
    fold_s = append_s = 0.0
    for part in made:
        table.append(part)
        fold_s += timed(table.fold)
        append_s += timed(lambda rows=part: spark.append(rows))
    where = f"Pipeline on {size:,} spans"
    bench.results.add(
        where,
        Line(
            f"fold, {parts} times {size // parts:,}",
            size / fold_s,
            "rows/s",
            {"Spark append": size / append_s},
            more_is_better=True,
        ),
    )
    report: list[Any] = []
    ours = timed(lambda: report.append(table.compact()))
    theirs = timed(lambda: spark.optimize("start_time", "trace_id"))
    bench.results.add(where, Line("compact and cluster", ours, "s", {"Spark OPTIMIZE ZORDER": theirs}, "≤ 12 s for 1M"))
    bench.results.add(where, Line("bytes per span", report[0].bytes_after / size, "bytes"))


def growth(bench: Bench) -> None:
    """How each act grows with the table."""
    sizes = (100_000, 1_000_000) if bench.quick else (100_000, 1_000_000, 10_000_000)
    table = bench.lake.create_table("bench.b.growth", ORDERS, key=["order_id"])
    have = 0
    for size in sizes:
        while have < size:
            more = min(1_000_000, size - have)
            table.append(orders(more, first=have))
            have += more
            folded = table.fold()
        where = "As a keyed table grows"
        [row] = order_rows(1, first=size // 2)
        bench.results.add(
            where, Line(f"{size:,} rows: append acknowledged", median_ms(lambda r=row: table.append([r]), 50))
        )
        bench.results.add(where, Line(f"{size:,} rows: first count after an upsert", timed(table.count) * 1000))
        bench.results.add(where, Line(f"{size:,} rows: fold of 51 changes to one key", timed(table.fold) * 1000))
        bench.results.add(
            where, Line(f"{size:,} rows: last fold that grew it, {folded.staged_rows:,} rows", folded.seconds * 1000)
        )


def under_load(bench: Bench) -> None:
    """A server under steady load: spans for three minutes, rows and upserts for one each; CRANNOG_BENCH_MINUTES for longer."""
    minutes = float(os.environ.get("CRANNOG_BENCH_MINUTES", "0"))
    for what, usual in (("spans", 3.0), ("rows", 1.0), ("upserts", 1.0)):
        folder = bench.folder / f"sustained-{what}"
        folder.mkdir()
        sustained.sustained(bench.results, folder, 20 if bench.quick else 60 * (minutes or usual), what=what)
        shutil.rmtree(folder)


SECTIONS: dict[str, Section] = {
    "appends": appends,
    "threads": threads,
    "upserts": upserts,
    "visibility": visibility,
    "pipeline": pipeline,
    "growth": growth,
    "queries": queries.engines,
    "staged": queries.staged,
    "memory": queries.memory,
    "readers": queries.readers,
    "tpch": queries.tpc_h,
    "build_appends": builds.appends,
    "build_reads": builds.reads,
    "http": over_http.writes_and_reads,
    "pages": pages.pages,
    "traces": otlp.traces,
    "outside": outside.ducklake_and_clickhouse,
    "sustained": under_load,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", help=f"which of {', '.join(SECTIONS)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="smaller tables, fewer repeats; keeps no results")
    parser.add_argument("--keep", metavar="FILE", help="keep the results of these sections in a file of their own")
    arguments = parser.parse_args()
    unknown = set(arguments.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no such section: {', '.join(sorted(unknown))}")
    chosen = arguments.sections or list(SECTIONS)
    folder = Path(tempfile.mkdtemp(prefix="crannog-bench-"))
    try:
        bench = Bench(folder, quick=arguments.quick)
        for name in chosen:
            print(f"\n{SECTIONS[name].__doc__}", flush=True)
            SECTIONS[name](bench)
        bench.lake.close()
        whole = HERE / "RESULTS.md" if not arguments.quick and chosen == list(SECTIONS) else None
        for file in (Path(arguments.keep) if arguments.keep else None, whole):
            if file is not None:
                file.write_text(_report(bench.results))
                print(f"\nkept in {file}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _report(results: Results) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return (
        "# Results of the last benchmark run\n\n"
        f"`make bench` on {dt.date.today():%Y-%m-%d}: {os.cpu_count()} cores, {memory:.0f} GiB, Python"
        f" {platform.python_version()}, load average {os.getloadavg()[0]:.1f} at the end. Crannog and the peers ran in one"
        " process on the same disk. The machine is shared and noisy: trust the ratios, not the absolute times. Crannog"
        " and SQLite sync writes before they acknowledge them; Spark and delta-rs do not.\n" + results.markdown()
    )


if __name__ == "__main__":
    main()
