"""Small Parquet files written value by value: every reader finds in them what was given."""

from __future__ import annotations

import datetime as dt
import io
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crannog.protocol.small_parquet import RowBuffer, column, concat_buffers, small_file
from crannog.protocol.staged_files import padded
from crannog.spark.session import SparkRuntime

NESTED = pa.struct(
    [
        ("name", pa.string()),
        ("count", pa.int32()),
        ("tags", pa.list_(pa.string())),
        ("inner", pa.struct([("ratio", pa.float64()), ("rows", pa.list_(pa.list_(pa.int64())))])),
    ]
)
KINDS: dict[str, pa.DataType] = {
    "text": pa.string(),
    "flag": pa.bool_(),
    "tiny": pa.int8(),
    "small": pa.int32(),
    "large": pa.int64(),
    "ratio": pa.float64(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "names": pa.list_(pa.string()),
    "nested": NESTED,
    "many": pa.list_(NESTED),
    "a.name with dots ü": pa.int64(),
}


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        some: st.SearchStrategy[Any] = st.fixed_dictionaries(
            {field.name: values_of(field.type) for field in kind.fields}
        )
    elif pa.types.is_list(kind):
        some = st.lists(values_of(kind.value_type), max_size=4)
    elif pa.types.is_string(kind):
        some = st.text(max_size=200)
    elif pa.types.is_boolean(kind):
        some = st.booleans()
    elif pa.types.is_floating(kind):
        some = st.floats(allow_nan=False)
    else:
        bits = {pa.int8(): 7, pa.int32(): 31, pa.date32(): 20, pa.timestamp("us", "UTC"): 55}.get(kind, 63)
        some = st.integers(-(2**bits), 2**bits - 1)
    return st.none() | some


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, pa.DataType], list[list[Any]]]:
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=20, unique=True))
    rows = draw(st.integers(1, 12))
    return {name: KINDS[name] for name in names}, [
        draw(st.lists(values_of(KINDS[name]), min_size=rows, max_size=rows)) for name in names
    ]


def read(data: bytes) -> pa.Table:
    file = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
    return file.read().replace_schema_metadata(None)


@given(tables(), st.integers(0, 20_000))
@settings(max_examples=150, deadline=None)
def test_whatever_is_written_is_read_again(table: tuple[dict[str, pa.DataType], list[list[Any]]], size: int) -> None:
    kinds, values = table
    data = small_file([column(name, kind) for name, kind in kinds.items()], values, {b"k": b"v" * 300, b"": b""})
    wanted = pa.table(
        [pa.array(its, kind) for its, kind in zip(values, kinds.values(), strict=True)], names=list(kinds)
    )
    assert read(data).equals(wanted.cast(read(data).schema))
    longer = padded(data, size)
    assert len(longer) == max(len(data), size)
    assert read(longer).equals(read(data))
    file = pq.ParquetFile(io.BytesIO(longer))
    assert file.metadata.metadata == {b"k": b"v" * 300, b"": b""}
    # Described exactly as pyarrow would.
    theirs = io.BytesIO()
    pq.write_table(wanted, theirs, store_schema=False)
    assert file.schema.equals(pq.ParquetFile(theirs).schema)


def sample() -> tuple[list[str], list[list[Any]]]:
    inner = {"ratio": 0.5, "rows": [[1, 2], [], None, [3]]}
    nested = {"name": "ü", "count": None, "tags": ["a", "", None], "inner": inner}
    rows: dict[str, list[Any]] = {
        "text": ["one", None, ""],
        "tiny": [-128, 127, None],
        "large": [2**63 - 1, -(2**63), 0],
        "day": [0, 20_000, None],
        "at": [0, 1_700_000_000_000_001, None],
        "names": [["a", "b"], [], None],
        "nested": [nested, None, {"name": None, "count": 1, "tags": None, "inner": None}],
        "many": [[nested, None], [], None],
    }
    return list(rows), list(rows.values())


def test_duckdb_and_spark_read_them_alike(tmp_path: Path, spark: SparkRuntime) -> None:
    names, values = sample()
    path = tmp_path / "small.parquet"
    path.write_bytes(padded(small_file([column(name, KINDS[name]) for name in names], values, {}), 8_192))
    wanted = pq.read_table(path).to_pylist()
    assert wanted[0]["nested"]["inner"]["rows"] == [[1, 2], [], None, [3]]
    assert wanted[1]["at"] == dt.datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=dt.UTC)
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone='UTC'")
        assert engine.sql(f"SELECT * FROM '{path}'").to_arrow_table().to_pylist() == wanted
    assert spark.session().read.parquet(f"file://{path}").toArrow().to_pylist() == wanted


def test_a_changed_byte_is_found() -> None:
    names, values = sample()
    data = bytearray(small_file([column(name, KINDS[name]) for name in names], values, {}))
    data[data.index(b"one")] ^= 1
    with pytest.raises(OSError, match="CRC"):
        read(bytes(data))


def test_a_type_that_takes_pyarrow_is_refused() -> None:
    with pytest.raises(KeyError):
        column("price", pa.decimal128(10, 2))


def test_few_rows_together_are_null_where_a_column_is_missing() -> None:
    one = RowBuffer([column("a", pa.int64()), column("b", pa.string())], [[1, 2], ["x", None]])
    other = RowBuffer([column("b", pa.string())], [["y"]])
    wanted = pa.schema([("b", pa.string()), ("a", pa.int64()), ("c", NESTED)])
    assert concat_buffers([one, other], wanted).to_pylist() == [
        {"b": "x", "a": 1, "c": None},
        {"b": None, "a": 2, "c": None},
        {"b": "y", "a": None, "c": None},
    ]
    assert one.fits({"a": pa.int64(), "b": pa.string(), "c": NESTED})
    assert not one.fits({"a": pa.int32(), "b": pa.string()})
    assert one.table.to_pylist() == read(one.to_parquet({})).to_pylist()
