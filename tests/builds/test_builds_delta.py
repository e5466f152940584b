"""The Delta log: what lies on disk, and a read model that is never believed over the table."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import crannog
from build_samples import one_of_each, partition, random_stream, request, whole_build
from crannog.builds import BuildRequestStatus, PartitionStatus, check, open_log
from crannog.builds.read_model.tables import Migration
from crannog.builds.stores import delta_read_model
from crannog.builds.stores.delta_log import DeltaLog
from crannog.builds.stores.event_table import Step, migrate_table, stored_version
from crannog.delta.schemas import user_columns
from crannog.engine.maintenance.evolve import evolve
from crannog.engine.maintenance.fold import fold
from crannog.engine.open_table import OpenTable
from crannog.errors import CallerError, Conflict, Corrupted, Refused, Unavailable
from crannog.spark.session import SparkRuntime
from s3 import s3_client, s3_location, s3_server  # noqa: F401

B, P = BuildRequestStatus, PartitionStatus


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


@pytest.fixture
def log(warehouse: Path) -> Iterator[DeltaLog]:
    opened = opened_at(warehouse)
    yield opened
    opened.close()


def opened_at(warehouse: Path, **options: Any) -> DeltaLog:
    log = open_log(f"delta://{warehouse}", **options)
    assert isinstance(log, DeltaLog)
    return log


def root(warehouse: Path) -> Path:
    return warehouse / "crannog" / "builds" / "build_events"


def staged_rows(warehouse: Path) -> list[dict[str, Any]]:
    """What lies in the stage, read without our code."""
    files = sorted(root(warehouse).glob("_crannog/*/stage/*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def model_file(warehouse: Path) -> Path:
    [found] = root(warehouse).glob("_crannog/*/builds/model.sqlite")
    return found


def test_the_table_has_exactly_the_columns_of_the_plan(log: DeltaLog, warehouse: Path) -> None:
    table = DeltaTable(str(root(warehouse)))
    schema = pa.schema(table.schema())
    status = [("status_code", pa.int32()), ("status_name", pa.string())]
    text, names = pa.string(), pa.list_(pa.string())
    wanted = {
        "event_id": text,
        "timestamp": pa.int64(),
        "build_request_id": text,
        "event_type": text,
        "build_request_event": [*status, ("requested_partitions", names), ("message", text)],
        "partition_event": [("partition_ref", text), *status, ("message", text), ("job_run_id", text)],
        "job_event": [
            ("job_run_id", text), ("job_label", text), ("target_partitions", names), *status, ("message", text),
            ("config", text), ("manifests", text),
        ],
        "delegation_event": [("partition_ref", text), ("delegated_to_build_request_id", text), ("message", text)],
        "job_graph_event": [("job_graph", text), ("message", text)],
        "partition_invalidation_event": [("partition_ref", text), ("reason", text)],
        "task_cancel_event": [("job_run_id", text), ("reason", text)],
        "build_cancel_event": [("reason", text)],
        "index": pa.int64(),
        "partition_date": pa.date32(),
    }  # fmt: skip
    assert [name for name in schema.names if not name.startswith("_")] == list(wanted)
    for name, kind in wanted.items():
        found = schema.field(name).type
        if isinstance(kind, list):
            assert [(child.name, _plain(child.type)) for child in found] == kind, name
        else:
            assert found == kind, name
        assert schema.field(name).nullable == isinstance(kind, list), name
    assert table.metadata().configuration["crannog.builds.schemaVersion"] == "1"


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.list_(kind.value_type) if pa.types.is_list(kind) else kind


def test_an_append_is_one_staged_file_with_the_events_as_rows(log: DeltaLog, warehouse: Path) -> None:
    events = one_of_each()
    log.append_events(events)
    rows = staged_rows(warehouse)
    assert [row["index"] for row in rows] == list(range(1, 9))
    assert [row["event_id"] for row in rows] == [event.event_id for event in events]
    assert {row["_seq"] for row in rows} == {1}
    for row, event in zip(rows, events, strict=True):
        assert (row["timestamp"], row["event_type"]) == (event.timestamp, event.event_type)
        assert row["partition_date"] == dt.date(2023, 11, 14)
        filled = [name for name in row if name.endswith("_event") and row[name] is not None]
        assert filled == [event.kind.column]
    assert json.loads(rows[2]["job_event"]["config"]) == events[2].payload.config  # type: ignore[union-attr]
    assert rows[1]["partition_event"]["status_name"] == "PARTITION_BUILDING"


def test_an_append_that_storage_refuses_is_not_acknowledged(
    log: DeltaLog, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full, or the folder read-only: every caller hears of it, and nothing was kept."""
    log.append_event(request("b1", B.RECEIVED))
    put, failing = log.warehouse.storage.put_if_absent, threading.Event()

    def full(path: str, data: bytes, **options: Any) -> bool:
        if failing.is_set() and "/stage/" in path:
            raise Unavailable(f"cannot write {path}: No space left on device")
        return put(path, data, **options)

    monkeypatch.setattr(log.warehouse.storage, "put_if_absent", full)
    failing.set()
    heard: list[Unavailable] = []

    def append(number: int) -> None:
        with pytest.raises(Unavailable, match="No space left") as failure:
            log.append_events(one_of_each(f"full-{number}"))
        heard.append(failure.value)

    threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heard) == 4
    assert (log.head(), len(staged_rows(warehouse))) == (1, 1)
    failing.clear()
    assert log.append_events(one_of_each("full-0")) == list(range(2, 10))
    assert len(staged_rows(warehouse)) == 9


def test_the_model_of_somebody_else_is_left_alone(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's files can be read but not changed: this process has a model of its own, in memory."""
    with opened_at(warehouse) as log:
        log.append_events(one_of_each())

    def may_not(*_: object, **__: object) -> None:
        raise Refused("the build log is read-only: attempt to write a readonly database")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    prepare = delta_read_model.prepare
    monkeypatch.setattr(
        delta_read_model, "prepare", lambda model, where: may_not() if where != "None" else prepare(model, where)
    )
    monkeypatch.setattr(Path, "unlink", denied)
    with opened_at(warehouse) as log:
        assert log.stats().store["model"] == "memory"
        assert len(list(log.all_events())) == 8


def test_the_read_model_is_made_again_when_it_is_gone_damaged_or_wrong(warehouse: Path) -> None:
    events = list(random_stream(11, 60))
    with opened_at(warehouse) as log:
        log.append_events(events)
        assert log.head() == 60
    file = model_file(warehouse)

    def reopened() -> None:
        with opened_at(warehouse) as log:
            assert list(log.all_events()) == events
            assert log.append_event(events[7]) == 8
            assert check(log).problems == ()

    file.unlink()
    reopened()
    file.write_bytes(b"this is no database" * 1000)
    reopened()
    with sqlite3.connect(file) as raw:
        raw.execute("DELETE FROM events WHERE idx IN (3, 60)")
    raw.close()
    reopened()
    with sqlite3.connect(file) as raw:
        raw.execute("UPDATE meta SET value = '999' WHERE name = 'sequence'")
    raw.close()
    reopened()
    with sqlite3.connect(file) as raw:
        raw.execute("UPDATE meta SET value = 'another' WHERE name = 'table_id'")
    raw.close()
    reopened()


def test_a_wrong_row_in_the_model_is_found_by_the_check(log: DeltaLog, warehouse: Path) -> None:
    log.append_events(whole_build("b1", ["p"]))
    log.head()
    with sqlite3.connect(model_file(warehouse)) as raw:
        raw.execute("UPDATE events SET timestamp = 5 WHERE idx = 3")
        raw.execute("UPDATE partitions SET status = 5")
    raw.close()
    problems = check(log).problems
    assert any("row 3 of crannog.builds.build_events differs from the read model" in problem for problem in problems)
    assert any("table partitions" in problem for problem in problems)
    log.rebuild()
    assert check(log).problems == ()


def test_two_openings_share_one_model_or_have_their_own(warehouse: Path, tmp_path: Path) -> None:
    with opened_at(warehouse) as one, opened_at(warehouse) as two, opened_at(warehouse, model="memory") as three:
        for number, event in enumerate(random_stream(12, 45)):
            (one, two, three)[number % 3].append_event(event)
        whole = list(random_stream(12, 45))
        assert list(one.all_events()) == list(two.all_events()) == list(three.all_events()) == whole
        one.remove_events([45, 44, 3])
        assert [log.head() for log in (one, two, three)] == [45, 45, 45]
        assert two.get_event(whole[2].event_id) is None
        assert three.append_event(request("new", B.RECEIVED)) == 46
        assert two.append_event(request("new", B.RECEIVED)) == 46


def test_folded_events_answer_like_staged_ones(warehouse: Path, spark: SparkRuntime) -> None:
    """The one test that starts Spark: events before and after a fold, read back by openings that saw none of it."""
    events = list(random_stream(13, 90))
    with opened_at(warehouse) as log, opened_at(warehouse, model="memory") as late:
        log.append_events(events[:40])
        assert late.head() == 40
        log.append_events(events[40:70])
        log.remove_events([5, 69, 70])
        fold(log.table)
        assert log.append_events(events[70:80]) == list(range(71, 81))
        log.remove_events([80, 6])
        fold(log.table)
        # The last event is gone from the base: its index must not be given again.
        left = [event for number, event in enumerate(events[:80], 1) if number not in (5, 6, 69, 70, 80)]
        assert list(late.all_events()) == left
        with opened_at(warehouse, model="memory") as fresh:
            assert list(fresh.all_events()) == left
            assert fresh.append_event(events[80]) == 81
            assert fresh.append_event(events[0]) == 1
            assert check(fresh).problems == ()
        assert late.append_events(events[81:]) == list(range(82, 91))
        assert check(log).problems == ()
        in_table = (
            DeltaTable(str(root(warehouse)))
            .to_pyarrow_table(columns=["index", "event_id", "partition_date"])
            .sort_by("index")
        )
        assert in_table["event_id"].to_pylist() == [event.event_id for event in left]
        assert log.stats().store["staged_rows"] == 10


def test_a_lake_reads_the_log_as_a_table(log: DeltaLog, warehouse: Path) -> None:
    log.append_events(whole_build("b1", ["p", "q"]))
    with crannog.connect(str(warehouse)) as lake:
        assert lake.tables() == ["crannog.builds.build_events"]
        rows = lake.table("crannog.builds.build_events").to_arrow()
        assert rows.num_rows == log.head()
    with open_log(f"delta://{root(warehouse)}") as by_table:
        assert by_table.head() == log.head()
    with open_log(f"delta://{warehouse}?table=other.place.events") as other:
        assert other.head() == 0


def test_rows_that_no_log_wrote_are_said(log: DeltaLog, warehouse: Path) -> None:
    log.append_event(partition("b", "p", P.BUILDING))
    with crannog.connect(str(warehouse)) as lake:
        row = staged_rows(warehouse)[0]
        mine = {name: value for name, value in row.items() if not name.startswith("_")}
        lake.operations.tables.open(log.name).write("append", [{**mine, "index": 17}], None)
    with pytest.raises(Corrupted, match="does not continue after index 1"):
        log.head()


def test_a_change_made_for_a_sequence_is_kept_there_or_not_at_all(log: DeltaLog) -> None:
    log.append_event(partition("b", "p", P.BUILDING))
    rows = pa.Table.from_pylist([{"event_id": "x", "timestamp": 0, "build_request_id": "b", "event_type": "build_cancel",
             "build_cancel_event": {"reason": ""}, "index": 2, "partition_date": dt.date(1970, 1, 1)}])  # fmt: skip
    with pytest.raises(Conflict, match="is at sequence 1, the change was prepared for 0"):
        log.table.stage(rows, after=0)
    assert log.table.log.is_last(1)
    assert not log.table.log.is_last(0)
    assert log.table.stage(rows, after=1).sequence == 2
    assert log.head() == 2


def test_versions_and_tables_that_are_no_log_are_refused(warehouse: Path) -> None:
    with crannog.connect(str(warehouse)) as lake:
        lake.create_table("some.other.table", pa.schema([("a", pa.int64())]))
    with pytest.raises(Refused, match="is a table but not a build log"):
        open_log(f"delta://{warehouse}?table=some.other.table")
    opened_at(warehouse).close()
    entry = root(warehouse) / "_delta_log" / f"{0:020}.json"
    entry.write_text(
        entry.read_text().replace('"crannog.builds.schemaVersion":"1"', '"crannog.builds.schemaVersion":"2"')
    )
    with pytest.raises(Refused, match="has schema version 2, this Crannog knows 1; upgrade"):
        opened_at(warehouse)
    with pytest.raises(CallerError, match="no parameter colour"):
        open_log(f"delta://{warehouse}?colour=red")


def test_an_older_table_is_brought_up_step_by_step_and_stamped(log: DeltaLog, warehouse: Path) -> None:
    log.append_events(one_of_each())
    ran: list[int] = []

    def with_a_column(number: int) -> Step:
        def step(table: OpenTable) -> None:
            ran.append(number)
            columns = user_columns(table.log.head().schema)
            if f"note_{number}" not in columns.names:
                evolve(table, columns.append(pa.field(f"note_{number}", pa.string())))

        return step

    steps = {1: with_a_column(1), 2: with_a_column(2)}
    with pytest.raises(Refused, match="has schema version 1; there is no step from 2 to 3"):
        migrate_table(log.table, log.uri, version=3, steps={1: steps[1]})
    assert DeltaTable(str(root(warehouse))).metadata().configuration["crannog.builds.schemaVersion"] == "2"
    migration = migrate_table(log.table, log.uri, version=3, steps=steps)
    assert (migration.before, migration.after, migration.changed) == (2, 3, True)
    assert migrate_table(log.table, log.uri, version=3, steps=steps) == Migration(3, 3)
    assert ran == [1, 2]
    # What was open goes on: old events are read, new ones are kept, the new column is null.
    assert log.append_event(partition("b", "p", P.BUILDING)) == 9
    assert len(list(log.all_events())) == 9
    assert log.table.to_arrow().column("note_1").null_count == 9
    history = DeltaTable(str(root(warehouse))).history()
    assert history[0]["operation"] == "UPGRADE BUILD LOG"
    with pytest.raises(Refused, match="has schema version 3, this Crannog knows 1; upgrade"):
        opened_at(warehouse)


def test_a_step_that_was_cut_off_or_runs_twice_at_once_is_stamped_once(log: DeltaLog, warehouse: Path) -> None:
    log.append_events(one_of_each())
    began, both = [], threading.Barrier(2)

    def fails(table: OpenTable) -> None:
        began.append(1)
        raise Unavailable("the power went")

    with pytest.raises(Unavailable):
        migrate_table(log.table, log.uri, version=2, steps={1: fails})
    assert stored_version(log.table, log.uri) == 1

    with opened_at(warehouse) as other:
        assert isinstance(other, DeltaLog)
        found: list[Migration] = []
        threads = [
            threading.Thread(
                target=lambda one=one: found.append(
                    migrate_table(one.table, one.uri, version=2, steps={1: lambda _: both.wait(20) and None})
                )
            )
            for one in (log, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [Migration(1, 2)] * 2
    operations = [entry["operation"] for entry in DeltaTable(str(root(warehouse))).history()]
    assert operations.count("UPGRADE BUILD LOG") == 1


def test_the_log_is_a_table_for_sql_that_only_reads(log: DeltaLog, warehouse: Path) -> None:
    log.append_events(one_of_each())
    log.append_event(partition("b2", "p/9", P.AVAILABLE))
    with crannog.connect(str(warehouse)) as lake:
        found = lake.sql(
            "SELECT partition_event.partition_ref AS ref, partition_event.status_name AS status"
            " FROM crannog.builds.build_events WHERE event_type = 'partition' ORDER BY `index`"
        )
        assert found.table.to_pylist() == [
            {"ref": "p/1", "status": "PARTITION_BUILDING"},
            {"ref": "p/9", "status": "PARTITION_AVAILABLE"},
        ]
        [row] = lake.sql(
            "SELECT count(*) AS events, max(`index`) AS head FROM crannog.builds.build_events"
        ).table.to_pylist()
        assert row == {"events": 9, "head": 9}
        with pytest.raises(CallerError):
            lake.sql("DELETE FROM crannog.builds.build_events")
    assert log.head() == 9


def test_a_log_in_a_bucket(s3_location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_client: Any) -> None:  # noqa: F811
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    events = list(random_stream(31, 30))
    with open_log(f"delta+{s3_location}") as log, open_log(f"delta+{s3_location}", model="memory") as other:
        log.append_events(events[:20])
        assert other.append_events(events[15:]) == [16, 17, 18, 19, 20, *range(21, 31)]
        assert log.append_event(events[29]) == 30
        assert list(log.all_events()) == list(other.all_events()) == events
        log.remove_events([30])
        assert log.append_event(request("b", B.RECEIVED)) == 31
    bucket, _, prefix = s3_location.removeprefix("s3://").partition("/")
    names = [item["Key"] for item in s3_client.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]]
    assert sum("/stage/" in name for name in names) == 4
    assert not any(name.endswith("model.sqlite") for name in names)
    cache = tmp_path / "cache" / "crannog" / "builds"
    assert list(cache.glob("*.sqlite"))
    assert cache.stat().st_mode & 0o077 == 0


def test_a_read_while_another_thread_closes_the_log_says_that_it_is_closed(log: DeltaLog) -> None:
    log.append_event(request("b", B.RECEIVED))
    sync = log._sync
    log.close()
    # As that read may find it: the folder looked open, and is not.
    sync._stage, sync._unchanged_since = 1_000_000, 1
    try:
        with pytest.raises(CallerError, match="closed"):
            log.head()
    finally:
        sync._stage = None
