"""The tables that the engines are compared on: every type, with the values where engines like to part."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

from crannog.embedded import EmbeddedLake as Lake

INSTANT = pa.timestamp("us", tz="UTC")
INNER = pa.struct([("r", pa.float64())])
VALUES = pa.schema(
    [
        ("id", pa.int32()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("a", pa.int32()),
        ("b", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("g", pa.float64()),
        ("m", pa.decimal128(15, 2)),
        ("n", pa.decimal128(38, 10)),
        ("q", pa.decimal128(5, 4)),
        ("w", pa.decimal128(18, 0)),
        ("x", pa.string()),
        ("y", pa.string()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", INSTANT),
        ("z", pa.bool_()),
        ("bin", pa.binary()),
        ("st", pa.struct([("p", pa.int32()), ("Q", pa.string()), ("inner", INNER)])),
        ("l", pa.list_(pa.int32())),
        ("ls", pa.list_(pa.string())),
        ("mp", pa.map_(pa.string(), pa.int32())),
        ("Größe", pa.int32()),
        ("order", pa.int32()),
    ]
)


def _instant(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


# Each column goes through its own values; their counts differ, so that the rows mix them.
POOLS: dict[str, list[Any]] = {
    "i8": [None, -128, 127, 0, 1, -1, 5],
    "i16": [-32768, 32767, None, 0, -7, 12],
    "i32": [2**31 - 1, -(2**31), 0, None, 1, -1, 100, 7],
    "i64": [-(2**63), 2**63 - 1, None, 0, 1, -1, 2**53 + 1, 10**12, 3],
    "a": [0, 1, 2, None, -3, 2, 7, -1, 1, None, 4],
    "b": [10**9, None, -5, 0, 2**40, 6, -(2**33)],
    "f32": [0.5, None, -0.0, 0.0, math.nan, math.inf, -math.inf, 1.25, -3.75, 16777216.0],
    "f64": [math.nan, 0.0, -0.0, None, math.inf, -math.inf, 1.5, -2.5, 0.1, 1e300, 5e-324, 9007199254740993.0],
    "g": [1.5, -0.25, None, 2.0, 3.75, -8.5, 0.5],
    "m": [
        Decimal("0.00"),
        None,
        Decimal("9999999999999.99"),
        Decimal("-9999999999999.99"),
        Decimal("0.05"),
        Decimal("-0.05"),
        Decimal("12.50"),
        Decimal("-7.25"),
    ],
    "n": [
        Decimal("1.0000000001"),
        Decimal("-99999999999999999.9999999999"),
        None,
        Decimal("0"),
        Decimal("123456789.5"),
        Decimal("-0.0000000001"),
    ],
    "q": [
        Decimal("9.9999"),
        Decimal("-9.9999"),
        Decimal("0.0001"),
        None,
        Decimal("0"),
        Decimal("1.5000"),
        Decimal("2.2345"),
    ],
    "w": [Decimal(10**17), Decimal(-3), None, Decimal(0), Decimal(25)],
    "x": ["abc", "ABC", "", None, "a%c", "a_c", "a\\c", " sp ", "it's", 'say "q"', "\ttab\t", "aXbXc", "100%"],
    "y": ["", "b", None, "abc", "X", "%", "_", "a", "c"],
    "s": ["Ünï", "😀x😀", None, "e\u0301a", "", "ß", "abc", "日本語", "a b"],
    "d": [
        dt.date(1970, 1, 1),
        dt.date(1969, 12, 31),
        None,
        dt.date(2020, 2, 29),
        dt.date(1900, 2, 28),
        dt.date(2000, 12, 31),
        dt.date(1601, 3, 1),
        dt.date(9999, 12, 31),
        dt.date(2021, 1, 3),
        dt.date(2024, 12, 30),
    ],
    "t": [
        _instant("1970-01-01T00:00:00"),
        _instant("1969-12-31T23:59:59.999999"),
        None,
        _instant("2020-02-29T12:30:45.123456"),
        _instant("1900-01-01T00:00:00.000001"),
        _instant("2000-12-31T23:59:59.5"),
        _instant("2021-01-03T03:04:05.1"),
        _instant("1601-03-01T10:00:00.12"),
        _instant("9999-12-31T23:59:59.999999"),
        _instant("2024-12-30T00:00:00"),
    ],
    "z": [True, None, False, True, False],
    "bin": [b"", b"\x00\xff", None, b"abc", b"x1"],
    "st": [
        {"p": 1, "Q": "one", "inner": {"r": 0.5}},
        None,
        {"p": None, "Q": None, "inner": None},
        {"p": -4, "Q": "", "inner": {"r": None}},
    ],
    "l": [[], None, [1, 2, 3], [None], [3, None, 1], [-1]],
    "ls": [["a", "b"], None, [], ["", None], ["z"]],
    "mp": [[("k", 1)], None, [], [("k", None), ("j", 2)], [("", 5)]],
    "Größe": [1, None, 3],
    "order": [2, 2, None, 1],
}
ROWS = 60
KEYED = pa.schema(
    [("id", pa.int32()), ("v", pa.string()), ("w", pa.decimal128(10, 2)), ("grp", pa.int32()), ("since", pa.date32())]
)
ORDERS = pa.schema(
    [
        ("order_id", pa.int64()),
        ("id", pa.int32()),
        ("amount", pa.decimal128(12, 2)),
        ("at", INSTANT),
        ("note", pa.string()),
    ]
)


def value_rows() -> list[dict[str, Any]]:
    """Rows over the pools; the first has a null in every column but its number."""
    cycles = {name: itertools.cycle(pool) for name, pool in POOLS.items()}
    rows: list[dict[str, Any]] = [{"id": 0}]
    rows += [{"id": number, **{name: next(cycle) for name, cycle in cycles.items()}} for number in range(1, ROWS)]
    return rows


def _keyed(number: int, **changes: Any) -> dict[str, Any]:
    row = {
        "id": number,
        "v": f"v{number}",
        "w": Decimal(number) / 4,
        "grp": number % 3,
        "since": dt.date(2020, 1, 1) + dt.timedelta(days=number * 40),
    }
    return {**row, **changes}


def _order(number: int) -> dict[str, Any]:
    return {
        "order_id": number,
        "id": None if number % 9 == 4 else number * 7 % 17 - 2,
        "amount": None if number % 8 == 3 else Decimal(number * 13 % 29) - Decimal("7.25"),
        "at": dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=number * 777, microseconds=number),
        "note": None if number % 5 == 0 else f"note {number % 4}",
    }


def fill(lake: Lake) -> None:
    """Make and pin the tables: rows in the base, in the tail, changed and deleted since the fold."""
    rows = value_rows()
    values = lake.create_table("eq.s.v", VALUES)
    values.append(pa.Table.from_pylist(rows[:40], schema=VALUES))
    values.fold()
    values.append(pa.Table.from_pylist(rows[40:], schema=VALUES))

    keyed = lake.create_table("eq.s.k", KEYED, key=["id"])
    keyed.upsert([_keyed(number) for number in range(12)])
    keyed.fold()
    keyed.upsert([_keyed(1, v="new", w=Decimal("9.99")), _keyed(3, v=None, w=None, grp=None), _keyed(20, since=None)])
    keyed.delete([2, 5])

    orders = lake.create_table("eq.s.o", ORDERS)
    orders.append([_order(number) for number in range(30)])
    orders.fold()
    orders.append([_order(number) for number in range(30, 45)])

    lake.create_table("eq.s.e", KEYED)
    for name in ("v", "k", "o", "e"):
        lake.cache.pin(f"eq.s.{name}")
