"""Tables: made, found, described, closed and woken, dropped; and what other processes do to them meanwhile."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import BaseModel

import crannog
from crannog.embedded import EmbeddedLake as Lake
from crannog.errors import BadRows, CallerError, Conflict, NotFound, Refused, SchemaMismatch, Unavailable
from crannog.names import TableName
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from lakes import canonical, engine, every_file, log_entries, opened, read_delta_rs, root

NAME = "shop.eu.orders"
ORDERS = pa.schema([("order_id", pa.string()), ("n", pa.int64()), ("note", pa.string())])


@pytest.fixture
def lake(settings: Settings) -> Iterator[Lake]:
    with opened(settings) as lake:
        yield lake


@pytest.fixture
def other(lake: Lake, settings: Settings) -> Iterator[Lake]:
    """The same warehouse as another process would have it."""
    with opened(settings) as other:
        yield other


# -- creating --------------------------------------------------------------------------------------------------


def test_a_new_table_is_an_empty_delta_table_with_its_system_columns(lake: Lake) -> None:
    table = lake.create_table(NAME, ORDERS, key="order_id")
    assert table.name == NAME
    assert table.key == ("order_id",)
    assert table.schema.names == ["order_id", "n", "note", "_created_at", "_batch_id"]
    assert not table.schema.field("order_id").nullable
    assert table.schema.field("n").nullable
    assert table.to_arrow().num_rows == table.count() == table.preview().num_rows == 0
    assert read_delta_rs(root(lake, NAME)).num_rows == 0
    [entry] = log_entries(root(lake, NAME)).values()
    assert [next(iter(action)) for action in entry] == ["commitInfo", "protocol", "metaData"]
    dated = lake.create_table("shop.eu.dated", ORDERS, partition_by="_date")
    assert dated.schema.names[-1] == "_date"
    dated.append([{"order_id": "a", "n": 1}])
    assert dated.to_arrow()["_date"].to_pylist() == [dt.datetime.now(dt.UTC).date()]


def test_creating_again_follows_if_exists(lake: Lake, other: Lake) -> None:
    lake.create_table(NAME, ORDERS, key="order_id").append([{"order_id": "a", "n": 1}])
    reordered = pa.schema(list(reversed(ORDERS)))
    for connection in (lake, other):
        assert connection.create_table(NAME, ORDERS, key=["order_id"], if_exists="ok").count() == 1
        assert connection.create_table(NAME, reordered, key=["order_id"], if_exists="ok").count() == 1
        with pytest.raises(Conflict, match="exists with the same definition; set if_exists to ok"):
            connection.create_table(NAME, ORDERS, key=["order_id"])
    with pytest.raises(CallerError, match="if_exists"):
        lake.create_table(NAME, ORDERS, key=["order_id"], if_exists="replace")
    assert len(log_entries(root(lake, NAME))) == 1


@pytest.mark.parametrize("if_exists", ["error", "ok"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": pa.schema([*ORDERS, ("extra", pa.int32())])}, "column extra (int32) is new"),
        ({"schema": pa.schema(list(ORDERS)[:2])}, "column note is missing"),
        (
            {"schema": pa.schema([ORDERS.field(0), ("n", pa.string()), ORDERS.field(2)])},
            "column n is int64, proposed is string",
        ),
        (
            {"schema": pa.schema([ORDERS.field(0), ORDERS.field(1).with_nullable(False), ORDERS.field(2)])},
            "column n is nullable",
        ),
        ({"key": ["order_id", "n"]}, "its key is ['order_id'], requested ['order_id', 'n']"),
        ({"key": None}, "its key is ['order_id'], requested []"),
        ({"key": None, "partition_by": ["note"]}, "it is partitioned by [], requested ['note']"),
    ],
)
def test_another_definition_is_a_conflict_that_shows_the_difference(
    lake: Lake, changes: dict[str, Any], words: str, if_exists: str
) -> None:
    lake.create_table(NAME, ORDERS, key=["order_id"])
    with pytest.raises(Conflict) as raised:
        lake.create_table(NAME, **({"schema": ORDERS, "key": ["order_id"]} | changes), if_exists=if_exists)
    assert words in raised.value.message
    assert NAME in raised.value.message
    assert raised.value.http_status == 409


def test_two_that_create_at_once_end_with_one_table(settings: Settings) -> None:
    lakes = [opened(settings) for _ in range(4)]
    outcomes: list[str] = []
    gate = threading.Barrier(4)

    def create(lake: Lake) -> None:
        gate.wait(10)
        try:
            lake.create_table(NAME, ORDERS, key=["order_id"])
            outcomes.append("made")
        except Conflict:
            outcomes.append("conflict")

    threads = [threading.Thread(target=create, args=(each,)) for each in lakes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(outcomes) == ["conflict", "conflict", "conflict", "made"]
    ids = {each.table(NAME).describe()["table_id"] for each in lakes}
    assert len(ids) == 1
    for number, each in enumerate(lakes):
        each.table(NAME).append([{"order_id": str(number), "n": number}])
    assert {each.table(NAME).count() for each in lakes} == {4}
    assert [path.name for path in (root(lakes[0], NAME) / "_crannog").iterdir()] == list(ids)
    for each in lakes:
        each.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": ["missing"]}, "missing"),
        ({"key": ["order_id", "order_id"]}, "twice"),
        ({"partition_by": ["missing"]}, "missing"),
        ({"cluster_by": ["missing"]}, "cluster_by has the column missing"),
        ({"bloom": ["missing"]}, "bloom has the column missing"),
        ({"key": ["order_id"], "partition_by": ["note"]}, "cannot be partitioned"),
        ({"key": ["order_id"], "partition_by": ["order_id"]}, "both key and partition"),
        ({"key": [7]}, "list of column names"),
        ({"schema": pa.schema([])}, "at least one column"),
        ({"schema": pa.schema([("_mine", pa.int64())])}, "reserved"),
        ({"schema": pa.schema([("t", pa.time64("us"))])}, "use int64 or string"),
        ({"schema": pa.schema([("a", pa.struct([("b", pa.list_(pa.uint8()))]))])}, "a.b[]"),
        ({"schema": "text"}, "a schema is"),
    ],
)
def test_what_cannot_be_a_table_is_refused_and_leaves_nothing(lake: Lake, options: dict[str, Any], words: str) -> None:
    with pytest.raises(CallerError, match=words.replace("[", r"\[").replace("]", r"\]")):
        lake.create_table(NAME, **({"schema": ORDERS} | options))
    assert lake.tables() == []
    assert every_file(Path(lake.operations.warehouse.location)) == {}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "orders",
        "eu.orders",
        "a.b.c.d",
        "a..c",
        ".b.c",
        "a.b.",
        "../x.b.c",
        "a.../etc.c",
        "a.b.c/../../d",
        "a.b./etc/passwd",
        "a.b.c\x00",
        "a.b.c\n",
        "a b.c.d",
        "a.b.~",
        "-a.b.c",
        "_a.b.c",
        "a._delta_log.c",
        "a.b._crannog",
        "ä.b.c",
        "a.b.c%2e%2e",
        "a.b." + "c" * 129,
        "a\\b.c.d",
        "*.b.c",
    ],
)
def test_bad_names_are_refused_and_touch_nothing(lake: Lake, tmp_path: Path, name: str) -> None:
    before = every_file(tmp_path)
    with pytest.raises(CallerError):
        lake.create_table(name, ORDERS)
    with pytest.raises(CallerError):
        lake.table(name)
    with pytest.raises(CallerError):
        lake.drop_table(name)
    assert every_file(tmp_path) == before


def test_a_name_is_text(lake: Lake) -> None:
    for name in (None, 7, b"a.b.c", ["a", "b", "c"]):
        with pytest.raises(CallerError):
            lake.create_table(name, ORDERS)  # type: ignore[arg-type]
        with pytest.raises(CallerError):
            lake.table(name)  # type: ignore[arg-type]


def test_the_same_name_in_two_catalogs_is_two_tables(lake: Lake) -> None:
    names = ["one.eu.orders", "two.eu.orders", "one.us.orders", "one.eu.orders-2", "three.eu.orders"]
    for number, name in enumerate(names):
        lake.create_table(name, ORDERS, key="order_id").append([{"order_id": "same", "n": number}])
    assert lake.tables() == sorted(names)
    assert [lake.table(name).to_arrow()["n"].to_pylist() for name in names] == [[0], [1], [2], [3], [4]]
    lake.table("one.eu.orders").delete(["same"])
    assert [lake.table(name).count() for name in names] == [0, 1, 1, 1, 1]
    lake.drop_table("one.eu.orders")
    assert lake.tables() == sorted(names[1:])


def test_a_pydantic_model_makes_the_table_its_rows_fit(lake: Lake) -> None:
    class Line(BaseModel):
        sku: str
        count: int | None = None

    class Order(BaseModel):
        order_id: str
        placed: dt.datetime
        due: dt.date | None = None
        total: Decimal
        lines: list[Line] = []
        labels: dict[str, str] = {}

    table = lake.create_table(NAME, Order, key="order_id")
    assert table.schema.field("placed").type == pa.timestamp("us", tz="UTC")
    placed = dt.datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
    order = Order(order_id="a", placed=placed, total=Decimal("1.5"), lines=[Line(sku="x", count=2)], labels={"k": "v"})
    table.append([order, order.model_dump() | {"order_id": "b"}])
    first, second = table.to_arrow().sort_by("order_id").to_pylist()
    assert first["lines"] == second["lines"] == [{"sku": "x", "count": 2}]
    assert first["placed"] == placed
    assert first["total"] == Decimal("1.5")
    assert dict(first["labels"]) == {"k": "v"}
    with pytest.raises(BadRows, match="row 0"):
        table.append([{"order_id": "c", "placed": "not a time", "total": 1}])


def test_a_json_schema_makes_a_table(lake: Lake) -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "when": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "place": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}},
        },
        "required": ["id"],
    }
    table = lake.create_table(NAME, schema, key=["id"])
    table.append([{"id": 1, "when": "2024-01-02T03:04:05Z", "tags": ["a"], "place": {"lat": 1.5, "lon": None}}])
    [row] = table.to_arrow().to_pylist()
    assert row["place"] == {"lat": 1.5, "lon": None}
    assert row["when"] == dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert lake.create_table(NAME, schema, key=["id"], if_exists="ok").count() == 1


def test_a_struct_that_is_null_although_its_fields_are_not(lake: Lake, spark: SparkRuntime) -> None:
    """The field may not be null where the struct is there; where it is not, the field is hidden, not null."""
    place = pa.struct([pa.field("lat", pa.float64(), nullable=False), pa.field("name", pa.string())])
    schema = pa.schema(
        [("k_id", pa.string()), ("place", place), ("stops", pa.list_(pa.field("element", place, nullable=False)))]
    )
    table = lake.create_table(NAME, schema, key="k_id")
    rows = [
        {"k_id": "a", "place": None, "stops": None},
        {"k_id": "b", "place": {"lat": 1.5, "name": None}, "stops": [{"lat": 2.5, "name": "x"}]},
        {"k_id": "c", "place": None, "stops": []},
    ]
    table.append(rows)
    assert canonical(table.to_arrow()) == canonical(rows)
    table.fold()
    assert canonical(table.to_arrow()) == canonical(rows)
    assert canonical(table.to_spark().toArrow()) == canonical(rows)
    table.delete(["c"])
    assert canonical(table.to_arrow()) == canonical(rows[:2])
    with pytest.raises((BadRows, SchemaMismatch)):
        table.append([{"k_id": "d", "place": {"lat": None, "name": "x"}}])


# -- finding, describing, dropping -----------------------------------------------------------------------------


def test_what_is_not_there(lake: Lake) -> None:
    for act in (lambda: lake.table(NAME), lambda: lake.drop_table(NAME)):
        with pytest.raises(NotFound, match=NAME.replace(".", r"\.")):
            act()
    assert lake.tables() == []


def test_describe_history_and_preview(lake: Lake, spark: SparkRuntime) -> None:
    table = lake.create_table(NAME, ORDERS, key="order_id", cluster_by=["n"])
    before = table.describe()
    assert (before["name"], before["version"], before["sequence"], before["rows"], before["files"]) == (
        NAME,
        0,
        0,
        0,
        0,
    )
    assert (before["key"], before["cluster_by"], before["partition_by"]) == (["order_id"], ["n"], [])
    assert before["columns"][0] == {"name": "order_id", "type": "string", "nullable": False}
    assert abs((dt.datetime.now(dt.UTC) - before["created_at"]).total_seconds()) < 60
    table.append([{"order_id": f"o{number}", "n": number} for number in range(10)])
    table.fold()
    table.upsert([{"order_id": "o1", "n": -1}, {"order_id": "new", "n": 99}])
    table.delete(["o2"])
    after = table.describe()
    assert (after["version"], after["sequence"], after["folded_sequence"]) == (1, 3, 1)
    assert (after["rows"], after["base_rows"], after["staged_rows"], after["staged_files"]) == (10, 10, 3, 2)
    assert after["bytes"] == sum(path.stat().st_size for path in (root(lake, NAME) / "data").rglob("*.parquet"))
    assert after["fingerprint"] == before["fingerprint"]
    assert json.loads(json.dumps(after, default=str))["name"] == NAME
    assert [entry["operation"] for entry in table.history()] == ["FOLD", "CREATE TABLE"]
    assert [entry["version"] for entry in table.history(limit=1)] == [1]
    assert table.preview(3).num_rows == 3
    assert table.preview(0).num_rows == 0
    assert table.preview().num_rows == 10
    assert table.preview(raw=True).num_rows == 11
    assert lake.table("shop.eu.__raw__orders").preview().num_rows == 11
    with pytest.raises(CallerError):
        table.preview(-1)


def test_dropped_and_made_again(lake: Lake, other: Lake) -> None:
    table = lake.create_table(NAME, ORDERS, key="order_id")
    table.append([{"order_id": "old", "n": 1}], batch_id="b1")
    old_id = table.describe()["table_id"]
    stale = other.table(NAME)
    assert stale.count() == 1
    lake.drop_table(NAME)
    assert lake.tables() == other.tables() == []
    assert not root(lake, NAME).exists()
    for act in (
        table.count,
        stale.count,
        lambda: stale.append([{"order_id": "x", "n": 1}]),
        table.fold,
        table.describe,
    ):
        with pytest.raises(NotFound):
            act()
    assert not root(lake, NAME).exists(), "a writer to a dropped table does not bring its folder back"
    with pytest.raises(NotFound):
        other.table(NAME)
    again = lake.create_table(NAME, pa.schema([("k", pa.int64())]))
    assert again.describe()["table_id"] != old_id
    assert again.count() == 0
    # Neither the rows nor the batch ids of the old one are known to the new one, in either process.
    assert again.append([{"k": 1}], batch_id="b1").duplicate is False
    assert stale.count() == 1
    assert stale.schema.names[0] == "k"
    assert stale.append([{"k": 2}]).sequence == 2
    assert table.count() == 2
    with pytest.raises((BadRows, SchemaMismatch)):
        stale.append([{"order_id": "x", "n": 1}])


def test_foreign_and_newer_tables_are_refused_by_name(lake: Lake, tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(str(root(lake, "shop.eu.foreign")), pa.table({"n": [1]}))
    with pytest.raises(Refused, match=r"shop\.eu\.foreign is a Delta table that Crannog did not create"):
        lake.table("shop.eu.foreign")
    lake.create_table(NAME, ORDERS)
    entry = root(lake, NAME) / "_delta_log" / f"{0:020}.json"
    entry.write_text(entry.read_text().replace('"crannog.formatVersion":"1"', '"crannog.formatVersion":"2"'))
    with opened(lake.settings) as newer, pytest.raises(Refused, match="upgrade"):
        newer.table(NAME)


def test_folders_that_are_no_tables_are_not_listed(lake: Lake) -> None:
    lake.create_table(NAME, ORDERS)
    place = Path(lake.operations.warehouse.location)
    (place / "shop" / "eu" / "nothing").mkdir()
    (place / "shop" / "eu" / "file").write_text("x")
    (place / "_other" / "a" / "b" / "_delta_log").mkdir(parents=True)
    (place / "stray").write_text("x")
    assert lake.tables() == [NAME]


# -- open tables -----------------------------------------------------------------------------------------------


def test_at_most_so_many_tables_are_open_and_any_use_wakes_one(settings: Settings) -> None:
    with opened(settings, open_tables=2) as lake:
        names = [f"shop.eu.t{number}" for number in range(5)]
        tables = [lake.create_table(name, ORDERS, key="order_id") for name in names]
        for number, table in enumerate(tables):
            table.append([{"order_id": "a", "n": number}])
            assert len(lake.operations.tables.opened()) <= 2
        for _ in range(2):
            for number, table in enumerate(tables):
                table.append([{"order_id": "b", "n": number}], batch_id=f"twice-{number}")
                assert table.count() == 2
                assert sorted(table.to_arrow()["n"].to_pylist()) == [number, number]
                assert lake.operations.tables.opened()[-1].name == TableName.parse(table.name)
                assert len(lake.operations.tables.opened()) <= 2
        tables[0].delete(["a"])
        tables[3].count()
        tables[4].count()
        assert TableName.parse(names[0]) not in [table.name for table in lake.operations.tables.opened()]
        assert tables[0].count() == 1
        assert [entry["key"] for entry in tables[0].tombstones()] == [{"order_id": "a"}]


def test_idle_tables_close_and_wake(settings: Settings) -> None:
    with opened(settings, idle_close_s=0.05) as lake:
        first = lake.create_table("shop.eu.first", ORDERS)
        first.append([{"order_id": "a", "n": 1}])
        assert [str(table.name) for table in lake.operations.tables.opened()] == ["shop.eu.first"]
        time.sleep(0.1)
        lake.operations.tables.close_idle()
        assert lake.operations.tables.opened() == []
        assert first.count() == 1
        time.sleep(0.1)
        # Opening another one is enough.
        lake.create_table("shop.eu.second", ORDERS).append([{"order_id": "b", "n": 2}])
        assert [str(table.name) for table in lake.operations.tables.opened()] == ["shop.eu.second"]
        assert first.append([{"order_id": "c", "n": 3}]).sequence == 2


def test_a_table_closed_under_a_writer_loses_nothing(settings: Settings) -> None:
    """Two handles, one of them of a table that was closed meanwhile, are as good as two processes."""
    with opened(settings, open_tables=1) as lake:
        one, two = (lake.create_table(f"shop.eu.t{number}", ORDERS) for number in (1, 2))
        held = engine(one)
        two.append([{"order_id": "x", "n": 0}])
        assert held is not engine(one)

        def write(number: int) -> None:
            for step in range(20):
                target = held if number % 2 else engine(one)
                target.write("append", [{"order_id": f"{number}-{step}", "n": step}], None)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert one.count() == 80
        assert len(set(one.to_arrow()["order_id"].to_pylist())) == 80


def test_a_closed_connection_says_so(settings: Settings) -> None:
    lake = opened(settings)
    table = lake.create_table(NAME, ORDERS)
    lake.close()
    lake.close()
    for act in (
        table.count,
        lambda: table.append([{"n": 1}]),
        lake.tables,
        lambda: lake.table(NAME),
        lambda: lake.drop_table(NAME),
    ):
        with pytest.raises(CallerError, match="closed"):
            act()
    with pytest.raises(CallerError, match="closed"):
        lake.create_table("shop.eu.more", ORDERS)


# -- other processes -------------------------------------------------------------------------------------------


def test_what_others_do_is_seen_at_the_next_read(lake: Lake, other: Lake, spark: SparkRuntime) -> None:
    mine = lake.create_table(NAME, ORDERS, key="order_id")
    theirs = other.table(NAME)
    for number in range(3):
        theirs.append([{"order_id": f"t{number}", "n": number}])
        assert mine.count() == number + 1
    theirs.delete(["t0"])
    assert sorted(mine.to_arrow()["order_id"].to_pylist()) == ["t1", "t2"]
    assert [entry["key"] for entry in mine.tombstones()] == [{"order_id": "t0"}]
    theirs.fold()
    assert mine.describe()["version"] == 1
    assert mine.tombstones() == []
    assert sorted(mine.to_arrow()["order_id"].to_pylist()) == ["t1", "t2"]
    theirs.evolve(pa.schema([*ORDERS, ("extra", pa.int64())]))
    mine.append([{"order_id": "t9", "n": 9, "extra": 7}])
    assert mine.schema.names[3] == "extra"
    assert canonical(theirs.to_arrow()) == canonical(mine.to_arrow())
    mine.compact()
    assert theirs.count() == 3


def test_a_refresh_that_fails_leaves_the_old_snapshot_serving(
    lake: Lake, other: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = lake.create_table(NAME, ORDERS, key="order_id")
    mine.append([{"order_id": "a", "n": 1}])
    open_table = engine(mine)
    before = open_table.snapshot()
    other.table(NAME).append([{"order_id": "b", "n": 2}])
    storage = lake.operations.warehouse.storage
    for call in ("names", "read"):
        failing = pytest.MonkeyPatch()

        def away(*_: object, **__: object) -> Any:
            raise Unavailable("the storage is away")

        failing.setattr(storage, call, away)
        with pytest.raises(Unavailable, match="away"):
            open_table.snapshot()
        base, tail = open_table.log.last_seen()
        assert (base.version, tail.end) == (before.base.version, before.sequence), call
        assert open_table.to_arrow(snapshot=before).num_rows == 1
        assert open_table.count(snapshot=before) == 1
        failing.undo()
    assert mine.count() == 2


def test_reads_cost_no_file_reads_when_nothing_changed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create_table(NAME, ORDERS, key="order_id")
    table.append([{"order_id": "a", "n": 1}])
    assert table.count() == 1
    reads: list[str] = []
    storage = lake.operations.warehouse.storage
    read = storage.read
    monkeypatch.setattr(storage, "read", lambda path: reads.append(path) or read(path))
    for _ in range(3):
        assert table.to_arrow().num_rows == 1
    assert reads == []


# -- without Spark ---------------------------------------------------------------------------------------------

WITHOUT_JAVA = """
import json, sys
import pyarrow as pa
import crannog

with crannog.connect(sys.argv[1]) as lake:
    table = lake.create_table("shop.eu.orders", pa.schema([("k_id", pa.string()), ("n", pa.int64())]), key="k_id")
    plain = lake.create_table("shop.eu.log", pa.schema([("n", pa.int64())]), partition_by="_date")
    table.append([{"k_id": "a", "n": 1}, {"k_id": "b", "n": 2}])
    table.upsert([{"k_id": "a", "n": 3}])
    table.delete(["b"])
    plain.append([{"n": 1}] * 5)
    table.evolve(pa.schema([("k_id", pa.string()), ("n", pa.int64()), ("extra", pa.string())]))
    seen = {
        "rows": table.to_arrow().select(["k_id", "n", "extra"]).to_pylist(),
        "raw": table.count(raw=True),
        "plain": plain.count(),
        "tombstones": len(table.tombstones()),
        "history": len(table.history()),
        "tables": lake.tables(),
        "plan": table.compact(dry_run=True).plan,
        "vacuum": table.vacuum().files_deleted,
        "spark": "pyspark" in sys.modules,
    }
    for verb in ("fold", "compact"):
        try:
            getattr(table, verb)()
        except crannog.Unavailable as error:
            seen[verb] = [error.http_status, error.message]
    table.append([{"k_id": "c", "n": 4}])
    seen["after"] = table.count()
    print(json.dumps(seen))
"""


def test_everything_but_the_pipeline_works_without_java(tmp_path: Path) -> None:
    broken = tmp_path / "no-java"
    broken.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CRANNOG_", "JAVA"))}
    environment |= {"JAVA_HOME": str(broken), "CRANNOG_JAVA_HOME": str(broken), "PATH": str(broken)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAVA, str(tmp_path / "warehouse")],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["rows"] == [{"k_id": "a", "n": 3, "extra": None}]
    assert (seen["raw"], seen["plain"], seen["tombstones"], seen["history"], seen["after"]) == (2, 5, 1, 2, 2)
    assert seen["tables"] == ["shop.eu.log", "shop.eu.orders"]
    assert seen["plan"] == ["fold 3 staged changes of 4 rows"]
    assert seen["spark"] is False, "nothing of this may even load Spark"
    for verb in ("fold", "compact"):
        status, message = seen[verb]
        assert status == 503
        assert "java" in message.lower()


def test_connect_refuses_what_it_cannot_open(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for location, words in (
        (str(file), "is a file"),
        ("", "not a valid warehouse location"),
        ("ftp://x/y", "cannot keep a warehouse"),
        ("file://host/x", "not absolute"),
    ):
        with pytest.raises(CallerError, match=words):
            crannog.connect(location)
    with pytest.raises(CallerError, match="token"):
        crannog.connect(str(tmp_path), token="x")
    with pytest.raises(CallerError, match="fold_rows"):
        crannog.connect(str(tmp_path / "w"), fold_rows=0)
    with crannog.connect(str(tmp_path / "deep" / "er"), open_tables=3) as lake:
        assert lake.settings.open_tables == 3
        assert lake._scheduler is None
