"""The control table and the scheduler: each due task once, taken over from the silent, remembered across restarts."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from crannog.embedded import EmbeddedLake as Lake
from crannog.embedded import EmbeddedTable as Table
from crannog.engine import tables as tables_module
from crannog.engine.commit.writer import WriterLimits, retry_after_s, slow_down_s
from crannog.engine.maintenance import control as control_module
from crannog.engine.maintenance import scheduler as scheduler_module
from crannog.engine.maintenance.control import FOLDER, IDLE, PROCESSING, ControlTable, Task
from crannog.engine.maintenance.owners import process_name
from crannog.engine.maintenance.scheduler import FoldLimits, Scheduler, fold_reason, run_as_task, spark_nice
from crannog.engine.open_table import OpenTable
from crannog.errors import CallerError, Corrupted, Unavailable
from crannog.names import TableName
from crannog.protocol.changelog import Backlog
from crannog.protocol.leases import live_leases
from crannog.settings import Settings, load_settings
from crannog.spark.session import SparkRuntime
from crannog.storage.local import LocalStorage
from lakes import opened

NAME = "shop.eu.orders"
TASK = f"fold:{NAME}"
LEASE_S = 60.0
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


class Clock:
    """Time that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> dt.datetime:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += dt.timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(tmp_path: Path, clock: Clock) -> Callable[[], ControlTable]:
    """A control table of one warehouse, as many times as there are processes."""
    return lambda: ControlTable(LocalStorage(tmp_path), lease_s=LEASE_S, clock=clock)


def the_task(control: ControlTable, name: str = TASK) -> Task:
    return next(task for task in control.tasks() if task.task_name == name)


# -- claim and release -----------------------------------------------------------------------------------------


def test_nothing_is_there_at_first_and_looking_makes_nothing(make: Callable[[], ControlTable], tmp_path: Path) -> None:
    assert make().tasks() == []
    assert list(tmp_path.iterdir()) == []


def test_a_claimed_task_is_nobody_elses(make: Callable[[], ControlTable], clock: Clock) -> None:
    one, two = make(), make()
    lease = one.claim(TASK, "one")
    assert lease is not None
    with lease:
        task = the_task(two)
        assert (task.status, task.owner, task.claimed_at) == (PROCESSING, "one", NOON)
        assert two.claim(TASK, "two") is None
        assert one.claim(TASK, "one") is None, "nor the owner's a second time"
        # Another task is free.
        assert two.claim("vacuum:" + NAME, "two") is not None
        assert two.release(TASK, "two", result="stolen", interval_s=1) is False
        clock.pass_s(5)
        assert one.release(TASK, "one", result={"rows": 3}, interval_s=100)
    done = the_task(two)
    assert (done.status, done.owner, done.failures) == (IDLE, None, 0)
    assert done.completed_at == NOON + dt.timedelta(seconds=5)
    assert done.next_run_at == NOON + dt.timedelta(seconds=105)
    assert json.loads(done.last_result or "") == {"rows": 3}
    assert one.release(TASK, "one", result="again", interval_s=1) is False


def test_it_is_due_again_after_its_interval_and_not_before(make: Callable[[], ControlTable], clock: Clock) -> None:
    control = make()
    control.claim(TASK, "one")
    control.release(TASK, "one", result=None, interval_s=100)
    for seconds, due in ((0, False), (99.5, False), (0.5, True)):
        clock.pass_s(seconds)
        assert (control.claim(TASK, "two") is not None) is due


def test_a_failure_is_counted_and_leaves_the_task_due(make: Callable[[], ControlTable], clock: Clock) -> None:
    control = make()
    for failures in (1, 2, 3):
        assert control.claim(TASK, "one") is not None
        assert control.release(TASK, "one", result={"error": "Spark is away"}, interval_s=None)
        task = the_task(control)
        assert (task.status, task.failures, task.completed_at) == (IDLE, failures, None)
        assert "Spark is away" in (task.last_result or "")
        clock.pass_s(1)
    control.claim(TASK, "one")
    control.release(TASK, "one", result="fine", interval_s=10)
    assert the_task(control).failures == 0


def test_a_silent_owner_is_taken_over_and_a_living_one_is_not(
    make: Callable[[], ControlTable], clock: Clock, tmp_path: Path
) -> None:
    one, two = make(), make()
    lease = one.claim(TASK, "one")
    assert lease is not None
    lease.__enter__()
    # Its heartbeat is younger than the lease, however long ago it was claimed.
    clock.pass_s(10 * LEASE_S)
    assert two.claim(TASK, "two") is None
    os.utime(tmp_path / lease.path, (time.time() - LEASE_S - 1,) * 2)
    taken = two.claim(TASK, "two")
    assert taken is not None
    with taken:
        assert the_task(one).owner == "two"
        # The first one wakes up: what it reports is no longer its business.
        assert one.release(TASK, "one", result="late", interval_s=1) is False
        assert the_task(one).status == PROCESSING
        assert two.release(TASK, "two", result="done", interval_s=1)
    lease.__exit__()
    assert json.loads(the_task(one).last_result or "") == "done"


_CLAIMS = """
import sys, time
from pathlib import Path
from crannog.engine.maintenance.control import ControlTable
from crannog.engine.maintenance.owners import process_name
from crannog.storage.local import LocalStorage
control = ControlTable(LocalStorage(Path(sys.argv[1])), lease_s=60)
with control.claim(sys.argv[2], process_name()):
    print("claimed", flush=True)
    time.sleep(60)
"""


def test_the_claim_of_a_killed_process_is_taken_over_at_once(tmp_path: Path) -> None:
    """Its lock shows that it is dead; nobody waits for the end of its lease, which lasts a minute."""
    control = ControlTable(LocalStorage(tmp_path), lease_s=LEASE_S)
    other = subprocess.Popen([sys.executable, "-c", _CLAIMS, tmp_path, TASK], stdout=subprocess.PIPE)
    assert other.stdout is not None
    with other.stdout:
        assert other.stdout.readline() == b"claimed\n"
        assert control.claim(TASK, "two") is None, "it lives"
        other.kill()
        other.wait()
    assert control.claim(TASK, "two") is not None


def test_an_owner_that_retires_leaves_no_file(tmp_path: Path) -> None:
    control, owner = ControlTable(LocalStorage(tmp_path), lease_s=LEASE_S), process_name()
    assert control.claim(TASK, owner) is not None
    assert len(list(tmp_path.glob(f"{FOLDER}/owners/*"))) == 1
    control.retire(owner)
    assert not list(tmp_path.glob(f"{FOLDER}/owners/*"))


def test_a_claim_without_a_lease_yet_counts_for_the_time_of_one(make: Callable[[], ControlTable], clock: Clock) -> None:
    """Killed between claim and lease: nobody waits longer than a lease."""
    one, two = make(), make()
    assert one.claim(TASK, "one") is not None
    clock.pass_s(LEASE_S - 1)
    assert two.claim(TASK, "two") is None
    clock.pass_s(1)
    assert two.claim(TASK, "two") is not None


@pytest.mark.parametrize(
    ("task", "alive", "free"),
    [
        (Task("t"), False, True),
        (Task("t", next_run_at=NOON), False, True),
        (Task("t", next_run_at=NOON + dt.timedelta(microseconds=1)), False, False),
        (Task("t", next_run_at=NOON - dt.timedelta(days=1)), True, True),
        (Task("t", status=PROCESSING, owner="x"), True, False),
        (Task("t", status=PROCESSING, owner="x"), False, True),
        (Task("t", status=PROCESSING, owner="x", next_run_at=NOON + dt.timedelta(days=1)), False, True),
    ],
)
def test_what_may_be_claimed(task: Task, alive: bool, free: bool) -> None:
    assert task.may_be_claimed(NOON, holder_is_alive=alive) is free


def test_of_many_that_claim_at_once_one_wins(make: Callable[[], ControlTable]) -> None:
    controls = [make() for _ in range(6)]
    gate = threading.Barrier(len(controls))
    won: list[str] = []

    def claim(number: int) -> None:
        gate.wait(10)
        for task in range(3):
            if controls[number].claim(f"fold:a.b.t{task}", f"p{number}") is not None:
                won.append(f"t{task}")

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(len(controls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(won) == ["t0", "t1", "t2"]


def test_it_is_a_plain_delta_table_whose_log_stays_short(
    make: Callable[[], ControlTable], clock: Clock, tmp_path: Path
) -> None:
    control = make()
    for number in range(22):
        control.claim(TASK, f"p{number}")
        control.release(TASK, f"p{number}", result=number, interval_s=0)
    table = DeltaTable(str(tmp_path / FOLDER))
    assert table.to_pyarrow_table().num_rows == 1
    assert table.version() == 43
    assert list((tmp_path / FOLDER / "_delta_log").glob("*.checkpoint.parquet"))
    assert the_task(make()).last_result == "21"


def test_tasks_are_remembered_and_forgotten(make: Callable[[], ControlTable]) -> None:
    control = make()
    for name in ("fold:a.b.c", "vacuum:a.b.c", "fold:a.b.d"):
        control.claim(name, "one")
        control.release(name, "one", result=None, interval_s=60)
    assert [task.task_name for task in make().tasks()] == ["fold:a.b.c", "fold:a.b.d", "vacuum:a.b.c"]
    control.forget({"fold:a.b.c", "vacuum:a.b.c", "never:was"})
    assert [task.task_name for task in make().tasks()] == ["fold:a.b.d"]


def test_a_damaged_control_table_is_told_by_its_folder(make: Callable[[], ControlTable], tmp_path: Path) -> None:
    control = make()
    control.claim(TASK, "one")
    [file] = (tmp_path / FOLDER / "data").iterdir()
    file.write_bytes(b"no parquet")
    with pytest.raises(Corrupted, match=FOLDER):
        control.tasks()


def test_a_claim_whose_file_fails_claims_nothing(
    make: Callable[[], ControlTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    control = make()

    def fail(*_: object) -> bool:
        raise Unavailable("the disk is full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control_module, "put_entry", fail)
        with pytest.raises(Unavailable):
            control.claim(TASK, "one")
    assert control.tasks() == []
    assert control.claim(TASK, "one") is not None


def test_a_lost_file_is_named_and_the_scheduler_goes_on(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(settings) as lake:
        with_a_commit(lake, NAME)
        scheduler_of(lake).run_due()
        control = Path(lake.operations.warehouse.location) / FOLDER
        [newest] = [control / add["path"] for add in _last_adds(control)]
        newest.unlink()
        with pytest.raises(Corrupted, match=newest.name):
            lake.tasks()
        assert scheduler_of(lake).run_due(), "all is due again"
        assert newest.name in caplog.text
        assert {task["status"] for task in lake.tasks()} == {IDLE}
        assert scheduler_of(lake).run_due() == []


def with_a_commit(lake: Lake, name: str) -> Table:
    """Create a table and change its base without Spark, so that there may be something to vacuum."""
    table = lake.create_table(name, ORDERS)
    table.evolve(pa.schema([*ORDERS, ("note", pa.string())]))
    return table


def _last_adds(folder: Path) -> list[dict[str, Any]]:
    entry = max((folder / "_delta_log").glob("*.json"))
    return [action["add"] for line in entry.read_text().splitlines() if "add" in (action := json.loads(line))]


def test_a_torn_checkpoint_of_the_control_table_costs_nothing(make: Callable[[], ControlTable], tmp_path: Path) -> None:
    control = make()
    for number in range(12):
        control.claim(TASK, f"p{number}")
        control.release(TASK, f"p{number}", result=number, interval_s=0)
    [torn] = (tmp_path / FOLDER / "_delta_log").glob("*.checkpoint.parquet")
    torn.write_bytes(torn.read_bytes()[:100])
    assert the_task(make()).last_result == "11"
    assert not torn.exists()


# -- a clock that is set back ----------------------------------------------------------------------------------


def test_a_task_that_ran_in_the_future_is_due(make: Callable[[], ControlTable], clock: Clock) -> None:
    control = make()
    control.claim(TASK, "one")
    control.release(TASK, "one", result=None, interval_s=600)
    clock.pass_s(-30)
    assert control.claim(TASK, "two") is None, "clocks differ a little"
    clock.pass_s(-6 * 3600)
    assert control.claim(TASK, "two") is not None


def test_a_claim_from_the_future_holds_as_long_as_its_heartbeat(
    make: Callable[[], ControlTable], clock: Clock, tmp_path: Path
) -> None:
    control = make()
    lease = control.claim(TASK, "one")
    assert lease is not None
    clock.pass_s(-6 * 3600)
    with lease:
        assert make().claim(TASK, "two") is None
        # The last heartbeat of a holder that died before the clock was set back.
        ahead = time.time() + 6 * 3600
        os.utime(tmp_path / lease.path, (ahead, ahead))
        assert make().claim(TASK, "two") is not None


def test_leases_from_the_future_are_dead(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    for name, ahead_s in (("now", 0), ("skewed", 30), ("future", 3 * 3600), ("dead", -3600)):
        storage.put_if_absent(f"{name}.json", json.dumps({"name": name}).encode())
        os.utime(tmp_path / f"{name}.json", (time.time() + ahead_s,) * 2)
    assert {lease["name"] for lease in live_leases(storage, "")} == {"now", "skewed"}


def test_the_scheduler_goes_on_after_the_clock_was_set_back(
    settings: Settings, spark: SparkRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(settings, fold_rows=1_000, fold_age_s=300) as lake:
        with_a_commit(lake, NAME).append(rows(0, 3))
        lake.operations.control._clock = lambda: dt.datetime.now(dt.UTC) + dt.timedelta(hours=6)
        scheduler = scheduler_of(lake)
        ran = scheduler.run_due()
        assert f"vacuum:{NAME}" in ran
        lake.operations.control._clock = lambda: dt.datetime.now(dt.UTC)
        assert set(scheduler.run_due()) == set(ran)
        assert scheduler.run_due() == [], "once"
        assert caplog.text.count("the clock was set back") == 1


# -- when a fold pays ------------------------------------------------------------------------------------------

LIMITS = FoldLimits(rows=1_000, bytes=10_000, age_s=300, share=0.05)
NOW_US = 1_000_000_000_000


@pytest.mark.parametrize(
    ("backlog", "base_rows", "keyed", "reason"),
    [
        (Backlog(0, 0, 0, None), 0, True, None),
        (Backlog(0, 20_000, 3, None), 100, True, None),
        (Backlog(999, 9_999, 1, NOW_US), 0, False, None),
        (Backlog(1_000, 1, 1, NOW_US), 0, False, "1,000 staged rows"),
        (Backlog(1, 10_000, 1, NOW_US), 0, False, "10,000 staged bytes"),
        (Backlog(4, 1, 1, NOW_US), 100, True, None),
        (Backlog(5, 1, 1, NOW_US), 100, True, "5 staged rows are 5% of the base"),
        (Backlog(5, 1, 1, NOW_US), 100, False, None),
        (Backlog(5, 1, 1, NOW_US), 0, True, None),
        (Backlog(1, 1, 1, NOW_US - 299_999_999), 10_000, True, None),
        (Backlog(1, 1, 1, NOW_US - 300_000_000), 10_000, True, "the oldest change is 300 s old"),
        (Backlog(1, 1, 1, NOW_US + 10_000_000), 10_000, True, None),
        (
            Backlog(1, 1, 1, NOW_US + 7_200_000_000),
            10_000,
            True,
            "the oldest change is dated 7200 s after the present time",
        ),
        (Backlog(1, 1, 1, None), 10_000, True, None),
    ],
)
def test_why_fold(backlog: Backlog, base_rows: int, keyed: bool, reason: str | None) -> None:
    assert fold_reason(backlog, LIMITS, base_rows=base_rows, keyed=keyed, now_us=NOW_US) == reason


# -- the scheduler ---------------------------------------------------------------------------------------------

ORDERS = pa.schema([("order_id", pa.string()), ("n", pa.int64())])


@pytest.fixture
def lake(settings: Settings, spark: SparkRuntime) -> Iterator[Lake]:
    with opened(settings, fold_rows=10, fold_age_s=3600) as lake:
        yield lake


def scheduler_of(lake: Lake) -> Scheduler:
    return Scheduler(lake.operations.warehouse, lake.operations.tables, lake.operations.control)


def result(lake: Lake, task: str) -> Any:
    [found] = [each for each in lake.tasks() if each["task_name"] == task]
    return json.loads(found["last_result"])


def rows(start: int, count: int) -> list[dict[str, Any]]:
    return [{"order_id": f"o{number}", "n": number} for number in range(start, start + count)]


def test_due_work_is_done_once_and_told(lake: Lake, settings: Settings) -> None:
    table = lake.create_table(NAME, ORDERS)
    quiet = lake.create_table("shop.eu.quiet", ORDERS)
    table.append(rows(0, 10))
    quiet.append(rows(0, 9))
    scheduler = scheduler_of(lake)
    ran = scheduler.run_due()
    assert ran == [f"fold:{NAME}"], "there is nothing to merge, and nothing to delete before the first commit"
    ran += scheduler.run_due()
    assert ran == [f"fold:{NAME}", f"vacuum:{NAME}"]
    assert scheduler.last_error is None
    assert table.describe()["folded_sequence"] == 1
    assert quiet.describe()["folded_sequence"] == 0, "nine rows do not pay"
    folded = result(lake, f"fold:{NAME}")
    assert folded["why"] == "10 staged rows"
    assert (folded["changes"], folded["final_rows"], folded["version"]) == (1, 10, 1)
    assert result(lake, f"vacuum:{NAME}")["files_deleted"] == 0
    for task in lake.tasks():
        assert (task["status"], task["owner"], task["failures"]) == (IDLE, None, 0)
        assert task["next_run_at"] >= task["completed_at"]
    # Nothing is due now, here or after a restart: the schedule is in the warehouse.
    assert scheduler.run_due() == []
    with opened(settings, fold_rows=10) as again:
        assert scheduler_of(again).run_due() == []
        assert {task["task_name"] for task in again.tasks()} == set(ran)
    # A fold is due whenever it pays, the others by their interval, which has some play.
    table.append(rows(10, 10))
    assert scheduler.run_due() == [f"fold:{NAME}"]
    [vacuum] = [task for task in lake.tasks() if task["task_name"] == f"vacuum:{NAME}"]
    wait_s = (vacuum["next_run_at"] - vacuum["completed_at"]).total_seconds()
    assert lake.settings.vacuum_interval_s <= wait_s <= lake.settings.vacuum_interval_s * 1.1


def test_a_compaction_that_pays_is_done(settings: Settings, spark: SparkRuntime) -> None:
    with opened(settings, fold_rows=10) as lake:
        table = lake.create_table(NAME, ORDERS)
        for start in range(0, 160, 20):
            assert f"compact:{NAME}" not in scheduler_of(lake).run_due(), "a few small files may wait for others"
            table.append(rows(start, 20))
            table.fold()
        scheduler_of(lake).run_due()
        report = result(lake, f"compact:{NAME}")
        assert (report["files_before"], report["files_after"], report["skipped"]) == (8, 1, "")
        assert report["plan"] == [f"8 small files, {report['bytes_before']:,} bytes, into 1"]


def test_tables_with_a_retention_lose_what_is_older(settings: Settings, spark: SparkRuntime) -> None:
    today = dt.datetime.now(dt.UTC).date()
    days = [{"day": today - dt.timedelta(days=age), "n": age} for age in (0, 6, 8, 400)]
    with opened(
        settings,
        fold_rows=1,
        table_retention_days=load_settings(table_retention_days="shop.tmp.kept=300,shop.tmp.*=7").table_retention_days,
    ) as lake:
        for name in ("shop.tmp.kept", "shop.tmp.other", NAME):
            lake.create_table(name, pa.schema([("day", pa.date32()), ("n", pa.int64())]), partition_by="day").append(
                days
            )
        scheduler = scheduler_of(lake)
        assert {task for task in scheduler.run_due() if task.startswith("expire")} == {
            "expire:shop.tmp.kept",
            "expire:shop.tmp.other",
        }
        left = {name: sorted(row["n"] for row in lake.table(name).to_arrow().to_pylist()) for name in lake.tables()}
        assert left == {"shop.tmp.kept": [0, 6, 8], "shop.tmp.other": [0, 6], NAME: [0, 6, 8, 400]}
    with pytest.raises(CallerError, match="table_retention_days"):
        load_settings(table_retention_days="shop.tmp.kept")


@pytest.mark.parametrize("why", ["age", "share", "bytes"])
def test_a_fold_is_due_by_age_share_or_bytes(settings: Settings, spark: SparkRuntime, why: str) -> None:
    changes: dict[str, Any] = {"age": {"fold_age_s": 0.001}, "share": {"fold_share": 0.2}, "bytes": {"fold_bytes": 1}}[
        why
    ]
    with opened(settings, **changes) as lake:
        table = lake.create_table(NAME, ORDERS, key="order_id")
        table.append(rows(0, 10))
        if why == "share":
            table.fold()
            table.append(rows(0, 1))
            assert f"fold:{NAME}" not in scheduler_of(lake).run_due()
            table.append(rows(1, 1))
        assert f"fold:{NAME}" in scheduler_of(lake).run_due()
        assert {"age": " s old", "share": "20% of the base", "bytes": "staged bytes"}[why] in result(
            lake, f"fold:{NAME}"
        )["why"]
        assert table.describe()["staged_rows"] == 0


def test_several_processes_run_each_due_task_once(settings: Settings, spark: SparkRuntime) -> None:
    lakes = [opened(settings, fold_rows=1) for _ in range(3)]
    for number in range(2):
        lakes[0].create_table(f"shop.eu.t{number}", ORDERS).append(rows(0, 5))
    ran: list[str] = []
    gate = threading.Barrier(len(lakes))

    def run(lake: Lake) -> None:
        gate.wait(10)
        ran.extend(scheduler_of(lake).run_due())

    threads = [threading.Thread(target=run, args=(each,)) for each in lakes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    # Who comes after the first fold of a table may find that there is something to vacuum.
    assert sorted(task for task in ran if task.startswith("fold")) == ["fold:shop.eu.t0", "fold:shop.eu.t1"]
    assert len(ran) == len(set(ran))
    for number in range(2):
        assert lakes[0].table(f"shop.eu.t{number}").describe()["version"] == 1
    for each in lakes:
        each.close()


def test_failed_work_is_told_and_stays_due(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake.create_table(NAME, ORDERS).append(rows(0, 10))
    other = lake.create_table("shop.eu.second", ORDERS)
    other.append(rows(0, 10))
    scheduler = scheduler_of(lake)
    real = scheduler_module.fold

    def fail(table: Any, **_: object) -> Any:
        if str(table.name) == NAME:
            raise Unavailable("Spark is away")
        return real(table)

    with monkeypatch.context() as patch:
        patch.setattr(scheduler_module, "fold", fail)
        scheduler.run_due()
        assert scheduler._not_before[TASK][1] == 1
        scheduler._not_before[TASK] = (time.monotonic() + 60, 1)  # the other fold may have outlasted the pause
        assert TASK not in scheduler.run_due(), "the process that failed pauses"
        scheduler_of(lake).run_due()  # another process need not
        assert "failed" not in caplog.text
        scheduler._not_before[TASK] = (0.0, 3)
        scheduler.run_due()
    [failed] = [task for task in lake.tasks() if task["task_name"] == TASK]
    assert (failed["status"], failed["failures"], failed["completed_at"]) == (IDLE, 3, None)
    assert json.loads(failed["last_result"]) == {"error": "Spark is away"}
    assert scheduler.last_error == f"{TASK}: Spark is away"
    conditions = lake.operations.warehouse.conditions
    assert {name: found.message for name, found in conditions.all().items()} == {TASK: "Spark is away"}
    assert "failed (4 times)" in caplog.text, "what lasts is logged"
    assert other.describe()["folded_sequence"] == 1, "other tables are not held up"
    assert TASK in scheduler_of(lake).run_due()
    assert lake.table(NAME).describe()["folded_sequence"] == 1
    assert not conditions.all(), "it works again"


def test_an_error_nobody_expected_neither_stops_the_scheduler_nor_holds_up_other_tables(
    settings: Settings, spark: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = scheduler_module.fold

    def fail(table: Any, **_: object) -> Any:
        if str(table.name) == NAME:
            raise ZeroDivisionError("a bug")
        return real(table)

    monkeypatch.setattr(scheduler_module, "fold", fail)
    with opened(settings, fold_rows=10, scheduler_tick_s=0.05) as lake:
        lake.create_table(NAME, ORDERS).append(rows(0, 10))
        other = lake.create_table("shop.eu.second", ORDERS)
        other.append(rows(0, 10))
        scheduler = scheduler_of(lake)
        scheduler.start()
        try:
            wait_until(lambda: other.describe()["folded_sequence"] == 1)
            assert "ZeroDivisionError" in json.dumps(result(lake, TASK))
        finally:
            scheduler.stop()


def wait_until(true: Callable[[], bool], timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def test_the_tasks_of_a_dropped_table_go(lake: Lake) -> None:
    with_a_commit(lake, NAME)
    with_a_commit(lake, "shop.eu.kept")
    scheduler = scheduler_of(lake)
    scheduler.run_due()
    lake.drop_table(NAME)
    scheduler.run_due()
    assert {task["task_name"].partition(":")[2] for task in lake.tasks()} == {"shop.eu.kept"}


def test_who_gives_a_task_back_leaves_the_next_ones_lease_alone(
    lake: Lake, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process may claim it in the very moment it is given back; its heartbeat must not go with the old lease."""
    lake.create_table(NAME, ORDERS).append(rows(0, 10))
    release = lake.operations.control.release
    with opened(settings) as other:
        held: list[Any] = []

        def release_and_lose_it(name: str, owner: str, **how: Any) -> bool:
            done = release(name, owner, **how)
            if name == TASK and not held:
                lease = other.operations.control.claim(TASK, "the next one")
                assert lease is not None
                held.append(lease.__enter__())
            return done

        monkeypatch.setattr(lake.operations.control, "release", release_and_lose_it)
        # With no interval it is due again at once.
        monkeypatch.setattr(scheduler_module.random, "uniform", lambda low, high: 0.0)
        scheduler_of(lake).run_due()
        [lease] = held
        assert lake.operations.warehouse.storage.exists(lease.path)
        lease.__exit__()


def test_a_connection_that_maintains_folds_by_itself(settings: Settings, spark: SparkRuntime) -> None:
    changed = settings.model_copy(update={"fold_rows": 5, "scheduler_tick_s": 0.05})
    spark.session()
    with Lake(changed.warehouse, settings=changed, maintain=True) as lake:
        table = lake.create_table(NAME, ORDERS)
        table.append(rows(0, 5))
        wait_until(lambda: table.describe()["folded_sequence"] == 1)
        assert lake._scheduler is not None
    began = time.monotonic()
    lake.close()
    assert time.monotonic() - began < 5
    with opened(settings, fold_rows=5) as embedded:
        assert embedded._scheduler is None
        embedded.table(NAME).append(rows(5, 5))
        time.sleep(0.3)
        assert embedded.table(NAME).describe()["folded_sequence"] == 1


def test_work_nobody_waits_for_tells_in_the_control_table_how_it_went(lake: Lake) -> None:
    name = TableName.parse(NAME)

    def unavailable() -> Any:
        raise Unavailable("no disk")

    def bug() -> Any:
        raise KeyError("a bug")

    run_as_task(lake.operations.control, name, "fine", lambda: {"files": 3})
    run_as_task(lake.operations.control, name, "failed", unavailable)
    run_as_task(lake.operations.control, name, "broken", bug)
    tasks = {task["task_name"].partition(":")[0]: task for task in lake.tasks()}
    assert json.loads(tasks["fine"]["last_result"]) == {"files": 3}
    assert json.loads(tasks["failed"]["last_result"]) == {"error": "no disk"}
    assert "KeyError" in tasks["broken"]["last_result"]
    assert {task["status"] for task in tasks.values()} == {IDLE}
    assert [tasks[kind]["failures"] for kind in ("fine", "failed", "broken")] == [0, 1, 1]


# -- lanes ---------------------------------------------------------------------------------------------------------


def test_long_work_does_not_delay_folds(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    held, folded = threading.Event(), threading.Event()
    monkeypatch.setattr(scheduler_module, "vacuum", lambda _table: held.wait(60))

    def fold(table: Any, **_: object) -> Any:
        folded.set()
        return scheduler_module.nothing_folded(table.snapshot().base)

    monkeypatch.setattr(scheduler_module, "fold", fold)
    with opened(settings, fold_rows=1, scheduler_tick_s=0.05) as lake:
        for number in range(3):  # more than the lane has threads
            with_a_commit(lake, f"shop.eu.long{number}")
        scheduler = scheduler_of(lake)
        scheduler.start()
        try:
            wait_until(lambda: any(task["status"] == PROCESSING for task in lake.tasks()))
            lake.create_table(NAME, ORDERS).append(rows(0, 1))
            assert folded.wait(30)
            assert not held.is_set()
        finally:
            held.set()
            assert scheduler.stop()


def test_a_table_with_nothing_due_is_not_opened(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(settings, fold_age_s=3600) as lake:
        quiet = with_a_commit(lake, NAME)
        scheduler = scheduler_of(lake)
        scheduler.run_due()
        time.sleep(0.2)  # until then, another change might leave the folder's time as it is
        scheduler.run_due()
        opened_names: list[str] = []
        open_table = lake.operations.tables.open
        monkeypatch.setattr(
            lake.operations.tables,
            "open",
            lambda name, **options: opened_names.append(str(name)) or open_table(name, **options),
        )
        scheduler.run_due()
        assert opened_names == []
        quiet.append(rows(0, 1))
        time.sleep(0.2)
        scheduler.run_due()
        assert NAME in opened_names


@pytest.mark.parametrize("change_every_tick", [False, True])
def test_more_tables_than_are_kept_open_are_not_reopened_at_every_check(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, change_every_tick: bool
) -> None:
    with opened(settings, open_tables=3) as lake, opened(settings) as other:
        names = [f"shop.eu.t{number}" for number in range(8)]
        for name in names:
            with_a_commit(lake, name)
        scheduler = scheduler_of(lake)
        for _ in range(3):
            scheduler.run_due()
            time.sleep(0.15)  # until then, another change might leave the folder's time as it is
        new: list[str] = []
        monkeypatch.setattr(
            tables_module, "OpenTable", lambda warehouse, name: new.append(str(name)) or OpenTable(warehouse, name)
        )
        storage = lake.operations.warehouse.storage
        calls: list[str] = []
        for method in ("names", "folders", "read", "walk", "exists"):
            do = getattr(storage, method)
            monkeypatch.setattr(storage, method, lambda *given, do=do, m=method: calls.append(m) or do(*given))
        for _ in range(3):
            if change_every_tick:
                for name in names:
                    other.table(name).append(rows(0, 1))
                new.clear()
                time.sleep(0.15)
            scheduler.run_due()
            assert new == []
        if not change_every_tick:
            assert calls == [], "a table with nothing due costs nothing"


def test_a_clock_that_is_set_back_does_not_prolong_the_rest_of_a_table(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long a table needs nothing is measured by a clock that only goes forward."""
    with opened(settings, fold_age_s=3600) as lake:
        with_a_commit(lake, NAME)
        scheduler = scheduler_of(lake)
        scheduler.run_due()
        time.sleep(0.2)
        scheduler.run_due()
        [rest] = scheduler._settled.values()
        visited: list[str] = []
        work_of = scheduler._work_of
        monkeypatch.setattr(scheduler, "_work_of", lambda table: visited.append(str(table.name)) or work_of(table))
        passed = time.monotonic() + 2 * 3600
        monkeypatch.setattr(time, "monotonic", lambda: passed)
        monkeypatch.setattr(scheduler_module, "dt", SimpleNamespace(**{**vars(dt), "datetime": _EarlierClock}))
        scheduler.run_due()
        assert rest.until < passed
        assert visited == [NAME]


class _EarlierClock(dt.datetime):
    """A clock that was set back by a day."""

    @classmethod
    def now(cls, zone: dt.tzinfo | None = None) -> dt.datetime:  # type: ignore[override]
        return dt.datetime.now(zone) - dt.timedelta(days=1)


def test_writers_slow_down_before_they_are_refused() -> None:
    limits = WriterLimits(queue_calls=10, group_rows=10, staged_rows=1_000, staged_bytes=10_000)
    waits = [slow_down_s(Backlog(rows, 0, 1, None), limits) for rows in (0, 125, 150, 600, 1_000, 2_000)]
    assert waits[:2] == [0, 0]
    assert 0 < waits[2] < 0.02 < waits[3] < waits[4] == waits[5] == 2
    assert slow_down_s(Backlog(0, 5_000, 1, None), limits) == slow_down_s(Backlog(500, 0, 1, None), limits)


def test_a_refused_writer_is_sent_back_when_a_fold_may_have_made_room() -> None:
    assert retry_after_s(1_000_000, 0.0) == 5, "nothing was folded yet"
    assert [retry_after_s(rows, 100_000) for rows in (10, 1_000_000, 10**9)] == [1, 10, 60]


def test_spark_gives_way_while_little_is_staged() -> None:
    assert [spark_nice(share, 12) for share in (0, 0.15, 0.3, 1)] == [12, 6, 0, 0]
    assert spark_nice(0, 0) == 0
