"""Loading files: what comes in, in which types, once; read back behind the loader's back."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv

from crannog.api.reports import Cancellation
from crannog.embedded import EmbeddedLake as Lake
from crannog.errors import CallerError, Cancelled, Conflict, NotFound, Overloaded
from crannog.settings import Settings
from crannog.tables import load_parts
from crannog.tables import load_write as keep
from lakes import INSTANT, canonical, opened
from loads import NAME, put, rows_of, types_of


@pytest.fixture
def lake(settings: Settings) -> Any:
    with opened(settings) as found:
        yield found


# -- types -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (("1", "-2", "0", ""), "int64"),
        (("9223372036854775807", "-9223372036854775808"), "int64"),
        (("9223372036854775808",), "string"),
        (("1", "2.5", ".5", "-1e3"), "double"),
        (("1.5", "9007199254740993"), "string"),
        (("0.12345678901234567890",), "string"),
        (("1e999",), "string"),
        (("007", "12"), "string"),
        (("+49 30 123456",), "string"),
        (("+5",), "string"),
        (("1,000",), "string"),
        (("true", "False", "TRUE"), "bool"),
        (("true", "1"), "string"),
        (("yes", "no"), "string"),
        (("2026-01-31", "0001-01-01"), "date32[day]"),
        (("2026-02-30",), "string"),
        (("0000-01-01",), "string"),
        (("31.01.2026", "2026-01-31"), "string"),
        (("2026-01-31T10:00:00Z", "2026-01-31 10:00:00.123456+02:00"), str(INSTANT)),
        (("2026-01-31T10:00:00", "2026-01-31 10:00"), str(INSTANT)),
        (("2026-01-31T10:00:00Z", "2026-01-31T10:00:00"), "string"),
        (("2026-01-31", "2026-01-31T10:00:00Z"), "string"),
        (("2026-01-31T10:00:00.123456789Z",), "string"),
        (("2026-01-31T25:00:00Z",), "string"),
        (("NA", "1"), "string"),
        (("null",), "string"),
        (("", ""), "string"),
        (("0x10",), "string"),
        ((" 1",), "string"),
        (("-0",), "double"),
    ],
)
def test_text_becomes_a_type_only_where_it_can_be_nothing_else(
    lake: Lake, tmp_path: Path, values: tuple[str, ...], kind: str
) -> None:
    text = "n,v\n" + "".join(
        f'{number},"{value}"\n' if value else f"{number},\n" for number, value in enumerate(values)
    )
    report = lake.load(put(tmp_path, "f.csv", text), NAME, create=True)
    assert types_of(lake)["v"] == kind
    assert report.rows == len(values)
    if kind == "string":
        assert [row["v"] for row in rows_of(lake)] == [value or None for value in values]


def test_one_value_at_the_end_of_a_large_file_decides(lake: Lake, tmp_path: Path) -> None:
    lines = "a,b\n" + "".join(f"{number},{number}.5\n" for number in range(150_000)) + "x,1\n"
    report = lake.load(put(tmp_path, "f.csv", lines), NAME, create=True)
    assert types_of(lake) == {"a": "string", "b": "double"}
    assert report.rows == 150_001
    assert report.batches == 4
    assert lake.sql(f"select count(*) as n, min(a) as a from {NAME}").rows() == [{"n": 150_001, "a": "0"}]


def test_times_without_a_zone_are_utc_and_empty_text_is_null_where_it_can_be_nothing_else(
    lake: Lake, tmp_path: Path
) -> None:
    lake.load(put(tmp_path, "f.csv", 'at,n,t\n2026-01-31 10:00,"",""\n"",5,x\n'), NAME, create=True)
    assert rows_of(lake) == [
        {"at": dt.datetime(2026, 1, 31, 10, tzinfo=dt.UTC), "n": None, "t": ""},
        {"at": None, "n": 5, "t": "x"},
    ]


def test_types_that_are_asked_for_win_and_must_fit(lake: Lake, tmp_path: Path) -> None:
    path = put(tmp_path, "f.csv", "a,b,c,d\n1,2.50,3,2026-01-01\n2,0.1,4,2026-01-02\n")
    lake.load(path, NAME, create=True, types="a=string, b=decimal(10,2), c=int")
    assert types_of(lake) == {"a": "string", "b": "decimal128(10, 2)", "c": "int32", "d": "date32[day]"}
    assert [str(row["b"]) for row in rows_of(lake)] == ["2.50", "0.10"]
    with pytest.raises(CallerError, match=r"bad row.*column b"):
        lake.load(path, "main.files.u", create=True, types={"b": pa.int64()})
    with pytest.raises(CallerError, match="no column z"):
        lake.load(path, "main.files.u", create=True, types="z=int")
    with pytest.raises(CallerError, match="types are boolean"):
        lake.load(path, "main.files.u", create=True, types="a=colour")
    assert lake.tables() == [NAME]


def test_nested_json_stays_nested_with_all_keys_and_what_is_mixed_is_json_text(lake: Lake, tmp_path: Path) -> None:
    lines = [
        {"id": 1, "n": {"x": 1}, "l": [1, 2], "m": 5, "d": "2026-01-01", "big": 2**70, "e": {}, "s": "007"},
        {"id": 2, "n": {"y": ["a"], "x": None}, "l": [], "m": "text", "d": None, "big": 1, "e": {}},
        {"id": 3, "m": {"q": [1.5]}, "d": "2026-01-02"},
    ]
    lake.load(put(tmp_path, "f.json", "\n".join(map(json.dumps, lines))), NAME, create=True)
    assert types_of(lake)["d"] == "date32[day]"
    first, second, third = rows_of(lake)
    assert (first["n"], second["n"], third["n"]) == ({"x": 1, "y": None}, {"x": None, "y": ["a"]}, None)
    assert (first["l"], second["l"], third["l"]) == ([1, 2], [], None)
    assert (first["m"], second["m"], json.loads(third["m"])) == ("5", "text", {"q": [1.5]})
    assert (first["big"], second["big"]) == (str(2**70), "1")
    assert (first["e"], first["s"]) == ("{}", "007")


def test_a_number_among_dates_makes_json_text_of_both(lake: Lake, tmp_path: Path) -> None:
    lake.load(put(tmp_path, "f.ndjson", '{"a":"2026-01-01"}\n{"a":1}\n'), NAME, create=True)
    assert rows_of(lake) == [{"a": "2026-01-01"}, {"a": "1"}]


def test_large_whole_numbers_next_to_fractions_lose_no_digit(lake: Lake, tmp_path: Path) -> None:
    pad = "x" * 10_000  # so that they stand in blocks of their own
    lines = f'{{"a":9007199254740993,"p":"{pad}"}}\n' * 1_000 + f'{{"a":1.5,"p":"{pad}"}}\n' * 1_000
    lake.load(put(tmp_path, "f.ndjson", lines), NAME, create=True)
    assert sorted({row["a"] for row in rows_of(lake)}) == ["1.5", "9007199254740993"]


def test_flatten_makes_columns_of_what_is_nested(lake: Lake, tmp_path: Path) -> None:
    path = put(tmp_path, "f.ndjson", '{"a":{"b":{"c":1},"d":"x"},"l":[1]}\n{"a":null}\n{"a":{"d":"y"}}\n')
    lake.load(path, NAME, create=True, flatten=True)
    wanted = [
        {"a_b_c": 1, "a_d": "x", "l": [1]},
        {"a_b_c": None, "a_d": None, "l": None},
        {"a_b_c": None, "a_d": "y", "l": None},
    ]
    assert rows_of(lake) == wanted
    lake.load(put(tmp_path, "g.ndjson", '{"a":{"b":{"c":7}}}\n'), NAME, flatten=True)
    assert rows_of(lake)[-1] == {"a_b_c": 7, "a_d": None, "l": None}
    with pytest.raises(CallerError, match="column a_b when flattened"):
        lake.load(put(tmp_path, "h.ndjson", '{"a":{"b":1},"a_b":2}\n'), "main.files.u", create=True, flatten=True)
    table = pa.table({"a": pa.array([{"b": 1}, None])})
    pq.write_table(table, tmp_path / "f.parquet")
    lake.load(str(tmp_path / "f.parquet"), "main.files.p", create=True, flatten=True)
    assert rows_of(lake, "main.files.p") == [{"a_b": 1}, {"a_b": None}]


def test_names_that_no_table_can_have_are_changed_and_told(lake: Lake, tmp_path: Path) -> None:
    report = lake.load(put(tmp_path, "f.csv", "Order ID,_id,a.b,\n1,2,3,4\n"), NAME, create=True)
    assert report.renamed == {"Order ID": "Order_ID", "_id": "id", "a.b": "a_b", "": "column_4"}
    assert rows_of(lake) == [{"Order_ID": 1, "id": 2, "a_b": 3, "column_4": 4}]
    lake.load(put(tmp_path, "f.ndjson", '{"Order ID": 9}\n'), NAME)
    assert rows_of(lake)[1]["Order_ID"] == 9
    with pytest.raises(CallerError, match="would both be a_b"):
        lake.load(put(tmp_path, "g.csv", "a b,a.b\n1,2\n"), "main.files.u", create=True)
    with pytest.raises(CallerError, match="column a twice"):
        lake.load(put(tmp_path, "h.csv", "a,a\n1,2\n"), "main.files.u", create=True)


# -- forms -----------------------------------------------------------------------------------------------------

ROWS = [{"a": 1, "b": "x"}, {"a": 2, "b": "y\nz"}, {"a": 3, "b": None}]


def forms(folder: Path) -> dict[str, str]:
    table = pa.Table.from_pylist(ROWS)
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    parquet = io.BytesIO()
    pq.write_table(table, parquet)
    text = 'a,b\n1,x\n2,"y\nz"\n3,\n'
    return {
        "csv": put(folder, "f.csv", text),
        "csv with a mark and CRLF": put(folder, "f2.csv", b"\xef\xbb\xbf" + text.replace("\n3", "\r\n3").encode()),
        "tsv": put(folder, "f.tsv", text.replace(",", "\t")),
        "array": put(folder, "f.json", json.dumps(ROWS, indent=2)),
        "object by object": put(folder, "f1.json", "\n".join(json.dumps(row, indent=1) for row in ROWS)),
        "lines in json": put(folder, "f2.json", lines),
        "ndjson": put(folder, "f.ndjson", "\n" + lines + "\n\n"),
        "no last newline": put(folder, "f.jsonl", lines.rstrip("\n")),
        "parquet": put(folder, "f.parquet", parquet.getvalue()),
        "gzip": put(folder, "f.csv.gz", gzip.compress(text.encode())),
        "gzip in two members": put(
            folder, "g.csv.gz", gzip.compress(text[:9].encode()) + gzip.compress(text[9:].encode())
        ),
        "gzip under another name": put(folder, "f3.csv", gzip.compress(text.encode())),
        "zstd": put(folder, "f.ndjson.zst", zstandard.compress(lines.encode())),
        "parquet in gzip": put(folder, "f.parquet.gz", gzip.compress(parquet.getvalue())),
        "no ending": put(folder, "f", json.dumps(ROWS)),
        "parquet without ending": put(folder, "p", parquet.getvalue()),
    }


def test_every_form_and_packing_gives_the_same_rows(lake: Lake, tmp_path: Path) -> None:
    for number, (form, path) in enumerate(forms(tmp_path).items()):
        lake.load(path, f"main.files.t{number}", create=True)
        assert rows_of(lake, f"main.files.t{number}") == ROWS, form


def test_delimiters_and_formats_can_be_told(lake: Lake, tmp_path: Path) -> None:
    lake.load(put(tmp_path, "f.txt", "a;b\n1;2\n"), NAME, create=True, format="csv", delimiter=";")
    assert rows_of(lake) == [{"a": 1, "b": 2}]
    for wrong, message in (({"delimiter": ";;"}, "one ASCII character"), ({"format": "xml"}, "one of csv, json")):
        with pytest.raises(CallerError, match=message):
            lake.load(put(tmp_path, "g.txt", "a;b\n1;2\n"), NAME, **wrong)
    with pytest.raises(CallerError, match="cannot detect the format"):
        lake.load(put(tmp_path, "g.txt", "a;b\n1;2\n"), NAME)


def test_patterns_stand_for_sorted_files_and_nothing_is_an_error(lake: Lake, tmp_path: Path) -> None:
    for name in ("b2", "a1", "c3"):
        put(tmp_path, f"{name}.csv", f"a\n{name}\n")
    report = lake.load([str(tmp_path / "*.csv"), tmp_path / "a1.csv"], NAME, create=True)
    assert [Path(file.file).name for file in report.files] == ["a1.csv", "b2.csv", "c3.csv"]
    assert [row["a"] for row in rows_of(lake)] == ["a1", "b2", "c3"]
    for given_, message in (("*.parquet", "no file matches"), ("z.csv", "there is no file"), ("", "is a folder")):
        with pytest.raises(CallerError, match=message):
            lake.load(str(tmp_path / given_), NAME)
    with pytest.raises(CallerError, match="no file to load"):
        lake.load([], NAME)


def test_several_files_get_one_type_for_all(lake: Lake, tmp_path: Path) -> None:
    put(tmp_path, "1.csv", "a,b,c\n1,1,1\n")
    put(tmp_path, "2.csv", "a,b,c\n1.5,x,\n")
    put(tmp_path, "3.ndjson", '{"d": true, "a": 2}\n')
    lake.load([str(tmp_path / "*.csv"), str(tmp_path / "*.ndjson")], NAME, create=True)
    assert types_of(lake) == {"a": "double", "b": "string", "c": "int64", "d": "bool"}
    assert [row["a"] for row in rows_of(lake)] == [1.0, 1.5, 2.0]


def test_a_row_longer_than_a_block_is_read(lake: Lake, tmp_path: Path) -> None:
    long = "x" * (9 * 1024**2)
    for name, text in (
        ("f.csv", f"a,b\n1,{long}\n2,y\n"),
        ("f.ndjson", json.dumps({"a": 1, "b": long}) + '\n{"a":2,"b":"y"}\n'),
    ):
        lake.load(put(tmp_path, name, text), f"main.files.{name[2:]}", create=True)
        assert [len(row["b"]) for row in rows_of(lake, f"main.files.{name[2:]}")] == [len(long), 1]


def test_parquet_types_that_a_table_lacks_become_the_nearest_it_has(lake: Lake, tmp_path: Path) -> None:
    table = pa.table(
        {
            "u": pa.array([1, 2], pa.uint32()),
            "w": pa.array([2**63, 1], pa.uint64()),
            "naive": pa.array([dt.datetime(2026, 1, 1), None], pa.timestamp("ns")),
            "text": pa.array(["a", "b"]).dictionary_encode(),
            "time": pa.array([dt.time(1, 2, 3), None], pa.time64("us")),
            "none": pa.nulls(2),
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    pq.write_table(table, tmp_path / "f.parquet")
    lake.load(str(tmp_path / "f.parquet"), NAME, create=True)
    first = rows_of(lake)[0]
    assert (first["u"], int(first["w"]), first["text"], first["none"], first["m"]) == (1, 2**63, "a", None, [("k", 1)])
    assert (first["naive"], first["time"]) == (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "01:02:03.000000")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("f.csv", b"", "is empty"),
        ("f.csv", b"a,b\n1,\xff\n", "not UTF-8"),
        ("f.csv", "a,b\n1,2\n".encode("utf-16"), "UTF-16"),
        ("f.json", b'[{"a":1},\n{"a":}]', "line 2"),
        ("f.json", b'[{"a":1},\n{"a" 5},' + b'{"a":1},' * 10, "line 2"),
        ("f.json", b'[{"a":1}', "does not end"),
        ("f.json", b"[1, 2]", "no columns"),
        ("f.json", b'[{"a":1}] x', "more after"),
        ("f.json", b'[{"a":1},]', "comma"),
        ("f.json", b'[{"a":1} {"a":2}]', "no comma"),
        ("f.ndjson", b"", "no columns"),
        ("f.parquet", b"PAR1 this is none", "Parquet"),
        ("f.csv.gz", gzip.compress(b"a\n1\n" * 1000, mtime=0)[:-20], "cannot read"),
    ],
)
def test_a_broken_file_is_told_and_nothing_is_made(
    lake: Lake, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    with pytest.raises(CallerError, match=message):
        lake.load(put(tmp_path, name, content), NAME, create=True)
    assert lake.tables() == []


# -- once ------------------------------------------------------------------------------------------------------


def test_a_file_is_kept_once_whatever_its_name_and_packing(lake: Lake, tmp_path: Path, settings: Settings) -> None:
    text = "a,b\n" + "".join(f"{n},x\n" for n in range(1000))
    path = put(tmp_path, "f.csv", text)
    first = lake.load(path, NAME, create=True)
    assert (first.rows, first.duplicate, first.files[0].duplicate) == (1000, False, False)
    with opened(settings) as other:
        for again in (path, put(tmp_path, "other.csv", text), put(tmp_path, "f.csv.gz", gzip.compress(text.encode()))):
            report = other.load(again, NAME)
            assert (report.rows, report.duplicate_rows, report.duplicate, report.duplicates) == (0, 1000, True, 1)
    # Saying what is so anyway makes no other rows of it.
    assert lake.load(path, NAME, types="a=bigint", delimiter=",").duplicate
    assert lake.table(NAME).count() == 1000
    assert lake.load(path, NAME, again=True).rows == 1000
    assert lake.load(path, NAME, again=True).rows == 1000
    assert lake.table(NAME).count() == 3000


def test_a_load_that_stopped_midway_goes_on_where_it_was(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep, "BATCH_ROWS", 100)
    path = put(tmp_path, "f.csv", "a\n" + "".join(f"{n}\n" for n in range(1000)))
    table_type = type(lake.table(lake.create_table(NAME, pa.schema([("a", pa.int64())])).name))
    real, calls = table_type.append, []

    def dies_at_the_fifth(self: Any, rows: Any, batch_id: str | None = None) -> Any:
        calls.append(batch_id)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return real(self, rows, batch_id)

    monkeypatch.setattr(table_type, "append", dies_at_the_fifth)
    with pytest.raises(
        KeyboardInterrupt, match="400 rows were kept before it stopped; load the same files again to go on"
    ):
        lake.load(path, NAME)
    assert lake.table(NAME).count() == 400
    report = lake.load(path, NAME)
    assert (report.rows, report.duplicate_rows, report.batches) == (600, 400, 10)
    assert sorted(row["a"] for row in rows_of(lake)) == list(range(1000))


def test_a_full_stage_is_folded_on_the_way(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep, "BATCH_ROWS", 100)
    path = put(tmp_path, "f.csv", "a\n" + "".join(f"{n}\n" for n in range(300)))
    table_type = type(lake.create_table(NAME, pa.schema([("a", pa.int64())])))
    real, folds = table_type.append, []

    def full_at_first(self: Any, rows: Any, batch_id: str | None = None) -> Any:
        if not folds:
            raise Overloaded("the stage is full")
        return real(self, rows, batch_id)

    class Folded:
        changes = 1

    monkeypatch.setattr(table_type, "append", full_at_first)
    monkeypatch.setattr(table_type, "fold", lambda _self: folds.append(1) or Folded())
    assert lake.load(path, NAME).rows == 300
    assert len(folds) == 1


def test_a_load_that_sends_too_much_waits_and_folds_nothing(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep, "BATCH_ROWS", 100)
    path = put(tmp_path, "f.csv", "a\n" + "".join(f"{n}\n" for n in range(300)))
    table_type = type(lake.create_table(NAME, pa.schema([("a", pa.int64())])))
    real, refused = table_type.append, []

    def refused_at_first(self: Any, rows: Any, batch_id: str | None = None) -> Any:
        if batch_id not in refused:
            refused.append(batch_id)
            raise Overloaded("you send more than 2 requests per second", retry_after_s=0.01)
        return real(self, rows, batch_id)

    monkeypatch.setattr(table_type, "append", refused_at_first)
    monkeypatch.setattr(table_type, "fold", lambda _self: pytest.fail("nothing is there to fold"))
    assert lake.load(path, NAME).rows == 300
    assert len(refused) == 3
    monkeypatch.setattr(keep, "_PATIENCE_S", 0.0)
    with pytest.raises(Overloaded, match=r"2 requests per second\. 0 rows were kept before it stopped"):
        lake.load(path, NAME, again=True)


def test_a_load_can_be_taken_back_before_it_keeps_anything(lake: Lake, tmp_path: Path) -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(Cancelled):
        lake.load(put(tmp_path, "f.csv", "a\n1\n"), NAME, create=True, cancellation=cancellation)
    assert lake.tables() == []


def test_progress_tells_bytes_and_rows_and_reaches_the_end(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_parts, "_EVERY_S", 0)
    steps: list[tuple[str, float]] = []
    path = put(tmp_path, "f.csv", "a,b\n" + "".join(f"{n},some text\n" for n in range(100_000)))
    lake.load(path, NAME, create=True, progress=lambda step, share: steps.append((step, share)))
    assert any("check" in step and "MiB" in step and "rows/s" in step for step, _ in steps)
    assert [share for _, share in steps] == sorted(share for _, share in steps)
    assert steps[-1][1] == 1.0


# -- keys, modes, tables ---------------------------------------------------------------------------------------


def test_keys_and_partitions_are_made_and_upserts_replace(lake: Lake, tmp_path: Path) -> None:
    lake.load(put(tmp_path, "1.csv", "k,j,v\n1,a,old\n2,b,old\n"), NAME, create=True, key="k,j")
    described = lake.table(NAME).describe()
    assert described["key"] == ["k", "j"]
    assert {column["name"]: column["nullable"] for column in described["columns"] if column["name"] in "kjv"} == {
        "k": False,
        "j": False,
        "v": True,
    }
    lake.load(put(tmp_path, "2.csv", "k,j,v\n2,b,new\n"), NAME, mode="upsert")
    assert sorted((row["k"], row["v"]) for row in rows_of(lake)) == [(1, "old"), (2, "new")]
    lake.load(put(tmp_path, "3.csv", "d,v\nx,1\n"), "main.files.p", create=True, partition_by=["d"])
    assert lake.table("main.files.p").describe()["partition_by"] == ["d"]


def test_wrong_wishes_are_refused_before_anything_is_made(lake: Lake, tmp_path: Path) -> None:
    path = put(tmp_path, "f.csv", "a,b\n1,x\n")
    for wishes, error, message in (
        ({}, NotFound, "set the option create"),
        ({"create": True, "key": "z"}, CallerError, "no column z"),
        ({"create": True, "partition_by": "z"}, CallerError, "z is not a column"),
        ({"create": True, "mode": "upsert"}, CallerError, "give a key"),
        ({"create": True, "mode": "merge"}, CallerError, "append or upsert"),
        ({"create": True, "max_bad": -1}, CallerError, "whole number"),
        ({"create": True, "colour": 1}, CallerError, "no option colour"),
    ):
        with pytest.raises(error, match=message):
            lake.load(path, NAME, **wishes)
        assert lake.tables() == []
    lake.load(path, NAME, create=True)
    with pytest.raises(Conflict, match="its key is"):
        lake.load(path, NAME, create=True, key="a")
    with pytest.raises(CallerError, match="has no key"):
        lake.load(path, NAME, mode="upsert")
    with pytest.raises(Conflict, match="partitioned by"):
        lake.load(path, NAME, partition_by="b")
    with pytest.raises(Conflict, match="its column a is bigint, asked for string"):
        lake.load(path, NAME, types="a=string")
    with pytest.raises(CallerError, match="which is loaded"):
        lake.load(path, NAME, reject=path)
    lake.load(put(tmp_path, "g.csv", "a,c\n1,007\n"), NAME, types="c=decimal(5,1)", evolve=True)
    assert types_of(lake)["c"] == "decimal128(5, 1)"


def test_a_dry_run_shows_everything_and_writes_nothing(lake: Lake, tmp_path: Path) -> None:
    path = put(tmp_path, "f.csv", "a,b\n1,x\n2,y\n3\n")
    report = lake.load(path, NAME, create=True, dry_run=True, key="a", reject=str(tmp_path / "r"))
    assert lake.tables() == []
    assert not (tmp_path / "r").exists()
    assert (report.created, report.rows, report.bad_rows, report.key) == (True, 2, 1, ("a",))
    assert report.columns == (
        {"name": "a", "type": "bigint", "nullable": False},
        {"name": "b", "type": "string", "nullable": True},
    )
    assert report.first_rows == ({"a": 1, "b": "x"}, {"a": 2, "b": "y"})
    assert report.first_bad[0].line == 4


# -- there and back --------------------------------------------------------------------------------------------

COUNTER = itertools.count()
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), max_size=8)
COLUMNS = {
    "i": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "f": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "s": (pa.string(), TEXT),
    "b": (pa.bool_(), st.booleans()),
    "d": (pa.date32(), st.dates()),
    "t": (INSTANT, st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC))),
}
ROW = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()})
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
FEW = examples(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One lake for many examples."""
    folder = tmp_path_factory.mktemp("shared")
    with Lake(str(folder / "w"), settings=Settings(warehouse=str(folder / "w"))) as found:
        yield found, folder


def as_ndjson(table: pa.Table) -> bytes:
    def value(given_: Any) -> Any:
        return given_.isoformat() if isinstance(given_, dt.date) else given_

    return "".join(
        json.dumps({name: value(part) for name, part in row.items()}) + "\n" for row in table.to_pylist()
    ).encode()


def as_csv(table: pa.Table) -> bytes:
    out = io.BytesIO()
    arrow_csv.write_csv(table, out)
    return out.getvalue()


def as_parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


@FEW
@given(rows=st.lists(ROW, min_size=1, max_size=12))
def test_what_arrow_wrote_is_what_the_table_holds(rows: list[dict[str, Any]], shared: tuple[Lake, Path]) -> None:
    lake, folder = shared
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    for form, write in (("csv", as_csv), ("ndjson", as_ndjson), ("parquet", as_parquet)):
        path = put(folder, f"f.{form}", write(table))
        known, made = (f"main.there.{form}{next(COUNTER)}" for _ in range(2))
        lake.create_table(known, SCHEMA)
        lake.load(path, known)
        assert canonical(lake.table(known).to_arrow(), SCHEMA.names) == canonical(table, SCHEMA.names), form
        # Made by the load, a column has the type it was written with, or is one that its values are as well.
        lake.load(path, made, create=True)
        found = lake.table(made).to_arrow()
        for name in SCHEMA.names:
            if found.schema.field(name).type == SCHEMA.field(name).type:
                assert canonical(found, [name]) == canonical(table, [name]), (form, name)
            else:
                assert form != "parquet"
                assert name in "fs" or all(row[name] is None for row in rows), (form, name, rows)
        lake.drop_table(known)
        lake.drop_table(made)


GARBAGE = (
    st.binary(max_size=200)
    | st.text('{}[]",:\n\\ab1.e-tru', max_size=60).map(str.encode)
    | st.text('a,"\n\r;1 ', max_size=60).map(str.encode)
)


@examples(FEW, max_examples=120)
@given(
    data=GARBAGE,
    form=st.sampled_from([None, "csv", "json", "ndjson", "parquet"]),
    packed=st.sampled_from([b"", b"", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"]),
)
def test_no_bytes_are_more_than_a_callers_error(
    data: bytes, form: str | None, packed: bytes, shared: tuple[Lake, Path]
) -> None:
    lake, folder = shared
    path = put(folder, "garbage", packed + data)
    try:
        report = lake.load(path, NAME, create=True, format=form, max_bad=1000, dry_run=True)
    except CallerError:
        return
    assert report.rows >= 0


JSON_VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | st.sampled_from(["2026-01-01", "2026-01-01T00:00:00Z"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=5,
)


@examples(FEW, max_examples=30)
@given(
    rows=st.lists(st.dictionaries(st.sampled_from("abc"), JSON_VALUE, min_size=1, max_size=3), min_size=1, max_size=5),
    flatten=st.booleans(),
)
def test_any_objects_of_json_make_a_table_that_holds_every_one(
    rows: list[dict[str, Any]], flatten: bool, shared: tuple[Lake, Path]
) -> None:
    lake, folder = shared
    name = f"main.any.t{next(COUNTER)}"
    path = put(folder, "any.ndjson", "".join(json.dumps(row) + "\n" for row in rows))
    report = lake.load(path, name, create=True, flatten=flatten)
    assert (report.rows, report.bad_rows) == (len(rows), 0)
    assert lake.load(path, name, flatten=flatten).duplicate
    found = rows_of(lake, name)
    for given_, kept in zip(rows, found, strict=True):
        for column, value in given_.items():
            if isinstance(value, bool | int) and isinstance(kept.get(column), str):
                assert json.loads(kept[column]) == value
            elif isinstance(value, int | float | bool) or (
                isinstance(value, str) and isinstance(kept.get(column), str)
            ):
                assert kept[column] == value or json.loads(str(kept[column])) == value
    lake.drop_table(name)


def test_columns_are_read_alike_whether_they_were_known_or_not(lake: Lake, tmp_path: Path) -> None:
    path = put(tmp_path, "f.csv", "a,b,c\n1,1.5,2026-01-01T00:00:00Z\n-5,1e3,2026-01-01 00:00:01+01:00\n")
    lake.load(path, NAME, create=True)
    lake.create_table("main.files.u", pa.schema([("a", pa.int64()), ("b", pa.float64()), ("c", INSTANT)]))
    lake.load(path, "main.files.u")
    one, other = (lake.table(name).to_arrow().select(["a", "b", "c"]) for name in (NAME, "main.files.u"))
    assert one.equals(other)
    assert pc.sum(one["a"]).as_py() == -4
