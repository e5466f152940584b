"""Processes of one machine share commits, and one that stops or dies while it commits holds up no other."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from build_samples import partition, request
from crannog.builds import BuildRequestStatus, PartitionStatus, open_log
from crannog.builds.stores.delta_log import DeltaLog
from crannog.builds.stores.event_table import Append, AppendMessages
from crannog.embedded import EmbeddedLake as Lake
from crannog.embedded import EmbeddedTable as Table
from crannog.engine.commit import handover, pipes
from crannog.engine.commit.group import Call
from crannog.engine.commit.handover import Turn
from crannog.engine.commit.pipes import Pipes
from crannog.engine.commit.writer import ChangeMessages
from crannog.engine.open_table import OpenTable
from crannog.errors import Conflict, Overloaded, Refused
from crannog.protocol.changelog import Committed
from crannog.protocol.staged_files import Change
from crannog.settings import Settings

B, P = BuildRequestStatus, PartitionStatus
NAME = "shop.eu.orders"
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def two(tmp_path: Path, settings: Settings) -> Iterator[tuple[Table, Table]]:
    """One table, opened twice: a lock belongs to the file that was opened, so they take turns as two processes do."""
    with Lake(str(tmp_path / "warehouse"), settings=settings) as one, Lake(str(tmp_path / "warehouse"), settings=settings) as two:  # fmt: skip
        one.create_table(NAME, SCHEMA)
        yield one.table(NAME), two.table(NAME)


def engine_of(table: Table) -> OpenTable:
    return table._lake.operations.tables.open(table._name)


def folder_of(table: Table | DeltaLog) -> Path:
    folder = (table.table if isinstance(table, DeltaLog) else engine_of(table)).handover_folder
    assert folder is not None
    return folder


@pytest.fixture
def holder(two: tuple[Table, Table]) -> Iterator[Turn]:
    """The turn, taken by a process that does nothing with it."""
    two[0].append([{"id": 0, "name": "first"}])
    held = Turn(folder_of(two[0]) / "turn")
    assert take(held)
    yield held
    with suppress(OSError):
        held.end()
    held.close()


def take(turn: Turn) -> bool:
    """Take the turn once the moment of its last holder is over."""
    for _ in range(1_000):
        if turn.take(1):
            return True
        time.sleep(0.001)
    return False


def in_threads(*acts: Callable[[], object]) -> None:
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def ids_of(table: Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


# -- tables ------------------------------------------------------------------------------------------------------------


def test_what_two_processes_append_at_once_is_kept_once_each(two: tuple[Table, Table]) -> None:
    receipts: list[Any] = []

    def write(table: Table, first: int) -> None:
        for number in range(first, first + 40):
            receipts.append(table.append([{"id": number, "name": "x"}]))

    in_threads(*(lambda n=n: write(two[n % 2], n * 40) for n in range(6)))
    assert len(receipts) == 240
    assert not any(receipt.duplicate for receipt in receipts)
    assert {receipt.sequence for receipt in receipts} == set(range(1, max(r.sequence for r in receipts) + 1))
    assert ids_of(two[0]) == ids_of(two[1]) == list(range(240))


def test_a_request_is_committed_with_the_changes_of_the_process_that_has_the_turn(two: tuple[Table, Table]) -> None:
    first, second = two
    first.append([{"id": 0, "name": "first"}])
    name = os.urandom(16)
    sender = Pipes(folder_of(first), name, oldest_s=60)
    announced = Turn(folder_of(first) / "turn")
    announced.announce_pipes()
    messages = ChangeMessages(engine_of(second).log)
    calls = [call_of(second, 1), call_of(second, 2)]
    assert sender.send(messages.encode(calls) or b"")
    assert first.append([{"id": 3, "name": "mine"}]).sequence == 2
    answer = sender.answer()
    assert answer == b"[[[2, false], null], [[2, false], null]]"
    assert ids_of(second) == [0, 1, 2, 3]
    sender.close()
    announced.close()


def call_of(table: Table, number: int, *, batch_id: str = "") -> Call[Change, Committed]:
    rows = pa.table({"id": [number], "name": ["handed over"]}, schema=SCHEMA)
    return Call(Change(batch_id or f"batch-{number}", "append", rows, 100, at_us=1))


def test_a_change_that_was_handed_over_and_never_answered_is_no_duplicate_of_itself(two: tuple[Table, Table]) -> None:
    """The process that committed it died before it answered: the sender commits it again and finds it kept."""
    first, second = two
    call = call_of(second, 1, batch_id="given")
    message = ChangeMessages(engine_of(second).log).encode([call])
    assert message is not None
    [decoded] = ChangeMessages(engine_of(first).log).decode(message)
    assert engine_of(first).writer.write(decoded) == Committed(1, duplicate=False)
    assert engine_of(second).writer.write(call.value) == Committed(1, duplicate=False)
    assert second.append([{"id": 1, "name": "again"}], batch_id="given").duplicate
    assert ids_of(first) == [1]


def test_refusals_reach_the_sender(two: tuple[Table, Table], holder: Turn, settings: Settings) -> None:
    """The process that has the turn has reached its limit of staged rows."""
    first, second = two
    engine_of(first).writer._limits = type(engine_of(first).writer._limits)(1_000, 1_000, 2, 10**9)
    refused: list[Overloaded] = []

    def send() -> None:
        with pytest.raises(Overloaded, match="staged rows") as error:
            second.append([{"id": 1, "name": "x"}, {"id": 2, "name": "x"}])
        refused.append(error.value)

    def lead() -> None:
        while not (folder_of(first) / "requests").exists():
            time.sleep(0.001)
        holder.end()
        first.append([{"id": 3, "name": "x"}])

    engine_of(second).writer._limits = engine_of(first).writer._limits
    in_threads(send, lead)
    assert refused[0].retry_after_s == 5.0
    assert ids_of(first) == [0, 3]


def test_a_turn_that_never_ends_holds_no_other_process_up(
    two: tuple[Table, Table], holder: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "_WITHOUT_TURN_S", 60.0)
    began = time.monotonic()
    assert two[1].append([{"id": 1, "name": "x"}]).sequence == 2
    assert time.monotonic() - began > handover.PATIENCE_S
    began = time.monotonic()
    two[1].append([{"id": number, "name": "x" * 100} for number in range(2, 1_000)])
    assert time.monotonic() - began < handover.PATIENCE_S
    holder.end()
    two[0].append([{"id": 1_000, "name": "x"}])
    assert ids_of(two[0]) == list(range(1_001)), "what was sent in vain is not committed a second time"


def test_what_is_too_long_for_a_request_waits_for_the_turn(two: tuple[Table, Table], holder: Turn) -> None:
    threading.Timer(0.3, holder.end).start()
    began = time.monotonic()
    assert two[1].append([{"id": 1, "name": "x" * 100_000}]).sequence == 2
    assert 0.2 < time.monotonic() - began < handover.PATIENCE_S


def test_the_last_holder_may_have_the_turn_again_before_others(
    two: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "_SHORT_NS", 10**11)
    monkeypatch.setattr(handover, "_LONG_NS", 10**12)
    two[0].append([{"id": 1, "name": "x"}])
    other = Turn(folder_of(two[0]) / "turn")
    assert not other.take(1)
    assert two[0].append([{"id": 2, "name": "x"}]).sequence == 2
    other.claim()
    assert other.take(1, claimed=True)
    other.end()
    other.close()


def test_a_time_from_before_the_machine_was_restarted_counts_for_nothing(two: tuple[Table, Table]) -> None:
    two[0].append([{"id": 1, "name": "x"}])
    other = Turn(folder_of(two[0]) / "turn")
    (folder_of(two[0]) / "turn").write_bytes(handover._FILE.pack(10**9, 2**62, b"?" * 16, 2**62, b"!" * 16, 0))
    assert other.allowed_s() <= 40
    assert other.take(1)
    other.end()
    other.close()


def test_no_column_is_lost_between_processes_that_know_different_schemas(two: tuple[Table, Table]) -> None:
    first, second = two
    first.append([{"id": 0, "name": "x"}])
    old = ChangeMessages(engine_of(first).log)
    written_before = old.encode([call_of(first, 9)])
    second.evolve(SCHEMA.append(pa.field("more", pa.string())))
    rows = pa.table({"id": [1], "name": ["x"], "more": ["new"]})
    call: Call[Change, Committed] = Call(Change("batch", "append", rows, 100, at_us=1))
    message = ChangeMessages(engine_of(second).log).encode([call])
    assert message is not None
    assert written_before is not None
    [decoded] = old.decode(message)
    assert decoded.rows.column_names == ["id", "name", "more"]
    assert engine_of(first).writer.write(decoded).sequence == 2
    assert old.decode(written_before) == [], "left to its sender, which will see the new schema"
    assert sorted(second.to_arrow()["more"].to_pylist(), key=str) == [None, "new"]


@pytest.mark.parametrize(
    "message", [b"", b"no message", b"[]", b'["changes 99", "", []]\n', b'["changes 1", "", [1]]\n']
)
def test_what_is_no_message_holds_no_changes(two: tuple[Table, Table], message: bytes) -> None:
    assert ChangeMessages(engine_of(two[0]).log).decode(message) == []
    assert AppendMessages().decode(message) == []


# -- what a system may not have ----------------------------------------------------------------------------------------


def refuse(number: int) -> Callable[..., Any]:
    def act(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return act


def test_without_locks_processes_commit_as_they_come(two: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", refuse(errno.ENOTSUP))
    assert [two[n % 2].append([{"id": n, "name": "x"}]).sequence for n in range(6)] == [1, 2, 3, 4, 5, 6]


def test_without_pipes_processes_take_turns(two: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "mkfifo", refuse(errno.EPERM))

    def write(table: Table, first: int) -> None:
        for number in range(first, first + 10):
            table.append([{"id": number, "name": "x"}])

    in_threads(*(lambda n=n: write(two[n % 2], n * 10) for n in range(4)))
    assert ids_of(two[0]) == list(range(40))


def test_without_room_for_the_turn_file_processes_commit_as_they_come(
    two: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", refuse(errno.ENOSPC))
    assert two[0].append([{"id": 0, "name": "x"}]).sequence == 1
    assert two[1].append([{"id": 1, "name": "x"}]).sequence == 2


def test_what_only_linux_has_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("posix_fallocate", "posix_fadvise", "fdatasync", "sched_getaffinity"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.delattr(fcntl, "F_SETPIPE_SZ", raising=False)
    monkeypatch.setattr("crannog.storage.local.sys.platform", "darwin")
    with open_log(f"delta://{tmp_path}/warehouse") as log, open_log(f"delta://{tmp_path}/warehouse") as other:
        acts = [
            lambda n=n, one=one: one.append_event(partition(f"b{n}", "p", P.BUILDING))
            for n in range(30)
            for one in ((log, other)[n % 2],)
        ]
        in_threads(*acts)
        assert [event.index for event in log.all_events()] == list(range(1, 31))


def test_a_forked_process_does_without_the_turn_of_the_other(two: tuple[Table, Table]) -> None:
    table = two[0]
    table.append([{"id": 0, "name": "x"}])
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os._exit(table.append([{"id": 1, "name": "x"}]).sequence)
        os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert table.append([{"id": 2, "name": "x"}]).sequence == 3
    assert ids_of(table) == [0, 1, 2]


# -- pipes -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[Pipes, Pipes]]:
    one, other = Pipes(tmp_path, b"1" * 16, oldest_s=60), Pipes(tmp_path, b"2" * 16, oldest_s=60)
    yield one, other
    one.close()
    other.close()
    assert [path.name for path in tmp_path.iterdir()] == ["requests"]


def test_requests_and_answers_say_what_was_written(ends: tuple[Pipes, Pipes]) -> None:
    one, other = ends
    content = bytes(range(256)) * 50
    assert one.send(content)
    assert one.answer() is None
    [found] = other.requests()
    assert found.content == content
    other.give(found, b"done")
    one.wait_for_answer(10)
    assert one.answer() == b"done"
    assert one.answer() is None
    assert other.requests() == []


def test_the_answer_to_a_request_that_was_given_up_is_dropped(ends: tuple[Pipes, Pipes]) -> None:
    one, other = ends
    assert one.send(b"first")
    [first] = other.requests()
    assert one.send(b"second")
    [second] = other.requests()
    other.give(first, b"to the first")
    other.give(second, b"to the second")
    assert one.answer() == b"to the second"


def test_requests_that_are_too_long_too_old_or_ones_own_are_not_read(
    ends: tuple[Pipes, Pipes], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = ends
    assert not one.send(b"x" * 20_000)
    assert one.send(b"own")
    assert one.requests() == []
    monkeypatch.setattr(other, "_oldest_ns", 0)
    assert one.send(b"old")
    assert other.requests() == []
    monkeypatch.setattr(other, "_oldest_ns", 10**12)
    monkeypatch.setattr(pipes, "_FORMAT", 99)
    assert one.send(b"of another version")
    monkeypatch.undo()
    assert other.requests() == []


def test_there_is_room_for_so_many_requests_and_no_more(ends: tuple[Pipes, Pipes]) -> None:
    one, other = ends
    assert False in [one.send(b"x" * 15_000) for _ in range(100)]
    assert all(found.content == b"x" * 15_000 for found in other.requests())
    assert one.send(b"room again")


def test_the_pipe_of_a_process_that_was_killed_is_removed(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from crannog.engine.commit.pipes import Pipes\n"
        "Pipes(Path(sys.argv[1]), b'3' * 16, oldest_s=60).send(b'x'); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob("*.answers"))) == 1
    one = Pipes(tmp_path, b"1" * 16, oldest_s=60)
    assert one.send(b"x")
    assert [path.stem for path in tmp_path.glob("*.answers")] == [(b"1" * 16).hex()]
    one.close()


# -- the build log -----------------------------------------------------------------------------------------------------


def test_two_openings_of_a_build_log_give_every_event_one_index(tmp_path: Path) -> None:
    with open_log(f"delta://{tmp_path}/warehouse") as log, open_log(f"delta://{tmp_path}/warehouse") as second:
        results: list[int] = []
        in_threads(
            *(
                lambda one=one, n=n: results.append(one.append_event(partition(f"b{n}", f"p{n}", P.BUILDING)))
                for n in range(40)
                for one in ((log, second)[n % 2],)
            )
        )
        assert sorted(results) == list(range(1, 41))
        assert list(second.all_events()) == list(log.all_events())


def test_a_request_to_a_build_log_has_its_own_errors_and_spoils_no_other(tmp_path: Path) -> None:
    with open_log(f"delta://{tmp_path}/warehouse") as log:
        assert isinstance(log, DeltaLog)
        log.append_event(request("b", B.COMPLETED))
        other = partition("b", "p", P.BUILDING)
        log.append_event(other)
        sender = Pipes(folder_of(log), b"1" * 16, oldest_s=60)
        announced = Turn(folder_of(log) / "turn")
        announced.announce_pipes()
        calls: list[Call[Append, list[int]]] = [
            Call(Append([partition("b", "p", P.BUILDING, at=5)], False)),  # the same id with other content
            Call(Append([request("b", B.EXECUTING)], True)),
            Call(Append([partition("b", "x", P.BUILDING), other], False)),
        ]
        assert sender.send(AppendMessages().encode(calls) or b"")
        assert log.append_event(other) == 2
        answer = sender.answer()
        assert answer is not None
        log._appends._handover._take_answer(calls, answer)
        assert [type(call.error) for call in calls] == [Conflict, Refused, type(None)]
        assert calls[2].result == [3, 2]
        sender.close()
        announced.close()


def test_messages_say_exactly_which_events_were_meant() -> None:
    calls: list[Call[Append, list[int]]] = [
        Call(Append([request("b", B.RECEIVED, "ü/p")], True)),
        Call(Append([partition("b", "p", P.BUILDING), request("c", B.PLANNING)], False)),
    ]
    message = AppendMessages().encode(calls)
    assert message is not None
    assert AppendMessages().decode(message) == [call.value for call in calls]
    assert AppendMessages().encode([Call(Append([request("b", B.RECEIVED)] * 201, False))]) is None
