"""Fold, compact, expire, vacuum, evolve: exact reports, verified before they commit, taken back without a trace."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from crannog.api.reports import Cancellation, FoldReport
from crannog.delta.log import DataFile
from crannog.delta.rewrite import RunAgain
from crannog.embedded import EmbeddedLake as Lake
from crannog.embedded import EmbeddedTable as Table
from crannog.engine.maintenance import compact as compact_module
from crannog.engine.maintenance import rewrite_without as drop_module
from crannog.engine.maintenance.compact import CompactionLimits, files_to_compact
from crannog.engine.maintenance.evolve import evolve
from crannog.engine.maintenance.expire import expire
from crannog.engine.maintenance.job import Job
from crannog.engine.maintenance.unreferenced_files import LogEntry
from crannog.engine.maintenance.vacuum import folded_before
from crannog.errors import CallerError, Cancelled, Unavailable, VerificationFailed
from crannog.names import TableName
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime, spark_runtime
from crannog.storage import failpoints
from crannog.tables import operations as table_module
from forcing import change_tasks, spoil_files
from lakes import (
    DAY,
    INSTANT,
    canonical,
    engine,
    every_file,
    live_files,
    opened,
    read_delta_rs,
    read_everywhere,
    read_polars,
    readable_versions,
    root,
)

NAME = "shop.eu.orders"
ORDERS = pa.schema([("order_id", pa.string()), ("n", pa.int64()), ("day", pa.date32())])
FIRST = dt.date(2024, 1, 1)


@pytest.fixture
def lake(settings: Settings, spark: SparkRuntime) -> Iterator[Lake]:
    with opened(settings) as lake:
        yield lake


def rows(start: int, count: int, **changes: Any) -> list[dict[str, Any]]:
    return [
        {"order_id": f"o{n:05}", "n": n, "day": FIRST + n % 10 * DAY} | changes for n in range(start, start + count)
    ]


def settle(lake: Lake) -> None:
    """Wait for the work behind the scenes."""
    done = lake.operations.warehouse.in_background(lambda: None)
    assert done is not None
    done.result(60)


def sizes(lake: Lake, name: str = NAME) -> int:
    return sum(file.stat().st_size for file in live_files(root(lake, name)))


# -- fold ------------------------------------------------------------------------------------------------------


def test_a_fold_reports_what_it_did(lake: Lake) -> None:
    table = lake.create_table(NAME, ORDERS, key="order_id")
    nothing = table.fold()
    assert (nothing.version, nothing.changes, nothing.final_rows) == (None, 0, 0)
    table.append(rows(0, 100))
    table.append(rows(90, 20))
    first = table.fold()
    assert (first.folded_to, first.version, first.changes, first.staged_rows) == (2, 1, 2, 120)
    assert (first.base_rows, first.final_rows, first.tombstones_applied) == (0, 110, 0)
    assert (first.files_before, first.files_after, first.files_rewritten) == (0, 1, 0)
    assert (first.bytes_before, first.bytes_after, first.bytes_written) == (0, sizes(lake), sizes(lake))
    table.upsert([*rows(5, 1, n=-5), *rows(500, 1)])
    table.delete(["o00001", "o00002", "missing"], actor="me", reason="test")
    table.delete(["o00500"])
    second = table.fold()
    assert (second.folded_to, second.version, second.changes, second.staged_rows) == (5, 2, 3, 6)
    assert (second.base_rows, second.final_rows) == (110, 108)
    assert (second.tombstones_applied, second.rows_dropped_by_tombstones) == (4, 3)
    assert (second.files_before, second.files_after, second.files_rewritten) == (1, 1, 1)
    assert (second.bytes_before, second.bytes_after) == (first.bytes_after, sizes(lake))
    assert second.write_amplification > 0
    again = table.fold()
    assert (again.version, again.changes, again.base_rows, again.final_rows) == (None, 0, 108, 108)
    assert set(again.as_dict()) == set(FoldReport.__slots__)
    # Everything is deleted: no file is left, and none is written.
    table.delete([row["order_id"] for row in table.to_arrow().to_pylist()])
    last = table.fold()
    assert (last.final_rows, last.files_after, last.bytes_after, last.rows_dropped_by_tombstones) == (0, 0, 0, 108)
    assert table.count() == 0
    assert read_delta_rs(root(lake, NAME)).num_rows == 0


def test_the_last_change_of_a_key_wins_and_order_is_commit_order(lake: Lake) -> None:
    table = lake.create_table(NAME, ORDERS, key="order_id")
    table.append(rows(0, 4))
    table.fold()
    table.upsert(rows(0, 1, n=10))
    table.delete(["o00000"])
    table.upsert(rows(0, 1, n=20))
    table.upsert(rows(1, 1, n=30))
    table.delete(["o00001"])
    table.delete(["o00002"])
    table.upsert([*rows(3, 1, n=40), *rows(3, 1, n=41)])
    expected = [("o00000", 20), ("o00003", 41)]
    for _ in range(2):
        assert sorted((row["order_id"], row["n"]) for row in table.to_arrow().to_pylist()) == expected
        assert table.count() == 2
        table.fold()


def test_progress_and_tombstones_of_a_fold(lake: Lake) -> None:
    table = lake.create_table(NAME, ORDERS, key="order_id")
    table.append(rows(0, 5))
    before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)
    table.delete(["o00001", "gone"], actor="ann", reason="asked")
    listed = table.tombstones()
    assert [(entry["key"], entry["outcome"]) for entry in listed] == [
        ({"order_id": "o00001"}, "hidden"),
        ({"order_id": "gone"}, "not there"),
    ]
    assert {(entry["actor"], entry["reason"], entry["sequence"]) for entry in listed} == {("ann", "asked", 2)}
    assert all(before <= entry["deleted_at"] <= dt.datetime.now(dt.UTC) for entry in listed)
    steps: list[tuple[str, float]] = []
    table.fold(progress=lambda step, share: steps.append((step, share)))
    assert [step for step, _ in steps] == ["look up changed keys", "write files with Spark", "verify", "commit"]
    shares = [share for _, share in steps]
    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)
    assert table.tombstones() == []
    applied = table.audit()
    assert [(entry["actor"], entry["outcome"]) for entry in applied] == [("ann", "hidden"), ("ann", "not there")]
    assert "o00001" not in json.dumps(applied, default=str)


@pytest.mark.slow
def test_a_partitioned_table_has_one_partition_in_each_file(lake: Lake) -> None:
    table = lake.create_table(NAME, ORDERS, partition_by=["day"])
    table.append([*rows(0, 30), {"order_id": "none", "n": None, "day": None}])
    report = table.fold()
    assert (report.files_after, report.final_rows) == (11, 31)
    for file in live_files(root(lake, NAME)):
        assert len(pc.unique(pq.read_table(file)["day"])) == 1
    table.append(rows(30, 10))
    assert table.fold().files_after == 21
    compacted = table.compact()
    assert (compacted.files_before, compacted.files_after, compacted.final_rows) == (21, 11, 41)
    assert canonical(table.to_arrow()) == canonical(read_delta_rs(root(lake, NAME)))


# -- the seed's end-to-end run ---------------------------------------------------------------------------------

WIDE = pa.schema(
    [("order_id", pa.string())]
    + [(f"i{number}", pa.int64()) for number in range(5)]
    + [(f"f{number}", pa.float64()) for number in range(4)]
    + [(f"s{number}", pa.string()) for number in range(3)]
    + [("at", INSTANT), ("flag", pa.bool_())]
)
MANY = 100_000


def wide_rows() -> pa.Table:
    numbers = np.arange(MANY)
    columns: dict[str, Any] = {"order_id": [f"order-{number:06}" for number in numbers]}
    columns |= {f"i{number}": numbers * (number + 1) for number in range(5)}
    columns |= {f"f{number}": numbers / (number + 3) for number in range(4)}
    columns |= {f"s{number}": [f"text {row % (number + 7)}" for row in numbers] for number in range(3)}
    columns |= {"at": pa.array(1_700_000_000_000_000 + numbers, INSTANT), "flag": numbers % 2 == 0}
    return pa.table(columns, schema=WIDE)


@pytest.mark.parametrize(
    "folded", [pytest.param(True, id="folded before"), pytest.param(False, id="all staged", marks=pytest.mark.slow)]
)
def test_the_seeds_end_to_end_run(settings: Settings, spark: SparkRuntime, folded: bool) -> None:
    assert len(WIDE) == 15
    doomed = ["order-000000", "order-050000", "order-099999"]
    with opened(settings) as lake:
        table = lake.create_table(NAME, WIDE, key="order_id")
        table.append(wide_rows())
        if folded:
            assert table.fold().final_rows == MANY
        before = sizes(lake) if folded else None
        table.delete(doomed, actor="me", reason="test")
        assert table.count() == table.to_arrow().num_rows == MANY - 3
        assert table.count(raw=True) == MANY
        assert table.preview(MANY + 1, raw=True).num_rows == MANY
        assert lake.table("shop.eu.__raw__orders").count() == MANY
        assert len(table.tombstones()) == 3
        report = table.compact()
        assert (report.tombstones_applied, report.rows_dropped_by_tombstones) == (3, 3)
        assert report.final_rows == MANY - 3
        assert (report.base_rows, report.delta_rows, report.deltas_merged) == (
            (MANY, 3, 1) if folded else (0, MANY + 3, 2)
        )
        assert (report.files_after, report.bytes_after) == (len(live_files(root(lake, NAME))), sizes(lake))
        if before is not None:
            assert report.bytes_before == before
            assert report.bytes_after <= 1.05 * report.bytes_before
    with opened(settings) as lake:
        table = lake.table(NAME)
        assert table.count(raw=True) == table.count() == MANY - 3
        assert table.tombstones() == []
        ids = pa.concat_tables([pq.read_table(file, columns=["order_id"]) for file in live_files(root(lake, NAME))])
        assert len(ids) == MANY - 3
        assert not pc.any(pc.is_in(ids["order_id"], pa.array(doomed))).as_py()
        assert not [file for file in live_files(root(lake, NAME)) if b"order-000000" in file.read_bytes()]


# -- compact ---------------------------------------------------------------------------------------------------

MIB = 1024**2


def files(*sizes: int | tuple[int, str]) -> list[DataFile]:
    """Files of these sizes in MiB, each with its partition if it has one."""
    made = []
    for number, each in enumerate(sizes):
        size, partition = each if isinstance(each, tuple) else (each, None)
        made.append(DataFile(f"data/{number:03}", size * MIB, size, {} if partition is None else {"day": partition}))
    return made


@pytest.mark.parametrize(
    ("candidates", "groups"),
    [
        ([], []),
        (files(1), []),
        (files(1, 1), [((0, 1), 1)]),
        (files(100, 100), []),
        (files(1, 100), []),
        (files(1, 100, 2), [((0, 2), 1)]),
        (files(59, 59), [((0, 1), 1)]),  # into one that is a little larger
        (files(59, 59, 59), [((0, 1, 2), 2)]),
        (files(60, 60, 60), []),  # large enough as they are
        (files(*[10] * 26), [(tuple(range(26)), 3)]),
        (files((1, "a"), (1, "b")), []),
        (files((1, "a"), (1, "b"), (2, "a")), [((0, 2), 1)]),
        (files((1, "a"), (1, "b"), (2, "a"), (2, "b")), [((0, 2), 1), ((1, 3), 1)]),
        (files(0, 0), [((0, 1), 1)]),
    ],
)
def test_which_files_are_worth_merging(candidates: list[DataFile], groups: list[tuple[tuple[int, ...], int]]) -> None:
    found = files_to_compact(candidates, CompactionLimits(target_bytes=100 * MIB))
    assert [(tuple(candidates.index(file) for file in group.files), group.output_files) for group in found] == groups
    for group in found:
        assert group.bytes == sum(file.size for file in group.files)
        assert group.reason.startswith(
            f"{len(group.files)} small files, {group.bytes:,} bytes, into {group.output_files}"
        )


def test_a_group_is_bounded_and_the_plan_does_not_depend_on_the_order() -> None:
    candidates = files(*[30] * 10)
    limits = CompactionLimits(target_bytes=100 * MIB, most_bytes_per_group=130 * MIB)
    found = files_to_compact(candidates, limits)
    assert [len(group.files) for group in found] == [4, 4, 2]
    assert all(group.bytes <= limits.most_bytes_per_group for group in found)
    assert files_to_compact(list(reversed(candidates)), limits) == found
    assert files_to_compact(candidates, CompactionLimits(target_bytes=100 * MIB, fewest=11)) == []


def test_a_compaction_reports_what_it_did(lake: Lake) -> None:
    table = lake.create_table(NAME, ORDERS, key="order_id")
    for start in (0, 100, 200):
        table.append(rows(start, 50))
        table.fold()
    before = sizes(lake)
    table.append(rows(300, 10))
    table.delete(["o00000", "nobody"])
    plan = table.compact(dry_run=True)
    steps: list[tuple[str, float]] = []
    report = table.compact(progress=lambda step, share: steps.append((step, share)))
    assert (report.base_rows, report.delta_rows, report.final_rows, report.deltas_merged) == (150, 12, 159, 2)
    assert (report.tombstones_applied, report.rows_dropped_by_tombstones) == (2, 1)
    assert (report.files_before, report.files_after) == (3, 1)
    assert (report.bytes_before, report.bytes_after) == (before, sizes(lake))
    assert report.version == table.describe()["version"] == 5
    assert report.seconds > 0
    assert report.skipped == ""
    assert len(report.plan) == 1
    assert plan.plan[0] == "fold 2 staged changes of 12 rows"
    assert plan.plan[1].startswith("merge 3 small files")
    assert (plan.base_rows, plan.delta_rows, plan.final_rows, plan.deltas_merged) == (150, 12, 159, 2)
    assert {step for step, _ in steps} >= {"write files with Spark", "verify", "commit"}
    assert all(0 <= share <= 1 for _, share in steps)
    ids = pq.read_table(live_files(root(lake, NAME))[0])["order_id"].to_pylist()
    assert ids == sorted(ids), "clustered by the key"
    again = table.compact()
    assert again.skipped == "no files are worth merging"
    assert (again.base_rows, again.final_rows, again.version, again.files_after) == (159, 159, None, 1)


def test_progress_does_not_go_back(lake: Lake) -> None:
    """A fold is the first part of a compaction, an expiry and an erasure, not a whole before another whole."""
    table = lake.create_table(NAME, ORDERS, key="order_id")
    for start in (0, 100):
        table.append(rows(start, 10))
        table.fold()
    acts: dict[str, Callable[[Any], object]] = {
        "compact": lambda progress: table.compact(progress=progress),
        "expire": lambda progress: table.expire(FIRST + 2 * DAY, column="day", progress=progress),
        "erase": lambda progress: table.erase(["o00005"], progress=progress),
    }
    for name, act in acts.items():
        table.append(rows(500, 5))
        shares: list[float] = []
        act(lambda _step, share, shares=shares: shares.append(share))
        assert len(shares) > 3, name
        assert shares == sorted(shares), name


def test_a_dry_run_changes_nothing(lake: Lake) -> None:
    table = lake.create_table(NAME, ORDERS, key="order_id")
    assert table.compact(dry_run=True).plan == ("nothing to do",)
    for start in (0, 100):
        table.append(rows(start, 50))
        table.fold()
    table.delete(["o00001"])
    before = every_file(root(lake, NAME))
    report = table.compact(dry_run=True)
    assert report.skipped == "dry run: nothing was changed"
    assert (report.files_before, report.files_after, report.final_rows) == (2, 2, 99)
    settle(lake)
    assert every_file(root(lake, NAME)) == before
    assert lake.tasks() == []


def test_a_vacuum_follows_a_compaction_and_its_failure_shows_in_the_tasks(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table(NAME, ORDERS)
    table.append(rows(0, 5))

    def fail(*_: object, **__: object) -> Any:
        raise Unavailable("the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(table_module, "vacuum", fail)
        assert table.compact().final_rows == 5
        settle(lake)
    [task] = lake.tasks()
    assert task["task_name"] == f"vacuum-after-compact:{NAME}"
    assert json.loads(task["last_result"]) == {"error": "the disk is away"}
    assert (task["status"], task["failures"]) == ("idle", 1)
    table.compact()
    settle(lake)
    [task] = lake.tasks()
    result = json.loads(task["last_result"])
    assert (result["retention_s"], result["raised_to_floor"], result["dry_run"]) == (3600.0, False, False)
    assert task["failures"] == 0


# -- expire ----------------------------------------------------------------------------------------------------


def test_expire_by_partition_drops_whole_files_without_spark(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create_table(NAME, ORDERS, partition_by=["day"])
    table.append([*rows(0, 40), {"order_id": "null", "n": 1, "day": None}])
    table.fold()
    before, bytes_before = len(live_files(root(lake, NAME))), sizes(lake)
    monkeypatch.setattr(drop_module, "_write", None)
    report = table.expire(FIRST + 3 * DAY)
    assert (report.column, report.before) == ("day", FIRST + 3 * DAY)
    assert (report.rows_dropped, report.rows_kept) == (12, 29)
    assert (report.files_dropped, report.files_rewritten) == (3, 0)
    assert (report.files_before, report.files_after) == (before, before - 3)
    assert (report.bytes_before, report.bytes_after) == (bytes_before, sizes(lake))
    assert min(day for day in table.to_arrow()["day"].to_pylist() if day is not None) == FIRST + 3 * DAY
    assert None in table.to_arrow()["day"].to_pylist(), "a row without a date is older than nothing"
    nothing = table.expire(FIRST)
    assert (nothing.rows_dropped, nothing.version) == (0, None)


def test_expire_by_column_rewrites_what_is_mixed(lake: Lake) -> None:
    schema = pa.schema([*ORDERS, ("at", INSTANT)])
    table = lake.create_table(NAME, schema, key="order_id")
    midnight = dt.datetime(2024, 1, 5, tzinfo=dt.UTC)
    ticks = [midnight - dt.timedelta(microseconds=1), midnight, midnight + dt.timedelta(microseconds=1), None]
    table.append([row | {"at": ticks[row["n"] % 4]} for row in rows(0, 40)])  # mixed
    table.fold()
    table.append([row | {"at": ticks[0]} for row in rows(100, 10)])  # all old
    table.fold()
    table.append([row | {"at": ticks[1]} for row in rows(200, 10)])  # all young
    table.fold()
    table.upsert(rows(0, 1, at=midnight - DAY, n=-1))  # staged: it is folded first
    old = canonical(table.to_arrow())
    report = table.expire(midnight.date(), column="at")
    assert (report.column, report.rows_dropped, report.rows_kept) == ("at", 20, 40)
    assert (report.files_dropped, report.files_rewritten, report.files_before, report.files_after) == (1, 1, 3, 2)
    assert report.bytes_after == sizes(lake)
    kept = table.to_arrow()
    assert all(at is None or at >= midnight for at in kept["at"].to_pylist())
    assert kept["at"].null_count == 10
    assert canonical(read_delta_rs(root(lake, NAME))) == canonical(kept)
    assert canonical(read_delta_rs(root(lake, NAME), report.version - 1)) == old


def test_expire_of_some_values_only_and_of_all_besides_some(lake: Lake) -> None:
    shops = pa.schema([("shop", pa.string()), ("n", pa.int64()), ("day", pa.date32())])
    table = lake.create_table(NAME, shops, partition_by=["day"])
    made = [{"shop": shop, "n": n, "day": FIRST + n % 4 * DAY} for n in range(40) for shop in ("a", "b", None)]
    table.append(made)
    before = FIRST + 2 * DAY
    report = expire(engine(table), before, only={"shop": ["a"]})
    assert (report.rows_dropped, report.rows_kept, report.files_rewritten) == (20, 100, 2)
    report = expire(engine(table), before, besides={"shop": ["b"]})
    assert (report.rows_dropped, report.rows_kept) == (20, 80)
    kept = [row for row in made if row["day"] >= before or row["shop"] == "b"]
    assert canonical(table.to_arrow().select(shops.names)) == canonical(pa.Table.from_pylist(kept, shops))
    with pytest.raises(CallerError, match="by values of day"):
        expire(engine(table), before, only={"day": [FIRST]})


def test_compaction_keeps_the_newest_of_each_where_a_table_asks_for_it(lake: Lake) -> None:
    properties = {"crannog.distinctBy": '["order_id"]', "crannog.newestBy": '["_created_at", "n"]'}
    lake.operations.tables.create(TableName.parse(NAME), ORDERS, properties=properties)
    table = lake.table(NAME)
    table.append([*rows(0, 50), *rows(0, 1, n=-1)])
    table.fold()
    table.append([*rows(40, 20, n=7), *rows(45, 1, n=9), *rows(46, 1, n=9)])
    table.fold()
    lake.cache.pin(NAME)
    assert lake.sql(f"SELECT count(*) FROM {NAME}", engine="hot").rows()[0][0] == 73
    report = table.compact()
    assert (report.duplicates_dropped, report.final_rows, report.files_after) == (13, 60, 1)
    found = {row["order_id"]: row["n"] for row in read_delta_rs(root(lake, NAME)).to_pylist()}
    assert found == {f"o{n:05}": n if n < 40 else 9 if n in (45, 46) else 7 for n in range(60)}
    # The copy in memory is of no use any more: it is made anew, and nobody is answered from it meanwhile.
    assert lake.sql(f"SELECT count(*) FROM {NAME}").rows()[0][0] == 60
    assert table.history()[0]["operation"] == "DEDUPLICATE"


def test_expire_by_the_time_of_writing_and_what_it_refuses(lake: Lake) -> None:
    table = lake.create_table(NAME, ORDERS)
    table.append(rows(0, 5))
    today = dt.datetime.now(dt.UTC).date()
    report = table.expire(today)
    assert (report.column, report.rows_dropped, report.rows_kept) == ("_created_at", 0, 5)
    assert table.expire(today + DAY).rows_dropped == 5
    assert table.count() == 0
    dated = lake.create_table("shop.eu.dated", ORDERS, partition_by="_date")
    dated.append(rows(0, 3))
    assert dated.expire(today + DAY).column == "_date"
    assert dated.count() == 0
    for wrong, words in (({"column": "n"}, "not a date or a time"), ({"column": "missing"}, "no such column")):
        with pytest.raises(CallerError, match=words):
            table.expire(today, **wrong)
    for before in (dt.datetime.now(dt.UTC), "2024-01-01", None):
        with pytest.raises(CallerError, match="takes a date"):
            table.expire(before)  # type: ignore[arg-type]


# -- vacuum ----------------------------------------------------------------------------------------------------


@pytest.fixture
def rewritten(lake: Lake) -> Table:
    """A table with two files that left its base, and staged files that were folded."""
    table = lake.create_table(NAME, ORDERS, key="order_id")
    table.append(rows(0, 50))
    table.fold()
    for number in (1, 2):
        table.upsert(rows(number, 1, n=-number))
        table.fold()
    return table


def test_vacuum_keeps_to_the_floor_unless_forced(lake: Lake, rewritten: Table) -> None:
    folder = root(lake, NAME)
    before = every_file(folder)
    kept = rewritten.vacuum(0)
    assert (kept.files_deleted, kept.staged_files_deleted, kept.retention_s, kept.raised_to_floor) == (
        0,
        0,
        3600.0,
        True,
    )
    default = rewritten.vacuum()
    assert (default.files_deleted, default.retention_s, default.raised_to_floor) == (0, 7 * 24 * 3600, False)
    plan = rewritten.vacuum(0, force=True, dry_run=True)
    assert (plan.files_deleted, plan.staged_files_deleted, plan.dry_run, plan.raised_to_floor) == (2, 3, True, False)
    assert every_file(folder) == before
    gone = [folder / name for name in plan.files]
    assert plan.bytes_deleted == sum(file.stat().st_size for file in gone)
    report = rewritten.vacuum(0, force=True)
    assert (report.files_deleted, report.bytes_deleted, report.staged_files_deleted) == (2, plan.bytes_deleted, 3)
    assert set(report.files) == set(plan.files)
    assert not any(file.exists() or file.parent.exists() for file in gone)
    assert sorted((folder / "data").rglob("*.parquet")) == live_files(folder)
    assert rewritten.count() == 50
    assert canonical(read_delta_rs(folder)) == canonical(rewritten.to_arrow())
    assert readable_versions(folder) == [0, 3]
    assert rewritten.vacuum(0, force=True).files_deleted == 0
    rewritten.append(rows(100, 1))
    assert rewritten.fold().folded_to == 4
    with pytest.raises(CallerError, match="retention_hours is a number from 0"):
        rewritten.vacuum(-1)


def test_vacuum_goes_by_when_a_file_left_the_base(settings: Settings, spark: SparkRuntime) -> None:
    with opened(settings, retention_floor_s=0, fold_grace_s=0) as lake:
        table = lake.create_table(NAME, ORDERS, key="order_id")
        table.append(rows(0, 5))
        table.fold()
        table.upsert(rows(0, 1, n=-1))
        table.fold()
        time.sleep(0.3)
        table.upsert(rows(1, 1, n=-1))
        table.fold()
        report = table.vacuum(0.3 / 3600)
        assert (report.files_deleted, report.raised_to_floor) == (1, False), "the second one left just now"
        time.sleep(0.3)
        assert table.vacuum(0.3 / 3600).files_deleted == 1


def test_vacuum_leaves_what_a_reader_holds(lake: Lake, rewritten: Table) -> None:
    open_table = engine(rewritten)
    old = rewritten.to_arrow()
    snapshot = open_table.snapshot()
    with open_table.reading(snapshot):
        rewritten.upsert(rows(3, 1, n=-3))
        rewritten.fold()
        report = rewritten.vacuum(0, force=True)
        assert (report.files_deleted, report.kept_for_readers) == (2, 1)
        assert canonical(open_table.to_arrow(snapshot=snapshot)) == canonical(old)
    assert rewritten.vacuum(0, force=True).files_deleted == 1


def test_vacuum_leaves_what_a_job_is_writing_and_takes_what_one_left(lake: Lake, rewritten: Table) -> None:
    folder = root(lake, NAME)
    with Job(engine(rewritten), "FOLD", engine(rewritten).log.head()) as job:
        written = folder / job.folder / "0" / "part-0.parquet"
        written.parent.mkdir(parents=True)
        written.write_bytes(b"half a file")
        os.utime(written, (time.time() - 25 * 3600,) * 2)
        rewritten.vacuum(0, force=True)
        assert written.exists(), "however old, while its job lives"
    assert not written.exists(), "a job that ends clears up"
    # One that was killed does not; its lease may have been lost to a slow disk, so it has a day's grace.
    written.parent.mkdir(parents=True)
    written.write_bytes(b"half a file")
    rewritten.vacuum(1, force=True)
    assert written.exists()
    os.utime(written, (time.time() - 25 * 3600,) * 2)
    assert rewritten.vacuum().files_deleted == 1
    assert not written.parent.parent.exists()


def entry(version: int, at_ms: int, folded: int | None) -> LogEntry:
    actions: list[dict[str, Any]] = [{"commitInfo": {"timestamp": at_ms}}]
    if folded is not None:
        actions.append({"txn": {"version": folded}})
    return LogEntry(version, f"{version}.json", tuple(actions))


@pytest.mark.parametrize(
    ("entries", "head", "cutoff", "until"),
    [
        ([], 0, 100, 0),
        ([], 7, 100, 7),  # cleaned from the log long ago
        ([entry(1, 50, None)], 7, 100, 7),
        ([entry(1, 50, 3)], 3, 100, 3),
        ([entry(1, 100, 3)], 3, 100, 3),
        ([entry(1, 101, 3)], 3, 100, 0),
        ([entry(1, 50, 3), entry(2, 150, 9)], 9, 100, 3),
        ([entry(1, 50, 3), entry(2, 60, None), entry(3, 90, 5), entry(4, 150, 9)], 9, 100, 5),
        ([entry(1, 50, 3), entry(2, 150, None)], 3, 100, 3),
    ],
)
def test_which_staged_files_have_had_their_grace(entries: list[LogEntry], head: int, cutoff: int, until: int) -> None:
    assert folded_before(entries, head, cutoff_ms=cutoff) == until


# -- evolve ----------------------------------------------------------------------------------------------------

NARROW = pa.schema(
    [("k_id", pa.string()), ("i", pa.int32()), ("f", pa.float32()), ("d", pa.decimal128(9, 2)), ("b", pa.int8())]
)
WIDER = pa.schema(
    [
        ("k_id", pa.string()),
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("d", pa.decimal128(20, 4)),
        ("b", pa.int16()),
        ("extra", pa.list_(pa.struct([("x", pa.int64())]))),
    ]
)


@pytest.mark.slow
def test_old_and_new_files_and_staged_rows_read_together_on_every_engine(lake: Lake, spark: SparkRuntime) -> None:
    table = lake.create_table(NAME, NARROW, key="k_id")
    small = {"i": -(2**31), "f": 0.5, "d": Decimal("-9999999.99"), "b": -128}
    table.append([{"k_id": "old"} | small, {"k_id": "nulls"}])
    table.fold()
    table.append([{"k_id": "staged before"} | small])
    grown = pa.schema([*NARROW, ("extra", WIDER.field("extra").type)])
    added = table.evolve(grown)
    assert (added.added, added.widened, added.files_rewritten, added.version) == (
        ("column extra (list<element: struct<x: int64>>) is new",),
        (),
        0,
        2,
    )
    table.append([{"k_id": "after adding", "extra": [{"x": 1}, None]} | small])
    widened = table.evolve(WIDER)
    assert (len(widened.widened), widened.added, widened.files_rewritten) == (4, (), 1)
    large = {"i": 2**62, "f": 1e300, "d": Decimal("1234567890123456.7891"), "b": 32767}
    table.append([{"k_id": "after widening", "extra": []} | large])
    expected = canonical(
        [
            {"k_id": "old", "extra": None} | small,
            {"k_id": "nulls", "i": None, "f": None, "d": None, "b": None, "extra": None},
            {"k_id": "staged before", "extra": None} | small,
            {"k_id": "after adding", "extra": [{"x": 1}, None]} | small,
            {"k_id": "after widening", "extra": []} | large,
        ]
    )
    assert canonical(table.to_arrow()) == expected
    assert canonical(table.to_spark().toArrow()) == expected
    assert table.schema.names == ["k_id", "i", "f", "d", "b", "extra", "_created_at", "_batch_id"]
    table.fold()
    assert canonical(table.to_arrow()) == expected
    for reader, seen in read_everywhere(spark, root(lake, NAME)).items():
        assert seen == expected, reader
    same = table.evolve(WIDER)
    assert (same.added, same.widened, same.version) == ((), (), None)
    # The version before reads as it was, in its own types.
    assert read_delta_rs(root(lake, NAME), 1).schema.field("i").type == pa.int32()


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ([("k_id", pa.string())], "column i is missing"),
        ([*NARROW, pa.field("must", pa.int64(), nullable=False)], "is new and not null"),
        ([("k_id", pa.string()), ("i", pa.int16()), *list(NARROW)[2:]], "not a widening"),
        ([("k_id", pa.string()), ("i", pa.float64()), *list(NARROW)[2:]], "not a widening"),
        ([("k_id", pa.string()), ("i", pa.string()), *list(NARROW)[2:]], "not a widening"),
        ([*list(NARROW)[:3], ("d", pa.decimal128(9, 3)), NARROW.field("b")], "not a widening"),
        ([*list(NARROW)[:3], ("d", pa.decimal128(8, 2)), NARROW.field("b")], "not a widening"),
        ([("k_id", pa.int64()), *list(NARROW)[1:]], "not a widening"),
        ([*list(NARROW)[1:]], "k_id"),
        ([("k_id", pa.string()), pa.field("i", pa.int32(), nullable=False), *list(NARROW)[2:]], "not null"),
        ([*NARROW, ("_mine", pa.int64())], "reserved"),
        ([*NARROW, ("I", pa.int64())], "columns i and I apart"),
    ],
)
def test_any_other_change_is_refused_with_the_reason(lake: Lake, schema: list[Any], words: str) -> None:
    table = lake.create_table(NAME, NARROW, key="k_id")
    before = every_file(root(lake, NAME))
    with pytest.raises(CallerError, match=words):
        table.evolve(pa.schema(schema))
    assert every_file(root(lake, NAME)) == before


def test_a_widened_key_is_still_the_key(lake: Lake) -> None:
    table = lake.create_table(NAME, pa.schema([("k", pa.int32()), ("n", pa.int64())]), key="k")
    table.append([{"k": number, "n": number} for number in range(5)])
    table.fold()
    table.delete([1])
    table.upsert([{"k": 2, "n": -2}])
    table.evolve(pa.schema([("k", pa.int64()), ("n", pa.int64())]))
    table.delete([3])
    table.upsert([{"k": 2**40, "n": 9}, {"k": 4, "n": -4}])
    expected = canonical([{"k": k, "n": n} for k, n in ((0, 0), (2, -2), (4, -4), (2**40, 9))])
    assert canonical(table.to_arrow()) == expected
    table.fold()
    assert canonical(table.to_arrow()) == expected
    assert table.erase([2**40]).rows_erased == 1
    assert table.count() == 3


def test_staged_changes_of_two_schemas_can_be_packed_and_read(lake: Lake, settings: Settings) -> None:
    """A block of 64 changes, half of them staged before a column was widened and another added."""
    table = lake.create_table(NAME, pa.schema([("k_id", pa.string()), ("n", pa.int32())]), key="k_id")
    for number in range(1, 33):
        table.append([{"k_id": f"k{number}", "n": number}])
    table.evolve(pa.schema([("k_id", pa.string()), ("n", pa.int64()), ("extra", pa.string())]))
    for number in range(33, 65):
        table.append([{"k_id": f"k{number}", "n": 2**40 + number, "extra": "x"}])
    settle(lake)
    expected = canonical(
        [{"k_id": f"k{n}", "n": n if n < 33 else 2**40 + n, "extra": None if n < 33 else "x"} for n in range(1, 65)]
    )
    assert canonical(table.to_arrow()) == expected
    with opened(settings) as other:
        # It reads all of them in today's columns, and packs them if nobody has.
        assert canonical(other.table(NAME).to_arrow()) == expected
        engine(other.table(NAME)).log.pack()
        assert canonical(other.table(NAME).to_arrow()) == expected
    stage = Path(lake.operations.warehouse.storage.uri(engine(table).log.stage_folder))
    assert (stage / "pack-64-0000000000.parquet").exists()
    assert canonical(table.to_arrow()) == expected, "the pack made of files that were read in two shapes"
    assert table.fold().final_rows == 64
    assert canonical(table.to_arrow()) == expected


def test_evolve_with_rows_coming_in_from_another_process(
    lake: Lake, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process goes on writing under the old schema while every file is rewritten."""
    table = lake.create_table(NAME, pa.schema([("k_id", pa.string()), ("n", pa.int32())]), key="k_id")
    table.append([{"k_id": "a", "n": 1}])
    table.fold()
    with opened(settings) as other:
        theirs = other.table(NAME)
        theirs.count()

        def meanwhile(phase: str) -> None:
            if phase == "rewrite.verified":
                monkeypatch.setattr(failpoints, "hook", None)
                theirs.upsert([{"k_id": "a", "n": 2}, {"k_id": "b", "n": 3}])

        monkeypatch.setattr(failpoints, "hook", meanwhile)
        table.evolve(pa.schema([("k_id", pa.string()), ("n", pa.int64())]))
        expected = canonical([{"k_id": "a", "n": 2}, {"k_id": "b", "n": 3}])
        assert canonical(table.to_arrow()) == canonical(theirs.to_arrow()) == expected
        theirs.upsert([{"k_id": "b", "n": 2**40}])
    table.fold()
    assert canonical(table.to_arrow()) == canonical([{"k_id": "a", "n": 2}, {"k_id": "b", "n": 2**40}])
    assert canonical(read_polars(root(lake, NAME))) == canonical(table.to_arrow())


# -- taken back, failed, killed --------------------------------------------------------------------------------

Verb = Callable[[Table, Cancellation], object]
VERBS: dict[str, Verb] = {
    "fold": lambda table, cancellation: table.fold(cancellation=cancellation),
    "compact": lambda table, cancellation: table.compact(cancellation=cancellation),
    "expire": lambda table, cancellation: expire(
        engine(table), FIRST + 5 * DAY, column="day", cancellation=cancellation
    ),
    "evolve": lambda table, cancellation: evolve(
        engine(table), pa.schema([*list(ORDERS)[:1], ("n", pa.int64()), *list(ORDERS)[2:]]), cancellation=cancellation
    ),
}


@pytest.fixture
def ready(lake: Lake) -> Table:
    """A table on which each verb has something to do with Spark."""
    schema = pa.schema([ORDERS.field("order_id"), ("n", pa.int32()), ORDERS.field("day")])
    table = lake.create_table(NAME, schema, key="order_id")
    for start in (0, 100):
        table.append(rows(start, 50))
        table.fold()
    return table


def unchanged(lake: Lake, table: Table, before: dict[str, bytes], seen: list[str]) -> None:
    settle(lake)
    assert every_file(root(lake, NAME)) == before
    assert canonical(table.to_arrow()) == seen
    with opened(lake.settings) as other:
        assert canonical(other.table(NAME).to_arrow()) == seen


@pytest.mark.parametrize(
    ("verb", "after_s"),
    [
        ("fold", 0.7),
        ("compact", 0.0),  # before Spark has begun with it
        pytest.param("compact", 0.7, marks=pytest.mark.slow),
        pytest.param("expire", 0.7, marks=pytest.mark.slow),
        pytest.param("evolve", 0.7, marks=pytest.mark.slow),
    ],
)
def test_cancelled_while_spark_works_the_table_is_as_it_was(
    lake: Lake, ready: Table, verb: str, after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if verb == "fold":
        ready.append(rows(200, 20))
    before, seen = every_file(root(lake, NAME)), canonical(ready.to_arrow())
    cancellation = Cancellation()

    def slowly(run: Any) -> Any:
        def task(number: int) -> Any:
            time.sleep(20)  # so that the job is under way when it is cancelled
            return run(number)

        if after_s:
            threading.Timer(after_s, cancellation.cancel).start()
        else:
            cancellation.cancel()
        return task

    change_tasks(monkeypatch, slowly)
    began = time.monotonic()
    with pytest.raises(Cancelled):
        VERBS[verb](ready, cancellation)
    took_s = time.monotonic() - began
    monkeypatch.undo()
    unchanged(lake, ready, before, seen)
    assert took_s < 15, "Spark was left to finish what nobody wants"
    # A job that nobody cancels does it.
    VERBS[verb](ready, Cancellation())
    assert ready.describe()["version"] == 3


@pytest.mark.parametrize("verb", VERBS)
def test_cancelled_before_it_starts_or_at_the_last_step(
    lake: Lake, ready: Table, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if verb == "fold":
        ready.append(rows(200, 5))
    before, seen = every_file(root(lake, NAME)), canonical(ready.to_arrow())
    early = Cancellation()
    early.cancel()
    early.cancel()
    with pytest.raises(Cancelled):
        VERBS[verb](ready, early)
    unchanged(lake, ready, before, seen)
    late = Cancellation()
    monkeypatch.setattr(failpoints, "hook", lambda phase: late.cancel() if phase == "rewrite.synced" else None)
    with pytest.raises(Cancelled):
        VERBS[verb](ready, late)
    monkeypatch.undo()
    after = every_file(root(lake, NAME))
    # A fold writes its batch ids to the ledger first: one that does not commit leaves them, and they say nothing wrong.
    assert {name: data for name, data in after.items() if name in before or "/batches/" not in name} == before
    assert canonical(ready.to_arrow()) == seen


@pytest.mark.parametrize("verb", VERBS)
def test_what_spark_wrote_wrongly_is_never_committed(
    lake: Lake, ready: Table, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if verb == "fold":
        ready.append(rows(200, 5))
    before, seen = every_file(root(lake, NAME)), canonical(ready.to_arrow())
    spoil_files(monkeypatch, lambda table: table.slice(1))
    with pytest.raises(VerificationFailed, match="Spark wrote"):
        VERBS[verb](ready, Cancellation())
    unchanged(lake, ready, before, seen)


def test_a_column_of_another_type_or_with_nulls_is_never_committed(
    lake: Lake, ready: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready.append(rows(200, 5))
    before, seen = every_file(root(lake, NAME)), canonical(ready.to_arrow())

    def replaced(name: str, values: pa.Array) -> Callable[[pa.Table], pa.Table]:
        return lambda table: table.set_column(table.column_names.index(name), name, values)

    for change, words in (
        (replaced("n", pa.array(range(5), pa.int64())), "column n is int64"),
        (replaced("order_id", pa.nulls(5, pa.string())), "is not nullable"),
        (lambda table: table.drop_columns(["day"]), "has the columns"),
        (lambda table: table.append_column("more", pa.array(range(5), pa.int32())), "has the columns"),
    ):
        with monkeypatch.context() as patch:
            spoil_files(patch, change)
            with pytest.raises(VerificationFailed, match=words):
                ready.fold()
        unchanged(lake, ready, before, seen)


def test_an_error_of_spark_is_told_without_its_stack(lake: Lake, ready: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    ready.append(rows(200, 5))
    before, seen = every_file(root(lake, NAME)), canonical(ready.to_arrow())

    def failing(run: Any) -> Any:
        def task(number: int) -> Any:
            run(number)
            raise ValueError("broken")

        return task

    change_tasks(monkeypatch, failing)
    with pytest.raises((Unavailable, CallerError)) as raised:
        ready.fold()
    assert "broken" in raised.value.message
    assert "\tat " not in raised.value.message
    unchanged(lake, ready, before, seen)


def test_a_compaction_that_loses_to_a_fold_starts_again(
    lake: Lake, settings: Settings, ready: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(settings) as other:
        theirs = other.table(NAME)
        theirs.upsert(rows(0, 1, n=-1))
        folds = []

        def meanwhile(phase: str) -> None:
            # In the compaction proper, whose fold is done: another process changes one of its files.
            if phase == "rewrite.verified" and ready.describe()["version"] == 3 and not folds:
                theirs.upsert(rows(1, 1, n=-2))
                folds.append(None)
                theirs.fold()

        monkeypatch.setattr(failpoints, "hook", meanwhile)
        report = ready.compact()
    assert folds
    assert report.files_after == 1
    values = {row["order_id"]: row["n"] for row in ready.to_arrow().to_pylist()}
    assert (len(values), values["o00000"], values["o00001"]) == (100, -1, -2)
    assert canonical(read_delta_rs(root(lake, NAME))) == canonical(ready.to_arrow())


def test_a_job_that_always_loses_gives_up_with_a_word(
    lake: Lake, ready: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: object) -> int:
        raise RunAgain("lost")

    before, seen = every_file(root(lake, NAME)), canonical(ready.to_arrow())
    monkeypatch.setattr(Job, "commit", lose)
    monkeypatch.setattr(compact_module, "_MAX_ATTEMPTS", 2)
    with pytest.raises(Unavailable, match="2 times meanwhile; try again"):
        ready.compact()
    monkeypatch.undo()
    unchanged(lake, ready, before, seen)


@pytest.mark.slow
def test_when_the_jvm_dies_writes_and_local_reads_go_on_and_spark_starts_anew(
    lake: Lake, ready: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready.append(rows(200, 5))
    before, seen = every_file(root(lake, NAME)), canonical(ready.to_arrow())
    runtime = spark_runtime(lake.settings)
    killed: list[int] = []

    def murdered(run: Any) -> Any:
        start = runtime._start
        assert start is not None
        assert start.jvm is not None
        killed.append(start.jvm.process.pid)
        os.kill(start.jvm.process.pid, signal.SIGKILL)
        start.jvm.process.wait(30)
        return run

    with monkeypatch.context() as patch:
        change_tasks(patch, murdered)
        with pytest.raises(Unavailable):
            ready.fold()
    assert killed
    unchanged(lake, ready, before, seen)
    ready.append(rows(300, 1))
    assert ready.count() == 106
    assert ready.fold().final_rows == 106
    assert canonical(ready.to_spark().toArrow()) == canonical(ready.to_arrow())
