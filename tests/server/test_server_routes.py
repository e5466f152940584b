"""Every route of a real server: what it answers, in every form, and that errors have one shape."""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pyarrow as pa
import pytest

import crannog
from crannog.errors import Unavailable
from crannog.formats.encode import arrow
from servers import Server, in_process

pytest_plugins = ["servers"]

ARROW = "application/vnd.apache.arrow.stream"
NOTE = {"type": "object", "properties": {"id": {"type": "integer"}, "text": {"type": "string"}}, "required": ["id"]}
ALL_TYPES = pa.schema(
    [
        pa.field("i", pa.int64()),
        pa.field("f", pa.float64()),
        pa.field("s", pa.string()),
        pa.field("b", pa.bool_()),
        pa.field("d", pa.date32()),
        pa.field("t", pa.timestamp("us", "UTC")),
        pa.field("n", pa.decimal128(38, 18)),
        pa.field("x", pa.binary()),
        pa.field("l", pa.list_(pa.int64())),
        pa.field("o", pa.struct([pa.field("a", pa.string())])),
    ]
)
FULL: dict[str, Any] = {
    "i": 2**63 - 1,
    "f": 0.1,
    "s": 'a, "b"\n☃',
    "b": True,
    "d": dt.date(2026, 1, 31),
    "t": dt.datetime(2026, 1, 31, 10, 0, 0, 250_000, tzinfo=dt.UTC),
    "n": Decimal("0.000000000000000001"),
    "x": b"\x00\xff",
    "l": [1, None],
    "o": {"a": "b"},
}
EMPTY = dict.fromkeys(ALL_TYPES.names)
_numbers = iter(range(1_000_000))


def stream_of(table: pa.Table) -> bytes:
    return b"".join(arrow(table.schema, table.to_batches()))


def read_stream(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def error(response: httpx.Response, status: int, code: str) -> str:
    """The message of an error, its shape checked."""
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "retry_after_s"}
    assert body["error"]["code"] == code
    assert response.headers["x-request-id"]
    return str(body["error"]["message"])


@pytest.fixture
def notes(http: httpx.Client) -> str:
    """A table with a key, of this test alone."""
    name = f"t.notes.n{next(_numbers)}"
    assert http.put(f"/api/v1/tables/{name}", json={"schema": NOTE, "key": ["id"]}).status_code == 201
    return name


@pytest.fixture
def typed(http: httpx.Client) -> str:
    """A table with a column of each type."""
    name = f"t.types.n{next(_numbers)}"
    made = http.put(
        f"/api/v1/tables/{name}", content=stream_of(ALL_TYPES.empty_table()), headers={"Content-Type": ARROW}
    )
    assert made.status_code == 201, made.text
    return name


# -- tables ------------------------------------------------------------------------------------------------------


def test_a_table_is_made_once(http: httpx.Client) -> None:
    definition = {"schema": NOTE, "key": ["id"], "partition_by": [], "cluster_by": ["id"]}
    made = http.put("/api/v1/tables/t.made.one", json=definition)
    assert made.status_code == 201
    assert made.json()["key"] == ["id"]
    assert http.put("/api/v1/tables/t.made.one", json=definition).status_code == 200
    error(http.put("/api/v1/tables/t.made.one?if_exists=error", json=definition), 409, "conflict")
    assert "its key is" in error(http.put("/api/v1/tables/t.made.one", json={"schema": NOTE}), 409, "conflict")
    assert {"name": "t.made.one"} in http.get("/api/v1/tables").json()
    assert http.get("/api/v1/tables/t.made.one").json()["columns"][0] == {
        "name": "id",
        "type": "int64",
        "nullable": False,
    }
    assert http.delete("/api/v1/tables/t.made.one").json() == {"name": "t.made.one", "dropped": True}
    error(http.delete("/api/v1/tables/t.made.one"), 404, "not_found")
    error(http.get("/api/v1/tables/t.made.one"), 404, "not_found")


def test_a_table_is_made_from_an_arrow_schema_with_its_layout_in_the_address(http: httpx.Client) -> None:
    schema = pa.schema(
        [pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.decimal128(9, 2)), pa.field("day", pa.date32())]
    )
    address = "/api/v1/tables/t.made.arrow?partition_by=day&cluster_by=a&cluster_by=b&bloom=a"
    made = http.put(address, content=stream_of(schema.empty_table()), headers={"Content-Type": ARROW})
    assert made.status_code == 201, made.text
    assert (made.json()["partition_by"], made.json()["cluster_by"]) == (["day"], ["a", "b"])
    answered = http.get("/api/v1/tables/t.made.arrow/schema", headers={"Accept": ARROW})
    assert answered.headers["content-type"] == ARROW
    found = pa.ipc.open_stream(answered.content).schema
    assert found.field("b").type == pa.decimal128(9, 2)
    assert not found.field("a").nullable
    assert json.loads(answered.headers["crannog-key"]) == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "schema: field required"),
        ({"schema": NOTE, "keys": ["id"]}, "keys: extra inputs are not permitted"),
        ({"schema": {"type": "object", "properties": {"a": {"type": "any"}}}}, "a"),
        ({"schema": NOTE, "key": ["nothing"]}, "nothing"),
        ({"schema": NOTE, "key": "id", "bloom": ["nothing"]}, "nothing"),
        ([], "the body"),
    ],
)
def test_a_definition_that_is_wrong_is_told_so(http: httpx.Client, body: Any, message: str) -> None:
    assert message in error(http.put("/api/v1/tables/t.wrong.one", json=body), 400, "bad_request")


@pytest.mark.parametrize("name", ["a", "a.b", "a.b.c.d", "a.b._c", "a.b.c$", "a.b.%2e"])
def test_names_that_are_none_are_told_so(http: httpx.Client, name: str) -> None:
    assert "name" in error(http.get(f"/api/v1/tables/{name}/count"), 400, "bad_request")


def test_history_tombstones_audit_and_count(http: httpx.Client, notes: str) -> None:
    table = f"/api/v1/tables/{notes}"
    http.post(f"{table}/rows", json=[{"id": 1, "text": "a"}, {"id": 2}])
    deleted = http.post(f"{table}/delete", json={"keys": [1], "actor": "joe", "reason": "requested"})
    assert deleted.json()["rows"] == 1
    assert http.get(f"{table}/count").json() == {"rows": 1}
    assert http.get(f"{table}/count?raw=true").json() == {"rows": 2}
    [stone] = http.get(f"{table}/tombstones").json()
    assert (stone["key"], stone["actor"], stone["reason"], stone["outcome"]) == (
        {"id": 1},
        "joe",
        "requested",
        "hidden",
    )
    [typed_stone] = read_stream(http.get(f"{table}/tombstones", headers={"Accept": ARROW}).content).to_pylist()
    assert typed_stone["key"] == {"id": 1}
    assert typed_stone["deleted_at"].tzinfo is not None
    assert http.get(f"{table}/audit").json() == []
    assert [entry["version"] for entry in http.get(f"{table}/history?limit=5").json()] == [0]
    head, _, last = notes.rpartition(".")
    assert len(http.get(f"/api/v1/tables/{head}.__raw__{last}/preview").json()) == 2
    error(http.get(f"{table}/history?limit=0"), 400, "bad_request")
    error(http.get(f"{table}/count?raw=perhaps"), 400, "bad_request")


def test_keys_come_as_arrow_too(http: httpx.Client, notes: str) -> None:
    table = f"/api/v1/tables/{notes}"
    http.post(f"{table}/rows", json=[{"id": number} for number in range(5)])
    keys = stream_of(pa.table({"id": [1, 3]}))
    gone = http.post(
        f"{table}/delete?actor=joe&reason=why", content=keys, headers={"Content-Type": ARROW, "Crannog-Batch-Id": "k"}
    )
    assert gone.json() == {"sequence": 2, "rows": 2, "batch_id": "k", "duplicate": False}
    assert [row["id"] for row in http.get(f"{table}/preview").json()] == [0, 2, 4]
    assert {stone["actor"] for stone in http.get(f"{table}/tombstones").json()} == {"joe"}


# -- rows --------------------------------------------------------------------------------------------------------


def test_the_same_batch_again_is_kept_once(http: httpx.Client, notes: str, server: Server) -> None:
    for duplicate in (False, True, True):
        kept = http.post(f"/api/v1/tables/{notes}/rows", json={"id": 7}, headers={"Crannog-Batch-Id": "b-7"})
        assert kept.json() == {"sequence": 1, "rows": 1, "batch_id": "b-7", "duplicate": duplicate}
    with crannog.connect(str(server.warehouse)) as lake:
        assert lake.table(notes).count() == 1
    error(
        http.post(f"/api/v1/tables/{notes}/rows", json={"id": 7}, headers={"Crannog-Batch-Id": "b" * 257}),
        400,
        "bad_request",
    )


def test_upsert_replaces_and_needs_a_key(http: httpx.Client, notes: str, typed: str) -> None:
    http.put(f"/api/v1/tables/{notes}/rows", json=[{"id": 1, "text": "a"}])
    http.put(f"/api/v1/tables/{notes}/rows", json=[{"id": 1, "text": "b"}])
    [row] = http.get(f"/api/v1/tables/{notes}/preview").json()
    assert row["text"] == "b"
    assert "has no key" in error(http.put(f"/api/v1/tables/{typed}/rows", json=[{"i": 1}]), 400, "bad_request")


def test_every_type_goes_in_and_comes_out_in_every_form(http: httpx.Client, typed: str, server: Server) -> None:
    address = f"/api/v1/tables/{typed}/rows"
    as_json = {
        **FULL,
        "d": "2026-01-31",
        "t": "2026-01-31T10:00:00.250000Z",
        "n": "0.000000000000000001",
        "x": "AP8=",
    }
    lines = "\n".join(json.dumps(row) for row in (as_json, EMPTY))
    csv_text = 'i,f,s,b,d,t,n,x,l,o\n9223372036854775807,0.1,"a, ""b""\n☃",true,2026-01-31,2026-01-31T10:00:00.250000Z,0.000000000000000001,AP8=,"[1,null]","{""a"":""b""}"\n,,,,,,,,,\n'
    sent = [
        http.post(address, json=[as_json, EMPTY]),
        http.post(address, content=lines.encode(), headers={"Content-Type": "application/x-ndjson"}),
        http.post(address, content=csv_text.encode(), headers={"Content-Type": "text/csv; charset=utf-8"}),
        http.post(
            address,
            content=stream_of(pa.Table.from_pylist([FULL, EMPTY], schema=ALL_TYPES)),
            headers={"Content-Type": ARROW},
        ),
    ]
    assert [answer.status_code for answer in sent] == [200] * 4, [answer.text for answer in sent]
    with crannog.connect(str(server.warehouse)) as lake:
        kept = lake.table(typed).to_arrow().select(ALL_TYPES.names).to_pylist()
    assert kept == [FULL, EMPTY] * 4
    columns = ", ".join(ALL_TYPES.names)
    for ask in ("preview", "rows"):
        found = read_stream(http.get(f"/api/v1/tables/{typed}/{ask}", headers={"Accept": ARROW}).content)
        assert found.select(ALL_TYPES.names).to_pylist() == [FULL, EMPTY] * 4
        rows = http.get(f"/api/v1/tables/{typed}/{ask}").json()
        assert [{name: row[name] for name in ALL_TYPES.names} for row in rows] == [as_json, EMPTY] * 4
        given_lines = http.get(f"/api/v1/tables/{typed}/{ask}", headers={"Accept": "application/x-ndjson"})
        assert [json.loads(line) for line in given_lines.text.splitlines()] == rows
    given_csv = http.post(
        "/api/v1/sql", json={"sql": f"SELECT {columns} FROM {typed} LIMIT 2"}, headers={"Accept": "text/csv"}
    )
    assert given_csv.headers["content-type"] == "text/csv; charset=utf-8"
    first = pl.read_csv(given_csv.content, infer_schema=False).to_dicts()[0]
    assert first == {
        "i": str(2**63 - 1),
        "f": "0.1",
        "s": FULL["s"],
        "b": "true",
        "d": "2026-01-31",
        "t": as_json["t"],
        "n": as_json["n"],
        "x": "AP8=",
        "l": "[1,null]",
        "o": '{"a":"b"}',
    }
    # What came out as CSV goes in again as it is.
    http.post(address, content=given_csv.content, headers={"Content-Type": "text/csv"})
    with crannog.connect(str(server.warehouse)) as lake:
        assert lake.table(typed).to_arrow().select(ALL_TYPES.names).to_pylist() == [FULL, EMPTY] * 5


def test_what_is_no_number_is_text(http: httpx.Client, typed: str) -> None:
    rows = pa.table({"f": [float("nan"), float("inf"), -float("inf"), 1.5, None]})
    http.post(f"/api/v1/tables/{typed}/rows", content=stream_of(rows), headers={"Content-Type": ARROW})
    answered = http.post("/api/v1/sql", json={"sql": f"SELECT f FROM {typed}"})
    assert [row[0] for row in answered.json()["rows"]] == ["nan", "inf", "-inf", 1.5, None]


# -- SQL ---------------------------------------------------------------------------------------------------------


def test_sql_answers_in_its_one_shape(http: httpx.Client, notes: str) -> None:
    http.post(f"/api/v1/tables/{notes}/rows", json=[{"id": number, "text": "☃"} for number in range(5)])
    answered = http.post(
        "/api/v1/sql", json={"sql": f"SELECT id, text FROM {notes} ORDER BY id", "max_rows": 2, "query_id": "q/1"}
    )
    body = answered.json()
    assert list(body) == ["columns", "rows", "row_count", "truncated", "engine", "elapsed_ms", "query_id"]
    assert body["columns"] == [{"name": "id", "type": "bigint"}, {"name": "text", "type": "string"}]
    assert (body["rows"], body["row_count"], body["truncated"], body["query_id"]) == (
        [[0, "☃"], [1, "☃"]],
        2,
        True,
        "q/1",
    )
    assert body["engine"] == "local"
    assert isinstance(body["elapsed_ms"], float)
    as_arrow = http.post(
        "/api/v1/sql", json={"sql": f"SELECT id FROM {notes}", "max_rows": 2}, headers={"Accept": ARROW}
    )
    assert as_arrow.headers["crannog-truncated"] == "true"
    assert as_arrow.headers["crannog-engine"] == "local"
    assert float(as_arrow.headers["crannog-elapsed-ms"]) > 0
    assert as_arrow.headers["crannog-query-id"]
    assert read_stream(as_arrow.content).num_rows == 2
    assert (
        http.post("/api/v1/sql", json={"sql": "SELECT 1 AS one, CAST(NULL AS INT) AS two WHERE false"}).json()["rows"]
        == []
    )


def test_sql_that_is_wrong_is_told_so(http: httpx.Client) -> None:
    error(http.post("/api/v1/sql", json={"sql": "SELEC 1"}), 400, "bad_request")
    error(http.post("/api/v1/sql", json={"sql": "DROP TABLE a.b.c"}), 400, "refused")
    error(http.post("/api/v1/sql", json={"sql": "SELECT * FROM no.such.table"}), 404, "not_found")
    error(http.post("/api/v1/sql", json={"sql": "SELECT 1", "engine": "abacus"}), 400, "bad_request")
    error(http.post("/api/v1/sql", json={"sql": "SELECT 1", "max_rows": -1}), 400, "bad_request")
    error(http.post("/api/v1/sql", json={"sql": "SELECT 1", "max_rows": 10**12}), 400, "bad_request")
    error(http.post("/api/v1/sql", json={"sql": "SELECT 1", "timeout_s": 0}), 400, "bad_request")
    error(http.post("/api/v1/sql", json={"sql": "SELECT 1", "query_id": "a\nb"}), 400, "bad_request")
    error(http.post("/api/v1/sql", json={"sql": 1}), 400, "bad_request")
    error(http.post("/api/v1/sql", json={}), 400, "bad_request")
    error(http.post("/api/v1/sql/stream", json={"sql": "SELECT * FROM no.such.table"}), 404, "not_found")
    error(http.delete("/api/v1/sql/nothing"), 404, "not_found")
    assert (
        "text/csv"
        not in error(
            http.post("/api/v1/sql", content="sql", headers={"Content-Type": "text/csv"}), 415, "unsupported_media"
        ).partition("one of")[2]
    )


def test_a_stream_has_no_limit_of_rows(http: httpx.Client, typed: str) -> None:
    http.post(
        f"/api/v1/tables/{typed}/rows",
        content=stream_of(pa.table({"i": range(250_000)})),
        headers={"Content-Type": ARROW},
    )
    query = {"sql": f"SELECT i FROM {typed}"}
    answered = http.post("/api/v1/sql/stream", json=query, headers={"Accept": ARROW})
    assert answered.status_code == 200, answered.text
    found = read_stream(answered.content)
    assert (found.num_rows, answered.headers["crannog-truncated"]) == (250_000, "false")
    assert http.post("/api/v1/sql/stream", json=query).json() == found.to_pylist()
    lines = http.post("/api/v1/sql/stream", json=query, headers={"Accept": "application/x-ndjson"})
    assert [json.loads(line) for line in lines.text.splitlines()] == found.to_pylist()
    values = http.post("/api/v1/sql/stream", json=query, headers={"Accept": "text/csv"}).text.splitlines()
    assert (values[0], [int(value) for value in values[1:]]) == ('"i"', found["i"].to_pylist())


def test_an_error_within_a_stream_is_a_batch_that_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batches are out when a later one fails: the stream ends well and says what happened."""
    from crannog.api.result import Stream

    batch = pa.record_batch({"a": [1, 2]})

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch
        yield batch
        raise Unavailable("the disk is gone", retry_after_s=3)

    with in_process(tmp_path) as (service, ask):
        monkeypatch.setattr(
            service.lake.operations, "stream", lambda *_, **__: Stream(batch.schema, "local", "q", batches())
        )
        answered = ask("POST", "/api/v1/sql/stream", json={"sql": "SELECT 1 AS a"}, headers={"Accept": ARROW})
    assert answered.status_code == 200
    reader = pa.ipc.open_stream(answered.content)
    found = []
    while True:
        try:
            found.append(reader.read_next_batch_with_custom_metadata())
        except StopIteration:
            break
    assert [one.num_rows for one, _ in found] == [2, 2, 0]
    assert json.loads(found[-1][1][b"crannog-error"]) == {
        "code": "unavailable",
        "message": "the disk is gone",
        "retry_after_s": 3,
    }


def test_explain_tells_the_engine_and_the_tables(http: httpx.Client, notes: str) -> None:
    plan = http.post("/api/v1/sql/explain", json={"sql": f"SELECT * FROM {notes}", "analyze": True}).json()
    assert plan["engine"] == "local"
    assert plan["tables"][0]["table"] == notes
    assert plan["analyzed"]["rows"] == 0


def test_a_query_is_cancelled_by_its_id_and_by_going_away(http: httpx.Client, server: Server, notes: str) -> None:
    http.post(f"/api/v1/tables/{notes}/rows", json=[{"id": number} for number in range(5_000)])
    endless = {
        "sql": f"SELECT sum((a.id * b.id + c.id) % 7) FROM {notes} a, {notes} b, {notes} c",
        "engine": "local",
        "timeout_s": 60,
    }
    answers: list[httpx.Response] = []
    asking = threading.Thread(
        target=lambda: answers.append(http.post("/api/v1/sql", json={**endless, "query_id": "endless"}))
    )
    asking.start()
    with server.client() as other:
        for _ in range(200):
            if other.delete("/api/v1/sql/endless").status_code == 200:
                break
            time.sleep(0.05)
        asking.join(30)
        assert "was cancelled" in error(answers[0], 499, "cancelled")
        with pytest.raises(httpx.ReadTimeout):
            other.post("/api/v1/sql", json={**endless, "query_id": "left"}, timeout=1.0)
        # The query ends by itself: its id is free again, long before its own time is over.
        for _ in range(200):
            again = other.post("/api/v1/sql", json={"sql": "SELECT 1", "query_id": "left"})
            if again.status_code == 200:
                return
            error(again, 409, "conflict")
            time.sleep(0.05)
    raise AssertionError("the query of a client that went away still runs")


# -- cache, tasks, aliases ---------------------------------------------------------------------------------------


def test_tables_are_held_in_memory_and_let_go_of(http: httpx.Client, notes: str) -> None:
    http.post(f"/api/v1/tables/{notes}/rows", json=[{"id": 1}])
    assert http.put(f"/api/v1/cache/{notes}").json()["state"] == "pinned"
    assert http.post("/api/v1/sql", json={"sql": f"SELECT * FROM {notes}"}).json()["engine"] == "hot"
    assert notes in [entry["name"] for entry in http.get("/api/v1/cache").json()["tables"]]
    assert http.delete(f"/api/v1/cache/{notes}").json() == {"name": notes, "evicted": True}
    assert http.delete(f"/api/v1/cache/{notes}").json()["evicted"] is False
    error(http.put("/api/v1/cache/no.such.table"), 404, "not_found")


def test_the_older_names_work(http: httpx.Client, notes: str) -> None:
    for body in ({"name": notes}, {"table": notes}, {"table_name": notes}):
        assert http.post("/query/cache/pin", json=body).json()["name"] == notes
    assert http.get("/query/cache/stats").json()["tables"][0]["state"] == "pinned"
    assert http.post(f"/query/cache/evict?name={notes}").json()["evicted"] is True
    error(http.post("/query/compact", json={"table": "no.such.table"}), 404, "not_found")
    error(http.post("/query/cache/pin", json={}), 400, "bad_request")


def test_tasks_are_listed(http: httpx.Client) -> None:
    assert isinstance(http.get("/api/v1/tasks").json(), list)


# -- jobs that need no Spark ---------------------------------------------------------------------------------------


def test_jobs_with_nothing_to_do_answer_their_reports(http: httpx.Client, notes: str) -> None:
    table = f"/api/v1/tables/{notes}"
    folded = http.post(f"{table}/fold").json()
    assert (folded["staged_rows"], folded["version"]) == (0, None)
    planned = http.post(f"{table}/compact", json={"dry_run": True}).json()
    assert planned["final_rows"] == 0
    assert http.post(f"{table}/vacuum", json={"retention_hours": 0, "dry_run": True}).json()["raised_to_floor"] is True
    same = {"schema": NOTE}
    assert http.post(f"{table}/evolve", json=same).json()["version"] is None
    error(http.post(f"{table}/expire", json={"before": "yesterday"}), 400, "bad_request")
    error(http.post(f"{table}/expire"), 400, "bad_request")
    error(http.post(f"{table}/erase", json={"keys": "1"}), 400, "bad_request")
    error(http.post("/api/v1/tables/no.such.table/fold"), 404, "not_found")


def test_progress_comes_in_lines_and_the_result_last(http: httpx.Client, notes: str) -> None:
    lines = {"Accept": "application/x-ndjson"}
    documents = [
        json.loads(line) for line in http.post(f"/api/v1/tables/{notes}/fold", headers=lines).text.splitlines()
    ]
    assert documents[-1]["result"]["staged_rows"] == 0
    assert all(set(line) <= {"progress"} for line in documents[:-1])
    failed = http.post("/api/v1/tables/no.such.table/fold", headers=lines)
    assert failed.status_code == 200
    assert json.loads(failed.text.splitlines()[-1])["error"]["code"] == "not_found"


# -- the rest ------------------------------------------------------------------------------------------------------


def test_errors_have_one_shape_on_unknown_routes_and_wrong_methods_too(http: httpx.Client) -> None:
    error(http.get("/nothing"), 404, "not_found")
    error(http.get("/api/v1/tables/"), 404, "not_found")
    refused = http.patch("/api/v1/tables")
    error(refused, 405, "method_not_allowed")
    assert "GET" in refused.headers["allow"]


def test_a_request_id_is_taken_if_sane_and_made_otherwise(http: httpx.Client) -> None:
    assert http.get("/healthz", headers={"X-Request-Id": "abc-1.2:3"}).headers["x-request-id"] == "abc-1.2:3"
    made = http.get("/healthz", headers={"X-Request-Id": "a b<script>"}).headers["x-request-id"]
    assert len(made) == 32
    assert http.get("/healthz").headers["x-request-id"] != made


def test_health_and_readiness(http: httpx.Client) -> None:
    assert http.get("/healthz").json() == {"status": "ok"}
    ready = http.get("/readyz").json()
    assert (ready["status"], ready["spark"]) == ("ready", "absent")


def test_the_page_about_the_api_needs_nothing_from_elsewhere(http: httpx.Client) -> None:
    page = http.get("/api/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "/api/openapi.json" in page.text
    assert "http://" not in page.text.replace("http://127.0.0.1", "")
    assert "https://" not in page.text
    assert "connect-src 'self'" in page.headers["content-security-policy"]


def test_what_is_written_is_there_for_others_at_once(http: httpx.Client, notes: str, server: Server) -> None:
    with crannog.connect(str(server.warehouse)) as lake:
        http.post(f"/api/v1/tables/{notes}/rows", json={"id": 1})
        assert lake.table(notes).count() == 1
        lake.table(notes).append([{"id": 2}])
        assert http.get(f"/api/v1/tables/{notes}/count").json() == {"rows": 2}


def test_the_stage_holds_what_was_sent(http: httpx.Client, notes: str, server: Server) -> None:
    http.post(f"/api/v1/tables/{notes}/rows", json=[{"id": 5, "text": "kept"}])
    import pyarrow.parquet as pq

    [staged] = Path(server.warehouse, *notes.split(".")).glob("_crannog/*/stage/*.parquet")
    assert pq.read_table(staged)["text"].to_pylist() == ["kept"]


# -- methods and forms ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/healthz",
        "/readyz",
        "/metrics",
        "/api/openapi.json",
        "/api/docs",
        "/api/v1/tables",
        "/api/v1/tables/{notes}/rows",
        "/api/services",
    ],
)
def test_head_is_answered_as_get_without_a_body(http: httpx.Client, notes: str, path: str) -> None:
    address = path.format(notes=notes)
    for encoding in ("identity", "gzip"):
        got, head = (http.request(method, address, headers={"Accept-Encoding": encoding}) for method in ("GET", "HEAD"))
        assert (head.status_code, head.content) == (got.status_code, b"") == (200, b"")
        same = {"content-type", "content-encoding", "vary", "content-security-policy"} | (
            {"content-length"} if path != "/metrics" else set()
        )
        assert {name: head.headers.get(name) for name in same} == {name: got.headers.get(name) for name in same}
    assert http.head("/nothing").status_code == 404
    assert (http.head("/api/v1/sql").status_code, http.head("/api/v1/sql").headers["allow"]) == (405, "POST")


def test_head_of_many_rows_leaves_the_connection_in_step(http: httpx.Client, typed: str) -> None:
    http.post(
        f"/api/v1/tables/{typed}/rows",
        content=stream_of(pa.table({"i": range(250_000)})),
        headers={"Content-Type": ARROW},
    )
    for _ in range(2):
        assert http.head(f"/api/v1/tables/{typed}/rows").content == b""
        assert http.get("/healthz").json() == {"status": "ok"}


def test_a_wrong_method_is_told_all_that_are_right(http: httpx.Client) -> None:
    """By the document: each address takes what it lists there, and HEAD where it takes GET."""
    document = http.get("/api/openapi.json").json()
    for path, methods in document["paths"].items():
        wanted = {method.upper() for method in methods} | ({"HEAD"} if "get" in methods else set())
        answered = http.request("PATCH", path.replace("{", "").replace("}", ""))
        message = error(answered, 405, "method_not_allowed")
        allowed = answered.headers["allow"].split(", ")
        assert set(allowed) >= wanted, path
        assert len(allowed) == len(set(allowed))
        assert answered.headers["allow"] in message
    answered = http.request("OPTIONS", "/api/v1/tables/a.b.c")
    assert answered.headers["allow"] == "GET, HEAD, PUT, DELETE"


@pytest.mark.parametrize("accept", [None, "*/*", "application/*", "text/html, */*;q=0.8", "application/json"])
def test_json_is_what_everybody_gets_who_does_not_ask_for_arrow(
    http: httpx.Client, notes: str, accept: str | None
) -> None:
    headers = {"Accept": accept} if accept else {}
    if accept is None:
        http.headers.pop("accept", None)
    table = f"/api/v1/tables/{notes}"
    for path in (f"{table}/schema", f"{table}/rows", f"{table}/preview", f"{table}/tombstones", f"{table}/audit"):
        answered = http.get(path, headers=headers)
        assert answered.headers["content-type"] == "application/json", path
        answered.json()
        assert read_stream(http.get(path, headers={"Accept": ARROW}).content) is not None
    for path in ("/api/v1/sql", "/api/v1/sql/stream"):
        answered = http.post(path, json={"sql": f"SELECT * FROM {notes}"}, headers=headers)
        assert answered.headers["content-type"] == "application/json", path
        answered.json()


def test_a_version_that_is_not_there_is_told_at_once(http: httpx.Client, notes: str) -> None:
    """delta-rs fails on numbers that no 64 bits hold, and waits for ever for some that they do."""
    for version in (1, 10**9, 2**63 - 1, 2**63, 2**64, 10**23 - 1, "'7'"):
        for path in ("/api/v1/sql", "/api/v1/sql/explain", "/api/v1/sql/stream"):
            answered = http.post(path, json={"sql": f"SELECT * FROM {notes} VERSION AS OF {version}"}, timeout=10)
            assert "the newest is 0" in error(answered, 404, "not_found")
    assert http.post("/api/v1/sql", json={"sql": f"SELECT * FROM {notes} VERSION AS OF 0"}).json()["row_count"] == 0


@pytest.mark.parametrize("bad", [b"NA\xff\xfeX", b"\xed\xa0\x80EX", b"\xc3(EXX"])
def test_names_in_an_arrow_schema_that_are_not_utf8_are_refused(http: httpx.Client, notes: str, bad: bytes) -> None:
    table = f"/api/v1/tables/{notes}"
    values = [
        pa.array([1], pa.int64()),
        pa.array([{"NAMEX": 1}]),
        pa.array([[{"NAMEX": 1}]]),
        pa.array([1], pa.timestamp("us", "NAMEX")),
    ]
    for place, value in enumerate(values):
        data = stream_of(pa.table({"ok": ["x"], "NAMEX" if place == 0 else "id": value})).replace(b"NAMEX", bad)
        for method, path in (
            ("PUT", "/api/v1/tables/t.made.not_utf8"),
            ("POST", f"{table}/rows"),
            ("POST", f"{table}/delete"),
            ("POST", f"{table}/erase"),
            ("POST", f"{table}/evolve"),
        ):
            answered = http.request(method, path, content=data, headers={"Content-Type": ARROW})
            assert "column 1 of the body" in error(answered, 400, "bad_request"), (place, path)


@pytest.mark.parametrize("statement", ["SELECT '{}'", "SELECT 1 AS {}", "SELECT {} FROM t.a.b", "SELECT /* {} */ 1"])
def test_a_statement_that_is_not_unicode_is_refused(http: httpx.Client, statement: str) -> None:
    for path in ("/api/v1/sql", "/api/v1/sql/explain", "/api/v1/sql/stream"):
        body = '{"sql": "' + statement.format("\\ud800") + '"}'
        answered = http.post(path, content=body, headers={"Content-Type": "application/json"})
        assert "surrogate" in error(answered, 400, "bad_request")


def test_a_trace_query_may_come_with_any_content_type(http: httpx.Client) -> None:
    """`curl -d` sends a form's type unless one is given."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    found = http.post("/api/v1/traces/search", content=b'{"service": "nobody"}', headers=headers)
    assert found.status_code == 200, found.text
    assert found.json()["traces"] == []
    wrong = http.post("/api/v1/traces/search", json={"limitt": 3})
    assert "limitt: there is no such field; there are service" in error(wrong, 400, "bad_request")
