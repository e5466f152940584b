"""The guard of Spark's Java process, with a stand-in for the process, and statements that do not end, with Spark."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crannog.embedded import EmbeddedLake as Lake
from crannog.errors import Cancelled, Overloaded, TimedOut, Unavailable
from crannog.settings import Settings
from crannog.spark import guard as module
from crannog.spark.guard import Guard, Work, run_abandonable
from crannog.spark.session import SparkRuntime, spark_runtime

# Folded on the driver, where the cancellation of jobs does nothing; it takes minutes.
FOLDED = "SELECT levenshtein(repeat('a', 100000), repeat('b', 100000)) AS d"


class Process:
    """A stand-in for the Java process and its context."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.alive = True
        self.process = SimpleNamespace(pid=os.getpid())
        self.answers = threading.Event()
        self.answers.set()
        self.replaced: list[str] = []
        self.sparkContext = self
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=self._is_stopped))
        self._jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=SimpleNamespace(gc=lambda: None))))

    def _is_stopped(self) -> bool:
        self.answers.wait()
        return False

    def replace(self, reason: str) -> None:
        self.replaced.append(reason)
        self.alive = False


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path)
    yield made
    made.alive = False
    made.answers.set()


def guarded(process: Process, temp_bytes: int = 0) -> Guard:
    made: Any = process
    guard = Guard(made, made, temp_bytes, replace=process.replace, ended=lambda: None)
    guard.start()
    return guard


def wait_for(found: Callable[[], object], seconds: float = 10) -> None:
    ends = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < ends, "waited in vain"
        time.sleep(0.02)


def test_work_that_does_not_end_is_given_up_and_counted(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TICK_S", 0.02)
    monkeypatch.setattr(module, "_COUNTS_AFTER_S", 0.1)
    guard, held = guarded(process), threading.Event()
    try:
        for count in range(1, module.MOST_ABANDONED + 1):
            with pytest.raises(Cancelled):
                run_abandonable(held.wait, is_cancelled=lambda: True, abandon=guard.abandon, grace_s=0.05)
            if count < module.MOST_ABANDONED:
                assert guard.abandoned == count
                assert not process.replaced
        wait_for(lambda: process.replaced)
        assert "4 statements that ran into their time limit do not end" in process.replaced[0]
    finally:
        held.set()


def test_work_that_ends_in_time_is_returned_or_raises(process: Process) -> None:
    guard = guarded(process)
    assert run_abandonable(lambda: 7, is_cancelled=lambda: False, abandon=guard.abandon) == 7
    with pytest.raises(ZeroDivisionError):
        run_abandonable(lambda: 1 // 0, is_cancelled=lambda: True, abandon=guard.abandon)
    assert guard.abandoned == 0


def test_one_piece_of_work_that_takes_too_long_is_enough(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TICK_S", 0.02)
    monkeypatch.setattr(module, "ABANDONED_S", 0.2)
    guard, held = guarded(process), threading.Event()
    thread = threading.Thread(target=held.wait)
    thread.start()
    guard.abandon(thread)
    wait_for(lambda: process.replaced)
    held.set()
    thread.join()


def test_a_process_that_does_not_answer_is_replaced(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_TICK_S", 0.02), ("_PING_EVERY_S", 0.02), ("STILL_S", 0.5), ("SILENT_S", 60.0)):
        monkeypatch.setattr(module, name, value)
    ticks = iter(range(1_000_000))
    monkeypatch.setattr(module, "processor_ticks", lambda _pid: next(ticks))
    guarded(process)
    time.sleep(0.6)
    assert not process.replaced
    process.answers.clear()
    time.sleep(1.0)
    assert not process.replaced, "it uses processor time, such as to collect garbage"
    monkeypatch.setattr(module, "processor_ticks", lambda _pid: 5)
    wait_for(lambda: process.replaced)
    assert "has not answered for" in process.replaced[0]


def test_the_longest_statement_ends_when_temporary_files_take_too_much(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_TICK_S", 0.02), ("_DISK_EVERY_S", 0.02), ("_DISK_PATIENCE_S", 0.3)):
        monkeypatch.setattr(module, name, value)
    guard = guarded(process, temp_bytes=1024**2)
    ended: dict[str, threading.Event] = {
        name: threading.Event() for name in ("crannog-query-1", "crannog-query-2", "fold")
    }

    def run(name: str) -> None:
        with suppress(Overloaded), guard.working(Work(name, ended[name].set)):
            ended[name].wait()
            raise Cancelled("interrupted")

    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in ("fold", "crannog-query-1")]
    for thread in threads:
        thread.start()
    oldest = Work("crannog-query-0", ended["crannog-query-2"].set, since=0.0)
    with pytest.raises(Overloaded, match=r"more than spark_temp_mb.*ran longest"), guard.working(oldest):
        (process.folder / "shuffle").write_bytes(os.urandom(2 * 1024**2))
        assert ended["crannog-query-2"].wait(10)
        raise Cancelled("interrupted")
    wait_for(ended["crannog-query-1"].is_set)
    wait_for(ended["fold"].is_set)
    wait_for(lambda: process.replaced)
    assert "nothing runs that could give them back" in process.replaced[0]


# -- with Spark ------------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(settings: Settings, spark: SparkRuntime) -> Iterator[Lake]:
    with Lake(settings.warehouse, settings=settings) as made:
        yield made


def java(lake: Lake) -> int:
    start = spark_runtime(lake.settings)._start
    assert start is not None
    assert start.jvm is not None
    return start.jvm.process.pid


def test_a_statement_that_cannot_be_interrupted_ends_on_time(lake: Lake) -> None:
    lake.sql("SELECT 1", engine="spark")
    began = time.monotonic()
    with pytest.raises(TimedOut):
        lake.sql(FOLDED.replace("100000", "25000"), engine="spark", timeout_s=0.3)
    assert time.monotonic() - began < 3
    assert lake.operations.queries.running.ids() == [], "its place is free"


@pytest.mark.slow
def test_a_statement_that_plans_for_minutes_is_ended_with_its_process(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ABANDONED_S", 2.0)
    lake.sql("SELECT 1", engine="spark")
    before, began = java(lake), time.monotonic()
    with pytest.raises(TimedOut):
        lake.sql(FOLDED, engine="spark", timeout_s=1)
    assert time.monotonic() - began < 4
    wait_for(lambda: spark_runtime(lake.settings).incident(), 20)
    assert lake.sql("SELECT 2 AS n", engine="spark").rows() == [{"n": 2}]
    assert java(lake) != before


@pytest.mark.slow
def test_a_java_process_that_stands_still_is_replaced(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STILL_S", 6.0)
    lake.sql("SELECT 1", engine="spark")
    before, began = java(lake), time.monotonic()
    os.kill(before, signal.SIGSTOP)
    with pytest.raises(TimedOut):
        lake.sql("SELECT 1", engine="spark", timeout_s=1)
    assert time.monotonic() - began < 4
    assert spark_runtime(lake.settings).state() == "ready", "known without asking it"
    assert lake.sql("SELECT 2 AS n", engine="spark", timeout_s=120).rows() == [{"n": 2}]
    assert java(lake) != before


@pytest.mark.slow
def test_a_statement_that_needs_too_much_memory_says_so_and_spark_is_restarted(lake: Lake) -> None:
    greedy = "SELECT size(collect_list(repeat(CAST(id AS STRING), 20000))) AS n FROM range(1000000)"
    with pytest.raises(Unavailable, match=r"Spark ran out of memory and is restarted.*raise spark_memory_mb"):
        lake.sql(greedy, engine="spark", timeout_s=120)
    wait_for(lambda: "ran out of memory" in str(spark_runtime(lake.settings).incident()), 20)
    assert lake.sql("SELECT 2 AS n", engine="spark").rows() == [{"n": 2}]
