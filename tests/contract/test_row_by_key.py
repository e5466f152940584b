"""One row by its key: the same embedded and over HTTP, from the staged changes, from files and from memory."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest

import crannog
from crannog.api.lake import Lake
from crannog.engine.sql.hot_tables import HotCache
from crannog.errors import CallerError, NotFound
from crannog.server.http_server import HttpServer
from test_contract import INSTANT, ORDERS, WIDE, WIDE_ROW, user_rows

KEYS: list[tuple[pa.DataType, Any, str]] = [
    (pa.string(), "a/b c?d=é&x#%2F", "a/b c?d=é&x#%2F"),
    (pa.int64(), -(2**63), str(-(2**63))),
    (pa.int8(), 7, "7"),
    (pa.bool_(), True, "true"),
    (pa.decimal128(12, 3), Decimal("12.345"), "12.345"),
    (pa.date32(), dt.date(2026, 1, 31), "2026-01-31"),
    (INSTANT, dt.datetime(2026, 1, 31, 10, 0, 0, 123456, dt.UTC), "2026-01-31T10:00:00.123456+00:00"),
    (pa.binary(), b"\x00\xff", "AP8="),
]


def users(row: dict[str, Any]) -> dict[str, Any]:
    return {column: value for column, value in row.items() if not column.startswith("_")}


@pytest.mark.parametrize(("kind", "value", "text"), KEYS, ids=[str(kind) for kind, _, _ in KEYS])
def test_a_row_is_found_by_a_key_of_every_type(
    connection: Lake, running: HttpServer, name: str, kind: pa.DataType, value: Any, text: str
) -> None:
    table = connection.create_table(name, pa.schema([pa.field("k", kind, nullable=False), *WIDE]), key="k")
    table.append([{"k": value, **WIDE_ROW}])
    assert users(table.get(value)) == {"k": value, **WIDE_ROW}
    assert users(table.get({"k": value})) == {"k": value, **WIDE_ROW}
    connection.cache.pin(name)
    table.fold() if kind == pa.string() else None
    assert users(table.get(value)) == {"k": value, **WIDE_ROW}
    found = httpx.get(f"{running.url}/api/v1/tables/{name}/row", params={"key": text})
    assert found.status_code == 200, found.text
    [listed] = httpx.get(f"{running.url}/api/v1/tables/{name}/rows").json()
    assert found.json() == listed
    assert httpx.get(f"{running.url}/api/v1/tables/{name}/rows/{quote(text, safe='')}").json() == listed


def test_the_last_change_of_a_key_counts_wherever_it_is(connection: Lake, name: str) -> None:
    table = connection.create_table(name, ORDERS, key="id")
    table.append([{"id": f"k{number}", "amount": number} for number in range(50)])

    def check() -> None:
        for key, amount in (("k1", 1), ("k2", 22), ("k4", 44)):
            assert table.get(key)["amount"] == amount
        with pytest.raises(NotFound, match="has no row with id = 'k3'"):
            table.get("k3")

    table.upsert([{"id": "k2", "amount": 2}])
    table.upsert([{"id": "k2", "amount": 22}, {"id": "k4", "amount": 4}])
    table.delete(["k3", "k4"])
    table.upsert([{"id": "k4", "amount": 44}])
    check()
    table.fold()
    check()  # in the files
    connection.cache.pin(name)
    check()  # in memory
    table.upsert([{"id": "k2", "amount": 222}])
    table.delete(["k1"])
    assert table.get("k2")["amount"] == 222
    with pytest.raises(NotFound):
        table.get("k1")
    table.upsert([{"id": "k1", "amount": 1}, {"id": "k2", "amount": 22}])
    table.fold()
    check()  # in the copy that followed the fold
    connection.cache.evict(name)
    check()


def test_a_copy_in_memory_is_asked_and_needs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[Any] = []
    plain: Callable[..., Any] = HotCache.rows_of_key

    def noted(self: HotCache, *arguments: Any) -> Any:
        looked_up.append(plain(self, *arguments))
        return looked_up[-1]

    monkeypatch.setattr(HotCache, "rows_of_key", noted)
    with crannog.connect(str(tmp_path)) as lake:
        table = lake.create_table("a.b.c", ORDERS, key="id")
        table.append([{"id": "a", "amount": 1}])
        lake.cache.pin("a.b.c")
        table.fold()
        [entry] = lake.cache.stats()["tables"]
        assert table.get("a")["amount"] == 1
        [[row]] = looked_up
        assert row[:2] == ("a", 1)
        [after] = lake.cache.stats()["tables"]
        assert after["hits"] == entry["hits"] + 1


def test_a_key_of_several_columns(connection: Lake, running: HttpServer, name: str) -> None:
    schema = pa.schema([("region", pa.string()), ("n", pa.int64()), ("at", pa.date32()), ("v", pa.float64())])
    table = connection.create_table(name, schema, key=["region", "n", "at"])
    day = dt.date(2026, 1, 31)
    table.append([{"region": "eu", "n": n, "at": day, "v": n / 2} for n in range(3)])
    for key in (("eu", 1, day), ["eu", 1, day], {"n": 1, "region": "eu", "at": "2026-01-31"}):
        assert table.get(key)["v"] == 0.5
    address = f"{running.url}/api/v1/tables/{name}"
    for path in (
        "row?key=eu&key=1&key=2026-01-31",
        'row?key=["eu",1,"2026-01-31"]',
        'rows/{"region":"eu","n":1,"at":"2026-01-31"}',
    ):
        assert httpx.get(f"{address}/{path}").json()["v"] == 0.5
    for path, wanted in {
        "row?key=eu": "not valid JSON",
        "row?key=eu&key=1": "3 column(s), region, n, at, and 2 value(s)",
        "row?key=eu&key=1&key=2026-01-31&key=x": "and 4 value(s)",
        "row?key=eu&key=1.0&key=2026-01-31": "column n: '1.0' is str, the column is int64",
        "row?key=eu&key=1&key=31.1.2026": "is no ISO 8601 date",
        'row?key={"region":"eu"}': "the key is region, n, at, got region",
        "row?key=5": "give it as a JSON object",
        "row": "query.key: field required",
    }.items():
        answer = httpx.get(f"{address}/{path}")
        assert (answer.status_code, wanted in answer.json()["error"]["message"]) == (400, True), answer.text


def test_what_is_no_key_is_refused_and_what_is_not_there_not_found(connection: Lake, name: str) -> None:
    table = connection.create_table(name, pa.schema([("n", pa.int32()), ("text", pa.string())]), key="n")
    table.append([{"n": 1, "text": "x"}])
    for key, wanted in (
        ("1", "'1' is str, the column is int32"),
        (2**40, "is too large"),
        (True, "is bool"),
        (None, "null or missing"),
        (1.0, "is float"),
        ([1, 2], "2 value"),
        ({}, "got none"),
        ({"text": "x"}, "the key is n, got text"),
    ):
        with pytest.raises(CallerError, match=wanted):
            table.get(key)
    with pytest.raises(NotFound, match=f"{name} has no row with n = 2"):
        table.get(2)
    plain = connection.create_table(f"{name}p", pa.schema([("n", pa.int32())]))
    with pytest.raises(CallerError, match="by a key: it has none"):
        plain.get(1)
    connection.drop_table(name)
    with pytest.raises(NotFound, match=name):
        table.get(1)


def test_hostile_keys_are_only_values(running: HttpServer, name: str) -> None:
    lake = running.service.lake
    table = lake.create_table(name, ORDERS, key="id")
    hostile = ["' OR 1=1 --", '"; DROP TABLE x', "..", "../..", "$1", "%", "\x00", "a\nb", "é" * 2_000]
    table.append([{"id": key, "amount": number} for number, key in enumerate(hostile)])
    lake.cache.pin(name)
    table.fold()
    address = f"{running.url}/api/v1/tables/{name}/row"
    for number, key in enumerate(hostile):
        assert httpx.get(address, params={"key": key}).json()["amount"] == number
        assert httpx.get(address, params={"key": f"{key}x"}).status_code == 404
    arrow = {"Accept": "application/vnd.apache.arrow.stream"}
    content = httpx.get(address, params={"key": ".."}, headers=arrow).content
    assert [row["amount"] for row in user_rows(pa.ipc.open_stream(content).read_all())] == [2]
    assert httpx.get(address, params={"key": b"\xff".decode("latin-1")}).status_code == 404
    assert httpx.get(f"{address}?key=%FF%FE").status_code == 404
