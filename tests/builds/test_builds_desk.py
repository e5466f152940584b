"""The desk of a Delta log: processes share a commit, and whoever stands still or dies at it holds up nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from build_samples import one_of_each, partition, request
from crannog.builds import BuildRequestStatus, PartitionStatus, open_log
from crannog.builds.stores.delta_log import DeltaLog
from crannog.builds.stores.handover_messages import Append, Wish, answer_of, calls_of, slip_of, take_answer
from crannog.builds.stores.process_handover import Desk
from crannog.builds.stores.shared_mailbox import Tray
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
    return Append(Wish(list(events), check_states))


def test_who_has_just_had_the_turn_has_it_before_the_others(
    log: DeltaLog, other_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crannog.builds.stores.process_handover._MOMENT_NS", 10**11)
    monkeypatch.setattr("crannog.builds.stores.process_handover._LONG_MOMENT_NS", 10**12)
    log.append_event(request("b", B.RECEIVED))
    assert not other_desk.take_turn(1)
    assert log.append_event(request("b", B.PLANNING)) == 2
    monkeypatch.setattr("crannog.builds.stores.process_handover._MOMENT_NS", 0)
    assert log.append_event(request("b", B.EXECUTING)) == 3
    assert other_desk.take_turn(1)
    other_desk.end_turn()


def test_a_moment_that_was_written_down_before_the_machine_started_anew_counts_for_nothing(
    log: DeltaLog, other_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crannog.builds.stores.process_handover._MOMENT_NS", 10**15)
    log.append_event(request("b", B.RECEIVED))
    assert other_desk.take_turn(1)
    other_desk.end_turn()


def test_a_slip_is_committed_with_the_events_of_whoever_has_the_turn(log: DeltaLog, other_desk: Desk) -> None:
    left = [
        wish(partition("b", "p", P.BUILDING)),
        wish(partition("b", "q", P.BUILDING), partition("b", "r", P.BUILDING)),
    ]
    assert other_desk.tray.leave(slip_of(left))
    before = log.table.log.last_seen()[1].end
    assert other_desk.tray.answer() is None
    assert log.append_event(request("b", B.RECEIVED)) == 1
    assert log.table.log.last_seen()[1].end == before + 1
    answer = other_desk.tray.answer()
    assert answer is not None
    take_answer(left, answer)
    assert [call.result for call in left] == [[2], [3, 4]]
    assert [event.event_id for event in log.all_events()] == [
        "b:RECEIVED",
        "b:p:BUILDING",
        "b:q:BUILDING",
        "b:r:BUILDING",
    ]


def test_a_slip_has_its_own_errors_and_spoils_nobodys_append(log: DeltaLog, other_desk: Desk) -> None:
    log.append_event(request("b", B.COMPLETED))
    other = partition("b", "p", P.BUILDING)
    log.append_event(other)
    left = [
        wish(partition("b", "p", P.BUILDING, at=5)),  # the same id with other content
        wish(request("b", B.EXECUTING), check_states=True),
        wish(partition("b", "x", P.BUILDING)),
    ]
    assert other_desk.tray.leave(slip_of(left))
    assert log.append_event(other) == 2
    answer = other_desk.tray.answer()
    assert answer is not None
    take_answer(left, answer)
    assert [type(call.error) for call in left] == [Conflict, Refused, type(None)]
    assert left[2].result == [3]


def test_who_finds_the_turn_taken_is_answered_by_whoever_has_it(log: DeltaLog, tmp_path: Path) -> None:
    """Two logs in one process take turns as two processes do: a lock belongs to the file that was opened."""
    with open_log(f"delta://{tmp_path}/warehouse") as second:
        results: list[int] = []
        threads = [
            threading.Thread(
                target=lambda one=one, n=n: results.append(one.append_event(partition(f"b{n}", f"p{n}", P.BUILDING)))
            )
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


def test_a_slip_is_answered_once_and_one_that_was_withdrawn_not_at_all(log: DeltaLog, other_desk: Desk) -> None:
    tray = other_desk.tray
    assert tray.leave(slip_of([wish(partition("b", "p", P.BUILDING))]))
    tray.withdraw()
    assert b"BUILDING" not in tray._path.read_bytes()  # what is wiped from the log must not stay here
    assert log.append_event(request("b", B.RECEIVED)) == 1
    assert tray.leave(slip_of([wish(partition("b", "q", P.BUILDING))]))
    assert log.append_event(request("b", B.PLANNING)) == 2
    assert log.append_event(request("b", B.EXECUTING)) == 4
    assert [event.event_id for event in log.all_events()] == ["b:RECEIVED", "b:PLANNING", "b:q:BUILDING", "b:EXECUTING"]


def test_a_slip_of_another_version_is_left_to_whoever_wrote_it(log: DeltaLog, other_desk: Desk) -> None:
    assert other_desk.tray.leave(b'{"format": 99}')
    assert log.append_event(request("b", B.RECEIVED)) == 1
    assert other_desk.tray.answer() is None
    other_desk.close()
    log.append_event(request("b", B.PLANNING))
    assert sorted(file.name for file in folder_of(log).iterdir()) == ["next", "turn"]


def test_a_slip_that_is_just_being_written_is_not_read(other_desk: Desk) -> None:
    tray = other_desk.tray
    assert tray.leave(b"whole")
    looking = Tray(tray._path, own=False)
    assert looking.slip() == b"whole"
    tray._memory[20] ^= 1
    assert looking.slip() is None
    looking.close()


def test_what_is_too_long_for_a_tray_waits_for_the_turn(log: DeltaLog, other_desk: Desk) -> None:
    assert not other_desk.tray.leave(b"x" * 2**17)
    long = request("b", B.RECEIVED, *(f"p{n}" * 100 for n in range(1_000)))
    assert other_desk.take_turn(1)
    threading.Timer(0.3, other_desk.end_turn).start()
    began = time.monotonic()
    assert log.append_event(long) == 1
    assert 0.1 < time.monotonic() - began < 1.9


def test_the_tray_of_a_process_that_was_killed_is_taken_away_with_its_slip(log: DeltaLog, tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from crannog.builds.stores.process_handover import Desk\n"
        "desk = Desk(Path(sys.argv[1])); desk.tray.leave(sys.stdin.buffer.read()); os.kill(os.getpid(), 9)"
    )
    slip = slip_of([wish(partition("dead", "p", P.BUILDING))])
    subprocess.run([sys.executable, "-c", code, str(folder_of(log))], input=slip, check=False)
    assert len(list(folder_of(log).glob("*.tray"))) == 1
    assert log.append_event(request("b", B.RECEIVED)) == 1
    assert [event.build_request_id for event in log.all_events()] == ["b"]
    assert sorted(file.name for file in folder_of(log).iterdir()) == ["next", "turn"]


def test_a_bell_wakes_who_waits(other_desk: Desk) -> None:
    tray = other_desk.tray
    looking = Tray(tray._path, own=False)
    began = time.monotonic()
    looking.ring()
    tray.wait(20)
    assert time.monotonic() - began < 10
    tray.close()
    looking.ring()  # nobody is there any more
    looking.close()
    other_desk._tray = None


def test_slips_and_answers_say_exactly_what_was_meant() -> None:
    calls = [wish(request("b", B.RECEIVED, "ü/p"), check_states=True), wish(*one_of_each())]
    read = calls_of(slip_of(calls))
    assert [call.value for call in read] == [call.value for call in calls]
    assert [event.as_json() for event in read[1].value.events] == [event.as_json() for event in one_of_each()]
    read[0].result, read[1].error = [7], Conflict("kept already")
    take_answer(calls, answer_of(read))
    assert calls[0].result == [7]
    assert isinstance(calls[1].error, Conflict)
    assert str(calls[1].error) == "kept already"


@pytest.mark.parametrize(
    "slip",
    [
        b"no slip",
        b"",
        b"[]",
        b"{}",
        b"2",
        b"[2]",
        b"[2, [[false]]]",
        b'{"format": 1, "calls": []}',
        b'[2, [[false, [["e", 1, "b", 99, {}]]]]]',
    ],
)
def test_what_is_no_slip_holds_no_calls(slip: bytes) -> None:
    assert calls_of(slip) == []


def test_a_tray_without_a_slip_is_taken_away_too(log: DeltaLog) -> None:
    code = "import os, sys; from pathlib import Path; from crannog.builds.stores.process_handover import Desk; Desk(Path(sys.argv[1])).tray; os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, str(folder_of(log))], check=False)
    assert list(folder_of(log).glob("*.tray"))
    log.append_event(request("b", B.RECEIVED))
    assert sorted(file.name for file in folder_of(log).iterdir()) == ["next", "turn"]


def test_a_forked_process_does_without_the_desk_of_the_other(log: DeltaLog) -> None:
    """It has the same tray: an answer to the one would be taken for an answer to the other."""
    log._appends._desk.tray.leave(b"what the parent wants")
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os._exit(log.append_event(request("forked", B.RECEIVED)))
        os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    looking = Tray(log._appends._desk.tray._path, own=False)
    assert looking.slip() == b"what the parent wants"
    looking.close()
    assert log.append_event(request("b", B.RECEIVED)) == 2
    assert [event.build_request_id for event in log.all_events()] == ["forked", "b"]


def test_what_an_earlier_version_wrote_about_the_turn_holds_nobody_up_for_long(log: DeltaLog, other_desk: Desk) -> None:
    (folder_of(log) / "turn").write_bytes(b"           1" + b"9" * 52)
    assert not other_desk.is_stuck(time.monotonic())
    assert other_desk.is_stuck(time.monotonic() - 60)
    assert log.append_event(request("b", B.RECEIVED)) == 1


def test_a_full_disk_has_no_tray_and_the_turn_is_waited_for(
    log: DeltaLog, other_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hole in a file that is in memory would kill the process: all of a tray has its place from the beginning."""
    assert other_desk.tray._path.stat().st_blocks * 512 >= 2**17

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert other_desk.take_turn(1)
    threading.Timer(0.3, other_desk.end_turn).start()
    assert log.append_event(request("b", B.RECEIVED)) == 1
    assert [file.name for file in folder_of(log).glob("*.tray")] == [other_desk.tray._path.name]
