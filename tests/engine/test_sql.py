"""Queries: which engine answers and why, limits, cancelling, streams, time travel, what explain tells."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from crannog.embedded import EmbeddedLake as Lake
from crannog.engine.sql import run_on_duckdb
from crannog.engine.sql.query_plan import choose_engine
from crannog.engine.sql.run_on_duckdb import FallBackToSpark
from crannog.errors import CallerError, Cancelled, Conflict, CrannogError, NotFound, Overloaded, TimedOut, Unavailable
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from lakes import opened

NAME = "shop.eu.orders"
ORDERS = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
# Take minutes, and never much memory. Spark asks its tasks to stop only between batches of rows.
ENDLESS = {
    "local": "SELECT count(*) AS n FROM shop.eu.orders a, shop.eu.orders b, shop.eu.orders c WHERE a.id + b.id > c.id * 2",
    "spark": "SELECT max(id % 7) AS s FROM range(100000000000000)",
}


def orders(count: int, first: int = 0) -> pa.Table:
    ids = range(first, first + count)
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "customer": [f"c{n % 97}" for n in ids],
            "amount": pa.array([Decimal(n % 1000) / 4 for n in ids], pa.decimal128(12, 2)),
            "day": [dt.date(2026, 1, 1) + dt.timedelta(days=n // 100) for n in ids],
            "at": pa.array([start + dt.timedelta(minutes=n) for n in ids], pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture
def lake(settings: Settings) -> Iterator[Lake]:
    with opened(settings) as lake:
        lake.create_table(NAME, ORDERS).append(orders(1000))
        yield lake


@pytest.fixture(scope="module")
def folded(spark: SparkRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Three files of the base, and a tail."""
    with opened(Settings(warehouse=str(tmp_path_factory.mktemp("sql") / "warehouse"), spark_memory_mb=1024)) as lake:
        table = lake.create_table(NAME, ORDERS)
        for part in range(3):
            table.append(orders(2000, part * 2000))
            table.fold()
        table.append(orders(10, 6000))
        keyed = lake.create_table(
            "shop.eu.customers", pa.schema([("name", pa.string()), ("city", pa.string())]), key=["name"]
        )
        keyed.upsert([{"name": f"c{n}", "city": f"city{n % 7}"} for n in range(97)])
        keyed.fold()
        keyed.upsert([{"name": "c1", "city": "moved"}])
        keyed.delete(["c2"])
        yield lake


# -- answers ---------------------------------------------------------------------------------------------------


def test_an_answer_in_every_form(lake: Lake) -> None:
    answer = lake.sql("SELECT id, customer, amount, day, at FROM shop.eu.orders WHERE id < 3 ORDER BY id DESC")
    expected = orders(3).sort_by([("id", "descending")])
    assert answer.to_arrow().equals(expected)
    assert answer.to_arrow().schema == ORDERS
    assert list(answer.to_pandas()["id"]) == [2, 1, 0]
    assert isinstance(answer.to_pandas(), pd.DataFrame)
    assert answer.to_polars().equals(pl.DataFrame(expected))
    rows = answer.rows()
    assert rows[0]["customer"] == rows[0][1] == "c2"
    assert rows == expected.to_pylist()
    assert (answer.engine, answer.truncated, answer.row_count, len(answer)) == ("local", False, 3, 3)
    assert answer.elapsed_ms > 0
    assert answer.query_id
    assert answer.columns[2] == {"name": "amount", "type": "decimal(12,2)"}


def test_an_empty_answer_keeps_its_schema(folded: Lake) -> None:
    for engine in ("local", "spark"):
        answer = folded.sql("SELECT id, amount * 2 AS a, at FROM shop.eu.orders WHERE id < 0", engine=engine)
        assert answer.to_arrow().num_rows == 0
        assert answer.schema == pa.schema(
            [("id", pa.int64()), ("a", pa.decimal128(14, 2)), ("at", pa.timestamp("us", "UTC"))]
        )


def test_an_acknowledged_write_is_in_the_next_answer(lake: Lake, settings: Settings) -> None:
    with opened(settings) as other:
        for n in range(1000, 1020):
            lake.table(NAME).append(orders(1, n))
            for reader in (lake, other):
                assert reader.sql(f"SELECT count(*) AS n, max(id) AS last FROM {NAME}").rows() == [
                    {"n": n + 1, "last": n}
                ]


def test_rows_deleted_are_gone_at_once_and_raw_shows_them(folded: Lake) -> None:
    for engine in ("local", "spark"):
        seen = folded.sql(
            "SELECT name, city FROM shop.eu.customers WHERE name IN ('c1', 'c2', 'c3') ORDER BY name", engine=engine
        )
        assert seen.rows() == [{"name": "c1", "city": "moved"}, {"name": "c3", "city": "city3"}]
        raw = folded.sql(
            "SELECT name FROM shop.eu.__raw__customers WHERE name IN ('c1', 'c2') ORDER BY name", engine=engine
        )
        assert [row[0] for row in raw.rows()] == ["c1", "c2"]


def test_earlier_versions_can_be_read(folded: Lake) -> None:
    history = folded.table(NAME).history()
    times = {entry["version"]: entry["timestamp"] for entry in history}
    for engine in ("local", "spark"):
        for version, rows in ((0, 0), (1, 2000), (2, 4000), (3, 6000)):
            sql = f"SELECT count(*) AS n FROM {NAME} VERSION AS OF {version}"
            assert folded.sql(sql, engine=engine).rows() == [{"n": rows}]
        at = dt.datetime.fromtimestamp(times[2] / 1000, dt.UTC).isoformat(timespec="milliseconds")
        assert folded.sql(f"SELECT count(*) AS n FROM {NAME} TIMESTAMP AS OF '{at}'", engine=engine).rows() == [
            {"n": 4000}
        ]
        both = f"SELECT (SELECT count(*) FROM {NAME}) - (SELECT count(*) FROM {NAME} VERSION AS OF 1) AS n"
        assert folded.sql(both, engine=engine).rows() == [{"n": 4010}]
    with pytest.raises(NotFound, match="version 99"):
        folded.sql(f"SELECT * FROM {NAME} VERSION AS OF 99")
    with pytest.raises(NotFound, match="begins at"):
        folded.sql(f"SELECT * FROM {NAME} TIMESTAMP AS OF '2001-01-01'")
    with pytest.raises(CallerError, match="takes a time"):
        folded.sql(f"SELECT * FROM {NAME} TIMESTAMP AS OF 'yesterday'")


# -- which engine ----------------------------------------------------------------------------------------------


def test_the_router_is_a_pure_choice() -> None:
    def chosen(engine: str = "auto", **facts: Any) -> str:
        arguments = {"no_rule": None, "hot": False, "not_hot": "a.b.c", "scan_bytes": 10, "scan_limit": 100, **facts}
        return choose_engine(engine, **arguments).engine

    assert chosen() == "local"
    assert chosen(hot=True) == "hot"
    assert chosen(hot=True, scan_bytes=1000) == "hot"
    assert chosen(scan_bytes=1000) == "spark"
    assert chosen(no_rule="explode", hot=True) == "spark"
    assert chosen("spark", hot=True) == "spark"
    assert chosen("local", hot=True, scan_bytes=1000) == "local"
    for engine, facts in (
        ("hot", {}),
        ("hot", {"no_rule": "explode", "hot": True}),
        ("local", {"no_rule": "explode"}),
    ):
        with pytest.raises(CallerError, match="cannot run"):
            chosen(engine, **facts)


def test_what_has_no_rule_goes_to_spark(folded: Lake) -> None:
    sql = "SELECT customer, collect_list(id) AS ids FROM shop.eu.orders WHERE id IN (3, 6005) GROUP BY customer ORDER BY customer"
    answer = folded.sql(sql)
    assert (answer.engine, answer.rows()) == (
        "spark",
        [{"customer": "c3", "ids": [3]}, {"customer": "c88", "ids": [6005]}],
    )
    assert "collect_list" in answer.why
    with pytest.raises(CallerError, match="collect_list"):
        folded.sql(sql, engine="local")


def test_where_a_rule_stops_spark_answers(folded: Lake, settings: Settings) -> None:
    table = folded.create_table("shop.eu.words", pa.schema([("w", pa.string())]), if_exists="ok")
    table.append([{"w": "straße"}])
    answer = folded.sql("SELECT upper(w) AS u FROM shop.eu.words")
    assert (answer.engine, answer.rows()) == ("spark", [{"u": "STRASSE"}])
    with pytest.raises(CallerError, match="ASCII"):
        folded.sql("SELECT upper(w) AS u FROM shop.eu.words", engine="local")


def test_a_scan_beyond_the_limit_goes_to_spark(folded: Lake) -> None:
    total = folded.table(NAME).describe()["bytes"]
    with opened(folded.settings, local_scan_bytes=total - 1) as small:
        assert small.sql(f"SELECT count(*) AS n FROM {NAME}").engine == "spark"
        pruned = small.sql(f"SELECT count(*) AS n FROM {NAME} WHERE id < 100")
        assert (pruned.engine, pruned.rows()) == ("local", [{"n": 100}]), "two of three files are pruned"


def test_a_column_that_is_not_there_is_named_without_asking_spark(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake.operations.warehouse, "spark", lambda: pytest.fail("Spark was asked"))
    for text in (
        f"SELECT nosuch FROM {NAME}",
        f"SELECT id FROM {NAME} WHERE nosuch = 1",
        f"SELECT count(*) AS n FROM {NAME} GROUP BY nosuch",
    ):
        with pytest.raises(CallerError, match=r"no column nosuch; there are id, customer, amount, day, at"):
            lake.sql(text)


@pytest.mark.parametrize("engine", ["duckdb", "", None, 3])
def test_an_unknown_engine_is_refused(lake: Lake, engine: Any) -> None:
    with pytest.raises(CallerError, match="engine is one of"):
        lake.sql("SELECT 1", engine=engine)


# -- explain ---------------------------------------------------------------------------------------------------


def test_explain_tells_engine_pruning_and_plan_without_paths(folded: Lake) -> None:
    explanation = folded.explain(
        f"SELECT sum(amount) AS s FROM {NAME} WHERE id BETWEEN 2100 AND 2200 AND customer = 'c1'"
    )
    assert explanation.engine == "local"
    [table] = explanation.tables
    assert (table.files, table.files_read, table.staged_rows) == (3, 1, 10)
    assert sum(count for _, count in table.pruned_by) == 2
    assert any(what.startswith("id") for what, _ in table.pruned_by)
    by_spark = folded.explain(f"SELECT collect_set(customer) AS s FROM {NAME}")
    assert by_spark.engine == "spark"
    for shown in (explanation, by_spark, folded.explain(f"SELECT count(*) AS n FROM {NAME}", engine="spark")):
        assert shown.plan
        assert str(Path(folded.operations.warehouse.location)) not in str(shown)
        assert ".parquet" not in str(shown)
    ran = folded.explain(f"SELECT id FROM {NAME} LIMIT 5", analyze=True)
    assert ran.result is not None
    assert ran.as_dict()["analyzed"]["rows"] == 5


def test_every_kind_of_condition_prunes_and_loses_nothing(folded: Lake) -> None:
    total = 6010
    everything = folded.table(NAME).to_arrow()
    for condition, keep in {
        "id = 4321": lambda row: row["id"] == 4321,
        "4321 = id": lambda row: row["id"] == 4321,
        "id < 50": lambda row: row["id"] < 50,
        "id >= 5990 AND id <= 6003": lambda row: 5990 <= row["id"] <= 6003,
        "id IN (1, 5999, 6009)": lambda row: row["id"] in (1, 5999, 6009),
        "id = NULL": lambda _: False,
        "id IS NULL": lambda _: False,
        "id IS NOT NULL AND id > 5000": lambda row: row["id"] > 5000,
        "day = '2026-01-02'": lambda row: row["day"] == dt.date(2026, 1, 2),
        "day > date '2026-02-20'": lambda row: row["day"] > dt.date(2026, 2, 20),
        "at < '2026-01-01 01:00:00'": lambda row: row["at"] < dt.datetime(2026, 1, 1, 1, tzinfo=dt.UTC),
        "at = '2026-01-02 09:20:00'": lambda row: row["id"] == 2000,
        "customer LIKE 'c1%' AND id < 40": lambda row: row["customer"].startswith("c1") and row["id"] < 40,
        "amount > 249.70": lambda row: row["amount"] > Decimal("249.70"),
        "id < 10 OR id > 6000": lambda row: row["id"] < 10 or row["id"] > 6000,
    }.items():
        expected = sorted(row["id"] for row in everything.to_pylist() if keep(row))
        found = folded.sql(f"SELECT id FROM {NAME} WHERE {condition} ORDER BY id", max_rows=total)
        assert (found.engine, [row[0] for row in found.rows()]) == ("local", expected), condition


# -- limits ----------------------------------------------------------------------------------------------------


def test_rows_are_limited_and_the_cut_is_flagged(folded: Lake) -> None:
    for engine in ("local", "spark"):
        cut = folded.sql(f"SELECT id FROM {NAME} ORDER BY id", max_rows=5, engine=engine)
        assert ([row[0] for row in cut.rows()], cut.truncated) == ([0, 1, 2, 3, 4], True)
        whole = folded.sql(f"SELECT id FROM {NAME} ORDER BY id", max_rows=6010, engine=engine)
        assert (whole.row_count, whole.truncated) == (6010, False)
        result = folded.sql(f"SELECT id FROM {NAME} ORDER BY id DESC LIMIT 7", max_rows=5, engine=engine)
        assert ([row[0] for row in result.rows()], result.truncated) == ([6009, 6008, 6007, 6006, 6005], True)
        none = folded.sql(f"SELECT id FROM {NAME}", max_rows=0, engine=engine)
        assert (none.row_count, none.truncated) == (0, True)
    # An answer that was whole is read without a limit the next time; it is cut off all the same.
    for most in (6010, 6010, 5, 5, 25_000, 6009, 6010):
        again = folded.sql(f"SELECT id FROM {NAME} ORDER BY id", max_rows=most)
        assert ([row[0] for row in again.rows()], again.truncated) == (list(range(min(most, 6010))), most < 6010)


def test_ten_thousand_rows_unless_more_is_asked_for(lake: Lake) -> None:
    lake.table(NAME).append(orders(10_500, 1000))
    usual = lake.sql(f"SELECT id FROM {NAME}")
    assert (usual.row_count, usual.truncated) == (10_000, True)
    assert lake.sql(f"SELECT id FROM {NAME}", max_rows=1_000_000).row_count == 11_500
    for wrong in (-1, 1.5, True, "5", 10**12):
        with pytest.raises(CallerError, match="max_rows"):
            lake.sql("SELECT 1 AS a", max_rows=wrong)  # type: ignore[arg-type]


def test_a_result_beyond_the_byte_limit_is_refused_with_what_to_do(folded: Lake) -> None:
    with opened(folded.settings, sql_result_bytes=20_000) as small:
        for engine in ("local", "spark"):
            with pytest.raises(CallerError, match="stream it"):
                small.sql(f"SELECT * FROM {NAME}", engine=engine)
            assert sum(batch.num_rows for batch in small.stream(f"SELECT * FROM {NAME}", engine=engine)) == 6010


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_query_ends_when_its_time_is_over(folded: Lake, engine: str) -> None:
    folded.sql("SELECT 1 AS a", engine="spark")
    began = time.monotonic()
    with pytest.raises(TimedOut, match="1 s"):
        folded.sql(ENDLESS[engine], engine=engine, timeout_s=1)
    assert time.monotonic() - began < 6
    assert folded.sql(f"SELECT count(*) AS n FROM {NAME}", engine=engine).rows() == [{"n": 6010}]


@pytest.mark.slow
def test_a_query_that_spark_cannot_stop_does_not_keep_it_from_others(folded: Lake) -> None:
    """A task that computes within one batch for hours is not asked to stop: then Spark is started anew."""
    folded.sql("SELECT 1 AS a", engine="spark")
    with pytest.raises(TimedOut):
        folded.sql(ENDLESS["local"], engine="spark", timeout_s=1)
    assert folded.sql(f"SELECT count(*) AS n FROM {NAME}", engine="spark", timeout_s=200).rows() == [{"n": 6010}]


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_query_is_cancelled_from_another_thread(folded: Lake, engine: str) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            folded.sql(ENDLESS[engine], engine=engine, query_id="endless")
        except CrannogError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(1.5)
    with pytest.raises(Conflict, match="endless"):
        folded.sql("SELECT 1 AS a", query_id="endless")
    folded.cancel("endless")
    began = time.monotonic()
    thread.join(20)
    assert not thread.is_alive()
    assert time.monotonic() - began < 5
    assert [type(error) for error in failures] == [Cancelled]
    with pytest.raises(NotFound, match="endless"):
        folded.cancel("endless")
    assert folded.sql("SELECT 1 AS a", query_id="endless").query_id == "endless", "the id is free again"


def test_only_so_many_queries_run_and_wait(folded: Lake) -> None:
    with opened(folded.settings, sql_running=1, sql_waiting=1) as small:
        stream = small.stream(f"SELECT * FROM {NAME}", query_id="held")
        waiting = threading.Thread(target=lambda: results.append(small.sql("SELECT 1 AS a")))
        results: list[Any] = []
        waiting.start()
        time.sleep(0.3)
        with pytest.raises(Overloaded, match="1 queries run and 1 wait") as full:
            small.sql("SELECT 1 AS a")
        assert full.value.retry_after_s
        assert not results
        stream.close()
        waiting.join(10)
        assert [result.rows() for result in results] == [[{"a": 1}]]


@pytest.mark.parametrize("query_id", ["", "a\nb", "x" * 129, 5])
def test_a_query_id_is_checked(lake: Lake, query_id: Any) -> None:
    with pytest.raises(CallerError, match="query id"):
        lake.sql("SELECT 1 AS a", query_id=query_id)


@pytest.mark.parametrize("timeout_s", [0, -1, "1", True, 1e9])
def test_a_timeout_is_checked(lake: Lake, timeout_s: Any) -> None:
    with pytest.raises(CallerError, match="timeout_s"):
        lake.sql("SELECT 1 AS a", timeout_s=timeout_s)


# -- streams ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_large_answer_is_streamed_in_order(folded: Lake, engine: str) -> None:
    sql = f"SELECT a.id, b.id AS other FROM {NAME} a JOIN {NAME} b ON b.id < 40 ORDER BY a.id, b.id"
    with folded.stream(sql, engine=engine) as stream:
        assert stream.engine == engine
        assert stream.schema == pa.schema([("id", pa.int64()), ("other", pa.int64())])
        batches = list(stream)
    assert len(batches) > 1
    table = pa.Table.from_batches(batches)
    assert table.num_rows == 6010 * 40
    assert table["id"].to_pylist() == [n for n in range(6010) for _ in range(40)]
    assert folded.operations.queries.running.ids() == []
    results = Path(folded.operations.warehouse.location) / "_crannog" / "results"
    assert not results.exists() or not any(results.iterdir())


def test_a_stream_that_stops_midway_says_what_to_do(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the value beyond a rule comes late, batches are with the caller already. Forced: when it comes is DuckDB's choice."""

    def stops(*_: Any) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        raise FallBackToSpark("text beyond ASCII")

    monkeypatch.setattr(run_on_duckdb, "_read", stops)
    batches = iter(lake.stream("SELECT 1 AS a"))
    assert next(batches).to_pylist() == [{"a": 1}]
    with pytest.raises(Unavailable, match="text beyond ASCII; run it again with engine='spark'"):
        next(batches)
    assert lake.operations.queries.running.ids() == []


def test_answers_left_by_a_process_that_died_are_swept(folded: Lake) -> None:
    left = Path(folded.operations.warehouse.location) / "_crannog" / "results" / "left"
    (left / "rows").mkdir(parents=True)
    (left / "rows" / "part-0.parquet").write_bytes(b"rows")
    with folded.stream("SELECT 1 AS a", engine="spark") as stream:
        assert [batch.to_pylist() for batch in stream] == [[{"a": 1}]]
    assert not left.exists()


def test_a_stream_that_is_closed_early_ends_its_query(folded: Lake) -> None:
    stream = folded.stream(f"SELECT a.id FROM {NAME} a, {NAME} b", query_id="half")
    assert next(iter(stream)).num_rows > 0
    assert folded.operations.queries.running.ids() == ["half"]
    stream.close()
    assert folded.operations.queries.running.ids() == []


def test_vacuum_leaves_what_a_stream_reads(settings: Settings, spark: SparkRuntime) -> None:
    with opened(settings) as lake:
        table = lake.create_table("a.b.c", pa.schema([("id", pa.int64()), ("v", pa.int64())]), key=["id"])
        table.upsert(pa.table({"id": range(300_000), "v": range(300_000)}))
        table.fold()
        stream = lake.stream("SELECT id, v FROM a.b.c")
        batches = iter(stream)
        seen = next(batches).num_rows
        table.upsert(pa.table({"id": range(300_000), "v": [0] * 300_000}))
        table.fold()
        table.vacuum(0, force=True)
        assert seen + sum(batch.num_rows for batch in batches) == 300_000
        assert lake.sql("SELECT sum(v) AS s FROM a.b.c").rows() == [{"s": 0}]
