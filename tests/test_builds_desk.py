"""The desk of a Delta log: processes share a commit, and whoever stands still or dies at it holds up nobody."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from build_samples import partition, request
from crannog.builds import BuildRequestStatus, PartitionStatus, open_log
from crannog.builds.delta_log import DeltaLog
from crannog.builds.desk import Desk
from crannog.builds.slips import Append, Wish, answer_of, calls_of, slip_of, take_answer
from crannog.errors import Conflict, Refused

B, P = BuildRequestStatus, PartitionStatus


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DeltaLog]:
    with open_log(f"delta://{tmp_path}/warehouse") as opened:
        assert isinstance(opened, DeltaLog)
        yield opened


@pytest.fixture
def other_desk(log: DeltaLog) -> Iterator[Desk]:
    """The desk as another process has it."""
    desk = Desk(folder_of(log))
    yield desk
    with suppress(OSError):
        desk.close()


def folder_of(log: DeltaLog) -> Path:
    path = log._follower.model.path
    assert path is not None
    return path.with_suffix(".desk")


def wish(*events: object, check_states: bool = False) -> Append:
    return Append(Wish(list(events), check_states))  # type: ignore[arg-type]


def test_who_has_just_had_the_turn_has_it_before_the_others(log: DeltaLog, other_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crannog.builds.desk._MOMENT_NS", 10**12)
    log.append_event(request("b", B.RECEIVED))
    assert not other_desk.take_turn(1)
    assert log.append_event(request("b", B.PLANNING)) == 2
    monkeypatch.setattr("crannog.builds.desk._MOMENT_NS", 0)
    assert other_desk.take_turn(1)
    other_desk.end_turn()


def test_a_slip_is_committed_with_the_events_of_whoever_has_the_turn(log: DeltaLog, other_desk: Desk) -> None:
    left = [wish(partition("b", "p", P.BUILDING)), wish(partition("b", "q", P.BUILDING), partition("b", "r", P.BUILDING))]
    name = other_desk.leave(slip_of(left))
    before = log.table.log.latest()[1].end
    assert log.append_event(request("b", B.RECEIVED)) == 1
    assert log.table.log.latest()[1].end == before + 1
    answer = other_desk.answer_to(name)
    assert answer is not None
    take_answer(left, answer)
    assert [call.result for call in left] == [[2], [3, 4]]
    assert [event.event_id for event in log.all_events()] == ["b:RECEIVED", "b:p:BUILDING", "b:q:BUILDING", "b:r:BUILDING"]


def test_a_slip_has_its_own_errors_and_spoils_nobodys_append(log: DeltaLog, other_desk: Desk) -> None:
    log.append_event(request("b", B.COMPLETED))
    other = partition("b", "p", P.BUILDING)
    log.append_event(other)
    left = [
        wish(partition("b", "p", P.BUILDING, at=5)),  # the same id with other content
        wish(request("b", B.EXECUTING), check_states=True),
        wish(partition("b", "x", P.BUILDING)),
    ]
    name = other_desk.leave(slip_of(left))
    assert log.append_event(other) == 2
    answer = other_desk.answer_to(name)
    assert answer is not None
    take_answer(left, answer)
    assert [type(call.error) for call in left] == [Conflict, Refused, type(None)]
    assert left[2].result == [3]


def test_who_finds_the_turn_taken_is_answered_by_whoever_has_it(log: DeltaLog, tmp_path: Path) -> None:
    """Two logs in one process take turns as two processes do: a lock belongs to the file that was opened."""
    with open_log(f"delta://{tmp_path}/warehouse") as second:
        results: list[int] = []
        threads = [
            threading.Thread(target=lambda one=one, n=n: results.append(one.append_event(partition(f"b{n}", f"p{n}", P.BUILDING))))
            for n in range(40)
            for one in (log, second)[n % 2 : n % 2 + 1]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == list(range(1, 41))
        assert list(second.all_events()) == list(log.all_events())


def test_a_turn_that_never_ends_holds_nobody_up(log: DeltaLog, other_desk: Desk) -> None:
    assert other_desk.take_turn(1)
    began = time.monotonic()
    assert log.append_event(request("b", B.RECEIVED)) == 1
    assert log.append_events([partition("b", f"p{n}", P.BUILDING) for n in range(300)])[-1] == 301
    assert time.monotonic() - began < 30
    other_desk.end_turn()


def test_slips_that_nobody_waits_for_are_thrown_away(log: DeltaLog, other_desk: Desk) -> None:
    old = other_desk.leave(slip_of([wish(partition("old", "p", P.BUILDING))]))
    hour_ago = time.time() - 3600
    os.utime(folder_of(log) / f"{old}.call", (hour_ago, hour_ago))
    strange = other_desk.leave(b'{"format": 99}')
    assert log.append_event(request("b", B.RECEIVED)) == 1
    assert log.head() == 1
    assert not (folder_of(log) / f"{old}.call").exists()
    assert other_desk.answer_to(strange) is None
    other_desk.clear(strange)
    other_desk.close()
    assert sorted(file.name for file in folder_of(log).iterdir()) == ["next", "turn"]


def test_the_bell_of_a_process_that_was_killed_is_taken_away(log: DeltaLog, other_desk: Desk) -> None:
    dead, alive = folder_of(log) / "dead.bell", other_desk.leave(b"{}")
    os.mkfifo(dead)
    hour_ago = time.time() - 3600
    os.utime(dead, (hour_ago, hour_ago))
    log.append_event(request("b", B.RECEIVED))
    assert not dead.exists()
    other_desk.clear(alive)
    other_desk.ring("nobody")
    began = time.monotonic()
    other_desk.ring(alive.partition("-")[0])
    other_desk.wait(20)
    assert time.monotonic() - began < 10


def test_slips_and_answers_say_exactly_what_was_meant() -> None:
    calls = [wish(request("b", B.RECEIVED, "ü/p"), check_states=True), wish(partition("b", "p", P.BUILDING))]
    read = calls_of(slip_of(calls))
    assert [call.value for call in read] == [call.value for call in calls]
    read[0].result, read[1].error = [7], Conflict("kept already")
    take_answer(calls, answer_of(read))
    assert calls[0].result == [7]
    assert isinstance(calls[1].error, Conflict)
    assert str(calls[1].error) == "kept already"
    assert calls_of(b"no slip") == []
