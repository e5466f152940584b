"""Places outside of the table's current files where an erased key could stay or come back; read as plain files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crannog.errors import SnapshotGone
from crannog.names import AUDIT, TableName
from crannog.protocol.changelog import ChangeLog
from crannog.protocol.leases import Lease
from crannog.server.audit import Audit
from crannog.server.requests import Call
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from crannog.storage import failpoints, local
from forcing import SCHEMA, Killed, Lakes, clean, fill_block, ids_of, opened, row
from lakes import opened as lake_of

pytest_plugins = ["forced"]

NAME = "shop.eu.orders"
NEEDLE = "ann@example.org"
MOMENTS = {"before the temporary file": "open", "before its content": "write", "before its name": "link"}


class HookedOs:
    """The `os` of LocalStorage; once, right before a call of `function` for a path with `part`, `act` happens."""

    def __init__(self, function: str, part: str, act: Callable[[], object]) -> None:
        self._function, self._part, self._act = function, part, act
        self._paths: dict[int, str] = {}
        self.fired = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in ("open", "write", "pwrite", "link"):
            return found

        def call(first: Any, *arguments: Any, **options: Any) -> Any:
            path = self._paths.get(first, "") if isinstance(first, int) else str(first)
            if (
                name.removeprefix("p") == self._function
                and self._part in path
                and path.endswith(".tmp")
                and not self.fired
            ):
                self.fired = True
                self._act()
            result = found(first, *arguments, **options)
            if name == "open":
                self._paths[result] = path
            return result

        return call


def showing(root: Path) -> list[str]:
    """Every file of the warehouse, hidden ones included, whose bytes show the key."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    return [str(path.relative_to(root)) for path in files if NEEDLE.encode() in path.read_bytes()]


# -- late puts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_paused_packer_cannot_put_an_erased_row_again(
    lakes: Lakes, arrow: None, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """It read the staged files before the erase and goes on after the proof; what it does then, it does while it dies."""
    monkeypatch.setattr(ChangeLog, "work_due", lambda self: [])
    table, packing = lakes().create_table(NAME, SCHEMA, key="id"), lakes().table(NAME)
    table.append([row(1, NEEDLE)])
    others = fill_block(table, 63)
    receipts = []

    def erased() -> None:
        receipts.append(table.erase([1]))
        assert showing(lakes.root) == []
        monkeypatch.setattr(failpoints, "hook", killed)

    def killed(phase: str) -> None:
        if phase == "pack.written":
            raise Killed

    hook = HookedOs(MOMENTS[moment], "pack-64", erased)
    monkeypatch.setattr(local, "os", hook)
    try:
        opened(packing).log.pack()
    except Killed:
        pass
    monkeypatch.setattr(failpoints, "hook", None)
    assert hook.fired
    assert showing(lakes.root) == []
    assert {place.after for place in receipts[0].places} == {0}
    for each in (table, packing, lakes().table(NAME)):
        assert ids_of(each) == others


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("prepared", [False, True], ids=["new file", "spare file"])
def test_a_paused_writer_cannot_put_an_erased_row_again(
    lakes: Lakes, arrow: None, monkeypatch: pytest.MonkeyPatch, moment: str, prepared: bool
) -> None:
    """A client sent its batch twice: one process keeps it and it is erased, the other still has it in its hands."""
    table, late = lakes().create_table(NAME, SCHEMA, key="id"), lakes().table(NAME)
    table.append([row(2)])
    assert ids_of(late) == [2]
    if prepared:
        opened(late).log._preallocate()

    def erased() -> None:
        table.append([row(1, NEEDLE)], batch_id="sent twice")
        table.erase([1])
        clean(table)
        assert showing(lakes.root) == []

    hook = HookedOs(MOMENTS[moment], "/spare/" if prepared else "/stage/", erased)
    monkeypatch.setattr(local, "os", hook)
    receipt = late.append([row(1, NEEDLE)], batch_id="sent twice")
    assert hook.fired
    assert receipt.duplicate
    assert showing(lakes.root) == []
    assert ids_of(table) == ids_of(late) == [2]


# -- what killed processes leave ---------------------------------------------------------------------------------------


def left_by_a_killed_server(root: Path, *, tables: list[str] | None, alive: bool) -> Path:
    """Result files as a killed server leaves them, in columns of the query's own; with the lease of one that lives."""
    folder = root / "_crannog" / "results" / "0123abcd" / "rows"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"upper(name)": [f"row of {NEEDLE}"]}), folder / "part-0.parquet", compression="none")
    lease = root / "_crannog" / "leases" / "result-0123abcd.json"
    lease.parent.mkdir(parents=True, exist_ok=True)
    lease.write_text(
        json.dumps({"kind": "result", "result": "0123abcd", **({"tables": tables} if tables is not None else {})})
    )
    if not alive:
        os.utime(lease, (0, 0))
    return folder / "part-0.parquet"


@pytest.mark.parametrize(
    ("tables", "alive", "goes"),
    [
        (None, False, True),
        (None, True, True),
        ([NAME], False, True),
        ([NAME], True, True),
        (["a.b.c"], False, True),
        (["a.b.c"], True, False),
    ],
)
def test_result_files_of_queries_go_with_an_erased_key(
    lakes: Lakes, arrow: None, tables: list[str] | None, alive: bool, goes: bool
) -> None:
    table = lakes().create_table(NAME, SCHEMA, key="id")
    table.append([row(1, NEEDLE), row(2)])
    left = left_by_a_killed_server(lakes.root, tables=tables, alive=alive)
    receipt = table.erase([1])
    [place] = [place for place in receipt.places if place.place == "query results"]
    assert (place.before, place.after) == (int(goes), 0)
    assert left.exists() != goes
    assert bool(showing(lakes.root)) != goes, "a living query that reads other tables is left alone"


def test_what_a_killed_deletion_left_goes_too(lakes: Lakes, arrow: None) -> None:
    table = lakes().create_table(NAME, SCHEMA, key="id")
    table.append([row(1, NEEDLE), row(2)])
    trash = lakes.root / "_crannog" / "trash" / "0123abcd" / "data"
    trash.mkdir(parents=True)
    (trash / "part-0.parquet").write_bytes(NEEDLE.encode())
    table.erase([1])
    assert showing(lakes.root) == []


def test_what_a_killed_task_left_half_written_goes_and_does_not_stop_the_erasure(lakes: Lakes, arrow: None) -> None:
    one = lakes().create_table(NAME, SCHEMA, key="id")
    one.upsert([row(1), row(2)])
    one.fold()
    folder = Path(one._lake.operations.warehouse.storage.uri(NAME.replace(".", "/")))
    [live] = (folder / "data").rglob("*.parquet")
    halves = {job: folder / "data" / job / "0" / "part-1.parquet" for job in ("killed", "running")}
    for half in halves.values():
        half.parent.mkdir(parents=True)
        half.write_bytes(live.read_bytes()[:-200])
    stray = live.with_name("part-of-a-lost-task.parquet")
    stray.write_bytes(live.read_bytes())
    own = one._lake.operations.tables.open(TableName.parse(NAME)).log.own_folder
    passed = Path(one._lake.operations.warehouse.storage.uri(f"{own}/jobs/killed/00000.arrow"))
    passed.parent.mkdir(parents=True)
    passed.write_bytes(b"rows that a killed job passed to its tasks")
    # A job that began after the erasure's fold cannot have read the key.
    lease = {"kind": "job", "job": "running", "version": 10**6}
    with Lease(one._lake.operations.warehouse.storage, f"{own}/leases/job-running.json", lease):
        receipt = one.erase([1])
    assert receipt.rows_erased == 1
    assert [half.exists() for half in halves.values()] == [False, True]
    assert not stray.exists()
    assert not passed.exists()
    assert ids_of(one) == [2]


def test_a_vacuum_clears_result_files_away(lakes: Lakes, arrow: None) -> None:
    table = lakes().create_table(NAME, SCHEMA, key="id")
    left = left_by_a_killed_server(lakes.root, tables=[NAME], alive=False)
    clean(table)
    assert not left.exists()


def test_an_erasure_ends_a_stream_whose_rows_it_erases(settings: Settings, spark: SparkRuntime) -> None:
    with lake_of(settings, lease_wait_s=0.2) as lake:
        table = lake.create_table(NAME, SCHEMA, key="id")
        count = 120_000
        names = pa.array([NEEDLE]).take(pa.array([0] * count))
        table.append(
            pa.table({"id": pa.array(range(count), pa.int64()), "name": names, "n": pa.nulls(count, pa.int32())})
        )
        table.fold()
        with lake.stream(f"SELECT name, id FROM {NAME}", engine="spark") as stream:
            batches = iter(stream)
            next(batches)
            assert list(Path(lake.operations.warehouse.location).glob("_crannog/results/*/rows/*.parquet"))
            table.erase([1])
            assert not list(Path(lake.operations.warehouse.location).glob("_crannog/results/*/rows/*.parquet"))
            with pytest.raises(SnapshotGone):
                for _ in batches:
                    pass


def test_scratch_folders_of_killed_processes_go_and_those_of_living_ones_stay(
    lakes: Lakes, arrow: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was killed leaves what it spilled; the same folder of a living one is in use."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    script = (
        "import sys, time; from pathlib import Path; from crannog.storage import scratch_folders as scratch;"
        "folder = scratch.create('spill'); Path(folder, 'duckdb_temp_block').write_text(sys.argv[1]);"
        "print(folder, flush=True); time.sleep(60)"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, NEEDLE],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        for _ in range(2)
    ]
    try:
        folders = [Path(child.stdout.readline().strip()) for child in children if child.stdout is not None]
        children[0].kill()
        children[0].wait()
        table = lakes().create_table(NAME, SCHEMA, key="id")
        table.append([row(1, NEEDLE), row(2)])
        receipt = table.erase([1])
        assert [folder.exists() for folder in folders] == [False, True]
        [place] = [place for place in receipt.places if place.place.startswith("scratch")]
        assert place.after == 0
    finally:
        for child in children:
            child.kill()
            child.wait()


# -- statements that the audit keeps -----------------------------------------------------------------------------------


def noted(audit: Audit, *statements: tuple[str, str]) -> None:
    """Let the server note queries of these tables and texts."""
    for table, sql in statements:
        call = SimpleNamespace(
            request_id="r-1", caller=SimpleNamespace(name="ann"), address="::1", tables=[table], rows=1, sql=sql, status=200,
            elapsed_ms=1.0, error_code="", rejected=None,
        )  # fmt: skip
        audit.note(cast("Call", call), "sql")
    audit.flush()


def test_statements_of_the_audit_lose_an_erased_key_and_stay(lakes: Lakes, arrow: None) -> None:
    lake = lakes(audit=True)
    table = lake.create_table(NAME, pa.schema([("email", pa.string()), ("n", pa.int64())]), key="email")
    table.append([{"email": NEEDLE, "n": 1}, {"email": "bob@example.org", "n": 2}])
    audit = Audit(lake)
    mentioning = f"SELECT n FROM {NAME} WHERE email = '{NEEDLE}' AND n > 5 -- {NEEDLE}"
    other = f"SELECT n FROM {NAME} WHERE email = 'bob@example.org' AND n > 5"
    noted(audit, (NAME, mentioning), (NAME, other))
    lake.table(str(AUDIT)).fold()
    noted(audit, ("a.b.c", f'SELECT "{NEEDLE}"'), (NAME, f"SELECT `{NEEDLE}` FROM {NAME}"))
    assert showing(lakes.root)
    receipt = table.erase([NEEDLE], actor="dpo")
    [place] = [place for place in receipt.places if place.place == "audit texts"]
    assert (place.looked_at, place.before, place.after) == (4, 3, 0)
    assert showing(lakes.root) == []
    entries = lake.table(str(AUDIT)).to_arrow().to_pylist()
    assert sorted(entry["sql"] for entry in entries) == sorted(
        [other, f"SELECT n FROM {NAME} WHERE email = ? AND n > ?", "SELECT ?", "(erased)"]
    )
    assert {(entry["who"], entry["request_id"], entry["status"]) for entry in entries} == {("ann", "r-1", 200)}
    # Once more finds nothing, and changes nothing.
    again = table.erase([NEEDLE])
    assert {place.place: place.before for place in again.places}["audit texts"] == 0
    assert lake.table(str(AUDIT)).count() == 4


def test_short_and_numeric_keys_are_looked_for_as_words_in_statements_of_the_table(lakes: Lakes, arrow: None) -> None:
    lake = lakes(audit=True)
    table = lake.create_table(NAME, SCHEMA, key="id")
    table.append([row(7), row(17)])
    kept = [(NAME, "SELECT 17, 7.5, a7"), ("a.b.c", "SELECT 7"), (NAME, "SELECT count(*)")]
    noted(Audit(lake), (NAME, f"SELECT * FROM {NAME} WHERE id IN (7, 17)"), *kept)
    table.erase([7])
    found = sorted(entry["sql"] for entry in lake.table(str(AUDIT)).to_arrow().to_pylist())
    assert found == sorted(
        [f"SELECT * FROM {NAME} WHERE id IN (?, ?)", "SELECT 17, 7.5, a7", "SELECT 7", "SELECT count(*)"]
    )
