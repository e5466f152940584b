"""Several processes on one lake at once: nothing is lost or doubled, one of each race wins, and all see the same."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crannog.engine.maintenance.control import ControlTable
from crannog.errors import VerificationFailed
from crannog.names import TableName
from crannog.spark.session import SparkRuntime
from crannog.storage import failpoints
from crash_child import (
    CONTENDED_KEYS,
    KEYED,
    PLAIN,
    TABLES,
    TWIN_ROWS,
    Child,
    batch_of,
    check_kept,
    check_plain_delta,
    connect,
    is_shared,
    last_turns,
    make_tables,
    row_of,
    rows_by_writer,
    send,
)

pytest_plugins = ["crash_child"]

# -- writing, folding and compacting one table at once -------------------------------------------------------


def run_together(
    location: str,
    plans: Sequence[dict[str, Any]],
    folder: Path,
    *,
    seconds: float,
    steps: int,
    mother: Child | None = None,
) -> list[Child]:
    """Start processes, let them go at one moment, and return them when all have ended well.

    They run for `seconds`, and longer on a busy machine until those with Spark have done `steps` of maintenance.
    """
    began = time.monotonic()
    go, stop = folder / "go", folder / "stop"
    with ExitStack() as children:
        started = [
            children.enter_context(Child(location, mother=mother, go=str(go), stop=str(stop), seconds=150, **plan))
            for plan in plans
        ]
        for child in started:
            child.await_reported("ready", timeout_s=240)
        print(f"{len(plans)} processes ready after {time.monotonic() - began:.1f} s")
        go.touch()
        time.sleep(seconds)
        for child in started:
            if child.plan.get("spark"):
                child.await_reported("step", steps)
        stop.touch()
        for child in started:
            code = child.wait(280)
            assert not child.reported("error"), child.words()
            assert code == 0, child.words()
            assert child.reported("done"), child.words()
            child.all_lines()
    for child in started:
        took = [f"{line['step']} {line['seconds']} s" for line in child.lines if "step" in line]
        repeated = sum(line["duplicate"] for line in child.acknowledged())
        print(
            f"{child.plan['life']}: {len(child.acknowledged())} acknowledged, {repeated} as duplicates; {', '.join(took[-12:])}"
        )
    return started


def check_together(location: str, children: Sequence[Child]) -> None:
    """Compare the tables with what each process says was acknowledged, before and after a last fold."""
    acknowledged = [line for child in children for line in child.acknowledged()]
    last = {place: turn for child in children for place, turn in last_turns(child.acknowledged()).items()}
    assert last
    with connect(location) as lake:
        for _ in range(2):
            assert check_kept(lake, last) == last
            check_twins(rows_by_writer(lake.table(PLAIN).to_arrow()), acknowledged)
            check_contended(rows_by_writer(lake.table(KEYED).to_arrow()), acknowledged)
            for table in TABLES:
                lake.table(table).fold()
                check_plain_delta(lake, table)


def check_twins(found: dict[str, dict[str, int]], acknowledged: Sequence[dict[str, Any]]) -> None:
    """A batch that several processes sent under one id is there once, at one place, and one of them was the first."""
    turns: dict[int, list[dict[str, Any]]] = {}
    for line in acknowledged:
        if line["ack"][1] == "twin":
            turns.setdefault(line["ack"][2], []).append(line)
    assert found.get("twin", {}) == {f"twin/{turn}/{n}": turn for turn in turns for n in range(TWIN_ROWS)}
    for turn, lines in turns.items():
        assert sum(not line["duplicate"] for line in lines) == 1, (turn, lines)
        assert len({line["sequence"] for line in lines}) == 1, (turn, lines)


def check_contended(found: dict[str, dict[str, int]], acknowledged: Sequence[dict[str, Any]]) -> None:
    """A key that all changed holds the change that was committed last."""
    changes: dict[str, dict[int, set[tuple[str, int]]]] = {}
    for line in acknowledged:
        _, writer, turn = line["ack"]
        if is_shared(writer) and writer != "twin":
            of_key = changes.setdefault(f"contended/{turn % CONTENDED_KEYS}", {})
            of_key.setdefault(line["sequence"], set()).add((writer, turn))
    values = {
        name: (writer, turn) for writer, mine in found.items() if writer.endswith("!") for name, turn in mine.items()
    }
    assert values.keys() == changes.keys()
    for name, of_key in changes.items():
        for together in of_key.values():
            # Processes share commits: one sequence may hold a change of each of them, but not two of one.
            assert len({writer for writer, _ in together}) == len(together), (name, together)
        assert values[name] in of_key[max(of_key)], (name, values[name], of_key[max(of_key)])


def plans_for(count: int, with_spark: int, **more: Any) -> list[dict[str, Any]]:
    do = itertools.cycle(
        [["fold", "clean", "compact"], ["fold", "fold", "clean"], ["compact", "clean"], ["fold", "compact"]]
    )
    return [
        {
            "life": f"p{number}",
            "together": True,
            "watch": True,
            "spark": number < with_spark,
            "do": next(do) if number < with_spark else ["pack", "clean"],
            "pause": 0.03,
            "after_acks": 20,
            **more,
        }
        for number in range(count)
    ]


def test_two_processes_at_once(spark: SparkRuntime, nursery: Child, tmp_path: Path) -> None:
    location = str(tmp_path / "lake")
    with connect(location) as lake:
        make_tables(lake)
    children = run_together(location, plans_for(2, with_spark=1), tmp_path, seconds=6, steps=3, mother=nursery)
    check_together(location, children)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_processes_that_all_fold_and_compact(spark: SparkRuntime, tmp_path: Path, count: int) -> None:
    location = str(tmp_path / "lake")
    with connect(location) as lake:
        make_tables(lake)
    memory = {"spark_memory_mb": 768}
    children = run_together(
        location, plans_for(count, with_spark=count, settings=memory), tmp_path, seconds=40, steps=6
    )
    check_together(location, children)


@pytest.mark.slow
def test_many_processes_that_only_write(spark: SparkRuntime, tmp_path: Path) -> None:
    location = str(tmp_path / "lake")
    with connect(location) as lake:
        make_tables(lake)
    children = run_together(location, plans_for(6, with_spark=0, pause=0, writers=3), tmp_path, seconds=20, steps=0)
    check_together(location, children)


def test_a_read_just_after_a_pack_was_put_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader's listing may show a pack before the packer of the same process has taken it in."""
    with connect(str(tmp_path)) as lake:
        make_tables(lake)
        log = lake.operations.tables.open(TableName.parse(PLAIN)).log
        monkeypatch.setattr(failpoints, "hook", lambda phase: log.refresh() if phase == "pack.written" else None)
        for turn in range(70):
            send(lake, PLAIN, batch_of(PLAIN, "w", turn))
        lake.operations.warehouse.in_background(int).result(30)  # one thread: the pack is done before this
        last = {(PLAIN, "w"): 69}
        assert check_kept(lake, last) == last
        send(lake, PLAIN, batch_of(PLAIN, "w", 70))
    with connect(str(tmp_path)) as lake:
        last = {(PLAIN, "w"): 70}
        assert check_kept(lake, last) == last
        assert lake.table(PLAIN).describe()["staged_files"] == 9


# -- maintenance of one process against that of another, held at the worst moment ------------------------------


@pytest.fixture
def two(spark: SparkRuntime, tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """Two connections to a lake with folded turns of `w` and a folded key that is to be erased."""
    with connect(str(tmp_path)) as lake, connect(str(tmp_path)) as other:
        make_tables(lake)
        for turn in range(8):
            send(lake, KEYED, batch_of(KEYED, "w", turn))
        lake.table(KEYED).upsert([row_of("secret/1", "secret", 0)])
        lake.table(KEYED).fold()
        yield lake, other


def erase_with(lake: Any, meanwhile: Callable[[], None]) -> None:
    """Erase the key; `meanwhile` happens when the fold that takes it out of the base is done and old files are to go."""

    def progress(step: str, _: float) -> None:
        if step == "delete old files":
            meanwhile()

    # It may say that the key is there again, since it is.
    with suppress(VerificationFailed):
        lake.table(KEYED).erase([{"id": "secret/1"}], actor="test", reason="asked for", progress=progress)


def check_written_meanwhile(location: str) -> None:
    with connect(location) as fresh:
        last = {(KEYED, "w"): 7, (KEYED, "meanwhile"): 3}
        assert check_kept(fresh, last) == last
        assert rows_by_writer(fresh.table(KEYED).to_arrow())["secret"] == {"secret/1": 1}
        fresh.table(KEYED).fold()
        assert check_kept(fresh, last) == last
        check_plain_delta(fresh, KEYED)


def write_meanwhile(other: Any) -> None:
    """Write the erased key anew, in one staged file with rows of others: an erase covers what came before it."""
    rows = [row_of("secret/1", "secret", 1), *map(dict, batch_of(KEYED, "meanwhile", 0).rows)]
    other.table(KEYED).upsert(rows, batch_id="meanwhile#0")
    for turn in (1, 2, 3):
        send(other, KEYED, batch_of(KEYED, "meanwhile", turn))


def test_what_is_written_while_an_erase_runs_is_kept(two: tuple[Any, Any]) -> None:
    lake, other = two
    erase_with(lake, lambda: write_meanwhile(other))
    check_written_meanwhile(lake.operations.warehouse.location)


def test_an_erase_goes_on_while_another_process_packs(two: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The staged files that the erase has listed are gone when it reads them: their pack holds what they held."""
    lake, other = two
    with connect(lake.operations.warehouse.location, pack_bytes=0) as writer:  # it packs nothing by itself
        for turn in range(8, 130):
            send(writer, KEYED, batch_of(KEYED, "w", turn))
    log, others_log = (through.operations.tables.open(TableName.parse(KEYED)).log for through in two)
    listed, packs = log.staged_names, []

    def then_packed() -> list[str]:
        names = listed()
        # The first listing is only counted.
        packs.append(others_log.pack() if packs else 0)
        return names

    monkeypatch.setattr(log, "staged_names", then_packed)
    receipt = lake.table(KEYED).erase([{"id": "secret/1"}], actor="test", reason="asked for")
    assert packs[1] == 1
    assert receipt.rows_erased == 1
    last = {(KEYED, "w"): 129}
    assert check_kept(other, last) == last


def test_a_fold_that_runs_while_another_process_erases_loses_no_files(
    two: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, other = two
    about_to_commit, goes_on = threading.Event(), threading.Event()
    folding = threading.Thread(target=lambda: other.table(KEYED).fold())
    put = other.operations.warehouse.storage.put_if_absent

    def stall(path: str, data: bytes, **options: Any) -> bool:
        if "/_delta_log/" in path and not about_to_commit.is_set():
            about_to_commit.set()
            assert goes_on.wait(60)
        return bool(put(path, data, **options))

    def meanwhile() -> None:
        write_meanwhile(other)
        monkeypatch.setattr(other.operations.warehouse.storage, "put_if_absent", stall)
        folding.start()
        assert about_to_commit.wait(60)

    try:
        erase_with(lake, meanwhile)
    finally:
        goes_on.set()
        folding.join(60)
    check_written_meanwhile(lake.operations.warehouse.location)


def test_a_fold_that_begins_while_a_vacuum_runs_is_left_alone(
    two: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vacuum has looked at the leases before the fold has one, and clears folders after the fold made its own."""
    lake, other = two
    send(lake, KEYED, batch_of(KEYED, "w", 8))
    made, goes_on = threading.Event(), threading.Event()
    failures: list[BaseException] = []
    make_folder = other.operations.warehouse.storage.make_folder

    def hold_after_making(folder: str) -> None:
        make_folder(folder)
        if "/jobs/" in folder:
            made.set()
            assert goes_on.wait(60)

    def fold() -> None:
        try:
            other.table(KEYED).fold()
        except BaseException as error:
            failures.append(error)

    folding = threading.Thread(target=fold)

    def begin(phase: str) -> None:
        if phase == "vacuum.files_deleted":
            folding.start()
            assert made.wait(60)

    monkeypatch.setattr(other.operations.warehouse.storage, "make_folder", hold_after_making)
    monkeypatch.setattr(failpoints, "hook", begin)
    lake.table(KEYED).vacuum(0, force=True)
    monkeypatch.setattr(failpoints, "hook", None)
    goes_on.set()
    folding.join(60)
    assert failures == []
    last = {(KEYED, "w"): 8}
    assert check_kept(other, last) == last
    assert other.table(KEYED).describe()["staged_rows"] == 0


# -- races ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crew(nursery: Child, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Child]]:
    """Five processes on one lake that wait for orders."""
    location = str(tmp_path_factory.mktemp("races") / "lake")
    with ExitStack() as children:
        members = [children.enter_context(Child(location, mother=nursery, mode="obey")) for _ in range(5)]
        for member in members:
            member.await_reported("ready")
        yield members


@pytest.fixture(scope="module")
def races(crew: list[Child]) -> Iterator[Any]:
    """The same lake, in this process."""
    [location] = {child.location for child in crew}
    with connect(location) as lake:
        yield lake


def at_once(members: Sequence[Child], orders: Sequence[dict[str, Any]]) -> list[Any]:
    """Give each member its order for the same moment and return the answers."""
    at = time.time() + 0.05
    waiting = [member.ask(at=at, **order) for member, order in zip(members, orders, strict=True)]
    return [answer() for answer in waiting]


COLUMNS = {"id": "string", "n": "int64"}


@pytest.mark.parametrize("number", range(3))
def test_five_processes_that_make_the_same_table_end_with_one(crew: list[Child], races: Any, number: int) -> None:
    name = f"race.made.same{number}"
    order = {"do": "create", "name": name, "columns": COLUMNS, "key": ["id"], "if_exists": "ok"}
    answers = at_once(crew, [order] * 5)
    assert answers == [races.table(name).describe()["table_id"]] * 5
    folder = Path(races.operations.warehouse.location) / name.replace(".", "/")
    assert [path.name for path in (folder / "_delta_log").glob("*.json")] == [f"{0:020}.json"]
    assert [path.parent.name for path in folder.glob("_crannog/*/table.json")] == answers[:1]


def test_five_processes_that_make_one_table_without_ok_have_one_winner(crew: list[Child], races: Any) -> None:
    answers = at_once(crew, [{"do": "create", "name": "race.made.once", "columns": COLUMNS}] * 5)
    won = [answer for answer in answers if isinstance(answer, str)]
    assert won == [races.table("race.made.once").describe()["table_id"]]
    assert [answer["error"] for answer in answers if answer not in won] == ["Conflict"] * 4


def test_of_different_definitions_one_wins(crew: list[Child], races: Any) -> None:
    orders = [
        {
            "do": "create",
            "name": "race.made.different",
            "columns": {"id": "string", f"c{n}": "int64"},
            "if_exists": "ok",
        }
        for n in range(5)
    ]
    answers = at_once(crew, orders)
    [winner] = [n for n, answer in enumerate(answers) if isinstance(answer, str)]
    for n, answer in enumerate(answers):
        if n != winner:
            assert answer["error"] == "Conflict"
            assert f"c{winner}" in answer["message"], "the message shows the difference"
    assert f"c{winner}" in races.table("race.made.different").schema.names


def test_one_batch_sent_by_five_processes_at_once_is_kept_once(crew: list[Child], races: Any) -> None:
    make_tables(races)
    for number in range(20):
        order = {
            "do": "append",
            "table": PLAIN,
            "batch_id": f"five{number}",
            "ids": [f"five/{number}/{n}" for n in range(3)],
        }
        answers = at_once(crew, [order] * 5)
        assert sum(not answer["duplicate"] for answer in answers) == 1, answers
        assert len({answer["sequence"] for answer in answers}) == 1, answers
    names = sorted(races.table(PLAIN).to_arrow()["id"].to_pylist())
    assert names == sorted(f"five/{number}/{n}" for number in range(20) for n in range(3))


# -- the control table ---------------------------------------------------------------------------------------


def test_each_of_twenty_tasks_is_claimed_by_one_of_four_processes(crew: list[Child], races: Any) -> None:
    tasks = [f"claimed:{number}" for number in range(20)]
    # Each begins elsewhere, so that all get some and all meet.
    orders = [{"do": "claim", "owner": f"o{n}", "tasks": tasks[n * 5 :] + tasks[: n * 5]} for n in range(4)]
    began = time.monotonic()
    answers = at_once(crew[:4], orders)
    print(
        f"80 claims of 20 tasks by 4 processes took {time.monotonic() - began:.2f} s: {[len(got) for got in answers]}"
    )
    assert sorted(task for taken in answers for task in taken) == sorted(tasks)
    owners = {task["task_name"]: task["owner"] for task in races.tasks() if task["task_name"] in tasks}
    assert owners == {task: f"o{n}" for n, taken in enumerate(answers) for task in taken}


def test_all_claim_one_task_and_one_gets_it_each_time_it_is_due(crew: list[Child]) -> None:
    for number in range(10):
        answers = at_once(crew, [{"do": "claim", "owner": f"o{n}", "tasks": ["contended"]} for n in range(5)])
        [owner] = [n for n, taken in enumerate(answers) if taken]
        # A failure keeps it due, a success with no interval makes it due again.
        assert crew[owner].ask(
            do="release", task="contended", owner=f"o{owner}", interval_s=None if number % 2 else 0
        )()
        assert not crew[owner].ask(do="release", task="contended", owner=f"o{owner}", interval_s=0)(), "it was released"


def test_a_failure_keeps_a_task_due_and_counts(crew: list[Child], races: Any) -> None:
    def task() -> dict[str, Any]:
        [found] = [task for task in races.tasks() if task["task_name"] == "failing"]
        return found

    for failures in (1, 2):
        assert crew[failures].ask(do="claim", owner="x", tasks=["failing"])() == ["failing"]
        assert crew[failures].ask(do="release", task="failing", owner="x", interval_s=None)()
        assert (task()["status"], task()["failures"], task()["next_run_at"]) == ("idle", failures, None)
        assert json.loads(task()["last_result"]) == {"by": "x"}
    assert crew[0].ask(do="claim", owner="x", tasks=["failing"])() == ["failing"]
    assert crew[0].ask(do="release", task="failing", owner="x", interval_s=3600)()
    assert (task()["status"], task()["failures"]) == ("idle", 0)
    assert at_once(crew, [{"do": "claim", "owner": "y", "tasks": ["failing"]}] * 5) == [[]] * 5, (
        "it is not due for an hour"
    )


def test_a_claim_whose_holder_fell_silent_is_taken_over_once(nursery: Child, crew: list[Child], races: Any) -> None:
    with Child(races.operations.warehouse.location, mother=nursery, mode="obey") as holder:
        holder.await_reported("ready")
        assert holder.ask(do="claim", owner="dead", tasks=["stale"])() == ["stale"]
        orders = [{"do": "claim", "owner": f"o{n}", "tasks": ["stale"], "lease_s": 1.0} for n in range(5)]
        holder.kill()
        killed_at = time.monotonic()
        holder.wait()
    assert at_once(crew, [{**order, "lease_s": 60} for order in orders]) == [[]] * 5, "its heartbeat is a moment old"
    time.sleep(max(0.0, 1.3 - (time.monotonic() - killed_at)))
    answers = at_once(crew, orders)
    [heir] = [n for n, taken in enumerate(answers) if taken]
    control = ControlTable(races.operations.warehouse.storage, lease_s=60)
    assert not control.release("stale", "dead", result="too late", interval_s=0)
    assert control.release("stale", f"o{heir}", result="done", interval_s=0)


def test_due_tasks_run_once_whoever_looks(crew: list[Child], races: Any) -> None:
    for number in range(3):
        table = races.create_table(f"race.due.t{number}", {"type": "object", "properties": {"id": {"type": "string"}}})
        table.evolve(pa.schema([("id", pa.string()), ("note", pa.string())]))
    names = {f"vacuum:{name}" for name in races.tables() if races.table(name).describe()["version"]}
    began = time.monotonic()
    answers = at_once(crew, [{"do": "run_due"}] * 5)
    print(
        f"{len(names)} due tasks in 5 processes took {time.monotonic() - began:.2f} s: {[len(ran) for ran in answers]}"
    )
    assert sorted(task for ran in answers for task in ran) == sorted(names)
    assert at_once(crew, [{"do": "run_due"}] * 5) == [[]] * 5, "nothing is due any more"
    assert {task["task_name"] for task in races.tasks() if task["completed_at"]} >= names
