"""A process of the crash and concurrency tests: it works on a lake, says what was acknowledged, and may be killed.

Three parts: the work, pure, so that a test can tell from the last acknowledged turn what must be there; the child's
side, which runs as a program; the test's side, which starts children and compares. (PYTEST_DONT_REWRITE: tests
import it before they name it as the plugin that has the nursery.)
"""

from __future__ import annotations

import glob
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

# -- the work ------------------------------------------------------------------------------------------------

PLAIN, KEYED = "lake.crash.plain", "lake.crash.keyed"
TABLES = (PLAIN, KEYED)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("writer", pa.string()),
        pa.field("turn", pa.int64()),
        pa.field("text", pa.string()),
    ]
)
KEYS_PER_WRITER = 20
CONTENDED_KEYS = 5
TWIN_ROWS = 2


@dataclass(frozen=True)
class Batch:
    """What one call sends."""

    id: str
    verb: str
    rows: tuple[dict[str, Any], ...]


def row_of(name: str, writer: str, turn: int) -> dict[str, Any]:
    return {"id": name, "writer": writer, "turn": turn, "text": f"{name} at {turn}"}


def batch_of(table: str, writer: str, turn: int) -> Batch:
    """Return what `writer` sends in its `turn`: rows nobody else has, so turns of others never matter."""
    batch_id = f"{writer}#{turn}"
    if table == PLAIN:
        return Batch(
            batch_id, "append", tuple(row_of(f"{writer}/{turn}/{n}", writer, turn) for n in range(1 + turn % 3))
        )
    names = [f"{writer}/{(turn * 3 + n) % KEYS_PER_WRITER}" for n in range(3)]
    if turn % 4 == 3:
        return Batch(batch_id, "delete", tuple({"id": name} for name in names[:2]))
    return Batch(batch_id, "upsert", tuple(row_of(name, writer, turn) for name in names))


def contended_batch(writer: str, turn: int) -> Batch:
    """Return a change of a key that every writer changes."""
    return Batch(f"{writer}!{turn}", "upsert", (row_of(f"contended/{turn % CONTENDED_KEYS}", f"{writer}!", turn),))


def twin_batch(turn: int) -> Batch:
    """Return a batch that every process sends, under one id."""
    return Batch(f"twin#{turn}", "append", tuple(row_of(f"twin/{turn}/{n}", "twin", turn) for n in range(TWIN_ROWS)))


def state_after(table: str, writer: str, turns: int) -> dict[str, int]:
    """Return what `writer` has in the table after its first `turns` turns: the turn of each id."""
    state: dict[str, int] = {}
    for turn in range(turns):
        batch = batch_of(table, writer, turn)
        for row in batch.rows:
            if batch.verb == "delete":
                state.pop(row["id"], None)
            else:
                state[row["id"]] = turn
    return state


def is_shared(writer: str) -> bool:
    """Tell whether rows under this name are others' too, so that turns alone do not tell what must be there."""
    return writer in ("twin", "secret") or writer.endswith("!")


def send(lake: Any, table: str, batch: Batch) -> Any:
    """Make the call of a batch."""
    target = lake.table(table)
    if batch.verb == "delete":
        return target.delete([dict(row) for row in batch.rows], actor="test", reason="turn", batch_id=batch.id)
    return getattr(target, batch.verb)([dict(row) for row in batch.rows], batch_id=batch.id)


def make_tables(lake: Any) -> None:
    lake.create_table(PLAIN, SCHEMA, if_exists="ok")
    lake.create_table(KEYED, SCHEMA, key=["id"], if_exists="ok")


def connect(location: str, **settings: Any) -> Any:
    """Open the lake as the tests do: no grace for staged files, which is what the protocol was checked with."""
    import crannog

    return crannog.connect(
        location, **{"spark_memory_mb": 1024, "spark_start_timeout_s": 240, "fold_grace_s": 0, **settings}
    )


def rows_by_writer(rows: pa.Table) -> dict[str, dict[str, int]]:
    """Return the turn of each id, by writer; fails if an id stands twice or a row is not as it was sent."""
    found: dict[str, dict[str, int]] = {}
    names: set[str] = set()
    columns = [rows[name].to_pylist() for name in ("id", "writer", "turn", "text")]
    for name, writer, turn, text in zip(*columns, strict=True):
        assert text == f"{name} at {turn}", (name, turn, text)
        assert name not in names, f"{name} stands twice"
        names.add(name)
        found.setdefault(writer, {})[name] = turn
    return found


# -- the child's side ----------------------------------------------------------------------------------------


def say(**line: Any) -> None:
    """Tell the test, in one write: a line that was begun was wholly told, whenever the process dies."""
    os.write(1, json.dumps(line, default=str).encode() + b"\n")


class Worker:
    """The threads of one process: writers, a watcher of what reads show, and maintenance in turn."""

    def __init__(self, location: str, plan: Mapping[str, Any]) -> None:
        self.plan = plan
        self.lake = connect(location, **plan.get("settings", {}))
        self.life = plan.get("life", "0")
        self.over = threading.Event()
        self.step = threading.local()
        self._count_lock = threading.Lock()
        self._acks = 0
        self._hits = 0

    # Killing itself

    def watch_phases(self) -> None:
        from crannog.storage import failpoints

        wanted, nth, during = self.plan.get("phase"), self.plan.get("hit", 1), self.plan.get("during")

        def hook(phase: str) -> None:
            if phase != wanted or self._acks < self.plan.get("after_acks", 0):
                return
            if during is not None and getattr(self.step, "name", None) != during:
                return
            with self._count_lock:
                self._hits += 1
                if self._hits == nth:
                    os.kill(os.getpid(), signal.SIGKILL)

        if wanted:
            failpoints.hook = hook

    # Threads

    def run(self) -> None:
        if self.plan.get("spark"):
            self.start_spark()
        say(ready=True)
        await_file(self.plan.get("go"))
        self.watch_phases()
        self._thread(self._await_end, time.monotonic() + self.plan.get("seconds", 30))
        threads = [
            *(
                self._thread(self._write, table, f"{self.life}.{number}")
                for table in self.plan.get("tables", TABLES)
                for number in range(self.plan.get("writers", 2))
            ),
            *([self._thread(self._contend), self._thread(self._twin)] if self.plan.get("together") else []),
            *([self._thread(self._watch)] if self.plan.get("watch") else []),
        ]
        self._maintain()
        for thread in threads:
            thread.join(60)
        for step in self.plan.get("finally", []):
            getattr(self, f"_do_{step}")(-1)
        say(done=True, counts={table: self.lake.table(table).count() for table in self.plan.get("tables", TABLES)})
        self.lake.close()

    def start_spark(self) -> None:
        from crannog.spark.session import spark_runtime

        self.lake.operations.warehouse.spark().range(10).count()
        jvm = spark_runtime(self.lake.settings)._start.jvm  # type: ignore[union-attr]
        if isinstance(jvm.process, subprocess.Popen):
            say(jvm=jvm.process.pid)

    def _await_end(self, latest: float) -> None:
        while time.monotonic() < latest and not os.path.exists(self.plan.get("stop", "")):
            time.sleep(0.01)
        self.over.set()

    def _thread(self, work: Callable[..., None], *arguments: Any) -> threading.Thread:
        def guarded() -> None:
            try:
                work(*arguments)
            except BaseException:
                say(error=traceback.format_exc())
                self.over.set()

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def _send(self, table: str, batch: Batch, writer: str, turn: int) -> None:
        from crannog.errors import Overloaded

        while True:
            try:
                receipt = send(self.lake, table, batch)
                break
            except Overloaded:
                time.sleep(0.05)
        say(ack=[table, writer, turn], sequence=receipt.sequence, duplicate=receipt.duplicate, rows=receipt.rows)
        with self._count_lock:
            self._acks += 1
        self.over.wait(self.plan.get("pause", 0.002))

    def _turns(self) -> Iterable[int]:
        for turn in itertools.count():
            if self.over.is_set() or turn >= self.plan.get("turns", 1_000_000):
                return
            yield turn

    def _write(self, table: str, writer: str) -> None:
        for turn in self._turns():
            self._send(table, batch_of(table, writer, turn), writer, turn)

    def _contend(self) -> None:
        for turn in self._turns():
            self._send(KEYED, contended_batch(self.life, turn), f"{self.life}!", turn)

    def _twin(self) -> None:
        for turn in self._turns():
            self._send(PLAIN, twin_batch(turn), "twin", turn)

    def _watch(self) -> None:
        """Look at the tables all the time: whole batches, one row per key, and nothing that goes away again."""
        most = 0
        while not self.over.wait(0.2):
            rows_by_writer(self.lake.table(KEYED).to_arrow())
            plain = rows_by_writer(self.lake.table(PLAIN).to_arrow())
            sizes: dict[tuple[str, int], int] = {}
            for writer, mine in plain.items():
                for turn in mine.values():
                    sizes[writer, turn] = sizes.get((writer, turn), 0) + 1
            for (writer, turn), size in sizes.items():
                whole = TWIN_ROWS if writer == "twin" else len(batch_of(PLAIN, writer, turn).rows)
                assert size == whole, f"{size} of {whole} rows of turn {turn} of {writer} are there"
            total = sum(map(len, plain.values()))
            assert total >= most, f"a read showed {total} rows after one that showed {most}"
            most = total

    # Maintenance

    def _maintain(self) -> None:
        steps = self.plan.get("do", [])
        for number in itertools.count():
            if self.over.is_set():
                return
            if not steps or self._acks < self.plan.get("after_acks", 0):
                time.sleep(0.01)
                continue
            step = steps[number % len(steps)]
            self.step.name = step
            began = time.perf_counter()
            try:
                getattr(self, f"_do_{step}")(number)
                say(step=step, seconds=round(time.perf_counter() - began, 3))
            except BaseException:
                say(error=f"{step}: {traceback.format_exc()}")
                self.over.set()
            self.step.name = None

    def _each(self) -> Iterable[Any]:
        return [self.lake.table(table) for table in self.plan.get("tables", TABLES)]

    def _do_fold(self, _: int) -> None:
        for table in self._each():
            table.fold()

    def _do_compact(self, _: int) -> None:
        for table in self._each():
            table.compact()

    def _do_pack(self, _: int) -> None:
        from crannog.names import TableName

        for table in self.plan.get("tables", TABLES):
            self.lake.operations.tables.open(TableName.parse(table)).log.pack()

    def _do_clean(self, _: int) -> None:
        for table in self._each():
            table.vacuum()

    def _do_vacuum(self, _: int) -> None:
        for table in self._each():
            table.vacuum(0, force=True)

    def _do_erase(self, number: int) -> None:
        name = f"secret/{self.life}/{number}"
        say(erasing=name)
        self.lake.table(KEYED).upsert([row_of(name, "secret", number)])
        self.lake.table(KEYED).erase([{"id": name}], actor="test", reason="asked for")
        say(erased=name)

    def _do_claim(self, number: int) -> None:
        name = f"work:{self.life}:{number}"
        say(claiming=name)
        lease = self.lake.operations.control.claim(name, self.life)
        assert lease is not None, f"nobody else claims {name}"
        with lease:
            self.lake.operations.control.release(name, self.life, result={}, interval_s=3600)

    def _do_drop(self, number: int) -> None:
        name = f"lake.crash.dropped{number % 3}"
        self.lake.create_table(name, SCHEMA, if_exists="ok").append([row_of(f"d/{number}", "d", number)])
        self.lake.drop_table(name)


def await_file(path: str | None) -> None:
    while path and not os.path.exists(path):
        time.sleep(0.002)


def orders(path: str) -> Iterator[dict[str, Any]]:
    """Yield what the test orders, for as long as the test, or the mother, lives."""
    parent = os.getppid()
    while not os.path.exists(path):
        time.sleep(0.002)
    with open(path, "rb") as file:
        begun = b""
        while os.getppid() == parent:
            begun += file.readline()
            if begun.endswith(b"\n"):
                yield json.loads(begun)
                begun = b""
            else:
                time.sleep(0.002)


def obey(location: str, plan: Mapping[str, Any], path: str) -> None:
    """Do what the test says, line by line, each thing at the moment it gives: for races between processes."""
    lake = connect(location, **plan.get("settings", {}))
    from crannog.engine.maintenance.control import ControlTable
    from crannog.engine.maintenance.scheduler import Scheduler
    from crannog.errors import CrannogError

    held: list[Any] = []

    def create(name: str, columns: Mapping[str, str], **options: Any) -> Any:
        schema = pa.schema([(column, pa.type_for_alias(kind)) for column, kind in columns.items()])
        return lake.create_table(name, schema, **options).describe()["table_id"]

    def claim(tasks: list[str], owner: str, lease_s: float = 60) -> list[str]:
        control = ControlTable(lake.operations.warehouse.storage, lease_s=lease_s)
        taken = []
        for task in tasks:
            lease = control.claim(task, owner)
            if lease is not None:
                held.append(lease.__enter__())
                taken.append(task)
        return taken

    def release(task: str, owner: str, interval_s: float | None) -> bool:
        return bool(lake.operations.control.release(task, owner, result={"by": owner}, interval_s=interval_s))

    def run_due() -> list[str]:
        return Scheduler(lake.operations.warehouse, lake.operations.tables, lake.operations.control).run_due()

    def append(table: str, batch_id: str, ids: list[str]) -> Any:
        receipt = lake.table(table).append([row_of(name, "race", 0) for name in ids], batch_id=batch_id)
        return {"sequence": receipt.sequence, "duplicate": receipt.duplicate}

    acts = {"create": create, "claim": claim, "release": release, "run_due": run_due, "append": append}
    say(ready=True)
    for order in orders(path):
        act, at = order.pop("do"), order.pop("at", 0)
        while time.time() < at:
            pass
        try:
            say(answer=acts[act](**order))
        except CrannogError as error:
            say(answer={"error": type(error).__name__, "message": error.message})
        except Exception:
            say(answer={"error": "unexpected", "message": traceback.format_exc()})
    os._exit(0)  # leases are held to the end, as by a process that dies


def tour(location: str, plan: Mapping[str, Any]) -> None:
    """Do everything a table can, in order, comparing after each step and telling how long it took."""
    lake = connect(location, **plan.get("settings", {}))
    last: dict[tuple[str, str], int] = {}
    began = time.perf_counter()

    def done(step: str, *, check: bool = True) -> None:
        nonlocal began
        say(step=step, seconds=round(time.perf_counter() - began, 3))
        # In this process, at once: what a snapshot of a moment ago stood on may be gone.
        if check:
            assert check_kept(lake, last) == last, step
        began = time.perf_counter()

    def write(turns: int) -> None:
        for table in TABLES:
            first = last.get((table, "tour"), -1) + 1
            for turn in range(first, first + turns):
                assert not send(lake, table, batch_of(table, "tour", turn)).duplicate
            last[table, "tour"] = first + turns - 1

    def each(act: Callable[[Any], Any]) -> list[Any]:
        return [act(lake.table(table)) for table in TABLES]

    make_tables(lake)
    done("create", check=False)
    write(20)
    done("40 writes")
    lake.operations.warehouse.spark().range(10).count()
    done("start Spark")
    for report in each(lambda table: table.fold()):
        assert report.changes == 20
    done("fold")
    for report in each(lambda table: table.fold()):
        assert report.changes == 0
    write(8)
    for report in each(lambda table: table.fold()):
        assert report.changes == 8
    done("write and fold")
    write(4)
    for report in each(lambda table: table.compact()):
        assert (report.deltas_merged, report.files_after) == (4, 1)
    done("compact")
    for report in each(lambda table: table.vacuum(0, force=True)):
        assert report.files_deleted
    done("vacuum")
    lake.table(KEYED).upsert([row_of("secret/1", "secret", 0)])
    lake.table(KEYED).fold()
    lake.table(KEYED).upsert([row_of("secret/1", "secret", 1)])
    receipt = lake.table(KEYED).erase([{"id": "secret/1"}], actor="test", reason="asked for")
    assert receipt.rows_erased == 1
    assert sum(place.before for place in receipt.places) >= 2
    assert not any(place.after for place in receipt.places)
    done("erase")
    rows = lake.table(KEYED).to_spark().toArrow()
    assert rows_by_writer(rows) == rows_by_writer(lake.table(KEYED).to_arrow())
    done("read with Spark")
    lake.drop_table(PLAIN)
    del last[PLAIN, "tour"]
    make_tables(lake)
    assert lake.table(PLAIN).count() == 0
    write(3)
    each(lambda table: table.fold())
    done("drop, make again and fold")
    say(done=True, last=[[*place, turn] for place, turn in last.items()])
    lake.close()


def nurse(path: str) -> None:
    """Start Spark once, then bear children by forking that use it: each is a process of its own, to be killed.

    A start of Spark takes seconds; here a kill costs none. The Java process outlives every one of these Pythons.
    """
    import deltalake  # noqa: F401
    import duckdb  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    import crannog.embedded  # noqa: F401
    from crannog.settings import load_settings
    from crannog.spark import session as spark

    runtime = spark.spark_runtime(load_settings(spark_memory_mb=1024, spark_start_timeout_s=240))
    runtime.session().range(10).count()
    assert runtime._start is not None
    assert runtime._start.jvm is not None
    say(jvm=runtime._start.jvm.process.pid)
    say(ready=True)
    for order in orders(path):
        pid = os.fork()
        if pid == 0:
            # Another thread has another connection to Java than the mother's, which is hers.
            adopt(spark, runtime)
            born = threading.Thread(target=begin, args=(order,))
            born.start()
            born.join()
            os._exit(0)
        say(born=pid)
        threading.Thread(target=tell_end, args=(pid,), daemon=True).start()


def tell_end(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    say(ended=pid, code=os.waitstatus_to_exitcode(status))


def adopt(spark: Any, runtime: Any) -> None:
    """Take the mother's Spark for one's own: after a fork the module forgets it."""

    class Hers:
        @staticmethod
        def poll() -> None:
            """She knows whether it runs; only a parent may ask."""

    runtime._lock = threading.RLock()
    runtime._start.jvm.process = Hers()
    spark._process_wide = runtime


def begin(wanted: Mapping[str, Any]) -> None:
    """Do what the first order says, telling into the file it names."""
    os.environ.update(wanted["environment"])
    for path, descriptor in ((wanted["reports"], 1), (wanted["errors"], 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    location, plan = wanted["location"], wanted["plan"]
    mode = plan.get("mode", "work")
    if mode == "nursery":
        nurse(wanted["orders"])
    elif mode == "obey":
        obey(location, plan, wanted["orders"])
    elif mode == "tour":
        tour(location, plan)
    else:
        Worker(location, plan).run()


# -- the test's side -----------------------------------------------------------------------------------------


class Child:
    """A process and what it reported so far; a context manager that ends it and waits for its Java process."""

    def __init__(self, location: str = "", *, mother: Child | None = None, **plan: Any) -> None:
        self.location = location
        self.plan = plan
        self._folder = Path(tempfile.mkdtemp(prefix="crannog-child-"))
        self._reports = self._folder / "reports"
        self._errors = self._folder / "errors"
        self._orders = self._folder / "orders"
        self._read_to = 0
        self.lines: list[dict[str, Any]] = []
        self._mother = mother
        self._process: subprocess.Popen[bytes] | None = None
        order = {
            "location": location,
            "plan": plan,
            "reports": str(self._reports),
            "errors": str(self._errors),
            "orders": str(self._orders),
            # Where the bucket is; a mother may be older than it.
            "environment": {name: value for name, value in os.environ.items() if name.startswith("AWS_")},
        }
        if mother is None:
            self._process = subprocess.Popen([sys.executable, __file__, json.dumps(order)], stdin=subprocess.DEVNULL)
            self.pid = self._process.pid
        else:
            before = len(mother.reported("born"))
            mother.order(**order)
            self.pid = mother.await_reported("born", before + 1)[before]
            births = [place for place, line in enumerate(mother.all_lines()) if "born" in line]
            self._born_at = births[before]

    def code(self) -> int | None:
        """Return the exit code, the negative signal if one ended it, None while it runs."""
        if self._process is not None:
            return self._process.poll()
        assert self._mother is not None
        # A process id may have been another child's before.
        since = [line for line in self._mother.all_lines()[self._born_at :] if line.get("ended") == self.pid]
        ended = [line["code"] for line in since]
        assert ended or self._mother.code() is None, self._mother.words()
        return ended[0] if ended else None

    def all_lines(self) -> list[dict[str, Any]]:
        if self._reports.exists():
            with self._reports.open("rb") as file:
                file.seek(self._read_to)
                whole, _, _ = file.read().rpartition(b"\n")
            self._read_to += len(whole) + 1 if whole else 0
            self.lines += map(json.loads, whole.splitlines())
        return self.lines

    def reported(self, kind: str) -> list[Any]:
        return [line[kind] for line in self.all_lines() if kind in line]

    def acknowledged(self) -> list[dict[str, Any]]:
        return [line for line in self.all_lines() if "ack" in line]

    def await_reported(self, kind: str, count: int = 1, timeout_s: float = 120) -> list[Any]:
        """Wait until `count` lines of a kind are told; fails with the child's words if it ends before."""
        deadline = time.monotonic() + timeout_s
        while len(found := self.reported(kind)) < count:
            alive = self.code() is None
            if (not alive and len(found := self.reported(kind)) < count) or time.monotonic() > deadline:
                raise AssertionError(f"the child told {len(found)} of {count} {kind!r}: {self.words()}")
            time.sleep(0.002)
        return found

    def order(self, **order: Any) -> None:
        with self._orders.open("ab") as file:
            file.write(json.dumps(order).encode() + b"\n")

    def ask(self, **order: Any) -> Callable[[], Any]:
        """Give an order; the function returned waits for its answer."""
        before = len(self.reported("answer"))
        self.order(**order)
        return lambda: self.await_reported("answer", before + 1)[before]

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # `wait` tells what it ended with
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout_s: float = 180) -> int:
        """Wait for the end and return the exit code."""
        deadline = time.monotonic() + timeout_s
        while (code := self.code()) is None:
            assert time.monotonic() < deadline, f"the child does not end: {self.words()}"
            time.sleep(0.005)
        return code

    def words(self) -> str:
        """Return what the child complained of."""
        errors = self._errors.read_text(errors="replace") if self._errors.exists() else ""
        return "\n".join([*map(str, self.reported("error")), errors[-4000:]])

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self.code() is None:
            self.kill()
        self.wait()
        for pid in self.reported("jvm"):
            await_end(pid)
        for folder in (self._folder, *glob.glob(f"{tempfile.gettempdir()}/crannog-spark-{self.pid}-*")):
            shutil.rmtree(folder, ignore_errors=True)


def await_end(pid: int, timeout_s: float = 30) -> None:
    """Wait for a Java process, which is not our child, to end by itself."""
    deadline = time.monotonic() + timeout_s
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} does not end"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        # A zombie waits for whoever adopted it and runs no more.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def last_turns(acknowledged: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """Return the last acknowledged turn of each table and writer that has rows of its own; turns come in order."""
    last: dict[tuple[str, str], int] = {}
    for line in acknowledged:
        table, writer, turn = line["ack"]
        if is_shared(writer):
            continue
        assert turn == last.get((table, writer), -1) + 1, line
        last[table, writer] = turn
    return last


def check_kept(lake: Any, last: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Every acknowledged turn is there once, and the one after it wholly or not at all; return the turns that are there.

    `last` names every writer that may have rows, one without an acknowledgement as -1.
    """
    there: dict[tuple[str, str], int] = {}
    for table in dict.fromkeys(table for table, _ in last):
        found = rows_by_writer(lake.table(table).to_arrow())
        assert lake.table(table).count() == sum(map(len, found.values()))
        for writer in found:
            assert (table, writer) in last or is_shared(writer), f"nobody told of {writer}"
        for (_, writer), turn in ((place, turn) for place, turn in last.items() if place[0] == table):
            mine = found.get(writer, {})
            without, with_next = (state_after(table, writer, turns) for turns in (turn + 1, turn + 2))
            assert mine in (without, with_next), f"{writer} in {table} after turn {turn}: {_differences(mine, without)}"
            there[table, writer] = turn if mine == without else turn + 1
    return there


def _differences(found: Mapping[str, int], wanted: Mapping[str, int]) -> str:
    lost = {name: turn for name, turn in wanted.items() if found.get(name) != turn}
    extra = {name: turn for name, turn in found.items() if wanted.get(name) != turn}
    return (
        f"{len(lost)} missing {dict(list(lost.items())[:5])}, {len(extra)} unexpected {dict(list(extra.items())[:5])}"
    )


def check_retries(lake: Any, last: Mapping[tuple[str, str], int], there: Mapping[tuple[str, str], int]) -> None:
    """Send the unacknowledged turns again, and acknowledged ones too: each is kept once."""
    for (table, writer), turn in last.items():
        receipt = send(lake, table, batch_of(table, writer, turn + 1))
        if state_after(table, writer, turn + 1) != state_after(table, writer, turn + 2):
            assert receipt.duplicate == (there[table, writer] == turn + 1), (table, writer, turn + 1)
        for earlier in {*range(0, turn + 1, 7), *range(max(0, turn - 10), turn + 2)}:
            assert send(lake, table, batch_of(table, writer, earlier)).duplicate, (table, writer, earlier)


def plain_delta(lake: Any, table: str) -> Any:
    """Open a table with nothing but delta-rs."""
    from deltalake import DeltaTable

    storage = lake.operations.warehouse.storage
    return DeltaTable(storage.uri(table.replace(".", "/")), storage_options=dict(storage.options) or None)


def check_plain_delta(lake: Any, table: str) -> None:
    """Read a folded table with nothing but delta-rs: the same rows."""
    assert rows_by_writer(plain_delta(lake, table).to_pyarrow_table()) == rows_by_writer(lake.table(table).to_arrow())


if __name__ == "__main__":
    begin(json.loads(sys.argv[1]))
else:  # a child needs no pytest
    import pytest

    @pytest.fixture(scope="session")
    def nursery() -> Iterator[Child]:
        """A process with Spark that bears children, so that a kill costs no new start of Spark."""
        with Child(mode="nursery") as mother:
            mother.await_reported("ready", timeout_s=240)
            yield mother
