"""What the audit records in sums: spans that are sent, and whatever comes without a valid token, which cannot flood it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import httpx
import pyarrow as pa
import pytest

from crannog.names import AUDIT
from crannog.server import audit_summaries
from crannog.server.audit import SCHEMA
from crannog.server.audit_summaries import OTHERS, Summaries
from crannog.server.auth import Tokens
from crannog.server.service import Service
from doors import receiving
from otlp_samples import request_of, span
from servers import in_process
from test_server_routes import error


def recorded(service: Service, where: str = "true") -> list[dict[str, Any]]:
    """The rows of the audit, with all that is not written yet."""
    service.audit.flush()
    return service.lake.sql(f"SELECT * FROM {AUDIT} WHERE {where} ORDER BY time").rows()


def record(**values: Any) -> dict[str, Any]:
    return {
        "who": "a", "address": "1.1.1.1", "verb": "v", "requests": 1, "rows": 2, "rejected": None, "elapsed_ms": 1.5, **values
    }  # fmt: skip


def test_sums_are_of_a_minute_and_of_a_bounded_number_of_senders() -> None:
    sums = Summaries()
    for second in range(3):
        sums.add(("a",), record(rejected=second or None), now=100.0 + second)
    sums.add(("b",), record(address="2.2.2.2"), now=130.0)
    sums.add(("b",), record(address="3.3.3.3"), now=131.0)
    assert sums.take(now=159.9) == []
    assert sums.take(now=160.0) == [record(requests=3, rows=6, rejected=3, elapsed_ms=4.5)]
    assert sums.take(now=190.0) == [record(address=None, requests=2, rows=4, elapsed_ms=3.0)]
    for number in range(50_000):
        sums.add((str(number),), record(), now=200.0)
    found = sums.take(all_of_them=True)
    assert len(found) == audit_summaries._MOST + 1
    assert found[-1]["who"] == OTHERS
    assert sum(each["requests"] for each in found) == 50_000


def test_requests_without_a_valid_token_are_limited_and_are_one_row(tmp_path: Path) -> None:
    with in_process(tmp_path, audit=True, rate_per_s=0.001, rate_burst=300) as (service, ask):
        token = Tokens(service.lake.operations.warehouse.storage).create("root", ["admin"])
        strangers = [
            ask("GET", "/api/v1/tables"),
            ask("GET", "/api/v1/tables", headers={"Authorization": "Bearer crannog_root_" + "0" * 64}),
            ask("GET", "/api/traces/1", headers={"Authorization": "Bearer x"}),
            ask("BREW", "/nothing", headers={"Cookie": "crannog_session=x"}),
            ask("POST", "/api/v1/session", json={"token": "x"}, headers={"Origin": "http://127.0.0.1:7117"}),
            *(ask("GET", f"/nothing/{number}") for number in range(40)),
        ]
        statuses = [answer.status_code for answer in strangers]
        assert statuses == [401] * 30 + [429] * 15, "on loopback too"
        assert "requests without a valid token" in error(strangers[-1], 429, "overloaded")
        known = {"Authorization": f"Bearer {token}"}
        assert [ask("GET", "/api/v1/tables", headers=known).status_code for _ in range(40)] == [200] * 40
        assert ask("GET", "/healthz").status_code == 200
        rows = recorded(service, "who = 'nobody'")
        assert [(row["status"], row["requests"], row["address"]) for row in rows] == [
            (401, 30, "127.0.0.1"),
            (429, 15, "127.0.0.1"),
        ]
        assert len(recorded(service, "who = 'root'")) == 40


def test_who_is_nobody_makes_no_row_for_each_request(tmp_path: Path) -> None:
    """Also where the answer is no error: the pages ask who one is before they show the sign-in."""
    with in_process(tmp_path, audit=True) as (service, ask):
        for _ in range(5):
            assert ask("GET", "/api/v1/tables", headers={"Origin": "https://evil.example"}).status_code == 403
        Tokens(service.lake.operations.warehouse.storage).create("root", ["admin"])
        service.tokens._read_at = float("-inf")
        for _ in range(7):
            assert ask("GET", "/api/v1/session").status_code == 200
        assert [(row["status"], row["requests"]) for row in recorded(service)] == [(403, 5), (200, 7)]


def test_reads_over_jaegers_api_are_recorded(tmp_path: Path) -> None:
    with in_process(tmp_path, audit=True) as (service, ask):
        token = Tokens(service.lake.operations.warehouse.storage).create("grafana", ["read:crannog.traces"])
        service.lake.traces.write_otlp(request_of(span(1, 1)).SerializeToString())
        for path in (
            "/api/services", "/api/traces?service=shop", "/api/traces/1", "/api/dependencies", "/api/metrics/calls?service=shop",
            "/api/v3/services", "/api/v3/traces/1",
        ):  # fmt: skip
            ask("GET", path, headers={"Authorization": f"Bearer {token}"})
        rows = recorded(service)
        assert {(row["who"], row["table"]) for row in rows} == {("grafana", "crannog.traces.spans")}
        assert [row["verb"] for row in rows] == [
            f"jaeger_{name}"
            for name in ("services", "traces", "trace", "dependencies", "metrics", "services_v3", "trace_v3")
        ]


def test_spans_are_a_row_a_minute_for_each_sender(tmp_path: Path) -> None:
    with receiving(tmp_path) as doors:
        doors.service.audit.on = True
        tokens = Tokens(doors.lake.operations.warehouse.storage)
        sender, reader = tokens.create("agent", ["ingest:crannog.traces"]), tokens.create("reader", ["read"])
        good = request_of(span(1, 1), span(1, 2)).SerializeToString()
        nameless = span(2, 2)
        nameless.trace_id = b""
        partly = request_of(span(2, 1), nameless).SerializeToString()
        for body in (good, partly, good):
            assert doors.post(body, authorization=f"Bearer {sender}").status_code == 200
            doors.call(body, [("authorization", f"Bearer {sender}")])
        doors.post(good, authorization=f"Bearer {reader}")
        for bearer in ("x", "y"):
            assert doors.post(good, authorization=f"Bearer {bearer}").status_code == 401
            with pytest.raises(grpc.RpcError):
                doors.call(good, [("authorization", f"Bearer {bearer}")])
        with pytest.raises(grpc.RpcError):
            doors.call(good, [("authorization", f"Bearer {reader}")])
        rows = recorded(doors.service)
        columns = ("who", "verb", "status", "requests", "rows", "rejected")
        assert {tuple(row[name] for name in columns) for row in rows} == {
            ("agent", "otlp", 200, 3, 5, 1),
            ("agent", "otlp_grpc", 200, 3, 5, 1),
            ("reader", "otlp", 403, 1, None, None),
            ("reader", "otlp_grpc", 403, 1, None, None),
            ("nobody", "POST", 401, 4, None, None),
        }
        assert all(row["address"] == "127.0.0.1" for row in rows)


def test_grpc_limits_strangers_too(tmp_path: Path) -> None:
    with receiving(tmp_path, rate_per_s=0.001, rate_burst=20) as doors:
        token = Tokens(doors.lake.operations.warehouse.storage).create("agent", ["ingest"])
        doors.service.tokens.refresh()
        codes = []
        for _ in range(4):
            with pytest.raises(grpc.RpcError) as refused:
                doors.call(b"")
            codes.append(refused.value.code().name)
        assert codes == ["UNAUTHENTICATED", "UNAUTHENTICATED", "UNAVAILABLE", "UNAVAILABLE"]
        doors.call(request_of(span(1, 1)).SerializeToString(), [("authorization", f"Bearer {token}")])
        assert httpx.post(f"{doors.address}/v1/traces", content=b"").status_code == 429


def test_a_table_of_an_earlier_version_gets_the_new_columns(tmp_path: Path) -> None:
    with in_process(tmp_path, audit=True) as (service, ask):
        new = ("requests", "rejected")
        old = pa.schema([field for field in SCHEMA if field.name not in new])
        service.lake.operations.tables.create(AUDIT, old, if_exists="ok", properties={})
        ask("GET", "/api/v1/tables")
        [row] = recorded(service)
        assert (row["who"], row["verb"], row["requests"], row["rejected"]) == ("local", "tables", 1, None)
        assert service.audit.dropped == 0
