"""The Parquet layout: what was promised at creation stands in the footers after every kind of write."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from crannog.embedded import EmbeddedLake as Lake
from crannog.embedded import EmbeddedTable as Table
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from lakes import INSTANT, actions, footers, live_files, opened, root

ROWS = 70_000
ROW_GROUP = 32_768

EVENTS = pa.schema(
    [
        ("event_id", pa.string()),
        ("group_id", pa.string()),  # few values: a dictionary would swallow its bloom filter
        ("user_key", pa.string()),
        ("city", pa.string()),
        ("number", pa.int64()),
        ("code", pa.int32()),
        ("at", INSTANT),
        ("text", pa.string()),
    ]
)
BLOOMS = {"event_id", "group_id", "user_key", "city", "number", "_batch_id"}


def events(start: int, count: int) -> pa.Table:
    numbers = np.arange(start, start + count)
    return pa.table(
        {
            "event_id": [f"{number:06}-{uuid.UUID(int=int(number) * 7919).hex}" for number in numbers],
            "group_id": [f"g{number % 3}" for number in numbers],
            "user_key": [None if number % 5 == 0 else f"u{number % 1000}" for number in numbers],
            "city": [("Oslo", "Łódź", "Bern")[number % 3] for number in numbers],
            "number": numbers,
            "code": pa.array(numbers % 7, pa.int32()),
            "at": pa.array(1_700_000_000_000_000 + numbers * 1_003, INSTANT),
            "text": [f"some text {number % 11}" for number in numbers],
        },
        schema=EVENTS,
    )


def check_layout(path: Path, *, rows: int, blooms: set[str] = BLOOMS, files: int | None = None) -> None:
    """Read the footers behind everybody's back."""
    found = footers(path)
    assert sum(meta.num_rows for meta in found) == rows
    assert files is None or len(found) == files
    for meta in found:
        for group in range(meta.num_row_groups):
            row_group = meta.row_group(group)
            assert row_group.num_rows <= ROW_GROUP
            assert row_group.num_rows == ROW_GROUP or group == meta.num_row_groups - 1, "only the last may be smaller"
            chunks = {chunk.path_in_schema: chunk for chunk in map(row_group.column, range(row_group.num_columns))}
            for name, chunk in chunks.items():
                where = f"{name} in row group {group}"
                assert chunk.compression == "ZSTD", where
                assert chunk.has_column_index, where
                assert chunk.has_offset_index, where
                assert (chunk.bloom_filter_offset is not None) == (name in blooms), where
                if name in blooms:
                    assert 0 < chunk.bloom_filter_length <= 64 * 1024 + 64, where
                    assert not chunk.has_dictionary_page, where
            for name in ("at", "_created_at"):
                assert "DELTA_BINARY_PACKED" in chunks[name].encodings
                assert not chunks[name].has_dictionary_page
            assert "DELTA_BYTE_ARRAY" in chunks["event_id"].encodings


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: SparkRuntime) -> Iterator[Lake]:
    place = tmp_path_factory.mktemp("layout") / "warehouse"
    with opened(Settings(warehouse=str(place))) as lake:
        yield lake


@pytest.fixture(scope="module")
def table(lake: Lake) -> Table:
    """70,000 rows in two files, not compacted."""
    table = lake.create_table("layout.plain.events", EVENTS, cluster_by=["event_id"], bloom=["city", "number"])
    for start in (0, ROWS // 2):
        table.append(events(start, ROWS // 2))
        table.fold()
    return table


def test_the_layout_stands_after_fold_compaction_and_evolution(lake: Lake, table: Table) -> None:
    path = root(lake, table.name)
    check_layout(path, rows=ROWS, files=2)
    before = DeltaTable(str(path)).metadata().configuration
    assert before["parquet.compression"] == "zstd"
    assert before["delta.checkpointInterval"] == "5"

    report = table.compact()
    assert (report.files_before, report.files_after) == (2, 1)
    check_layout(path, rows=ROWS, files=1)
    [meta] = footers(path)
    assert [meta.row_group(group).num_rows for group in range(meta.num_row_groups)] == [32_768, 32_768, 4_464]
    ids = pq.read_table(live_files(path)[0], columns=["event_id"])["event_id"].to_pylist()
    assert ids == sorted(ids), "clustered by the id"
    assert DeltaTable(str(path)).metadata().configuration == before

    # A new column that should have a bloom filter gets it, and the old ones keep theirs.
    grown = pa.schema([*EVENTS, ("order_id", pa.string())])
    table.evolve(grown)
    table.evolve(pa.schema([field if field.name != "code" else pa.field("code", pa.int64()) for field in grown]))
    after = DeltaTable(str(path)).metadata().configuration
    assert {name: after[name] for name in before if name != "delta.dataSkippingStatsColumns"} == {
        name: value for name, value in before.items() if name != "delta.dataSkippingStatsColumns"
    }
    assert set(before["delta.dataSkippingStatsColumns"].split(",")) <= set(
        after["delta.dataSkippingStatsColumns"].split(",")
    )
    assert after["parquet.bloom.filter.enabled#order_id"] == "true"
    assert json.loads(after["crannog.bloom"]) == ["city", "number"]
    check_layout(path, rows=ROWS, files=1, blooms=BLOOMS | {"order_id"})

    table.append([{"event_id": "x", "order_id": "o1"}])
    table.fold()
    check_layout(path, rows=ROWS + 1, files=2, blooms=BLOOMS | {"order_id"})


def test_a_bloom_filter_excludes_what_is_not_there(lake: Lake, table: Table) -> None:
    present, absent = "000007-" + uuid.UUID(int=7 * 7919).hex, "000007-" + uuid.UUID(int=8 * 7919).hex
    with duckdb.connect() as connection:
        kept = excluded = 0
        for file in live_files(root(lake, table.name)):
            for value, column in ((present, "event_id"), ("g1", "group_id"), ("Łódź", "city")):
                kept += sum(not hit for hit in probe(connection, file, column, value))
            for value, column in ((absent, "event_id"), ("g9", "group_id"), ("Rome", "city")):
                answers = probe(connection, file, column, value)
                excluded += sum(answers)
                # One in a hundred may say perhaps.
                assert sum(answers) >= len(answers) - 1
        assert kept
        assert excluded


def probe(connection: duckdb.DuckDBPyConnection, file: Path, column: str, value: Any) -> list[bool]:
    """Ask the filter of each row group whether it excludes a value."""
    rows = connection.execute(
        "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, ?, ?)", [str(file), column, value]
    )
    return [row[0] for row in rows.fetchall()]


def test_the_in_process_engine_skips_row_groups_by_them(tmp_path: Path, lake: Lake, table: Table) -> None:
    """A value inside the bounds of every row group: only a bloom filter can spare the scan."""
    biggest = max(live_files(root(lake, table.name)), key=lambda file: file.stat().st_size)
    profile = tmp_path / "profile.json"
    with duckdb.connect() as connection:

        def scanned(column: str, value: str) -> int:
            connection.execute("PRAGMA enable_profiling = 'json'")
            connection.execute(f"PRAGMA profiling_output = '{profile}'")
            connection.execute(
                f"SELECT number FROM read_parquet(?) WHERE {column} = ?", [str(biggest), value]
            ).fetchall()
            connection.execute("PRAGMA disable_profiling")
            [scan] = _scans(json.loads(profile.read_text())["operator"])
            return int(scan["row_groups_scanned"])

        assert scanned("city", "Bern") > 0
        assert scanned("city", "Florence") == 0, "between Bern and Oslo, in no row group"
        assert scanned("text", "some text 1a") > 0, "without a filter there is nothing to skip by"


def _scans(nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in nodes:
        if node["type"] == "TABLE_SCAN":
            yield node
        yield from _scans(node.get("children", []))


def test_every_file_of_a_keyed_table_has_a_filter_on_a_text_key(lake: Lake) -> None:
    """The key is looked up by every upsert and delete, whatever it is called."""
    table = lake.create_table("layout.keyed.named", pa.schema([("code", pa.string()), ("n", pa.int64())]), key="code")
    table.append([{"code": f"c{number}", "n": number} for number in range(100)])
    table.fold()
    table.upsert([{"code": "c5", "n": -5}])
    table.fold()
    for meta in footers(root(lake, table.name)):
        assert meta.row_group(0).column(0).path_in_schema == "code"
        assert meta.row_group(0).column(0).bloom_filter_offset is not None


def test_one_name_for_bloom_or_cluster_by_is_one_column(lake: Lake) -> None:
    schema = pa.schema([("city", pa.string()), ("n", pa.int64())])
    table = lake.create_table("layout.plain.one", schema, cluster_by="city", bloom="city")
    assert table.describe()["cluster_by"] == ["city"]
    table.append([{"city": "b", "n": 1}, {"city": "a", "n": 2}])
    table.fold()
    [file] = live_files(root(lake, table.name))
    assert pq.read_table(file)["city"].to_pylist() == ["a", "b"]
    assert pq.read_metadata(file).row_group(0).column(0).bloom_filter_offset is not None
    [stats] = [json.loads(add["stats"]) for _, add in actions(root(lake, table.name), "add")]
    assert stats["minValues"]["city"] == "a"


WIDE_ROWS = pa.schema([("k", pa.int64()), ("text", pa.string()), ("code", pa.int32()), ("at", INSTANT)])


def wide_rows(start: int, count: int) -> pa.Table:
    """Rows of about 90 bytes each on disk: text that does not compress makes the sizes plain."""
    random = np.random.default_rng(start)
    numbers = np.arange(start, start + count)
    return pa.table(
        {
            "k": numbers,
            "text": [random.bytes(80).hex() for _ in range(count)],
            "code": pa.array(numbers % 5, pa.int32()),
            "at": pa.array(numbers % 2 * 10**15, INSTANT),
        },
        schema=WIDE_ROWS,
    )


@pytest.fixture
def small_files(tmp_path: Path, spark: SparkRuntime) -> Iterator[Lake]:
    """A warehouse whose keyed tables have files of 1 MiB."""
    settings = Settings(warehouse=str(tmp_path / "warehouse"), keyed_file_bytes=1024**2, target_file_bytes=64 * 1024**2)
    with opened(settings) as lake:
        yield lake


def check_sizes(lake: Lake, table: Table, *, total: float) -> None:
    sizes = [file.stat().st_size for file in live_files(root(lake, table.name))]
    assert sum(sizes) > total * 1024**2, "enough for several files"
    assert max(sizes) <= 1.6 * 1024**2, sizes


def test_the_first_fold_of_a_keyed_table_makes_files_of_its_size(small_files: Lake) -> None:
    """Small files keep a change of one key cheap."""
    table = small_files.create_table("layout.keyed.first", WIDE_ROWS, key="k")
    table.append(wide_rows(0, 36_000))
    table.fold()
    check_sizes(small_files, table, total=2.5)


@pytest.mark.parametrize(
    "rewrite",
    ["expire", *(pytest.param(rewrite, marks=pytest.mark.slow) for rewrite in ("evolve", "compact", "merge"))],
)
def test_keyed_files_keep_to_their_size_whatever_rewrites_them(small_files: Lake, rewrite: str) -> None:
    table = small_files.create_table("layout.keyed.sizes", WIDE_ROWS, key="k")
    for start in (0, 12_000, 24_000):
        table.append(wide_rows(start, 12_000))
        table.fold()
    check_sizes(small_files, table, total=2.5)
    if rewrite == "compact":
        table.append(wide_rows(36_000, 3_000))
        table.compact()
    elif rewrite == "merge":
        table.delete([1, 12_001, 24_001])
        assert table.fold().files_rewritten == 3
    elif rewrite == "evolve":
        table.evolve(
            pa.schema([field if field.name != "code" else pa.field("code", pa.int64()) for field in WIDE_ROWS])
        )
    else:
        # Half of the rows stay: files that two may share are fine, files beyond the size are not.
        table.append(wide_rows(100_000, 12_000))
        table.append(wide_rows(200_000, 12_000))
        table.fold()
        assert table.expire(dt.date(1971, 1, 1), column="at").rows_dropped == 30_000
    check_sizes(small_files, table, total=2.0)


def test_a_change_of_one_key_touches_one_file(tmp_path: Path, spark: SparkRuntime) -> None:
    with opened(Settings(warehouse=str(tmp_path / "warehouse"))) as lake:
        table = lake.create_table(
            "layout.keyed.touched", pa.schema([("k_id", pa.string()), ("n", pa.int64())]), key="k_id"
        )
        for part in range(3):
            table.append([{"k_id": f"{part}-{number:02}", "n": number} for number in range(20)])
            table.fold()
        before = set(live_files(root(lake, table.name)))
        table.upsert([{"k_id": "1-03", "n": -3}])
        report = table.fold()
        assert (report.files_before, report.files_rewritten, report.files_after) == (3, 1, 3)
        assert len(before & set(live_files(root(lake, table.name)))) == 2
