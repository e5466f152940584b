"""The writer: group commit, its bounds, batch ids, thousands of single rows without a fold, several processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crannog.embedded import EmbeddedLake as Lake
from crannog.embedded import EmbeddedTable as Table
from crannog.engine.commit import group as group_module
from crannog.errors import BadRows, CallerError, CrannogError, Overloaded, SchemaMismatch, Unavailable
from forcing import (
    SCHEMA,
    WAIT_S,
    Behind,
    Fail,
    Lakes,
    Pause,
    Running,
    ids_of,
    opened,
    row,
    rows_of,
    rules,
    settled,
)

pytest_plugins = ["forced"]

NAME = "shop.eu.orders"
STAGE = "/stage/"


class Queue:
    """A table whose writer hangs in its first put, so that the calls made meanwhile wait and go together."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._pause = Pause("put_if_absent", STAGE)
        self._calls: list[Running] = []

    def __enter__(self) -> Queue:
        self._storage = opened(self._table).warehouse.storage
        self._storage.rules.append(self._pause)  # type: ignore[attr-defined]
        self._calls.append(Running(lambda: self._table.append([row(0)])))
        self._pause.wait()
        return self

    def add(self, call: Callable[[], Any]) -> Running:
        """Make a call and wait until it stands in the queue."""
        writer = opened(self._table).writer
        before = len(writer._group._waiting)
        running = Running(call)
        deadline = time.monotonic() + WAIT_S
        while len(writer._group._waiting) == before and running._thread.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.001)
        self._calls.append(running)
        return running

    def __exit__(self, *_: object) -> None:
        self._pause.go()
        for call in self._calls:
            call._thread.join(WAIT_S)
            assert not call._thread.is_alive(), "a call waits for ever"
        self._storage.rules.remove(self._pause)  # type: ignore[attr-defined]


# --- group commit -----------------------------------------------------------------------------------------------------


def test_calls_that_wait_together_share_one_file(lakes: Lakes) -> None:
    table = lakes().create_table(NAME, SCHEMA)
    with Queue(table) as queue:
        calls = [queue.add(lambda n=n: table.append([row(n)])) for n in range(1, 9)]
    assert [call.result().sequence for call in calls] == [2] * 8
    assert not any(call.result().duplicate for call in calls)
    behind = Behind(lakes.root, NAME)
    assert len(behind.staged_names()) == 2
    assert behind.staged_rows() == [(1, 0, 0), *[(2, n - 1, n) for n in range(1, 9)]]
    notes = behind.footer(behind.staged_names()[1])["notes"]
    assert notes["rows"] == [1] * 8
    assert len(set(notes["batch_id"])) == 8
    assert ids_of(table) == list(range(9))


def test_many_threads_are_kept_once_in_fewer_files_than_calls(lakes: Lakes) -> None:
    lake = lakes()
    table = lake.create_table(NAME, SCHEMA)
    calls = 240
    with ThreadPoolExecutor(12) as pool:
        receipts = list(pool.map(lambda n: table.append([row(n)]), range(calls)))
    settled(lake)
    assert ids_of(table) == list(range(calls))
    sequences = sorted({receipt.sequence for receipt in receipts})
    assert sequences == list(range(1, len(sequences) + 1)), "dense"
    assert len(sequences) < calls, "concurrent callers shared files"
    staged = Behind(lakes.root, NAME).staged_rows()
    by_id = {number: sequence for sequence, _, number in staged}
    assert len(staged) == calls
    assert [receipt.sequence for receipt in receipts] == [by_id[number] for number in range(calls)]


def test_order_within_a_key_is_commit_order(lakes: Lakes, arrow: None) -> None:
    """Many threads upsert and delete three keys; what shows is the last change by sequence and place in the file."""
    lake = lakes()
    table = lake.create_table(NAME, SCHEMA, key="id")

    def change(number: int) -> None:
        if number % 7 == 0:
            table.delete([number % 3])
        else:
            table.upsert([row(number % 3, f"change {number}")])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(change, range(1, 120)))
    settled(lake)
    behind = Behind(lakes.root, NAME)
    last: dict[int, tuple[tuple[int, int], dict[str, Any]]] = {}
    for name in behind.staged_names():
        for entry in pq.read_table(behind.stage / name).to_pylist():
            place = (entry["_seq"], entry["_ord"])
            if entry["id"] not in last or place > last[entry["id"]][0]:
                last[entry["id"]] = place, entry
    expected = sorted((entry["id"], entry["name"], 0) for _, entry in last.values() if entry["_op"] == 0)
    assert rows_of(table) == rows_of(lakes().table(NAME)) == expected
    table.fold()
    assert behind.base_rows() == expected


def test_one_thread_sees_its_own_changes_in_order(lakes: Lakes) -> None:
    """While others write too: whoever has the answer of one call finds it in place before its next."""
    table = lakes().create_table(NAME, SCHEMA, key="id")

    def own(key: int) -> bool:
        for step in range(15):
            receipt = table.upsert([row(key, f"step {step}")])
            found = {entry[0]: entry[1] for entry in rows_of(table)}
            if found[key] != f"step {step}" or opened(table).snapshot().sequence < receipt.sequence:
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(own, range(4)))


def test_upserts_and_deletes_of_one_group_keep_their_order(lakes: Lakes) -> None:
    table = lakes().create_table(NAME, SCHEMA, key="id")
    with Queue(table) as queue:
        queue.add(lambda: table.upsert([row(1, "first"), row(2, "first")]))
        queue.add(lambda: table.delete([1, 2]))
        queue.add(lambda: table.upsert([row(2, "second")]))
    assert rows_of(table) == [(0, "row 0", 0), (2, "second", 0)]
    assert [(entry["key"]["id"], entry["outcome"]) for entry in table.tombstones()] == [(1, "hidden"), (2, "hidden")]


def test_a_group_is_bounded_in_rows(lakes: Lakes) -> None:
    table = lakes(group_commit_rows=6).create_table(NAME, SCHEMA)
    with Queue(table) as queue:
        for first in (10, 20, 30, 40):
            queue.add(lambda first=first: table.append([row(first + n) for n in range(3)]))
        queue.add(lambda: table.append([row(100 + n) for n in range(9)]))
    behind = Behind(lakes.root, NAME)
    sizes = [pq.read_metadata(behind.stage / name).num_rows for name in behind.staged_names()]
    assert sizes == [1, 6, 6, 9], "a call of more rows than that goes alone"
    assert len(ids_of(table)) == 22


def test_calls_from_before_and_after_an_evolution_share_a_file(lakes: Lakes, arrow: None) -> None:
    table = lakes().create_table(NAME, SCHEMA)
    wide = SCHEMA.set(2, pa.field("n", pa.int64())).append(pa.field("more", pa.string()))
    with Queue(table) as queue:
        before = queue.add(lambda: table.append([row(1, n=7)]))
        table.evolve(wide)
        after = queue.add(lambda: table.append([{**row(2, n=2**40), "more": "text"}]))
    assert before.result().sequence == after.result().sequence == 2
    found = table.to_arrow().sort_by("id").select(["id", "n", "more"]).to_pylist()
    assert found == [
        {"id": 0, "n": 0, "more": None},
        {"id": 1, "n": 7, "more": None},
        {"id": 2, "n": 2**40, "more": "text"},
    ]
    table.fold()
    assert ids_of(table) == [0, 1, 2]


# --- when something goes wrong ----------------------------------------------------------------------------------------


def test_a_failing_disk_fails_the_group_and_not_the_next_call(lakes: Lakes) -> None:
    lake = lakes()
    table = lake.create_table(NAME, SCHEMA)
    with Queue(table) as queue:
        failing = Fail("put_if_absent", STAGE)
        lake.operations.warehouse.storage.rules.append(failing)  # type: ignore[attr-defined]
        calls = [queue.add(lambda n=n: table.append([row(n)], batch_id=str(n))) for n in (1, 2, 3)]
    assert failing.fired
    for call in calls:
        with pytest.raises(Unavailable):
            call.result()
    lake.operations.warehouse.storage.rules.clear()  # type: ignore[attr-defined]
    assert ids_of(table) == [0]
    assert [table.append([row(n)], batch_id=str(n)).duplicate for n in (1, 2, 3)] == [False] * 3
    assert ids_of(table) == [0, 1, 2, 3]


def test_an_error_nobody_foresaw_reaches_every_caller_and_frees_the_writer(lakes: Lakes) -> None:
    lake = lakes()
    table = lake.create_table(NAME, SCHEMA)
    with Queue(table) as queue:
        lake.operations.warehouse.storage.rules.append(Fail("put_if_absent", STAGE, error=RuntimeError("a bug")))  # type: ignore[attr-defined]
        calls = [queue.add(lambda n=n: table.append([row(n)])) for n in (1, 2)]
    for call in calls:
        with pytest.raises((CrannogError, RuntimeError)):
            call.result()
    lake.operations.warehouse.storage.rules.clear()  # type: ignore[attr-defined]
    assert table.append([row(3)]).sequence == 2
    assert ids_of(table) == [0, 3]


def test_a_waiting_caller_that_is_interrupted_does_not_stop_the_others(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C reaches the thread that was to lead next: the others must not wait for it."""
    table = lakes().create_table(NAME, SCHEMA)
    interrupt = threading.Event()

    class Interruptible:
        """A held lock, as the writer makes it, whose wait ends with Ctrl-C in one thread."""

        def __init__(self) -> None:
            self._lock = threading.Lock()
            self._lock.acquire()

        def acquire(self) -> bool:
            if threading.current_thread().name != "the interrupted one":
                return self._lock.acquire(timeout=WAIT_S)
            assert interrupt.wait(WAIT_S)
            raise KeyboardInterrupt

        def release(self) -> None:
            self._lock.release()

    with Queue(table) as queue:
        call = group_module.Call
        monkeypatch.setattr(group_module, "Call", lambda value: call(value, asleep=Interruptible()))

        def interrupted() -> None:
            threading.current_thread().name = "the interrupted one"
            table.append([row(1)])

        first = queue.add(interrupted)
        later = queue.add(lambda: table.append([row(2)]))
        interrupt.set()
        with pytest.raises(KeyboardInterrupt):
            first.result()
    assert later.result().sequence == 2
    assert table.append([row(3)]).sequence == 3
    assert ids_of(table) == [0, 2, 3]


def test_the_queue_is_bounded(lakes: Lakes) -> None:
    table = lakes(queue_calls=3).create_table(NAME, SCHEMA)
    with Queue(table) as queue:
        calls = [queue.add(lambda n=n: table.append([row(n)])) for n in (1, 2, 3)]
        with pytest.raises(Overloaded, match="3 calls wait") as caught:
            table.append([row(4)])
        assert caught.value.retry_after_s
    assert [call.result().sequence for call in calls] == [2, 2, 2]
    table.append([row(4)])
    assert ids_of(table) == [0, 1, 2, 3, 4]


def test_a_call_that_goes_over_the_backlog_does_not_take_its_group_along(lakes: Lakes) -> None:
    table = lakes(staged_rows_limit=5).create_table(NAME, SCHEMA)
    with Queue(table) as queue:
        small = queue.add(lambda: table.append([row(1)]))
        large = queue.add(lambda: table.append([row(10 + n) for n in range(4)]))
        other = queue.add(lambda: table.append([row(2), row(3)]))
    assert small.result().sequence == other.result().sequence == 2
    with pytest.raises(Overloaded):
        large.result()
    assert ids_of(table) == [0, 1, 2, 3]


def test_one_bad_row_refuses_the_batch_and_nothing_else(lakes: Lakes) -> None:
    table = lakes().create_table(NAME, SCHEMA)
    with Queue(table) as queue:
        good = queue.add(lambda: table.append([row(1)]))
        with pytest.raises(BadRows) as caught:
            table.append([row(2), row(3), {"id": 4, "name": "x", "n": "seven"}], batch_id="bad")
        after = queue.add(lambda: table.append([row(5)]))
    for part in ("row", "3", "n", "seven"):
        assert part in caught.value.message
    assert good.result().sequence == after.result().sequence == 2
    assert ids_of(table) == [0, 1, 5]
    assert not table.append([row(2)], batch_id="bad").duplicate, "the refused batch left no trace"


def test_columns_that_do_not_fit_are_refused(lakes: Lakes) -> None:
    table = lakes().create_table(NAME, SCHEMA)
    for rows in (
        [{"id": 1, "unknown": 2}],
        pa.table({"id": pa.array(["a"]), "name": ["b"], "n": pa.array([1], pa.int32())}),
    ):
        with pytest.raises((BadRows, SchemaMismatch)):
            table.append(rows)
    assert Behind(lakes.root, NAME).staged_names() == []


def test_a_call_is_bounded_in_rows(lakes: Lakes) -> None:
    table = lakes(max_rows_per_call=10).create_table(NAME, SCHEMA)
    with pytest.raises(Overloaded, match="10"):
        table.append([row(n) for n in range(11)])
    assert Behind(lakes.root, NAME).staged_names() == []
    table.append([row(n) for n in range(10)])
    assert ids_of(table) == list(range(10))


def test_a_call_without_rows_takes_no_number(lakes: Lakes) -> None:
    table = lakes().create_table(NAME, SCHEMA)
    table.append([row(1)])
    receipt = table.append([])
    assert (receipt.sequence, receipt.rows) == (1, 0)
    assert len(Behind(lakes.root, NAME).staged_names()) == 1


# --- batch ids --------------------------------------------------------------------------------------------------------


def test_the_same_batch_twice_in_one_group_is_kept_once(lakes: Lakes) -> None:
    table = lakes().create_table(NAME, SCHEMA)
    with Queue(table) as queue:
        calls = [queue.add(lambda: table.append([row(1)], batch_id="one")) for _ in range(3)]
    assert sorted(call.result().duplicate for call in calls) == [False, True, True]
    assert {call.result().sequence for call in calls} == {2}
    assert ids_of(table) == [0, 1]


def test_one_batch_from_many_threads_of_two_connections_is_kept_once(lakes: Lakes) -> None:
    one, other = lakes(), lakes()
    tables = [one.create_table(NAME, SCHEMA), other.table(NAME)]
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda n: tables[n % 2].append([row(n % 5)], batch_id=f"batch {n % 5}"), range(60)))
    assert ids_of(tables[0]) == ids_of(tables[1]) == [0, 1, 2, 3, 4]
    assert sum(not receipt.duplicate for receipt in receipts) == 5
    assert len({(receipt.batch_id, receipt.sequence) for receipt in receipts}) == 5


@pytest.mark.parametrize("batch_id", ["", "x" * 257, 7, b"bytes"])
def test_a_batch_id_is_text_of_a_sensible_length(lakes: Lakes, batch_id: Any) -> None:
    table = lakes().create_table(NAME, SCHEMA)
    with pytest.raises(CallerError, match="batch id"):
        table.append([row(1)], batch_id=batch_id)
    assert Behind(lakes.root, NAME).staged_names() == []


def test_any_text_is_a_batch_id(lakes: Lakes, arrow: None) -> None:
    table = lakes().create_table(NAME, SCHEMA)
    names = ['quote " and \\', "tab\tnew\nline", "ünï 🦆", "../../etc", "x" * 256, "null\0byte"]
    for number, name in enumerate(names):
        assert not table.append([row(number)], batch_id=name).duplicate
    table.fold()
    fresh = lakes().table(NAME)
    assert [fresh.append([row(0)], batch_id=name).duplicate for name in names] == [True] * len(names)
    assert fresh.to_arrow().sort_by("id")["_batch_id"].to_pylist() == names


# --- many single rows -------------------------------------------------------------------------------------------------


def _staged_once(behind: Behind, changes: int) -> None:
    """Every change stands in the stage exactly once, under its own sequence and batch id."""
    seen: list[int] = []
    batches: list[str] = []
    for name in behind.staged_names():
        table = pq.read_table(behind.stage / name, columns=["_seq", "id"])
        assert table["_seq"].to_pylist() == table["id"].to_pylist()
        seen += table["id"].to_pylist()
        batches += behind.footer(name)["notes"]["batch_id"]
    assert sorted(seen) == list(range(1, changes + 1))
    assert sorted(batches) == sorted(f"batch {n}" for n in range(1, changes + 1))


def _single_rows(lakes: Lakes, changes: int, most_files: int) -> Table:
    lake = lakes()
    table = lake.create_table(NAME, SCHEMA)
    for number in range(1, changes + 1):
        table.append([row(number)], batch_id=f"batch {number}")
    settled(lake)
    behind = Behind(lakes.root, NAME)
    assert len(behind.staged_names()) <= most_files
    _staged_once(behind, changes)
    fresh = lakes().table(NAME)
    assert fresh.count() == changes
    assert fresh.append([row(1)], batch_id="batch 1").duplicate
    assert fresh.append([row(1)], batch_id=f"batch {changes}").duplicate
    assert fresh.append([row(0)]).sequence == changes + 1
    found = fresh.to_arrow()["id"]
    assert sorted(found.to_pylist()) == list(range(changes + 1))
    return fresh


def test_three_thousand_single_rows_lie_in_dozens_of_files(lakes: Lakes, arrow: None) -> None:
    fresh = _single_rows(lakes, 3_000, most_files=3_000 // 64 + 64)
    fresh.fold()
    assert Behind(lakes.root, NAME).base_ids() == list(range(3_001))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_single_rows_lie_in_dozens_of_files(lakes: Lakes) -> None:
    # 24 packs of 4,096, at most 63 of 64, at most 63 single files, and what is being packed.
    _single_rows(lakes, 100_000, most_files=24 + 63 + 64)


def test_packs_and_writers_and_readers_in_one_process(lakes: Lakes, arrow: None) -> None:
    """Readers see the table grow and never shrink, tear or repeat, while blocks are packed and folded under them."""
    lake = lakes()
    table = lake.create_table(NAME, SCHEMA)
    stop = threading.Event()

    def read() -> str:
        before = 0
        while not stop.is_set():
            found = ids_of(table)
            if found != sorted(set(found)):
                return f"a row twice: {found[-5:]}"
            if found != list(range(len(found))):
                return f"a hole: {found[-5:]}"
            if len(found) < before:
                return f"{before} rows, then {len(found)}"
            before = len(found)
        return ""

    def fold() -> str:
        while not stop.is_set():
            table.fold()
            opened(table).log.pack()
        return ""

    running = [Running(read), Running(read), Running(fold)]
    try:
        for number in range(200):
            table.append([row(number)])
    finally:
        stop.set()
    assert [work.result() for work in running] == ["", "", ""]
    assert ids_of(table) == ids_of(lakes().table(NAME)) == list(range(200))


# --- several processes ------------------------------------------------------------------------------------------------

CHILD = """
import json, sys, time
from pathlib import Path
from crannog.embedded import EmbeddedLake as Lake
from crannog.settings import Settings
import pyarrow as pa

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), pa.field("n", pa.int32())])
root, first, rows, seconds, pace = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
with Lake(root, settings=Settings(warehouse=root)) as lake:
    table = lake.table("shop.eu.orders")
    # The first write of a process imports half of its libraries.
    lake.create_table(f"shop.eu.warm_{first}", SCHEMA).append([{"id": 0, "name": "x", "n": 0}])
    Path(pace, str(first)).touch()
    while len(list(Path(pace).iterdir())) < 2:
        time.sleep(0.005)
    got = []
    until = time.monotonic() + seconds
    for number in range(first, first + rows):
        got.append(table.append([{"id": number, "name": "x", "n": 0}]).sequence)
        if time.monotonic() > until:
            break
    print(json.dumps(got))
"""


def two_children(lakes: Lakes, tmp_path: Path, *, rows: int, seconds: float) -> list[list[int]]:
    """Let two processes write single rows to the table at once; return the sequences each of them got."""
    pace = tmp_path / "pace"
    pace.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CRANNOG_")}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(lakes.root), str(first), str(rows), str(seconds), str(pace)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=tmp_path,
        )
        for first in (0, 1_000_000)
    ]
    answers = []
    try:
        for child in children:
            out, err = child.communicate(timeout=120)
            assert child.returncode == 0, err
            answers.append(json.loads(out))
    finally:
        for child in children:
            child.kill()
    return answers


def test_two_processes_write_one_table_at_once(lakes: Lakes, tmp_path: Path, arrow: None) -> None:
    table = lakes().create_table(NAME, SCHEMA)
    answers = two_children(lakes, tmp_path, rows=300, seconds=100)
    sequences = sorted({*answers[0], *answers[1]})
    assert sequences == list(range(1, len(sequences) + 1)), "dense"
    assert all(sequences_of_one == sorted(set(sequences_of_one)) for sequences_of_one in answers), (
        "calls one after the other share no number"
    )
    expected = [*range(300), *range(1_000_000, 1_000_300)]
    assert ids_of(table) == expected
    behind = Behind(lakes.root, NAME)
    assert len(behind.staged_names()) < 150, "the children packed"
    staged = behind.counting_rows()
    sequence_of = {number: sequence for sequence, _, number in staged}
    assert len(staged) == len(sequence_of) == 600
    assert [sequence_of[number] for number in expected] == answers[0] + answers[1]
    table.fold()
    assert behind.base_ids() == expected


def test_no_process_is_shut_out_by_a_quicker_one(lakes: Lakes, tmp_path: Path) -> None:
    """Whoever loses a number must come to its turn while the other goes on writing."""
    lakes().create_table(NAME, SCHEMA)
    answers = two_children(lakes, tmp_path, rows=100_000, seconds=2.5)
    assert min(map(len, answers)) > 10, f"one process wrote {len(answers[0])} times, the other {len(answers[1])} times"


def test_a_closed_connection_says_so(lakes: Lakes) -> None:
    lake: Lake = lakes()
    table = lake.create_table(NAME, SCHEMA)
    table.append([row(1)])
    lake.close()
    with pytest.raises(CallerError, match="closed"):
        table.append([row(2)])
    assert ids_of(lakes().table(NAME)) == [1]


def test_rules_are_gone_after_use(lakes: Lakes) -> None:
    """The tools of these tests leave nothing behind that would hide a failure."""
    lake = lakes()
    with rules(lake, Fail("read")):
        pass
    assert lake.operations.warehouse.storage.rules == []  # type: ignore[attr-defined]
