"""One suite for every connection: an embedded lake and a server give the same answers and the same errors."""

from __future__ import annotations

import datetime as dt
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pydantic import BaseModel

import crannog
from crannog.api.lake import Lake
from crannog.api.reports import Cancellation, WriteReceipt
from crannog.api.result import Explanation, Result, Row
from crannog.api.table import Table
from crannog.embedded import EmbeddedLake
from crannog.errors import (
    BadRows,
    CallerError,
    Cancelled,
    Conflict,
    CrannogError,
    NotFound,
    Overloaded,
    Refused,
    SchemaMismatch,
    TimedOut,
)
from servers import serving

INSTANT = pa.timestamp("us", "UTC")
ORDERS = pa.schema([pa.field("id", pa.string(), nullable=False), ("amount", pa.int64()), ("at", INSTANT)])
WIDE = pa.schema(
    [
        ("flag", pa.bool_()),
        ("small", pa.int8()),
        ("big", pa.int64()),
        ("ratio", pa.float64()),
        ("price", pa.decimal128(12, 3)),
        ("text", pa.string()),
        ("blob", pa.binary()),
        ("day", pa.date32()),
        ("at", INSTANT),
        ("tags", pa.list_(pa.string())),
        ("labels", pa.map_(pa.string(), pa.int64())),
        ("place", pa.struct([("x", pa.float64()), ("name", pa.string())])),
    ]
)
WIDE_ROW = {
    "flag": True,
    "small": -7,
    "big": 2**60,
    "ratio": 0.1,
    "price": Decimal("12.345"),
    "text": "höher ☃ \u2028",
    "blob": b"\x00\xff",
    "day": dt.date(2026, 1, 31),
    "at": dt.datetime(2026, 1, 31, 10, 0, 0, 123456, dt.UTC),
    "tags": ["a", None],
    "labels": {"x": 1},
    "place": {"x": 1.5, "name": None},
}
LIMITS = {
    "sql_running": 4,
    "max_rows_per_call": 5_000,
    "sql_rows_ceiling": 20_000,
    "sql_text_bytes": 10_000,
    "staged_rows_limit": 12_000,
}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Lake]]:
    """One connection of each kind, on warehouses of their own."""
    folder = tmp_path_factory.mktemp("contract")
    with (
        serving(folder / "served", **LIMITS) as server,
        crannog.connect(str(folder / "embedded"), spark_memory_mb=1024, **LIMITS) as embedded,
        crannog.connect(server.url) as remote,
    ):
        yield {"embedded": embedded, "remote": remote}


@pytest.fixture(params=["embedded", "remote"])
def connection(request: pytest.FixtureRequest, lakes: dict[str, Lake]) -> Lake:
    return lakes[request.param]


@pytest.fixture
def name() -> str:
    return f"shop.eu.t{next(_numbers)}"


@pytest.fixture
def orders(connection: Lake, name: str) -> Table:
    """A table with a key and three rows."""
    table = connection.create_table(name, ORDERS, key="id")
    table.append([{"id": "a", "amount": 1}, {"id": "b", "amount": 2}, {"id": "c", "amount": None}])
    return table


@pytest.fixture
def notes(connection: Lake, name: str) -> Table:
    """A table without a key."""
    return connection.create_table(name, pa.schema([("n", pa.int64()), ("text", pa.string())]))


def user_rows(table: pa.Table) -> list[dict[str, Any]]:
    names = [column for column in table.column_names if not column.startswith("_")]
    return list(table.select(names).to_pylist(maps_as_pydicts="strict"))


def by_id(table: pa.Table) -> dict[str, Any]:
    return {row["id"]: row["amount"] for row in user_rows(table)}


# -- tables ----------------------------------------------------------------------------------------------------


def test_a_table_is_made_listed_described_and_dropped(connection: Lake, name: str) -> None:
    table = connection.create_table(name, ORDERS, key="id", cluster_by=["at"], bloom="amount")
    assert table.name == name
    assert table.key == ("id",)
    assert table.schema == pa.schema(
        [*ORDERS, pa.field("_created_at", INSTANT, nullable=False), pa.field("_batch_id", pa.string(), nullable=False)]
    )
    assert name in connection.tables()
    description = connection.table(name).describe()
    assert set(description) == {
        *(
            "name",
            "table_id",
            "version",
            "sequence",
            "folded_sequence",
            "rows",
            "base_rows",
            "staged_rows",
            "staged_bytes",
        ),
        *(
            "staged_files",
            "files",
            "bytes",
            "key",
            "partition_by",
            "cluster_by",
            "columns",
            "fingerprint",
            "created_at",
            "changed_at",
            "properties",
            "warnings",
        ),
    }
    assert (
        description["name"],
        description["key"],
        description["cluster_by"],
        description["rows"],
        description["version"],
    ) == (
        name,
        ["id"],
        ["at"],
        0,
        0,
    )
    assert abs(dt.datetime.now(dt.UTC) - description["created_at"]) < dt.timedelta(minutes=5)
    assert description["columns"][0] == {"name": "id", "type": "string", "nullable": False}
    assert description["properties"]["crannog.key"] == '["id"]'
    [entry] = table.history()
    assert (entry["version"], entry["operation"]) == (0, "CREATE TABLE")
    assert isinstance(entry["timestamp"], int)
    assert connection.drop_table(name) is None  # type: ignore[func-returns-value]
    assert name not in connection.tables()
    for act in (
        lambda: connection.table(name),
        lambda: connection.drop_table(name),
        table.describe,
        lambda: table.append([{"id": "a"}]),
    ):
        with pytest.raises(NotFound, match=name):
            act()


def test_a_schema_comes_as_arrow_pydantic_or_json_schema(connection: Lake, name: str) -> None:
    class Order(BaseModel):
        id: str
        price: Decimal
        tags: list[str]
        due: dt.date | None = None

    document = {
        "type": "object",
        "properties": {"id": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["id"],
    }
    assert connection.create_table(f"{name}p", Order, key=["id"]).schema.names == [
        "id",
        "price",
        "tags",
        "due",
        "_created_at",
        "_batch_id",
    ]
    assert connection.table(f"{name}p").append([Order(id="a", price=Decimal("1.5"), tags=["x"])]).rows == 1
    made = connection.create_table(f"{name}j", document, partition_by="_date")
    assert made.schema.field("id") == pa.field("id", pa.string(), nullable=False)
    assert made.schema.field("n") == pa.field("n", pa.int64())
    assert made.describe()["partition_by"] == ["_date"]
    assert connection.create_table(f"{name}a", WIDE).schema.names[: len(WIDE)] == WIDE.names


def test_the_same_definition_again_is_ok_if_asked_and_another_never(connection: Lake, name: str) -> None:
    connection.create_table(name, ORDERS, key="id")
    assert connection.create_table(name, ORDERS, key=["id"], if_exists="ok").key == ("id",)
    with pytest.raises(Conflict) as caught:
        connection.create_table(name, ORDERS, key="id")
    assert caught.value.message == f"table {name} exists with the same definition; set if_exists to ok to use it"
    for schema, key in ((WIDE, None), (ORDERS, None), (ORDERS, "amount")):
        with pytest.raises(Conflict, match=f"table {name} exists with another definition"):
            connection.create_table(name, schema, key=key, if_exists="ok")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no-dots", ORDERS), "table name 'no-dots' has 1 part(s); give three, like catalog.schema.table"),
        ((7, ORDERS), "a table name is text like catalog.schema.table, got int"),
        (("a.b.c", "text"), "a schema is a pyarrow.Schema, a Pydantic model class or a JSON Schema dict, got str"),
        (("a.b.c", pa.schema([])), "a table needs at least one column, the schema has none"),
        (
            ("a.b.c", pa.schema([("_x", pa.int8())])),
            "column _x starts with '_', which is reserved; choose another name",
        ),
        (
            ("a.b.c", pa.schema([("x", pa.uint8())])),
            "column x has type uint8, which a table cannot hold; use the next wider signed integer",
        ),
        (("a.b.c", ORDERS, ["nope"]), "key column nope is not a column of the table; it has id, amount, at"),
        (("a.b.c", ORDERS, [7]), "key is a list of column names, got [7]"),
        (("a.b.c", ORDERS, None, ["id"], "maybe"), 'if_exists is "error" or "ok", got \'maybe\''),
        (
            ("a.b.c", ORDERS, "id", "amount"),
            "a table with a key cannot be partitioned: one key could be in two partitions; use cluster_by",
        ),
    ],
)
def test_a_wrong_definition_is_refused_in_the_same_words(
    connection: Lake, arguments: tuple[Any, ...], words: str
) -> None:
    with pytest.raises(CallerError) as caught:
        connection.create_table(*arguments)
    assert caught.value.message == words


def test_a_table_that_is_not_there_is_not_found(connection: Lake) -> None:
    for act in (connection.table, connection.drop_table, connection.cache.pin, connection.cache.evict):
        with pytest.raises(NotFound, match=r"there is no table shop\.eu\.nowhere; list the tables to see which exist"):
            act("shop.eu.nowhere")
        with pytest.raises(CallerError, match="has 2 part"):
            act("shop.eu")


# -- writes ----------------------------------------------------------------------------------------------------


def test_every_type_comes_back_as_it_went(connection: Lake, name: str) -> None:
    table = connection.create_table(name, WIDE)
    nothing = dict.fromkeys(WIDE.names)
    table.append([WIDE_ROW, nothing])
    assert user_rows(table.to_arrow()) == [WIDE_ROW, nothing]
    assert user_rows(table.preview(1)) == [WIDE_ROW]
    found = connection.sql(f"select * from {name} where flag")
    assert user_rows(found.to_arrow()) == [WIDE_ROW]
    assert table.to_arrow().schema.field("price") == pa.field("price", pa.decimal128(12, 3))


def test_rows_come_in_many_forms(connection: Lake, notes: Table) -> None:
    class Note(BaseModel):
        n: int
        text: str | None = None

    rows = [{"n": 1, "text": "x"}]
    frame = pa.table({"n": pa.array([1], pa.int32()), "text": ["x"]})
    for form in (
        rows,
        tuple(rows),
        [Note(n=1, text="x")],
        frame,
        frame.to_batches()[0],
        frame.to_pandas(),
        pl.from_arrow(frame),
    ):
        assert notes.append(form).rows == 1
    assert user_rows(notes.to_arrow()) == rows * 7
    assert notes.append([]).rows == 0
    assert notes.append(pa.table({"n": pa.array([], pa.int64())})).rows == 0
    assert notes.count() == 7


def test_a_receipt_tells_and_a_batch_that_was_kept_is_known(connection: Lake, notes: Table) -> None:
    first = notes.append([{"n": 1}], "batch-1")
    assert first == WriteReceipt(1, 1, "batch-1", duplicate=False)
    assert notes.append([{"n": 1}], "batch-1") == WriteReceipt(1, 1, "batch-1", duplicate=True)
    own = notes.append([{"n": 2}])
    assert (own.sequence, own.rows, own.duplicate) == (2, 1, False)
    assert len(own.batch_id) == 36
    assert notes.count() == 2
    assert [row["_batch_id"] for row in notes.to_arrow().to_pylist()] == ["batch-1", own.batch_id]


@pytest.mark.parametrize("batch_id", ["ein Häppchen ☃", " blank ", "100%25", "a/b?c=d&e", "new\nline", "x" * 256])
def test_a_batch_id_may_be_any_text(connection: Lake, notes: Table, batch_id: str) -> None:
    assert notes.append([{"n": 1}], batch_id).batch_id == batch_id
    assert notes.append([{"n": 1}], batch_id).duplicate
    assert notes.to_arrow()["_batch_id"].to_pylist() == [batch_id]


def test_upserts_replace_and_deletes_hide(connection: Lake, orders: Table) -> None:
    assert orders.upsert([{"id": "a", "amount": 10}], batch_id="u").rows == 1
    assert orders.append(pa.table({"id": ["b"], "amount": [20]})).rows == 1
    assert by_id(orders.to_arrow()) == {"a": 10, "b": 20, "c": None}
    assert orders.delete(["c"], actor="Ada", reason="requested") == WriteReceipt(
        4, 1, orders.tombstones()[0]["batch_id"], duplicate=False
    )
    assert orders.delete([{"id": "b"}], batch_id="d").batch_id == "d"
    assert orders.delete(["b"], batch_id="d").duplicate
    assert orders.delete(pa.table({"id": ["nobody"]})).rows == 1
    assert orders.delete(pa.array(["also nobody"])).rows == 1
    assert by_id(orders.to_arrow()) == {"a": 10}
    assert orders.count() == 1
    raw = connection.table(orders.name.replace(".t", ".__raw__t"))
    assert (
        by_id(orders.to_arrow(raw=True))
        == by_id(raw.to_arrow())
        == by_id(raw.preview())
        == {"a": 10, "b": 20, "c": None}
    )
    assert (
        orders.count(raw=True),
        raw.count(),
        orders.preview(raw=True).num_rows,
        orders.preview(2, raw=True).num_rows,
    ) == (3, 3, 3, 2)
    assert orders.audit() == []


def test_tombstones_have_keys_of_every_type(connection: Lake, name: str) -> None:
    schema = pa.schema(
        [
            ("price", pa.decimal128(10, 2)),
            ("day", pa.date32()),
            ("blob", pa.binary()),
            ("at", INSTANT),
            ("n", pa.int64()),
        ]
    )
    table = connection.create_table(name, schema, key=["price", "day", "blob", "at"])
    key = {
        "price": Decimal("10.50"),
        "day": dt.date(2026, 1, 31),
        "blob": b"\x00\xff",
        "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    }
    other = {**key, "price": Decimal("-7.00")}
    assert table.tombstones() == []
    table.append([{**key, "n": 1}])
    table.delete([key, other], actor="Ada", reason="a | b")
    found = table.tombstones()
    assert [entry["key"] for entry in found] == [key, other]
    assert [type(value) for value in found[0]["key"].values()] == [Decimal, dt.date, bytes, dt.datetime]
    assert [entry["outcome"] for entry in found] == ["hidden", "not there"]
    assert {(entry["actor"], entry["reason"], entry["sequence"]) for entry in found} == {("Ada", "a | b", 2)}
    assert [entry["order"] for entry in found] == [0, 1]
    assert abs(dt.datetime.now(dt.UTC) - found[0]["deleted_at"]) < dt.timedelta(minutes=5)
    assert table.count() == 0


@pytest.mark.parametrize(
    ("rows", "kind", "words"),
    [
        (
            [{"n": 1}, {"n": "x"}],
            BadRows,
            "cannot append to {name}: row 1 (counting from 0), column n: 'x' is str, the column is int64; nothing of the batch was kept",
        ),
        ([{"n": 2**63}], BadRows, "column n: 9223372036854775808 is too large, the column is int64"),
        ([{"n": 1, "m": 2}], None, "m"),
        ([7], BadRows, "row 0 (counting from 0): 7 is int, a row is a dict or a model"),
        ({"n": 1}, CallerError, "got dict; give a list with this one row"),
        ("rows", CallerError, "got str"),
        (
            pa.table({"m": [1]}),
            SchemaMismatch,
            "cannot append to {name}: the batch has m, the table has no such column",
        ),
        (pa.table({"n": ["x"]}), SchemaMismatch, "cannot append to {name}: column n is int64, the batch has string"),
        ([{"n": 1}] * 5_001, Overloaded, "5,001 rows in one call to {name}; 5,000 is the most: send them in parts"),
    ],
)
def test_rows_that_do_not_fit_are_refused_in_the_same_words(
    notes: Table, rows: Any, kind: type[CrannogError] | None, words: str
) -> None:
    with pytest.raises(kind or CallerError) as caught:
        notes.append(rows)
    assert kind is None or type(caught.value) is kind
    assert words.format(name=notes.name) in caught.value.message
    assert notes.count() == 0


def test_what_needs_a_key_says_so_and_keys_that_do_not_fit_are_refused(
    connection: Lake, orders: Table, name: str
) -> None:
    plain = connection.create_table(f"{name}n", ORDERS)
    with pytest.raises(
        CallerError, match=r"cannot upsert into .*: it has no key; append to it, or create it with a key"
    ):
        plain.upsert([{"id": "a"}])
    with pytest.raises(CallerError, match=r"cannot delete from .*: it has no key, so there is nothing to delete by"):
        plain.delete(["a"])
    with pytest.raises(CallerError, match="it has no key"):
        plain.erase(["a"])
    with pytest.raises(
        BadRows, match=f"cannot delete from {orders.name}: row 0 .*, column id: 7 is int, the column is string"
    ):
        orders.delete([7])
    with pytest.raises(BadRows, match="column id: the value is null or missing"):
        orders.append([{"amount": 1}])
    with pytest.raises(CallerError, match="a batch id is text of 1 to 256 characters, got ''"):
        orders.append([{"id": "x"}], batch_id="")
    with pytest.raises(CallerError, match="a batch id is text of 1 to 256 characters"):
        orders.delete(["x"], batch_id="x" * 257)
    assert by_id(orders.to_arrow()) == {"a": 1, "b": 2, "c": None}


def test_a_full_stage_is_said_with_when_to_try_again(lakes: dict[str, Lake], name: str) -> None:
    errors = []
    for lake in lakes.values():
        table = lake.create_table(name, ORDERS)
        for _ in range(2):
            table.append([{"id": "x"}] * 5_000)
        with pytest.raises(Overloaded) as caught:
            table.append([{"id": "x"}] * 5_000)
        errors.append((caught.value.message, caught.value.retry_after_s))
        assert table.count() == 10_000
    assert errors[0] == errors[1]
    assert errors[0][1] is not None


def test_a_table_made_anew_under_its_name_takes_rows_by_its_new_columns(connection: Lake, notes: Table) -> None:
    notes.append([{"n": 1}])
    connection.drop_table(notes.name)
    again = connection.create_table(notes.name, ORDERS, key="id")
    assert notes.append([{"id": "a", "amount": 1}]).rows == 1
    assert notes.upsert([{"id": "a", "amount": 2}]).rows == 1
    assert notes.delete(["b"]).rows == 1
    assert by_id(again.to_arrow()) == {"a": 2}
    with pytest.raises(CallerError):
        notes.append([{"n": 1}])
    assert notes.key == ("id",)


def test_previews_take_a_number_of_rows(orders: Table) -> None:
    assert orders.preview().num_rows == 3
    assert orders.preview(0).num_rows == 0
    for wrong in (-1, "x"):
        with pytest.raises(CallerError) as caught:
            orders.preview(wrong)  # type: ignore[arg-type]
        assert caught.value.message == f"a number of rows is a whole number, 0 or more, got {wrong!r}"
    assert orders.preview(2**63 - 1).num_rows == 3
    with pytest.raises(
        CallerError, match="a number of rows is at most 9,223,372,036,854,775,807, got 9223372036854775808"
    ):
        orders.preview(2**63)


# -- queries ---------------------------------------------------------------------------------------------------


def test_an_answer_has_every_form(connection: Lake, orders: Table) -> None:
    found = connection.sql(
        f"select id, amount from {orders.name} where amount is not null order by id", query_id="mine ☃/1"
    )
    assert isinstance(found, Result)
    assert found.rows() == [{"id": "a", "amount": 1}, {"id": "b", "amount": 2}]
    assert isinstance(found.rows()[0], Row)
    assert found.rows()[0][1] == 1
    assert found.to_arrow() == pa.table({"id": ["a", "b"], "amount": [1, 2]})
    assert found.to_pandas()["amount"].tolist() == [1, 2]
    assert found.to_polars()["id"].to_list() == ["a", "b"]
    assert found.columns == [{"name": "id", "type": "string"}, {"name": "amount", "type": "bigint"}]
    assert (found.engine, found.truncated, found.row_count, len(found), found.query_id) == (
        "local",
        False,
        2,
        2,
        "mine ☃/1",
    )
    assert found.why == "no files need to be read"
    assert found.elapsed_ms > 0
    assert connection.sql("select 1 as one").rows() == [{"one": 1}]
    assert connection.sql("select cast(1.50 as decimal(5,2)) d, current_date() is not null c").rows()[0][
        "d"
    ] == Decimal("1.50")


def test_an_answer_is_cut_where_it_was_asked_to_be(connection: Lake, orders: Table) -> None:
    query = f"select id from {orders.name} order by id"
    cut = connection.sql(query, max_rows=2)
    assert (cut.row_count, cut.truncated) == (2, True)
    assert not connection.sql(query, max_rows=3).truncated
    assert connection.sql(query, max_rows=0).to_arrow().schema == cut.schema


@pytest.mark.parametrize(
    ("question", "kind", "words"),
    [
        ({"text": "drop table {name}"}, Refused, "SELECT"),
        ({"text": "select * from shop.eu.nowhere"}, NotFound, "there is no table shop.eu.nowhere"),
        ({"text": "select nope from {name}"}, CallerError, "there is no column nope; there are id, amount, at"),
        ({"text": "select"}, CallerError, ""),
        ({"text": ""}, CallerError, ""),
        ({"text": "select 1 -- " + "x" * 10_000}, Refused, "the maximum is 10,000"),
        (
            {"text": "select 1", "engine": "abacus"},
            CallerError,
            "engine is one of auto, hot, local, spark, got 'abacus'",
        ),
        (
            {"text": "select id from {name}", "engine": "hot"},
            CallerError,
            "engine 'hot' cannot run this: {name} is not in memory; pin it first, or use engine='auto'",
        ),
        ({"text": "select 1", "max_rows": -1}, CallerError, "max_rows is a whole number, 0 or more, got -1"),
        ({"text": "select 1", "max_rows": 1.5}, CallerError, "max_rows is a whole number, 0 or more, got 1.5"),
        (
            {"text": "select 1", "max_rows": 20_001},
            CallerError,
            "max_rows is at most 20,000, got 20,001; stream a larger result",
        ),
        (
            {"text": "select 1", "timeout_s": 0},
            CallerError,
            "timeout_s is a number of seconds above 0 and up to 86,400, got 0",
        ),
        (
            {"text": "select 1", "timeout_s": float("nan")},
            CallerError,
            "timeout_s is a number of seconds above 0 and up to 86,400, got nan",
        ),
        (
            {"text": "select 1", "query_id": ""},
            CallerError,
            "a query id is printable text of 1 to 128 characters, got ''",
        ),
        (
            {"text": "select 1", "query_id": 7},
            CallerError,
            "a query id is printable text of 1 to 128 characters, got '7'",
        ),
    ],
)
def test_a_wrong_question_is_refused_in_the_same_words(
    lakes: dict[str, Lake], name: str, question: dict[str, Any], kind: type[CrannogError], words: str
) -> None:
    arguments = {**question, "text": question["text"].format(name=name)}
    messages = []
    for lake in lakes.values():
        lake.create_table(name, ORDERS)
        for verb in (lake.sql, lake.stream) if "max_rows" not in question else (lake.sql,):
            with pytest.raises(kind) as caught:
                verb(**arguments)  # type: ignore[operator]
            assert type(caught.value) is kind
            assert words.format(name=name) in caught.value.message
            messages.append((caught.value.message, caught.value.retry_after_s))
    assert len(set(messages)) == 1


def _slow(name: str) -> str:
    """A query that takes a minute or more."""
    return f"select count(*) from {name} a, {name} b, {name} c where a.amount + b.amount * c.amount % 7 = -1"


@pytest.fixture
def heavy(connection: Lake, name: str) -> str:
    table = connection.create_table(name, ORDERS)
    table.append([{"id": str(n), "amount": n} for n in range(5_000)])
    return _slow(name)


def _once_running(connection: Lake, query_id: str) -> None:
    ends = time.monotonic() + 30
    while True:
        try:
            connection.cancel(query_id)
            return
        except NotFound:
            assert time.monotonic() < ends
            time.sleep(0.01)


def test_a_query_ends_with_its_time(connection: Lake, heavy: str) -> None:
    with pytest.raises(TimedOut, match=r"query late took longer than 0.2 s; narrow it, or raise timeout_s"):
        connection.sql(heavy, timeout_s=0.2, query_id="late")


def test_a_query_is_cancelled_from_another_thread_and_its_id_is_taken_meanwhile(connection: Lake, heavy: str) -> None:
    caught: list[CrannogError] = []

    def ask() -> None:
        while not caught:
            try:
                connection.sql(heavy, query_id="long one", engine="local")
            except Conflict:
                continue  # the short query below had the id just then
            except CrannogError as error:
                caught.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    ends = time.monotonic() + 30
    taken = ""
    while not taken and time.monotonic() < ends:
        try:
            connection.sql("select 1", query_id="long one")
        except Conflict as error:
            taken = error.message
    assert taken == "a query with the id 'long one' is already running; use another id, or none"
    _once_running(connection, "long one")
    asking.join(30)
    assert [(type(error), error.message) for error in caught] == [(Cancelled, "query long one was cancelled")]
    with pytest.raises(NotFound, match="long one"):
        connection.cancel("long one")


def test_a_stream_gives_all_rows_batch_by_batch(connection: Lake, name: str) -> None:
    table = connection.create_table(name, ORDERS)
    table.append([{"id": str(n), "amount": n} for n in range(5_000)])
    with connection.stream(
        f"select a.amount * 5000 + b.amount as n from {name} a, {name} b where a.amount < 100", query_id="flow"
    ) as stream:
        assert stream.schema == pa.schema([("n", pa.int64())])
        assert (stream.engine, stream.query_id) == ("local", "flow")
        batches = list(stream)
    assert len(batches) > 1
    found = pa.Table.from_batches(batches)["n"]
    assert (len(found), pc.count_distinct(found).as_py(), pc.sum(found).as_py()) == (
        500_000,
        500_000,
        sum(range(500_000)),
    )
    with connection.stream(f"select id from {name} where false") as stream:
        assert (stream.schema.names, list(stream)) == (["id"], [])


def test_a_stream_that_is_closed_ends_its_query(connection: Lake, name: str) -> None:
    connection.create_table(name, ORDERS).append([{"id": str(n), "amount": n} for n in range(5_000)])
    for started in (True, False):
        stream = connection.stream(f"select a.id from {name} a, {name} b, {name} c", query_id=f"left {started}")
        if started:
            assert next(iter(stream)).num_rows > 0
        stream.close()
        ends = time.monotonic() + 30
        while started:  # one that was never begun is let go of with its object
            try:
                connection.cancel(f"left {started}")
                assert time.monotonic() < ends
            except NotFound:
                break
        del stream


def test_an_error_in_the_middle_of_a_stream_is_raised_there(connection: Lake, name: str) -> None:
    connection.create_table(name, ORDERS).append([{"id": str(n), "amount": n} for n in range(5_000)])
    with (
        connection.stream(
            f"select a.id from {name} a, {name} b, {name} c", query_id="broken", engine="local"
        ) as stream,
        pytest.raises(Cancelled, match="query broken was cancelled"),
    ):
        for number, batch in enumerate(stream):
            assert batch.num_rows
            if number == 2:
                connection.cancel("broken")


def test_an_explanation_is_the_same(connection: Lake, orders: Table) -> None:
    explanation = connection.explain(f"select id from {orders.name} where amount = 1")
    assert isinstance(explanation, Explanation)
    assert (explanation.engine, explanation.why, explanation.result) == (
        "local",
        "no files need to be read",
        None,
    )
    [report] = explanation.tables
    assert (report.table, report.version, report.sequence, report.files, report.staged_rows, report.pruned_by) == (
        orders.name,
        0,
        1,
        0,
        3,
        (),
    )
    assert explanation.plan
    ran = connection.explain(f"select id from {orders.name} where amount = 1", analyze=True)
    assert ran.result is not None
    assert ran.result.rows() == [{"id": "a"}]
    assert "ran: 1 rows in" in str(ran)
    assert ran.as_dict()["analyzed"]["rows"] == 1
    with pytest.raises(NotFound, match=r"there is no table shop\.eu\.nowhere"):
        connection.explain("select 1 from shop.eu.nowhere")
    with pytest.raises(CallerError, match="engine is one of"):
        connection.explain("select 1", engine="abacus")


def test_tables_are_held_in_memory(connection: Lake, orders: Table) -> None:
    held = connection.cache.pin(orders.name)
    assert (held["name"], held["rows"]) == (orders.name, 3)
    assert connection.sql(f"select count(*) c from {orders.name}").engine == "hot"
    stats = connection.cache.stats()
    [entry] = [entry for entry in stats["tables"] if entry["name"] == orders.name]
    assert set(entry) == set(held)
    assert (entry["rows"], entry["hits"]) == (3, 1)
    assert isinstance(stats["limit_bytes"], int)
    assert connection.cache.evict(orders.name) is True
    assert connection.cache.evict(orders.name) is False


def test_tasks_are_listed(connection: Lake) -> None:
    for task in connection.tasks():
        assert {
            "task_name",
            "status",
            "owner",
            "claimed_at",
            "completed_at",
            "next_run_at",
            "failures",
            "last_result",
        } == set(task)


@pytest.mark.parametrize("kind", ["embedded", "remote"])
def test_a_connection_that_was_closed_says_so(lakes: dict[str, Lake], name: str, kind: str, tmp_path: Path) -> None:
    place = str(tmp_path / "w") if kind == "embedded" else lakes["remote"].address  # type: ignore[attr-defined]
    with crannog.connect(place) as lake:
        table = lake.create_table(name, ORDERS)
    verbs: list[Callable[[], object]] = [
        *(
            lake.tables,
            lambda: lake.table(name),
            lambda: lake.create_table(name, ORDERS),
            lambda: lake.drop_table(name),
        ),
        *(
            lambda: lake.sql("select 1"),
            lambda: lake.stream("select 1"),
            lambda: lake.explain("select 1"),
            lambda: lake.cache.pin(name),
        ),
        *(table.describe, table.fold, lambda: table.append([{"id": "a"}]), table.to_arrow, table.count),
    ]
    for verb in verbs:
        with pytest.raises(CallerError) as caught:
            verb()
        assert caught.value.message == "this connection is closed; connect again"
    lake.close()


def test_threads_share_a_connection(connection: Lake, notes: Table) -> None:
    failed: list[BaseException] = []

    def work(start: int) -> None:
        try:
            for n in range(start, start + 10):
                notes.append([{"n": n}])
                assert connection.sql(f"select n from {notes.name} where n = {n}").row_count == 1
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(0, 80, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert sorted(notes.to_arrow()["n"].to_pylist()) == list(range(80))


def test_a_producer_works_on_either(connection: Lake, notes: Table) -> None:
    with connection.producer(notes.name, batch_rows=30, max_age_s=60) as producer:
        producer.insert_many({"n": n if n != 50 else "no number"} for n in range(100))
    assert (producer.sent, producer.failed) == (99, 1)
    assert notes.to_arrow()["n"].to_pylist() == [n for n in range(100) if n != 50]


# -- jobs ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_whole_pipeline_reports_the_same(lakes: dict[str, Lake], name: str) -> None:
    results: dict[str, list[Any]] = {}
    for kind, lake in lakes.items():
        table = lake.create_table(name, ORDERS, key="id")
        table.append([{"id": str(n), "amount": n, "at": dt.datetime(2026, 1, 1 + n, tzinfo=dt.UTC)} for n in range(10)])
        table.delete(["1"], actor="Ada", reason="requested")
        steps: list[tuple[str, float]] = []
        fold = table.fold(progress=lambda step, share, steps=steps: steps.append((step, share)))  # type: ignore[misc]
        assert steps
        assert all(0 <= share <= 1 for _, share in steps)
        again = table.fold()
        dry = table.compact(dry_run=True)
        table.append([{"id": "x", "amount": 1}])
        compact = table.compact()
        evolved = table.evolve(pa.schema([*ORDERS, ("more", pa.string())]))
        table.append([{"id": "y", "more": "z"}])
        assert table.schema.names[:4] == [*ORDERS.names, "more"]
        erased = table.erase(["2"], actor="Ada", reason="forget", progress=lambda step, share: None)
        expired = table.expire(dt.date(2026, 1, 5), column="at")
        vacuum = table.vacuum(dry_run=True)
        audit = table.audit()
        assert isinstance(audit[0]["deleted_at"], dt.datetime)
        assert isinstance(erased.erased_at, dt.datetime)
        with pytest.raises(CallerError) as refused:
            table.evolve(pa.schema([("id", pa.string())]))
        reports = [fold, again, dry, compact, evolved, erased, expired, vacuum]
        results[kind] = [type(report) for report in reports]
        results[kind] += [
            (
                fold.changes,
                fold.final_rows,
                fold.version,
                again.version,
                compact.final_rows,
                len(compact.plan),
                evolved.added,
                evolved.version,
            )
        ]
        results[kind] += [
            (
                erased.keys,
                erased.rows_erased,
                [place.place for place in erased.places],
                expired.rows_dropped,
                expired.before,
            )
        ]
        results[kind] += [
            refused.value.message,
            [(entry["actor"], entry["reason"], entry["outcome"]) for entry in audit],
        ]
        results[kind] += [
            sorted(by_id(table.to_arrow()).items()),
            [entry["operation"] for entry in table.history()],
            len(table.history(2)),
        ]
        assert {task["task_name"].partition(":")[2] for task in lake.tasks()} >= {name}
    assert results["embedded"] == results["remote"]


@pytest.mark.slow
def test_a_job_is_taken_back(connection: Lake, orders: Table) -> None:
    before = orders.describe()["version"]
    cancelled = Cancellation()
    cancelled.cancel()
    with pytest.raises(Cancelled):
        orders.fold(cancellation=cancelled)
    late = Cancellation()
    with pytest.raises(Cancelled):
        orders.fold(progress=lambda step, share: late.cancel(), cancellation=late)

    class Stop(Exception):
        pass

    def stop(step: str, share: float) -> None:
        raise Stop

    with pytest.raises(Stop):
        orders.fold(progress=stop)
    ends = time.monotonic() + 60
    while orders.describe()["version"] != before:
        assert time.monotonic() < ends
    assert orders.count() == 3


PUBLIC = [
    "cache",
    "cancel",
    "close",
    "create_table",
    "drop_table",
    "explain",
    "load",
    "producer",
    "receipt",
    "receipts",
    "sql",
    "stream",
    "table",
    "tables",
    "tasks",
    "traces",
    "upkeep",
    "builds",
]
INTERNAL = ["settings", "operations", "trace_store", "new_scheduler"]


def test_a_connection_has_the_public_names_and_few_others(connection: Lake) -> None:
    """The server and the tests reach what is behind a connection by `operations`; nobody comes to depend on more."""
    others = INTERNAL if isinstance(connection, EmbeddedLake) else ["address"]
    assert {name for name in dir(connection) if not name.startswith("_")} == {*PUBLIC, *others}
