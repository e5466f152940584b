"""Tools that force a failure at one exact moment, and that look at a table behind the code's back.

`ForcedStorage` wraps a warehouse's storage; rules on it pause, fail or misreport single calls, or let "another process"
(a second connection to the same folder) act right before or after one. No test needs to win a race.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from crannog.api.reports import VacuumReport
from crannog.embedded import EmbeddedLake as Lake
from crannog.embedded import EmbeddedTable as Table
from crannog.engine import spark_files
from crannog.engine.columnar import plans
from crannog.engine.maintenance import compact as compact_module
from crannog.engine.maintenance import evolve as evolve_module
from crannog.engine.maintenance import fold as fold_module
from crannog.engine.maintenance import job as job_module
from crannog.engine.maintenance import rewrite_without as rewrite_module
from crannog.engine.maintenance.vacuum import vacuum
from crannog.engine.open_table import OpenTable
from crannog.errors import CrannogError, Unavailable
from crannog.settings import Settings

OPERATIONS = (
    "put_if_absent",
    "replace",
    "read",
    "open",
    "exists",
    "names",
    "walk",
    "folders",
    "delete",
    "delete_folder",
    "remove_empty_folders",
    "sync",
    "rewrite_synced",
    "touch",
    "make_folder",
)
WAIT_S = 30.0

Proceed = Callable[[], Any]
Rule = Callable[[str, str, Proceed], Any]


class ForcedStorage:
    """A storage whose calls rules can watch, pause, fail or answer wrongly; what no rule touches goes through."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.rules: list[Rule] = []
        self.calls: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.inner, name)
        if name not in OPERATIONS:
            return attribute

        def call(target: str | Iterable[str], *arguments: Any, **named: Any) -> Any:
            targets = target if isinstance(target, str) else list(target)
            path = targets if isinstance(targets, str) else " ".join(targets)
            self.calls.append((name, path))

            def proceed() -> Any:
                # Listed at once, so that a rule stands before or after the whole act.
                return iter(list(attribute(targets))) if name == "walk" else attribute(targets, *arguments, **named)

            act: Proceed = proceed
            for rule in tuple(self.rules):
                act = _bound(rule, name, path, act)
            return act()

        return call


def _bound(rule: Rule, operation: str, path: str, proceed: Proceed) -> Proceed:
    return lambda: rule(operation, path, proceed)


class _Once:
    """Matches the `nth` call of an operation whose path contains `part`, once; `nth` None matches every one."""

    def __init__(self, operation: str | None, part: str = "", *, nth: int | None = 1) -> None:
        self._operation, self._part, self._nth = operation, part, nth
        self._seen = 0
        self._lock = threading.Lock()
        self.fired = False

    def matches(self, operation: str, path: str) -> bool:
        if self._operation not in (None, operation) or not re.search(self._part, path):
            return False
        with self._lock:
            self._seen += 1
            if self._nth is not None and self._seen != self._nth:
                return False
            self.fired = True
            return True


class Meanwhile(_Once):
    """Lets `act` happen right before the call (or right after it), in the same thread: another process was quicker."""

    def __init__(
        self, operation: str | None, part: str, act: Callable[[], Any], *, nth: int = 1, after: bool = False
    ) -> None:
        super().__init__(operation, part, nth=nth)
        self._act, self._after = act, after

    def __call__(self, operation: str, path: str, proceed: Proceed) -> Any:
        if not self.matches(operation, path):
            return proceed()
        if not self._after:
            self._act()
            return proceed()
        result = proceed()
        self._act()
        return result


class Pause(_Once):
    """Stops one call before it is performed (or after it) until `go`; for what must really run beside it."""

    def __init__(self, operation: str, part: str = "", *, nth: int = 1, after: bool = False) -> None:
        super().__init__(operation, part, nth=nth)
        self._after = after
        self._reached, self._go = threading.Event(), threading.Event()

    def __call__(self, operation: str, path: str, proceed: Proceed) -> Any:
        if not self.matches(operation, path):
            return proceed()
        result = proceed() if self._after else None
        self._reached.set()
        assert self._go.wait(WAIT_S), "the test never let the paused call go on"
        return result if self._after else proceed()

    def wait(self) -> None:
        assert self._reached.wait(WAIT_S), "the call that was to be paused never came"

    def go(self) -> None:
        self._go.set()


class Fail(_Once):
    """Raises `error` at the matching call: instead of it, or after it was performed (the answer is lost)."""

    def __init__(
        self,
        operation: str | None,
        part: str = "",
        *,
        nth: int | None = 1,
        error: BaseException | None = None,
        performed: bool = False,
    ) -> None:
        super().__init__(operation, part, nth=nth)
        self._error, self._performed = error, performed

    def __call__(self, operation: str, path: str, proceed: Proceed) -> Any:
        if not self.matches(operation, path):
            return proceed()
        if self._performed:
            proceed()
        raise self._error or fault("EIO", operation, path)


class HoleInListing(_Once):
    """Leaves names out of the first `listings` of a folder while later names are shown, as beside a writer happens."""

    def __init__(self, part: str, hidden: Iterable[str], *, listings: int) -> None:
        super().__init__("names", part, nth=None)
        self._hidden, self._left = set(hidden), listings

    def __call__(self, operation: str, path: str, proceed: Proceed) -> Any:
        names = proceed()
        if self._left == 0 or not self.matches(operation, path):
            return names
        self._left -= 1
        return [name for name in names if name not in self._hidden]


FAULTS = ("ENOSPC", "EIO", "EACCES", "timeout")


def fault(kind: str, operation: str, path: str) -> Unavailable:
    """Return what a storage raises: LocalStorage for a failing disk, an object store for a call that timed out."""
    if kind == "timeout":
        return Unavailable(f"cannot {operation} {path}: no answer within 30 s")
    return Unavailable(f"cannot {operation} {path}: {os.strerror(getattr(errno, kind))}")


def failure_of(act: Callable[[], Any]) -> CrannogError | None:
    """Return the error of ours that `act` ended with, or None; any other error is the test's."""
    try:
        act()
    except CrannogError as error:
        return error
    return None


class Killed(BaseException):
    """Ends what runs as a kill would: nothing that catches errors may catch it."""


class Running:
    """Work in a thread, whose result or error the test asks for."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._work()
        except BaseException as error:
            self._error = error

    def result(self) -> Any:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "still running: it waits for something that never comes"
        if self._error is not None:
            raise self._error
        return self._value


# --- connections ------------------------------------------------------------------------------------------------------


class Lakes:
    """Opens connections to one warehouse folder; each stands for a process of its own. No grace anywhere by default."""

    def __init__(self, root: Path, settings: Settings) -> None:
        self.root = root
        self._settings = settings
        self.opened: list[Lake] = []

    def __call__(self, **changes: Any) -> Lake:
        none = {"fold_grace_s": 0, "orphan_grace_s": 0, "retention_s": 0, "retention_floor_s": 0, "lease_wait_s": 0}
        lake = Lake(str(self.root), settings=self._settings.model_copy(update={**none, **changes}))
        lake.operations.warehouse.storage = ForcedStorage(lake.operations.warehouse.storage)  # type: ignore[assignment]
        lake.operations.control._storage = lake.operations.warehouse.storage
        self.opened.append(lake)
        return lake

    def close(self) -> None:
        for lake in self.opened:
            storage_of(lake).rules.clear()
            lake.close()


def storage_of(lake: Lake) -> ForcedStorage:
    assert isinstance(lake.operations.warehouse.storage, ForcedStorage)
    return lake.operations.warehouse.storage


@contextmanager
def rules(lake: Lake, *added: Rule) -> Iterator[None]:
    """Put rules on a connection's storage for a while."""
    storage = storage_of(lake)
    storage.rules.extend(added)
    try:
        yield
    finally:
        for rule in added:
            storage.rules.remove(rule)


def opened(table: Table) -> OpenTable:
    """Return what stands behind a table in its connection."""
    return table._lake.operations.tables.open(table._name)


def clean(table: Table) -> VacuumReport:
    """Clean as no cleaner should: no grace, no retention."""
    return vacuum(opened(table), retention_s=0, force=True)


def fold_and_clean(table: Table) -> None:
    table.fold()
    clean(table)


def fill_block(table: Table, upto: int, start_id: int = 1_000_000) -> list[int]:
    """Append single rows until the table stands at sequence `upto`; return their ids."""
    ids = []
    while opened(table).snapshot().sequence < upto:
        ids.append(start_id + len(ids))
        table.append([row(ids[-1])])
    return ids


SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), pa.field("n", pa.int32())]
)


def row(number: int, name: str = "", n: int = 0) -> dict[str, Any]:
    return {"id": number, "name": name or f"row {number}", "n": n}


def rows_of(table: Table) -> list[tuple[int, str, int]]:
    """Return the visible rows, sorted: every repeated row shows."""
    found = table.to_arrow().select(["id", "name", "n"]).to_pylist()
    return sorted((entry["id"], entry["name"], entry["n"]) for entry in found)


def ids_of(table: Table) -> list[int]:
    return [entry[0] for entry in rows_of(table)]


# --- behind the code's back -------------------------------------------------------------------------------------------


class Behind:
    """A table's folder as plain files."""

    def __init__(self, root: Path, name: str) -> None:
        self.folder = root.joinpath(*name.split("."))

    @property
    def table_id(self) -> str:
        return str(DeltaTable(str(self.folder)).metadata().id)

    @property
    def own(self) -> Path:
        return self.folder / "_crannog" / self.table_id

    @property
    def stage(self) -> Path:
        return self.own / "stage"

    def staged_names(self) -> list[str]:
        return sorted(os.listdir(self.stage))

    def staged_rows(self) -> list[tuple[int, int, int]]:
        """Return (sequence, order, id) of every row in every file of the stage, packs and stale files included."""
        found = []
        for name in self.staged_names():
            for entry in pq.read_table(self.stage / name).to_pylist():
                found.append((entry["_seq"], entry["_ord"], entry["id"]))
        return sorted(found)

    def counting_rows(self) -> list[tuple[int, int, int]]:
        """The same without what lies under a pack: a paused writer may have left anything there."""
        packed: set[int] = set()
        for name in self.staged_names():
            if name.startswith("pack-"):
                packed.update(range(self.footer(name)["first"], self.footer(name)["last"] + 1))
        found = []
        for name in self.staged_names():
            if name.startswith("pack-") or int(name.partition(".")[0]) not in packed:
                for entry in pq.read_table(self.stage / name).to_pylist():
                    found.append((entry["_seq"], entry["_ord"], entry["id"]))
        return sorted(found)

    def footer(self, name: str) -> dict[str, Any]:
        metadata = pq.read_metadata(self.stage / name).metadata
        return dict(json.loads(metadata[b"crannog"]))

    def versions(self) -> list[int]:
        return sorted(int(path.stem) for path in (self.folder / "_delta_log").glob("*.json"))

    def entry(self, version: int) -> list[dict[str, Any]]:
        text = (self.folder / "_delta_log" / f"{version:020}.json").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def operations(self) -> list[str]:
        return [
            action["commitInfo"]["operation"]
            for version in self.versions()
            for action in self.entry(version)
            if "commitInfo" in action
        ]

    def folded_by_version(self) -> list[int]:
        """Return the sequence each version says is folded, carried on where an entry says nothing."""
        folded, found = 0, []
        for version in self.versions():
            folded = next((action["txn"]["version"] for action in self.entry(version) if "txn" in action), folded)
            found.append(folded)
        return found

    def folded(self) -> int:
        table = DeltaTable(str(self.folder))
        return table.transaction_version(str(table.metadata().id)) or 0

    def base_rows(self) -> list[tuple[int, str, int]]:
        """Return the rows of the plain Delta table, as delta-rs reads its log and pyarrow its files."""
        found = []
        for path in self.live_files():
            for entry in pq.read_table(path, columns=["id", "name", "n"]).to_pylist():
                found.append((entry["id"], entry["name"], entry["n"]))
        return sorted(found)

    def base_ids(self) -> list[int]:
        return [entry[0] for entry in self.base_rows()]

    def live_files(self) -> list[Path]:
        return [Path(uri) for uri in DeltaTable(str(self.folder)).file_uris()]

    def job_folders(self) -> list[str]:
        return sorted(os.listdir(self.folder / "data"))

    def ledger(self) -> dict[str, int]:
        """Return the sequence of every batch id that a fold wrote down."""
        known: dict[str, int] = {}
        for path in sorted((self.own / "batches").iterdir()):
            for batch, (sequence, _writer) in json.loads(path.read_bytes()).items():
                known[batch] = sequence
        return known

    def files_with(self, *needles: bytes) -> list[Path]:
        """Return every file of the table's folder, hidden ones included, whose bytes show one of the needles."""
        return [
            path
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and any(needle in path.read_bytes() for needle in needles)
        ]


def garbage(path: Path, how: str) -> None:
    """Damage a file: cut off, emptied, overwritten, or in a page while its footer is whole."""
    data = path.read_bytes()
    path.write_bytes(
        {
            "truncated": data[: len(data) // 2],
            "empty": b"",
            "garbage": b"\x00\xffnot what it was\x00" * 20,
            "page": data[:100] + b"\xff" * 200 + data[300:],
        }[how]
    )


def copied(root: Path, name: str, new_name: str) -> str:
    """Copy a table as files: the quickest way to many tables in the same state."""
    shutil.copytree(root.joinpath(*name.split(".")), root.joinpath(*new_name.split(".")))
    return new_name


def settled(lake: Lake) -> None:
    """Wait for the work behind the scenes."""
    if (done := lake.operations.warehouse.in_background(lambda: None)) is not None:
        done.result(WAIT_S)


# --- a stand-in for Spark ---------------------------------------------------------------------------------------------


class ArrowFrame:
    """An Arrow table in the place of a DataFrame."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table


def _read_files(_session: Any, storage: Any, paths: Iterable[str], schema: pa.Schema) -> ArrowFrame:
    wanted = spark_files.all_nullable(schema)
    tables = []
    for path in paths:
        found = pq.read_table(storage.uri(path), partitioning=None)
        columns = [
            found[field.name].cast(field.type)
            if field.name in found.column_names
            else pa.nulls(found.num_rows, field.type)
            for field in wanted
        ]
        tables.append(pa.Table.from_arrays(columns, schema=wanted))
    return ArrowFrame(pa.concat_tables(tables) if tables else wanted.empty_table())


def write_arrow(table: pa.Table, storage: Any, folder: str, sort_by: Sequence[str]) -> list[str]:
    """Write one Parquet file as Spark would name it."""
    place = Path(storage.uri(f"{folder}/0"))
    place.mkdir(parents=True)
    table = table.sort_by([(name, "ascending") for name in sort_by])
    name = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
    pq.write_table(table, place / name, compression="zstd", store_schema=False)
    return [f"{folder}/0/{name}"]


def _write_files(
    rows: ArrowFrame, storage: Any, folder: str, _base: Any, *, sort_by: Sequence[str], **_: Any
) -> list[str]:
    return write_arrow(rows.table, storage, folder, sort_by)


@contextmanager
def _no_session(_job: Any) -> Iterator[None]:
    try:
        yield None
    except OSError as error:  # as Spark's own failures are told
        raise Unavailable(f"the stand-in for Spark failed: {error}") from error


TaskFunction = Callable[[int], list[str]]


def in_this_process(_session: Any, run: TaskFunction, count: int) -> list[list[str]]:
    """Do what Spark's tasks do without Spark."""
    return list(map(run, range(count)))


def change_tasks(patch: pytest.MonkeyPatch, change: Callable[[TaskFunction], TaskFunction]) -> None:
    """Change what the tasks of the next jobs do."""
    in_tasks = plans._in_spark_tasks
    patch.setattr(plans, "_in_spark_tasks", lambda session, run, count: in_tasks(session, change(run), count))


def spoil_files(patch: pytest.MonkeyPatch, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the rows of the first file that each of the next jobs writes, before it is verified."""
    run_with_spark = plans.run_with_spark

    def spoiled(session: Any, storage: Any, base: Any, tasks: Any, **options: Any) -> list[str]:
        paths = run_with_spark(session, storage, base, tasks, **options)
        path = storage.uri(paths[0])
        pq.write_table(change(pq.read_table(path, partitioning=None)), path, store_schema=False)
        return paths

    for module in (fold_module, compact_module, evolve_module, rewrite_module):
        patch.setattr(module, "run_with_spark", spoiled)


def stand_in_for_spark(patch: pytest.MonkeyPatch) -> None:
    """Run the tasks of jobs in this process, where Spark is not the point: a job takes milliseconds.

    Everything else is the real code: what is read and written, the check of the files, the ledger, the commit.
    """
    patch.setattr(job_module.Job, "spark", _no_session)
    patch.setattr(plans, "_in_spark_tasks", in_this_process)
    patch.setattr(spark_files, "read_files", _read_files)
    patch.setattr(spark_files, "write_files", _write_files)
