"""The lake in a bucket: the same promises on S3's own API (moto's server), Spark through s3a included."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.s3.responses import S3Response

from crannog.delta.log import put_entry
from crannog.errors import NotFound
from crannog.names import TableName
from crannog.protocol.changelog import ChangeLog
from crannog.settings import load_settings
from crannog.spark import jars
from crannog.storage import failpoints
from crash_child import (
    KEYED,
    PLAIN,
    TABLES,
    Child,
    batch_of,
    check_kept,
    check_plain_delta,
    check_retries,
    connect,
    last_turns,
    make_tables,
    plain_delta,
    row_of,
    rows_by_writer,
    send,
)
from test_processes import check_contended, check_twins, plans_for, run_together

pytest_plugins = ["crash_child", "s3"]


@pytest.fixture(autouse=True, scope="module")
def _atomic_puts() -> Iterator[None]:
    """Make the server's conditional put one step, as S3's is: moto looks, and puts later, and other threads come between."""
    lock = threading.Lock()
    put = S3Response.put_object

    def locked(response: S3Response) -> Any:
        with lock:
            return put(response)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(S3Response, "put_object", locked)
        yield


@pytest.fixture
def lake(s3_location: str) -> Iterator[Any]:
    with connect(s3_location) as lake:
        make_tables(lake)
        yield lake


def objects(client: Any, location: str) -> dict[str, bytes]:
    """Return every object below a location, read behind our code's back."""
    bucket, _, prefix = location.removeprefix("s3://").partition("/")
    found = {}
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for entry in page.get("Contents", []):
            found[entry["Key"].removeprefix(f"{prefix}/")] = client.get_object(Bucket=bucket, Key=entry["Key"])[
                "Body"
            ].read()
    return found


def write(lake: Any, writer: str, turns: range) -> dict[tuple[str, str], int]:
    for turn in turns:
        for table in TABLES:
            assert not send(lake, table, batch_of(table, writer, turn)).duplicate
    return {(table, writer): turns[-1] for table in TABLES}


# -- without Spark -------------------------------------------------------------------------------------------


def test_what_was_written_is_read_by_this_and_every_other_process(lake: Any, s3_location: str) -> None:
    began = time.monotonic()
    last = write(lake, "w", range(20))
    print(f"40 writes took {time.monotonic() - began:.2f} s")
    assert check_kept(lake, last) == last
    with connect(s3_location) as other:
        assert other.tables() == sorted(TABLES)
        assert check_kept(other, last) == last
        check_retries(other, last, last)
        kept = {place: turn + 1 for place, turn in last.items()}
        # Staged by the other one: seen here once the snapshot is older than refresh_ms.
        time.sleep(lake.settings.refresh_ms / 1000 + 0.05)
        assert check_kept(lake, kept) == kept
    assert lake.table(KEYED).describe()["staged_rows"] > 0
    assert lake.table(KEYED).tombstones()


def test_a_batch_sent_through_two_connections_at_once_is_kept_once(lake: Any, s3_location: str) -> None:
    with connect(s3_location) as other:
        for turn in range(5):
            receipts: list[Any] = []
            gate = threading.Barrier(2)

            def race(through: Any, turn: int = turn, gate: Any = gate, receipts: list[Any] = receipts) -> None:
                gate.wait()
                receipts.append(send(through, PLAIN, batch_of(PLAIN, "w", turn)))

            threads = [threading.Thread(target=race, args=(through,)) for through in (lake, other)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert sorted(receipt.duplicate for receipt in receipts) == [False, True]
            assert len({receipt.sequence for receipt in receipts}) == 1
    with connect(s3_location) as fresh:
        assert check_kept(fresh, {(PLAIN, "w"): 4}) == {(PLAIN, "w"): 4}


def test_a_block_of_changes_becomes_one_object(lake: Any, s3_client: Any, s3_location: str) -> None:
    began = time.monotonic()
    for turn in range(70):
        send(lake, KEYED, batch_of(KEYED, "w", turn))
    last = {(KEYED, "w"): 69}
    deadline = time.monotonic() + 30
    while len(staged := [name for name in objects(s3_client, s3_location) if "/stage/" in name]) != 8:
        assert time.monotonic() < deadline, staged
        time.sleep(0.05)
    print(f"70 writes and a pack took {time.monotonic() - began:.2f} s")
    assert sorted(name.rpartition("/")[2] for name in staged) == [
        *(f"{sequence:020}.parquet" for sequence in range(64, 71)),
        "pack-64-0000000000.parquet",
    ]
    assert check_kept(lake, last) == last
    with connect(s3_location) as other:
        assert check_kept(other, last) == last
        check_retries(other, last, last)


def test_a_pack_under_way_when_its_rows_are_erased_does_not_arrive(
    lake: Any, s3_client: Any, s3_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A put to a bucket cannot be called off: the erasure takes the name of a pack that was announced."""
    monkeypatch.setattr(ChangeLog, "work_due", lambda self: [])
    name, needle = "shop.s3.late", "ann@example.org"
    table = lake.create_table(name, pa.schema([("email", pa.string())]))
    for number in range(63):
        table.append([{"email": needle if number == 5 else f"p{number}"}])
    with connect(s3_location) as other:
        packing, erasing = (
            lake.operations.tables.open(TableName.parse(name)).log,
            other.operations.tables.open(TableName.parse(name)).log,
        )
        storage = other.operations.warehouse.storage

        def erase(phase: str) -> None:
            if phase != "stage.written":
                return
            monkeypatch.setattr(failpoints, "hook", None)
            # What the fold and the deletions of an erasure leave, without Spark.
            fold = {"txn": {"appId": erasing.table_id, "version": 63, "lastUpdated": 0}}
            assert put_entry(storage, erasing.log.entry_path(1), [{"commitInfo": {"timestamp": 0}}, fold])
            assert erasing.end_unfinished_puts()
            storage.delete(
                f"{erasing.stage_folder}/{each}" for each in erasing.staged_names() if not each.startswith("pack")
            )

        monkeypatch.setattr(failpoints, "hook", erase)
        assert packing.pack() == 0
        assert failpoints.hook is None
        found = objects(s3_client, s3_location)
        assert [path for path, data in found.items() if needle.encode() in data] == []
        assert [path.rpartition("/")[2] for path in found if "/stage/" in path] == ["pack-64-0000000000.parquet"], (
            "the name is taken"
        )
        for each in (lake, other):
            assert each.table(name).append([{"email": "after"}]).sequence >= 64
        assert other.table(name).count() == 2


def test_threads_of_two_connections_write_one_table(lake: Any, s3_location: str) -> None:
    began = time.monotonic()
    with connect(s3_location) as other:

        def turns(through: Any, writer: str) -> None:
            for turn in range(10):
                send(through, PLAIN, batch_of(PLAIN, writer, turn))

        writers = {f"{name}{number}": through for name, through in (("a", lake), ("b", other)) for number in range(3)}
        threads = [threading.Thread(target=turns, args=(through, writer)) for writer, through in writers.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    print(f"60 writes by 6 threads of 2 connections took {time.monotonic() - began:.2f} s")
    with connect(s3_location) as fresh:
        last = {(PLAIN, writer): 9 for writer in writers}
        assert check_kept(fresh, last) == last


def test_a_dropped_table_is_gone_and_its_writers_are_told(lake: Any, s3_client: Any, s3_location: str) -> None:
    write(lake, "old", range(6))
    with connect(s3_location) as other:
        send(other, PLAIN, batch_of(PLAIN, "other", 0))
        lake.drop_table(PLAIN)
        assert not [name for name in objects(s3_client, s3_location) if name.startswith("lake/crash/plain/")]
        assert lake.tables() == [KEYED]
        with pytest.raises(NotFound):
            send(other, PLAIN, batch_of(PLAIN, "other", 1))
        with pytest.raises(NotFound):
            lake.drop_table(PLAIN)
        # Made again under its name, it has nothing of the old one, in whatever process had that open.
        make_tables(lake)
        send(other, PLAIN, batch_of(PLAIN, "new", 0))
        for through in (lake, other):
            assert check_kept(through, {(PLAIN, "new"): 0}) == {(PLAIN, "new"): 0}
    assert check_kept(lake, {(KEYED, "old"): 5}) == {(KEYED, "old"): 5}


def test_a_task_is_claimed_once_and_taken_over_when_its_holder_is_silent(lake: Any, s3_location: str) -> None:
    with connect(s3_location, claim_lease_s=0.5) as other:
        lease = lake.operations.control.claim("work", "a")
        assert lease is not None
        with lease:
            assert lake.operations.control.claim("work", "b") is None
            assert lake.operations.control.release("work", "a", result="done", interval_s=0)
        assert lake.operations.control.claim("work", "dead") is not None
        time.sleep(2.1)  # the store's times are whole seconds
        heir = other.operations.control.claim("work", "b")
        assert heir is not None
        with heir:
            assert not lake.operations.control.release("work", "dead", result="too late", interval_s=0)
            assert other.operations.control.release("work", "b", result="done", interval_s=3600)
    assert lake.operations.control.claim("work", "c") is None
    [task] = lake.tasks()
    assert (task["status"], task["last_result"]) == ("idle", '"done"')


# -- with Spark, in a process of its own: this one's session may lack the jars --------------------------------


@pytest.fixture
def mother(request: pytest.FixtureRequest) -> Child | None:
    """The nursery if its Spark has the jars for S3, else None: then a child starts a Spark of its own and gets them."""
    if jars.present(jars.S3_SET, load_settings()) is None:
        return None
    nursery: Child = request.getfixturevalue("nursery")
    return nursery


def test_spark_folds_compacts_erases_and_reads_in_a_bucket(
    mother: Child | None, s3_client: Any, s3_location: str
) -> None:
    began = time.monotonic()
    with Child(s3_location, mother=mother, mode="tour") as child:
        code = child.wait(280)
        for line in child.all_lines():
            print(f"{line.get('step', 'in all')}: {line.get('seconds', round(time.monotonic() - began, 1))} s")
        assert code == 0, child.words()
    [report] = [line for line in child.lines if "done" in line]
    last = {(table, writer): turn for table, writer, turn in report["last"]}
    with connect(s3_location) as lake:
        assert check_kept(lake, last) == last
        for table in TABLES:
            check_plain_delta(lake, table)
        stored = objects(s3_client, s3_location)
        for name, data in stored.items():
            assert b"secret/1" not in data, f"{name} still shows the erased key"
            if name.startswith("lake/crash/keyed/") and name.endswith(".parquet") and "_delta_log" not in name:
                assert "secret/1" not in pq.read_table(pa.BufferReader(data), columns=["id"])["id"].to_pylist(), name
        # Whatever markers of folders Hadoop leaves, nothing else lies among the data.
        for table in TABLES:
            folder = table.replace(".", "/")
            live = {
                f"{folder}/{path}" for path in pa.table(plain_delta(lake, table).get_add_actions())["path"].to_pylist()
            }
            lying = {name for name, data in stored.items() if name.startswith(f"{folder}/data/") and data}
            assert live <= lying
            if table == PLAIN:
                assert lying == live, "the table was just made"


def check_together_in_bucket(location: str, children: list[Child]) -> None:
    acknowledged = [line for child in children for line in child.acknowledged()]
    last = {place: turn for child in children for place, turn in last_turns(child.acknowledged()).items()}
    with connect(location) as lake:
        assert check_kept(lake, last) == last
        check_twins(rows_by_writer(lake.table(PLAIN).to_arrow()), acknowledged)
        check_contended(rows_by_writer(lake.table(KEYED).to_arrow()), acknowledged)


@pytest.mark.slow
def test_processes_that_only_write_to_a_bucket(lake: Any, s3_location: str, tmp_path: Path) -> None:
    children = run_together(s3_location, plans_for(4, with_spark=0), tmp_path, seconds=20, steps=0)
    check_together_in_bucket(s3_location, children)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_processes_write_and_fold_in_a_bucket_at_once(
    mother: Child | None, lake: Any, s3_location: str, tmp_path: Path, count: int
) -> None:
    plans = plans_for(count, with_spark=count, pause=0.05, writers=1, settings={"spark_memory_mb": 768})
    children = run_together(s3_location, plans, tmp_path, seconds=30, steps=3)
    check_together_in_bucket(s3_location, children)
    # All of it in the base, by one more process with Spark: then plain delta-rs reads the same.
    with Child(s3_location, mother=mother, spark=True, seconds=0, writers=0, **{"finally": ["fold"]}) as folder:
        assert folder.wait(200) == 0, folder.words()
    for table in TABLES:
        check_plain_delta(lake, table)
    check_together_in_bucket(s3_location, children)


@pytest.mark.slow
@pytest.mark.parametrize(
    "phase", ["stage.linked", "rewrite.files_written", "rewrite.ledger_written", "rewrite.committed"]
)
def test_killed_while_it_works_in_a_bucket(mother: Child | None, lake: Any, s3_location: str, phase: str) -> None:
    with Child(
        s3_location,
        mother=mother,
        spark=True,
        do=["fold"],
        phase=phase,
        hit=2,
        during="fold",
        after_acks=10,
        pause=0.05,
    ) as child:
        assert child.wait(200) == -9, child.words()
        last = {(table, f"0.{n}"): -1 for table in TABLES for n in range(2)} | last_turns(child.acknowledged())
    with connect(s3_location) as other:
        there = check_kept(other, last)
        check_retries(other, last, there)
        kept = {place: turn + 1 for place, turn in last.items()}
        assert check_kept(other, kept) == kept
    with Child(s3_location, mother=mother, spark=True, seconds=0, writers=0, **{"finally": ["fold"]}) as folder:
        assert folder.wait(200) == 0, folder.words()
    with connect(s3_location) as other:
        assert check_kept(other, kept) == kept
        for table in TABLES:
            check_plain_delta(other, table)


@pytest.mark.slow
def test_rows_of_a_large_batch_survive_a_fold_in_a_bucket(mother: Child | None, lake: Any, s3_location: str) -> None:
    rows = [row_of(f"many/{number}", "many!", 0) for number in range(200_000)]
    lake.table(PLAIN).append(rows)
    with Child(
        s3_location, mother=mother, spark=True, seconds=0, writers=0, **{"finally": ["fold", "compact"]}
    ) as folder:
        assert folder.wait(280) == 0, folder.words()
    with connect(s3_location) as other:
        assert other.table(PLAIN).describe()["staged_rows"] == 0
        assert rows_by_writer(other.table(PLAIN).to_arrow())["many!"] == {row["id"]: 0 for row in rows}
