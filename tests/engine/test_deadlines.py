"""One thread watches all deadlines: each is called once, when it is due, and never after it was removed."""

from __future__ import annotations

import threading
import time

import pytest

from crannog.engine.sql import running_queries as module
from crannog.engine.sql.running_queries import Deadlines, RunningQueries
from crannog.errors import Overloaded
from crannog.settings import Settings

WAIT_S = 20.0


def watchers() -> int:
    return sum(thread.name == "crannog-deadlines" for thread in threading.enumerate())


def test_an_earlier_deadline_overtakes_one_that_is_waited_for() -> None:
    deadlines, called, done = Deadlines(), [], threading.Event()
    deadlines.add(0.3, lambda: (called.append("later"), done.set()))
    time.sleep(0.02)
    deadlines.add(0.05, lambda: called.append("earlier"))
    assert done.wait(WAIT_S)
    assert called == ["earlier", "later"]


def test_what_was_removed_is_not_called() -> None:
    deadlines, called, done = Deadlines(), [], threading.Event()
    number = deadlines.add(0.05, lambda: called.append("removed"))
    deadlines.remove(number)
    deadlines.remove(number)
    deadlines.add(0.2, done.set)
    assert done.wait(WAIT_S)
    assert called == []


def test_a_thousand_deadlines_need_one_thread_which_ends_when_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE_S", 0.05)
    before = watchers()
    deadlines, left = Deadlines(), threading.Semaphore(0)
    for _ in range(1000):
        deadlines.add(0.05, left.release)
    assert watchers() <= before + 1
    for _ in range(1000):
        assert left.acquire(timeout=WAIT_S)
    ends = time.monotonic() + WAIT_S
    while watchers() > before and time.monotonic() < ends:
        time.sleep(0.02)
    assert watchers() == before
    again = threading.Event()
    deadlines.add(0.01, again.set)
    assert again.wait(WAIT_S)


def test_the_place_of_a_query_that_does_not_end_is_free_after_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE_S", 0.1)
    queries, held, began = RunningQueries(Settings(sql_running=1)), threading.Event(), threading.Semaphore(0)

    def run() -> None:
        with queries.running("same", 0.1):
            began.release()
            held.wait(WAIT_S)

    threads = []
    for count in range(1, 5):
        threads.append(threading.Thread(target=run))
        threads[-1].start()
        assert began.acquire(timeout=WAIT_S)
        ends = time.monotonic() + WAIT_S
        while queries.abandoned < count:
            assert time.monotonic() < ends, "its place was not given back"
            time.sleep(0.02)
    with pytest.raises(Overloaded, match="4 queries that ran into their timeout have not ended"):
        queries._enter(None, None, "")
    held.set()
    for thread in threads:
        thread.join()
    assert queries.abandoned == 0
    with queries.running("same", 10):
        assert queries.ids() == ["same"]
