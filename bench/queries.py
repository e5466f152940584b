"""The same statements on hot, local and Spark, and on DuckDB and Spark without us: over the same files, or natively."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
from staffing import KEYED_QUERIES, KEYS, QUERIES, SIZES, table
from stopwatch import Line, medians_ms, quantile, timed

import crannog
from crannog.names import TableName

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

import tpch

if TYPE_CHECKING:
    from run import Bench

_OTHER_BYTES_PER_ROW = 408e6 / 1.1e6
_HOT_AIM, _LOCAL_AIM, _KEYED_AIM = "≤ 1.2x native DuckDB", "≤ 1.3x DuckDB on files", "≤ 1.5x DuckDB on files"
HOT, NATIVE, FILES, SPARK = "hot", "DuckDB native", "DuckDB on files", "Spark on files"


class Peers:
    """The same rows without us: DuckDB with native tables, DuckDB over the files, Spark over the files."""

    def __init__(self, session: Any, files: Mapping[str, list[str]]) -> None:
        self._session = session
        self.files = files
        self.native = duckdb.connect()
        self.reading = duckdb.connect()
        for one in (self.native, self.reading):
            one.execute("SET TimeZone = 'UTC'")
        for name in files:
            self.native.execute(f"CREATE TABLE {name} AS SELECT * FROM {self.scan(name)}")
            self.reading.execute(f"CREATE VIEW {name} AS SELECT * FROM {self.scan(name)}")
            session.read.parquet(*files[name]).createOrReplaceTempView(name)

    def scan(self, name: str) -> str:
        return f"read_parquet({self.files[name]!r})"

    def works(self, text: str) -> dict[str, Callable[[], pa.Table]]:
        """Return the statement on each peer, by its name."""
        return {
            NATIVE: lambda: self.native.sql(text).to_arrow_table(),
            FILES: lambda: self.reading.sql(text).to_arrow_table(),
            SPARK: lambda: self._session.sql(text).toArrow(),
        }


class Staffing:
    """The seven tables in the lake, folded and pinned, and the peers on the same rows."""

    def __init__(self, bench: Bench) -> None:
        self.lake = bench.lake
        self.sizes = {name: size // 10 if bench.quick else size for name, size in SIZES.items()}
        rows = {name: table(name, size, self.sizes) for name, size in self.sizes.items()}
        for name, given in rows.items():
            made = self.lake.create_table(self.name(name), given.schema, key=KEYS.get(name))
            made.append(given)
            made.fold()
            self.lake.cache.pin(self.name(name))
        self.peers = Peers(bench.session, {name: live_files(self.lake, self.name(name)) for name in rows})
        self.peer_names = {name: name for name in rows}
        self.rows = rows

    @staticmethod
    def name(table: str) -> str:
        return f"bench.staff.{table}"

    def text(self, query: str) -> str:
        return query.format(**{name: self.name(name) for name in SIZES})

    def peer_text(self, query: str) -> str:
        return query.format(**self.peer_names)

    def ask(self, query: str, engine: str) -> Callable[[], Any]:
        text = self.text(query)
        return lambda: self.lake.sql(text, engine=engine)


@cache
def staffing(bench: Bench) -> Staffing:
    """Return the tables, made once in a run, whichever section needs them first."""
    return Staffing(bench)


def live_files(lake: crannog.Lake, name: str) -> list[str]:
    """Return where the Parquet files of a table's base are."""
    snapshot = lake.operations.tables.open(TableName.parse(name)).snapshot()
    return snapshot.local_paths(list(snapshot.base.files))


def engines(bench: Bench) -> None:
    """Five statements on 2.5M rows in seven tables: hot, local and Spark against DuckDB and Spark alone."""
    staff = staffing(bench)
    where = f"Queries on {sum(staff.sizes.values()):,} rows in seven tables"
    for what, query in QUERIES.items():
        peers = staff.peers.works(staff.peer_text(query))
        counts = {engine: len(staff.ask(query, engine)()) for engine in (HOT, "local", "spark")}
        counts |= {name: len(work()) for name, work in peers.items()}
        assert len(set(counts.values())) == 1, counts
        spark = medians_ms({"ours": staff.ask(query, "spark"), SPARK: peers.pop(SPARK)}, 3)
        fast = medians_ms(
            {HOT: staff.ask(query, HOT), "local": staff.ask(query, "local"), **peers}, 9 if bench.quick else 21
        )
        join_aim = ", ≥ 9x Spark" if "join" in what else ""
        bench.results.add(
            where,
            Line(f"{what}, hot", fast[HOT], peers={NATIVE: fast[NATIVE], SPARK: spark[SPARK]}, aim=_HOT_AIM + join_aim),
        )
        bench.results.add(
            where,
            Line(f"{what}, local", fast["local"], peers={FILES: fast[FILES], SPARK: spark[SPARK]}, aim=_LOCAL_AIM),
        )
        cold = medians_ms({"ours": _cold(bench, staff.text(query)), FILES: _cold_peer(staff, query)}, 3)
        bench.results.add(
            where, Line(f"{what}, local, first of a connection", cold["ours"], peers={FILES: cold[FILES]})
        )
        bench.results.add(where, Line(f"{what}, Spark", spark["ours"], peers={SPARK: spark[SPARK]}))


def _cold(bench: Bench, text: str) -> Callable[[], object]:
    def work() -> None:
        with crannog.connect(str(bench.folder / "warehouse")) as lake:
            lake.sql(text, engine="local")

    return work


def _cold_peer(staff: Staffing, query: str) -> Callable[[], object]:
    text = query.format(**{name: staff.peers.scan(name) for name in SIZES})

    def work() -> None:
        with duckdb.connect() as connection:
            connection.sql(text).to_arrow_table()

    return work


def staged(bench: Bench) -> None:
    """A keyed table of 1M rows after 0, 100 and 1,000 staged changes."""
    staff = staffing(bench)
    keyed = staff.lake.table(staff.name("timesheets"))
    keyed.fold()
    # The files as they stand now: an earlier section may have folded.
    staff.peers.reading.execute(
        f"CREATE OR REPLACE VIEW timesheets AS SELECT * FROM read_parquet({live_files(staff.lake, keyed.name)!r})"
    )
    rows = staff.rows["timesheets"]
    where = f"A keyed table of {rows.num_rows:,} rows with staged changes"
    done = 0
    for changes in (0, 100, 1_000):
        step = rows.num_rows // 1_000
        for number in range(done, changes):
            keyed.upsert(rows.slice(number * step, 1))
        done = changes
        for what, query in KEYED_QUERIES.items():
            peers = staff.peers.works(staff.peer_text(query))
            del peers[SPARK]
            found = medians_ms(
                {HOT: staff.ask(query, HOT), "local": staff.ask(query, "local"), **peers}, 9 if bench.quick else 21
            )
            bench.results.add(
                where, Line(f"{what}, {changes:,} staged, hot", found[HOT], peers={NATIVE: found[NATIVE]}, aim=_HOT_AIM)
            )
            bench.results.add(
                where,
                Line(f"{what}, {changes:,} staged, local", found["local"], peers={FILES: found[FILES]}, aim=_KEYED_AIM),
            )
        for engine in (HOT, "local"):
            spent = []
            for number in range(5):
                keyed.upsert(rows.slice(number, 1))
                spent.append(timed(staff.ask(KEYED_QUERIES["point lookup"], engine)) * 1000)
            bench.results.add(
                where, Line(f"lookup right after a change, {changes:,} staged, {engine}", statistics.median(spent))
            )
    keyed.fold()


def memory(bench: Bench) -> None:
    """Bytes held per cached row, against a cache of rows that held 1.1M of them in 408 MB."""
    staff = staffing(bench)
    for held in staff.lake.cache.stats()["tables"]:
        if held["name"].startswith("bench.staff."):
            name = held["name"].rsplit(".", 1)[1]
            peers = {
                "a cache of rows": _OTHER_BYTES_PER_ROW,
                "Arrow": staff.rows[name].nbytes / staff.rows[name].num_rows,
            }
            line = Line(f"{name}, {held['rows']:,} rows", held["bytes"] / max(held["rows"], 1), "bytes", peers)
            bench.results.add("Memory per cached row", line)


def readers(bench: Bench) -> None:
    """p50 and p95 of 8 concurrent readers: alone, then with a writer and compactions running."""
    staff = staffing(bench)
    seconds = 2.0 if bench.quick else 6.0
    texts = [staff.text(QUERIES[what]) for what in ("point lookup", "100K-row filter", "top-n", "1M-row join")]
    for engine in (HOT, "local"):
        _latencies(staff.lake, texts, engine, 0.5)
        alone = _latencies(staff.lake, texts, engine, seconds)
        with _busy(staff) as acts:
            crowded = _latencies(staff.lake, texts, engine, seconds)
        where = "8 concurrent readers, with a writer and compactions, against readers alone"
        for share, name in ((0.5, "p50"), (0.95, "p95")):
            line = Line(
                f"{engine}, {name}",
                quantile(crowded, share),
                peers={"alone": quantile(alone, share)},
                aim="flat" if name == "p95" else "",
            )
            bench.results.add(where, line)
        bench.results.add(
            where,
            Line(
                f"{engine}, answers", len(crowded) / seconds, "/s", {"alone": len(alone) / seconds}, more_is_better=True
            ),
        )
        for act, count in acts.items():
            bench.results.add(where, Line(f"{engine}, {act} meanwhile", count, ""))


def _latencies(lake: crannog.Lake, texts: list[str], engine: str, seconds: float) -> list[float]:
    """Return how long each query took, in ms, of 8 threads that ask one after the other."""
    spent: list[list[float]] = [[] for _ in range(8)]
    # A hot table that is being loaded anew is read from its files meanwhile: so auto, not hot.
    requested = "auto" if engine == HOT else engine
    ends = time.perf_counter() + seconds

    def work(number: int) -> None:
        turn = number
        while time.perf_counter() < ends:
            spent[number].append(timed(lambda text=texts[turn % len(texts)]: lake.sql(text, engine=requested)) * 1000)
            turn += 1

    running = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for one in running:
        one.start()
    for one in running:
        one.join()
    return [one for part in spent for one in part]


@contextmanager
def _busy(staff: Staffing) -> Iterator[dict[str, int]]:
    """Upsert into one table and fold and compact another until the block ends; tells how often."""
    done = {"upserts": 0, "compactions": 0}
    stop = threading.Event()
    keyed, plain = staff.lake.table(staff.name("timesheets")), staff.lake.table(staff.name("calls"))

    def write() -> None:
        while not stop.wait(0.02):
            keyed.upsert(staff.rows["timesheets"].slice(done["upserts"] * 10 % 1_000, 10))
            done["upserts"] += 1

    def compact() -> None:
        while not stop.is_set():
            plain.append(staff.rows["calls"].slice(0, 10_000))
            plain.fold()
            plain.compact()
            done["compactions"] += 1

    running = [threading.Thread(target=work) for work in (write, compact)]
    for one in running:
        one.start()
    try:
        yield done
    finally:
        stop.set()
        for one in running:
            one.join()


def tpc_h(bench: Bench) -> None:
    """TPC-H's 22 queries: each engine's total, and how many the fast engines serve."""
    scale = 0.01 if bench.quick else 0.1
    rows = tpch.tables(scale)
    with crannog.connect(
        str(bench.folder / "warehouse"), default_catalog=tpch.CATALOG, default_schema=tpch.SCHEMA
    ) as lake:
        for name, given in rows.items():
            made = lake.create_table(f"{tpch.CATALOG}.{tpch.SCHEMA}.{name}", given.schema)
            made.append(given)
            made.fold()
            lake.cache.pin(made.name)
        peers = Peers(bench.session, {name: live_files(lake, f"{tpch.CATALOG}.{tpch.SCHEMA}.{name}") for name in rows})
        texts = tpch.queries(scale)
        served = [number for number, text in texts.items() if lake.explain(text).engine == HOT]
        total: dict[str, float] = {}
        for number in served:
            works = peers.works(texts[number])
            del works[SPARK]
            for engine in (HOT, "local"):
                works[engine] = lambda engine=engine, text=texts[number]: lake.sql(text, engine=engine)
            for name, spent in medians_ms(works, 5).items():
                total[name] = total.get(name, 0.0) + spent
        for number in served:
            works = {
                SPARK: peers.works(texts[number])[SPARK],
                "spark": lambda text=texts[number]: lake.sql(text, engine="spark"),
            }
            for name, spent in medians_ms(works, 1).items():
                total[name] = total.get(name, 0.0) + spent
    where = f"TPC-H at scale {scale:g}, total of the queries that the fast engines serve"
    bench.results.add(where, Line("queries that the fast engines serve", len(served), f"of {len(texts)}"))
    bench.results.add(where, Line("hot", total[HOT], peers={NATIVE: total[NATIVE], SPARK: total[SPARK]}, aim=_HOT_AIM))
    bench.results.add(
        where, Line("local", total["local"], peers={FILES: total[FILES], SPARK: total[SPARK]}, aim=_LOCAL_AIM)
    )
    bench.results.add(where, Line("Spark", total["spark"], peers={SPARK: total[SPARK]}))
