"""Tables and expressions that hypothesis makes up, of the types and the rules the fast engines know.

An expression need not be right: what has no rule, or stops, is left out before Spark is asked, as `auto` would.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

INSTANT = pa.timestamp("us", tz="UTC")
NUMBER, TEXT, DAY, MOMENT, TRUTH = "number", "text", "day", "moment", "truth"
_LIMITS = {pa.int8(): 2**7, pa.int16(): 2**15, pa.int32(): 2**31, pa.int64(): 2**63}
_FLOATS = [0.0, -0.0, 1.0, -1.5, 0.1, math.nan, math.inf, -math.inf, 1e300, -7.25]
_WORDS = ["", "a", "b", "ab", "Ab", " a ", "a%", "a_b", "ü", "😀", "x'y", "12", "\t"]


@dataclass(frozen=True)
class Made:
    """A table that was made up: its columns, its rows."""

    schema: pa.Schema
    rows: list[dict[str, Any]]

    def named(self, kind: str) -> list[str]:
        return [field.name for field in self.schema if _kind(field.type) == kind and field.name != "id"]


def _kind(type_: pa.DataType) -> str:
    if type_ == pa.string():
        return TEXT
    if type_ == pa.bool_():
        return TRUTH
    if type_ == pa.date32():
        return DAY
    return MOMENT if type_ == INSTANT else NUMBER


def _values(type_: pa.DataType) -> st.SearchStrategy[Any]:
    if type_ in _LIMITS:
        most = _LIMITS[type_]
        return st.one_of(st.integers(-9, 9), st.sampled_from([most - 1, -most, 0]), st.integers(-most, most - 1))
    if pa.types.is_floating(type_):
        few = [value for value in _FLOATS if type_ == pa.float64() or not 1e30 < abs(value) < math.inf]
        return st.one_of(st.sampled_from(few), st.integers(-50, 50).map(lambda n: n / 4))
    if pa.types.is_decimal(type_):
        most = 10**type_.precision - 1
        return st.one_of(st.integers(-min(most, 500), min(most, 500)), st.integers(-most, most)).map(
            lambda digits: Decimal(digits).scaleb(-type_.scale)
        )
    if type_ == pa.string():
        return st.one_of(st.sampled_from(_WORDS), st.text("aAbB _%1ü", max_size=5))
    if type_ == pa.bool_():
        return st.booleans()
    if type_ == pa.date32():
        return st.one_of(st.dates(dt.date(1600, 1, 1), dt.date(2400, 12, 31)), st.dates(dt.date(2020, 2, 25), dt.date(2020, 3, 5)))
    return st.datetimes(dt.datetime(1600, 1, 1), dt.datetime(2400, 1, 1), timezones=st.just(dt.UTC))


_DECIMALS = st.integers(1, 20).flatmap(lambda digits: st.integers(0, digits).map(lambda scale: pa.decimal128(digits, scale)))
_TYPES = st.one_of(
    st.sampled_from([pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.int32(), pa.float64(), pa.float64(), pa.float32()]),
    _DECIMALS,
    st.sampled_from([pa.string(), pa.string(), pa.date32(), INSTANT, pa.bool_()]),
)


@st.composite
def tables(draw: st.DrawFn) -> Made:
    """A table of a few columns and rows; every column may be null."""
    types = draw(st.lists(_TYPES, min_size=5, max_size=9))
    types += [pa.int32(), pa.string(), pa.date32()]
    schema = pa.schema([("id", pa.int32()), *((f"c{place}", type_) for place, type_ in enumerate(types))])
    row = st.fixed_dictionaries({field.name: st.one_of(_values(field.type), _values(field.type), st.none()) for field in schema if field.name != "id"})
    rows = draw(st.lists(row, min_size=4, max_size=10))
    return Made(schema, [{"id": number, **one} for number, one in enumerate(rows)])


_SIMPLE: dict[str, list[tuple[str, tuple[str, ...]]]] = {
    NUMBER: [
        ("({} + {})", (NUMBER, NUMBER)), ("({} - {})", (NUMBER, NUMBER)), ("({} * {})", (NUMBER, NUMBER)), ("({} / {})", (NUMBER, NUMBER)),
        ("({} % {})", (NUMBER, NUMBER)), ("({} div {})", (NUMBER, NUMBER)), ("(- {})", (NUMBER,)), ("abs({})", (NUMBER,)),
        ("coalesce({}, {})", (NUMBER, NUMBER)), ("nullif({}, {})", (NUMBER, NUMBER)), ("if({}, {}, {})", (TRUTH, NUMBER, NUMBER)),
        ("case when {} then {} else {} end", (TRUTH, NUMBER, NUMBER)), ("case when {} then {} end", (TRUTH, NUMBER)),
        ("length({})", (TEXT,)), ("octet_length({})", (TEXT,)), ("instr({}, 'a')", (TEXT,)), ("ascii({})", (TEXT,)),
        ("year({})", (DAY,)), ("month({})", (DAY,)), ("dayofweek({})", (DAY,)), ("dayofyear({})", (MOMENT,)), ("hour({})", (MOMENT,)),
        ("unix_seconds({})", (MOMENT,)), ("datediff({}, {})", (DAY, DAY)), ("round({}, 1)", (NUMBER,)), ("ceil({})", (NUMBER,)), ("floor({})", (NUMBER,)),
        ("sign({})", (NUMBER,)), ("cast({} as int)", (NUMBER,)), ("cast({} as bigint)", (NUMBER,)), ("cast({} as double)", (NUMBER,)),
        ("cast({} as decimal(12,3))", (NUMBER,)), ("cast({} as decimal(30,1))", (NUMBER,)), ("cast({} as int)", (TEXT,)),
    ],
    TEXT: [
        ("({} || {})", (TEXT, TEXT)), ("upper({})", (TEXT,)), ("lower({})", (TEXT,)), ("trim({})", (TEXT,)), ("substring({}, 2, 2)", (TEXT,)),
        ("left({}, 2)", (TEXT,)), ("right({}, 1)", (TEXT,)), ("replace({}, 'a', {})", (TEXT, TEXT)), ("lpad({}, 3, '*')", (TEXT,)), ("md5({})", (TEXT,)),
        ("coalesce({}, {})", (TEXT, TEXT)), ("case when {} then {} else {} end", (TRUTH, TEXT, TEXT)), ("cast({} as string)", (NUMBER,)),
        ("cast({} as string)", (DAY,)), ("cast({} as string)", (MOMENT,)), ("cast({} as string)", (TRUTH,)), ("concat_ws({}, {}, {})", (TEXT, TEXT, TEXT)),
        ("greatest({}, {})", (TEXT, TEXT)), ("nullif({}, {})", (TEXT, TEXT)), ("reverse({})", (TEXT,)), ("repeat({}, 2)", (TEXT,)),
    ],
    DAY: [
        ("date_add({}, {})", (DAY, NUMBER)), ("date_sub({}, 40)", (DAY,)), ("last_day({})", (DAY,)), ("trunc({}, 'week')", (DAY,)), ("trunc({}, 'quarter')", (DAY,)),
        ("({} + interval 1 month)", (DAY,)), ("({} - interval 1 year)", (DAY,)), ("cast({} as date)", (MOMENT,)), ("coalesce({}, {})", (DAY, DAY)),
        ("if({}, {}, {})", (TRUTH, DAY, DAY)), ("least({}, {})", (DAY, DAY)),
    ],
    MOMENT: [
        ("date_trunc('hour', {})", (MOMENT,)), ("date_trunc('week', {})", (MOMENT,)), ("({} + interval 5 hours)", (MOMENT,)), ("({} - interval 1 month)", (MOMENT,)),
        ("cast({} as timestamp)", (DAY,)), ("coalesce({}, {})", (MOMENT, DAY)), ("greatest({}, {})", (MOMENT, MOMENT)),
    ],
    TRUTH: [
        *((f"({{}} {sign} {{}})", (kind, kind)) for kind in (NUMBER, TEXT, DAY, MOMENT) for sign in ("=", "<", ">=", "<>", "<=>")),
        ("({} < {})", (DAY, MOMENT)), ("({} and {})", (TRUTH, TRUTH)), ("({} or {})", (TRUTH, TRUTH)), ("(not {})", (TRUTH,)),
        ("({} is null)", (NUMBER,)), ("({} is not null)", (TEXT,)), ("({} between {} and {})", (NUMBER, NUMBER, NUMBER)), ("({} in ({}, {}))", (NUMBER, NUMBER, NUMBER)),
        ("({} not in ({}, null))", (TEXT, TEXT)), ("({} like 'a%')", (TEXT,)), ("({} like '%_b')", (TEXT,)), ("startswith({}, {})", (TEXT, TEXT)),
        ("contains({}, {})", (TEXT, TEXT)), ("isnan({})", (NUMBER,)), ("coalesce({}, {})", (TRUTH, TRUTH)),
    ],
}
_CONSTANTS = {
    NUMBER: ["0", "1", "-1", "2", "7", "1.5", "-0.25", "100", "3.00"],
    TEXT: ["''", "'a'", "'ab'", "'%'", "'ü'", "' '"],
    DAY: ["date '2020-02-29'", "date '1969-12-31'"],
    MOMENT: ["timestamp '2020-02-29 12:00:00'"],
    TRUTH: ["true", "false"],
}


@st.composite
def expressions(draw: st.DrawFn, made: Made, kind: str, depth: int = 2) -> str:
    """An expression over the columns of a table."""
    names = made.named(kind)
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        leaves = names * 3 + _CONSTANTS[kind] if names else _CONSTANTS[kind]
        return draw(st.sampled_from(leaves))
    template, kinds = draw(st.sampled_from(_SIMPLE[kind]))
    return template.format(*(draw(expressions(made, inner, depth - 1)) for inner in kinds))


@dataclass(frozen=True)
class Example:
    """A table, and what is asked of it."""

    made: Made
    chosen: list[str]
    condition: str
    keys: list[str]
    aggregates: list[str]
    windows: list[str]
    matched: tuple[str, str]


_AGGREGATES = {
    NUMBER: ["count({})", "sum({})", "avg({})", "min({})", "max({})", "count(distinct {})"],
    TEXT: ["count({})", "min({})", "max({})"],
    TRUTH: ["count_if({})", "bool_and({})", "some({})"],
    DAY: ["min({})", "max({})"],
    MOMENT: ["min({})", "max({})"],
}
_OVER = [
    "over (partition by {key} order by id)",
    "over (order by id rows between 2 preceding and 1 following)",
    "over (order by {key})",
]


@st.composite
def examples(draw: st.DrawFn, many: int) -> Example:
    """`many` expressions, aggregates and windows in one go, since each statement costs Spark the same."""
    made = draw(tables())
    kinds = st.sampled_from([NUMBER, NUMBER, TEXT, DAY, MOMENT, TRUTH, TRUTH])
    chosen = [draw(expressions(made, draw(kinds), 3)) for _ in range(many)]
    keys = [draw(expressions(made, draw(kinds), 1)) for _ in range(2)]
    aggregates, windows = [], []
    for _ in range(many // 2):
        kind = draw(kinds)
        call = draw(st.sampled_from(_AGGREGATES[kind])).format(draw(expressions(made, kind, 1)))
        aggregates.append(call)
        over = draw(st.sampled_from(_OVER)).format(key=draw(st.sampled_from([field.name for field in made.schema])))
        windows.append(f"{call} {over}")
    kind = draw(st.sampled_from([NUMBER, TEXT, DAY]))
    names = made.named(kind)
    matched = (draw(st.sampled_from(names)), draw(st.sampled_from(names)))
    return Example(made, chosen, draw(expressions(made, TRUTH, 3)), keys, aggregates, windows, matched)
