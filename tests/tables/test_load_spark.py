"""Large files through Spark: one verified commit, exactly once, whoever else loads the same file and whoever dies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from crannog.embedded import EmbeddedLake as Lake
from crannog.errors import BadRows, Unavailable
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from crannog.storage import failpoints
from crannog.tables import load_write as write
from crannog.tables import spark_load as bulk
from lakes import actions, opened, read_delta_rs, root
from loads import NAME, put, rows_of

COUNT = 1000


@pytest.fixture
def lake(settings: Settings, spark: SparkRuntime, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    monkeypatch.setattr(write, "BATCH_ROWS", 100)
    with opened(settings, load_spark_bytes=1) as found:
        yield found


def csv_of(count: int = COUNT) -> str:
    return "id,day,note\n" + "".join(f'{n},2026-01-0{n % 3 + 1},"a\nb{n}"\n' for n in range(count))


def loads(lake: Lake) -> list[dict[str, Any]]:
    return [info for _, info in actions(root(lake, NAME), "commitInfo") if info["operation"] == "LOAD"]


def test_a_large_file_is_one_commit_that_any_delta_reader_sees(lake: Lake, settings: Settings, tmp_path: Path) -> None:
    path = put(tmp_path, "f.csv", csv_of() + "x\n")
    with pytest.raises(BadRows):
        lake.load(path, NAME, create=True)
    report = lake.load(path, NAME, create=True, partition_by="day", reject=str(tmp_path / "bad"))
    assert (report.rows, report.bad_rows, report.batches, report.files[0].engine) == (COUNT, 1, 10, "spark")
    assert lake.table(NAME).describe()["staged_rows"] == 0
    found = read_delta_rs(root(lake, NAME))
    assert sorted(found["id"].to_pylist()) == list(range(COUNT))
    assert found.filter(pc.equal(found["id"], 7))["note"].to_pylist() == ["a\nb7"]
    assert found["_batch_id"].null_count == found["_created_at"].null_count == 0
    [entry] = loads(lake)
    assert json.loads(entry["operationParameters"]["batches"]) == [[0, 9]]
    # Neither Spark nor the stage, in this process or another, keeps it again.
    assert lake.load(path, NAME, max_bad=1).duplicate
    with opened(settings) as other:
        again = other.load(path, NAME, max_bad=1)
        assert (again.duplicate, again.files[0].engine) == (True, "stream")
        assert other.table(NAME).count() == COUNT
    assert not list((root(lake, NAME) / "_crannog").glob("*/jobs/*"))


@pytest.mark.slow
def test_what_a_stopped_stream_kept_is_not_loaded_by_spark_again(
    lake: Lake, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path, "f.csv", csv_of())
    with opened(settings) as streaming:
        table_type = type(
            streaming.create_table(NAME, pa.schema([("id", pa.int64()), ("day", pa.date32()), ("note", pa.string())]))
        )
        real, calls = table_type.append, []

        def dies(self: Any, rows: Any, batch_id: str | None = None) -> Any:
            calls.append(1)
            if len(calls) == 4:
                raise Unavailable("the disk is away")
            return real(self, rows, batch_id)

        monkeypatch.setattr(table_type, "append", dies)
        with pytest.raises(Unavailable, match="300 rows were kept before it stopped"):
            streaming.load(path, NAME)
    report = lake.load(path, NAME)
    assert (report.rows, report.duplicate_rows) == (700, 300)
    assert sorted(row["id"] for row in rows_of(lake)) == list(range(COUNT))
    assert json.loads(loads(lake)[0]["operationParameters"]["batches"]) == [[3, 9]]


@pytest.mark.slow
def test_two_that_load_the_same_file_at_once_keep_it_once(lake: Lake, settings: Settings, tmp_path: Path) -> None:
    path = put(tmp_path, "f.csv", csv_of())
    lake.load(put(tmp_path, "g.csv", csv_of(3)), NAME, create=True)
    reports = []

    def another_process(phase: str) -> None:
        if phase == "rewrite.synced":
            failpoints.hook = None
            with opened(settings, load_spark_bytes=1) as other:
                reports.append(other.load(path, NAME))

    failpoints.hook = another_process
    try:
        reports.append(lake.load(path, NAME))
    finally:
        failpoints.hook = None
    assert sorted((report.rows, report.duplicate_rows) for report in reports) == [(0, COUNT), (COUNT, 0)]
    assert lake.table(NAME).count() == COUNT + 3
    assert len(loads(lake)) == 2


@pytest.mark.slow
def test_a_loader_that_dies_at_any_moment_leaves_all_or_nothing_and_can_be_repeated(
    lake: Lake, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path, "f.csv", csv_of())
    lake.create_table(NAME, pa.schema([("id", pa.int64()), ("day", pa.date32()), ("note", pa.string())]))

    def dies(phase: str) -> None:
        if phase == "rewrite.synced":
            raise KeyboardInterrupt

    failpoints.hook = dies
    try:
        with pytest.raises(KeyboardInterrupt):
            lake.load(path, NAME)
    finally:
        failpoints.hook = None
    assert lake.table(NAME).count() == 0
    with monkeypatch.context() as patch:
        patch.setattr(bulk._SparkLoad, "_remember", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            lake.load(path, NAME)
    with opened(settings, load_spark_bytes=1) as other:
        assert other.table(NAME).count() == COUNT
        assert other.load(path, NAME).duplicate
    # Once one has looked, the stage knows it too.
    with opened(settings) as streaming:
        assert streaming.load(path, NAME).duplicate
        assert streaming.table(NAME).count() == COUNT


@pytest.mark.slow
def test_a_table_with_a_key_is_never_loaded_past_its_stage(lake: Lake, tmp_path: Path) -> None:
    report = lake.load(put(tmp_path, "f.csv", csv_of()), NAME, create=True, key="id")
    assert report.files[0].engine == "stream"
    lake.load(put(tmp_path, "g.csv", "id,note\n5,new\n"), NAME)
    assert lake.sql(f"select note from {NAME} where id = 5").rows() == [{"note": "new"}]
