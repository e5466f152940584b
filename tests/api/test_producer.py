"""The producer: order, batches, what is sent again, what is split, what is reported, and who owns rows after a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

import crannog
from crannog.api.delivery import Step, next_step
from crannog.api.producer import Producer
from crannog.embedded import EmbeddedLake as Lake
from crannog.errors import BadRows, CallerError, NotFound, Overloaded, Unavailable
from crannog.settings import Settings
from proxies import FaultyProxy, free_port
from servers import Server

NAME = "ops.plant.readings"


class Reading(BaseModel):
    n: int = Field(ge=-1)
    sensor: str | None = None


class Faulty:
    """A table whose writes fail as told, before or after they were kept."""

    def __init__(self, table: Any, faults: Iterator[Exception | None], *, after: bool = False) -> None:
        self._table, self._faults, self._after = table, faults, after
        self.name = table.name
        self.calls: list[tuple[str, int]] = []

    def append(self, rows: Any, batch_id: str | None = None) -> Any:
        self.calls.append((str(batch_id), len(rows)))
        fault = next(self._faults, None)
        if fault is not None and not self._after:
            raise fault
        receipt = self._table.append(rows, batch_id)
        if fault is not None:
            raise fault
        return receipt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


@pytest.fixture
def lake(settings: Settings) -> Iterator[Lake]:
    with Lake(settings.warehouse, settings=settings) as lake:
        lake.create_table(NAME, Reading)
        yield lake


def numbers(lake: Any) -> list[int]:
    return list(lake.table(NAME).to_arrow()["n"].to_pylist())


def until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.005)


def test_rows_are_kept_in_the_order_they_came_in_batches(lake: Lake) -> None:
    table = Faulty(lake.table(NAME), iter(()))
    with Producer(table, Reading, batch_rows=100, max_age_s=60) as producer:
        for n in range(250):
            producer.insert(Reading(n=n, sensor="a") if n % 2 else {"n": n, "sensor": "b"})
        assert producer.flush()
        assert (producer.sent, producer.queued, producer.failed) == (250, 0, 0)
    assert numbers(lake) == list(range(250))
    # Full ones go at once; the rest waits for its age, or for somebody who wants it out.
    assert [rows for _, rows in table.calls] == [100, 100, 50]
    assert len({batch for batch, _ in table.calls}) == 3


def test_a_row_that_waited_long_enough_goes_alone(lake: Lake) -> None:
    with lake.producer(NAME, batch_rows=1_000, max_age_s=0.05) as producer:
        producer.insert({"n": 1})
        until(lambda: producer.sent == 1)
        assert numbers(lake) == [1]


def test_what_is_inserted_is_the_row_as_it_was_then(lake: Lake) -> None:
    with lake.producer(NAME, max_age_s=60) as producer:
        row, model = {"n": 1}, Reading(n=2)
        producer.insert(row)
        producer.insert(model)
        row["n"], model.n = 8, 9
    assert numbers(lake) == [1, 2]


def test_many_threads_insert_and_nothing_is_lost(lake: Lake) -> None:
    with lake.producer(NAME, batch_rows=50, max_age_s=0.01, queue_rows=120) as producer:

        def insert(start: int) -> None:
            for n in range(start, start + 200):
                producer.insert({"n": n, "sensor": threading.current_thread().name})

        threads = [threading.Thread(target=insert, args=(start,), name=str(start)) for start in range(0, 1_000, 200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = numbers(lake)
    assert sorted(found) == list(range(1_000))
    for start in range(0, 1_000, 200):
        assert [n for n in found if start <= n < start + 200] == list(range(start, start + 200))


def test_a_failure_that_may_pass_is_sent_again_under_the_same_id(lake: Lake) -> None:
    faults: list[Exception | None] = [Unavailable("away"), Overloaded("busy", retry_after_s=0.01), Unavailable("away")]
    table = Faulty(lake.table(NAME), iter(faults))
    with Producer(table, batch_rows=10, max_age_s=60) as producer:
        producer.insert_many({"n": n} for n in range(20))
        assert producer.flush()
        assert (producer.sent, producer.retries, producer.failures) == (20, 3, [])
    assert numbers(lake) == list(range(20))
    batches = [batch for batch, _ in table.calls]
    assert len(set(batches[:4])) == 1
    assert len(set(batches)) == 2


def test_a_batch_that_was_kept_although_it_seemed_to_fail_is_kept_once(lake: Lake) -> None:
    table = Faulty(
        lake.table(NAME), iter([Unavailable("lost"), Unavailable("lost"), None, Unavailable("lost")]), after=True
    )
    with Producer(table, batch_rows=10, max_age_s=60) as producer:
        producer.insert_many({"n": n} for n in range(20))
    assert producer.sent == 20
    assert numbers(lake) == list(range(20))


def test_a_bad_row_is_reported_and_its_neighbours_are_kept_in_order(lake: Lake) -> None:
    failures: list[tuple[list[dict[str, Any]], Exception]] = []
    with lake.producer(
        NAME, batch_rows=64, max_age_s=60, on_failure=lambda rows, error: failures.append((rows, error))
    ) as producer:
        for n in range(128):
            producer.insert({"n": n if n not in (5, 6, 100) else f"no number {n}"})
        assert producer.flush()
        assert (producer.sent, producer.failed, producer.retries) == (125, 3, 0)
    assert numbers(lake) == [n for n in range(128) if n not in (5, 6, 100)]
    assert [rows[0]["n"] for rows, _ in failures] == ["no number 5", "no number 6", "no number 100"]
    assert all(isinstance(error, BadRows) and "no number" in error.message for _, error in failures)
    assert [failure.rows[0]["n"] for failure in producer.failures] == ["no number 5", "no number 6", "no number 100"]


def test_a_batch_that_is_too_large_for_one_call_goes_in_parts(settings: Settings) -> None:
    small = settings.model_copy(update={"max_rows_per_call": 30})
    with Lake(small.warehouse, settings=small) as lake:
        lake.create_table(NAME, Reading)
        with lake.producer(NAME, batch_rows=100, max_age_s=60) as producer:
            producer.insert_many({"n": n} for n in range(100))
        assert (producer.sent, producer.failed) == (100, 0)
        assert numbers(lake) == list(range(100))


def test_rows_for_a_table_that_was_dropped_are_reported(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    with lake.producer(NAME, batch_rows=10, max_age_s=60) as producer:
        lake.drop_table(NAME)
        producer.insert_many({"n": n} for n in range(10))
        until(lambda: producer.failed == 10)
    [failure] = producer.failures
    assert isinstance(failure.error, NotFound)
    assert len(failure.rows) == 10
    assert NAME in caplog.text


def test_an_on_failure_that_fails_itself_does_not_stop_the_rest(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    def broken(rows: object, error: object) -> None:
        raise RuntimeError("broken report")

    with lake.producer(NAME, batch_rows=1, max_age_s=60, on_failure=broken) as producer:
        producer.insert({"n": "x"})
        producer.insert({"n": 7})
    assert numbers(lake) == [7]
    assert "broken report" in caplog.text


def test_a_row_that_does_not_fit_the_model_is_refused_at_once(lake: Lake) -> None:
    with lake.producer(NAME, Reading) as producer:
        with pytest.raises(BadRows, match="does not fit Reading: n: "):
            producer.insert({"n": "seven"})
        with pytest.raises(BadRows, match="does not fit Reading: n: "):
            producer.insert({"n": -2})
        with pytest.raises(BadRows, match="Reading"):
            producer.insert(7)  # type: ignore[arg-type]
        producer.insert({"n": "7"})
    assert numbers(lake) == [7]
    with lake.producer(NAME) as producer, pytest.raises(BadRows, match="a dict or a model, got int"):
        producer.insert(7)  # type: ignore[arg-type]


def test_rows_come_back_as_models(lake: Lake) -> None:
    class Labelled(BaseModel):
        n: int

    with lake.producer(NAME, Reading) as producer:
        producer.insert(Reading(n=1, sensor="a"))
        producer.insert(Reading(n=2))
        producer.flush()
        assert producer.read() == [Reading(n=1, sensor="a"), Reading(n=2)]
        assert producer.read(1) == [Reading(n=1, sensor="a")]
    assert lake.producer(NAME, Labelled).read() == [Labelled(n=1), Labelled(n=2)]
    assert lake.producer(NAME).read() == [{"n": 1, "sensor": "a"}, {"n": 2, "sensor": None}]


@pytest.mark.parametrize("policy", ["raise", "block"])
def test_a_full_queue_is_said_and_what_was_taken_is_kept(lake: Lake, policy: str) -> None:
    gate = threading.Event()
    table = Faulty(lake.table(NAME), (gate.wait(30) and None for _ in range(100)))  # type: ignore[func-returns-value]
    with Producer(table, batch_rows=5, max_age_s=60, queue_rows=10, when_full=policy, block_s=0.05) as producer:
        producer.insert_many({"n": n} for n in range(10))
        with pytest.raises(Overloaded, match=f"10 rows are waiting to be stored in {NAME}") as caught:
            producer.insert({"n": 10})
        assert caught.value.retry_after_s is not None
        assert producer.queued == 10
        gate.set()
    assert numbers(lake) == list(range(10))


def test_a_full_queue_that_blocks_lets_go_as_soon_as_there_is_room(lake: Lake) -> None:
    with lake.producer(NAME, batch_rows=5, max_age_s=0.01, queue_rows=5, block_s=30) as producer:
        producer.insert_many({"n": n} for n in range(50))
    assert numbers(lake) == list(range(50))


def test_a_full_queue_may_drop_the_oldest_and_says_which(lake: Lake) -> None:
    gate = threading.Event()
    table = Faulty(lake.table(NAME), (gate.wait(30) and None for _ in range(100)))  # type: ignore[func-returns-value]
    with Producer(table, batch_rows=4, max_age_s=60, queue_rows=10, when_full="drop_oldest") as producer:
        producer.insert_many({"n": n} for n in range(4))
        until(lambda: len(table.calls) == 1)  # these are under way, and not dropped
        producer.insert_many({"n": n} for n in range(4, 13))
        assert (producer.queued, producer.failed) == (10, 3)
        assert [row["n"] for failure in producer.failures for row in failure.rows] == [4, 5, 6]
        assert not producer.flush(timeout=0.05)
        gate.set()
        assert producer.flush()
    assert numbers(lake) == [0, 1, 2, 3, 7, 8, 9, 10, 11, 12]


def test_closing_while_it_fails_reports_what_is_left_and_ends(lake: Lake) -> None:
    table = Faulty(lake.table(NAME), iter(lambda: Unavailable("away"), None))
    producer = Producer(table, batch_rows=10, max_age_s=0.01)
    producer.insert_many({"n": n} for n in range(25))
    assert not producer.flush(timeout=0.05)
    producer.close(timeout=0.3)
    assert (producer.sent, producer.queued, producer.failed) == (0, 0, 25)
    assert sorted(row["n"] for failure in producer.failures for row in failure.rows) == list(range(25))
    assert all(isinstance(failure.error, Unavailable) for failure in producer.failures)
    with pytest.raises(CallerError, match="closed; create another"):
        producer.insert({"n": 1})
    producer.close()
    assert producer.flush()


def test_closing_does_not_wait_for_a_write_that_hangs(lake: Lake) -> None:
    gate = threading.Event()
    table = Faulty(lake.table(NAME), (gate.wait(30) and None for _ in range(100)))  # type: ignore[func-returns-value]
    producer = Producer(table, batch_rows=10, max_age_s=0.01)
    producer.insert_many({"n": n} for n in range(25))
    until(lambda: len(table.calls) == 1)
    producer.close(timeout=0.1)
    assert (producer.queued, producer.failed) == (0, 25)
    assert "may or may not be stored" in str(producer.failures[-1].error)
    gate.set()
    until(
        lambda: (
            threading.active_count() == 1
            or not any("crannog-producer" in thread.name for thread in threading.enumerate())
        )
    )
    assert len(table.calls) == 1  # nothing that was reported as failed is sent later
    assert producer.sent == 0


def test_a_batch_is_given_up_after_its_time(lake: Lake) -> None:
    table = Faulty(lake.table(NAME), iter([Unavailable("away")]))
    with Producer(table, batch_rows=10, max_age_s=60, give_up_s=0.02) as producer:
        producer.insert_many({"n": n} for n in range(20))
        until(lambda: producer.failed == 10)
    assert producer.sent == 10
    assert numbers(lake) == list(range(10, 20))


def test_the_end_of_the_connection_sends_what_waits(settings: Settings) -> None:
    with Lake(settings.warehouse, settings=settings) as lake:
        lake.create_table(NAME, Reading)
        producer = lake.producer(NAME, max_age_s=60)
        producer.insert({"n": 1})
    assert producer.sent == 1
    with Lake(settings.warehouse, settings=settings) as lake:
        assert numbers(lake) == [1]


def test_the_end_of_the_process_sends_what_waits(lake: Lake, settings: Settings) -> None:
    program = f"""
import crannog
lake = crannog.connect({settings.warehouse!r})
producer = crannog.Producer(lake.table({NAME!r}), max_age_s=60)
for n in range(5):
    producer.insert({{"n": n}})
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert numbers(lake) == list(range(5))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_after_a_fork_the_child_sends_its_own_rows_and_none_of_the_parents(lake: Lake, tmp_path: Path) -> None:
    producer = lake.producer(NAME, batch_rows=50, max_age_s=60)
    busy = lake.producer(NAME, batch_rows=1, max_age_s=0)  # a fork may come in the middle of a write
    producer.insert_many({"n": n} for n in range(10))
    stop = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        while not stop.is_set():
            busy.insert({"n": 1_000 + written, "sensor": "busy"})
            written += 1
            time.sleep(0.0005)

    writer = threading.Thread(target=write)
    writer.start()
    children = []
    for number in range(5):
        child = os.fork()
        if not child:
            code = 1
            try:
                mine = (producer.queued, producer.sent)
                producer.insert_many({"n": n, "sensor": f"child {number}"} for n in range(100, 103))
                code = 0 if producer.flush(20) and mine == (0, 0) and (producer.sent, producer.failed) == (3, 0) else 2
            finally:
                os._exit(code)
        children.append(child)
    ends = time.monotonic() + 60
    codes = []
    for child in children:
        while (waited := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < ends:
            time.sleep(0.01)
        codes.append(os.waitstatus_to_exitcode(waited[1]) if waited[0] else "hangs")
        if not waited[0]:
            os.kill(child, 9)
            os.waitpid(child, 0)
    stop.set()
    writer.join()
    assert codes == [0] * 5
    assert producer.flush()
    assert busy.flush()
    assert (producer.sent, busy.sent) == (10, written)
    rows = lake.table(NAME).to_arrow().to_pylist()
    assert [row["n"] for row in rows if row["sensor"] is None] == list(range(10))
    assert [row["n"] for row in rows if row["sensor"] == "busy"] == [1_000 + n for n in range(written)]
    for number in range(5):
        assert [row["n"] for row in rows if row["sensor"] == f"child {number}"] == [100, 101, 102]


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_rows": 0},
        {"queue_rows": 1.5},
        {"max_age_s": -1},
        {"when_full": "explode"},
        {"give_up_s": "x"},
        {"block_s": None},
    ],
)
def test_wrong_options_are_named(lake: Lake, wrong: dict[str, Any]) -> None:
    with pytest.raises(CallerError, match=next(iter(wrong))):
        lake.producer(NAME, **wrong)


def test_what_may_have_been_kept_is_never_split() -> None:
    assert next_step(BadRows("x"), 2, unsure=False) is Step.SPLIT
    assert next_step(BadRows("x"), 1, unsure=False) is Step.FAIL
    assert next_step(crannog.TooLarge("x"), 2, unsure=False) is Step.SPLIT
    assert next_step(crannog.TooLarge("x"), 2, unsure=True) is Step.FAIL
    assert next_step(Overloaded("x"), 2, unsure=False) is Step.SPLIT
    assert next_step(Overloaded("x"), 2, unsure=True) is Step.AGAIN
    assert next_step(Overloaded("x", retry_after_s=1), 2, unsure=False) is Step.AGAIN
    assert next_step(crannog.TimedOut("x"), 2, unsure=False) is Step.AGAIN
    assert next_step(crannog.Corrupted("x"), 2, unsure=False) is Step.FAIL
    assert next_step(RuntimeError("x"), 2, unsure=False) is Step.FAIL


# -- through a server ------------------------------------------------------------------------------------------


def test_rows_are_kept_once_and_in_order_although_the_server_is_killed_and_answers_are_lost(tmp_path: Path) -> None:
    port = free_port()
    running = Server(tmp_path / "warehouse", port=port)
    try:
        with FaultyProxy(running.url) as proxy, crannog.connect(proxy.url) as lake:
            table = lake.create_table(NAME, Reading)
            table.append([])  # so that the columns are known when nobody answers
            producer = Producer(table, Reading, batch_rows=20, max_age_s=0.01, queue_rows=100_000)
            for n in range(600):
                producer.insert({"n": n})
                if n % 60 == 0:
                    proxy.lose = 1
                    time.sleep(0.01)
                if n == 250:
                    running.kill()
                if n == 500:
                    running = Server(tmp_path / "warehouse", port=port)
            assert producer.flush(120)
            assert (producer.sent, producer.failed, producer.failures) == (600, 0, [])
            producer.close()
            proxy.lose = 0
            assert proxy.lost
            assert numbers(lake) == list(range(600))
    finally:
        running.kill()


def test_closing_while_no_server_answers_reports_everything() -> None:
    with crannog.connect(f"http://127.0.0.1:{free_port()}") as lake:
        from crannog.api.table import Table
        from crannog.names import TableName

        producer = Producer(Table(lake._transport, TableName.parse(NAME)), batch_rows=10, max_age_s=0)  # type: ignore[union-attr]
        producer.insert_many({"n": n} for n in range(25))
        producer.close(timeout=0.5)
    assert (producer.sent, producer.queued, producer.failed) == (0, 0, 25)
    assert all(isinstance(failure.error, Unavailable) for failure in producer.failures)
