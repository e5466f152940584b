"""What a server says about itself: its figures, its document, and that every request the document allows is answered."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from prometheus_client.parser import text_string_to_metric_families
from schemathesis.core.failures import FailureGroup

from build_samples import one_of_each, whole_build
from crannog.server.app import make_app
from crannog.server.middleware import TracingMiddleware
from otlp_samples import request_of, span, trace_id
from servers import Server, in_process, made_token, serving
from test_server_routes import ARROW, NOTE, stream_of

pytest_plugins = ["servers"]

NAME = "t.state.notes"


def figures(http: httpx.Client) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample by its name and labels."""
    page = http.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.text)
        for sample in family.samples
    }


def test_figures_are_right_and_can_be_read_by_prometheus(http: httpx.Client) -> None:
    http.put(f"/api/v1/tables/{NAME}", json={"schema": NOTE, "key": ["id"]})
    for batch in ("a", "b", "b"):
        http.post(f"/api/v1/tables/{NAME}/rows", json=[{"id": 1}, {"id": 2}], headers={"Crannog-Batch-Id": batch})
    http.post(f"/api/v1/tables/{NAME}/rows", json=[{"id": "x"}])
    http.post(f"/api/v1/tables/{NAME}/delete", json={"keys": [1]})
    http.post("/api/v1/sql", json={"sql": f"SELECT * FROM {NAME}"})
    http.post("/api/v1/sql", json={"sql": "SELECT * FROM no.such.table"})
    http.put(f"/api/v1/cache/{NAME}")
    http.post("/api/v1/sql", json={"sql": f"SELECT * FROM {NAME}"})
    found = figures(http)

    def value(name: str, **labels: str) -> float:
        return found[name, tuple(sorted(labels.items()))]

    assert value("crannog_writes_total", verb="append", outcome="kept") == 2
    assert value("crannog_writes_total", verb="append", outcome="duplicate") == 1
    assert value("crannog_writes_total", verb="append", outcome="bad_rows") == 1
    assert value("crannog_written_rows_total", verb="append") == 4
    assert value("crannog_writes_total", verb="delete", outcome="kept") == 1
    assert value("crannog_write_seconds_count", verb="append") == 4
    assert value("crannog_queries_total", engine="local", outcome="answered") == 1
    assert value("crannog_queries_total", engine="hot", outcome="answered") == 1
    assert value("crannog_queries_total", engine="none", outcome="not_found") == 1
    assert value("crannog_query_seconds_count", engine="hot") == 1
    assert value("crannog_staged_rows", table=NAME) == 5
    assert value("crannog_staged_files", table=NAME) >= 1
    assert value("crannog_staged_bytes", table=NAME) > 0
    assert value("crannog_fold_lag_seconds", table=NAME) > 0
    assert value("crannog_cache_bytes") > 0
    assert value("crannog_cache_hits_total") == 1
    assert value("crannog_cache_misses_total") >= 1
    assert value("crannog_spark_state", state="absent") == 1
    assert value("crannog_requests_total", method="POST", route="/api/v1/tables/{name}/rows", status="200") == 3
    assert value("crannog_requests_total", method="POST", route="/api/v1/tables/{name}/rows", status="422") == 1
    assert value("crannog_requests_running") == 1
    http.get("/made/up/by/somebody")
    assert ("crannog_requests_total", (("method", "GET"), ("route", "unknown"), ("status", "404"))) in figures(http)


def test_the_document_is_valid_and_names_every_route(http: httpx.Client) -> None:
    document = http.get("/api/openapi.json").json()
    validate(document)
    wanted = {
        "/healthz": "get",
        "/readyz": "get",
        "/metrics": "get",
        "/api/v1/tables": "get",
        "/api/v1/tables/{name}": "get put delete",
        "/api/v1/tables/{name}/rows": "get post put",
        "/api/v1/tables/{name}/sql": "",
        "/api/v1/sql": "post",
        "/api/v1/sql/stream": "post",
        "/api/v1/sql/explain": "post",
        "/api/v1/sql/{query_id}": "delete",
        "/api/v1/cache": "get",
        "/api/v1/cache/{name}": "put delete",
        "/api/v1/tasks": "get",
        "/query/cache/pin": "post",
        "/query/cache/evict": "post",
        "/query/cache/stats": "get",
        "/query/compact": "post",
        **{
            f"/api/v1/tables/{{name}}/{act}": "post"
            for act in ("delete", "erase", "fold", "compact", "vacuum", "expire", "evolve")
        },
        **{
            f"/api/v1/tables/{{name}}/{part}": "get"
            for part in ("history", "tombstones", "preview", "audit", "schema", "count")
        },
    }
    for path, methods in wanted.items():
        assert set(document["paths"].get(path, {})) == set(methods.split()), path
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["description"], path


def asked_by_the_document(tmp_path: Path, examples: int) -> None:
    """Made-up requests, right and wrong, for every route: each gets an answer that the document allows, never a 5xx."""
    with in_process(tmp_path, sql_timeout_s=5, java_home=str(tmp_path)) as (service, ask):
        ask("PUT", f"/api/v1/tables/{NAME}", json={"schema": NOTE, "key": ["id"]})
        app = make_app(service)
        document = ask("GET", "/api/openapi.json").json()
        schema = schemathesis.openapi.from_asgi("/api/openapi.json", app)
        failures: list[str] = []
        for found in schema.get_all_operations():
            operation = found.ok()

            @settings(
                max_examples=examples,
                deadline=None,
                database=None,
                derandomize=True,
                suppress_health_check=list(HealthCheck),
            )
            @schemathesis_given(operation)
            def check(case: Any) -> None:
                if "name" in (case.path_parameters or {}) and len(str(case.path_parameters["name"])) % 2:
                    case.path_parameters["name"] = NAME
                answer = case.call()
                assert answer.status_code < 500 or answer.status_code == 503, (
                    f"{case.method} {case.formatted_path}: {answer.text}"
                )
                if answer.status_code >= 400:
                    assert set(json.loads(answer.content)["error"]) == {"code", "message", "retry_after_s"}
                else:
                    case.validate_response(answer, checks=(schemathesis.checks.response_schema_conformance,))

            try:
                check()
            except (AssertionError, FailureGroup) as error:
                failures.append(f"{operation.label}: {error}"[:600])
        assert document["paths"]
        assert not failures, "\n\n".join(failures)


def test_answers_with_data_are_as_the_document_says(tmp_path: Path) -> None:
    """Every route that reads, over a lake in which it finds something: the type and the shape of the answer, null included."""
    with in_process(tmp_path, build_log="sqlite::memory:") as (service, ask):
        ask("PUT", f"/api/v1/tables/{NAME}", json={"schema": NOTE, "key": ["id"]})
        ask("POST", f"/api/v1/tables/{NAME}/rows", json=[{"id": 1, "text": "a"}, {"id": 2}])
        ask("POST", f"/api/v1/tables/{NAME}/delete", json={"keys": [2]})
        for number in (1, 2):
            body = request_of(span(number, 1, name="a"), span(number, 2, name="b"), service="s").SerializeToString()
            assert (
                ask(
                    "POST", "/api/v1/traces/otlp", content=body, headers={"Content-Type": "application/x-protobuf"}
                ).status_code
                == 200
            )
        for build in ("b1", "b2"):
            service.build_log.get().append_events([*one_of_each(build), *whole_build(f"w{build}", ["a/b", "c/d"])])
        document = ask("GET", "/api/openapi.json").json()
        known = {
            "name": NAME,
            "trace_id": trace_id(1).hex(),
            "before": trace_id(1).hex(),
            "after": trace_id(2).hex(),
            "service": "s",
            "what": "service",
        }
        known |= {
            "event_id": "b1-0",
            "build_request_id": "wb1",
            "partition_ref": "a/b",
            "first": "wb1",
            "second": "wb2",
        }
        empty = known | {"event_id": "none", "build_request_id": "none", "partition_ref": "none", "service": "none"}
        wrong, answered = [], 0
        for path, methods in document["paths"].items():
            for values in (known, empty) if "get" in methods else ():
                parameters = methods["get"].get("parameters", [])
                address = path
                for parameter in parameters:
                    address = address.replace(f"{{{parameter['name']}}}", values.get(parameter["name"], "1"))
                query = {
                    one["name"]: values.get(one["name"], "1")
                    for one in parameters
                    if one["in"] == "query" and one.get("required")
                }
                answer = ask("GET", address, params=query)
                declared = methods["get"]["responses"].get(str(answer.status_code)) or methods["get"]["responses"].get(
                    f"{answer.status_code // 100}XX"
                )
                media = answer.headers["content-type"].partition(";")[0]
                if declared is None or media not in declared["content"]:
                    wrong.append(f"{path}: {answer.status_code} {media}")
                elif media == "application/json":
                    schema = declared["content"][media].get("schema", {})
                    wrong += [
                        f"{path} {values is known}: {error.message[:200]}"
                        for error in Draft202012Validator(schema).iter_errors(answer.json())
                    ]
                answered += answer.status_code == 200
        assert not wrong, "\n".join(wrong)
        assert answered > 60


def schemathesis_given(operation: Any) -> Any:
    return given(case=operation.as_strategy())


def test_requests_made_up_from_the_document_are_answered(tmp_path: Path) -> None:
    asked_by_the_document(tmp_path, 3)


@pytest.mark.slow
def test_many_requests_made_up_from_the_document_are_answered(tmp_path: Path) -> None:
    asked_by_the_document(tmp_path, 150)


def test_spans_are_sent_where_a_setting_says(tmp_path: Path) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    received: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            unpacked = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            received.append(ExportTraceServiceRequest.FromString(unpacked))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        with in_process(tmp_path) as (service, _):
            app = TracingMiddleware(make_app(service), f"http://127.0.0.1:{receiver.server_port}/v1/traces")

            async def ask() -> None:
                async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
                    headers = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01", "X-Request-Id": "spanned"}
                    await client.put(f"/api/v1/tables/{NAME}", json={"schema": NOTE})
                    await client.post(f"/api/v1/tables/{NAME}/rows", json=[{"id": 1}, {"id": 2}], headers=headers)

            asyncio.run(ask())
            app.close()
        receiver.shutdown()
    spans = [
        span
        for request in received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    one = next(span for span in spans if span.name == "POST /api/v1/tables/{name}/rows")
    assert one.trace_id.hex() == "ab" * 16
    attributes = {attribute.key: attribute.value for attribute in one.attributes}
    assert attributes["crannog.request_id"].string_value == "spanned"
    assert attributes["crannog.rows"].int_value == 2
    assert attributes["http.response.status_code"].int_value == 200


def test_a_large_answer_comes_in_parts(http: httpx.Client, server: Server) -> None:
    """Of every form: whole, right, and never held whole as text."""
    name = "t.state.many"
    http.put(f"/api/v1/tables/{name}", json={"schema": NOTE})
    rows = pa.table({"id": range(200_000), "text": [f"row {number}" for number in range(200_000)]})
    assert (
        http.post(f"/api/v1/tables/{name}/rows", content=stream_of(rows), headers={"Content-Type": ARROW}).status_code
        == 200
    )
    query = {"sql": f"SELECT id, text FROM {name} ORDER BY id", "max_rows": 200_000}
    for accept in ("application/json", ARROW, "application/x-ndjson", "text/csv"):
        with http.stream(
            "POST", "/api/v1/sql", json=query, headers={"Accept": accept, "Accept-Encoding": "identity"}
        ) as answer:
            assert answer.status_code == 200
            assert "content-length" not in answer.headers
            data = b"".join(answer.iter_raw())
        if accept == "application/json":
            body = json.loads(data)
            assert (body["row_count"], len(body["rows"]), body["rows"][-1]) == (
                200_000,
                200_000,
                [199_999, "row 199999"],
            )
        elif accept == ARROW:
            assert pa.ipc.open_stream(data).read_all().equals(rows)
        else:
            lines = data.decode().splitlines()
            assert len(lines) == 200_000 + (accept == "text/csv")
            assert lines[-1] in ('{"id":199999,"text":"row 199999"}', '199999,"row 199999"')


def test_changes_are_told_as_they_happen(tmp_path: Path) -> None:
    with serving(tmp_path / "warehouse") as server, server.client() as client:
        schema = {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
        for name in ("a.b.seen", "a.b.other"):
            client.put(f"/api/v1/tables/{name}", json=schema).raise_for_status()
        with client.stream("GET", "/api/v1/changes") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = (line for line in stream.iter_lines() if line)
            assert next(lines).startswith(":")
            httpx.post(f"{server.url}/api/v1/tables/a.b.seen/rows", json=[{"n": 1}]).raise_for_status()
            event = next(line for line in lines if line.startswith("data:"))
        assert json.loads(event.removeprefix("data:")) == {"tables": ["a.b.seen"]}
        # A server that stops does not wait for those who listen.
        with client.stream("GET", "/api/v1/changes"):
            began = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - began < 8


def test_changes_name_only_what_a_token_may_read(tmp_path: Path) -> None:
    token = made_token(tmp_path / "warehouse", "reader", "read:a")
    admin = made_token(tmp_path / "warehouse", "admin", "admin")
    with serving(tmp_path / "warehouse") as server, server.client(token) as client, server.client(admin) as writer:
        schema = {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
        for name in ("x.y.hidden", "a.b.seen"):
            writer.put(f"/api/v1/tables/{name}", json=schema).raise_for_status()
        with client.stream("GET", "/api/v1/changes") as stream:
            lines = (line for line in stream.iter_lines() if line)
            next(lines)
            for name in ("x.y.hidden", "a.b.seen"):
                writer.post(f"/api/v1/tables/{name}/rows", json=[{"n": 1}]).raise_for_status()
            event = next(line for line in lines if line.startswith("data:"))
        assert json.loads(event.removeprefix("data:")) == {"tables": ["a.b.seen"]}
