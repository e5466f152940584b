"""Tables of made-up rows for made-up statements: the same two shapes, other values and places of rows each time."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from crannog.embedded import EmbeddedLake as Lake

CATALOG, SCHEMA = "made", "up"
INSTANT = pa.timestamp("us", tz="UTC")
NUMBER, TEXT, DAY, MOMENT, TRUTH, LIST, MAP, STRUCT = (
    "number",
    "text",
    "day",
    "moment",
    "truth",
    "list",
    "map",
    "struct",
)
COLUMNS: dict[str, tuple[pa.DataType, str]] = {
    "id": (pa.int32(), NUMBER),
    "a": (pa.int32(), NUMBER),
    "b": (pa.int64(), NUMBER),
    "i8": (pa.int8(), NUMBER),
    "m": (pa.decimal128(9, 2), NUMBER),
    "g": (pa.float64(), NUMBER),
    "x": (pa.string(), TEXT),
    "y": (pa.string(), TEXT),
    "d": (pa.date32(), DAY),
    "t": (INSTANT, MOMENT),
    "z": (pa.bool_(), TRUTH),
    "l": (pa.list_(pa.int32()), LIST),
    "mp": (pa.map_(pa.string(), pa.int32()), MAP),
    "st": (pa.struct([("p", pa.int32()), ("q", pa.string())]), STRUCT),
}
ARROW = pa.schema([(name, type_) for name, (type_, _) in COLUMNS.items()])
# How a table's rows lie: the letters of FORMS are table names in statements.
FORMS = {
    "half": "half folded, half staged",
    "keyed": "by key, folded, then changed",
    "staged": "staged only",
    "hot": "half folded, held in memory",
}
_WORDS = ["", "a", "b", "ab", "Ab", " a ", "a%", "a_b", "ü", "😀", "x'y", "12", "7", "2020-02-29"]


def _value(random: Random, name: str) -> Any:
    if name == "id":
        raise ValueError(name)
    if random.random() < 0.2:
        return None
    small = random.randint(-4, 9)
    values: dict[str, Any] = {
        "a": small if random.random() < 0.9 else random.choice([2**31 - 1, -(2**31)]),
        "b": small if random.random() < 0.9 else random.choice([2**63 - 1, -(2**63), 2**40]),
        "i8": random.choice([small, 127, -128]),
        "m": Decimal(random.randint(-500, 500)).scaleb(-2),
        "g": random.choice([0.0, 1.0, -1.5, 0.1, 2.25, math.nan, math.inf, 1e300]),
        "x": random.choice(_WORDS),
        "y": random.choice(_WORDS),
        "d": dt.date(2020, 2, 25) + dt.timedelta(days=random.choice([0, 1, 4, 5, 40, -20_000, 90_000])),
        "t": dt.datetime(2020, 2, 28, 22, 15, 30, 123456, dt.UTC)
        + dt.timedelta(hours=random.choice([0, 1, 2, 30, -900_000, 1_000_000])),
        "z": random.random() < 0.5,
        "l": [random.choice([1, 2, 3, None]) for _ in range(random.randint(0, 3))],
        "mp": [(key, random.choice([1, 2, None])) for key in random.sample(["a", "b", "c"], random.randint(0, 3))],
        "st": {"p": random.choice([1, 2, None]), "q": random.choice(["a", "b", None])},
    }
    return values[name]


@dataclass(frozen=True)
class MadeTable:
    """One table: its name, how its rows lie, and what they are."""

    name: str
    form: str
    rows: tuple[dict[str, Any], ...]
    columns: tuple[str, ...] = tuple(COLUMNS)

    @property
    def arrow(self) -> pa.Table:
        schema = pa.schema([ARROW.field(name) for name in self.columns])
        return pa.Table.from_pylist([{name: row[name] for name in self.columns} for row in self.rows], schema=schema)

    def write(self, lake: Lake) -> None:
        """Make the table anew, in its form."""
        full = f"{CATALOG}.{SCHEMA}.{self.name}"
        if full in lake.tables():
            lake.drop_table(full)
        rows, half = self.arrow, len(self.rows) // 2
        table = lake.create_table(full, rows.schema, key=["id"] if self.form == "keyed" else None)
        if self.form == "staged":
            table.append(rows)
        elif self.form == "keyed":
            # Rows that were other ones before, and one that is gone again.
            first = rows.slice(0, half + 1)
            stale = first.to_pylist()
            table.upsert(
                pa.Table.from_pylist(
                    [{**row, "a": None} for row in stale] + [{**stale[0], "id": 999}] if stale else [],
                    schema=rows.schema,
                )
            )
            table.fold()
            table.upsert(rows)
            table.delete([999])
        else:
            table.append(rows.slice(0, half))
            if half:
                table.fold()
            table.append(rows.slice(half))
        if self.form == "hot":
            lake.cache.pin(full)

    def __str__(self) -> str:
        shown = [", ".join(f"{name}={row[name]!r}" for name in self.columns) for row in self.rows]
        return (
            f"{self.name} ({FORMS[self.form]}, {', '.join(f'{name} {COLUMNS[name][0]}' for name in self.columns)}):\n"
            + "".join(f"    {row}\n" for row in shown)
        )


def made_tables(random: Random) -> list[MadeTable]:
    """One table of each form."""
    found = []
    for form in FORMS:
        rows = tuple(
            {"id": number, **{name: _value(random, name) for name in COLUMNS if name != "id"}}
            for number in range(random.randint(2, 7))
        )
        found.append(MadeTable(f"t_{form}", form, rows))
    return found
