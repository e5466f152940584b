"""Statements that are run again, and staged rows that are kept for them."""

from __future__ import annotations

import gc
import threading
import time

import pyarrow as pa
import pytest

from crannog.embedded import EmbeddedLake as Lake
from crannog.engine.duckdb.engine import DuckDBEngine, StatementPool
from crannog.errors import Cancelled
from crannog.settings import Settings
from lakes import opened

NAME = "b.t.t"


def kept(engine: DuckDBEngine) -> set[str]:
    with engine.cursor() as cursor:
        return {
            row[0]
            for row in cursor.execute("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'kept%'").fetchall()
        }


def idle(lake: Lake) -> StatementPool:
    return lake.operations.warehouse.duckdb._statements


def made(lake: Lake) -> None:
    lake.create_table(NAME, pa.schema([("id", pa.int64()), ("v", pa.string())]), key=["id"]).upsert(
        [{"id": number, "v": "one"} for number in range(100)]
    )


def test_a_statement_that_is_run_again_sees_what_changed(settings: Settings) -> None:
    with opened(settings) as lake:
        made(lake)
        for turn in range(6):
            for _ in range(3):
                for engine in ("local", "hot") if turn > 2 else ("local",):
                    found = lake.sql(f"SELECT v, count(*) AS n FROM {NAME} GROUP BY v ORDER BY v", engine=engine).rows()
                    assert found == [{"v": "one", "n": 100 - turn}, *([{"v": "two", "n": turn}] if turn else [])]
            if turn == 2:
                lake.cache.pin(NAME)
            lake.table(NAME).upsert([{"id": turn, "v": "two"}])


def test_staged_rows_are_kept_only_while_their_snapshot_is(settings: Settings) -> None:
    with opened(settings) as lake:
        made(lake)
        engine = lake.operations.warehouse.duckdb
        query = f"SELECT max(v) AS v FROM {NAME}"
        lake.sql(query)
        assert not kept(engine), "a snapshot that is read once is not copied"
        lake.sql(query)
        lake.sql(query)
        first = kept(engine)
        assert len(first) == 1
        for number in range(3):
            lake.table(NAME).upsert([{"id": 5, "v": f"x{number}"}])
            assert [lake.sql(query).rows() for _ in range(3)] == [[{"v": f"x{number}"}]] * 3
        gc.collect()
        last = kept(engine)
        assert len(last) == 1
        assert last != first, "the copies of older snapshots are dropped"


def test_a_cursor_that_was_interrupted_is_not_lent_again(settings: Settings) -> None:
    others = " ".join(f"CROSS JOIN {NAME} t{number}" for number in range(5))
    slow = f"SELECT sum(t0.id * t1.id * t2.id * t3.id * t4.id % 7) AS n FROM {NAME} t {others}"
    with opened(settings) as lake:
        made(lake)
        lake.sql(f"SELECT count(*) AS n FROM {NAME}")
        lake.sql(f"SELECT count(*) AS n FROM {NAME}")
        [before] = [bound.cursor for bound in idle(lake)._idle]
        failed: list[BaseException] = []

        def ask() -> None:
            try:
                lake.sql(slow, engine="local", query_id="slow")
            except BaseException as error:
                failed.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        for _ in range(200):
            time.sleep(0.05)
            if lake.operations.queries.running.ids():
                break
        time.sleep(0.3)
        lake.cancel("slow")
        asking.join(20)
        [error] = failed
        assert isinstance(error, Cancelled)
        assert before not in [bound.cursor for bound in idle(lake)._idle]
        assert lake.sql(f"SELECT count(*) AS n FROM {NAME}").rows() == [{"n": 100}]


def test_after_an_error_a_cursor_is_closed() -> None:
    class Cursor:
        closed = False

        def sql(self, text: str) -> str:
            if text == "bad":
                raise ValueError(text)
            return text

    def close(cursor: Cursor) -> None:
        cursor.closed = True

    statements = StatementPool(Cursor, close)
    with statements.borrow("good") as first:
        assert first.relation("good") == "good"
    with statements.borrow("other") as again:
        assert again is first
        with statements.borrow("good") as second:
            assert second is not first, "one is lent once at a time"
    with statements.borrow("good") as known:
        assert known is first, "the one that knows the statement"
    with pytest.raises(ValueError), statements.borrow("bad") as failing:
        failing.relation("bad")
    assert failing.cursor.closed
    assert [bound.cursor.closed for bound in statements._idle] == [False]
    with statements.borrow("cancelled") as spoiled:
        spoiled.is_reusable = False
    assert spoiled.cursor.closed
