"""Pages of a table by its key or a column: the same embedded and over HTTP, with filters, and with nothing lost or repeated."""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
from typing import Any

import httpx
import pyarrow as pa
import pytest

from crannog.api.lake import Lake
from crannog.api.table import Table
from crannog.errors import CallerError
from crannog.server.http_server import HttpServer
from test_contract import INSTANT

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        ("region", pa.string()),
        ("n", pa.int64()),
        ("amount", pa.float64()),
        ("price", pa.decimal128(8, 2)),
        ("at", INSTANT),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.string())),
        ("data", pa.binary()),
    ]
)


def rows_of(count: int) -> list[dict[str, Any]]:
    pick = random.Random(5)
    return [
        {
            "region": pick.choice(["eu", "us", "ü'\"; --"]),
            "n": n,
            "amount": pick.choice([None, float(n % 7), float("inf"), -0.5]),
            "price": f"{n % 5}.25",
            "at": START + dt.timedelta(minutes=n % 13),
            "day": pick.choice([None, dt.date(2026, 1, 1 + n % 9)]),
            "tags": ["a"],
            "data": bytes([n % 256]),
        }
        for n in range(count)
    ]


def all_pages(table: Table, limit: int, **options: Any) -> list[dict[str, Any]]:
    """Read forward to the end and back to the start; both give the same rows."""
    pages = [table.page(limit, **options)]
    assert pages[0].previous_cursor is None
    while (cursor := pages[-1].next_cursor) is not None:
        pages.append(table.page(limit, after=cursor, **options))
        assert pages[-1].rows.num_rows
    back = [pages[-1]]
    while (cursor := back[0].previous_cursor) is not None:
        back.insert(0, table.page(limit, before=cursor, **options))
        assert len(back) <= len(pages) + 1
    forward = [row for page in pages for row in page.rows.to_pylist()]
    assert [row for page in back if page.rows.num_rows for row in page.rows.to_pylist()] == forward
    return forward


@pytest.mark.parametrize("order", ["", "amount", "-amount", "day", "-region", "at", "price", "-data", "n"])
def test_all_rows_come_once_and_in_order(running: HttpServer, order: str, name: str) -> None:
    table = running.service.lake.create_table(name, SCHEMA, key=["region", "n"])
    table.append(rows_of(100))
    table.delete([{"region": row["region"], "n": row["n"]} for row in rows_of(100)[:10]])
    found = all_pages(table, 7, order=order)
    assert sorted(row["n"] for row in found) == list(range(10, 100))
    column, descending = order.removeprefix("-"), order.startswith("-")
    if not order:
        assert [(row["region"], row["n"]) for row in found] == sorted((row["region"], row["n"]) for row in found)
        return
    values = [row[column] for row in found if row[column] is not None]
    assert values == sorted(values, reverse=descending)
    assert all(row[column] is None for row in found[len(values) :])


@pytest.mark.parametrize("keyed", [True, False])
def test_pages_and_their_filters_are_the_same_everywhere(connection: Lake, name: str, keyed: bool) -> None:
    rows = rows_of(90)
    table = connection.create_table(name, SCHEMA, key="n" if keyed else None)
    for part in range(0, 90, 30):
        table.append(rows[part : part + 30])
    found = all_pages(table, 13, where=[("amount", ">=", 3), ["region", "in", ["eu", "ü'\"; --"]]], order="-at")
    wanted = [r["n"] for r in rows if r["amount"] is not None and r["amount"] >= 3 and r["region"] != "us"]
    assert sorted(row["n"] for row in found) == wanted
    for filters, expected in (
        ([("region", "=", "ü'\"; --")], lambda r: r["region"].startswith("ü")),
        ([("region", "starts_with", "e")], lambda r: r["region"] == "eu"),
        ([("region", "icontains", "U")], lambda r: "u" in r["region"]),
        ([("amount", "is_null")], lambda r: r["amount"] is None),
        ([("tags", "is_not_null")], lambda r: True),
        ([("price", "=", "3.25"), ("n", "!=", 3)], lambda r: r["n"] % 5 == 3 and r["n"] != 3),
        ([("at", ">", START + dt.timedelta(minutes=10))], lambda r: r["n"] % 13 > 10),
        ([("day", "<=", dt.date(2026, 1, 2))], lambda r: r["day"] is not None and r["day"].day <= 2),
        ([("data", "=", b"\x07")], lambda r: r["n"] == 7),
        ([("n", "in", [])], lambda r: False),
    ):
        page = table.page(1_000, where=filters, columns=["n"])
        assert page.rows.column_names == ["n"]
        assert sorted(page.rows["n"].to_pylist()) == [row["n"] for row in rows if expected(row)]  # type: ignore[no-untyped-call]
    connection.cache.pin(name)
    assert sorted(row["n"] for row in all_pages(table, 40)) == list(range(90))


def test_equal_rows_of_a_table_without_a_key_are_all_there(connection: Lake, name: str) -> None:
    table = connection.create_table(name, pa.schema([("n", pa.int64())]))
    table.append([{"n": 1}] * 10 + [{"n": 2}] * 3 + [{"n": 1}])
    for limit in (1, 3, 4, 14):
        assert sorted(row["n"] for row in all_pages(table, limit)) == [1] * 11 + [2] * 3
        assert [row["n"] for row in all_pages(table, limit, order="-n")] == [2] * 3 + [1] * 11


def test_rows_that_change_between_pages_neither_repeat_nor_disappear(running: HttpServer, name: str) -> None:
    table = running.service.lake.create_table(name, SCHEMA, key="n")
    table.append(rows_of(30))
    first = table.page(10)
    table.delete([3])
    table.upsert([{"n": -1}, {"n": 15, "region": "new"}])
    second = table.page(10, after=first.next_cursor)
    assert second.rows["n"].to_pylist() == list(range(10, 20))
    assert second.rows["region"][5].as_py() == "new"
    back = table.page(10, before=second.previous_cursor)
    assert back.rows["n"].to_pylist() == [-1, 0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_pages_over_http(running: HttpServer, name: str) -> None:
    table = running.service.lake.create_table(name, SCHEMA, key="n")
    table.append(rows_of(20))
    address = f"{running.url}/api/v1/tables/{name}/rows"
    first = httpx.get(address, params={"limit": 8, "order": "-n", "where": '["n",">",2]'})
    assert [row["n"] for row in first.json()] == list(range(19, 11, -1))
    assert "Crannog-Previous-Cursor" not in first.headers
    again = {"limit": 8, "order": "-n", "where": '["n",">",2]', "after": first.headers["Crannog-Next-Cursor"]}
    for form in ("application/json", "text/csv", "application/x-ndjson"):
        second = httpx.get(address, params=again, headers={"Accept": form})
        assert second.status_code == 200
        assert second.headers["Crannog-Next-Cursor"]
        assert second.headers["Crannog-Previous-Cursor"]
    assert len(httpx.get(address).json()) == 20
    assert "Crannog-Next-Cursor" not in httpx.get(address).headers


def test_hostile_pages_are_refused_with_the_reason(running: HttpServer, name: str) -> None:
    table = running.service.lake.create_table(name, SCHEMA, key="n")
    table.append(rows_of(5))
    address = f"{running.url}/api/v1/tables/{name}/rows"
    cursor = str(table.page(2).next_cursor)
    other = base64.urlsafe_b64encode(json.dumps(["", ["x"], 0]).encode()).decode()
    for params, wanted in (
        ({"limit": 0}, "from 1 to 100,000"),
        ({"limit": 10**9}, "from 1 to 100,000"),
        ({"limit": "x"}, "a whole number"),
        ({"order": "x; DROP TABLE"}, "there is no column"),
        ({"order": "tags"}, "only plain values"),
        ({"column": 'n" FROM x --'}, "there is no column"),
        ({"where": "n > 1"}, "not valid JSON"),
        ({"where": "[]"}, "a filter is a column, an operator and a value"),
        ({"where": '["n","; DROP",1]'}, "operators are"),
        ({"where": '["n",["="],1]'}, "operators are"),
        ({"where": '["n","=","1"]'}, "'1' is str, the column is int64"),
        ({"where": '["n","="]'}, "needs a value"),
        ({"where": '["n","=",null]'}, "null or missing"),
        ({"where": '["x","is_null"]'}, "there is no column 'x'"),
        ({"where": '[["n"],"is_null"]'}, "there is no column"),
        ({"where": '["n","contains","1"]'}, "takes a text column"),
        ({"where": '["n","in",5]'}, "takes a list"),
        ({"where": '["tags","=","a"]'}, "only plain values"),
        ({"where": ['["n","=",1]'] * 51}, "up to 50 filters"),
        ({"where": "[" * 20_000}, "nested too deeply"),
        ({"after": "x", "limit": 2}, "the cursor is not valid"),
        ({"after": other, "limit": 2}, "the cursor is not valid"),
        ({"after": "A" * 30_000, "limit": 2}, "the cursor is not valid"),
        ({"after": cursor, "order": "-n", "limit": 2}, "belongs to another order"),
        ({"after": cursor, "before": cursor, "limit": 2}, "only one of them"),
    ):
        answer = httpx.get(address, params=params)  # type: ignore[arg-type]
        assert (answer.status_code, wanted in answer.json()["error"]["message"]) == (400, True), answer.text[:400]
    with pytest.raises(CallerError, match="a filter is"):
        table.page(where=[5])


def test_facets_of_every_column(connection: Lake, name: str) -> None:
    rows = rows_of(90)
    table = connection.create_table(name, SCHEMA, key="n")
    table.append(rows)
    found = table.facets()
    assert (found.table, found.rows, found.sampled) == (name, 90, False)
    columns = {column.name: column for column in found.columns}
    assert list(columns) == [*SCHEMA.names, "_created_at", "_batch_id"]
    n = columns["n"]
    assert (n.type, n.nulls, n.min, n.max, n.mean) == ("int64", 0, 0, 89, 44.5)
    assert len(n.histogram) == 30
    assert sum(part.count for part in n.histogram) == 90
    assert (n.histogram[0].low, n.histogram[-1].high) == (0, 89)
    region = columns["region"]
    counted = [(part.value, part.count) for part in region.top]
    wanted = sorted((r, sum(row["region"] == r for row in rows)) for r in {row["region"] for row in rows})
    assert sorted(counted) == wanted
    assert region.distinct == 3
    assert region.histogram == ()
    amount = columns["amount"]
    assert amount.nulls == sum(row["amount"] is None for row in rows)
    assert amount.max == "inf"
    assert amount.mean is not None
    assert sum(part.count for part in amount.histogram) == sum(
        row["amount"] not in (None, float("inf")) for row in rows
    )
    assert columns["price"].top[0].value in {"0.25", "1.25", "2.25", "3.25", "4.25"}
    day = columns["day"]
    assert len(day.histogram) == 9
    assert day.histogram[0].low == "2026-01-01T00:00:00+00:00"
    assert columns["at"].min == "2026-01-01T00:00:00+00:00"
    assert (columns["tags"].nulls, columns["tags"].distinct) == (0, None)
    some = table.facets(["n"], where=[("n", "<", 5)], top=2, bins=30)
    [few] = some.columns
    assert (some.rows, [part.count for part in few.histogram], len(few.top)) == (5, [1] * 5, 2)
    assert table.facets(["n"], where=[("n", "<", 0)]).columns[0].histogram == ()


def test_facets_of_a_large_table_are_of_a_sample(running: HttpServer, name: str) -> None:
    table = running.service.lake.create_table(name, pa.schema([("n", pa.int64()), ("text", pa.string())]))
    table.append(pa.table({"n": range(300_000), "text": ["x" * 1_000] * 300_000}))
    found = table.facets()
    assert found.sampled
    assert 200_000 <= found.rows <= 200_001
    assert len(found.columns[1].top[0].value) == 200
    assert 140_000 < (found.columns[0].mean or 0) < 160_000
    for params in ({"top": 0}, {"bins": 31}, {"column": "x"}, {"where": "[1]"}):
        assert httpx.get(f"{running.url}/api/v1/tables/{name}/facets", params=params).status_code == 400  # type: ignore[arg-type]
