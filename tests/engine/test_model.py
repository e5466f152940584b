"""Random acts on a table, and a plain model of it in memory: every reader must always see what the model has."""

from __future__ import annotations

import datetime as dt
import math
import shutil
import tempfile
import uuid
from contextlib import ExitStack
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, note
from hypothesis import settings as how
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from crannog.embedded import EmbeddedLake as Lake
from crannog.embedded import EmbeddedTable as Table
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from lakes import DAY, INSTANT, canonical, opened, read_datafusion, read_delta_rs, read_delta_spark, read_polars, root

NAME = "model.random.rows"
Row = dict[str, Any]

# -- columns and their values ----------------------------------------------------------------------------------

NESTED = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
COLUMNS: dict[str, pa.DataType] = {
    "word": pa.string(),
    "n": pa.int32(),
    "big": pa.int64(),
    "price": pa.decimal128(9, 2),
    "at": INSTANT,
    "day": pa.date32(),
    "share": pa.float32(),
    "flag": pa.bool_(),
    "raw": pa.binary(),
    "nested": NESTED,
    "tags": pa.map_(pa.string(), pa.int64()),
}
# Not beyond 18 digits: Polars cannot read every page of longer decimals (test_delta_log has that by itself).
WIDER: dict[str, pa.DataType] = {"n": pa.int64(), "price": pa.decimal128(18, 4), "share": pa.float64()}
LATER: tuple[tuple[str, pa.DataType], ...] = (("extra_id", pa.string()), ("more", NESTED), ("late", INSTANT))

WORDS = (
    "",
    "a",
    "ß𝕏é",
    "it's",
    'qu"ote',
    "nul\x00l",
    "l" * 40 + "1",
    "l" * 40 + "2",
    "line\nend",
    " ",
    "NULL",
    "😀" * 20,
)
FIRST_DAY = dt.date(2024, 2, 27)


def value_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """A value of a column's type, null among them; edges often."""
    if kind == pa.string():
        values: st.SearchStrategy[Any] = st.sampled_from(WORDS) | st.text(max_size=5)
    elif pa.types.is_integer(kind):
        limit = 1 << (kind.bit_width - 1)
        values = st.sampled_from([-limit, limit - 1, 0, -1]) | st.integers(-limit, limit - 1)
    elif pa.types.is_decimal(kind):
        limit = 10**kind.precision - 1
        values = (st.sampled_from([-limit, limit, 0]) | st.integers(-limit, limit)).map(
            lambda digits: Decimal(digits).scaleb(-kind.scale)
        )
    elif kind == INSTANT:
        values = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)).map(lambda at: at.replace(tzinfo=dt.UTC))
    elif kind == pa.date32():
        # Few, so that partitions are shared and an expiry has something to drop.
        values = st.integers(0, 3).map(lambda days: FIRST_DAY + days * DAY)
    elif kind == pa.float32():
        values = st.floats(width=32)
    elif kind == pa.float64():
        values = st.floats()
    elif kind == pa.bool_():
        values = st.booleans()
    elif kind == pa.binary():
        values = st.binary(max_size=6)
    elif pa.types.is_struct(kind):
        values = st.fixed_dictionaries(
            {
                "a": st.none() | st.integers(-5, 5),
                "b": st.none() | st.lists(st.none() | st.sampled_from(WORDS), max_size=2),
            }
        )
    else:
        values = st.dictionaries(st.sampled_from(WORDS), st.none() | st.integers(-5, 5), max_size=2)
    return st.none() | values


# -- the machine -----------------------------------------------------------------------------------------------


class TableMachine(RuleBasedStateMachine):
    """One table, two processes that work on it, and what it must hold."""

    key: ClassVar[tuple[str, ...]] = ()
    partition_by: ClassVar[tuple[str, ...]] = ()
    reads_spark: ClassVar[bool] = False
    runtime: ClassVar[SparkRuntime]

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.folder = tempfile.mkdtemp(prefix="crannog-model-")
        self.stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.settings = Settings(warehouse=f"{self.folder}/warehouse")
        self.lakes: list[Lake] = []
        self.columns = dict(COLUMNS)
        self.unlocked = list(LATER)
        self.visible: dict[Any, Row] = {}
        self.raw: dict[Any, Row] = {}
        self.batches: dict[str, list[Row]] = {}

    @initialize(data=st.data(), folded=st.booleans())
    def create(self, data: st.DataObject, folded: bool) -> None:
        self.lakes = [opened(self.settings), opened(self.settings)]
        self.lakes[0].create_table(NAME, self.schema(), key=self.key, partition_by=self.partition_by)
        self.append(data, 0, least=4)
        if folded:
            self.fold(0)

    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, kind, nullable=name not in self.key) for name, kind in self.columns.items()])

    def table(self, process: int = 0) -> Table:
        return self.lakes[process].table(NAME)

    def place(self, row: Row) -> Any:
        """What tells a row from others: its key, or nothing but that it is there."""
        return repr([row[name] for name in self.key]) if self.key else uuid.uuid4()

    def folded(self) -> None:
        self.raw = dict(self.visible)

    # -- drawing -----------------------------------------------------------------------------------------------

    def rows(self, data: st.DataObject, least: int) -> list[Row]:
        count = data.draw(st.integers(least, least + 3))
        drawn = [
            data.draw(st.fixed_dictionaries({name: self.cell(name) for name in self.columns})) for _ in range(count)
        ]
        # Columns left out are null.
        return [{name: value for name, value in row.items() if value is not None or name in self.key} for row in drawn]

    def cell(self, name: str) -> st.SearchStrategy[Any]:
        if name not in self.key:
            return value_of(self.columns[name])
        few: dict[str, list[Any]] = {
            "word": list(WORDS),
            "big": [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1],
            "day": [FIRST_DAY + days * DAY for days in range(4)],
        }
        return st.sampled_from(few[name])

    def keys(self, data: st.DataObject) -> list[Row]:
        """Keys, most of them of rows that are there."""
        anything = st.fixed_dictionaries({name: self.cell(name) for name in self.key})
        present = [{name: row[name] for name in self.key} for _, row in sorted(self.raw.items())]
        return data.draw(st.lists(st.sampled_from(present) | anything if present else anything, min_size=1, max_size=3))

    def whole(self, row: Row) -> Row:
        return {name: row.get(name) for name in self.columns}

    # -- writing -----------------------------------------------------------------------------------------------

    @rule(data=st.data(), process=st.integers(0, 1), least=st.integers(1, 3))
    def append(self, data: st.DataObject, process: int, least: int) -> None:
        rows = self.rows(data, least)
        batch = uuid.uuid4().hex
        receipt = self.table(process).append(rows, batch_id=batch)
        assert not receipt.duplicate
        self.batches[batch] = rows
        for row in map(self.whole, rows):
            place = self.place(row)
            self.visible[place] = self.raw[place] = row

    # Rules are chosen alike: these make writing as likely as all the rest.
    @rule(data=st.data())
    def append_more(self, data: st.DataObject) -> None:
        self.append(data, 0, least=2)

    @rule(data=st.data())
    def append_elsewhere(self, data: st.DataObject) -> None:
        self.append(data, 1, least=2)

    @precondition(lambda self: self.key and self.visible)
    @rule(data=st.data(), process=st.integers(0, 1))
    def upsert(self, data: st.DataObject, process: int) -> None:
        """Change rows that are there."""
        for place in data.draw(st.lists(st.sampled_from(sorted(self.visible)), min_size=1, max_size=2, unique=True)):
            [fresh] = self.rows(data, 1)[:1]
            row = self.whole(fresh | {name: self.visible[place][name] for name in self.key})
            self.table(process).upsert([row])
            self.visible[place] = self.raw[place] = row

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), process=st.integers(0, 1))
    def send_a_batch_again(self, data: st.DataObject, process: int) -> None:
        batch = data.draw(st.sampled_from(sorted(self.batches)))
        assert self.table(process).append(self.batches[batch], batch_id=batch).duplicate

    @precondition(lambda self: self.key)
    @rule(data=st.data(), process=st.integers(0, 1))
    def delete(self, data: st.DataObject, process: int) -> None:
        keys = self.keys(data)
        self.table(process).delete(keys, actor="model")
        for key in keys:
            self.visible.pop(self.place(key), None)

    # -- the pipeline ------------------------------------------------------------------------------------------

    @rule(process=st.integers(0, 1))
    def fold(self, process: int) -> None:
        report = self.table(process).fold()
        self.folded()
        assert report.final_rows == len(self.visible)

    @rule(process=st.integers(0, 1))
    def compact(self, process: int) -> None:
        report = self.table(process).compact()
        self.folded()
        assert report.final_rows == len(self.visible)

    @precondition(lambda self: self.key)
    @rule(data=st.data())
    def purge(self, data: st.DataObject) -> None:
        """Delete and compact: afterwards not even a raw read shows the rows."""
        keys = self.keys(data)
        self.table().delete(keys)
        for key in keys:
            self.visible.pop(self.place(key), None)
        self.table().compact()
        self.folded()
        assert self.table(1).tombstones() == []

    @precondition(lambda self: self.key)
    @rule(data=st.data())
    def erase(self, data: st.DataObject) -> None:
        keys = self.keys(data)
        places = {self.place(key) for key in keys}
        receipt = self.table().erase(keys)
        assert receipt.keys == len(places)
        assert receipt.rows_erased == len(places & self.visible.keys())
        for place in places:
            self.visible.pop(place, None)
        self.folded()

    @rule(days=st.integers(0, 2))
    def expire(self, days: int) -> None:
        before = FIRST_DAY + days * DAY
        report = self.table().expire(before, column="day")
        old = [place for place, row in self.visible.items() if row["day"] is not None and row["day"] < before]
        assert report.rows_dropped == len(old)
        for place in old:
            del self.visible[place]
        self.folded()

    @rule(process=st.integers(0, 1))
    def vacuum(self, process: int) -> None:
        self.table(process).vacuum(0, force=True)

    # -- evolution ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self.unlocked)
    @rule(process=st.integers(0, 1))
    def add_a_column(self, process: int) -> None:
        name, kind = self.unlocked.pop(0)
        self.columns[name] = kind
        assert self.table(process).evolve(self.schema()).files_rewritten == 0
        for rows in (self.visible, self.raw):
            for row in rows.values():
                row[name] = None

    @precondition(lambda self: self.columns["n"] == pa.int32())
    @rule(process=st.integers(0, 1))
    def widen(self, process: int) -> None:
        self.columns |= WIDER
        self.table(process).evolve(self.schema())

    @rule(process=st.integers(0, 1))
    def reopen(self, process: int) -> None:
        self.lakes[process].close()
        self.lakes[process] = opened(self.settings)

    # -- what must hold ----------------------------------------------------------------------------------------

    @invariant()
    def both_processes_see_the_rows(self) -> None:
        if not self.lakes:
            return
        expected, with_deleted = canonical(self.visible.values()), canonical(self.raw.values())
        for process in (0, 1):
            table = self.table(process)
            assert canonical(table.to_arrow()) == expected
            assert table.count() == len(expected)
            assert table.count(raw=True) == len(with_deleted)
        assert canonical(self.table().to_arrow(raw=True)) == with_deleted
        if self.reads_spark:
            assert canonical(self.table().to_spark().toArrow()) == expected

    def teardown(self) -> None:
        try:
            if self.lakes:
                self.check_on_every_engine()
        finally:
            for lake in self.lakes:
                lake.close()
            self.stack.close()

    def check_on_every_engine(self) -> None:
        """Through Spark with the tail as it is, then the base alone through readers that know nothing of Crannog."""
        expected = canonical(self.visible.values())
        table = self.table()
        assert canonical(table.to_spark().toArrow()) == expected
        assert canonical(table.to_spark(raw=True).toArrow()) == canonical(self.raw.values())
        table.fold()
        path = root(self.lakes[0], NAME)
        assert canonical(read_delta_rs(path)) == expected
        assert canonical(read_datafusion(path)) == expected
        assert canonical(read_polars(path)) == expected
        if self.reads_spark:
            assert canonical(read_delta_spark(self.runtime, path)) == expected
        assert canonical(table.to_arrow(raw=True)) == expected
        note(f"{len(expected)} rows, {len(self.table().history())} versions")


class Keyed(TableMachine):
    key = ("word",)


class KeyedBySeveral(TableMachine):
    key = ("day", "big")


class Plain(TableMachine):
    pass


class Partitioned(TableMachine):
    partition_by = ("day", "flag")


MACHINES = [Keyed, KeyedBySeveral, Plain, Partitioned]
_PATIENT = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.fixture(autouse=True)
def _runtime(spark: SparkRuntime) -> None:
    spark.session()
    TableMachine.runtime = spark


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_random_acts(machine: type[TableMachine]) -> None:
    """A few, the same at every run: a failure here can be looked at."""
    run_state_machine_as_test(
        machine,
        settings=how(
            max_examples=2,
            stateful_step_count=10,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=_PATIENT,
        ),
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_many_random_acts(machine: type[TableMachine]) -> None:
    """Others at every run, with Spark asked after each step, and the shortest way to a failure sought."""
    thorough = type(f"Thorough{machine.__name__}", (machine,), {"reads_spark": True})
    run_state_machine_as_test(
        thorough,
        settings=how(
            max_examples=25, stateful_step_count=16, deadline=None, suppress_health_check=_PATIENT, print_blob=True
        ),
    )


def test_the_comparison_tells_values_apart() -> None:
    """What the tests here stand on: equal values are equal in any form, others are not."""
    same = [
        (1.0, 1.0),
        (math.nan, float("nan")),
        (Decimal("1.50"), Decimal("1.5")),
        (dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))),
        ({"a": 1, "b": 2}, [("b", 2), ("a", 1)]),
        ([("k", 1)], [{"key": "k", "value": 1}]),
        (b"x", bytearray(b"x")),
    ]
    different = [
        (1, None),
        ("1", 1),
        (0.0, -0.0),
        (True, 1),
        ("", None),
        ([], None),
        (b"x", "x"),
        (Decimal("1.1"), Decimal("1.2")),
    ]
    for one, other in same:
        assert canonical([{"v": one}]) == canonical([{"v": other}]), (one, other)
    for one, other in different:
        assert canonical([{"v": one}]) != canonical([{"v": other}]), (one, other)
