"""The in-process engine's scans: by the files' own columns where all are alike, by the table's where not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crannog.engine.duckdb.engine import DuckDBEngine
from crannog.engine.snapshot import read
from crannog.errors import SnapshotGone
from crannog.settings import Settings

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.string()),
        ("d", pa.decimal128(15, 2)),
        ("t", pa.timestamp("us", "UTC")),
        ("m", pa.map_(pa.string(), pa.string())),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
    ]
)
WITH_MORE = pa.schema([*SCHEMA, ("more", pa.int64())])


@pytest.fixture
def engine(tmp_path: Path, settings: Settings) -> Iterator[DuckDBEngine]:
    made = DuckDBEngine(settings, (str(tmp_path),), tmp_path / "spill")
    yield made
    made.close()


def written(folder: Path, name: str, schema: pa.Schema, ids: range) -> str:
    rows = pa.Table.from_pylist(
        [{"id": number, "v": f"v{number}", "s": {"a": number, "b": ["x"]}} for number in ids], schema=schema
    )
    pq.write_table(rows, folder / name)
    return str(folder / name)


def rows(engine: DuckDBEngine, scan: str, columns: str) -> list[tuple[object, ...]]:
    with engine.cursor() as cursor:
        found = read(cursor, f"SELECT {columns} FROM {scan} ORDER BY id")
    return [tuple(row.values()) for row in found.to_pylist()]


def test_files_that_are_alike(engine: DuckDBEngine, tmp_path: Path) -> None:
    """DuckDB then knows their rows and bounds, which a scan by a given schema hides from it."""
    paths = [written(tmp_path, "1.parquet", SCHEMA, range(2)), written(tmp_path, "2.parquet", SCHEMA, range(2, 4))]
    scan = engine.scan(paths, SCHEMA)
    assert "schema" not in scan
    assert rows(engine, scan, "id, v") == [(0, "v0"), (1, "v1"), (2, "v2"), (3, "v3")]
    assert "schema" not in engine.scan(paths, pa.schema([SCHEMA.field("v")])), "some of the columns are enough"
    assert rows(engine, engine.scan(paths, SCHEMA, positions=True), "id, file_row_number") == [
        (0, 0),
        (1, 1),
        (2, 0),
        (3, 1),
    ]


def test_a_column_that_a_file_lacks(engine: DuckDBEngine, tmp_path: Path) -> None:
    old, new = written(tmp_path, "1.parquet", SCHEMA, range(2)), written(tmp_path, "2.parquet", WITH_MORE, range(2, 4))
    for paths in ([old, new], [new, old]):
        assert rows(engine, engine.scan(paths, WITH_MORE), "id, v, more") == [(n, f"v{n}", None) for n in range(4)]
    assert "schema" in engine.scan([old], WITH_MORE)
    assert "schema" not in engine.scan([new], WITH_MORE)


@pytest.mark.parametrize(
    ("name", "before"),
    [("id", pa.int32()), ("d", pa.decimal128(10, 2)), ("s", pa.struct([("a", pa.int32())])), ("t", pa.timestamp("us"))],
)
def test_a_column_of_another_type(engine: DuckDBEngine, tmp_path: Path, name: str, before: pa.DataType) -> None:
    place = SCHEMA.get_field_index(name)
    old = written(tmp_path, "1.parquet", SCHEMA.set(place, pa.field(name, before)), range(2))
    new = written(tmp_path, "2.parquet", SCHEMA, range(2, 4))
    for paths in ([old, new], [new, old], [old]):
        scan = engine.scan(paths, SCHEMA)
        assert "schema" in scan
        with engine.cursor() as cursor:
            assert read(cursor, f"SELECT {name} FROM {scan}").schema.field(name).type == engine_type(engine, name)


def engine_type(engine: DuckDBEngine, name: str) -> pa.DataType:
    """The type of a column as the engine gives it back."""
    with engine.cursor({"given": pa.schema([SCHEMA.field(name)]).empty_table()}) as cursor:
        return cursor.sql("SELECT * FROM given").to_arrow_table().schema.field(name).type


def test_a_folder_that_looks_like_a_partition(engine: DuckDBEngine, tmp_path: Path) -> None:
    (tmp_path / "v=other").mkdir()
    path = written(tmp_path / "v=other", "1.parquet", SCHEMA, range(1))
    assert rows(engine, engine.scan([path], SCHEMA), "id, v") == [(0, "v0")]


def test_a_file_that_is_gone(engine: DuckDBEngine, tmp_path: Path) -> None:
    """The scan can be made; the read tells."""
    path = written(tmp_path, "1.parquet", SCHEMA, range(1))
    known = engine.scan([path], SCHEMA)
    Path(path).unlink()
    for scan in (known, engine.scan([path], SCHEMA), engine.scan([str(tmp_path / "never.parquet")], SCHEMA)):
        with pytest.raises(SnapshotGone):
            rows(engine, scan, "id")


def test_every_cursor_reads_times_as_utc_and_remembers_footers(engine: DuckDBEngine) -> None:
    with engine.cursor() as cursor:
        assert cursor.execute(
            "SELECT current_setting('TimeZone'), current_setting('parquet_metadata_cache')"
        ).fetchall() == [("UTC", True)]


def test_a_machine_in_another_time_zone_gives_the_same_answer() -> None:
    program = """
import datetime as dt, sys, tempfile
import pyarrow as pa
import crannog

with tempfile.TemporaryDirectory() as folder, crannog.connect(folder) as lake:
    table = lake.create_table("a.b.c", pa.schema([("at", pa.timestamp("us", "UTC")), ("day", pa.date32())]))
    table.append([{"at": dt.datetime(2026, 1, 1, 2, 30, tzinfo=dt.UTC), "day": dt.date(2026, 1, 1)}])
    sql = "SELECT CAST(at AS STRING) AS s, CAST(at AS DATE) AS d, hour(at) AS h, CAST(day AS TIMESTAMP) AS t FROM a.b.c"
    print(*lake.sql(sql, engine="local").to_arrow().to_pylist()[0].values(), sep="|")
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TZ": "America/New_York"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "2026-01-01 02:30:00|2026-01-01|2|2026-01-01 00:00:00+00:00"


def test_columns_without_a_value_are_known_by_the_footers(engine: DuckDBEngine, tmp_path: Path) -> None:
    first, second = (
        written(tmp_path, "a.parquet", SCHEMA, range(3)),
        written(tmp_path, "b.parquet", WITH_MORE, range(3)),
    )
    assert engine.all_null_columns([first]) == {"d", "t", "m"}
    assert engine.all_null_columns([first, second]) == {"d", "t", "m"}
    assert engine.all_null_columns([second]) == {"d", "t", "m", "more"}
    assert engine.all_null_columns([str(tmp_path / "none.parquet")]) == frozenset()
