"""Storage that fails at any call, a full disk, a full backlog, and damaged files.

After every fault: what was acknowledged is there once, nothing is half there, the caller got one of our errors, and the
next call works as soon as the fault is gone.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from crannog.delta import log as log_module
from crannog.delta.checkpoints import is_readable
from crannog.embedded import EmbeddedLake as Lake
from crannog.embedded import EmbeddedTable as Table
from crannog.engine.maintenance.compact import compact
from crannog.errors import Corrupted, CrannogError, Overloaded, Unavailable
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from crannog.storage import local
from forcing import (
    FAULTS,
    SCHEMA,
    Behind,
    Fail,
    Lakes,
    clean,
    copied,
    failure_of,
    fault,
    fill_block,
    fold_and_clean,
    garbage,
    ids_of,
    opened,
    row,
    rows_of,
    rules,
    settled,
)
from lakes import live_files, root
from lakes import opened as lake_of

pytest_plugins = ["forced"]

NAME = "shop.eu.orders"
OTHER = "shop.eu.others"

Rows = dict[int, tuple[int, str, int]]


# --- a fault at every call --------------------------------------------------------------------------------------------


def _kept(rows: Rows, *numbers: int, name: str = "") -> Rows:
    return {**rows, **{number: (number, name or f"row {number}", 0) for number in numbers}}


def _append(*numbers: int) -> tuple[Callable[[Table], Any], Callable[[Rows], Rows]]:
    batch = f"append {numbers}"
    return lambda table: table.append([row(n) for n in numbers], batch_id=batch), lambda rows: _kept(rows, *numbers)


def _upsert(*numbers: int) -> tuple[Callable[[Table], Any], Callable[[Rows], Rows]]:
    batch = f"upsert {numbers}"
    return (
        lambda table: table.upsert([row(n, "changed") for n in numbers], batch_id=batch),
        lambda rows: _kept(rows, *numbers, name="changed"),
    )


def _delete(number: int) -> tuple[Callable[[Table], Any], Callable[[Rows], Rows]]:
    return (
        lambda table: table.delete([number], actor="ann", batch_id=f"delete {number}"),
        lambda rows: {key: value for key, value in rows.items() if key != number},
    )


def _same(rows: Rows) -> Rows:
    return rows


SCRIPT: list[tuple[Callable[[Table], Any], Callable[[Rows], Rows]]] = [
    _append(1, 2, 3),
    (Table.fold, _same),
    _upsert(2, 4),
    _delete(1),
    (Table.fold, _same),
    _append(5),
    (lambda table: compact(opened(table)), _same),
    (clean, _same),
    _append(6),
]


class Script:
    """Runs the script on copies of one table, with one fault in each run, and checks what every fault left behind."""

    def __init__(self, lakes: Lakes) -> None:
        self._lakes = lakes
        self.faulty, self._honest = lakes(), lakes()
        self.faulty.create_table(NAME, SCHEMA, key="id")
        self._runs = count(1)

    def run(self, fault: Fault) -> None:
        name = copied(self._lakes.root, NAME, f"{NAME}_{next(self._runs)}")
        table, honest = self.faulty.table(name), self._honest.table(name)
        behind = Behind(self._lakes.root, name)
        rows: Rows = {}
        with fault.armed():
            for step, (act, effect) in enumerate(SCRIPT):
                after = effect(rows)
                error = failure_of(lambda act=act: act(table))
                if error is not None:
                    assert fault.fired, f"step {step} failed by itself: {error}"
                    seen = rows_of(honest)
                    assert seen in (sorted(rows.values()), sorted(after.values())), f"step {step} is half there"
                    act(table)
                rows = after
            settled(self.faulty)
        assert rows_of(table) == sorted(rows.values())
        table.append([row(7)])
        # A lease that could not be deleted holds its job's files until it counts as dead.
        for lease in (behind.own / "leases").iterdir():
            os.utime(lease, (0, 0))
        fold_and_clean(honest)
        assert behind.base_rows() == sorted([*rows.values(), (7, "row 7", 0)])
        assert behind.staged_names() == []
        assert len(behind.live_files()) == sum(len(files) for _, _, files in os.walk(behind.folder / "data"))
        assert not any((behind.own / "jobs").rglob("*.parquet")), "a job left its input behind"


class Fault(Protocol):
    """Something that goes wrong once while it is armed."""

    fired: bool

    def armed(self) -> AbstractContextManager[None]: ...


class StorageFault(Fail):
    """A call of the storage that fails."""

    def __init__(self, script: Script, operation: str, nth: int, *, performed: bool) -> None:
        super().__init__(operation, nth=nth, error=fault(FAULTS[nth % 4], operation, "somewhere"), performed=performed)
        self._script = script

    def armed(self) -> AbstractContextManager[None]:
        return rules(self._script.faulty, self)


def _run_all(script: Script, make: Callable[[int], Fault], *, stride: int) -> None:
    """Run the script with a fault at every `stride`-th call until it ends before the fault comes."""
    for nth in count(1 + stride // 2, stride):
        fault = make(nth)
        script.run(fault)
        if not fault.fired:
            return


WRITES = {
    "put_if_absent": 2,
    "replace": 2,
    "delete": 3,
    "delete_folder": 3,
    "sync": 2,
    "rewrite_synced": 1,
    "make_folder": 3,
    "remove_empty_folders": 2,
}
READS = {"read": 4, "open": 2, "names": 12, "walk": 4, "exists": 30}
"""Each with the stride of the default run; `make test-slow` takes every call."""


@pytest.mark.parametrize("operation", [*WRITES, *READS])
def test_a_fault_at_many_calls(lakes: Lakes, arrow: None, operation: str) -> None:
    script = Script(lakes)
    stride = {**WRITES, **READS}[operation]
    _run_all(script, lambda nth: StorageFault(script, operation, nth, performed=False), stride=stride)


@pytest.mark.parametrize("operation", WRITES)
def test_a_lost_answer_at_many_calls(lakes: Lakes, arrow: None, operation: str) -> None:
    script = Script(lakes)
    _run_all(script, lambda nth: StorageFault(script, operation, nth, performed=True), stride=WRITES[operation])


@pytest.mark.slow
@pytest.mark.parametrize("operation", [*WRITES, *READS])
@pytest.mark.parametrize("performed", [False, True], ids=["not performed", "performed"])
def test_a_fault_at_every_call(lakes: Lakes, arrow: None, operation: str, performed: bool) -> None:
    script = Script(lakes)
    _run_all(script, lambda nth: StorageFault(script, operation, nth, performed=performed), stride=1)


class FailingOs:
    """The `os` of LocalStorage, one of whose functions fails at its n-th call."""

    def __init__(self, function: str, nth: int) -> None:
        self._function, self._left, self._code = function, nth, CODES[function]
        self.fired = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name != self._function:
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self.fired = True
                raise OSError(self._code, os.strerror(self._code))
            return found(*arguments, **options)

        return call

    @contextmanager
    def armed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(local, "os", self)
            yield


CODES = {
    "open": errno.EMFILE,
    "write": errno.ENOSPC,
    "fsync": errno.EIO,
    "link": errno.EPERM,
    "unlink": errno.EACCES,
    "rename": errno.EACCES,
    "replace": errno.ENOSPC,
    "listdir": errno.EACCES,
    "stat": errno.EIO,
}
CALL_STRIDES = {
    "open": 40,
    "fsync": 40,
    "stat": 60,
    "listdir": 20,
    "write": 10,
    "unlink": 12,
    "link": 6,
    "rename": 3,
    "replace": 3,
}


@pytest.mark.parametrize("function", sorted(CODES))
def test_a_system_call_that_fails(lakes: Lakes, arrow: None, function: str) -> None:
    """The same below LocalStorage: every OSError of the system becomes one of our errors."""
    _run_all(Script(lakes), lambda nth: FailingOs(function, nth), stride=CALL_STRIDES[function])


@pytest.mark.slow
@pytest.mark.parametrize("function", sorted(CODES))
def test_every_system_call_that_fails(lakes: Lakes, arrow: None, function: str) -> None:
    _run_all(Script(lakes), lambda nth: FailingOs(function, nth), stride=1)


@pytest.mark.parametrize("performed", [False, True], ids=["not performed", "performed"])
def test_a_fault_while_a_table_is_made(lakes: Lakes, arrow: None, performed: bool) -> None:
    lake = lakes()
    for nth in count(1):
        name = f"shop.eu.made_{nth}"
        rule = Fail(None, nth=nth, performed=performed)
        with rules(lake, rule):
            try:
                lake.create_table(name, SCHEMA)
            except CrannogError:
                assert rule.fired
        if not rule.fired:
            break
        table = lake.create_table(name, SCHEMA, if_exists="ok")
        assert table.append([row(1)]).sequence == 1
        assert ids_of(lakes().table(name)) == [1]
        assert name in lake.tables()
    assert nth > 5


@pytest.mark.parametrize("performed", [False, True], ids=["not performed", "performed"])
def test_a_fault_while_a_table_is_dropped(lakes: Lakes, performed: bool) -> None:
    lake = lakes()
    for nth in count(1):
        name = f"shop.eu.dropped_{nth}"
        lake.create_table(name, SCHEMA).append([row(1)])
        rule = Fail(None, nth=nth, performed=performed)
        with rules(lake, rule):
            try:
                lake.drop_table(name)
            except CrannogError:
                assert rule.fired
        if not rule.fired:
            break
        if name in lake.tables():
            assert ids_of(lakes().table(name)) == [1], "there whole, or gone"
            lake.drop_table(name)
        assert name not in lake.tables()
        assert ids_of(lake.create_table(name, SCHEMA)) == []


# --- a disk that is really full ---------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def test_a_full_disk(small_disk: Path, settings: Any, arrow: None) -> None:
    lakes = Lakes(small_disk / "warehouse", settings)
    try:
        lake = lakes()
        table = lake.create_table(NAME, SCHEMA)
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"\0" * 1400 * 1024)
        acknowledged: list[int] = []
        refused: list[int] = []
        for number in count(1):
            rows = [row(number, os.urandom(15_000).hex())]
            error = failure_of(lambda rows=rows, number=number: table.append(rows, batch_id=str(number)))
            if error is None:
                acknowledged.append(number)
                continue
            assert isinstance(error, Unavailable)
            assert "space" in error.message
            refused.append(number)
            if len(refused) == 3:
                break
        assert len(acknowledged) > 5
        assert ids_of(table) == acknowledged
        assert ids_of(lakes().table(NAME)) == acknowledged
        behind = Behind(lakes.root, NAME)
        assert len(behind.staged_names()) == len(acknowledged), "no temporary file takes the space that is left"
        with pytest.raises(Unavailable):
            table.fold()
        assert (behind.versions(), behind.job_folders()) == ([0], [])
        ballast.unlink()
        assert table.append([row(refused[0])], batch_id=str(refused[0])).duplicate is False
        expected = [*acknowledged, refused[0]]
        table.fold()
        assert ids_of(table) == behind.base_ids() == expected
    finally:
        lakes.close()


def test_a_checkpoint_on_a_full_disk(lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """An erase writes one: the caller gets an error of ours, whatever delta-rs raises."""
    table = lakes().create_table(NAME, SCHEMA)
    log = opened(table).log.log

    def full(_: DeltaTable) -> None:
        raise DeltaError("Kernel error: Unable to copy data to file: No space left on device (os error 28)")

    monkeypatch.setattr(DeltaTable, "create_checkpoint", full)
    with pytest.raises(Unavailable, match="No space left on device"):
        log.checkpoint()


def test_a_checkpoint_that_is_deleted_while_the_log_is_opened(lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """An erase deletes the checkpoints that show its rows; a reader may have read the pointer to one just before."""
    lakes().create_table(NAME, SCHEMA).append([row(1)])
    left = ["Kernel error: Object at location … 5.checkpoint.parquet not found"]

    def opened_late(*arguments: Any, **options: Any) -> DeltaTable:
        if left:
            raise DeltaError(left.pop())
        return DeltaTable(*arguments, **options)

    monkeypatch.setattr(log_module, "DeltaTable", opened_late)
    assert ids_of(lakes().table(NAME)) == [1]
    assert not left


# --- a full backlog ---------------------------------------------------------------------------------------------------


def test_a_backlog_full_of_rows(lakes: Lakes, arrow: None) -> None:
    lake = lakes(staged_rows_limit=10)
    table = lake.create_table(NAME, SCHEMA)
    table.append([row(n) for n in range(1, 9)])
    with pytest.raises(Overloaded) as caught:
        table.append([row(n) for n in range(9, 12)], batch_id="too many")
    assert caught.value.retry_after_s
    assert "10" in caught.value.message
    assert ids_of(table) == list(range(1, 9))
    assert table.append([row(9), row(10)]).sequence == 2, "what fits still does"
    with pytest.raises(Overloaded):
        table.append([row(11)])
    # Another process folds: the next call finds room.
    lakes().table(NAME).fold()
    assert not table.append([row(n) for n in range(11, 14)], batch_id="too many").duplicate
    assert ids_of(table) == list(range(1, 14))


def test_a_backlog_full_of_bytes(lakes: Lakes, arrow: None) -> None:
    table = lakes(staged_bytes_limit=64 * 1024).create_table(NAME, SCHEMA)
    for number in count(1):
        error = failure_of(lambda number=number: table.append([row(number, "x" * 10_000)]))
        if error is not None:
            break
    assert isinstance(error, Overloaded)
    assert error.retry_after_s
    assert 3 <= number <= 7
    assert ids_of(table) == list(range(1, number))
    table.fold()
    table.append([row(number)])
    assert ids_of(table) == list(range(1, number + 1))


# --- damaged files ----------------------------------------------------------------------------------------------------


def two_tables(lakes: Lakes) -> tuple[Lake, Table, Table]:
    lake = lakes()
    table, other = lake.create_table(NAME, SCHEMA, key="id"), lake.create_table(OTHER, SCHEMA, key="id")
    for number in (1, 2, 3):
        table.append([row(number)])
    other.append([row(7)])
    return lake, table, other


def fails_alone(lakes: Lakes, damaged: Path, *acts: Callable[[Table], Any]) -> None:
    """Reading and writing the damaged table say which file it is; the other table does not notice."""
    lake = lakes()
    for act in acts or (ids_of, lambda table: table.append([row(50)]), Table.fold, Table.count, Table.describe):
        with pytest.raises(Corrupted, match=damaged.name.replace(".", r"\.")):
            act(lake.table(NAME))
    other = lake.table(OTHER)
    assert ids_of(other) == [7]
    other.append([row(8)])
    other.fold()
    assert ids_of(other) == [7, 8]
    assert lake.tables() == [NAME, OTHER]


@pytest.mark.parametrize("how", ["truncated", "empty", "garbage"])
def test_a_damaged_staged_file(lakes: Lakes, arrow: None, how: str) -> None:
    two_tables(lakes)
    path = Behind(lakes.root, NAME).stage / f"{2:020}.parquet"
    whole = path.read_bytes()
    garbage(path, how)
    fails_alone(lakes, path)
    path.write_bytes(whole)
    assert ids_of(lakes().table(NAME)) == [1, 2, 3]


def test_a_staged_file_with_one_wrong_byte(lakes: Lakes) -> None:
    """Inside a page: nothing but a checksum can tell."""
    two_tables(lakes)
    path = Behind(lakes.root, NAME).stage / f"{2:020}.parquet"
    data = bytearray(path.read_bytes())
    data[data.index(b"row 2")] ^= 0x01
    path.write_bytes(bytes(data))
    with pytest.raises(Corrupted, match=path.name):
        rows_of(lakes().table(NAME))


def test_a_staged_file_of_another_table(lakes: Lakes, arrow: None) -> None:
    two_tables(lakes)
    path = Behind(lakes.root, NAME).stage / f"{2:020}.parquet"
    path.write_bytes((Behind(lakes.root, OTHER).stage / f"{1:020}.parquet").read_bytes())
    fails_alone(lakes, path)


@pytest.mark.parametrize("how", ["truncated", "empty", "garbage"])
def test_a_damaged_pack(lakes: Lakes, arrow: None, how: str) -> None:
    lake, table, _ = two_tables(lakes)
    fill_block(table, 64)
    settled(lake)
    path = Behind(lakes.root, NAME).stage / "pack-64-0000000000.parquet"
    garbage(path, how)
    fails_alone(lakes, path)


@pytest.mark.parametrize("how", ["truncated", "empty", "garbage"])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_damaged_log_entry(lakes: Lakes, arrow: None, how: str, version: int) -> None:
    lake, table, _ = two_tables(lakes)
    for number in (4, 5):
        table.fold()
        table.append([row(number)])
    path = Behind(lakes.root, NAME).folder / "_delta_log" / f"{version:020}.json"
    whole = path.read_bytes()
    garbage(path, how)
    fails_alone(lakes, path)
    if version == 2:
        # A process that knew the table before finds the entry damaged too, or still has it: never a wrong answer.
        assert ids_of(table) == [1, 2, 3, 4, 5]
    path.write_bytes(whole)
    assert ids_of(lakes().table(NAME)) == [1, 2, 3, 4, 5]
    lake.close()


def test_an_entry_damaged_before_another_process_saw_it(lakes: Lakes, arrow: None) -> None:
    _, table, _ = two_tables(lakes)
    late = lakes().table(NAME)
    assert ids_of(late) == [1, 2, 3]
    table.fold()
    path = Behind(lakes.root, NAME).folder / "_delta_log" / f"{1:020}.json"
    whole = path.read_bytes()
    garbage(path, "truncated")
    with pytest.raises(Corrupted, match=path.name):
        ids_of(late)
    path.write_bytes(whole)
    assert ids_of(late) == [1, 2, 3]


def _with_checkpoint(lakes: Lakes) -> Path:
    lake, table, _ = two_tables(lakes)
    for number in range(10, 16):
        table.append([row(number)])
        table.fold()
    settled(lake)
    [path] = (Behind(lakes.root, NAME).folder / "_delta_log").glob("*.checkpoint.parquet")
    return path


DAMAGES = ("truncated", "empty", "garbage", "page")
ACTS = ("read", "append", "fold", "vacuum", "history", "erase", "compact")


@pytest.mark.parametrize("known", [False, True], ids=["opened anew", "open before"])
@pytest.mark.parametrize(
    ("how", "act"),
    [
        pytest.param(how, act, marks=[] if (place + number) % 4 == 0 else [pytest.mark.slow])
        for place, how in enumerate(DAMAGES)
        for number, act in enumerate(ACTS)
    ],
)
def test_a_damaged_checkpoint_closes_nothing(
    lakes: Lakes, arrow: None, caplog: pytest.LogCaptureFixture, how: str, act: str, known: bool
) -> None:
    """All entries are there, so every act works, the file is named in the log, and the next checkpoint is sound."""
    path = _with_checkpoint(lakes)
    lake = lakes()
    if known:
        ids_of(lake.table(NAME))
    garbage(path, how)
    acts: dict[str, Callable[[Table], Any]] = {
        "read": ids_of,
        "append": lambda table: table.append([row(99)]),
        "fold": Table.fold,
        "vacuum": clean,
        "history": Table.history,
        "erase": lambda table: table.erase([1]),
        "compact": lambda table: compact(opened(table)),
    }
    acts[act](lake.table(NAME))
    table = lakes().table(NAME)
    assert set(ids_of(table)) >= {2, 3, *range(10, 16)}
    assert path.name in caplog.text
    assert not path.exists() or is_readable(path.read_bytes())
    assert ids_of(lake.table(OTHER)) == [7]
    for number in range(20, 26):
        table.append([row(number)])
        table.fold()
    for each in lakes.opened:
        settled(each)
    [*_, newest] = sorted(path.parent.glob("*.checkpoint.parquet"))
    assert newest.name > path.name
    assert is_readable(newest.read_bytes())
    assert set(Behind(lakes.root, NAME).base_ids()) == set(ids_of(lakes().table(NAME)))


@pytest.mark.parametrize("how", ["truncated", "empty", "garbage"])
def test_a_damaged_checkpoint_whose_entries_are_gone_is_named(lakes: Lakes, arrow: None, how: str) -> None:
    path = _with_checkpoint(lakes)
    first = path.with_name(f"{0:020}.json")
    kept, whole = first.read_bytes(), path.read_bytes()
    first.unlink()
    garbage(path, how)
    fails_alone(lakes, path, ids_of, lambda table: table.append([row(50)]), Table.fold)
    assert path.exists(), "what cannot be replaced stays"
    path.write_bytes(whole)
    assert ids_of(lakes().table(NAME)) == [1, 2, 3, *range(10, 16)]
    first.write_bytes(kept)


def test_an_older_checkpoint_serves_when_the_newest_is_damaged(lakes: Lakes, arrow: None) -> None:
    """The first entries are gone, as after a day: only the older checkpoint has what they told."""
    older = _with_checkpoint(lakes)
    table = lakes().table(NAME)
    for number in range(20, 30):
        table.append([row(number)])
        table.fold()
    for each in lakes.opened:
        settled(each)
    newest = max(older.parent.glob("*.checkpoint.parquet"))
    assert newest != older
    for version in range(3):
        older.with_name(f"{version:020}.json").unlink()
    garbage(newest, "truncated")
    assert ids_of(lakes().table(NAME)) == [1, 2, 3, *range(10, 16), *range(20, 30)]
    assert older.exists()
    assert not newest.exists()


def test_a_pointer_to_a_checkpoint_that_is_gone(lakes: Lakes, arrow: None) -> None:
    _with_checkpoint(lakes).unlink()
    assert ids_of(lakes().table(NAME)) == [1, 2, 3, *range(10, 16)]


@pytest.mark.parametrize("how", ["truncated", "empty", "garbage"])
def test_a_damaged_pointer_to_the_checkpoint_costs_nothing(lakes: Lakes, arrow: None, how: str) -> None:
    path = _with_checkpoint(lakes).with_name("_last_checkpoint")
    garbage(path, how)
    table = lakes().table(NAME)
    assert ids_of(table) == [1, 2, 3, *range(10, 16)]
    table.append([row(20)])
    table.fold()
    assert ids_of(table) == [1, 2, 3, *range(10, 16), 20]


@pytest.mark.parametrize("how", ["truncated", "empty", "garbage"])
def test_a_damaged_ledger(lakes: Lakes, arrow: None, how: str) -> None:
    _, table, _ = two_tables(lakes)
    table.fold()
    [path] = (Behind(lakes.root, NAME).own / "batches").iterdir()
    garbage(path, how)
    fails_alone(lakes, path, ids_of, lambda table: table.append([row(50)]))
    path.unlink()
    assert ids_of(lakes().table(NAME)) == [1, 2, 3]


@pytest.mark.parametrize("folder", ["stage", "batches", "leases", "audit", "jobs"])
def test_a_stray_file_in_our_folders_harms_nobody(lakes: Lakes, arrow: None, folder: str) -> None:
    _, table, _ = two_tables(lakes)
    table.fold()
    table.append([row(4)])
    (Behind(lakes.root, NAME).own / folder / "notes.txt").write_text("left by hand")
    fresh = lakes().table(NAME)
    assert ids_of(fresh) == [1, 2, 3, 4]
    fresh.delete([1])
    fold_and_clean(fresh)
    assert ids_of(fresh) == [2, 3, 4]
    assert len(fresh.audit()) == 1


@pytest.mark.parametrize("how", ["truncated", "empty", "garbage", "gone"])
def test_a_damaged_file_of_the_base(lakes: Lakes, arrow: None, how: str) -> None:
    lake, table, _ = two_tables(lakes)
    table.fold()
    [path] = Behind(lakes.root, NAME).live_files()
    path.unlink() if how == "gone" else garbage(path, how)
    fresh = lakes()
    error = failure_of(lambda: ids_of(fresh.table(NAME)))
    assert isinstance(error, Unavailable)
    assert how == "gone" or path.name in error.message
    assert ids_of(fresh.table(OTHER)) == [7]
    # Writers do not need the base.
    assert fresh.table(NAME).append([row(9)]).sequence == 4
    lake.close()


def test_a_damaged_lease_does_not_stop_a_vacuum(lakes: Lakes, arrow: None) -> None:
    _, table, _ = two_tables(lakes)
    leases = Behind(lakes.root, NAME).own / "leases"
    (leases / "reader-broken.json").write_bytes(b"{not json")
    table.fold()
    clean(table)
    assert ids_of(table) == [1, 2, 3]


@pytest.mark.parametrize("how", ["truncated", "empty", "garbage"])
def test_a_damaged_control_table(lakes: Lakes, how: str) -> None:
    lake, _, other = two_tables(lakes)
    lease = lake.operations.control.claim("fold:shop.eu.orders", "me")
    assert lease is not None
    [path] = (lakes.root / "_crannog").glob("**/_delta_log/*.json")
    garbage(path, how)
    with pytest.raises(Corrupted):
        lakes().tasks()
    assert ids_of(other) == [7]


def test_columns_of_a_damaged_file_are_not_guessed(lakes: Lakes) -> None:
    """A staged file that is valid Parquet but not ours."""
    import pyarrow.parquet as pq

    two_tables(lakes)
    path = Behind(lakes.root, NAME).stage / f"{2:020}.parquet"
    pq.write_table(pa.table({"id": [5], "name": ["x"], "n": [1]}), path)
    with pytest.raises(Corrupted, match=path.name):
        ids_of(lakes().table(NAME))


def test_a_file_of_the_newest_version_that_is_gone_is_named(settings: Settings, spark: SparkRuntime) -> None:
    with lake_of(settings) as lake:
        table = lake.create_table("a.b.c", pa.schema([("n", pa.int64())]))
        other = lake.create_table("a.b.d", pa.schema([("n", pa.int64())]))
        table.append([{"n": 1}])
        other.append([{"n": 2}])
        table.fold()
        [file] = live_files(root(lake, "a.b.c"))
        file.unlink()
    with lake_of(settings) as lake:
        for read in (lambda: lake.table("a.b.c").to_arrow(), lambda: lake.sql("SELECT sum(n) FROM a.b.c")):
            with pytest.raises(Corrupted, match=file.name):
                read()
        assert lake.sql("SELECT sum(n) AS n FROM a.b.d").rows()[0]["n"] == 2
