"""A few rows as plain columns: what is staged is what Arrow would have staged, and all else is left to Arrow."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crannog
from crannog.engine.rows import to_arrow
from crannog.engine.rows.few import few_rows
from crannog.errors import BadRows
from crannog.protocol.small_parquet import merged_buffers
from crannog.protocol.staged_files import Change, build_segment, decode, encode

KINDS: dict[str, pa.DataType] = {
    "text": pa.string(),
    "flag": pa.bool_(),
    "tiny": pa.int8(),
    "large": pa.int64(),
    "ratio": pa.float64(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
}
SCHEMA = pa.schema(list(KINDS.items()))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(max_size=30),
    "flag": st.booleans(),
    "tiny": st.integers(-200, 200),
    "large": st.integers(-(2**64), 2**64),
    "ratio": st.floats(allow_nan=False) | st.integers(-(2**60), 2**60),
    "day": st.dates() | st.dates().map(str) | st.sampled_from(["31.1.2026", ""]),
    "at": st.datetimes() | st.datetimes(timezones=st.timezones()) | st.datetimes().map(str) | st.just("yesterday"),
}
ROWS = st.lists(
    st.fixed_dictionaries({}, optional={name: st.none() | some for name, some in VALUES.items()}), max_size=20
)


@settings(max_examples=300, deadline=None)
@given(ROWS)
def test_they_are_what_arrow_makes_of_them(rows: list[dict[str, Any]]) -> None:
    few = few_rows(rows, SCHEMA)
    try:
        wanted = to_arrow(rows, SCHEMA, table="a.b.c", verb="append")
    except BadRows:
        assert few is None
        return
    if few is not None:
        assert few.table.to_pylist() == wanted.select([column.name for column in few.columns]).to_pylist()
        left_out = set(KINDS) - {column.name for column in few.columns}
        assert all(wanted[name].null_count == len(rows) for name in left_out)
        change = Change("b", "append", few, 100, at_us=1_700_000_000_000_000)
        types = {**KINDS, "_created_at": KINDS["at"], "_batch_id": pa.string()}
        data = encode(build_segment([change, change], 7, "w", types), table_id="t", schema_version="0")
        read = decode(data, path="p", table_id="t").rows
        both = merged_buffers([few, few]).table.to_pylist()
        assert read.select([column.name for column in few.columns]).to_pylist() == both
        assert read["_ord"].to_pylist() == list(range(2 * len(rows)))


def test_most_rows_need_no_arrow() -> None:
    row = {"text": "ü", "flag": True, "tiny": 1, "large": 2**60, "ratio": 1, "at": "2026-01-31T10:00:00Z"}
    assert few_rows([row] * 16, SCHEMA) is not None
    assert few_rows([row] * 17, SCHEMA) is None


@pytest.mark.parametrize(
    "row",
    [{"text": 1}, {"text": "\ud800"}, {"tiny": 128}, {"tiny": True}, {"other": 1}, {"day": "x"}, {"ratio": 2**54}],
    ids=str,
)
def test_what_does_not_fit_is_left_to_arrow_to_refuse(row: dict[str, Any]) -> None:
    assert few_rows([row], SCHEMA) is None


def test_other_types_and_missing_keys_are_left_to_arrow() -> None:
    assert few_rows([{"price": Decimal(1)}], pa.schema([("price", pa.decimal128(4, 2))])) is None
    assert few_rows([{"n": None}], pa.schema([pa.field("n", pa.int64(), nullable=False)])) is None
    assert few_rows([{"n": None}], pa.schema([("n", pa.int64())])) is None
    assert few_rows([], SCHEMA) is None


def test_rows_of_both_kinds_are_read_together(tmp_path: Path) -> None:
    at = dt.datetime(2026, 1, 31, 10, tzinfo=dt.UTC)
    with crannog.connect(str(tmp_path)) as lake:
        table = lake.create_table(
            "a.b.c", pa.schema([("id", pa.int64()), ("text", pa.string()), ("at", KINDS["at"])]), key="id"
        )
        table.append([{"id": 1, "text": "one"}])
        table.append([{"id": number, "text": str(number), "at": at} for number in range(2, 40)])
        table.delete([3])
        table.append([{"id": 4}, {"id": 5, "at": at}])
        rows = {row["id"]: row for row in table.to_arrow().to_pylist()}
        assert sorted(rows) == [1, 2, *range(4, 40)]
        assert (rows[1]["text"], rows[1]["at"], rows[4]["text"], rows[5]["at"]) == ("one", None, None, at)
    with crannog.connect(str(tmp_path)) as lake:
        assert {row["id"]: row for row in lake.table("a.b.c").to_arrow().to_pylist()} == rows
