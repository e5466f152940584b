"""Our log entries are Delta's: plain readers see the same rows, skip rightly, travel in time, and agree on statistics."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from crannog.delta.footers import read_footer
from crannog.embedded import EmbeddedLake as Lake
from crannog.errors import CallerError
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from crannog.storage.local import LocalStorage
from lakes import (
    DAY,
    INSTANT,
    actions,
    canonical,
    live_files,
    log_entries,
    opened,
    read_datafusion,
    read_delta_rs,
    read_delta_spark,
    read_everywhere,
    read_polars,
    root,
)

NAME = "shop.eu.orders"
START = dt.datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=dt.UTC)


@pytest.fixture
def lake(settings: Settings, spark: SparkRuntime) -> Iterator[Lake]:
    with opened(settings) as lake:
        yield lake


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, spark: SparkRuntime) -> Iterator[Lake]:
    """One warehouse for the tests that only read."""
    place = tmp_path_factory.mktemp("delta") / "warehouse"
    with opened(Settings(warehouse=str(place))) as lake:
        yield lake


# -- every kind of rewrite, every reader -----------------------------------------------------------------------

ORDERS = pa.schema(
    [
        ("order_id", pa.string()),
        ("n", pa.int32()),
        ("price", pa.decimal128(9, 2)),
        ("share", pa.float32()),
        ("at", INSTANT),
        ("day", pa.date32()),
        ("note", pa.string()),
        ("lines", pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int64())]))),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)


def order(number: int, **changes: Any) -> dict[str, Any]:
    row = {
        "order_id": f"o-{number:04}",
        "n": number - 20,
        "price": Decimal(number) / 4,
        "share": number / 8,
        "at": START + dt.timedelta(microseconds=number * 1_001),
        "day": dt.date(1969, 12, 25) + number * DAY,
        "note": None if number % 3 == 0 else f"größer {number} 𝕏",
        "lines": [{"sku": "a", "count": number}, {"sku": None, "count": None}],
        "tags": {"x": number},
    }
    return row | changes


@dataclass(frozen=True)
class Step:
    """A version of the table and what it must read as."""

    operation: str
    version: int
    rows: list[str]


@pytest.mark.slow  # test_model compares the same readers after random acts
def test_after_every_kind_of_rewrite_every_reader_sees_the_same_rows(lake: Lake, spark: SparkRuntime) -> None:
    table = lake.create_table(NAME, ORDERS, key="order_id")
    path = root(lake, NAME)
    wide = pa.schema(
        [
            *(field for field in ORDERS if field.name not in ("n", "price", "share")),
            ("n", pa.int64()),
            ("price", pa.decimal128(20, 4)),
            ("share", pa.float64()),
            ("extra", pa.string()),
        ]
    )
    steps: list[Step] = []

    def fold_append() -> None:
        for start, end in ((0, 40), (100, 120), (200, 201)):
            table.append([order(number) for number in range(start, end)])
            table.fold()

    def fold_merge() -> None:
        table.upsert([order(3, note="changed"), order(202)])
        # With o-0200 a whole file goes.
        table.delete(["o-0004", "o-0105", "o-0200", "o-9999"])
        table.fold()

    def compact() -> None:
        table.append([order(300)])
        assert table.compact().files_after == 1

    def expire() -> None:
        assert table.expire(dt.date(1970, 1, 1), column="day").rows_dropped == 6

    def add_column() -> None:
        grown = pa.schema([*ORDERS, ("extra", pa.string())])
        assert table.evolve(grown).files_rewritten == 0
        table.append([order(301, extra="new"), order(302)])
        table.fold()

    def widen() -> None:
        assert table.evolve(wide).files_rewritten > 0
        table.append([order(303, n=2**40, price=Decimal("12345678901.2345"), share=1e300)])
        table.fold()

    def erase() -> None:
        table.erase(["o-0010"])

    for kind in (fold_append, fold_merge, compact, expire, add_column, widen):
        kind()
        rows = canonical(table.to_arrow())
        for read in (read_delta_rs, read_datafusion, read_polars):
            assert canonical(read(path)) == rows, f"{read.__name__} after {kind.__name__}"
        steps.append(Step(kind.__name__, table.describe()["version"], rows))

    # Time travel: every version that a step ended with, by every reader that can; for Spark, which is slow to take in
    # a new version, this is also the reading after each step.
    assert canonical(table.to_spark().toArrow()) == steps[-1].rows
    for step in steps:
        assert canonical(read_delta_rs(path, step.version)) == step.rows, step
        assert canonical(read_polars(path, version=step.version)) == step.rows, step
        assert canonical(read_delta_spark(spark, path, step.version)) == step.rows, step

    erase()
    rows = canonical(table.to_arrow())
    for reader, seen in read_everywhere(spark, path).items():
        assert seen == rows, f"{reader} after erase"

    _check_history(lake, spark)
    _check_entries(path, table_id=table.describe()["table_id"])


def _check_history(lake: Lake, spark: SparkRuntime) -> None:
    path, table = root(lake, NAME), lake.table(NAME)
    operations = {version: info["operation"] for version, info in actions(path, "commitInfo")}
    assert set(operations.values()) == {"CREATE TABLE", "FOLD", "COMPACT", "EXPIRE", "EVOLVE"}
    ours = table.history()
    assert [entry["version"] for entry in ours] == sorted(operations, reverse=True)
    assert {entry["version"]: entry["operation"] for entry in ours} == operations
    assert table.history(limit=2) == ours[:2]
    theirs = spark.session().sql(f"DESCRIBE HISTORY delta.`{path}`").collect()
    assert {row["version"]: row["operation"] for row in theirs} == operations


def _check_entries(path: Path, *, table_id: str) -> None:
    """What every entry must keep to, whatever wrote it."""
    live: set[str] = set()
    folded = 0
    for version, entry in log_entries(path).items():
        operation = next(action["commitInfo"]["operation"] for action in entry if "commitInfo" in action)
        protocols = [action["protocol"] for action in entry if "protocol" in action]
        assert protocols == ([{"minReaderVersion": 1, "minWriterVersion": 2}] if version == 0 else [])
        added = {action["add"]["path"] for action in entry if "add" in action}
        removed = {action["remove"]["path"] for action in entry if "remove" in action}
        assert not added & removed, "an entry that adds and removes one file"
        assert not added & live, "a file added twice"
        assert removed <= live, "a file removed that is not there"
        live = live - removed | added
        txn = [action["txn"] for action in entry if "txn" in action]
        assert bool(txn) == (operation == "FOLD"), "the folded sequence is written by folds, and by them only"
        for action in txn:
            assert action["appId"] == table_id
            assert action["version"] > folded
            folded = action["version"]
        if operation in ("COMPACT", "EVOLVE"):
            assert not any(
                action[kind]["dataChange"] for action in entry for kind in ("add", "remove") if kind in action
            )
    table = DeltaTable(str(path))
    assert {table.protocol().min_reader_version, table.protocol().min_writer_version} == {1, 2}
    assert not table.protocol().reader_features
    assert table.transaction_version(table_id) == folded
    assert {file.relative_to(path).as_posix() for file in live_files(path)} == live


# -- statistics ------------------------------------------------------------------------------------------------

LONG = "ein sehr langer Schlüssel, viel länger als 32 Zeichen: "
FACTS = pa.schema(
    [
        ("word", pa.string()),  # clustered by, so it has statistics
        ("at", INSTANT),
        ("old_at", INSTANT),
        ("day", pa.date32()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("n", pa.int32()),
        ("big", pa.int64()),
        ("d9", pa.decimal128(9, 2)),
        ("d18", pa.decimal128(18, 6)),
        ("d38", pa.decimal128(38, 10)),
        ("whole", pa.decimal128(20, 0)),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("with_nan", pa.float64()),
        ("with_inf", pa.float64()),
        ("nothing", pa.int64()),
        ("partly", pa.int64()),
    ]
)
COLUMNS = tuple(FACTS.names)


def fact(file: int, row: int) -> dict[str, Any]:
    number = file * 100 + row
    return {
        "word": [
            f"{file}w{row}",
            LONG + f"{number:03}",
            f"𝕏𝕐ß{'ü' * 40}{number:03}",
            f"{file}{'z' * 31}{chr(0x41 + row)}",
        ][row % 4],
        "at": START + dt.timedelta(microseconds=number * 377),
        "old_at": dt.datetime(1900 + file, 1, 1, 0, 0, 0, 123_456, tzinfo=dt.UTC)
        + dt.timedelta(microseconds=row * 1_234),
        "day": dt.date(1582 + 200 * file, 10, 15) + row * DAY,
        "tiny": -128 + file * 20 + row,
        "small": -32_768 + number,
        "n": -(2**31) + number,
        "big": (-1) ** file * (2**63 - 1 - row) - (file % 2),
        "d9": Decimal(number - 150) / 4,
        "d18": Decimal("-999999999999.999998") + Decimal(number) / 1_000_000,
        "d38": Decimal("1234567890123456789012345678.0123456789") + number,
        "whole": Decimal(10**19 + number),
        "f32": (number - 150) / 8,
        "f64": (number - 150) / 7,
        "with_nan": float("nan") if row == 5 else float(number),
        "with_inf": float("inf") if row == 5 else -float("inf") if row == 6 else float(number),
        "nothing": None,
        "partly": None if file == 0 or row % 2 else number,
    }


@pytest.fixture(scope="module")
def facts(shared: Lake) -> tuple[Path, pa.Table]:
    """A table of four files whose ranges lie side by side: the table's folder and its rows."""
    table = shared.create_table("stats.all.facts", FACTS, cluster_by=["word"])
    for file in range(4):
        table.append([fact(file, row) for row in range(12)])
        table.fold()
    path = root(shared, "stats.all.facts")
    assert len(live_files(path)) == 4
    return path, table.to_arrow()


def statistics(path: Path) -> dict[str, dict[str, Any]]:
    """The `stats` of the live files, numbers exact, by path."""
    adds = {add["path"]: add["stats"] for _, add in actions(path, "add")}
    live = {file.relative_to(path).as_posix() for file in live_files(path)}
    return {name: json.loads(text, parse_float=Decimal) for name, text in adds.items() if name in live}


def test_the_columns_that_prune_have_statistics(facts: tuple[Path, pa.Table]) -> None:
    path, _ = facts
    for stats in statistics(path).values():
        assert set(stats) == {"numRecords", "minValues", "maxValues", "nullCount"}
        assert set(stats["nullCount"]) == {*COLUMNS, "_created_at"}
        bounded = set(stats["minValues"])
        assert bounded == set(stats["maxValues"])
        assert bounded - {"partly", "with_nan", "with_inf"} == {*COLUMNS, "_created_at"} - {
            "nothing",
            "with_nan",
            "with_inf",
            "partly",
        }
        assert stats["nullCount"]["nothing"] == stats["numRecords"] == 12


def test_statistics_bound_the_rows_of_their_file(facts: tuple[Path, pa.Table]) -> None:
    path, _ = facts
    for name, stats in statistics(path).items():
        rows = pq.read_table(path / name)
        for column, low in stats["minValues"].items():
            if column in ("with_nan", "with_inf"):
                continue
            values = [value for value in rows[column].to_pylist() if value is not None]
            high = stats["maxValues"][column]
            if isinstance(values[0], dt.datetime):
                assert dt.datetime.fromisoformat(low) <= min(values)
                assert (
                    dt.datetime.fromisoformat(high)
                    <= max(values)
                    < dt.datetime.fromisoformat(high) + dt.timedelta(milliseconds=1)
                )
            elif isinstance(values[0], dt.date):
                assert (low, high) == (min(values).isoformat(), max(values).isoformat())
            elif isinstance(values[0], str):
                assert low <= min(values)
                assert max(values) <= high
                assert len(low) <= 32
                assert len(high) <= 33
            elif rows.schema.field(column).type == pa.float32():
                assert (np.float32(float(low)), np.float32(float(high))) == (min(values), max(values))
            elif isinstance(values[0], float):
                assert (float(low), float(high)) == (min(values), max(values))
            else:
                assert (low, high) == (min(values), max(values))


@pytest.mark.slow
def test_statistics_equal_those_of_deltas_own_writer(
    facts: tuple[Path, pa.Table], spark: SparkRuntime, tmp_path: Path
) -> None:
    path, _ = facts
    session = spark.session()
    properties = DeltaTable(str(path)).metadata().configuration
    copy = tmp_path / "copy"
    session.sql(
        f"CREATE TABLE delta.`{copy}` ({session.read.format('delta').load(str(path)).schema.toDDL()}) USING delta"
        f" TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '{properties['delta.dataSkippingStatsColumns']}')"
    )
    ours = list(statistics(path).items())
    for name, _stats in ours:
        session.read.parquet(str(path / name)).coalesce(1).write.format("delta").mode("append").save(str(copy))
    theirs = [json.loads(add["stats"], parse_float=Decimal) for _, add in actions(copy, "add")]
    assert len(theirs) == len(ours)
    for (_, mine), delta in zip(ours, theirs, strict=True):
        assert mine["numRecords"] == delta["numRecords"]
        assert mine["nullCount"] == delta["nullCount"]
        for bound in ("minValues", "maxValues"):
            # Bounds of a column with NaN are the one exception.
            assert _comparable(mine[bound]) == _comparable(delta[bound])


def _comparable(bounds: dict[str, Any]) -> dict[str, Any]:
    """Bounds with floats as the columns hold them: Delta writes the shortest text of each."""
    exact = {column: value for column, value in bounds.items() if column != "with_nan"}
    return exact | {"f32": float(np.float32(float(bounds["f32"]))), "f64": float(bounds["f64"])}


# -- filters ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Filter:
    """One condition, for each engine, and the test that decides it in memory."""

    text: str
    column: str
    keeps: Callable[[Any], bool]
    polars: pl.Expr
    arrow: pc.Expression


def edges(rows: pa.Table, column: str) -> list[Any]:
    """The smallest and largest value of each file's share of the rows, and what lies just beside them."""
    kind = rows.schema.field(column).type
    found: list[Any] = []
    for file in range(4):
        values = [fact(file, row)[column] for row in range(12)]
        values = [
            value
            for value in values
            if value is not None and not (isinstance(value, float) and not math.isfinite(value))
        ]
        if values:
            for value in (min(values), max(values)):
                found += [value, *_neighbours(value, kind)]
    return list(dict.fromkeys(found))


def _neighbours(value: Any, kind: pa.DataType) -> list[Any]:
    if isinstance(value, str):
        return [value + "a", value[:32], value[:-1] + chr(ord(value[-1]) + 1)]
    if isinstance(value, dt.datetime):
        ms = value.replace(microsecond=value.microsecond // 1000 * 1000)
        return [
            value + dt.timedelta(microseconds=1),
            value - dt.timedelta(microseconds=1),
            ms,
            ms + dt.timedelta(milliseconds=1),
        ]
    if isinstance(value, dt.date):
        return [value - DAY, value + DAY]
    if isinstance(value, Decimal):
        step = Decimal(1).scaleb(-kind.scale)
        return [value - step, value + step]
    if isinstance(value, float):
        return [value - 0.125, value + 0.125]
    limit = 1 << (kind.bit_width - 1)
    return [other for other in (value - 1, value + 1) if -limit <= other < limit]


def filters(rows: pa.Table, column: str, *, every: bool = False) -> Iterator[Filter]:
    """Conditions on a column around what its statistics say: `=` at each edge and one of the others, or every one."""
    kind = rows.schema.field(column).type
    name, field = pl.col(column), pc.field(column)
    yield Filter(f"{column} IS NULL", column, lambda v: v is None, name.is_null(), field.is_null())
    yield Filter(f"{column} IS NOT NULL", column, lambda v: v is not None, name.is_not_null(), ~field.is_null())
    found = edges(rows, column)
    for number, (low, high) in enumerate(itertools.pairwise(found)):
        if isinstance(low, (int, float, Decimal)) and low > high:
            low, high = high, low
        a, b = pl.lit(low, _polars_type(kind)), pl.lit(high, _polars_type(kind))
        x, y = pa.scalar(low, kind), pa.scalar(high, kind)
        p, q = _literal(low, kind), _literal(high, kind)
        yield Filter(f"{column} = {p}", column, lambda v, low=low: v == low, name == a, field == x)
        if every or number % 6 == 0:
            yield Filter(f"{column} < {p}", column, lambda v, low=low: _less(v, low), name < a, field < x)
        if every or number % 6 == 2:
            yield Filter(f"{column} > {p}", column, lambda v, low=low: _less(low, v), name > a, field > x)
        if every or number % 6 == 4:
            yield Filter(
                f"{column} BETWEEN {p} AND {q}",
                column,
                lambda v, low=low, high=high: not _less(v, low) and not _less(high, v),
                (name >= a) & (name <= b),
                (field >= x) & (field <= y),
            )


def matching(rows: pa.Table, each: Filter) -> int:
    """How many rows a filter keeps, by a look at all of them."""
    values = rows[each.column].to_pylist()
    return sum(1 for value in values if (value is not None or "NULL" in each.text) and each.keeps(value))


def _less(one: Any, other: Any) -> bool:
    """SQL's order: NaN above everything, as Spark, DataFusion and Polars have it."""
    if isinstance(one, float) and math.isnan(one):
        return False
    if isinstance(other, float) and math.isnan(other):
        return True
    return bool(one < other)


def _literal(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value.astimezone(dt.UTC).strftime('%Y-%m-%d %H:%M:%S.%f').rjust(26, '0')}+00:00'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, Decimal):
        return f"CAST('{value:f}' AS DECIMAL({kind.precision}, {kind.scale}))"
    if kind == pa.float32():
        return f"CAST('{value!r}' AS FLOAT)"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    return str(value) if value > -(2**63) else f"(-{2**63 - 1} - 1)"


def _polars_type(kind: pa.DataType) -> Any:
    return pl.from_arrow(pa.array([], kind)).dtype


def check_filters(path: Path, rows: pa.Table, chosen: Iterator[Filter]) -> None:
    dataset = DeltaTable(str(path)).to_pyarrow_dataset()
    tested = 0
    for each in chosen:
        expected = matching(rows, each)
        assert read_polars(path, each.polars).num_rows == expected, f"polars: {each.text}"
        assert read_datafusion(path, each.text).num_rows == expected, f"delta-rs sql: {each.text}"
        found = dataset.to_table(filter=each.arrow).num_rows
        # The dataset of delta-rs cannot read the bound NaN, which is what Delta's own writer gives such a file.
        if each.column != "with_nan":
            assert found == expected, f"delta-rs dataset: {each.text}"
        tested += 1
    assert tested >= 2


@pytest.mark.parametrize("column", COLUMNS)
def test_filters_give_what_a_scan_without_skipping_gives(facts: tuple[Path, pa.Table], column: str) -> None:
    path, rows = facts
    check_filters(path, rows, filters(rows, column))


def test_filters_on_the_time_of_writing(facts: tuple[Path, pa.Table]) -> None:
    path, rows = facts

    def at_each_write() -> Iterator[Filter]:
        name, field = pl.col("_created_at"), pc.field("_created_at")
        for value in pc.unique(rows["_created_at"]).to_pylist():
            a, x, p = pl.lit(value, pl.Datetime("us", "UTC")), pa.scalar(value, INSTANT), _literal(value, INSTANT)
            yield Filter(f"_created_at = {p}", "_created_at", lambda v, value=value: v == value, name == a, field == x)
            yield Filter(f"_created_at > {p}", "_created_at", lambda v, value=value: v > value, name > a, field > x)

    check_filters(path, rows, at_each_write())


@pytest.mark.slow
@pytest.mark.parametrize("column", COLUMNS)
def test_all_filters_give_what_a_scan_without_skipping_gives(
    facts: tuple[Path, pa.Table], spark: SparkRuntime, column: str
) -> None:
    path, rows = facts
    check_filters(path, rows, filters(rows, column, every=True))
    check_spark(spark, path, rows, list(filters(rows, column, every=True)))


def counted_by_spark(spark: SparkRuntime, path: Path, chosen: list[Filter]) -> list[int]:
    """Count each filter's rows, many in one statement; each is a scan of its own, with its own skipping."""
    session = spark.session()
    counts: dict[int, int] = {}
    for start in range(0, len(chosen), 40):
        part = list(enumerate(chosen))[start : start + 40]
        text = " UNION ALL ".join(
            f"SELECT {number} AS i, count(*) AS n FROM delta.`{path}` WHERE {each.text}" for number, each in part
        )
        counts |= {row["i"]: row["n"] for row in session.sql(text).collect()}
    return [counts[number] for number in range(len(chosen))]


def check_spark(spark: SparkRuntime, path: Path, rows: pa.Table, chosen: list[Filter]) -> None:
    for each, count in zip(chosen, counted_by_spark(spark, path, chosen), strict=True):
        assert count == matching(rows, each), f"delta-spark: {each.text}"


@pytest.mark.slow
def test_filters_through_spark(facts: tuple[Path, pa.Table], spark: SparkRuntime) -> None:
    """All columns in one condition: a file that any of them skips wrongly takes its row along."""
    path, rows = facts
    listed = rows.to_pylist()
    bounded = [column for column in COLUMNS if column not in ("word", "nothing", "partly", "with_nan", "with_inf")]
    tests: dict[str, Callable[[Any, Any], bool]] = {
        "=": lambda one, other: one == other,
        ">=": lambda one, other: one >= other,
        "<=": lambda one, other: one <= other,
    }
    expected: dict[str, int] = {}
    # Each costs Spark a second or two: the least and the greatest row of a file, and one beside it.
    for row, symbol in (
        (fact(2, 0), "="),
        (fact(2, 11), "="),
        (fact(2, 11), ">="),
        (fact(2, 0), "<="),
        (fact(1, 11), "="),
    ):
        text = " AND ".join(f"{name} {symbol} {_literal(row[name], FACTS.field(name).type)}" for name in bounded)
        expected[text] = sum(all(tests[symbol](other[name], row[name]) for name in bounded) for other in listed)
    assert all(expected.values()), "each must have a row to lose"
    for number, word in enumerate(sorted({row["word"] for row in listed})):
        if number % 20 == 0:
            expected[f"word = {_literal(word, pa.string())}"] = sum(row["word"] == word for row in listed)
    expected |= {"nothing IS NULL AND partly IS NOT NULL": 18, "partly IS NULL AND at IS NOT NULL": 30}
    expected |= {"with_nan = CAST('NaN' AS DOUBLE)": 4, "with_inf > 1000 OR with_inf < -1000": 8}
    chosen = [Filter(text, "", bool, pl.lit(True), pc.scalar(True)) for text in expected]
    counts = counted_by_spark(spark, path, chosen)
    assert dict(zip(expected, counts, strict=True)) == expected


@pytest.mark.slow
def test_spark_does_skip_files_by_our_statistics(facts: tuple[Path, pa.Table], spark: SparkRuntime) -> None:
    path, _ = facts
    frame = spark.session().read.format("delta").load(str(path))
    for condition in (
        "n = -2147483648",
        "day < DATE'1600-01-01'",
        "d38 = CAST('1234567890123456789012345678.0123456789' AS DECIMAL(38,10))",
    ):
        assert len(frame.where(condition).inputFiles()) == 1, condition
    assert frame.where("nothing IS NOT NULL").inputFiles() == []
    assert len(frame.where("partly IS NOT NULL").inputFiles()) == 3


# -- statistics at the edges -----------------------------------------------------------------------------------


def test_the_bound_of_a_text_is_no_less_than_the_text(tmp_path: Path) -> None:
    """Cut after 32 characters, it must still be above what was cut, whatever that was; Delta counts UTF-16 units."""

    def bounds(text: str) -> tuple[str | None, str | None]:
        pq.write_table(pa.table({"word": [text]}), tmp_path / "word.parquet")
        stats = json.loads(read_footer(LocalStorage(tmp_path), "word.parquet").delta_statistics(["word"]))
        return stats["minValues"].get("word"), stats["maxValues"].get("word")

    last = "\U0010ffff"
    for text, expected in {
        "a" * 32: ("a" * 32, "a" * 32),
        "a" * 33: ("a" * 32, "a" * 32 + "\x7f"),
        "a" * 32 + "\x7f": ("a" * 32, "a" * 32 + last),
        "a" * 32 + "é": ("a" * 32, "a" * 32 + last),
        "a" * 32 + last + "b": ("a" * 32, "a" * 32 + last + "\x7f"),
        "a" * 32 + last * 2: ("a" * 32, "a" * 32 + last * 2),
        "𝕏" * 17: ("𝕏" * 16, "𝕏" * 16 + last),
        "a" + "𝕏" * 17: ("a" + "𝕏" * 16, "a" + "𝕏" * 16 + last),
    }.items():
        assert bounds(text) == expected, ascii(text)
    # No bound can be written for this one within twice the prefix: then there is none.
    hopeless = "a" * 32 + last * 40
    assert (bounds(hopeless)[1] or hopeless) >= hopeless


def test_a_text_too_long_for_the_footer_does_not_hide_its_file(lake: Lake, spark: SparkRuntime) -> None:
    """Parquet keeps no bounds of texts above 4 KiB; a reader must not take the file for empty."""
    table = lake.create_table("stats.edges.long", pa.schema([("word", pa.string()), ("n", pa.int64())]), key="word")
    long = "x" * 5_000
    table.append([{"word": long, "n": 1}, {"word": "a", "n": 2}])
    table.fold()
    path = root(lake, "stats.edges.long")
    for word in (long, "a"):
        assert read_polars(path, pl.col("word") == word).num_rows == 1
        assert DeltaTable(str(path)).to_pyarrow_dataset().to_table(filter=pc.field("word") == word).num_rows == 1


@pytest.mark.slow
def test_a_nan_in_one_row_group_of_many_keeps_the_file_readable(lake: Lake, spark: SparkRuntime) -> None:
    table = lake.create_table("stats.edges.nan", pa.schema([("n", pa.int64()), ("x", pa.float64())]), cluster_by=["n"])
    values = np.linspace(0.0, 2.0, 40_000)
    values[39_999] = np.nan
    table.append(pa.table({"n": np.arange(40_000), "x": values}))
    table.fold()
    path = root(lake, "stats.edges.nan")
    [stats] = statistics(path).values()
    assert stats["maxValues"].get("x") in (None, "NaN")
    # For Spark, NaN is above everything.
    assert spark.session().read.format("delta").load(str(path)).where("x > 5").count() == 1
    assert read_polars(path, pl.col("x").is_nan()).num_rows == 1


def test_long_decimals_without_a_value_are_readable_by_all(lake: Lake, spark: SparkRuntime) -> None:
    """Parquet 2 writes an empty page of them in an encoding that Polars does not know; 38 digits are what a model's Decimal gets."""
    table = lake.create_table("stats.edges.decimals", pa.schema([("n", pa.int64()), ("price", pa.decimal128(38, 18))]))
    table.append([{"n": 1, "price": None}])
    table.fold()
    path = root(lake, "stats.edges.decimals")
    expected = canonical([{"n": 1, "price": None}])
    assert canonical(read_delta_rs(path)) == expected
    assert canonical(read_datafusion(path)) == expected
    assert canonical(read_polars(path)) == expected


def test_rows_older_than_a_column_are_found_by_its_nulls(lake: Lake, spark: SparkRuntime) -> None:
    table = lake.create_table("stats.edges.grown", pa.schema([("n", pa.int64())]))
    table.append([{"n": 1}, {"n": 2}])
    table.fold()
    table.evolve(pa.schema([("n", pa.int64()), ("later", pa.int64())]))
    table.append([{"n": 3, "later": 30}, {"n": 4}])
    table.fold()
    path = root(lake, "stats.edges.grown")
    cases = (
        ("later IS NULL", pl.col("later").is_null(), 3),
        ("later IS NOT NULL", pl.col("later").is_not_null(), 1),
        ("later = 30", pl.col("later") == 30, 1),
        ("later < 30", pl.col("later") < 30, 0),
        ("n < 3", pl.col("n") < 3, 2),
    )
    for text, polars, expected in cases:
        assert read_datafusion(path, text).num_rows == expected, text
        assert read_polars(path, polars).num_rows == expected, text
    # (delta-rs's Arrow dataset is left out: it takes bounds that a file lacks for null, in Delta's own tables too.)
    chosen = [Filter(text, "", bool, pl.lit(True), pc.scalar(True)) for text, *_ in cases[:2]]
    assert counted_by_spark(spark, path, chosen) == [3, 1]


ODD_NAMES = ("my-number", "größe", "1st", "select", "it's", "a/b", "Mixed", "50%", "#1", "key")


@pytest.mark.slow
def test_any_column_name_we_take_can_be_read_and_filtered_by_all(lake: Lake, spark: SparkRuntime) -> None:
    schema = pa.schema([(name, pa.int64()) for name in ODD_NAMES])
    table = lake.create_table("stats.edges.names", schema, key=["my-number", "größe"], cluster_by=["select", "it's"])
    first, second = (dict.fromkeys(ODD_NAMES, number) for number in (1, 2))
    table.append([first, second])
    table.fold()
    table.upsert([second | {"1st": 3}])
    table.delete([{"my-number": 1, "größe": 1}])
    rows = canonical([second | {"1st": 3}])
    assert canonical(table.to_arrow()) == rows
    table.fold()
    assert canonical(table.to_arrow()) == rows
    path = root(lake, "stats.edges.names")
    for reader, seen in read_everywhere(spark, path).items():
        assert seen == rows, reader
    # A filter makes Delta read the list of columns that have statistics.
    condition = " AND ".join(f"`{name}` > 1" for name in ODD_NAMES)
    assert spark.session().read.format("delta").load(str(path)).where(condition).count() == 1


def test_a_column_may_be_called_like_one_of_the_scans(lake: Lake, spark: SparkRuntime) -> None:
    """`filename` is a word of the in-process engine's; the one it cannot give up is refused."""
    with pytest.raises(CallerError, match="file_row_number"):
        lake.create_table("stats.edges.refused", pa.schema([("file_row_number", pa.int64())]))
    schema = pa.schema([("k_id", pa.string()), ("filename", pa.string()), ("file_index", pa.int64())])
    table = lake.create_table("stats.edges.places", schema, key="k_id")
    table.append([{"k_id": str(number), "filename": f"f{number}", "file_index": -number} for number in range(5)])
    table.fold()
    table.delete(["1"])
    table.upsert([{"k_id": "2", "filename": "new", "file_index": 7}])
    expected = canonical(
        [
            {"k_id": k, "filename": f, "file_index": n}
            for k, f, n in (("0", "f0", 0), ("2", "new", 7), ("3", "f3", -3), ("4", "f4", -4))
        ]
    )
    assert canonical(table.to_arrow()) == expected
    assert table.count() == 4
    table.fold()
    assert canonical(table.to_arrow()) == expected


# -- partitions ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_partition_values_are_the_rows_own(lake: Lake, spark: SparkRuntime) -> None:
    """Plain Delta readers take them from the log, ours from the files: both must say the same."""
    schema = pa.schema(
        [("n", pa.int64()), ("region", pa.string()), ("day", pa.date32()), ("level", pa.int32()), ("flag", pa.bool_())]
    )
    table = lake.create_table("parts.all.kinds", schema, partition_by=["region", "day", "level", "flag"])
    regions = ["eu", "ü/ß=%20 'x\"", "a b", None, "__HIVE_DEFAULT_PARTITION__", "𝕏", "+", "%2F", ".", "..", "null"]
    rows = [
        {"n": number, "region": region, "day": day, "level": level, "flag": flag}
        for number, (region, day, level, flag) in enumerate(
            zip(
                regions,
                [dt.date(1969, 12, 31), dt.date(2024, 2, 29), None, dt.date(1, 1, 1), dt.date(9999, 12, 31)] * 3,
                [0, -1, None, 2**31 - 1, -(2**31)] * 3,
                [True, False, None] * 4,
                strict=False,
            )
        )
    ]
    table.append(rows)
    table.fold()
    expected = canonical(rows)
    assert canonical(table.to_arrow()) == expected
    path = root(lake, "parts.all.kinds")
    for reader, seen in read_everywhere(spark, path).items():
        assert seen == expected, reader
    assert read_polars(path, (pl.col("region") == "eu") & pl.col("flag")).num_rows == 1
    assert read_datafusion(path, "region IS NULL").num_rows == 1
    assert table.compact().final_rows == len(rows)
    # No user's value may end up in a path.
    assert not any("eu" in file.relative_to(path).as_posix().split("/") for file in live_files(path))


def test_an_empty_text_as_partition_reads_the_same_everywhere(lake: Lake, spark: SparkRuntime) -> None:
    """Delta takes an empty partition value for null: such a row must be refused, or be the same to all readers."""
    table = lake.create_table(
        "parts.all.empty", pa.schema([("n", pa.int64()), ("region", pa.string())]), partition_by=["region"]
    )
    try:
        table.append([{"n": 1, "region": ""}, {"n": 2, "region": "eu"}])
    except CallerError:
        return
    table.fold()
    rows = canonical(table.to_arrow())
    path = root(lake, "parts.all.empty")
    assert canonical(read_delta_rs(path)) == rows
    assert canonical(read_polars(path)) == rows


# -- checkpoints -----------------------------------------------------------------------------------------------


def state(path: Path) -> dict[str, Any]:
    """What delta-rs makes of a log."""
    table = DeltaTable(str(path))
    metadata = table.metadata()
    adds = pa.table(table.get_add_actions(flatten=True)).sort_by("path")
    return {
        "version": table.version(),
        "files": adds["path"].to_pylist(),
        "sizes": adds["size_bytes"].to_pylist(),
        "statistics": {
            name: adds[name].to_pylist()
            for name in sorted(adds.column_names)
            if name.startswith(("min.", "max.", "null_"))
        },
        "txn": table.transaction_version(str(metadata.id)),
        "id": str(metadata.id),
        "configuration": dict(sorted(metadata.configuration.items())),
        "schema": table.schema().to_json(),
        "created": metadata.created_time,
    }


def spark_files(spark: SparkRuntime, path: Path) -> tuple[int, int, set[tuple[str, int, str]]]:
    """Version, folded sequence and live files as Delta's own reader takes them from a log."""
    session = spark.session()
    # Delta asks the thread for its session, which only PySpark's own calls set.
    session._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
    snapshot = session._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
        session._jsparkSession, str(path)
    ).unsafeVolatileSnapshot()
    files = [json.loads(line) for line in snapshot.allFiles().toJSON().collectAsList()]
    folded = snapshot.transactions().apply(snapshot.metadata().id())
    return snapshot.version(), folded, {(file["path"], file["size"], file["stats"]) for file in files}


def without_entries(path: Path, before: int) -> None:
    for version in range(before):
        (path / "_delta_log" / f"{version:020}.json").unlink()


@pytest.mark.slow
def test_checkpoints_of_delta_rs_and_of_spark_agree(lake: Lake, spark: SparkRuntime, tmp_path: Path) -> None:
    table = lake.create_table("log.check.points", ORDERS, key="order_id")
    for start in (0, 100, 200):
        table.append([order(number) for number in range(start, start + 10)])
        table.fold()
    table.delete(["o-0001", "o-0105"])
    table.fold()
    path = root(lake, "log.check.points")
    head = DeltaTable(str(path)).version()
    rows = canonical(table.to_arrow())
    by_rs, by_spark = tmp_path / "by_rs", tmp_path / "by_spark"
    for copy in (by_rs, by_spark):
        shutil.copytree(path, copy)
        for file in (copy / "_delta_log").iterdir():
            if "checkpoint" in file.name:
                file.unlink()
    expected = state(path)
    adds = {
        (add["path"], add["size"], add["stats"]) for _, add in actions(path, "add") if add["path"] in expected["files"]
    }
    DeltaTable(str(by_rs)).create_checkpoint()
    session = spark.session()
    session._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, str(by_spark)).checkpoint()
    for copy in (by_rs, by_spark):
        assert list((copy / "_delta_log").glob(f"{head:020}.checkpoint*.parquet")), copy
        # The state can come from the checkpoint alone; Spark insists on the entry of its version.
        without_entries(copy, head)
        assert state(copy) == expected, copy.name
        assert canonical(read_delta_rs(copy)) == canonical(read_polars(copy)) == rows
    assert spark_files(spark, by_rs) == (head, expected["txn"], adds)
    assert canonical(read_delta_spark(spark, by_rs)) == rows


def test_a_checkpoint_every_five_commits_and_the_table_opens_from_it(settings: Settings, spark: SparkRuntime) -> None:
    with opened(settings) as lake:
        table = lake.create_table("log.check.own", pa.schema([("n", pa.int64())]))
        for number in range(6):
            table.append([{"n": number}])
            table.fold()
    path = root(lake, "log.check.own")
    assert json.loads((path / "_delta_log" / "_last_checkpoint").read_text())["version"] == 5
    without_entries(path, 5)
    with opened(settings) as lake:
        table = lake.table("log.check.own")
        assert sorted(table.to_arrow()["n"].to_pylist()) == list(range(6))
        assert table.describe()["folded_sequence"] == 6
        table.append([{"n": 6}])
        table.fold()
        assert canonical(read_delta_rs(path)) == canonical(table.to_arrow())


@pytest.mark.slow
def test_sparks_own_delete_still_works_on_the_table(lake: Lake, spark: SparkRuntime) -> None:
    """With no other writer at the same time, which is outside the rules."""
    table = lake.create_table("log.check.spark", pa.schema([("k_id", pa.string()), ("n", pa.int64())]), key="k_id")
    table.append([{"k_id": f"k{number}", "n": number} for number in range(20)])
    table.fold()
    path = root(lake, "log.check.spark")
    spark.session().sql(f"DELETE FROM delta.`{path}` WHERE n < 5")
    assert table.count() == 15
    assert table.describe()["folded_sequence"] == 1
    table.append([{"k_id": "k1", "n": -1}, {"k_id": "k7", "n": -7}])
    table.fold()
    expected = canonical(
        [{"k_id": f"k{n}", "n": n if n != 7 else -7} for n in range(5, 20)] + [{"k_id": "k1", "n": -1}]
    )
    assert canonical(table.to_arrow()) == expected
    for reader, seen in read_everywhere(spark, path).items():
        assert seen == expected, reader
