"""Hot tables: held in memory, never stale, within a limit."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from crannog.embedded import EmbeddedLake as Lake
from crannog.engine.sql.hot_tables import HotCache
from crannog.errors import CallerError, NotFound, Overloaded
from crannog.names import TableName
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from lakes import opened

KEYED, PLAIN = "hot.t.keyed", "hot.t.plain"
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("n", pa.int64())])


def rows(*ids: int, v: str = "v") -> list[dict[str, object]]:
    return [{"id": n, "v": f"{v}{n}", "n": n} for n in ids]


@pytest.fixture
def lake(settings: Settings) -> Iterator[Lake]:
    with opened(settings) as lake:
        lake.create_table(KEYED, SCHEMA, key=["id"]).upsert(rows(*range(100)))
        lake.create_table(PLAIN, SCHEMA).append(rows(*range(100)))
        yield lake


def seen(lake: Lake, table: str, engine: str = "hot") -> list[tuple[object, ...]]:
    found = lake.sql(f"SELECT id, v, n FROM {table} ORDER BY id, v", engine=engine)
    return [tuple(row.values()) for row in found.rows()]


def same_as_local(lake: Lake, *tables: str) -> None:
    for table in tables or (KEYED, PLAIN):
        assert seen(lake, table) == seen(lake, table, "local")


def test_pin_evict_and_stats(lake: Lake) -> None:
    assert lake.cache.stats()["tables"] == []
    pinned = lake.cache.pin(KEYED)
    assert (pinned["name"], pinned["rows"], pinned["state"]) == (KEYED, 100, "pinned")
    assert pinned["bytes"] > 0
    assert lake.sql(f"SELECT count(*) AS n FROM {KEYED}").engine == "hot"
    assert lake.sql(f"SELECT count(*) AS n FROM {PLAIN}").engine == "local"
    both = f"SELECT count(*) AS n FROM {KEYED} k JOIN {PLAIN} p ON k.id = p.id"
    assert (lake.sql(both).engine, lake.sql(both).rows()) == ("local", [{"n": 100}]), "one in memory, one in files"
    lake.cache.pin(PLAIN)
    assert (lake.sql(both).engine, lake.sql(both).rows()) == ("hot", [{"n": 100}])
    stats = lake.cache.stats()
    assert [entry["name"] for entry in stats["tables"]] == [KEYED, PLAIN]
    assert stats["bytes"] == sum(entry["bytes"] for entry in stats["tables"])
    assert stats["limit_bytes"] == lake.settings.cache_bytes
    keyed, plain = stats["tables"]
    assert keyed["hits"] == 5
    assert plain["misses"] == 3
    assert abs(keyed["last_access"] - time.time()) < 60
    assert lake.cache.evict(KEYED)
    assert not lake.cache.evict(KEYED)
    assert lake.sql(f"SELECT count(*) AS n FROM {KEYED}").engine == "local"
    for act in (lake.cache.pin, lake.cache.evict):
        with pytest.raises(NotFound):
            act("hot.t.nosuch")


def test_every_change_is_seen_by_the_next_read(lake: Lake) -> None:
    for name in (KEYED, PLAIN):
        lake.cache.pin(name)
    relation = [held.relation for held in lake.operations.queries.cache._tables.values()]
    lake.table(PLAIN).append(rows(500))
    lake.table(KEYED).upsert(rows(3, 4, 700, v="new"))
    same_as_local(lake)
    lake.table(KEYED).delete([4, 5, 999])
    same_as_local(lake)
    lake.table(KEYED).upsert(rows(5, v="again"))
    lake.table(KEYED).upsert(rows(5, v="twice"))
    lake.table(KEYED).delete([3])
    same_as_local(lake)
    assert (5, "twice5", 5) in seen(lake, KEYED)
    assert [held.relation for held in lake.operations.queries.cache._tables.values()] == relation, (
        "nothing was loaded anew"
    )
    assert lake.cache.stats()["tables"][0]["rows"] == len(seen(lake, KEYED))


def test_deletes_from_a_table_with_required_columns_are_seen(lake: Lake) -> None:
    """A staged delete has its key alone: the other columns are null in it, also those that may not be."""
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string(), nullable=False)])
    table = lake.create_table("shop.eu.required", schema, key=["k"])
    table.append([{"k": number, "v": "x"} for number in range(20)])
    lake.cache.pin("shop.eu.required")
    table.delete([1, 2])
    table.upsert([{"k": 3, "v": "y"}])
    found = lake.sql("SELECT count(*) AS n, max(v) AS v FROM shop.eu.required", engine="hot").rows()
    assert found == [{"n": 18, "v": "y"}]


def test_changes_of_another_process_are_seen(lake: Lake, settings: Settings) -> None:
    lake.cache.pin(KEYED)
    with opened(settings) as other:
        for n in range(20):
            other.table(KEYED).upsert(rows(n, v=f"other{n}-"))
            assert (n, f"other{n}-{n}", n) in seen(lake, KEYED)


def test_folds_and_compactions_leave_a_copy_as_it_is(lake: Lake, spark: SparkRuntime) -> None:
    lake.cache.pin(KEYED)
    relation = lake.operations.queries.cache._tables
    first = {name: held.relation for name, held in relation.items()}
    for step in range(3):
        lake.table(KEYED).upsert(rows(step, 1000 + step, v=f"step{step}-"))
        same_as_local(lake, KEYED)
        lake.table(KEYED).fold()
        same_as_local(lake, KEYED)
    lake.table(KEYED).compact()
    same_as_local(lake, KEYED)
    lake.table(KEYED).upsert(rows(1, v="unread"))
    lake.table(KEYED).fold()
    assert lake.sql(f"SELECT v FROM {KEYED} WHERE id = 1", engine="hot").rows() == [{"v": "unread1"}], (
        "applied before the fold took it"
    )
    assert {name: held.relation for name, held in relation.items()} == first, "nothing was loaded anew"


def test_what_another_process_folds_unread_is_loaded_anew(lake: Lake, settings: Settings, spark: SparkRuntime) -> None:
    lake.cache.pin(KEYED)
    for v in ("one", "two"):
        with opened(settings) as other:
            other.table(KEYED).upsert(rows(1, v=v))
            other.table(KEYED).fold()
        if v == "one":  # what the copy missed is never missing, and is waited for where it must be hot
            assert lake.sql(f"SELECT v FROM {KEYED} WHERE id = 1", engine="hot").rows() == [{"v": "one1"}]
        else:
            assert lake.sql(f"SELECT v FROM {KEYED} WHERE id = 1").rows() == [{"v": "two1"}]
            await_hot(lake, KEYED)
    same_as_local(lake, KEYED)


def test_changed_rows_keep_every_type(settings: Settings) -> None:
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("part", pa.int32()),
            ("words", pa.list_(pa.string())),
            ("at", pa.timestamp("us", "UTC")),
            ("of", pa.map_(pa.string(), pa.int64())),
            ("deep", pa.struct([("a", pa.int64()), ("b", pa.binary())])),
            ("d", pa.decimal128(20, 3)),
        ]
    )

    def row(number: int, word: str | None) -> dict[str, object]:
        return {
            "id": f"k{number}",
            "part": number % 3,
            "words": [word] * (number % 4) if word else None,
            "d": number if word else None,
            "of": [(word, number)] if word else None,
            "deep": {"a": number, "b": word.encode()} if word else None,
        }

    with opened(settings) as lake:
        table = lake.create_table(KEYED, schema, key=["id", "part"])
        table.upsert([row(number, "first") for number in range(300)])
        lake.cache.pin(KEYED)
        for turn, word in enumerate(("second", None, "third", "fourth")):
            table.upsert([row(number, word) for number in range(turn * 30, turn * 30 + 200, 7)])
            table.delete([{"id": f"k{number}", "part": number % 3} for number in range(turn, 330, 11)])
            query = f"SELECT * FROM {KEYED} ORDER BY id, part"
            assert lake.sql(query, engine="hot").to_arrow() == lake.sql(query, engine="local").to_arrow()
        assert lake.cache.stats()["tables"][0]["rows"] == table.count()


def await_hot(lake: Lake, table: str) -> None:
    for _ in range(200):
        if lake.sql(f"SELECT count(*) AS n FROM {table}").engine == "hot":
            return
        time.sleep(0.05)
    raise AssertionError(f"{table} is not in memory again")


def test_erased_rows_leave_the_memory(lake: Lake, spark: SparkRuntime) -> None:
    lake.cache.pin(KEYED)
    before = lake.operations.queries.cache._tables[next(iter(lake.operations.queries.cache._tables))].relation
    receipt = lake.table(KEYED).erase([7])
    assert receipt.rows_erased == 1
    [place] = [place for place in receipt.places if place.place == "hot cache"]
    assert (place.looked_at, place.before, place.after) == (2, 2, 0), "it was staged and in the copy"
    [held] = lake.operations.queries.cache._tables.values()
    assert held.relation != before, "a deleted row stays in a copy's memory, so the copy was made anew"
    assert 7 not in [row[0] for row in seen(lake, KEYED)]
    same_as_local(lake, KEYED)


def test_a_new_column_and_a_new_table_are_loaded_anew(lake: Lake, spark: SparkRuntime) -> None:
    for name in (KEYED, PLAIN):
        lake.cache.pin(name)
    lake.table(PLAIN).evolve(pa.schema([*SCHEMA, ("extra", pa.string())]))
    lake.table(PLAIN).append([{"id": 1, "v": "x", "n": 1, "extra": "yes"}])
    assert lake.sql(f"SELECT count(extra) AS n FROM {PLAIN}").rows() == [{"n": 1}]
    await_hot(lake, PLAIN)
    assert lake.sql(f"SELECT count(extra) AS n FROM {PLAIN}", engine="hot").rows() == [{"n": 1}]
    lake.drop_table(KEYED)
    lake.create_table(KEYED, SCHEMA, key=["id"]).upsert(rows(1))
    assert lake.sql(f"SELECT count(*) AS n FROM {KEYED}").rows() == [{"n": 1}]
    await_hot(lake, KEYED)
    same_as_local(lake)


def test_expired_rows_are_gone(settings: Settings, spark: SparkRuntime) -> None:
    import datetime as dt

    with opened(settings) as lake:
        table = lake.create_table(
            "hot.t.days", pa.schema([("day", pa.date32()), ("n", pa.int64())]), partition_by=["day"]
        )
        table.append([{"day": dt.date(2026, 1, n), "n": n} for n in range(1, 11)])
        table.fold()
        lake.cache.pin("hot.t.days")
        table.expire(dt.date(2026, 1, 6))
        assert lake.sql("SELECT min(n) AS n FROM hot.t.days").rows() == [{"n": 6}]
        await_hot(lake, "hot.t.days")
        assert lake.sql("SELECT min(n) AS n FROM hot.t.days", engine="hot").rows() == [{"n": 6}]


def test_many_replaced_rows_make_a_fresh_copy(lake: Lake) -> None:
    lake.table(KEYED).upsert(rows(*range(20_000)))
    lake.cache.pin(KEYED)
    [first] = [held.relation for held in lake.operations.queries.cache._tables.values()]
    for turn in range(3):
        lake.table(KEYED).upsert(rows(*range(20_000), v=f"t{turn}-"))
        same = lake.sql(f"SELECT count(*) AS n, min(v) AS v FROM {KEYED}").rows()
        assert same == [{"n": 20_000, "v": f"t{turn}-0"}]
    await_hot(lake, KEYED)
    assert first not in [held.relation for held in lake.operations.queries.cache._tables.values()]


def test_pinning_beyond_the_limit_is_refused_with_the_numbers(settings: Settings) -> None:
    with opened(settings, cache_bytes=3_000_000) as lake:
        lake.create_table("hot.t.big", SCHEMA).append(
            pa.table({"id": range(400_000), "v": [f"value {n}" for n in range(400_000)], "n": range(400_000)})
        )
        with pytest.raises(Overloaded, match=r"takes about [\d,]+ bytes.*limit is 3,000,000"):
            lake.cache.pin("hot.t.big")
        assert lake.cache.stats()["tables"] == []
        assert lake.sql("SELECT count(*) AS n FROM hot.t.big").engine == "local"


def test_loaded_tables_make_way_and_pinned_ones_stay(settings: Settings) -> None:
    names = [f"hot.t.a{n}" for n in range(4)]
    with opened(settings, cache_auto_reads=2) as lake:
        for name in names:
            lake.create_table(name, SCHEMA).append(
                pa.table({"id": range(50_000), "v": [f"value {n}" for n in range(50_000)], "n": range(50_000)})
            )
        size = lake.cache.pin(names[0])["bytes"]
        lake.operations.queries.cache.limit_bytes = int(size * 2.5)
        for name in names[1:3]:
            for _ in range(2):
                lake.sql(f"SELECT count(*) AS n FROM {name}")
            await_hot(lake, name)
        held = {entry["name"]: entry["state"] for entry in lake.cache.stats()["tables"]}
        assert held == {names[0]: "pinned", names[2]: "loaded"}, "the one not used for longest made way"
        lake.cache.pin(names[3])
        held = {entry["name"]: entry["state"] for entry in lake.cache.stats()["tables"]}
        assert held == {names[0]: "pinned", names[3]: "pinned"}
        with pytest.raises(Overloaded, match="pinned tables take"):
            lake.cache.pin(names[1])


def test_readers_writers_and_reloads_at_once_see_whole_states(lake: Lake) -> None:
    """One writer sets all rows to one value per commit; a reader that saw two values would have seen half a change."""
    lake.cache.pin(KEYED)
    stop = threading.Event()
    problems: list[object] = []
    reads = [0]

    def read() -> None:
        last = 0
        while not stop.is_set():
            [row] = lake.sql(f"SELECT count(*) AS c, min(n) AS low, max(n) AS high FROM {KEYED}").rows()
            if row["c"] != 100 or row["low"] != row["high"] or row["low"] < last:
                problems.append(row)
            last = row["low"]
            reads[0] += 1

    def refresh() -> None:
        while not stop.is_set():
            lake.operations.queries.cache.refresh(lake.operations.tables.open(TableName.parse(KEYED)))
            time.sleep(0.1)

    lake.table(KEYED).upsert([{"id": n, "v": "v", "n": 0} for n in range(100)])
    threads = [threading.Thread(target=read) for _ in range(4)] + [threading.Thread(target=refresh)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 4
    turn = 0
    while time.monotonic() < deadline and not problems:
        turn += 1
        lake.table(KEYED).upsert([{"id": n, "v": "v", "n": turn} for n in range(100)])
    stop.set()
    for thread in threads:
        thread.join(30)
    assert problems == []
    assert turn > 5
    assert reads[0] > 20


def test_hot_is_refused_where_it_cannot_serve(lake: Lake) -> None:
    with pytest.raises(CallerError, match=f"{PLAIN} is not in memory"):
        lake.sql(f"SELECT * FROM {PLAIN}", engine="hot")
    lake.cache.pin(PLAIN)
    for travelling in (f"{PLAIN} VERSION AS OF 0", "hot.t.__raw__plain"):
        with pytest.raises(CallerError, match="cannot run"):
            lake.sql(f"SELECT * FROM {travelling}", engine="hot")
        assert lake.sql(f"SELECT count(*) AS n FROM {travelling}").engine == "local"


def test_a_load_in_the_background_that_fails_is_logged_and_shown_until_one_succeeds(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise Overloaded("there is no room")

    with opened(settings, cache_auto_reads=1) as lake:
        lake.create_table(PLAIN, SCHEMA).append(rows(1, 2))
        with monkeypatch.context() as patch, caplog.at_level("WARNING", logger="crannog.engine"):
            patch.setattr(HotCache, "_load_snapshot", fail)
            deadline = time.monotonic() + 30
            while not any(task["failures"] > 1 for task in lake.tasks()) and time.monotonic() < deadline:
                assert lake.sql(f"SELECT count(*) AS n FROM {PLAIN}").engine == "local"
        assert [record.getMessage() for record in caplog.records] == [
            f"cannot load {PLAIN} into memory, reading its files instead: there is no room"
        ]
        [failed] = lake.cache.stats()["tables"]
        assert (failed["name"], failed["state"], failed["error"]) == (PLAIN, "failed", "there is no room")
        [task] = lake.tasks()
        assert (task["task_name"], task["status"]) == (f"hot_load:{PLAIN}", "idle")
        assert json.loads(task["last_result"]) == {"error": "there is no room"}
        lake.cache.pin(PLAIN)
        [held] = lake.cache.stats()["tables"]
        assert (held["state"], held["error"]) == ("pinned", None)
        assert lake.tasks() == []
