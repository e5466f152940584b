"""Tokens, scopes, rate limits and the audit: who may do what, and what is told of it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

import crannog
from crannog.errors import CallerError, Conflict, Forbidden, NotFound, Overloaded, Unauthorized
from crannog.names import TableName
from crannog.server.audit import SCHEMA
from crannog.server.auth import Caller, Scope, Tokens
from crannog.server.service import Rates
from crannog.storage.local import LocalStorage
from servers import PROGRAM, Server, in_process, made_token, serving
from test_server_routes import NOTE, error

TABLE = "sales.eu.orders"
OTHER = "hr.eu.people"


# -- scopes and tokens ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "level", "name", "allowed"),
    [
        ("read", "read", "a.b.c", True),
        ("read", "write", "a.b.c", False),
        ("write", "read", "a.b.c", True),
        ("write", "admin", "a.b.c", False),
        ("admin", "write", "a.b.c", True),
        ("ingest", "ingest", "a.b.c", True),
        ("ingest", "read", "a.b.c", False),
        ("ingest", "write", "a.b.c", False),
        ("ingest:a", "ingest", "crannog.traces.spans", False),
        ("write", "ingest", "a.b.c", True),
        ("read", "ingest", "a.b.c", False),
        ("write", "ingest", "crannog.system.audit", False),
        ("write:a", "write", "a.b.c", True),
        ("write:a", "read", "x.b.c", False),
        ("write:a.b", "write", "a.b.c", True),
        ("write:a.b", "write", "a.x.c", False),
        ("read:a.b", "write", "a.b.c", False),
        ("write", "read", "crannog.system.audit", False),
        ("admin:a", "read", "crannog.system.audit", False),
        ("admin:crannog.system", "read", "crannog.system.audit", True),
    ],
)
def test_scopes(scope: str, level: str, name: str, allowed: bool) -> None:
    caller = Caller("joe", (Scope.parse(scope),))
    assert str(Scope.parse(scope)) == scope
    assert caller.may(level, TableName.parse(name)) is allowed
    if not allowed:
        verb = "write" if level == "ingest" else level
        with pytest.raises(Forbidden, match=f"joe may not {verb} {name}"):
            caller.check(level, [TableName.parse(name)])


@pytest.mark.parametrize("scope", ["", "own", "read:", "read:a.", "read:a.b.c", "read:*", "read:a b", "READ"])
def test_scopes_that_are_none(scope: str) -> None:
    with pytest.raises(CallerError):
        Scope.parse(scope)


def test_a_token_is_known_again_and_its_secret_is_kept_nowhere(tmp_path: Path) -> None:
    tokens = Tokens(LocalStorage(tmp_path))
    made = tokens.create("joe", ["write:a", "read"])
    secret = made.rpartition("_")[2]
    assert len(secret) == 64
    tokens.refresh()
    assert tokens.caller(made) == Caller("joe", (Scope("read"), Scope("write", "a")))
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes()
    for wrong in (
        made[:-1],
        made[:-1] + ("0" if made[-1] != "0" else "1"),
        f"crannog_jane_{secret}",
        "",
        "x" * 10_000,
        "crannog_joe_",
    ):
        with pytest.raises(Unauthorized) as refused:
            tokens.caller(wrong)
        assert secret not in refused.value.message
    with pytest.raises(Conflict):
        tokens.create("joe", ["read"])
    tokens.revoke("joe")
    with pytest.raises(NotFound):
        tokens.revoke("joe")
    assert tokens.list() == []


def test_a_token_expires(tmp_path: Path) -> None:
    tokens = Tokens(LocalStorage(tmp_path))
    made = tokens.create("brief", ["read"], expires_days=1e-6)
    time.sleep(0.2)
    tokens.refresh()
    with pytest.raises(Unauthorized, match="the token brief expired on"):
        tokens.caller(made)


@pytest.mark.parametrize(
    ("name", "scopes", "days"),
    [
        ("a/b", ["read"], None),
        ("", ["read"], None),
        ("a" * 65, ["read"], None),
        ("a", [], None),
        ("a", ["own"], None),
        ("a", ["read"], 0),
        ("a_b", ["read"], None),
    ],
)
def test_tokens_that_cannot_be_made(tmp_path: Path, name: str, scopes: list[str], days: float | None) -> None:
    with pytest.raises(CallerError):
        Tokens(LocalStorage(tmp_path)).create(name, scopes, days)


# -- over HTTP -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, dict[str, str]]]:
    """A server with tokens of several scopes, and an audit. Without Java: what runs behind must not start Spark."""
    folder = tmp_path_factory.mktemp("guarded")
    warehouse = folder / "warehouse"
    with crannog.connect(str(warehouse)) as lake:
        for name in (TABLE, OTHER):
            lake.create_table(name, NOTE, key="id").append([{"id": 1, "text": name}])
    storage = Tokens(LocalStorage(warehouse))
    tokens = {
        "root": made_token(warehouse, "root", "admin"),
        "reader": storage.create("reader", ["read"]),
        "writer": storage.create("writer", ["write:sales"]),
        "owner": storage.create("owner", ["admin:sales.eu"]),
        "sender": storage.create("sender", ["ingest"]),
        "elsewhere": storage.create("elsewhere", ["admin:nowhere"]),
    }
    with serving(warehouse, audit=True, java_home=folder, log_level="debug", log_format="json") as server:
        yield server, tokens


Ask = Callable[..., httpx.Response]


@pytest.fixture
def ask(guarded: tuple[Server, dict[str, str]]) -> Iterator[Ask]:
    server, tokens = guarded
    with server.client() as client:

        def send(who: str | None, method: str, path: str, **request: Any) -> httpx.Response:
            headers = {
                **request.pop("headers", {}),
                **({"Authorization": f"Bearer {tokens.get(who, who)}"} if who else {}),
            }
            return client.request(method, path, headers=headers, **request)

        yield send


READS = [
    ("GET", part, {}) for part in ("", "/schema", "/count", "/rows", "/preview", "/history", "/tombstones", "/audit")
]
WRITES = [
    ("POST", "/rows", {"json": [{"id": 2}]}),
    ("PUT", "/rows", {"json": [{"id": 2}]}),
    ("POST", "/delete", {"json": {"keys": [99]}}),
]
ADMINS = [
    ("POST", "/compact", {"json": {"dry_run": True}}),
    ("POST", "/vacuum", {"json": {"dry_run": True}}),
    ("POST", "/evolve", {"json": {"schema": NOTE}}),
    ("POST", "/expire", {"json": {"before": "no day"}}),
    ("POST", "/erase", {"json": {"keys": "none"}}),
    ("PUT", "", {"json": {"schema": NOTE, "key": ["id"]}}),
]
MAY = {
    "root": {"read", "write", "admin"},
    "reader": {"read"},
    "writer": {"read", "write"},
    "owner": {"read", "write", "admin"},
    "sender": set(),  # and the columns; of the rows, only tables without a key
    "elsewhere": set(),
}


@pytest.mark.parametrize("who", MAY)
def test_each_route_takes_its_scope(ask: Ask, who: str) -> None:
    for level, routes in (("read", READS), ("write", WRITES), ("admin", ADMINS)):
        for method, part, request in routes:
            answer = ask(who, method, f"/api/v1/tables/{TABLE}{part}", **request)
            if level in MAY[who] or (who, part) == ("sender", "/schema"):
                # Some of these are wrong on purpose; they got past the door.
                assert answer.status_code in (200, 400), (who, method, part, answer.text)
            else:
                assert f"may not {level} {TABLE}" in error(answer, 403, "forbidden"), (who, method, part)
    for method, path in (("PUT", f"/api/v1/cache/{TABLE}"), ("DELETE", f"/api/v1/cache/{TABLE}")):
        assert ask(who, method, path).status_code == (200 if "write" in MAY[who] else 403)


def test_no_route_is_open_to_a_token_for_elsewhere(ask: Ask) -> None:
    """Every route of the document: nothing of a table shows to somebody who may not read it."""
    paths = ask(None, "GET", "/api/openapi.json").json()["paths"]
    assert len(paths) > 20
    for path, methods in paths.items():
        for method in methods:
            address = path.replace("{name}", TABLE).replace("{query_id}", "q")
            answer = ask(
                "elsewhere",
                method.upper(),
                address,
                json={"sql": f"SELECT * FROM {TABLE}", "name": TABLE}
                if method == "post" and "/tables/" not in path
                else {},
            )
            assert answer.status_code in (200, 400, 403, 404), (method, path, answer.text)
            if answer.status_code == 200:
                assert path in (
                    "/healthz",
                    "/readyz",
                    "/api/v1/tables",
                    "/api/v1/tasks",
                    "/api/v1/cache",
                    "/query/cache/stats",
                    "/api/v1/session",
                    "/api/v1/upkeep",
                    "/api/v1/receipts",
                    "/api/v1/search",
                    "/api/v1/changes",
                ), path
                assert TABLE not in answer.text


def test_lists_show_only_what_one_may_read(ask: Ask) -> None:
    assert {entry["name"] for entry in ask("root", "GET", "/api/v1/tables").json()} >= {TABLE, OTHER}
    assert [entry["name"] for entry in ask("writer", "GET", "/api/v1/tables").json()] == [TABLE]
    assert ask("elsewhere", "GET", "/api/v1/tables").json() == []
    ask("root", "PUT", f"/api/v1/cache/{OTHER}")
    assert ask("writer", "GET", "/api/v1/cache").json()["tables"] == []
    assert [entry["name"] for entry in ask("reader", "GET", "/api/v1/cache").json()["tables"]] == [OTHER]


def test_sql_needs_the_right_to_every_table_it_names(ask: Ask) -> None:
    join = f"SELECT count(*) AS n FROM {TABLE} a JOIN {OTHER} b ON a.id = b.id"
    hidden = f"WITH x AS (SELECT * FROM {TABLE}) SELECT * FROM x WHERE id IN (SELECT id FROM {OTHER.replace('people', '__raw__people')})"
    for who, allowed in (("root", True), ("reader", True), ("writer", False), ("owner", False)):
        for statement in (join, hidden):
            for path in ("/api/v1/sql", "/api/v1/sql/stream", "/api/v1/sql/explain"):
                answer = ask(who, "POST", path, json={"sql": statement})
                if allowed:
                    assert answer.status_code == 200, answer.text
                else:
                    assert f"{who} may not read {OTHER}" in error(answer, 403, "forbidden")
    assert ask("writer", "POST", "/api/v1/sql", json={"sql": f"SELECT text FROM {TABLE} WHERE id = 1"}).json()[
        "rows"
    ] == [[TABLE]]
    # Whether there is such a table is nothing that one may learn either.
    error(ask("writer", "POST", "/api/v1/sql", json={"sql": "SELECT * FROM hr.eu.nothing"}), 403, "forbidden")
    error(ask("writer", "GET", "/api/v1/tables/hr.eu.nothing"), 403, "forbidden")


def test_sql_without_a_table_needs_a_right_too(ask: Ask) -> None:
    for text in ("SELECT 1 AS one", "SELECT current_user() AS me", "SHOW TABLES"):
        for path in ("/api/v1/sql", "/api/v1/sql/stream", "/api/v1/sql/explain"):
            assert "may not run SQL" in error(ask("elsewhere", "POST", path, json={"sql": text}), 403, "forbidden")
    assert ask("writer", "POST", "/api/v1/sql", json={"sql": "SELECT 1 AS one"}).json()["rows"] == [[1]]
    # Names are compared as Spark does, and so are rights: by the table that is meant, not by how it is written.
    assert (
        ask("writer", "POST", "/api/v1/sql", json={"sql": f"SELECT count(*) FROM {TABLE.upper()}"}).status_code == 200
    )
    error(ask("writer", "POST", "/api/v1/sql", json={"sql": f"SELECT count(*) FROM {OTHER.upper()}"}), 403, "forbidden")


def test_the_catalogue_shows_what_one_may_read(ask: Ask) -> None:
    def shown(who: str) -> list[list[Any]]:
        rows: list[list[Any]] = ask(who, "POST", "/api/v1/sql", json={"sql": "SHOW TABLES IN sales.eu"}).json()["rows"]
        return rows

    assert shown("writer") == [["sales.eu", "orders", False]] == shown("root")
    everything = ask("writer", "POST", "/api/v1/sql", json={"sql": "SHOW TABLES"}).json()["rows"]
    assert everything == [["sales.eu", "orders", False]]
    described = ask("writer", "POST", "/api/v1/sql", json={"sql": f"DESCRIBE {TABLE}"}).json()["rows"]
    assert described[:2] == [["id", "bigint", None], ["text", "string", None]]
    for text in (f"DESCRIBE {OTHER}", f"SHOW COLUMNS IN {OTHER}", f"EXPLAIN SELECT * FROM {OTHER}"):
        error(ask("writer", "POST", "/api/v1/sql", json={"sql": text}), 403, "forbidden")


def test_a_query_is_ended_by_who_asked_it_or_an_admin(ask: Ask) -> None:
    error(ask("reader", "DELETE", "/api/v1/sql/of-somebody-else"), 404, "not_found")
    error(ask("root", "DELETE", "/api/v1/sql/of-nobody"), 404, "not_found")


@pytest.mark.parametrize("token", [None, "", "nonsense", "crannog_root_" + "0" * 64, "crannog_nobody_" + "0" * 64])
def test_without_a_token_nothing_is_answered(ask: Ask, token: str | None) -> None:
    for method, path in (("GET", "/api/v1/tables"), ("POST", "/api/v1/sql"), ("GET", "/metrics"), ("GET", "/nothing")):
        refused = ask(token, method, path)
        error(refused, 401, "unauthorized")
        assert refused.headers["www-authenticate"] == "Bearer"
    for path in ("/healthz", "/readyz", "/api/openapi.json", "/api/docs"):
        assert ask(token, "GET", path).status_code == 200


def test_a_token_that_is_revoked_or_made_is_known_within_two_seconds(
    ask: Ask, guarded: tuple[Server, dict[str, str]]
) -> None:
    tokens = Tokens(LocalStorage(guarded[0].warehouse))
    made = tokens.create("passing", ["read"])
    assert _until(lambda: ask(made, "GET", "/api/v1/tables").status_code == 200)
    tokens.revoke("passing")
    assert _until(lambda: ask(made, "GET", "/api/v1/tables").status_code == 401)


def _until(true: Callable[[], bool]) -> bool:
    for _ in range(100):
        if true():
            return True
        time.sleep(0.1)
    return False


def test_tokens_show_in_no_log_line_and_no_error(ask: Ask, guarded: tuple[Server, dict[str, str]]) -> None:
    server, tokens = guarded
    for token in [*tokens.values(), "crannog_root_" + "a" * 64]:
        answers = [
            ask(token, "GET", "/nothing"),
            ask(token, "POST", "/api/v1/sql", content=b"{"),
            ask(token, "GET", f"/api/v1/tables/{token}"),
            ask(token + "x", "GET", "/api/v1/tables"),
        ]
        secret = token.rpartition("_")[2]
        assert all(secret not in answer.text for number, answer in enumerate(answers) if number != 2)
    log = server.log()
    assert '"message": "request"' in log
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert any(line.get("request_id") and line.get("status") == 401 for line in lines)
    assert "/api/v1/tables/crannog_…" in log
    assert not any(token.rpartition("_")[2] in log for token in tokens.values())


def test_the_audit_tells_who_did_what(ask: Ask, guarded: tuple[Server, dict[str, str]]) -> None:
    server, tokens = guarded
    statement = f"SELECT 'the audit' AS x, id FROM {TABLE} WHERE id = 1"
    ask(
        "writer",
        "POST",
        f"/api/v1/tables/{TABLE}/rows",
        json=[{"id": 7}, {"id": 8}],
        headers={"X-Request-Id": "audited-1"},
    )
    ask("reader", "POST", "/api/v1/sql", json={"sql": statement}, headers={"X-Request-Id": "audited-2"})
    ask("reader", "POST", f"/api/v1/tables/{TABLE}/rows", json=[{"id": 7}], headers={"X-Request-Id": "audited-3"})
    notes: dict[str, dict[str, Any]] = {}

    def noted() -> bool:
        # From the staged files, behind the server's back.
        for file in (server.warehouse / "crannog/system/audit").glob("_crannog/*/stage/*.parquet"):
            # A staged file leaves out columns that have no value in it.
            notes.update(
                {row["request_id"]: dict.fromkeys(SCHEMA.names) | row for row in pq.read_table(file).to_pylist()}
            )
        return "audited-3" in notes

    assert _until(noted)
    one, two, three = (notes[f"audited-{number}"] for number in range(1, 4))
    assert (one["who"], one["verb"], one["table"], one["rows"], one["status"], one["error"]) == (
        "writer",
        "append",
        TABLE,
        2,
        200,
        None,
    )
    assert (two["who"], two["verb"], two["table"], two["rows"], two["sql"]) == ("reader", "sql", TABLE, 1, statement)
    assert (three["who"], three["status"], three["error"], three["table"]) == ("reader", 403, "forbidden", TABLE)
    assert one["elapsed_ms"] > 0
    assert not any(token.rpartition("_")[2] in str(note) for note in notes.values() for token in tokens.values())
    read = {"sql": "SELECT who FROM crannog.system.audit WHERE request_id = 'audited-1'"}
    assert ask("root", "POST", "/api/v1/sql", json=read).json()["rows"] == [["writer"]]
    error(ask("reader", "POST", "/api/v1/sql", json=read), 403, "forbidden")
    assert "crannog.system.audit" not in ask("root", "GET", "/api/v1/tables").text
    assert "crannog.system.audit" in ask("root", "GET", "/api/v1/tables?system=true").text
    for method, path, body in (
        ("POST", "/rows", [{"who": "nobody"}]),
        ("PUT", "", {"schema": {"type": "object", "properties": {"who": {"type": "string"}}}}),
        ("POST", "/expire", {"before": "2999-01-01"}),
        ("DELETE", "", None),
    ):
        refused = error(ask("root", method, f"/api/v1/tables/crannog.system.audit{path}", json=body), 400, "refused")
        assert "belongs to the server" in refused, (method, path)
        error(ask("reader", method, f"/api/v1/tables/crannog.system.audit{path}", json=body), 403, "forbidden")
    assert ask("root", "POST", "/api/v1/sql", json=read).json()["rows"] == [["writer"]], "the audit is still there"


# -- without tokens --------------------------------------------------------------------------------------------------


def test_other_addresses_are_refused_until_there_is_a_token(tmp_path: Path) -> None:
    run = [PROGRAM, "--warehouse", str(tmp_path / "w"), "serve", "--host", "0.0.0.0", "--port", "0"]
    refused = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert "will not listen on 0.0.0.0" in refused.stderr
    assert "crannog token create" in refused.stderr
    with in_process(tmp_path, loopback=False) as (_, ask):
        error(ask("GET", "/api/v1/tables"), 401, "unauthorized")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:7117"}, 200),
        ({"Host": "[::1]:7117"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example:7117"}, 403),
        ({"Origin": "http://127.0.0.1:7117"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_web_pages_of_others_cannot_use_a_server_without_tokens(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    with in_process(tmp_path) as (_, ask):
        assert ask("GET", "/api/v1/tables", headers=headers).status_code == status


# -- rates -----------------------------------------------------------------------------------------------------------


def test_a_bucket_empties_and_fills() -> None:
    rates = Rates(10, 3)
    for _ in range(3):
        rates.take("joe", now=100)
    with pytest.raises(Overloaded) as refused:
        rates.take("joe", now=100.05)
    assert refused.value.retry_after_s == pytest.approx(0.05)
    rates.take("jane", now=100.05)
    rates.take("joe", now=100.11)
    for number in range(20_000):
        rates.take(f"caller {number}", now=101)
    assert len(rates._buckets) <= 10_000
    Rates(0, 1).take("joe")


def test_addresses_have_rates_and_loopback_has_none(tmp_path: Path) -> None:
    with in_process(tmp_path, "10.0.0.9", rate_per_s=0.001, rate_burst=2) as (_, ask):
        statuses = [ask("GET", "/api/v1/tables").status_code for _ in range(4)]
        assert statuses == [200, 200, 429, 429]
        assert "10.0.0.9" in error(ask("GET", "/api/v1/tables"), 429, "overloaded")
        assert ask("GET", "/healthz").status_code == 200
    with in_process(tmp_path, rate_per_s=0.001, rate_burst=2) as (_, ask):
        assert [ask("GET", "/api/v1/tables").status_code for _ in range(4)] == [200] * 4
