"""Rows of every accepted form become exactly the table's schema, or the batch is refused with row, column and value."""

from __future__ import annotations

import enum
import io
import math
import re
import uuid
from collections import OrderedDict
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from crannog.delta.schema_json import list_of, map_of
from crannog.delta.schemas import check_key, user_schema
from crannog.engine.rows import keys_to_arrow, to_arrow
from crannog.errors import BadRows, CallerError, SchemaMismatch

UTC_US = pa.timestamp("us", tz="UTC")
NAME = "sales.eu.orders"
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def append(rows: Any, schema: pa.Schema) -> pa.Table:
    table = to_arrow(rows, schema, table=NAME, verb="append")
    assert table.schema.equals(schema)
    table.validate(full=True)
    return table


def one(type_: pa.DataType, *, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field("c", type_, nullable=nullable)])


def kept(value: Any, type_: pa.DataType) -> Any:
    """The value as kept; also kept from among 100 rows, where another path converts it."""
    few = append([{"c": value}], one(type_)).column("c").to_pylist()[0]
    many = append([{"c": None}] * 99 + [{"c": value}], one(type_)).column("c").to_pylist()[99]
    assert few == many or (few != few and many != many)
    return few


def refused(value: Any, type_: pa.DataType, *, nullable: bool = True) -> str:
    with pytest.raises(BadRows) as few:
        append([{"c": value}], one(type_, nullable=nullable))
    assert "row 0 (counting from 0)" in few.value.message
    good = append([{}], one(type_)).slice(0, 0)
    assert good.num_rows == 0
    if nullable:
        with pytest.raises(BadRows) as many:
            append([{"c": None}] * 99 + [{"c": value}], one(type_))
        assert many.value.message == few.value.message.replace("row 0", "row 99")
    few.value.message.encode()
    return few.value.message


# --- random rows of random types ---------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.string(), TEXT),
    (pa.binary(), st.binary(max_size=8)),
    (pa.date32(), st.dates()),
    (UTC_US, st.datetimes(timezones=st.just(UTC))),
    (pa.decimal128(12, 3), st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3))),
]
Typed = tuple[pa.DataType, st.SearchStrategy[Any]]


def nullable_or_not(typed: Typed, nullable: bool) -> st.SearchStrategy[Any]:
    return st.none() | typed[1] if nullable else typed[1]


def lists(typed: Typed, nullable: bool) -> Typed:
    return list_of(typed[0], nullable=nullable), st.lists(nullable_or_not(typed, nullable), max_size=3)


def maps(key: Typed, typed: Typed, nullable: bool) -> Typed:
    values = st.dictionaries(key[1], nullable_or_not(typed, nullable), max_size=3)
    return map_of(key[0], typed[0], nullable=nullable), values


def structs(members: list[tuple[Typed, bool]]) -> Typed:
    fields = [pa.field(f"f{i}", typed[0], nullable=nullable) for i, (typed, nullable) in enumerate(members)]
    values = {f"f{i}": nullable_or_not(typed, nullable) for i, (typed, nullable) in enumerate(members)}
    return pa.struct(fields), st.fixed_dictionaries(values)


KEYS = [leaf for leaf in LEAVES if not pa.types.is_floating(leaf[0])]
TYPED: st.SearchStrategy[Typed] = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.builds(lists, inner, st.booleans()),
        st.builds(maps, st.sampled_from(KEYS), inner, st.booleans()),
        st.builds(structs, st.lists(st.tuples(inner, st.booleans()), min_size=1, max_size=3)),
    ),
    max_leaves=5,
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Schema, list[dict[str, Any]]]:
    whole, rows = structs(draw(st.lists(st.tuples(TYPED, st.booleans()), min_size=1, max_size=4)))
    return pa.schema(list(whole)), draw(st.lists(rows, max_size=4)) * draw(st.sampled_from([1, 1, 30]))


def plain(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]


@settings(deadline=None)
@given(tables())
def test_rows_come_back_as_they_were(case: tuple[pa.Schema, list[dict[str, Any]]]) -> None:
    schema, rows = case
    table = append(rows, schema)
    assert plain(table) == rows
    # The same through Arrow: other column order, cut in two, and out of a Parquet file.
    names = schema.names[::-1]
    half = len(rows) // 2
    pieces = pa.concat_tables([table.slice(0, half), table.slice(half)]).select(names)
    assert plain(append(pieces, schema)) == rows
    file = io.BytesIO()
    pq.write_table(append(pieces, schema), file)
    assert plain(append(pq.read_table(file), schema)) == rows


@settings(deadline=None, max_examples=50)
@given(tables())
def test_arrow_without_nullability_is_fitted(case: tuple[pa.Schema, list[dict[str, Any]]]) -> None:
    schema, rows = case
    loose = pa.schema([pa.field(f.name, loosened(f.type)) for f in schema])
    assert plain(append(pa.Table.from_pylist(rows, schema=loose), schema)) == rows
    assert plain(append(pa.Table.from_pylist([{}, *rows], schema=loose).slice(1), schema)) == rows


def loosened(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(f.name, loosened(f.type)) for f in type_])
    if pa.types.is_map(type_):
        return pa.map_(loosened(type_.key_type), loosened(type_.item_type))
    if pa.types.is_list(type_):
        return pa.large_list(loosened(type_.value_type))
    wide = {pa.string(): pa.large_string(), pa.binary(): pa.binary_view(), pa.int32(): pa.int64()}
    return wide.get(type_, type_)


# --- one value among dicts ---------------------------------------------------------------------------------------


class Shade(enum.Enum):
    DARK = "dark"


class Level(enum.IntEnum):
    HIGH = 3


EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        (5, pa.float64(), 5.0),
        (2**53, pa.float64(), 2.0**53),
        (math.inf, pa.float32(), math.inf),
        (0.1, pa.float32(), float(np.float32(0.1))),
        (np.int64(4), pa.int8(), 4),
        (np.float32(0.5), pa.float64(), 0.5),
        (np.bool_(True), pa.bool_(), True),
        (Level.HIGH, pa.int64(), 3),
        (Shade.DARK, pa.string(), "dark"),
        (uuid.UUID(int=1), pa.string(), str(uuid.UUID(int=1))),
        (bytearray(b"x"), pa.binary(), b"x"),
        (memoryview(b"x"), pa.binary(), b"x"),
        ("2024-05-01T12:00:00Z", UTC_US, NOON),
        ("2024-05-01T14:00:00+02:00", UTC_US, NOON),
        ("2024-05-01 12:00:00", UTC_US, NOON),
        ("2024-05-01T12:00:00.000001000Z", UTC_US, NOON + timedelta(microseconds=1)),
        (datetime(2024, 5, 1, 12), UTC_US, NOON),
        (datetime(2024, 5, 1, 14, tzinfo=EAST), UTC_US, NOON),
        (pd.Timestamp("2024-05-01T12:00Z"), UTC_US, NOON),
        (pd.NaT, UTC_US, None),
        ("2024-05-01", pa.date32(), date(2024, 5, 1)),
        (datetime(2024, 5, 1), pa.date32(), date(2024, 5, 1)),
        ("1.5", pa.decimal128(5, 2), Decimal("1.50")),
        (7, pa.decimal128(5, 2), Decimal("7.00")),
        (999, pa.decimal128(5, 2), Decimal("999.00")),
        (Decimal("1.500"), pa.decimal128(5, 2), Decimal("1.50")),
        (Decimal("1E2"), pa.decimal128(5, 2), Decimal("100.00")),
        ((1, 2), list_of(pa.int64()), [1, 2]),
        ({1}, list_of(pa.int64()), [1]),
        (np.array([1, 2]), list_of(pa.int64()), [1, 2]),
        (["2024-05-01"], list_of(pa.date32()), [date(2024, 5, 1)]),
        ({"a": 1}, map_of(pa.string(), pa.int64()), [("a", 1)]),
        ([("a", 1), ("b", None)], map_of(pa.string(), pa.int64()), [("a", 1), ("b", None)]),
        (OrderedDict(x="2024-05-01"), pa.struct([pa.field("x", pa.date32())]), {"x": date(2024, 5, 1)}),
        ({}, pa.struct([pa.field("x", pa.date32())]), {"x": None}),
    ],
)
def test_values_that_are_kept(value: Any, type_: pa.DataType, expected: Any) -> None:
    assert kept(value, type_) == expected


def test_nan_is_a_float() -> None:
    assert math.isnan(kept(math.nan, pa.float64()))
    assert math.isnan(kept(math.nan, pa.float32()))


@pytest.mark.parametrize(
    ("value", "type_", "words"),
    [
        (True, pa.int64(), "True is bool, the column is int64"),
        (1, pa.bool_(), "1 is int, the column is bool"),
        (1.0, pa.int64(), "1.0 is float"),
        ("1", pa.int64(), "'1' is str"),
        (True, pa.float64(), "bool"),
        ("x", pa.float64(), "'x' is str, the column is double"),
        (128, pa.int8(), "too large"),
        (2**63, pa.int64(), "too large"),
        (-(2**63) - 1, pa.int64(), "too large"),
        (2**53 + 1, pa.float64(), "exactly"),
        (10**400, pa.float64(), "exactly"),
        (2**24 + 1, pa.float32(), "exactly"),
        (1e300, pa.float32(), "too large"),
        (Decimal("1.5"), pa.float64(), "Decimal"),
        (1, pa.string(), "int"),
        (b"x", pa.string(), "bytes"),
        ("\ud800", pa.string(), "UTF-8"),
        ("x", pa.binary(), "str"),
        (1, pa.date32(), "int"),
        (datetime(2024, 5, 1, 1), pa.date32(), "time of day"),
        ("2024-05-01T01:00:00", pa.date32(), "ISO 8601"),
        ("yesterday", UTC_US, "ISO 8601"),
        ("2024-05-01", UTC_US, "no time of day"),
        ("2024-05-01T12:00:00.0000001Z", UTC_US, "finer"),
        (pd.Timestamp("2024-05-01T12:00:00.000000001Z"), UTC_US, "finer"),
        (1714564800, UTC_US, "int"),
        (date(2024, 5, 1), UTC_US, "date"),
        (datetime(1, 1, 1, tzinfo=EAST), UTC_US, "years 1 to 9999"),
        (1.5, pa.decimal128(5, 2), "float"),
        (True, pa.decimal128(5, 2), "bool"),
        (1000, pa.decimal128(5, 2), "too large"),
        (Decimal("1.005"), pa.decimal128(5, 2), "more decimals"),
        (Decimal("NaN"), pa.decimal128(5, 2), "decimal"),
        (Decimal("Infinity"), pa.decimal128(5, 2), "no number"),
        (Decimal("1E+999999"), pa.decimal128(5, 2), "no number"),
        ("abc", pa.decimal128(5, 2), "no number"),
        ("ab", list_of(pa.string()), "str"),
        ([True], list_of(pa.int64()), "column c[]: True is bool"),
        ([1, None], list_of(pa.int64(), nullable=False), "column c[]: the value is null"),
        ({"a": True}, map_of(pa.string(), pa.int64()), "column c[value]: True"),
        ({1: 1}, map_of(pa.string(), pa.int64()), "column c[key]: 1 is int"),
        ({"a": None}, map_of(pa.string(), pa.int64(), nullable=False), "column c[value]: the value is null"),
        ([("a", 1), ("a", 2)], map_of(pa.string(), pa.int64()), "twice"),
        ([(None, 1)], map_of(pa.string(), pa.int64()), "column c[key]"),
        (["ab"], map_of(pa.string(), pa.string()), "list"),
        ({"x": 1, "y": 2}, pa.struct([pa.field("x", pa.int64())]), "column c.y: 2 has no place"),
        ({"x": None}, pa.struct([pa.field("x", pa.int64(), nullable=False)]), "column c.x: the value is null"),
        ([("x", 1)], pa.struct([pa.field("x", pa.int64())]), "list"),
        ([{"x": [b"y"]}], list_of(pa.struct([pa.field("x", list_of(pa.string()))])), "column c[].x[]: b'y' is bytes"),
    ],
)
def test_values_that_are_refused(value: Any, type_: pa.DataType, words: str) -> None:
    assert words in refused(value, type_)


def test_null_where_there_must_be_a_value() -> None:
    assert "row 0 (counting from 0), column c: the value is null" in refused(None, pa.int64(), nullable=False)
    with pytest.raises(BadRows, match=r"row 1 .*column c: the value is null or missing"):
        append([{"c": 1}, {}], one(pa.int64(), nullable=False))


def test_the_message_is_whole() -> None:
    with pytest.raises(BadRows) as caught:
        append([{"c": 1}] * 3 + [{"c": "x" * 500}], one(pa.int64()))
    start = f"cannot append to {NAME}: row 3 (counting from 0), column c: 'xxx"
    assert caught.value.message.startswith(start)
    assert caught.value.message.endswith("… is str, the column is int64; nothing of the batch was kept")
    assert caught.value.message.count("x") <= 80


@pytest.mark.parametrize("count", [1, 500])
def test_unknown_keys_are_refused(count: int) -> None:
    with pytest.raises(BadRows, match=rf"row {count} \(counting from 0\), column d: 2 has no place"):
        append([{"c": 1}] * count + [{"c": 1, "d": 2}], one(pa.int64()))
    with pytest.raises(BadRows, match="column 5"):
        append([{5: 1}], one(pa.int64()))


@pytest.mark.parametrize("row", [5, None, "c", ["c"], ("c", 1), object()])
def test_rows_that_are_no_rows(row: Any) -> None:
    with pytest.raises(BadRows, match=r"row 1 \(counting from 0\): .* a row is a dict or a model"):
        append([{"c": 1}, row], one(pa.int64()))


def test_the_first_row_with_a_fault_is_named() -> None:
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.int64())])
    with pytest.raises(BadRows, match=r"row 1 .*column b"):
        append([{"a": 1}, {"b": "x"}, {"a": "y"}, {"z": 1}], schema)


def test_a_message_survives_a_value_that_cannot_be_shown() -> None:
    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert "a Rude is Rude" in refused(Rude(), pa.int64())


@pytest.mark.parametrize("rows", [None, 5, "abc", {"c": 1}, object(), iter([{"c": 1}])])
def test_other_forms_are_refused(rows: Any) -> None:
    with pytest.raises(CallerError, match="rows are a list of dicts"):
        append(rows, one(pa.int64()))


def test_no_rows() -> None:
    nothing: Any
    for nothing in ([], (), pd.DataFrame(), pl.DataFrame({"c": []}), pa.table({"c": pa.array([], pa.int8())})):
        assert append(nothing, one(pa.int64())).num_rows == 0


def test_schemas_with_the_same_columns_are_not_mixed_up() -> None:
    for number in range(600):
        type_ = pa.int64() if number % 2 else pa.string()
        assert append([{"c": 1 if number % 2 else "x"}], one(type_)).column("c").type == type_


# --- models ------------------------------------------------------------------------------------------------------


class Line(BaseModel):
    price: Decimal = Field(max_digits=10, decimal_places=2)


class Order(BaseModel):
    id: int
    name: str = Field(serialization_alias="title", default="x")
    at: datetime
    shade: Shade
    ref: uuid.UUID
    raw: bytes
    lines: list[Line]
    first: Line | None = None
    tags: dict[str, int] = {}


def test_models_fit_the_schema_they_gave() -> None:
    order = Order(
        id=1,
        at=NOON,
        shade=Shade.DARK,
        ref=uuid.UUID(int=1),
        raw=b"r",
        lines=[Line(price=Decimal("1.5"))],
        tags={"a": 1},
    )
    schema = user_schema(Order)
    expected = {
        "id": 1,
        "title": "x",
        "at": NOON,
        "shade": "dark",
        "ref": str(uuid.UUID(int=1)),
        "raw": b"r",
        "lines": [{"price": Decimal("1.50")}],
        "first": None,
        "tags": {"a": 1},
    }
    assert plain(append([order], schema)) == [expected]
    assert plain(append([order, expected] * 50, schema)) == [expected] * 100


# --- Arrow, pandas, Polars ---------------------------------------------------------------------------------------

DAY = 86_400_000


@pytest.mark.parametrize(
    ("array", "type_", "expected"),
    [
        (pa.array([1, None], pa.int8()), pa.int64(), [1, None]),
        (pa.array([1], pa.int64()), pa.int8(), [1]),
        (pa.array([1], pa.uint64()), pa.int32(), [1]),
        (pa.array([1], pa.int32()), pa.float64(), [1.0]),
        (pa.array([0.5, math.inf], pa.float32()), pa.float64(), [0.5, math.inf]),
        (pa.array([0.5, None], pa.float64()), pa.float32(), [0.5, None]),
        (pa.array(["x"], pa.large_string()), pa.string(), ["x"]),
        (pa.array(["x"], pa.string_view()), pa.string(), ["x"]),
        (pa.array(["x", None, "x"]).dictionary_encode(), pa.string(), ["x", None, "x"]),
        (pa.array([b"xy"], pa.binary(2)), pa.binary(), [b"xy"]),
        (pa.array([DAY], pa.date64()), pa.date32(), [date(1970, 1, 2)]),
        (pa.array([1], pa.timestamp("s", tz="Asia/Tokyo")), UTC_US, [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]),
        (pa.array([1000], pa.timestamp("ns", tz="UTC")), UTC_US, [datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]),
        (pa.array([Decimal("1.5")], pa.decimal256(40, 1)), pa.decimal128(5, 2), [Decimal("1.50")]),
        (pa.array([7], pa.int64()), pa.decimal128(5, 2), [Decimal("7.00")]),
        (pa.nulls(2), list_of(pa.int8()), [None, None]),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), list_of(pa.int64(), nullable=False), [[1, 2], None]),
        (pa.array([[1], None, []], pa.large_list_view(pa.int8())), list_of(pa.int64()), [[1], None, []]),
        (
            pa.array([[("a", 1)], None, []], pa.map_(pa.large_string(), pa.int8())),
            map_of(pa.string(), pa.int64()),
            [[("a", 1)], None, []],
        ),
        (
            pa.array([{"b": "x"}, None], pa.struct([pa.field("b", pa.large_string())])),
            pa.struct([pa.field("a", pa.int8()), pa.field("b", pa.string(), nullable=False)]),
            [{"a": None, "b": "x"}, None],
        ),
    ],
)
def test_arrow_types_that_fit(array: pa.Array, type_: pa.DataType, expected: Any) -> None:
    assert append(pa.table({"c": array}), one(type_)).column("c").to_pylist() == expected
    twice = pa.chunked_array([array.slice(1), array])
    assert append(pa.table({"c": twice}), one(type_)).column("c").to_pylist() == expected[1:] + expected
    file = io.BytesIO()
    pq.write_table(append(pa.table({"c": twice}), one(type_)), file)


@pytest.mark.parametrize(
    ("array", "type_"),
    [
        (pa.array(["1"]), pa.float64()),
        (pa.array([1.0]), pa.int64()),
        (pa.array([1.0]), pa.decimal128(5, 2)),
        (pa.array([True]), pa.int64()),
        (pa.array([1]), pa.bool_()),
        (pa.array([1]), UTC_US),
        (pa.array([1]), pa.date32()),
        (pa.array(["x"]), pa.binary()),
        (pa.array([b"x"]), pa.string()),
        (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")), UTC_US),
        (pa.array([NOON], UTC_US), pa.date32()),
        (pa.array([date(2024, 5, 1)]), UTC_US),
        (pa.array([Decimal(1)]), pa.float64()),
        (pa.array([[1]]), pa.int64()),
        (pa.array([1]), list_of(pa.int64())),
        (pa.array([{"a": 1}]), list_of(pa.int64())),
        (pa.array([[1]]), pa.struct([pa.field("a", pa.int64())])),
        (pa.array([[1]]), map_of(pa.string(), pa.int64())),
        (pa.array([{"a": 1, "b": 1}]), pa.struct([pa.field("a", pa.int64())])),
        (pa.array([{"a": 1}]), pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.int64(), nullable=False)])),
        (pa.array([["x"]]), list_of(pa.int64())),
    ],
)
@pytest.mark.parametrize("rows", [0, 1])
def test_arrow_types_that_do_not_fit(array: pa.Array, type_: pa.DataType, rows: int) -> None:
    with pytest.raises(SchemaMismatch, match=f"cannot append to {NAME}: column c"):
        append(pa.table({"c": array.slice(0, rows)}), one(type_))
    with pytest.raises(SchemaMismatch):
        append(pa.table({"c": pa.chunked_array([], array.type)}), one(type_))


def test_the_words_for_a_wrong_type() -> None:
    schema = pa.schema([pa.field("amount", pa.float64())])
    with pytest.raises(SchemaMismatch) as caught:
        append(pa.table({"amount": ["x"]}), schema)
    assert caught.value.message == "cannot append to sales.eu.orders: column amount is double, the batch has string"
    with pytest.raises(SchemaMismatch, match=r"cannot upsert into sales.eu.orders"):
        to_arrow(pa.table({"amount": ["x"]}), schema, table=NAME, verb="upsert")


def invalid_utf8() -> pa.Array:
    return pa.Array.from_buffers(pa.string(), 3, pa.array([b"a", b"b", b"\xff"]).buffers())


@pytest.mark.parametrize(
    ("array", "type_", "row", "path"),
    [
        (pa.array([1, 2, 128, 300]), pa.int8(), 2, "c"),
        (pa.array([2**64 - 1], pa.uint64()), pa.int64(), 0, "c"),
        (pa.array([1, 2**53 + 1]), pa.float64(), 1, "c"),
        (pa.array([0.5, 0.1]), pa.float32(), 1, "c"),
        (pa.array([0.5, None, 1e300]), pa.float32(), 2, "c"),
        (pa.array([1000, 1], pa.timestamp("ns", tz="UTC")), UTC_US, 1, "c"),
        (pa.array([DAY, 5], pa.date64()), pa.date32(), 1, "c"),
        (pa.array([Decimal("1.00"), Decimal("1.01")]), pa.decimal128(5, 1), 1, "c"),
        (pa.array([1, 1000]), pa.decimal128(5, 2), 1, "c"),
        (pa.array([0, 2**62], UTC_US), UTC_US, 1, "c"),
        (pa.array([0, -(2**31)], pa.date32()), pa.date32(), 1, "c"),
        (pa.array([[1], None, [1, None]]), list_of(pa.int64(), nullable=False), 2, "c[]"),
        (pa.array([{"a": 1}, None, {"a": None}]), pa.struct([pa.field("a", pa.int64(), nullable=False)]), 2, "c.a"),
        (
            pa.array([[("a", 1)], [("b", 1), ("b", 2)]], pa.map_(pa.string(), pa.int64())),
            map_of(pa.string(), pa.int64()),
            1,
            "c",
        ),
        (pa.array([[1], [300]]), list_of(pa.int8()), 1, "c"),
        (invalid_utf8(), pa.string(), 2, "c"),
    ],
)
def test_arrow_values_that_do_not_fit(array: pa.Array, type_: pa.DataType, row: int, path: str) -> None:
    with pytest.raises(BadRows, match=re.escape(f"row {row} (counting from 0), column {path}")):
        append(pa.table({"c": array}), one(type_))
    two = pa.chunked_array([pa.nulls(3, array.type), array])
    with pytest.raises(BadRows, match=re.escape(f"row {row + 3} (counting from 0), column {path}")):
        append(pa.table({"c": two}), one(type_))


def test_a_null_in_an_arrow_column_that_is_not_null() -> None:
    with pytest.raises(BadRows, match=r"row 700 \(counting from 0\), column c: None: the value is null"):
        append(pa.table({"c": [1] * 700 + [None] + [2] * 99}), one(pa.int64(), nullable=False))


def test_arrow_columns_are_found_by_name() -> None:
    schema = pa.schema(
        [pa.field("a", pa.int64()), pa.field("b", pa.string(), nullable=False), pa.field("c", pa.date32())]
    )
    batch = pa.record_batch({"b": ["x"], "a": [1]})
    assert plain(append(batch, schema)) == [{"a": 1, "b": "x", "c": None}]
    with pytest.raises(SchemaMismatch, match="column b is string not null, the batch does not have it"):
        append(batch.select(["a"]), schema)
    with pytest.raises(
        SchemaMismatch, match=r"the batch has z, _batch_id, the table has no such column .*set by Crannog"
    ):
        append(pa.table({"b": ["x"], "z": [1], "_batch_id": [1]}), schema)
    with pytest.raises(SchemaMismatch, match="column b twice"):
        append(pa.table([["x"], ["y"]], names=["b", "b"]), schema)


def test_pandas_and_polars() -> None:
    schema = pa.schema(
        [pa.field("a", pa.int64()), pa.field("s", pa.string()), pa.field("t", UTC_US), pa.field("f", pa.float64())]
    )
    expected = [{"a": 1, "s": "x", "t": NOON, "f": 0.5}, {"a": 2, "s": None, "t": None, "f": None}]
    naive = NOON.replace(tzinfo=None)
    frame = pd.DataFrame({"s": ["x", None], "a": [1, 2], "t": [naive, None], "f": [0.5, None]}, index=[7, 8])
    assert plain(append(frame, schema)) == expected
    assert plain(append(frame.assign(s=frame["s"].astype("category")), schema)) == expected
    polars = pl.DataFrame({"s": ["x", None], "a": [1, 2], "t": [NOON, None], "f": [0.5, None]})
    assert plain(append(polars, schema)) == expected
    assert plain(append(polars.with_columns(pl.col("s").cast(pl.Categorical)), schema)) == expected
    with pytest.raises(SchemaMismatch, match="give its times a zone"):
        append(pl.DataFrame({"t": [naive]}), schema)
    with pytest.raises(BadRows, match="row 0"):
        append(pd.DataFrame({"t": [pd.Timestamp("2024-05-01T12:00:00.000000001")]}), schema)
    with pytest.raises(BadRows, match="cannot be read as Arrow"):
        append(pd.DataFrame({"a": [1, "x"]}), schema)
    with pytest.raises(BadRows, match="cannot be read as Arrow"):
        append(pl.Series("a", [1]), schema)


def test_nested_polars() -> None:
    row = {"tags": ["a", None], "line": {"sku": "s", "cost": Decimal("1.50"), "day": date(2024, 5, 1)}, "raw": b"r"}
    other = {"tags": None, "line": None, "raw": None}
    line = [
        pa.field("sku", pa.string(), nullable=False),
        pa.field("cost", pa.decimal128(9, 2)),
        pa.field("day", pa.date32()),
    ]
    schema = pa.schema(
        [pa.field("tags", list_of(pa.string())), pa.field("line", pa.struct(line)), pa.field("raw", pa.binary())]
    )
    assert plain(append(pl.DataFrame([row, other]), schema)) == [row, other]
    assert plain(append(pa.table({"raw": [b"r"]}), schema)) == [{"tags": None, "line": None, "raw": b"r"}]


def test_missing_structs_with_not_null_fields_can_be_written() -> None:
    inner = pa.struct([pa.field("x", pa.struct([pa.field("y", pa.int64(), nullable=False)]), nullable=False)])
    schema = pa.schema([pa.field("c", inner), pa.field("d", pa.int64())])
    for rows in (
        pa.table({"d": [1]}),
        pa.table({"d": [1], "c": pa.nulls(1)}),
        pa.table({"d": [1], "c": pa.nulls(1, inner)}),
        [{"d": 1}],
    ):
        file = io.BytesIO()
        pq.write_table(append(rows, schema), file)
        assert pq.read_table(file).to_pylist() == [{"c": None, "d": 1}]


def test_a_reader_is_read() -> None:
    table = pa.table({"c": [1, 2]})
    assert append(table.to_reader(), one(pa.int64())).column("c").to_pylist() == [1, 2]


# --- keys --------------------------------------------------------------------------------------------------------

KEYED = check_key(
    pa.schema([pa.field("v", pa.float64()), pa.field("k", pa.int64()), pa.field("day", pa.date32())]), ["k", "day"]
)


def keys(given_keys: Any, key: list[str]) -> list[dict[str, Any]]:
    table = keys_to_arrow(given_keys, KEYED, key, table=NAME, verb="delete")
    assert table.schema == pa.schema([KEYED.field(name) for name in key])
    return plain(table)


@pytest.mark.parametrize(
    "form",
    [
        [1, 2],
        (1, 2),
        [{"k": 1}, {"k": 2}],
        [{"k": 1}, 2],
        pa.array([1, 2], pa.int8()),
        pa.chunked_array([[1], [2]]),
        pa.table({"k": [1, 2]}),
        pa.record_batch({"k": [1, 2]}),
        pd.DataFrame({"k": [1, 2]}),
        pl.DataFrame({"k": [1, 2]}),
    ],
)
def test_keys_of_one_column(form: Any) -> None:
    assert keys(form, ["k"]) == [{"k": 1}, {"k": 2}]


def test_keys_of_two_columns() -> None:
    day = date(2024, 5, 1)
    assert keys([{"k": 1, "day": "2024-05-01"}], ["day", "k"]) == [{"day": day, "k": 1}]
    assert keys(pa.table({"k": [1], "day": [day]}), ["day", "k"]) == [{"day": day, "k": 1}]
    for bare in ([1], [(1, day)], pa.array([1])):
        with pytest.raises(CallerError, match="give each key with its columns by name"):
            keys(bare, ["k", "day"])


def test_no_keys() -> None:
    nothing: Any
    for nothing in ([], (), pa.array([], pa.int64()), pa.table({"k": pa.array([], pa.int64())})):
        assert keys(nothing, ["k"]) == []


@pytest.mark.parametrize(
    ("form", "error", "words"),
    [
        ([1, None], BadRows, "cannot delete from sales.eu.orders: row 1 .* null"),
        ([{"k": None}], BadRows, "row 0 .* null"),
        ([{}], BadRows, "row 0 .* null or missing"),
        (pa.array([1, None]), BadRows, "row 1 .* null"),
        ([{"k": 1, "v": 2.0}], BadRows, "column v"),
        (pa.table({"k": [1], "v": [2.0]}), SchemaMismatch, "the batch has v"),
        (pa.array(["x"]), SchemaMismatch, "column k is int64, the batch has string"),
        (["x"], BadRows, "'x' is str"),
        ("x", CallerError, "rows are a list"),
        (5, CallerError, "rows are a list"),
    ],
)
def test_keys_that_are_refused(form: Any, error: type[CallerError], words: str) -> None:
    with pytest.raises(error, match=words):
        keys(form, ["k"])
