"""TPC-H: its eight tables made up at any scale, the same each time, and its 22 queries in Spark SQL.

Not dbgen's rows, but of their shape: types, keys, ranges and the words that the queries look for. Where a filter would
find next to nothing at a small scale (large orders, complaints), such rows are a little more frequent here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

CATALOG, SCHEMA = "tpch", "small"
"""Queries name tables by their last part: a connection has these as its defaults."""

KEY, INT, TEXT, DATE, MONEY = pa.int64(), pa.int32(), pa.string(), pa.date32(), pa.decimal128(15, 2)
Numbers = npt.NDArray[np.int64]

SCHEMAS: dict[str, pa.Schema] = {
    "region": pa.schema([("r_regionkey", KEY), ("r_name", TEXT), ("r_comment", TEXT)]),
    "nation": pa.schema([("n_nationkey", KEY), ("n_name", TEXT), ("n_regionkey", KEY), ("n_comment", TEXT)]),
    "supplier": pa.schema(
        [
            ("s_suppkey", KEY),
            ("s_name", TEXT),
            ("s_address", TEXT),
            ("s_nationkey", KEY),
            ("s_phone", TEXT),
            ("s_acctbal", MONEY),
            ("s_comment", TEXT),
        ]
    ),
    "customer": pa.schema(
        [
            ("c_custkey", KEY),
            ("c_name", TEXT),
            ("c_address", TEXT),
            ("c_nationkey", KEY),
            ("c_phone", TEXT),
            ("c_acctbal", MONEY),
            ("c_mktsegment", TEXT),
            ("c_comment", TEXT),
        ]
    ),
    "part": pa.schema(
        [
            ("p_partkey", KEY),
            ("p_name", TEXT),
            ("p_mfgr", TEXT),
            ("p_brand", TEXT),
            ("p_type", TEXT),
            ("p_size", INT),
            ("p_container", TEXT),
            ("p_retailprice", MONEY),
            ("p_comment", TEXT),
        ]
    ),
    "partsupp": pa.schema(
        [("ps_partkey", KEY), ("ps_suppkey", KEY), ("ps_availqty", INT), ("ps_supplycost", MONEY), ("ps_comment", TEXT)]
    ),
    "orders": pa.schema(
        [
            ("o_orderkey", KEY),
            ("o_custkey", KEY),
            ("o_orderstatus", TEXT),
            ("o_totalprice", MONEY),
            ("o_orderdate", DATE),
            ("o_orderpriority", TEXT),
            ("o_clerk", TEXT),
            ("o_shippriority", INT),
            ("o_comment", TEXT),
        ]
    ),
    "lineitem": pa.schema(
        [
            ("l_orderkey", KEY),
            ("l_partkey", KEY),
            ("l_suppkey", KEY),
            ("l_linenumber", INT),
            ("l_quantity", MONEY),
            ("l_extendedprice", MONEY),
            ("l_discount", MONEY),
            ("l_tax", MONEY),
            ("l_returnflag", TEXT),
            ("l_linestatus", TEXT),
            ("l_shipdate", DATE),
            ("l_commitdate", DATE),
            ("l_receiptdate", DATE),
            ("l_shipinstruct", TEXT),
            ("l_shipmode", TEXT),
            ("l_comment", TEXT),
        ]
    ),
}

_REGIONS = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"]
_NATIONS = {
    "ALGERIA": 0,
    "ARGENTINA": 1,
    "BRAZIL": 1,
    "CANADA": 1,
    "EGYPT": 4,
    "ETHIOPIA": 0,
    "FRANCE": 3,
    "GERMANY": 3,
    "INDIA": 2,
    "INDONESIA": 2,
    "IRAN": 4,
    "IRAQ": 4,
    "JAPAN": 2,
    "JORDAN": 4,
    "KENYA": 0,
    "MOROCCO": 0,
    "MOZAMBIQUE": 0,
    "PERU": 1,
    "CHINA": 2,
    "ROMANIA": 3,
    "SAUDI ARABIA": 4,
    "VIETNAM": 2,
    "RUSSIA": 3,
    "UNITED KINGDOM": 3,
    "UNITED STATES": 1,
}
_COLOUR_WORDS = (
    "almond antique aquamarine azure beige bisque black blanched blue blush brown burlywood chartreuse chiffon chocolate coral"
    " cornflower cream cyan dark dim dodger firebrick forest frosted gainsboro ghost goldenrod green grey honeydew hot indian"
    " ivory khaki lace lavender lawn lemon light lime linen magenta maroon medium metallic midnight mint misty moccasin navajo"
    " navy olive orange orchid pale papaya peach peru pink plum powder puff purple red rose rosy royal saddle salmon sandy"
    " seashell sienna sky slate smoke snow spring steel tan thistle tomato turquoise violet wheat white yellow"
)
_TYPES = [
    f"{one} {two} {three}"
    for one in ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO")
    for two in ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED")
    for three in ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER")
]
_CONTAINERS = [
    f"{one} {two}"
    for one in ("SM", "LG", "MED", "JUMBO", "WRAP")
    for two in ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM")
]
_SEGMENTS = ["AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"]
_PRIORITIES = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]
_INSTRUCTIONS = ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"]
_MODES = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"]
_COMMENT_WORDS = (
    "furiously carefully slyly quickly blithely packages accounts deposits foxes ideas theodolites pinto beans instructions"
    " dependencies excuses platelets asymptotes courts dolphins sleep wake nag haggle cajole express regular special final"
    " pending ironic bold even silent unusual requests above the after along among"
)
_COLOURS, _WORDS = _COLOUR_WORDS.split(), _COMMENT_WORDS.split()
_FIRST_DAY = (dt.date(1992, 1, 1) - dt.date(1970, 1, 1)).days
_LAST_ORDER = (dt.date(1998, 8, 2) - dt.date(1970, 1, 1)).days
_TODAY = (dt.date(1995, 6, 17) - dt.date(1970, 1, 1)).days


class _Maker:
    """Columns from one stream of random numbers."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def whole(self, low: int, high: int, count: int) -> Numbers:
        """Numbers from low to high, both included."""
        return self.random.integers(low, high + 1, count)

    def of(self, words: Sequence[str], count: int) -> pa.Array:
        return pa.array(words).take(pa.array(self.whole(0, len(words) - 1, count)))

    def text(self, count: int, words: int = 5) -> pa.Array:
        return pc.binary_join_element_wise(*(self.of(_WORDS, count) for _ in range(words)), " ")

    def sometimes(self, column: pa.Array, share: float, phrase: str) -> pa.Array:
        """Put a phrase in place of some values."""
        return pc.if_else(pa.array(self.random.random(len(column)) < share), phrase, column)

    def phone(self, nations: Numbers) -> pa.Array:
        count = len(nations)
        parts = [nations + 10, self.whole(100, 999, count), self.whole(100, 999, count), self.whole(1000, 9999, count)]
        return pc.binary_join_element_wise(*(pa.array(part).cast(TEXT) for part in parts), "-")


def _numbered(word: str, numbers: Numbers) -> pa.Array:
    return pc.binary_join_element_wise(word, pc.utf8_lpad(pa.array(numbers).cast(TEXT), 9, "0"), "#")


def _money(cents: Numbers) -> pa.Array:
    """Cents as decimals: a decimal of 128 bits is its number of cents, low half first."""
    halves = np.empty((len(cents), 2), np.int64)
    halves[:, 0], halves[:, 1] = cents, cents >> 63
    return pa.Array.from_buffers(MONEY, len(cents), [None, pa.py_buffer(halves.tobytes())])


def _days(numbers: Numbers) -> pa.Array:
    return pa.array(numbers.astype(np.int32)).cast(DATE)


def _retail_cents(parts: Numbers) -> Numbers:
    return 90_000 + parts // 10 % 20_001 + 100 * (parts % 1_000)


def _supplier_of(parts: Numbers, place: Numbers, suppliers: int) -> Numbers:
    """One of the four suppliers of a part, as the specification spreads them."""
    return (parts + place * (suppliers // 4 + (parts - 1) // suppliers)) % suppliers + 1


def tables(scale: float, *, seed: int = 6) -> dict[str, pa.Table]:
    """Return the eight tables at a scale factor.

    With this seed every query has rows from scale 0.01 on, and no sum among them is null.
    """
    suppliers, parts = max(int(scale * 10_000), 40), max(int(scale * 200_000), 400)
    customers, orders = max(int(scale * 150_000), 150), max(int(scale * 1_500_000), 1_500)
    made: dict[str, list[Any]] = {
        "region": [np.arange(5), _REGIONS, _Maker(seed).text(5)],
        "nation": [np.arange(25), list(_NATIONS), list(_NATIONS.values()), _Maker(seed + 1).text(25)],
        "supplier": _suppliers(_Maker(seed + 2), suppliers),
        "customer": _customers(_Maker(seed + 3), customers),
        "part": _parts(_Maker(seed + 4), parts),
        "partsupp": _partsupps(_Maker(seed + 5), parts, suppliers),
    }
    made["orders"], made["lineitem"] = _orders(_Maker(seed + 6), orders, customers, parts, suppliers)
    return {
        name: pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, SCHEMAS[name], strict=True)],
            schema=SCHEMAS[name],
        )
        for name, columns in made.items()
    }


def _suppliers(make: _Maker, count: int) -> list[Any]:
    keys, nations = np.arange(1, count + 1), make.whole(0, 24, count)
    comment = make.sometimes(make.text(count), 0.03, "blithely Customer of slyly Complaints")
    return [
        keys,
        _numbered("Supplier", keys),
        make.text(count, 2),
        nations,
        make.phone(nations),
        _money(make.whole(-99_999, 999_999, count)),
        comment,
    ]


def _customers(make: _Maker, count: int) -> list[Any]:
    keys, nations = np.arange(1, count + 1), make.whole(0, 24, count)
    return [
        keys,
        _numbered("Customer", keys),
        make.text(count, 2),
        nations,
        make.phone(nations),
        _money(make.whole(-99_999, 999_999, count)),
        make.of(_SEGMENTS, count),
        make.text(count),
    ]


def _parts(make: _Maker, count: int) -> list[Any]:
    keys = np.arange(1, count + 1)
    maker, brand = make.whole(1, 5, count), make.whole(1, 5, count)
    name = pc.binary_join_element_wise(*(make.of(_COLOURS, count) for _ in range(5)), " ")
    return [
        keys,
        name,
        pc.binary_join_element_wise("Manufacturer", pa.array(maker).cast(TEXT), "#"),
        pc.binary_join_element_wise("Brand", pa.array(maker * 10 + brand).cast(TEXT), "#"),
        make.of(_TYPES, count),
        pa.array(make.whole(1, 50, count), INT),
        make.of(_CONTAINERS, count),
        _money(_retail_cents(keys)),
        make.text(count, 2),
    ]


def _partsupps(make: _Maker, parts: int, suppliers: int) -> list[Any]:
    keys, place = np.repeat(np.arange(1, parts + 1), 4), np.tile(np.arange(4), parts)
    count = len(keys)
    return [
        keys,
        _supplier_of(keys, place, suppliers),
        pa.array(make.whole(1, 9_999, count), INT),
        _money(make.whole(100, 100_000, count)),
        make.text(count),
    ]


def _orders(make: _Maker, count: int, customers: int, parts: int, suppliers: int) -> tuple[list[Any], list[Any]]:
    numbers = np.arange(count)
    # Eight keys of every 32 are used, as in the specification.
    keys = numbers // 8 * 32 + numbers % 8 + 1
    # A third of the customers never orders.
    chosen = make.whole(0, customers - customers // 3 - 1, count)
    buyers = chosen // 2 * 3 + chosen % 2 + 1
    ordered = make.whole(_FIRST_DAY, _LAST_ORDER, count)

    is_large = make.random.random(count) < 0.003
    lines = np.where(is_large, 7, make.whole(1, 7, count))
    order = np.repeat(numbers, lines)
    total = len(order)
    line = np.arange(total) - np.repeat(np.cumsum(lines) - lines, lines) + 1
    part = make.whole(1, parts, total)
    quantity = np.where(is_large[order], make.whole(40, 50, total), make.whole(1, 50, total))
    price = quantity * _retail_cents(part)
    discount, tax = make.whole(0, 10, total), make.whole(0, 8, total)
    shipped = ordered[order] + make.whole(1, 121, total)
    promised = ordered[order] + make.whole(30, 90, total)
    received = shipped + make.whole(1, 30, total)
    is_open = shipped > _TODAY
    returned = np.where(received <= _TODAY, np.where(make.random.random(total) < 0.5, "R", "A"), "N")
    lineitem = [
        keys[order],
        part,
        _supplier_of(part, make.whole(0, 3, total), suppliers),
        pa.array(line, INT),
        _money(quantity * 100),
        _money(price),
        _money(discount),
        _money(tax),
        returned,
        np.where(is_open, "O", "F"),
        _days(shipped),
        _days(promised),
        _days(received),
        make.of(_INSTRUCTIONS, total),
        make.of(_MODES, total),
        make.text(total, 3),
    ]

    charged = price * (100 - discount) * (100 + tax) // 10_000
    totals = np.add.reduceat(charged, np.cumsum(lines) - lines)
    still_open = np.add.reduceat(is_open.astype(np.int64), np.cumsum(lines) - lines)
    status = np.where(still_open == 0, "F", np.where(still_open == lines, "O", "P"))
    clerks = _numbered("Clerk", make.whole(1, max(count // 1_500, 10), count))
    comment = make.sometimes(make.text(count), 0.02, "carefully special slyly requests haggle")
    return [
        keys,
        buyers,
        status,
        _money(totals),
        _days(ordered),
        make.of(_PRIORITIES, count),
        clerks,
        pa.array(np.zeros(count), INT),
        comment,
    ], lineitem


def queries(scale: float) -> dict[int, str]:
    """Return the queries with the specification's parameters; the eleventh has one that depends on the scale."""
    return {
        number: text.replace(":fraction", f"{0.0001 / scale:.10f}".rstrip("0")) for number, text in _QUERIES.items()
    }


_QUERIES: dict[int, str] = {
    1: """
SELECT l_returnflag, l_linestatus,
       sum(l_quantity) AS sum_qty,
       sum(l_extendedprice) AS sum_base_price,
       sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
       sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
       avg(l_quantity) AS avg_qty,
       avg(l_extendedprice) AS avg_price,
       avg(l_discount) AS avg_disc,
       count(*) AS count_order
FROM lineitem
WHERE l_shipdate <= date '1998-12-01' - interval '90' day
GROUP BY l_returnflag, l_linestatus
ORDER BY l_returnflag, l_linestatus
""",
    2: """
SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
FROM part, supplier, partsupp, nation, region
WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey
  AND p_size = 15 AND p_type LIKE '%BRASS'
  AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'EUROPE'
  AND ps_supplycost = (
    SELECT min(ps_supplycost)
    FROM partsupp, supplier, nation, region
    WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey
      AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'EUROPE')
ORDER BY s_acctbal DESC, n_name, s_name, p_partkey
LIMIT 100
""",
    3: """
SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
FROM customer, orders, lineitem
WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
  AND o_orderdate < date '1995-03-15' AND l_shipdate > date '1995-03-15'
GROUP BY l_orderkey, o_orderdate, o_shippriority
ORDER BY revenue DESC, o_orderdate
LIMIT 10
""",
    4: """
SELECT o_orderpriority, count(*) AS order_count
FROM orders
WHERE o_orderdate >= date '1993-07-01' AND o_orderdate < date '1993-07-01' + interval '3' month
  AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
GROUP BY o_orderpriority
ORDER BY o_orderpriority
""",
    5: """
SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM customer, orders, lineitem, supplier, nation, region
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
  AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
  AND r_name = 'ASIA'
  AND o_orderdate >= date '1994-01-01' AND o_orderdate < date '1994-01-01' + interval '1' year
GROUP BY n_name
ORDER BY revenue DESC
""",
    6: """
SELECT sum(l_extendedprice * l_discount) AS revenue
FROM lineitem
WHERE l_shipdate >= date '1994-01-01' AND l_shipdate < date '1994-01-01' + interval '1' year
  AND l_discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01 AND l_quantity < 24
""",
    7: """
SELECT supp_nation, cust_nation, l_year, sum(volume) AS revenue
FROM (
  SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, extract(year FROM l_shipdate) AS l_year,
         l_extendedprice * (1 - l_discount) AS volume
  FROM supplier, lineitem, orders, customer, nation n1, nation n2
  WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey
    AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey
    AND ((n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY') OR (n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE'))
    AND l_shipdate BETWEEN date '1995-01-01' AND date '1996-12-31') AS shipping
GROUP BY supp_nation, cust_nation, l_year
ORDER BY supp_nation, cust_nation, l_year
""",
    8: """
SELECT o_year, sum(CASE WHEN nation = 'BRAZIL' THEN volume ELSE 0 END) / sum(volume) AS mkt_share
FROM (
  SELECT extract(year FROM o_orderdate) AS o_year, l_extendedprice * (1 - l_discount) AS volume, n2.n_name AS nation
  FROM part, supplier, lineitem, orders, customer, nation n1, nation n2, region
  WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey AND o_custkey = c_custkey
    AND c_nationkey = n1.n_nationkey AND n1.n_regionkey = r_regionkey AND r_name = 'AMERICA'
    AND s_nationkey = n2.n_nationkey
    AND o_orderdate BETWEEN date '1995-01-01' AND date '1996-12-31'
    AND p_type = 'ECONOMY ANODIZED STEEL') AS all_nations
GROUP BY o_year
ORDER BY o_year
""",
    9: """
SELECT nation, o_year, sum(amount) AS sum_profit
FROM (
  SELECT n_name AS nation, extract(year FROM o_orderdate) AS o_year,
         l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
  FROM part, supplier, lineitem, partsupp, orders, nation
  WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey AND p_partkey = l_partkey
    AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey
    AND p_name LIKE '%green%') AS profit
GROUP BY nation, o_year
ORDER BY nation, o_year DESC
""",
    10: """
SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name, c_address, c_phone, c_comment
FROM customer, orders, lineitem, nation
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey
  AND o_orderdate >= date '1993-10-01' AND o_orderdate < date '1993-10-01' + interval '3' month
  AND l_returnflag = 'R' AND c_nationkey = n_nationkey
GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
ORDER BY revenue DESC
LIMIT 20
""",
    11: """
SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value
FROM partsupp, supplier, nation
WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY'
GROUP BY ps_partkey
HAVING sum(ps_supplycost * ps_availqty) > (
  SELECT sum(ps_supplycost * ps_availqty) * :fraction
  FROM partsupp, supplier, nation
  WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY')
ORDER BY value DESC
""",
    12: """
SELECT l_shipmode,
       sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0 END) AS high_line_count,
       sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END) AS low_line_count
FROM orders, lineitem
WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP')
  AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
  AND l_receiptdate >= date '1994-01-01' AND l_receiptdate < date '1994-01-01' + interval '1' year
GROUP BY l_shipmode
ORDER BY l_shipmode
""",
    13: """
SELECT c_count, count(*) AS custdist
FROM (
  SELECT c_custkey, count(o_orderkey)
  FROM customer LEFT OUTER JOIN orders ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%'
  GROUP BY c_custkey) AS c_orders (c_custkey, c_count)
GROUP BY c_count
ORDER BY custdist DESC, c_count DESC
""",
    14: """
SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
         / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue
FROM lineitem, part
WHERE l_partkey = p_partkey AND l_shipdate >= date '1995-09-01' AND l_shipdate < date '1995-09-01' + interval '1' month
""",
    15: """
WITH revenue (supplier_no, total_revenue) AS (
  SELECT l_suppkey, sum(l_extendedprice * (1 - l_discount))
  FROM lineitem
  WHERE l_shipdate >= date '1996-01-01' AND l_shipdate < date '1996-01-01' + interval '3' month
  GROUP BY l_suppkey)
SELECT s_suppkey, s_name, s_address, s_phone, total_revenue
FROM supplier, revenue
WHERE s_suppkey = supplier_no AND total_revenue = (SELECT max(total_revenue) FROM revenue)
ORDER BY s_suppkey
""",
    16: """
SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS supplier_cnt
FROM partsupp, part
WHERE p_partkey = ps_partkey AND p_brand <> 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%'
  AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9)
  AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
GROUP BY p_brand, p_type, p_size
ORDER BY supplier_cnt DESC, p_brand, p_type, p_size
""",
    17: """
SELECT sum(l_extendedprice) / 7.0 AS avg_yearly
FROM lineitem, part
WHERE p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container = 'MED BOX'
  AND l_quantity < (SELECT 0.2 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)
""",
    18: """
SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS total_quantity
FROM customer, orders, lineitem
WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300)
  AND c_custkey = o_custkey AND o_orderkey = l_orderkey
GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
ORDER BY o_totalprice DESC, o_orderdate
LIMIT 100
""",
    19: """
SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM lineitem, part
WHERE (p_partkey = l_partkey AND p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
       AND l_quantity >= 1 AND l_quantity <= 1 + 10 AND p_size BETWEEN 1 AND 5
       AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON')
   OR (p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
       AND l_quantity >= 10 AND l_quantity <= 10 + 10 AND p_size BETWEEN 1 AND 10
       AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON')
   OR (p_partkey = l_partkey AND p_brand = 'Brand#34' AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
       AND l_quantity >= 20 AND l_quantity <= 20 + 10 AND p_size BETWEEN 1 AND 15
       AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON')
""",
    20: """
SELECT s_name, s_address
FROM supplier, nation
WHERE s_suppkey IN (
    SELECT ps_suppkey
    FROM partsupp
    WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%')
      AND ps_availqty > (
        SELECT 0.5 * sum(l_quantity)
        FROM lineitem
        WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey
          AND l_shipdate >= date '1994-01-01' AND l_shipdate < date '1994-01-01' + interval '1' year))
  AND s_nationkey = n_nationkey AND n_name = 'CANADA'
ORDER BY s_name
""",
    21: """
SELECT s_name, count(*) AS numwait
FROM supplier, lineitem l1, orders, nation
WHERE s_suppkey = l1.l_suppkey AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F'
  AND l1.l_receiptdate > l1.l_commitdate
  AND EXISTS (SELECT * FROM lineitem l2 WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey)
  AND NOT EXISTS (
    SELECT * FROM lineitem l3
    WHERE l3.l_orderkey = l1.l_orderkey AND l3.l_suppkey <> l1.l_suppkey AND l3.l_receiptdate > l3.l_commitdate)
  AND s_nationkey = n_nationkey AND n_name = 'SAUDI ARABIA'
GROUP BY s_name
ORDER BY numwait DESC, s_name
LIMIT 100
""",
    22: """
SELECT cntrycode, count(*) AS numcust, sum(c_acctbal) AS totacctbal
FROM (
  SELECT substring(c_phone, 1, 2) AS cntrycode, c_acctbal
  FROM customer
  WHERE substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17')
    AND c_acctbal > (
      SELECT avg(c_acctbal) FROM customer
      WHERE c_acctbal > 0.00 AND substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17'))
    AND NOT EXISTS (SELECT * FROM orders WHERE o_custkey = c_custkey)) AS custsale
GROUP BY cntrycode
ORDER BY cntrycode
""",
}
