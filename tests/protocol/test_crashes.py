"""Killed at every named moment and at random ones: what was acknowledged is there once, nothing is half there.

A child process writes from several threads, folds, compacts, packs, vacuums, erases or claims, and kills itself at
the n-th time it reaches a phase. What it acknowledged before, it told through a pipe.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crannog.engine.maintenance.control import ControlTable
from crannog.errors import Unavailable
from crannog.spark.session import SparkRuntime
from crannog.storage import failpoints
from crash_child import (
    KEYED,
    PLAIN,
    TABLES,
    Child,
    batch_of,
    check_kept,
    check_plain_delta,
    check_retries,
    connect,
    last_turns,
    make_tables,
    plain_delta,
    row_of,
    rows_by_writer,
    send,
)

pytest_plugins = ["crash_child"]

STAGE = ("stage.written", "stage.linked", "stage.acknowledged")
PACK = ("pack.written", "pack.originals_deleted")
REWRITE = ("rewrite.files_written", "rewrite.verified", "rewrite.synced", "rewrite.ledger_written", "rewrite.committed")
CLEAN = ("vacuum.files_deleted", "clean.staged_files_deleted")
ERASE = ("erase.files_deleted", "erase.log_redacted")
CLAIM = ("control.claimed",)

Last = dict[tuple[str, str], int]


def test_every_phase_is_among_those_killed_at() -> None:
    assert {*STAGE, *PACK, *REWRITE, *CLEAN, *ERASE, *CLAIM} == set(failpoints.ALL)


# -- what is checked after each kill -------------------------------------------------------------------------


def test_the_checks_notice_what_is_lost_doubled_or_halved(tmp_path: Path) -> None:
    """The checks themselves: a turn too many, a turn too few and half a turn all fail."""
    with connect(str(tmp_path)) as lake:
        make_tables(lake)
        for turn in range(6):
            send(lake, PLAIN, batch_of(PLAIN, "w", turn))
        assert check_kept(lake, {(PLAIN, "w"): 5}) == {(PLAIN, "w"): 5}
        assert check_kept(lake, {(PLAIN, "w"): 4}) == {(PLAIN, "w"): 5}
        for count in (3, 6):
            with pytest.raises(AssertionError, match="missing"):
                check_kept(lake, {(PLAIN, "w"): count})
        lake.table(PLAIN).append([dict(batch_of(PLAIN, "w", 7).rows[0])])
        with pytest.raises(AssertionError, match="1 unexpected"):
            check_kept(lake, {(PLAIN, "w"): 5})
        lake.table(PLAIN).append([dict(batch_of(PLAIN, "w", 7).rows[0])])
        with pytest.raises(AssertionError, match="stands twice"):
            check_kept(lake, {(PLAIN, "w"): 5})


def everyone(child: Child, before: Last) -> Last:
    """Return the last acknowledged turn of everyone who may have rows."""
    writers = range(child.plan.get("writers", 2))
    silent = {(table, f"{child.plan.get('life', '0')}.{number}"): -1 for table in TABLES for number in writers}
    return {**before, **silent, **last_turns(child.acknowledged())}


def check_after_kill(location: Path, last: Last, *, fold: bool = True) -> Last:
    """Reopen and compare; return the turns that are there now, all of them acknowledged."""
    with connect(str(location)) as lake:
        there = check_kept(lake, last)
        check_retries(lake, last, there)
        kept = {place: turn + 1 for place, turn in last.items()}
        assert check_kept(lake, kept) == kept
        if fold:
            for table in TABLES:
                lake.table(table).fold()
                assert lake.table(table).describe()["staged_rows"] == 0
                check_plain_delta(lake, table)
            assert check_kept(lake, kept) == kept
    # The ledger knows what the fold took out of the stage, in another process too.
    with connect(str(location)) as lake:
        for (table, writer), turn in kept.items():
            assert send(lake, table, batch_of(table, writer, turn)).duplicate
        assert check_kept(lake, kept) == kept
    return kept


def killed(child: Child) -> None:
    code = child.wait()
    assert code == -signal.SIGKILL, f"the child ended with {code} before it was killed: {child.words()}"
    assert not child.reported("error"), child.words()


def new_lake(location: Path) -> None:
    with connect(str(location)) as lake:
        make_tables(lake)


@pytest.fixture(scope="module")
def worked_on(spark: SparkRuntime, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with several folds, a compaction and staged changes behind it, to be copied."""
    location = tmp_path_factory.mktemp("worked-on") / "lake"
    with connect(str(location)) as lake:
        make_tables(lake)
        for turn in range(40):
            for table in TABLES:
                send(lake, table, batch_of(table, "base", turn))
                if turn in (12, 24):
                    lake.table(table).fold()
        for table in TABLES:
            lake.table(table).compact()
            send(lake, table, batch_of(table, "base", 40))
    return location


@pytest.fixture
def copy(worked_on: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(worked_on, tmp_path / "lake"))


BASE: Last = {(table, "base"): 40 for table in TABLES}


# -- without Spark -------------------------------------------------------------------------------------------


def kill_while_staging(nursery: Child, tmp_path: Path, phase: str, hit: int, **plan: Any) -> None:
    location = tmp_path / "lake"
    new_lake(location)
    with Child(
        str(location), mother=nursery, phase=phase, hit=hit, **{"after_acks": 20, "pause": 0, "seconds": 60, **plan}
    ) as child:
        killed(child)
        last = everyone(child, {})
    if phase == "stage.written":
        assert leftovers(location), "a kill before the link leaves the temporary file"
    check_after_kill(location, last)


@pytest.mark.parametrize("phase", ["stage.linked"])
def test_killed_while_it_stages(spark: SparkRuntime, nursery: Child, tmp_path: Path, phase: str) -> None:
    kill_while_staging(nursery, tmp_path, phase, hit=20)


@pytest.mark.parametrize("phase", PACK)
def test_killed_while_it_packs(spark: SparkRuntime, nursery: Child, tmp_path: Path, phase: str) -> None:
    kill_while_staging(nursery, tmp_path, phase, hit=2)


@pytest.mark.parametrize("phase", CLEAN)
def test_killed_while_it_vacuums(spark: SparkRuntime, nursery: Child, copy: Path, phase: str) -> None:
    before = files_below(copy / "lake")
    with Child(str(copy), mother=nursery, phase=phase, hit=2, do=["vacuum"], after_acks=20, life="1") as child:
        killed(child)
        last = everyone(child, BASE)
    assert before - files_below(copy / "lake"), "it had deleted something"
    check_after_kill(copy, last)


@pytest.mark.parametrize("hit", [1, 5])
def test_a_task_of_a_killed_process_is_taken_over(nursery: Child, tmp_path: Path, hit: int) -> None:
    new_lake(tmp_path)
    with Child(
        str(tmp_path), mother=nursery, phase="control.claimed", hit=hit, do=["claim"], life="1", writers=0
    ) as child:
        killed(child)
        *done, unfinished = child.reported("claiming")
    assert len(done) == hit - 1
    with connect(str(tmp_path)) as lake:
        storage = lake.operations.warehouse.storage
        tasks = {task["task_name"]: task for task in lake.tasks()}
        assert tasks[unfinished]["status"] == "processing"
        assert all(tasks[name]["status"] == "idle" for name in done)
        assert lake.operations.control.claim(unfinished, "other") is None, "its holder may still live"
        later = ControlTable(storage, lease_s=60, clock=lambda: dt.datetime.now(dt.UTC) + dt.timedelta(seconds=61))
        lease = later.claim(unfinished, "other")
        assert lease is not None
        with lease:
            assert not lake.operations.control.release(unfinished, "1", result={}, interval_s=60), (
                "the dead one's claim is gone"
            )
            assert lake.operations.control.release(unfinished, "other", result={"done": True}, interval_s=60)
        [task] = [task for task in lake.tasks() if task["task_name"] == unfinished]
        assert (task["status"], json.loads(task["last_result"])) == ("idle", {"done": True})


def kill_at_random(
    nursery: Child | None,
    location: Path,
    chance: random.Random,
    lives: Iterator[int],
    last: Last,
    ends: float,
    **plan: Any,
) -> Last:
    """Start, kill after a random time, compare, and again on what is there, until the time is over."""
    number = 0
    while not number or time.monotonic() < ends:
        number = next(lives)
        with Child(str(location), mother=nursery, life=str(number), seconds=60, watch=True, **plan) as child:
            child.await_reported("ready", timeout_s=240)
            time.sleep(chance.uniform(0, plan.get("longest", 1.0)))
            child.kill()
            killed(child)
            last = everyone(child, last)
        print(f"life {number}: {len(child.acknowledged())} acknowledged, {len(child.reported('step'))} steps")
        last = check_after_kill(location, last, fold=number % 3 == 2)
    return last


def test_killed_at_random_moments(spark: SparkRuntime, nursery: Child, tmp_path: Path) -> None:
    new_lake(tmp_path / "lake")
    began = time.monotonic()
    chance = random.Random(began)
    kill_at_random(
        nursery, tmp_path / "lake", chance, iter(range(1, 99)), {}, began + 4, do=["pack", "clean", "claim"], pause=0
    )


# -- what a kill leaves behind -------------------------------------------------------------------------------


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def live_files(lake: Any, table: str) -> set[str]:
    return set(pa.table(plain_delta(lake, table).get_add_actions())["path"].to_pylist())


def leftovers(location: Path) -> set[str]:
    """Return the files in the tables' folders that belong to nothing: temporary ones, and those of jobs that are over."""
    found = set()
    for table in TABLES:
        folder = location / table.replace(".", "/")
        with connect(str(location)) as lake:
            live = live_files(lake, table)
        for path in files_below(folder):
            name = path.rpartition("/")[2]
            kind = path.split("/")[2] if path.startswith("_crannog/") else path.split("/")[0]
            if name.endswith(".tmp") or kind in ("jobs", "leases") or (kind == "data" and path not in live):
                found.add(f"{folder}/{path}")
    trash = location / "_crannog" / "trash"
    return found | ({str(trash / path) for path in files_below(trash)} if trash.exists() else set())


def aged(paths: set[str]) -> None:
    """Make files as old as those that nobody can be at work on."""
    long_ago = time.time() - 3 * 24 * 3600
    for path in paths:
        os.utime(path, (long_ago, long_ago))


def check_vacuum_takes_leftovers(location: Path) -> None:
    aged(leftovers(location))
    with connect(str(location)) as lake:
        for table in TABLES:
            lake.table(table).vacuum(0, force=True)
    assert leftovers(location) == set()


def ids_in(path: Path) -> set[str]:
    """Return the ids a file shows, whatever it is called."""
    try:
        return set(pq.read_table(pa.BufferReader(path.read_bytes()), columns=["id"])["id"].to_pylist())
    except (pa.ArrowException, OSError, KeyError):
        return set()


def check_shown_nowhere(location: Path, name: str) -> None:
    for path in (location / path for path in files_below(location)):
        assert name not in ids_in(path), f"{path} still holds {name}"
        assert name.encode() not in path.read_bytes(), f"{path} still shows {name}"


def test_a_vacuum_takes_what_a_kill_left_in_the_stage(nursery: Child, tmp_path: Path) -> None:
    location = tmp_path / "lake"
    new_lake(location)
    with Child(str(location), mother=nursery, phase="stage.written", hit=20, pause=0) as child:
        killed(child)
    assert leftovers(location)
    check_vacuum_takes_leftovers(location)


def test_an_erase_finds_the_temporary_file_that_a_kill_left(
    spark: SparkRuntime, nursery: Child, tmp_path: Path
) -> None:
    location = tmp_path / "lake"
    new_lake(location)
    with Child(
        str(location), mother=nursery, phase="stage.written", after_acks=10, tables=[KEYED], writers=1, pause=0
    ) as child:
        killed(child)
        [turn] = last_turns(child.acknowledged()).values()
    names = [row["id"] for row in batch_of(KEYED, "0.0", turn + 1).rows]
    left = leftovers(location)
    [temporary] = [path for path in left if any(Path(path).read_bytes())]  # spare files hold nothing yet
    assert ids_in(Path(temporary)) == set(names)
    aged(left)
    with connect(str(location)) as lake:
        lake.table(KEYED).erase([{"id": name} for name in names], actor="test", reason="asked for")
    for name in names:
        check_shown_nowhere(location, name)


# -- with Spark in the child ---------------------------------------------------------------------------------

STEPS = {
    "fold": ["fold"],
    "compact": ["fold", "compact"],
    "vacuum": ["fold", "compact", "vacuum"],
    "erase": ["erase"],
}


def kill_with_spark(
    nursery: Child, location: Path, phase: str, *, during: str = "fold", hit: int = 1, **plan: Any
) -> None:
    began = time.monotonic()
    plan = {"do": STEPS[during], "after_acks": 40, "pause": 0.03, "life": "1", "seconds": 120, **plan}
    with Child(str(location), mother=nursery, phase=phase, hit=hit, during=during, **plan) as child:
        killed(child)
        print(
            f"{phase}, {during}: killed after {time.monotonic() - began:.1f} s, {len(child.acknowledged())} acknowledged"
        )
        last = everyone(child, BASE)
        erasing, erased = child.reported("erasing"), child.reported("erased")
    last = check_after_kill(location, last)
    aged(leftovers(location) if erasing else set())
    for name in erasing:
        if name not in erased:
            with connect(str(location)) as lake:
                lake.table(KEYED).erase([{"id": name}], actor="test", reason="asked for again")
        check_shown_nowhere(location, name)
    if erasing:
        check_after_kill(location, last)
    print(f"{phase}, {during}: {time.monotonic() - began:.1f} s in all")


@pytest.mark.parametrize(
    "phase",
    [
        pytest.param("rewrite.synced", marks=pytest.mark.slow),
        "rewrite.ledger_written",
        pytest.param("rewrite.committed", marks=pytest.mark.slow),
    ],
)
def test_killed_while_it_folds(spark: SparkRuntime, nursery: Child, copy: Path, phase: str) -> None:
    kill_with_spark(nursery, copy, phase, hit=2)


def test_java_that_outlives_its_python_commits_nothing(spark: SparkRuntime, nursery: Child, copy: Path) -> None:
    """Python is killed while Spark writes; its tasks may finish their files, and no version ever names them."""
    rows = [row_of(f"many/{number}", "many!", 0) for number in range(20_000)]
    with connect(str(copy)) as lake:
        lake.table(PLAIN).append(rows, batch_id="many")
        version = lake.table(PLAIN).describe()["version"]
    data = copy / PLAIN.replace(".", "/") / "data"
    before = files_below(data)
    with Child(str(copy), mother=nursery, do=["fold"], tables=[PLAIN], life="1", pause=0.01) as child:
        while not files_below(data) - before:
            assert child.code() is None, child.words()
            time.sleep(0.001)
        child.kill()
        killed(child)
        last = {place: turn for place, turn in everyone(child, BASE).items() if place[0] == PLAIN or place[1] == "base"}
    killed_at = time.monotonic()
    written = files_below(data) - before
    while (size := _size(data)) != _size_after(data, 1.0):
        assert time.monotonic() - killed_at < 60, f"Spark's tasks do not end: {written}, {size:,} bytes"
    with connect(str(copy)) as lake:
        assert lake.table(PLAIN).describe()["version"] == version
    check_after_kill(copy, last)
    with connect(str(copy)) as lake:
        assert rows_by_writer(lake.table(PLAIN).to_arrow())["many!"] == {row["id"]: 0 for row in rows}
        assert not live_files(lake, PLAIN) & {f"data/{path}" for path in written}


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _size_after(folder: Path, seconds: float) -> int:
    time.sleep(seconds)
    return _size(folder)


def test_a_vacuum_takes_what_a_killed_fold_left(spark: SparkRuntime, nursery: Child, copy: Path) -> None:
    with Child(str(copy), mother=nursery, phase="rewrite.verified", during="fold", do=["fold"], life="1") as child:
        killed(child)
    left = leftovers(copy)
    [job] = {Path(path).stem.removeprefix("job-") for path in left if "/leases/job-" in path}
    written = {path for path in left if f"/data/{job}/" in path}
    assert written
    assert any(f"/jobs/{job}/" in path for path in left)
    with connect(str(copy)) as lake:
        for table in TABLES:
            lake.table(table).vacuum(0, force=True)
    # Its lease was renewed a moment ago: for all that others know the job still runs.
    assert written <= leftovers(copy)
    check_vacuum_takes_leftovers(copy)


@pytest.mark.parametrize(
    ("act", "answer"),
    [
        ("fold", "none"),
        ("compact", "taken"),
        pytest.param("fold", "taken", marks=pytest.mark.slow),
        pytest.param("compact", "none", marks=pytest.mark.slow),
    ],
)
def test_a_commit_to_the_base_whose_answer_is_lost_loses_no_rows(
    spark: SparkRuntime, copy: Path, act: str, answer: str
) -> None:
    """The entry is put, and the answer is an error, or (an object store's client repeats a put) that the name is taken."""
    with connect(str(copy)) as lake:
        storage = lake.operations.warehouse.storage
        put = storage.put_if_absent
        lost: list[str] = []

        def lossy(path: str, data: bytes, **options: Any) -> bool:
            done = bool(put(path, data, **options))
            if done and "/_delta_log/" in path and path.startswith("lake/") and path not in lost:
                lost.append(path)
                if answer == "none":
                    raise Unavailable(f"cannot write {path}: the answer is lost")
                return False
            return done

        for table in TABLES:
            lake.table(table).fold()
            send(lake, table, batch_of(table, "base", 41))
            storage.put_if_absent = lossy
            with suppress(Unavailable):
                getattr(lake.table(table), act)()
            storage.put_if_absent = put
            assert lost.pop().startswith(table.replace(".", "/"))
    check_after_kill(copy, {place: turn + 1 for place, turn in BASE.items()})


# -- all of it -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("hit", [1, 2, 63, 64, 200])
@pytest.mark.parametrize("phase", STAGE)
def test_killed_while_it_stages_at_many_moments(
    spark: SparkRuntime, nursery: Child, tmp_path: Path, phase: str, hit: int
) -> None:
    kill_while_staging(nursery, tmp_path, phase, hit=hit, after_acks=0, writers=4)


@pytest.mark.slow
@pytest.mark.parametrize("hit", [1, 3, 66, 67])
@pytest.mark.parametrize("phase", PACK)
def test_killed_while_it_packs_at_many_moments(
    spark: SparkRuntime, nursery: Child, tmp_path: Path, phase: str, hit: int
) -> None:
    # The 64th pack of one table is followed by the first pack of 4,096 changes.
    kill_while_staging(nursery, tmp_path, phase, hit=hit, writers=1, tables=[PLAIN], seconds=150)


@pytest.mark.slow
@pytest.mark.parametrize("hit", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("during", "phase"),
    [
        *(("fold", phase) for phase in REWRITE),
        # A compaction folds first; the ledger is a fold's alone.
        *(("compact", phase) for phase in REWRITE),
        *(("vacuum", phase) for phase in CLEAN),
        *(("erase", phase) for phase in (*ERASE, "rewrite.committed")),
    ],
)
def test_killed_in_maintenance_at_many_moments(
    spark: SparkRuntime, nursery: Child, copy: Path, during: str, phase: str, hit: int
) -> None:
    kill_with_spark(nursery, copy, phase, during=during, hit=hit)


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["stage.written", "stage.linked"])
@pytest.mark.parametrize("during", ["fold", "compact", "erase"])
def test_killed_at_each_file_that_maintenance_puts(
    spark: SparkRuntime, nursery: Child, copy: Path, tmp_path: Path, during: str, phase: str
) -> None:
    """Ledger, inputs of a job, log entry, audit: each is put by the same primitive."""
    for hit in range(1, 7):
        place = Path(shutil.copytree(copy, tmp_path / str(hit)))
        kill_with_spark(nursery, place, phase, during=during, hit=hit, writers=1)


@pytest.mark.slow
def test_killed_at_random_moments_of_everything(spark: SparkRuntime, nursery: Child, copy: Path) -> None:
    began = time.monotonic()
    chance = random.Random(began)
    do = ["fold", "pack", "compact", "clean", "claim", "drop"]
    kill_at_random(nursery, copy, chance, iter(range(1, 999)), BASE, began + 120, do=do, longest=5.0, pause=0.005)


@pytest.mark.slow
def test_killed_at_random_moments_together_with_java(spark: SparkRuntime, copy: Path) -> None:
    """Processes of their own, each with a Java process that ends by itself when its Python is gone."""
    began = time.monotonic()
    chance = random.Random(began)
    do = ["fold", "compact", "clean"]
    kill_at_random(
        None, copy, chance, iter(range(1, 999)), BASE, began + 90, do=do, longest=5.0, pause=0.01, spark=True
    )
