"""Rows and columns that do not fit: where they stand, what is said of them, what is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crannog.api.reports import Drift
from crannog.embedded import EmbeddedLake as Lake
from crannog.errors import BadRows, CallerError, Conflict, SchemaMismatch
from crannog.settings import Settings
from lakes import INSTANT, opened
from loads import NAME, put, rows_of, types_of

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("at", INSTANT), ("s", pa.string())])


@pytest.fixture
def lake(settings: Settings) -> Any:
    with opened(settings) as found:
        yield found


@pytest.fixture
def table(lake: Lake) -> Any:
    return lake.create_table(NAME, SCHEMA)


def rejected(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_bad_rows_of_csv_are_named_by_their_real_lines_and_nothing_is_kept(
    lake: Lake, table: Any, tmp_path: Path
) -> None:
    text = (
        "id,n,at,s\n"
        '1,1,2026-01-01T00:00:00Z,"two\nlines"\n'  # lines 2 and 3
        "\n"
        "2,abc,,x\n"  # line 5
        "3,1\n"  # line 6
        '4,3000000000,,"three\n\nlines"\n'  # lines 7 to 9
        "5,1,2026-13-01T00:00:00Z,x\n"  # line 10
        "6,1,,x,more\n"  # line 11
        "7,2,,good\n"
    )
    path = put(tmp_path, "f.csv", text)
    with pytest.raises(BadRows, match=r"5 bad rows; nothing was kept: .*f\.csv, line 5, column n: abc: this is no int"):
        lake.load(path, NAME)
    assert table.count() == 0
    report = lake.load(path, NAME, reject=str(tmp_path / "bad"))
    assert (report.rows, report.bad_rows) == (2, 5)
    assert [(bad.line, bad.column, bad.value) for bad in report.first_bad] == [
        (5, "n", "abc"), (6, "", "3,1"), (7, "n", "3000000000"), (10, "at", "2026-13-01T00:00:00Z"), (11, "", "6,1,,x,more"),
    ]  # fmt: skip
    assert "too large" in report.first_bad[2].reason
    assert sorted(row["id"] for row in rows_of(lake)) == [1, 7]
    found = rejected(tmp_path / "bad")
    assert [entry["line"] for entry in found] == [5, 6, 7, 10, 11]
    assert found[0]["row"] == {"id": "2", "n": "abc", "at": None, "s": "x"}
    assert found[1]["row"] == "3,1"
    assert all(entry["file"] == path and entry["reason"] for entry in found)


def test_bad_lines_of_ndjson_are_named_by_their_real_lines(lake: Lake, table: Any, tmp_path: Path) -> None:
    lines = [
        b'{"id":1,"n":1,"at":"2026-01-01T00:00:00Z"}',
        b"",
        b'{"id":2,"n":"x"}',  # line 3
        b'{"id":3,',  # line 4
        b"[1]",  # line 5
        b'{"id":4,"s":"\xff"}',  # line 6
        b'{"id":5,"id":6}',  # line 7
        b'{"id":7,"at":"yesterday"}',  # line 8
        b'{"id":8,"s":"\\ud800"}',  # line 9
        b'{"id":9,"s":{"any":["json"]},"n":2147483648}',  # line 10
        b'{"id":10,"s":{"any":["json"]}}',
    ]
    path = put(tmp_path, "f.ndjson", b"\n".join(lines))
    report = lake.load(path, NAME, reject=str(tmp_path / "bad"))
    assert [(bad.line, bad.column) for bad in report.first_bad] == [
        (3, "n"),
        (4, ""),
        (5, ""),
        (6, ""),
        (7, ""),
        (8, "at"),
        (9, "s"),
        (10, "n"),
    ]
    assert [(row["id"], row["s"]) for row in rows_of(lake)] == [(1, None), (10, '{"any": ["json"]}')]
    assert rejected(tmp_path / "bad")[1]["row"] == '{"id":3,'


def test_bad_rows_of_arrays_and_parquet_are_named_too(lake: Lake, table: Any, tmp_path: Path) -> None:
    rows = [{"id": 1, "n": 1}, {"id": 2, "n": "x"}]
    with pytest.raises(BadRows, match="line 6, column n"):
        lake.load(put(tmp_path, "f.json", json.dumps(rows, indent=1)), NAME)
    pq.write_table(pa.table({"id": [1, 2, 3], "n": pa.array([1, 2**40, 3], pa.int64())}), tmp_path / "f.parquet")
    report = lake.load(str(tmp_path / "f.parquet"), NAME, max_bad=1)
    assert [(bad.line, bad.column, bad.value) for bad in report.first_bad] == [(2, "n", str(2**40))]
    assert sorted(row["id"] for row in rows_of(lake)) == [1, 3]


def test_as_many_bad_rows_as_allowed_are_left_out_and_one_more_stops_everything(lake: Lake, tmp_path: Path) -> None:
    good = put(tmp_path, "a.csv", "a,b\n1,2\n")
    bad = put(tmp_path, "b.csv", "a,b\n" + "1\n" * 20 + "3,4\n")
    with pytest.raises(BadRows, match="20 bad rows, 19 may be; nothing was kept"):
        lake.load([good, bad], NAME, create=True, max_bad=19, reject=str(tmp_path / "r"))
    assert lake.tables() == []
    report = lake.load([good, bad], NAME, create=True, max_bad=20)
    assert (report.rows, report.bad_rows, [file.bad_rows for file in report.files]) == (2, 20, [0, 20])
    assert len(report.first_bad) == 10
    with pytest.raises(CallerError, match="cannot write bad rows"):
        lake.load(bad, NAME, reject=str(tmp_path / "no" / "such"), again=True)


def test_keys_may_not_be_null_nor_partitions_empty(lake: Lake, tmp_path: Path) -> None:
    path = put(tmp_path, "f.csv", 'k,p\n1,x\n,y\n"",z\n2,""\n')
    report = lake.load(path, NAME, create=True, key="k", max_bad=5)
    assert [(bad.line, bad.column) for bad in report.first_bad] == [(3, "k"), (4, "k")]
    assert [row["k"] for row in rows_of(lake)] == [1, 2]
    report = lake.load(path, "main.files.p", create=True, partition_by="p", max_bad=5)
    assert [(bad.line, bad.column) for bad in report.first_bad] == [(5, "p")]
    lines = put(tmp_path, "f.ndjson", '{"k":1,"p":"x"}\n{"p":"y"}\n{"k":null,"p":"z"}\n{"k":9,"p":""}\n')
    assert [bad.line for bad in lake.load(lines, "main.files.k", create=True, key="k", max_bad=5).first_bad] == [2, 3]
    assert [bad.line for bad in lake.load(lines, "main.files.p", max_bad=5).first_bad] == [4]
    pq.write_table(pa.table({"k": pa.array([1, None]), "p": ["", "x"]}), tmp_path / "f.parquet")
    assert [bad.line for bad in lake.load(str(tmp_path / "f.parquet"), "main.files.k", max_bad=5).first_bad] == [2]
    assert [bad.line for bad in lake.load(str(tmp_path / "f.parquet"), "main.files.p", max_bad=5).first_bad] == [1]


def test_a_bad_row_far_into_a_large_file_stops_it_before_the_first_batch(
    lake: Lake, table: Any, tmp_path: Path
) -> None:
    for name, row, bad in (
        ("f.csv", "1,1,,some longer text to fill the block\n", "1,x,,y\n"),
        ("f.ndjson", '{"id":1,"s":"some longer text to fill"}\n', '{"n":"x"}\n'),
    ):
        text = ("id,n,at,s\n" if name == "f.csv" else "") + row * 220_000 + bad
        line = 220_002 if name == "f.csv" else 220_001
        with pytest.raises(BadRows, match=f"line {line:,}, column n"):
            lake.load(put(tmp_path, name, text), NAME)
        assert table.count() == 0


def test_bad_rows_are_found_before_anything_is_kept_also_when_flattened(lake: Lake, tmp_path: Path) -> None:
    lake.create_table(NAME, pa.schema([("a_b", pa.int64())]))
    path = put(tmp_path, "f.ndjson", '{"a":{"b":1}}\n{"a":{"b":"x"}}\n')
    with pytest.raises(BadRows, match="line 2, column a_b"):
        lake.load(path, NAME, flatten=True)
    assert lake.table(NAME).count() == 0
    assert lake.load(path, NAME, flatten=True, max_bad=1).rows == 1


def test_a_file_that_changes_while_it_is_loaded_is_refused(lake: Lake, table: Any, tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("id\n1\n")
    steps: list[str] = []

    def write(step: str, _share: float) -> None:
        steps.append(step)
        with path.open("a") as file:
            file.write("2\n")

    with pytest.raises(Conflict, match="changed while it was loaded"):
        lake.load(str(path), NAME, progress=write)
    assert steps
    assert table.count() == 0


def test_a_key_that_a_struct_lacks_is_never_left_out_in_silence(lake: Lake, tmp_path: Path) -> None:
    lake.create_table(
        NAME,
        pa.schema(
            [("id", pa.int64()), ("n", pa.struct([("x", pa.int64())])), ("l", pa.list_(pa.struct([("x", pa.int64())])))]
        ),
    )
    path = put(
        tmp_path, "f.ndjson", '{"id":1,"n":{"x":1}}\n{"id":2,"n":{"x":1,"y":2}}\n{"id":3,"l":[{"z":1}],"more":1}\n'
    )
    for options in ({}, {"ignore_extra": True}, {"evolve": True}):
        with pytest.raises(CallerError):
            lake.load(path, NAME, **options)
    report = lake.load(path, NAME, ignore_extra=True, max_bad=2)
    assert [(bad.line, bad.column) for bad in report.first_bad] == [(2, "n"), (3, "l")]
    assert "n.y" in report.first_bad[0].reason
    assert [row["id"] for row in rows_of(lake)] == [1]


# -- columns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("f.csv", "id,new,more\n1,x,1.5\n"),
        ("f.ndjson", '{"id":1,"new":"x","more":1.5}\n'),
        ("f.json", '[{"id":1,"new":"x","more":1.5}]'),
    ],
)
def test_new_columns_are_an_error_that_names_them_or_left_out_or_added(
    lake: Lake, table: Any, tmp_path: Path, name: str, text: str
) -> None:
    path = put(tmp_path, name, text)
    with pytest.raises(
        SchemaMismatch,
        match="the files have new, more, the table has no such columns: set the option evolve to add them, or ignore_extra",
    ):
        lake.load(path, NAME)
    dry = lake.load(path, NAME, dry_run=True)
    assert Drift("new", "added", "", "string") in dry.drift
    assert Drift("n", "removed", "int", "", "null in the new rows") in dry.drift
    lake.load(path, NAME, ignore_extra=True)
    assert types_of(lake).keys() == set(SCHEMA.names)
    report = lake.load(path, NAME, evolve=True)
    assert report.rows == 1
    assert Drift("more", "added", "", "double", "added, nullable") in report.drift
    assert types_of(lake)["more"] == "double"
    assert [row["new"] for row in rows_of(lake)] == [None, "x"]


def test_wider_numbers_are_told_and_widened_only_when_asked(lake: Lake, table: Any, tmp_path: Path) -> None:
    for name, text in (
        ("f.csv", "id,n\n1,5\n2,3000000000\n"),
        ("f.ndjson", '{"id":3,"n":5}\n{"id":4,"n":3000000000}\n'),
    ):
        path = put(tmp_path, name, text)
        if types_of(lake)["n"] == "int32":
            with pytest.raises(
                SchemaMismatch, match="column n is int, the files need bigint: set the option evolve to widen"
            ):
                lake.load(path, NAME)
            assert table.count() == 0
        report = lake.load(path, NAME, evolve=True)
        assert report.bad_rows == 0
    assert types_of(lake)["n"] == "int64"
    lake.create_table("main.files.narrow", SCHEMA)
    report = lake.load(str(tmp_path / "f.csv"), "main.files.narrow", max_bad=1)
    assert (report.rows, report.bad_rows, report.drift[-1]) == (
        1,
        1,
        Drift("n", "widened", "int", "bigint", "rows put aside"),
    )
    assert sorted(row["n"] for row in rows_of(lake)) == [5, 5, 3000000000, 3000000000]


def test_a_column_of_another_kind_is_incompatible_and_not_thousands_of_bad_rows(
    lake: Lake, table: Any, tmp_path: Path
) -> None:
    for name, text in (("f.csv", "id,n\n" + "1,word\n" * 500), ("f.ndjson", '{"id":1,"n":"word"}\n' * 500)):
        path = put(tmp_path, name, text)
        with pytest.raises(SchemaMismatch, match="column n is int, the files have string"):
            lake.load(path, NAME, evolve=True)
        assert [(d.column, d.change) for d in lake.load(path, NAME, dry_run=True).drift if d.change != "removed"] == [
            ("n", "incompatible")
        ]
    pq.write_table(pa.table({"id": [1] * 50, "n": ["word"] * 50}), tmp_path / "f.parquet")
    with pytest.raises(SchemaMismatch, match="column n is int, the files have string"):
        lake.load(str(tmp_path / "f.parquet"), NAME)
    assert table.count() == 0


def test_a_column_that_must_be_there_and_is_not_is_named(lake: Lake, tmp_path: Path) -> None:
    lake.create_table(NAME, pa.schema([("k", pa.int64()), ("v", pa.string())]), key="k")
    with pytest.raises(CallerError, match=r"column k"):
        lake.load(put(tmp_path, "f.csv", "v\nx\n"), NAME)
    with pytest.raises(CallerError, match=r"column k"):
        lake.load(put(tmp_path, "f.ndjson", '{"v":"x"}\n'), NAME)
    assert lake.table(NAME).count() == 0
