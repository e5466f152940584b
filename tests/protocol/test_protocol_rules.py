"""One test or more per rule of PROTOCOL.md, each forcing the failure the rule answers.

Two connections to one folder stand for two processes: they share nothing but files. What became of the data is read
behind the code's back wherever that tells more: staged files by pyarrow, the log as JSON, the base by delta-rs.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from crannog.api.arguments import new_batch_id
from crannog.embedded import EmbeddedLake as Lake
from crannog.embedded import EmbeddedTable as Table
from crannog.engine.maintenance.compact import compact
from crannog.engine.maintenance.fold import fold
from crannog.engine.maintenance.vacuum import vacuum
from crannog.errors import BadRows, CrannogError, NotFound, Refused, SnapshotGone, Unavailable, VerificationFailed
from crannog.protocol.changelog import ChangeLog
from crannog.settings import Settings
from crannog.storage import failpoints
from forcing import (
    SCHEMA,
    Behind,
    Fail,
    HoleInListing,
    Killed,
    Lakes,
    Meanwhile,
    Pause,
    Running,
    clean,
    copied,
    fill_block,
    fold_and_clean,
    ids_of,
    opened,
    row,
    rows_of,
    rules,
    settled,
    spoil_files,
    storage_of,
)

pytest_plugins = ["forced"]

NAME = "shop.eu.orders"
STAGE, LOG, LEDGER = "/stage/", "/_delta_log/", "/batches/"


def two(lakes: Lakes, *, key: str | None = None, rows: int = 1, **changes: Any) -> tuple[Table, Table, Behind]:
    """Make a table with rows 1 to `rows`, each a change of its own, open in two processes that have read it."""
    one, other = lakes(**changes), lakes(**changes)
    table = one.create_table(NAME, SCHEMA, key=key)
    for number in range(1, rows + 1):
        table.append([row(number)])
    again = other.table(NAME)
    assert ids_of(again) == list(range(1, rows + 1))
    return table, again, Behind(lakes.root, NAME)


def lake_of(table: Table) -> Lake:
    return table._lake


def agree(expected: list[int], *tables: Table) -> None:
    """Every process shows these ids, each once; and so does the base once everything is folded."""
    for table in tables:
        assert ids_of(table) == expected
    tables[0].fold()
    for table in tables:
        assert ids_of(table) == expected
    behind = Behind(lake_of(tables[0]).operations.warehouse.storage.root, tables[0].name)  # type: ignore[attr-defined]
    assert behind.base_ids() == expected
    assert behind.folded_by_version() == sorted(behind.folded_by_version()), "the folded sequence went back"


def at_phase(patch: pytest.MonkeyPatch, phase: str, act: Callable[[], None]) -> None:
    """Let `act` happen when the named moment is reached, once."""

    def watch(reached: str) -> None:
        if reached == phase:
            patch.setattr(failpoints, "hook", None)
            act()

    patch.setattr(failpoints, "hook", watch)


def die() -> None:
    raise Killed


# --- rules 1 and 2: taking a number -----------------------------------------------------------------------------------


def test_sequences_are_dense_across_processes(lakes: Lakes) -> None:
    one, other, behind = two(lakes)
    for number in range(2, 12):
        (one if number % 2 else other).append([row(number)])
    assert behind.staged_rows() == [(number, 0, number) for number in range(1, 12)]


def test_a_writer_looks_at_the_stage_then_the_head_then_the_ledger(lakes: Lakes, arrow: None) -> None:
    one, _, _ = two(lakes)
    one.fold()
    fresh = lakes()
    table = fresh.table(NAME)
    storage_of(fresh).calls.clear()
    table.append([row(2)])
    calls = storage_of(fresh).calls
    put = next(i for i, (act, path) in enumerate(calls) if act == "put_if_absent" and STAGE in path)
    stage = [i for i, (act, path) in enumerate(calls[:put]) if act == "names" and path.endswith("/stage")]
    ledger = next(i for i, (act, path) in enumerate(calls[:put]) if act == "names" and path.endswith("/batches"))
    heads = [i for i, (act, path) in enumerate(calls[:put]) if act == "exists" and LOG in path]
    assert stage[-1] < ledger
    assert any(stage[-1] < head < ledger for head in heads)


def test_a_number_that_is_taken_is_left_to_its_owner(lakes: Lakes) -> None:
    one, other, behind = two(lakes)
    with rules(lake_of(other), Meanwhile("put_if_absent", STAGE, lambda: one.append([row(2)]))):
        receipt = other.append([row(3)])
    assert (receipt.sequence, receipt.duplicate) == (3, False)
    assert behind.staged_rows() == [(1, 0, 1), (2, 0, 2), (3, 0, 3)]


def test_the_same_batch_in_two_processes_at_the_same_moment_is_kept_once(lakes: Lakes, arrow: None) -> None:
    one, other, behind = two(lakes)
    with rules(lake_of(other), Meanwhile("put_if_absent", STAGE, lambda: one.append([row(2)], batch_id="two"))):
        receipt = other.append([row(2)], batch_id="two")
    assert (receipt.sequence, receipt.duplicate) == (2, True)
    assert behind.staged_rows() == [(1, 0, 1), (2, 0, 2)]
    agree([1, 2], one, other)


def test_the_same_batch_folded_and_cleaned_meanwhile_is_kept_once(lakes: Lakes, arrow: None) -> None:
    one, other, _ = two(lakes)

    def others() -> None:
        one.append([row(2)], batch_id="two")
        fold_and_clean(one)

    with rules(lake_of(other), Meanwhile("put_if_absent", STAGE, others)):
        receipt = other.append([row(2)], batch_id="two")
    assert (receipt.sequence, receipt.duplicate) == (2, True)
    agree([1, 2], one, other)


def test_an_answer_that_is_lost_after_the_put_is_no_second_change(lakes: Lakes, arrow: None) -> None:
    one, other, behind = two(lakes)
    with rules(lake_of(other), Fail("put_if_absent", STAGE, performed=True)):
        receipt = other.append([row(2)])
    assert (receipt.sequence, receipt.duplicate) == (2, False)
    assert behind.staged_rows() == [(1, 0, 1), (2, 0, 2)]
    agree([1, 2], one, other)


def test_a_put_that_failed_keeps_nothing_and_can_be_sent_again(lakes: Lakes, arrow: None) -> None:
    one, other, behind = two(lakes)
    with rules(lake_of(other), Fail("put_if_absent", STAGE)), pytest.raises(Unavailable):
        other.append([row(2)], batch_id="two")
    assert behind.staged_rows() == [(1, 0, 1)]
    assert not other.append([row(2)], batch_id="two").duplicate
    agree([1, 2], one, other)


def test_a_lost_answer_and_no_way_to_look_leaves_it_to_the_batch_id(lakes: Lakes, arrow: None) -> None:
    """The put was performed, but nobody can tell: the caller hears so, and its retry finds the change."""
    one, other, behind = two(lakes)
    lost, blind = Fail("put_if_absent", STAGE, performed=True), Fail("exists", STAGE)
    with rules(lake_of(other), lost, blind), pytest.raises(Unavailable):
        other.append([row(2)], batch_id="two")
    assert lost.fired
    assert blind.fired
    assert other.append([row(2)], batch_id="two").duplicate
    assert behind.staged_rows() == [(1, 0, 1), (2, 0, 2)]
    agree([1, 2], one, other)


def test_a_lost_answer_whose_file_was_folded_and_cleaned_before_the_writer_looked(lakes: Lakes, arrow: None) -> None:
    one, other, _ = two(lakes)
    lost = Fail("put_if_absent", STAGE, performed=True)
    # Whatever it looks at first after the put: the file is gone by then.
    gone = Meanwhile("exists", STAGE, lambda: fold_and_clean(one))
    with rules(lake_of(other), lost, gone):
        try:
            other.append([row(2)], batch_id="two")
        except Unavailable:
            assert other.append([row(2)], batch_id="two").duplicate
    agree([1, 2], one, other)


def test_a_lost_answer_whose_file_was_packed_while_the_writer_made_it_durable(lakes: Lakes, arrow: None) -> None:
    one, other, _ = two(lakes)

    def pack() -> None:
        fill_block(one, 63)
        opened(one).log.pack()

    lost = Fail("put_if_absent", STAGE, performed=True)
    with rules(lake_of(other), lost, Meanwhile("rewrite_synced", STAGE, pack)):
        other.append([row(2)], batch_id="two")
    assert ids_of(other)[:2] == [1, 2]
    assert len(ids_of(other)) == 63
    agree(ids_of(one), one, other)


# --- rule 3: before a change is acknowledged --------------------------------------------------------------------------


def test_a_paused_writer_does_not_reuse_a_number_that_was_folded_and_cleaned(
    lakes: Lakes, arrow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, behind = two(lakes)
    cleaning = lakes(orphan_grace_s=86_400).table(NAME)

    def others() -> None:
        one.append([row(2)])
        fold_and_clean(cleaning)
        assert [name for name in behind.staged_names() if not name.endswith(".tmp")] == []

    # Its file is complete and lacks only its name: it has looked at the head before it wrote.
    assert ids_of(other) == [1]
    at_phase(monkeypatch, "stage.written", others)
    receipt = other.append([row(3)])
    assert (receipt.sequence, receipt.duplicate) == (3, False)
    # Its first file still lies there, at a number that was somebody else's: it must not count for anybody.
    assert behind.staged_rows() == [(2, 0, 3), (3, 0, 3)]
    agree([1, 2, 3], one, other, lakes().table(NAME))


def test_a_writer_paused_before_it_writes_leaves_nothing_at_a_number_that_was_folded(lakes: Lakes, arrow: None) -> None:
    one, other, behind = two(lakes)

    def others() -> None:
        one.append([row(2)])
        fold_and_clean(one)

    with rules(lake_of(other), Meanwhile("put_if_absent", STAGE, others)):
        receipt = other.append([row(3)])
    assert (receipt.sequence, receipt.duplicate) == (3, False)
    assert behind.staged_rows() == [(3, 0, 3)]
    agree([1, 2, 3], one, other, lakes().table(NAME))


def test_a_paused_writer_does_not_reuse_a_number_inside_a_pack(lakes: Lakes, arrow: None) -> None:
    one, other, behind = two(lakes)
    filled: list[int] = []

    def others() -> None:
        filled.extend(fill_block(one, 63))
        opened(one).log.pack()
        settled(lake_of(one))
        assert behind.staged_names() == ["pack-64-0000000000.parquet"]

    with rules(lake_of(other), Meanwhile("put_if_absent", STAGE, others)):
        receipt = other.append([row(2)])
    assert receipt.sequence == 64
    assert "00000000000000000002.parquet" in behind.staged_names(), "the stale file lies under the pack"
    agree(sorted([1, 2, *filled]), one, other, lakes().table(NAME))


def test_a_pack_folded_and_cleaned_between_the_two_checks(lakes: Lakes, arrow: None) -> None:
    """Packs must be looked at before the head: the pack that held the number may be folded and gone a moment later."""
    one, other, _ = two(lakes)
    filled: list[int] = []

    def others() -> None:
        filled.extend(fill_block(one, 63))
        opened(one).log.pack()

    pack_gone = Meanwhile("exists", "pack-64-", lambda: fold_and_clean(one))
    with rules(lake_of(other), Meanwhile("put_if_absent", STAGE, others), pack_gone):
        other.append([row(2)])
    assert pack_gone.fired
    agree(sorted([1, 2, *filled]), one, other)


def test_a_writer_that_is_really_stopped_and_goes_on_later(lakes: Lakes, arrow: None) -> None:
    """The same as above with two threads: the writer hangs in the put while the other process works on."""
    one, other, _ = two(lakes)
    pause = Pause("put_if_absent", STAGE)
    with rules(lake_of(other), pause):
        writing = Running(lambda: other.append([row(9)], batch_id="nine"))
        pause.wait()
        for number in (2, 3):
            one.append([row(number)])
        fold_and_clean(one)
        one.append([row(4)])
        pause.go()
        assert writing.result().sequence == 5
    agree([1, 2, 3, 4, 9], one, other)


def test_a_change_folded_before_its_writer_acknowledged_is_its_own(lakes: Lakes, arrow: None) -> None:
    """Put, then folded and cleaned by others before the writer checks: kept once, and not called a repetition."""
    one, other, _ = two(lakes)
    with rules(lake_of(other), Meanwhile("put_if_absent", STAGE, lambda: fold_and_clean(one), after=True)):
        receipt = other.append([row(2)])
    assert (receipt.sequence, receipt.duplicate) == (2, False)
    agree([1, 2], one, other)


# --- rule 4: what a staged file carries -------------------------------------------------------------------------------


def test_staged_rows_carry_sequence_and_order_and_the_footer_tells_of_the_changes(lakes: Lakes) -> None:
    table = lakes().create_table(NAME, SCHEMA, key="id")
    table.upsert([row(1), row(2)], batch_id="first")
    table.delete([1], actor="ann", reason="asked", batch_id="second")
    behind = Behind(lakes.root, NAME)
    assert behind.staged_rows() == [(1, 0, 1), (1, 1, 2), (2, 0, 1)]
    first, second = (behind.footer(name) for name in behind.staged_names())
    assert first["table"] == second["table"] == behind.table_id
    assert first["notes"]["batch_id"] == ["first"]
    assert first["notes"]["kind"] == ["upsert"]
    assert (first["notes"]["sequence"], first["notes"]["rows"]) == ([1], [2])
    assert (second["notes"]["kind"], second["notes"]["actor"], second["notes"]["reason"]) == (
        ["delete"],
        ["ann"],
        ["asked"],
    )
    assert first["schema"] == "0"


# --- rule 5: batch ids and the ledger ---------------------------------------------------------------------------------


def test_upsert_a_b_a_are_three_changes(lakes: Lakes, arrow: None) -> None:
    table = lakes().create_table(NAME, SCHEMA, key="id")
    receipts = [table.upsert([row(1, name)]) for name in ("a", "b", "a")]
    assert [receipt.sequence for receipt in receipts] == [1, 2, 3]
    assert not any(receipt.duplicate for receipt in receipts)
    assert rows_of(table) == [(1, "a", 0)]
    table.fold()
    assert Behind(lakes.root, NAME).base_rows() == [(1, "a", 0)]


def test_fresh_batch_ids_are_uuids_of_version_7_in_order() -> None:
    made = []
    for _ in range(3):
        made.append(new_batch_id())
        time.sleep(0.002)
    assert made == sorted(set(made))
    assert all(
        re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", text) for text in made
    )


def test_a_batch_is_a_duplicate_after_fold_after_restart_and_elsewhere(lakes: Lakes, arrow: None) -> None:
    one, other, _ = two(lakes)
    sent = one.append([row(2)], batch_id="two")
    assert one.append([row(2)], batch_id="two").duplicate
    assert other.append([row(2)], batch_id="two").duplicate
    fold_and_clean(one)
    for table in (one, other, lakes().table(NAME)):
        again = table.append([row(2)], batch_id="two")
        assert (again.duplicate, again.sequence) == (True, sent.sequence)
    agree([1, 2], one, other)


def test_the_ledger_is_written_before_the_commit(lakes: Lakes, arrow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, behind = two(lakes)
    one.append([row(2)], batch_id="two")
    at_phase(monkeypatch, "rewrite.ledger_written", die)
    with pytest.raises(Killed):
        one.fold()
    assert behind.ledger()["two"] == 2
    assert (behind.versions(), behind.folded()) == ([0], 0)
    for table in (one, other, lakes().table(NAME)):
        assert table.append([row(2)], batch_id="two").duplicate
    agree([1, 2], one, other)


def test_a_batch_sent_again_right_after_the_commit_is_a_duplicate(
    lakes: Lakes, arrow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, _ = two(lakes)
    one.append([row(2)], batch_id="two")
    answers = []
    at_phase(monkeypatch, "rewrite.committed", lambda: answers.append(other.append([row(2)], batch_id="two")))
    one.fold()
    assert [answer.duplicate for answer in answers] == [True]
    agree([1, 2], one, other)


def test_a_batch_is_forgotten_after_the_window(lakes: Lakes, arrow: None) -> None:
    one, _, behind = two(lakes, dedup_window_s=0.3)
    one.append([row(2)], batch_id="two")
    fold_and_clean(one)
    assert lakes(dedup_window_s=60).table(NAME).append([row(2)], batch_id="two").duplicate
    time.sleep(0.4)
    later = lakes(dedup_window_s=0.3).table(NAME)
    assert not later.append([row(2)], batch_id="two").duplicate
    assert ids_of(one) == [1, 2, 2]
    clean(later)
    assert behind.ledger() == {}, "what left the window is cleaned"


def test_the_ledger_is_bounded_in_count(lakes: Lakes, arrow: None) -> None:
    one, _, _ = two(lakes, rows=0)
    for number in (1, 2):
        one.append([row(number)], batch_id=f"batch {number}")
        one.fold()
    small = lakes(dedup_window_batches=1).table(NAME)
    assert small.append([row(2)], batch_id="batch 2").duplicate
    assert not small.append([row(1)], batch_id="batch 1").duplicate


@pytest.mark.parametrize("known", [False, True], ids=["seen anew", "seen before"])
def test_a_duplicate_is_acknowledged_only_once_it_is_durable(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """The first writer died between the link and the fsync of the folder: a power cut could still take the file."""
    one, other, behind = two(lakes)
    at_phase(monkeypatch, "stage.linked", die)
    with pytest.raises(Killed):
        one.append([row(2)], batch_id="two")
    assert behind.staged_rows() == [(1, 0, 1), (2, 0, 2)]
    if known:
        assert ids_of(other) == [1, 2]
    storage_of(lake_of(other)).calls.clear()
    assert other.append([row(2)], batch_id="two").duplicate
    calls = storage_of(lake_of(other)).calls
    assert any(act == "rewrite_synced" and STAGE in path for act, path in calls), (
        "acknowledged on a name that may not last"
    )


# --- rule 6: seeing the stage -----------------------------------------------------------------------------------------


def staged_name(sequence: int) -> str:
    return f"{sequence:020}.parquet"


@pytest.mark.parametrize(("hidden", "listings"), [([3], 1000), ([3], 1), ([2, 4], 2), ([2, 3], 3), ([1], 1000)])
def test_a_listing_with_a_hole_is_never_taken_for_the_tail(
    lakes: Lakes, arrow: None, hidden: list[int], listings: int
) -> None:
    one, _, _ = two(lakes, rows=5)
    reader = lakes()
    with rules(reader, HoleInListing("/stage$", map(staged_name, hidden), listings=listings)):
        table = reader.table(NAME)
        assert ids_of(table) == [1, 2, 3, 4, 5]
        assert table.append([row(6)]).sequence == 6
        assert table.append([row(3)], batch_id="three").sequence == 7
    agree([1, 2, 3, 3, 4, 5, 6], one, table)


def test_a_hole_that_stays_is_an_error_and_no_shorter_table(lakes: Lakes) -> None:
    two(lakes, rows=3)
    behind = Behind(lakes.root, NAME)
    (behind.stage / staged_name(2)).unlink()
    with pytest.raises(CrannogError, match=staged_name(2)):
        ids_of(lakes().table(NAME))


def test_a_pack_that_the_listing_did_not_show(lakes: Lakes, arrow: None) -> None:
    one, _, behind = two(lakes)
    fill_block(one, 70)
    opened(one).log.pack()
    settled(lake_of(one))
    reader = lakes()
    with rules(reader, HoleInListing("/stage$", ["pack-64-0000000000.parquet"], listings=2)):
        table = reader.table(NAME)
        assert len(ids_of(table)) == 70
    assert len(behind.staged_names()) < 10
    agree(ids_of(one), one, table)


def test_a_file_packed_and_put_again_by_a_paused_writer_while_a_reader_reads_it(lakes: Lakes, arrow: None) -> None:
    """The reader listed file 2; before it reads it, 2 is packed, deleted, and put again with other rows."""
    one, reader, behind = two(lakes)
    paused = lakes().table(NAME)
    assert ids_of(paused) == [1]
    one.append([row(2)])
    filled: list[int] = []

    def pack() -> None:
        filled.extend(fill_block(one, 63))
        opened(one).log.pack()
        settled(lake_of(one))

    def write_stale() -> None:
        with rules(lake_of(paused), Meanwhile("put_if_absent", STAGE, pack)):
            assert paused.append([row(99)]).sequence == 64

    stale = Meanwhile("read", f"{STAGE}{staged_name(2)}", write_stale)
    with rules(lake_of(reader), stale):
        seen = ids_of(reader)
    assert stale.fired
    assert (2, 0, 99) in behind.staged_rows()
    everything = sorted([1, 2, 99, *filled])
    assert set(seen) <= set(everything)
    assert seen[:2] == [1, 2], "what was acknowledged before the read is in it"
    agree(everything, reader, one, paused, lakes().table(NAME))


def test_a_file_folded_and_put_again_by_a_paused_writer_while_a_reader_reads_it(
    lakes: Lakes, arrow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, reader, behind = two(lakes)
    paused, cleaning = lakes().table(NAME), lakes(orphan_grace_s=86_400).table(NAME)
    assert ids_of(paused) == [1]
    one.append([row(2)])

    def write_stale() -> None:
        at_phase(monkeypatch, "stage.written", lambda: fold_and_clean(cleaning))
        assert paused.append([row(99)]).sequence == 3
        assert (2, 0, 99) in behind.staged_rows()

    stale = Meanwhile("read", f"{STAGE}{staged_name(2)}", write_stale)
    with rules(lake_of(reader), stale):
        assert ids_of(reader)[:2] == [1, 2]
    assert stale.fired
    agree([1, 2, 99], reader, one, paused)


def test_a_reader_that_was_away_while_everything_was_folded_and_cleaned(lakes: Lakes, arrow: None) -> None:
    one, reader, _ = two(lakes, rows=3)
    fold_and_clean(one)
    one.append([row(4)])
    assert ids_of(reader) == [1, 2, 3, 4]
    one.append([row(5)])
    fold_and_clean(one)
    fold_and_clean(one)
    assert ids_of(reader) == [1, 2, 3, 4, 5]
    assert reader.append([row(6)]).sequence == 6
    agree([1, 2, 3, 4, 5, 6], one, reader)


# --- every moment: one process acts between any two storage calls of another ------------------------------------------


def _append(table: Table) -> None:
    table.append([row(50)], batch_id="fifty")


def _append_other(table: Table) -> None:
    table.append([row(60)], batch_id="sixty")


def _compact(table: Table) -> None:
    compact(opened(table))


def _compact_and_clean(table: Table) -> None:
    _compact(table)
    clean(table)


def _pack_fold_clean(table: Table) -> None:
    opened(table).log.pack()
    fold_and_clean(table)


def _read(table: Table) -> None:
    seen = ids_of(table)
    assert len(seen) == len(set(seen)), f"a row shows twice: {seen}"
    assert set(seen) >= {1, 2, 3, 4}, f"an acknowledged row does not show: {seen}"


def _case(victim: Callable[..., Any], intruder: Callable[..., Any], default: str) -> list[Any]:
    """One kind of table in the default run, both in the slow one."""
    return [
        pytest.param(
            victim,
            intruder,
            key,
            id=f"{victim.__name__.strip('_')} | {intruder.__name__.strip('_')}, {key or 'no key'}",
            marks=() if (key or "no key") == default else pytest.mark.slow,
        )
        for key in (None, "id")
    ]


CASES = [
    *_case(_append, _append, "no key"),
    *_case(_append, _append_other, "id"),
    *_case(_append, fold_and_clean, "no key"),
    *_case(_append, _compact_and_clean, "id"),
    *_case(Table.fold, fold_and_clean, "no key"),
    *_case(Table.fold, _append, "id"),
    *_case(Table.fold, _compact_and_clean, "id"),
    *_case(_compact, fold_and_clean, "id"),
    *_case(_compact, _compact_and_clean, "no key"),
    *_case(_read, fold_and_clean, "id"),
    *_case(_read, _compact_and_clean, "no key"),
    *_case(clean, _append, "no key"),
    *_case(clean, Table.fold, "id"),
]


@pytest.mark.parametrize(("victim", "intruder", "key"), CASES)
def test_whatever_another_process_does_between_two_calls(
    lakes: Lakes, arrow: None, victim: Callable[..., Any], intruder: Callable[..., Any], key: str | None
) -> None:
    """`intruder` runs whole in another process before the k-th storage call of `victim`, for every k."""
    one, other = lakes(), lakes()
    template = one.create_table(NAME, SCHEMA, key=key)
    for number in (1, 2):
        template.append([row(number)])
        template.fold()
    for number in (3, 4):
        template.append([row(number)])
    expected = [1, 2, 3, 4]
    expected += [50] if _append in (victim, intruder) else []
    expected += [60] if intruder is _append_other else []
    done: set[int] = set()
    for k in count(1):
        name = copied(lakes.root, NAME, f"{NAME}_{k}")
        quick, slow = one.table(name), other.table(name)
        if k % 2:
            ids_of(slow)  # as often as not the slow process knows the table as it was
        rule = Meanwhile(None, name.replace(".", "/") + "/", lambda quick=quick: intruder(quick), nth=k)
        with rules(other, rule):
            try:
                victim(slow)
            except Unavailable:
                # No retention at all: a job may find the files gone that it was to read, and is run again.
                assert victim in (Table.fold, _compact)
                assert intruder is _compact_and_clean
                victim(slow)
        if not rule.fired:
            # A process that knows the table makes fewer calls than one that opens it: both must come to their end.
            done.add(k % 2)
            if len(done) == 2:
                break
            continue
        behind = Behind(lakes.root, name)
        assert ids_of(slow) == expected, f"before call {k}"
        slow.fold()
        assert behind.base_ids() == expected, f"before call {k}"
        assert behind.folded_by_version() == sorted(behind.folded_by_version()), f"before call {k}"
    assert k > 3


# --- rules 7 and 8: snapshots and visibility --------------------------------------------------------------------------


def test_a_change_shows_in_another_process_at_its_next_read(lakes: Lakes) -> None:
    one, other, _ = two(lakes)
    receipt = one.append([row(2)])
    assert opened(other).snapshot(min_sequence=receipt.sequence).sequence == 2
    assert ids_of(other) == [1, 2]


def test_a_snapshot_stays_what_it_was(lakes: Lakes, arrow: None) -> None:
    one, other, _ = two(lakes, key="id", rows=3)
    one.fold()
    one.append([row(4)])
    old = opened(other).snapshot()
    one.delete([1])
    one.upsert([row(2, "changed")])
    one.fold()
    _compact(one)
    again = opened(other).to_arrow(snapshot=old).to_pylist()
    assert sorted((entry["id"], entry["name"]) for entry in again) == [(n, f"row {n}") for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("key", [None, "id"], ids=["no key", "keyed"])
def test_a_reader_whose_file_is_gone_refreshes_and_reads_again(
    lakes: Lakes, arrow: None, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, _ = two(lakes, key=key, rows=0)
    for number in (1, 2):
        one.append([row(number)])
        one.fold()
    table = opened(other)
    taken = []
    snapshot = table.snapshot

    def slow_snapshot(**options: Any) -> Any:
        found = snapshot(**options)
        if not taken:
            taken.append(found)
            _compact_and_clean(one)
        return found

    monkeypatch.setattr(table, "snapshot", slow_snapshot)
    assert ids_of(other) == [1, 2]
    assert taken


def _compacted_under_a_lease(one: Table, other: Table) -> tuple[Any, Any]:
    for number in (1, 2):
        one.append([row(number)])
        one.fold()
    snapshot = opened(other).snapshot()
    return snapshot, opened(other).reading(snapshot)


def test_vacuum_leaves_what_a_reader_holds(lakes: Lakes, arrow: None) -> None:
    one, other, behind = two(lakes, rows=0)
    snapshot, lease = _compacted_under_a_lease(one, other)
    with lease:
        _compact(one)
        report = clean(one)
        assert (report.kept_for_readers, report.files_deleted) == (2, 0)
        assert sorted(opened(other).to_arrow(snapshot=snapshot)["id"].to_pylist()) == [1, 2]
    assert clean(one).files_deleted == 2
    assert len(behind.job_folders()) == 1
    with pytest.raises(SnapshotGone):
        opened(other).to_arrow(snapshot=snapshot)
    assert ids_of(other) == [1, 2]


def test_a_lease_without_heartbeat_holds_nothing(lakes: Lakes, arrow: None) -> None:
    one, other, behind = two(lakes, rows=0)
    _, lease = _compacted_under_a_lease(one, other)
    with lease:
        _compact(one)
        [path] = [path for path in (behind.own / "leases").iterdir() if path.name.startswith("reader")]
        os.utime(path, (time.time() - 3600, time.time() - 3600))
        assert clean(one).files_deleted == 2


# --- rule 9: keyed tables ---------------------------------------------------------------------------------------------


def test_append_to_a_keyed_table_is_upsert_and_null_keys_are_refused(lakes: Lakes, arrow: None) -> None:
    table = lakes().create_table(NAME, SCHEMA, key="id")
    table.append([row(1, "old")])
    table.fold()
    table.append([row(1, "new"), row(1, "newest")])
    assert rows_of(table) == [(1, "newest", 0)]
    assert table.count() == 1
    with pytest.raises(BadRows, match="id"):
        table.append([row(2), {"id": None, "name": "x", "n": 1}])
    table.fold()
    assert Behind(lakes.root, NAME).base_rows() == [(1, "newest", 0)]


# --- rule 10: Spark writes, we verify, one file commits ---------------------------------------------------------------


def _spoiled(how: str, rows: pa.Table) -> pa.Table:
    if how == "row lost":
        return rows.slice(1)
    if how == "row twice":
        return pa.concat_tables([rows, rows.slice(0, 1)])
    if how == "other type":
        return rows.set_column(rows.column_names.index("n"), "n", rows["n"].cast(pa.int64()))
    if how == "null in the key":
        return rows.set_column(0, "id", pa.array([None, *rows["id"].to_pylist()[1:]], pa.int64()))
    return rows.drop_columns(["name"])


@pytest.mark.parametrize("how", ["row lost", "row twice", "other type", "null in the key", "column lost"])
@pytest.mark.parametrize("job", ["fold", "compact"])
def test_what_spark_wrote_wrong_is_never_committed(
    lakes: Lakes, either: str, monkeypatch: pytest.MonkeyPatch, how: str, job: str
) -> None:
    if either == "spark" and job == "compact" and how != "row lost":
        pytest.skip("one spoiled compaction by Spark is enough: the check is the same")
    one, other, behind = two(lakes, key="id", rows=0)
    for number in (1, 2):
        one.append([row(number), row(number + 10)])
        if job == "compact":
            one.fold()
    before, live = behind.versions(), behind.live_files()
    with monkeypatch.context() as patch:
        spoil_files(patch, lambda rows: _spoiled(how, rows))
        with pytest.raises(VerificationFailed):
            one.fold() if job == "fold" else _compact(one)
    assert (behind.versions(), behind.live_files()) == (before, live)
    assert len(behind.job_folders()) == len(live), "what the job wrote is gone"
    assert list((behind.own / "jobs").iterdir()) == []
    assert ids_of(other) == [1, 2, 11, 12]
    one.fold()
    _compact(one)
    agree([1, 2, 11, 12], one, other)


def test_files_are_durable_before_the_entry_names_them(lakes: Lakes, arrow: None) -> None:
    one, _, behind = two(lakes, rows=3)
    storage_of(lake_of(one)).calls.clear()
    one.fold()
    calls = storage_of(lake_of(one)).calls
    commit = next(i for i, (act, path) in enumerate(calls) if act == "put_if_absent" and LOG in path)
    [file] = behind.live_files()
    assert any(act == "sync" and file.name in path for act, path in calls[:commit])
    assert any(act == "put_if_absent" and LEDGER in path for act, path in calls[:commit])


def test_an_entry_is_what_outside_readers_expect(lakes: Lakes, arrow: None) -> None:
    one, _, behind = two(lakes, rows=3)
    one.fold()
    info, txn, add = behind.entry(1)
    assert info["commitInfo"]["operation"] == "FOLD"
    assert (txn["txn"]["appId"], txn["txn"]["version"]) == (behind.table_id, 3)
    stats = json.loads(add["add"]["stats"])
    assert (stats["numRecords"], stats["minValues"]["id"], stats["maxValues"]["id"]) == (3, 1, 3)
    protocol = DeltaTable(str(behind.folder)).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)


# --- rule 12: two committers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "id"], ids=["no key", "keyed"])
def test_fold_against_fold(lakes: Lakes, either: str, key: str | None) -> None:
    """The second fold stalls with its entry in hand; when it wakes, the first one has committed the same changes."""
    one, other, behind = two(lakes, key=key, rows=3)
    with rules(lake_of(other), Meanwhile("put_if_absent", LOG, one.fold)):
        other.fold()
    assert behind.operations() == ["CREATE TABLE", "FOLD"]
    assert behind.base_ids() == [1, 2, 3]
    assert len(behind.job_folders()) == 1, "the files of the loser are gone"
    agree([1, 2, 3], one, other)


def test_fold_against_a_longer_fold(lakes: Lakes, arrow: None) -> None:
    one, other, behind = two(lakes, rows=3)

    def longer() -> None:
        one.append([row(4)])
        fold_and_clean(one)

    with rules(lake_of(other), Meanwhile("put_if_absent", LOG, longer)):
        other.fold()
    assert behind.folded_by_version() == [0, 4]
    agree([1, 2, 3, 4], one, other)


@pytest.mark.parametrize("key", [None, "id"], ids=["no key", "keyed"])
def test_fold_against_a_shorter_fold(lakes: Lakes, arrow: None, key: str | None) -> None:
    """The first fold stalls at sequence 3; the second folds to 5 but a third process folded to 3 before it commits."""
    one, other, behind = two(lakes, key=key, rows=3)
    stalled = Pause("put_if_absent", LOG)
    with rules(lake_of(other), stalled):
        short = Running(other.fold)
        stalled.wait()
        for number in (4, 5):
            one.append([row(number)])

        # The longer fold has written its files when the shorter one commits.
        def let_the_short_one_win() -> None:
            stalled.go()
            short.result()

        with rules(lake_of(one), Meanwhile("put_if_absent", LOG, let_the_short_one_win)):
            one.fold()
    assert behind.folded_by_version() == [0, 3, 5]
    agree([1, 2, 3, 4, 5], one, other)


@pytest.mark.parametrize("key", [None, "id"], ids=["no key", "keyed"])
def test_a_compaction_that_stalls_while_a_fold_commits(lakes: Lakes, either: str, key: str | None) -> None:
    one, other, behind = two(lakes, key=key, rows=0)
    for number in (1, 2):
        one.append([row(number)])
        one.fold()

    def fold_more() -> None:
        one.upsert([row(2, "changed")]) if key else one.append([row(4)])
        one.append([row(3)])
        one.fold()

    with rules(lake_of(other), Meanwhile("put_if_absent", LOG, fold_more)):
        compact(opened(other))
    folded = behind.folded_by_version()
    assert folded[-2:] == [4, 4], "the compaction came last and did not take the folded sequence back"
    assert behind.operations()[-1] == "COMPACT"
    assert rows_of(one) == [(1, "row 1", 0), (2, "changed" if key else "row 2", 0), (3, "row 3", 0)] + (
        [] if key else [(4, "row 4", 0)]
    )
    agree([1, 2, 3] if key else [1, 2, 3, 4], one, other)


@pytest.mark.parametrize("key", [None, "id"], ids=["no key", "keyed"])
def test_a_fold_that_stalls_while_a_compaction_commits(lakes: Lakes, either: str, key: str | None) -> None:
    one, other, behind = two(lakes, key=key, rows=0)
    for number in (1, 2):
        one.append([row(number)])
        one.fold()
    one.upsert([row(2, "changed")]) if key else one.append([row(3)])
    # compact() folds first; only the merge of the files is wanted here.
    from crannog.engine.maintenance import compact as compact_module

    def only_compact() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compact_module, "fold", lambda *_, **__: compact_module.FoldReport())
            compact(opened(one))

    with rules(lake_of(other), Meanwhile("put_if_absent", LOG, only_compact)):
        other.fold()
    assert behind.operations()[-2:] == ["COMPACT", "FOLD"]
    assert len(behind.job_folders()) >= len(behind.live_files())
    expected = [(1, "row 1", 0), (2, "changed", 0)] if key else [(1, "row 1", 0), (2, "row 2", 0), (3, "row 3", 0)]
    assert behind.base_rows() == expected
    agree([entry[0] for entry in expected], one, other)


def test_a_merge_that_stalls_while_an_erase_wins(lakes: Lakes, either: str) -> None:
    one, other, behind = two(lakes, key="id", rows=0)
    one.append([row(1, "keep me"), row(2, "forget-me-2")])
    one.fold()
    one.upsert([row(1, "kept"), row(2, "forget-me-too")])
    with rules(lake_of(other), Meanwhile("put_if_absent", LOG, lambda: one.erase([2]))):
        other.fold()
    assert rows_of(other) == [(1, "kept", 0)]
    assert behind.base_rows() == [(1, "kept", 0)]
    assert behind.files_with(b"forget-me") == []
    agree([1], one, other)


def test_an_erase_that_stalls_while_a_merge_wins(lakes: Lakes, arrow: None) -> None:
    one, other, behind = two(lakes, key="id", rows=0)
    one.append([row(1, "keep me"), row(2, "forget-me-2")])
    one.fold()

    def merge() -> None:
        one.upsert([row(1, "kept"), row(3)])
        one.fold()

    with rules(lake_of(other), Meanwhile("put_if_absent", LOG, merge)):
        receipt = other.erase([2])
    assert receipt.rows_erased == 1
    assert rows_of(one) == [(1, "kept", 0), (3, "row 3", 0)]
    assert behind.files_with(b"forget-me") == []
    agree([1, 3], one, other)


def test_a_compaction_that_stalls_while_an_erase_wins_does_not_bring_the_key_back(lakes: Lakes, arrow: None) -> None:
    one, other, behind = two(lakes, key="id", rows=0)
    for number in (1, 2, 3):
        one.append([row(number, f"named-{number}")])
        one.fold()
    with rules(lake_of(other), Meanwhile("put_if_absent", LOG, lambda: one.erase([2]))):
        compact(opened(other))
    assert behind.files_with(b"named-2") == []
    agree([1, 3], one, other)


@pytest.mark.parametrize("performed", [True, False], ids=["performed", "not performed"])
@pytest.mark.parametrize("job", ["fold", "compact"])
def test_a_commit_whose_answer_is_lost_never_takes_files_away(
    lakes: Lakes, arrow: None, performed: bool, job: str
) -> None:
    one, other, behind = two(lakes, rows=0)
    for number in (1, 2):
        one.append([row(number)])
        if job == "compact":
            one.fold()
    act = one.fold if job == "fold" else lambda: _compact(one)
    lost = Fail("put_if_absent", LOG, performed=performed)
    with rules(lake_of(one), lost):
        try:
            act()
        except Unavailable:
            pass
    assert lost.fired
    assert all(file.exists() for file in behind.live_files())
    assert ids_of(other) == [1, 2]
    act()
    agree([1, 2], one, other)
    clean(one)
    assert len(behind.job_folders()) == len(behind.live_files()), "nothing is left over"


@pytest.mark.parametrize("performed", [True, False], ids=["performed", "not performed"])
def test_a_commit_whose_answer_is_lost_and_nobody_can_look(lakes: Lakes, arrow: None, performed: bool) -> None:
    one, other, behind = two(lakes, rows=2)
    lost = Fail("put_if_absent", LOG, performed=performed)

    def blind(operation: str, path: str, proceed: Callable[[], Any]) -> Any:
        if lost.fired and operation in ("exists", "read", "sync") and LOG in path:
            raise Unavailable(f"cannot look at {path}: no answer")
        return proceed()

    with rules(lake_of(one), lost, blind), pytest.raises(Unavailable):
        one.fold()
    assert all(file.exists() for file in behind.live_files())
    assert ids_of(other) == [1, 2]
    agree([1, 2], one, other)


def test_an_interrupt_right_after_the_commit_leaves_its_files(
    lakes: Lakes, arrow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, behind = two(lakes, rows=2)
    at_phase(monkeypatch, "rewrite.committed", die)
    with pytest.raises(Killed):
        one.fold()
    assert behind.folded() == 2
    assert behind.base_ids() == [1, 2]
    agree([1, 2], one, other)


def test_a_widening_that_stalls_while_a_fold_commits_leaves_no_narrow_file(lakes: Lakes, arrow: None) -> None:
    """The fold's new file was not there when the widening read the table: it must not stay as it is."""
    one, other, behind = two(lakes)
    one.fold()
    wide = SCHEMA.set(2, pa.field("n", pa.int64()))

    def fold_more() -> None:
        one.append([row(2)])
        one.fold()

    with rules(lake_of(other), Meanwhile("put_if_absent", LOG, fold_more)):
        other.evolve(wide)
    assert {str(pq.read_schema(file).field("n").type) for file in behind.live_files()} == {"int64"}
    one.append([row(3, n=2**40)])
    agree([1, 2, 3], one, other)


def test_a_fold_that_stalls_while_the_table_is_widened(lakes: Lakes, arrow: None) -> None:
    one, other, behind = two(lakes, rows=2)
    wide = SCHEMA.set(2, pa.field("n", pa.int64())).append(pa.field("more", pa.string()))
    with rules(lake_of(other), Meanwhile("put_if_absent", LOG, lambda: one.evolve(wide))):
        other.fold()
    [file] = behind.live_files()
    assert str(pq.read_schema(file).field("n").type) == "int64"
    assert "more" in pq.read_schema(file).names
    agree([1, 2], one, other)


# --- rule 13: a keyed fold touches what it must -----------------------------------------------------------------------


def test_a_keyed_fold_rewrites_only_the_files_that_hold_changed_keys(lakes: Lakes, arrow: None) -> None:
    one, _, behind = two(lakes, key="id", rows=0)
    for first in (1, 11, 21):
        one.append([row(first), row(first + 1)])
        one.fold()
    before = set(behind.live_files())
    one.upsert([row(12, "changed"), row(31)])
    one.delete([99])
    report = one.fold()
    assert report.files_rewritten == 1
    assert len(before & set(behind.live_files())) == 2
    assert behind.base_ids() == [1, 2, 11, 12, 21, 22, 31]


# --- rule 14: cleaning ------------------------------------------------------------------------------------------------


def test_the_cleaner_takes_nothing_above_the_folded_sequence(lakes: Lakes, arrow: None) -> None:
    one, other, behind = two(lakes)
    fill_block(one, 70)
    opened(one).log.pack()
    settled(lake_of(one))
    pack = "pack-64-0000000000.parquet"
    # A fold to 30: the pack begins below the folded sequence and ends above it.
    snapshot = opened(one).snapshot()
    import dataclasses

    from crannog.engine.maintenance import fold as fold_module
    from crannog.engine.maintenance.job import Job

    table = snapshot.tail.rows
    upto = dataclasses.replace(snapshot.tail, end=30)
    upto.__dict__["rows"] = table.slice(0, 30)
    upto.__dict__["notes"] = snapshot.tail.records[:30]
    with Job(opened(one), "FOLD", opened(one).log.head()) as job:
        fold_module._fold_once(opened(one), dataclasses.replace(snapshot, tail=upto), job)
    assert behind.folded() == 30
    clean(one)
    assert pack in behind.staged_names()
    assert len(ids_of(other)) == 70
    assert len(ids_of(lakes().table(NAME))) == 70
    one.fold()
    assert len(behind.base_ids()) == len(set(behind.base_ids())) == 70
    clean(one)
    assert behind.staged_names() == []


def test_folded_files_stay_for_the_grace(lakes: Lakes, arrow: None) -> None:
    one, _, behind = two(lakes, rows=3, fold_grace_s=3600)
    one.fold()
    assert vacuum(opened(one)).staged_files_deleted == 0
    assert len(behind.staged_names()) == 3


def test_files_of_a_running_job_are_not_cleaned(lakes: Lakes, arrow: None) -> None:
    """Another process cleans without any grace while a fold is between its files and its commit."""
    one, other, behind = two(lakes, rows=2)
    with rules(lake_of(other), Meanwhile("put_if_absent", LEDGER, lambda: clean(one))):
        other.fold()
    assert behind.base_ids() == [1, 2]
    agree([1, 2], one, other)


def test_files_of_a_job_that_died_go_after_the_grace(lakes: Lakes, arrow: None) -> None:
    one, _, behind = two(lakes)
    one.fold()
    orphan = behind.folder / "data" / "0198-dead" / "0" / "part-0.parquet"
    orphan.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), orphan)
    patient = lakes(orphan_grace_s=24 * 3600).table(NAME)
    assert vacuum(opened(patient)).files_deleted == 0
    old = time.time() - 25 * 3600
    os.utime(orphan, (old, old))
    assert vacuum(opened(patient), dry_run=True).files == ("data/0198-dead/0/part-0.parquet",)
    assert orphan.exists()
    assert vacuum(opened(patient)).files_deleted == 1
    assert not orphan.exists()


def test_the_retention_floor(lakes: Lakes, arrow: None) -> None:
    one, _, behind = two(lakes, rows=0, retention_floor_s=3600)
    for number in (1, 2):
        one.append([row(number)])
        one.fold()
    _compact(one)
    report = one.vacuum(retention_hours=0)
    assert (report.raised_to_floor, report.retention_s, report.files_deleted) == (True, 3600, 0)
    assert len(behind.job_folders()) == 3
    dry = one.vacuum(retention_hours=0, force=True, dry_run=True)
    assert (len(dry.files), len(behind.job_folders())) == (2, 3)
    forced = one.vacuum(retention_hours=0, force=True)
    assert (forced.raised_to_floor, forced.files_deleted) == (False, 2)
    assert ids_of(one) == [1, 2]


def test_leases_that_cannot_be_listed_are_not_taken_for_none(
    lakes: Lakes, arrow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EMFILE while the leases are listed: the vacuum must fail, not delete what a reader holds."""
    one, other, _ = two(lakes, rows=0)
    snapshot, lease = _compacted_under_a_lease(one, other)
    with lease:
        _compact(one)
        scandir = os.scandir

        def broken(path: Any = ".") -> Any:
            if str(path).endswith("/leases"):
                raise OSError(24, "Too many open files")
            return scandir(path)

        with monkeypatch.context() as patch:
            patch.setattr(os, "scandir", broken)
            with pytest.raises(Unavailable):
                clean(one)
        assert sorted(opened(other).to_arrow(snapshot=snapshot)["id"].to_pylist()) == [1, 2]


# --- rule 16: packs ---------------------------------------------------------------------------------------------------


def test_a_pack_holds_what_its_files_held(lakes: Lakes, arrow: None) -> None:
    one, other, behind = two(lakes, key="id", rows=0)
    for number in range(1, 64):
        one.upsert([row(number % 10, f"change {number}")], batch_id=f"batch {number}")
    settled(lake_of(one))
    before = rows_of(other)
    opened(one).log.pack()
    assert behind.staged_names() == ["pack-64-0000000000.parquet"]
    assert [(sequence, number) for sequence, _, number in behind.staged_rows()] == [(n, n % 10) for n in range(1, 64)]
    footer = behind.footer("pack-64-0000000000.parquet")
    assert footer["notes"]["batch_id"] == [f"batch {n}" for n in range(1, 64)]
    fresh = lakes().table(NAME)
    assert rows_of(one) == rows_of(other) == rows_of(fresh) == before
    assert fresh.upsert([row(5, "again")], batch_id="batch 7").duplicate
    one.fold()
    assert behind.base_rows() == before


def test_two_packers_meet_on_one_name(lakes: Lakes, arrow: None) -> None:
    one, other, behind = two(lakes)
    ids = fill_block(one, 62)
    assert len(ids_of(other)) == 62
    ids += fill_block(other, 63, start_id=2_000_000)
    with rules(lake_of(one), Meanwhile("put_if_absent", "pack-", lambda: opened(other).log.pack())):
        ids_of(one)
        opened(one).log.pack()
    settled(lake_of(other))
    settled(lake_of(one))
    assert behind.staged_names() == ["pack-64-0000000000.parquet"]
    assert len(behind.staged_rows()) == 63
    agree(sorted([1, *ids]), one, other)


def test_a_read_between_a_pack_and_the_packers_taking_it_in(
    lakes: Lakes, arrow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process: a reader's refresh finds the pack on disk before the packer has told the tail of it."""
    monkeypatch.setattr(ChangeLog, "work_due", lambda self: [])
    one, other, behind = two(lakes)
    fill_block(one, 63)
    assert len(behind.staged_names()) == 63
    expected = ids_of(one)
    with rules(lake_of(one), Meanwhile("put_if_absent", "pack-", lambda: ids_of(one), after=True)):
        assert opened(one).log.pack() == 1
    assert ids_of(one) == expected
    assert one.append([row(3_000_000)]).sequence == 64
    agree([*expected, 3_000_000], one, other)


def test_a_pack_that_comes_after_its_block_was_folded_and_cleaned(lakes: Lakes, arrow: None) -> None:
    one, other, behind = two(lakes)
    fill_block(one, 70)
    settled(lake_of(one))
    expected = ids_of(other)
    # As if the packer of the other process had stalled: its pack appears below the folded sequence.
    pack = (behind.stage / "pack-64-0000000000.parquet").read_bytes()
    fold_and_clean(one)
    assert behind.staged_names() == []
    (behind.stage / "pack-64-0000000000.parquet").write_bytes(pack)
    agree(expected, one, other, lakes().table(NAME))
    clean(one)
    assert behind.staged_names() == []


def test_a_stale_file_under_a_pack_is_nobodys(lakes: Lakes, arrow: None) -> None:
    one, other, behind = two(lakes)
    fill_block(one, 63)
    opened(one).log.pack()
    settled(lake_of(one))
    expected = ids_of(one)
    stranger = lakes()
    stranger.create_table("shop.eu.strange", SCHEMA).append([row(77)])
    foreign = Behind(lakes.root, "shop.eu.strange")
    (behind.stage / staged_name(5)).write_bytes((foreign.stage / staged_name(1)).read_bytes())
    for table in (one, other, lakes().table(NAME)):
        assert ids_of(table) == expected
    clean(one)
    assert behind.staged_names() == ["pack-64-0000000000.parquet"]
    agree(expected, one, other)


def test_a_packer_that_is_killed_between_pack_and_deletion(
    lakes: Lakes, arrow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, behind = two(lakes)
    fill_block(one, 62)
    settled(lake_of(one))
    at_phase(monkeypatch, "pack.written", die)
    one.append([row(500)])
    settled(lake_of(one))
    assert len(behind.staged_names()) == 64, "the pack and all its originals"
    expected = ids_of(one)
    assert len(expected) == 63
    assert ids_of(lakes().table(NAME)) == expected
    clean(one)
    assert behind.staged_names() == ["pack-64-0000000000.parquet"]
    agree(expected, one, other)


def test_changes_from_before_and_after_a_widening_pack_together(lakes: Lakes, arrow: None) -> None:
    one, other, behind = two(lakes, rows=20)
    wide = SCHEMA.set(2, pa.field("n", pa.int64()))
    one.evolve(wide)
    for number in range(21, 64):
        one.append([row(number, n=2**40)])
        if number == 40:
            ids_of(other)
    settled(lake_of(one))
    assert ids_of(other) == list(range(1, 64))
    assert behind.staged_names() == ["pack-64-0000000000.parquet"]
    agree(list(range(1, 64)), one, other, lakes().table(NAME))


# --- rules 17 and 18: erasing -----------------------------------------------------------------------------------------


def test_erase_covers_every_sequence_up_to_its_own(lakes: Lakes, either: str) -> None:
    one, other, behind = two(lakes, key="id", rows=0)
    one.append([row(number, f"secret-{number}") for number in range(1, 5)])
    one.fold()
    one.upsert([row(2, "secret-2-changed")])
    one.fold()
    # Staged only; and in a pack that also holds other rows.
    one.upsert([row(2, "secret-2-staged"), row(5, "secret-5")])
    fill_block(one, 63)
    settled(lake_of(one))
    one.upsert([row(2, "secret-2-again")])
    receipt = one.erase([2], actor="ann", reason="asked")
    assert receipt.rows_erased == 1
    assert behind.files_with(b"secret-2") == []
    assert all(place.after == 0 for place in receipt.places)
    assert sum(place.before for place in receipt.places) >= 3
    expected = [1, 3, 4, 5, *[number for number in ids_of(one) if number > 5]]
    assert len(expected) > 50
    agree(expected, one, other)
    # The fold of the tombstone is no way back either: the key stands in the audit only as a keyed hash.
    assert [entry["actor"] for entry in one.audit()] == ["ann"]
    assert one.tombstones() == []


def test_erase_finds_what_a_killed_writer_left_behind(lakes: Lakes, arrow: None) -> None:
    """A kill between the temporary file and its link leaves the rows in a file nobody lists."""
    one, _, behind = two(lakes, key="id", rows=0)
    one.append([row(1, "keep"), row(2, "secret-2")])
    left = behind.stage / f".{staged_name(2)}.0123456789abcdef.tmp"
    left.write_bytes((behind.stage / staged_name(1)).read_bytes())
    one.erase([2])
    assert behind.files_with(b"secret-2") == []


def test_erased_keys_are_not_in_the_statistics_of_the_log(lakes: Lakes, arrow: None) -> None:
    schema = pa.schema([pa.field("mail", pa.string(), nullable=False), pa.field("n", pa.int32())])
    table = lakes().create_table(NAME, schema, key="mail")
    behind = Behind(lakes.root, NAME)
    for number in range(6):
        table.upsert([{"mail": f"{letter}@example.org", "n": number} for letter in "abc"])
        table.fold()
    settled(lake_of(table))
    assert behind.files_with(b"a@example.org")
    table.erase(["a@example.org"])
    assert behind.files_with(b"a@example.org") == []
    assert sorted(table.to_arrow()["mail"].to_pylist()) == ["b@example.org", "c@example.org"]
    assert sorted(DeltaTable(str(behind.folder)).to_pyarrow_table()["mail"].to_pylist()) == [
        "b@example.org",
        "c@example.org",
    ]


def test_erase_waits_for_readers_and_then_wins(lakes: Lakes, arrow: None) -> None:
    one, other, _ = two(lakes, key="id", rows=3, lease_wait_s=0.6)
    one.fold()
    snapshot = opened(other).snapshot()
    with opened(other).reading(snapshot):
        began = time.monotonic()
        receipt = one.erase([2])
        assert time.monotonic() - began >= 0.6
        assert receipt.readers_cut_off == 1
        with pytest.raises(SnapshotGone):
            opened(other).to_arrow(snapshot=snapshot)
    assert ids_of(other) == [1, 3]


def test_erase_goes_on_as_soon_as_the_reader_is_done(lakes: Lakes, arrow: None) -> None:
    one, other, _ = two(lakes, key="id", rows=3, lease_wait_s=25)
    one.fold()
    snapshot = opened(other).snapshot()
    lease = opened(other).reading(snapshot)
    lease.__enter__()
    erasing = Running(lambda: one.erase([2]))
    try:
        deadline = time.monotonic() + 10
        while ids_of(other) != [1, 3] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert sorted(opened(other).to_arrow(snapshot=snapshot)["id"].to_pylist()) == [1, 2, 3], (
            "the reader is still served"
        )
    finally:
        lease.__exit__()
    assert erasing.result().readers_cut_off == 0


# --- dropped and made again -------------------------------------------------------------------------------------------


def remake(table: Table) -> Callable[[], None]:
    """Return what drops a table and makes it again, empty, under its name."""
    lake = lake_of(table)

    def act() -> None:
        lake.drop_table(NAME)
        lake.create_table(NAME, SCHEMA)

    return act


@pytest.mark.parametrize("moment", ["before the put", "after the put"])
def test_a_writer_to_a_dropped_table_never_reaches_the_new_one(lakes: Lakes, arrow: None, moment: str) -> None:
    one, other, behind = two(lakes, rows=2)
    rule = Meanwhile("put_if_absent", STAGE, remake(one), after=moment == "after the put")
    with rules(lake_of(other), rule), pytest.raises(NotFound):
        opened(other).write("append", [row(3)], None)
    assert behind.staged_names() == []
    assert ids_of(one) == ids_of(other) == ids_of(lakes().table(NAME)) == []
    assert other.append([row(4)]).sequence == 1
    agree([4], one, other)


@pytest.mark.parametrize("moment", ["before the put", "after the put"])
def test_a_name_is_written_to_once_if_its_table_was_made_again(lakes: Lakes, arrow: None, moment: str) -> None:
    """A `Table` stands for a name: the call may find the new table or none, but never leaves half of either."""
    one, other, _ = two(lakes, rows=2)
    rule = Meanwhile("put_if_absent", STAGE, remake(one), after=moment == "after the put")
    with rules(lake_of(other), rule):
        try:
            kept = [3] if other.append([row(3)]).sequence == 1 else None
        except NotFound:
            kept = []
    assert kept is not None
    agree(kept, one, other)


def test_a_dropped_table_is_not_found(lakes: Lakes) -> None:
    one, other, _ = two(lakes, rows=2)
    lake_of(one).drop_table(NAME)
    for act in (lambda: ids_of(other), lambda: other.append([row(3)]), other.fold, other.describe, other.vacuum):
        with pytest.raises(NotFound):
            act()
    assert lake_of(other).tables() == []


@pytest.mark.parametrize("job", ["fold", "compact"])
@pytest.mark.parametrize(
    ("operation", "part"),
    [("put_if_absent", LOG), ("put_if_absent", LEDGER), ("sync", "/data/"), ("replace", "/leases/")],
)
@pytest.mark.parametrize("again", [True, False], ids=["made again", "dropped"])
def test_a_job_on_a_dropped_table_never_reaches_the_new_one(
    lakes: Lakes, arrow: None, job: str, operation: str, part: str, again: bool
) -> None:
    if job == "compact" and part == LEDGER:
        pytest.skip("a compaction has no ledger")
    one, other, behind = two(lakes, rows=0)
    for number in (1, 2):
        one.append([row(number)])
        if job == "compact":
            one.fold()
    act = remake(one) if again else lambda: lake_of(one).drop_table(NAME)
    rule = Meanwhile(operation, part, act)
    with rules(lake_of(other), rule), pytest.raises(CrannogError):
        fold(opened(other)) if job == "fold" else compact(opened(other))
    assert rule.fired
    if again:
        assert behind.versions() == [0], "the old table's entry stands in the log of the new one"
        assert ids_of(one) == ids_of(other) == []
        other.append([row(5)])
        agree([5], one, other)
    else:
        assert lake_of(other).tables() == []
        lake_of(one).create_table(NAME, SCHEMA).append([row(6)])
        agree([6], one, other)


def test_a_batch_id_of_the_dropped_table_is_new_to_the_new_one(lakes: Lakes, arrow: None) -> None:
    one, other, _ = two(lakes)
    one.append([row(2)], batch_id="two")
    one.fold()
    remake(one)()
    assert not other.append([row(2)], batch_id="two").duplicate
    agree([2], one, other)


# --- rules 19 and 21: features and formats ----------------------------------------------------------------------------


def test_our_tables_use_no_reader_feature(lakes: Lakes, arrow: None) -> None:
    one, _, behind = two(lakes, key="id", rows=3)
    one.fold()
    one.delete([1])
    one.evolve(SCHEMA.set(2, pa.field("n", pa.int64())))
    one.fold()
    protocol = DeltaTable(str(behind.folder)).protocol()
    assert (protocol.min_reader_version, protocol.reader_features) == (1, None)
    assert behind.base_ids() == [2, 3]


def test_a_newer_format_is_refused(lakes: Lakes) -> None:
    two(lakes)
    path = Behind(lakes.root, NAME).folder / "_delta_log" / f"{0:020}.json"
    path.write_text(path.read_text().replace('"crannog.formatVersion":"1"', '"crannog.formatVersion":"2"'))
    with pytest.raises(Refused, match="upgrade"):
        lakes().table(NAME)


def test_settings_have_the_protocols_defaults() -> None:
    settings = Settings()
    assert settings.dedup_window_s == 24 * 3600
    assert settings.fold_grace_s == settings.retention_floor_s == 3600
    assert settings.orphan_grace_s == 24 * 3600


def test_a_table_made_in_two_processes_at_once_is_one_table(lakes: Lakes, arrow: None) -> None:
    one, other = lakes(), lakes()
    with rules(other, Meanwhile("put_if_absent", LOG, lambda: one.create_table(NAME, SCHEMA).append([row(1)]))):
        table = other.create_table(NAME, SCHEMA, if_exists="ok")
    assert table.append([row(2)]).sequence == 2
    markers = list(Path(Behind(lakes.root, NAME).folder).glob("_crannog/*/table.json"))
    assert len(markers) == 1
    agree([1, 2], table, one.table(NAME))
