"""The list of traces in Jaeger's pages, from a few columns: the same as from the whole traces. And files opened there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from crannog.api.traces import Trace
from crannog.engine.maintenance.fold import fold
from crannog.settings import Settings
from crannog.traces.ingest.decode import json_of_request
from crannog.traces.jaeger import summaries
from crannog.traces.jaeger.responses import summaries_v3
from crannog.traces.search.snapshot_reader import SnapshotReader
from derived_stand_in import stand_in_for_all
from doors import serving_here
from otlp_samples import START, request_of, span, span_id, trace_id
from test_jaeger import fill
from test_traces_search import Model, filled

MISSING = "f" * 32


def from_whole(trace: Trace) -> dict[str, Any]:
    """The summary of a trace by all of its spans, in plain Python."""
    spans = Counter(one.service for one in trace.spans)
    errors = Counter(one.service for one in trace.spans if one.is_error)
    return {
        "traceId": trace.trace_id,
        "rootServiceName": trace.root.service if trace.root else "",
        "rootOperationName": trace.root.name if trace.root else "",
        "minStartTimeUnixNano": str(trace.start_ns),
        "maxEndTimeUnixNano": str(trace.end_ns),
        "spanCount": len(trace.spans),
        "errorSpanCount": trace.error_count,
        "orphanSpanCount": sum(one.orphan for one in trace.spans),
        "services": [
            {"name": name, "spanCount": spans[name], "errorSpanCount": errors[name]} for name in sorted(spans)
        ],
    }


def alike(store: Model) -> list[dict[str, Any]]:
    page = store.search(limit=1_000, order="oldest").traces
    assert {one.trace_id for one in page} == {trace for trace, _ in store.kept}
    gone = replace(page[0], trace_id=MISSING)
    found = summaries_v3(store.jaeger_summaries([gone, *page]))["summaries"]
    assert found == [from_whole(trace) for trace in store.get_many([one.trace_id for one in page])]
    assert store.jaeger_summaries([]) == store.jaeger_summaries([gone]) == []
    return list(found)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    store = filled(Settings(warehouse=str(tmp_path_factory.mktemp("summaries")), spark_memory_mb=1024))
    yield store
    store.warehouse.close()


@pytest.mark.parametrize(("most_ids", "few_rows"), [(256, 10_000), (256, 3), (7, 10_000)])
def test_summaries_are_those_of_the_whole_traces(
    store: Model, monkeypatch: pytest.MonkeyPatch, most_ids: int, few_rows: int
) -> None:
    monkeypatch.setattr(summaries, "MAX_IDS", most_ids)
    monkeypatch.setattr(summaries, "MAX_PYTHON_ROWS", few_rows)
    found = alike(store)
    assert any(one["errorSpanCount"] for one in found)
    assert any(len(one["services"]) > 1 for one in found)


@pytest.mark.parametrize("few_rows", [10_000, 3])
def test_odd_traces_are_summed_up_as_they_are_shown(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, few_rows: int
) -> None:
    stand_in_for_all(monkeypatch)
    monkeypatch.setattr(summaries, "MAX_PYTHON_ROWS", few_rows)
    store = Model(settings)
    tied = [span(1, number, start=START) for number in (3, 2)]  # two roots at once: the lower id is the first
    cycle = [span(2, 1, 2), span(2, 2, 1), span(2, 3, 3)]
    orphans = [span(3, 1, 99), span(3, 2, 1), span(3, 4, 98)]
    store.send(*tied, *cycle, *orphans, service="one")
    store.send(span(3, 5, 2), span(1, 7, 2), service="two")
    store.send(*(span(trace, 20 + trace, trace) for trace in range(1, 4)), service="")
    changed = span(1, 7, 98, name="again", start=START + 1)
    changed.status.code = 2
    store.send(changed, service="three")  # sent again, with another parent, another service and an error
    before = alike(store)
    assert {one["traceId"]: one["orphanSpanCount"] for one in before} == {
        trace_id(number).hex(): orphans for number, orphans in ((1, 2), (2, 0), (3, 3))
    }
    # A trace without a span that has no parent has no root, as in Jaeger (querysvc/summary.go, summarizeTrace).
    assert [
        one["rootServiceName"] + one["rootOperationName"] for one in before if one["traceId"] != trace_id(1).hex()
    ] == [
        "",
        "",
    ]
    fold(store.spans)
    assert alike(store) == before
    store.warehouse.close()


@pytest.mark.parametrize(("few_rows", "mark"), [(10_000, "trace_hi IN"), (0, "orphans")])
def test_the_list_is_one_query_that_opens_a_few_columns(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, few_rows: int, mark: str
) -> None:
    monkeypatch.setattr(summaries, "MAX_PYTHON_ROWS", few_rows)
    plans: list[str] = []
    query = SnapshotReader.query

    def explained(self: SnapshotReader, sql: str, *rest: Any) -> Any:
        if mark in sql:
            plans.append(str(self.cursor.execute(f"EXPLAIN {sql}").fetchall()))
        else:
            assert "resource_attributes" not in sql.partition(" FROM ")[0]  # no trace is read as a whole
        return query(self, sql, *rest)

    with serving_here(tmp_path) as server, httpx.Client(base_url=server.url) as api:
        fill(server.service.lake)
        times = {"query.start_time_min": "2025-10-09T08:00:00Z", "query.start_time_max": "2025-10-09T10:00:00Z"}
        monkeypatch.setattr(SnapshotReader, "query", explained)
        assert len(api.get("/api/v3/trace-summaries", params=times).json()["summaries"]) == 2
    [plan] = plans
    assert "span_name" in plan
    assert not any(name in plan for name in ("attributes", "events", "links", "search_blob", "trace_state"))


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with (
        serving_here(tmp_path_factory.mktemp("transform"), http_body_bytes=1 << 20) as server,
        httpx.Client(base_url=server.url) as api,
    ):
        yield api


def test_a_file_of_otlp_is_shown_as_the_same_spans_kept_are(api: httpx.Client, tmp_path: Any) -> None:
    one = span(1, 1, name="GET /", kind=2, attributes={"card": "visa", "n": 2**60})
    one.events.add(name="noted", time_unix_nano=START)
    one.links.add(trace_id=trace_id(7), span_id=span_id(8))
    one.status.code, one.status.message = 2, "broken"  # type: ignore[assignment]
    request = json_of_request(request_of(one, span(1, 2, 1), span(2, 1), service="shop"))
    answer = api.post("/api/transform", json=request)
    assert answer.status_code == 200
    shown = answer.json()
    assert {name: shown[name] for name in ("total", "limit", "offset", "errors")} == {
        "total": 0,
        "limit": 0,
        "offset": 0,
        "errors": None,
    }
    assert api.get(f"/api/traces/{trace_id(1).hex()}").status_code == 404  # nothing is kept
    assert api.get("/api/services").json()["data"] == []
    with serving_here(tmp_path) as server, httpx.Client(base_url=server.url) as kept:
        server.service.lake.traces.write_otlp(json.dumps(request).encode(), content_type="application/json")
        for trace in shown["data"]:
            assert trace == kept.get(f"/api/traces/{trace['traceID']}").json()["data"][0]
    assert [len(trace["spans"]) for trace in shown["data"]] == [2, 1]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{bad", 400),
        (b"[]", 400),
        (b'{"resourceSpans": 1}', 400),
        (b"", 400),
        (b"[" * 100_000, 400),
        (b" " * (1 << 21), 413),
    ],
    ids=["no JSON", "a list", "no spans", "empty", "deep", "large"],
)
def test_a_file_that_cannot_be_read_is_refused_in_the_envelope(api: httpx.Client, body: bytes, status: int) -> None:
    answer = api.post("/api/transform", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    document = answer.json()
    assert document["data"] is None
    assert (document["errors"][0]["code"], bool(document["errors"][0]["msg"])) == (status, True)


def invalid(trace: int, number: int) -> Any:
    made = span(trace, number)
    made.span_id = b"short"
    return made


def test_invalid_spans_of_a_file_are_warnings_of_the_others_of_their_trace(
    api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = json_of_request(request_of(span(1, 1), invalid(1, 2), invalid(1, 3), span(2, 1)))
    shown = api.post("/api/transform", json=request)
    assert shown.status_code == 200
    first, second = shown.json()["data"]
    warning = "2 spans of this trace cannot be shown: 2 because the span id is not 8 bytes, or all zero"
    assert [one["warnings"] for one in first["spans"]] == [[warning]]
    assert [one["warnings"] for one in second["spans"]] == [None]
    assert "2 spans of the file cannot be shown" in shown.json()["errors"][0]["msg"]
    nowhere = span(1, 2)
    nowhere.trace_id = b"short"
    shown = api.post("/api/transform", json=json_of_request(request_of(span(1, 1), span(2, 1), nowhere)))
    warnings = [one["warnings"] for trace in shown.json()["data"] for one in trace["spans"]]
    assert [len(each) for each in warnings] == [1, 1]
    assert "1 span of the file cannot be shown: 1 because the trace id" in warnings[0][0]
    assert api.post("/api/transform", json={}).json() == {
        "data": [],
        "total": 0,
        "limit": 0,
        "offset": 0,
        "errors": None,
    }
    monkeypatch.setattr("crannog.server.routes.jaeger._MAX_SPANS", 1)
    assert api.post("/api/transform", json=json_of_request(request_of(span(1, 1), span(1, 2)))).status_code == 413


def test_a_file_without_a_valid_span_is_refused(api: httpx.Client) -> None:
    refused = api.post("/api/transform", json=json_of_request(request_of(invalid(1, 1), invalid(2, 1))))
    assert refused.status_code == 400
    [error] = refused.json()["errors"]
    assert refused.json()["data"] is None
    assert error["msg"] == "2 spans of the file cannot be shown: 2 because the span id is not 8 bytes, or all zero"


@pytest.mark.parametrize("body", [b"{bad", b"[]", b'{"resourceSpans": 1}'])
def test_the_error_of_a_file_says_nothing_about_sending_or_storing(api: httpx.Client, body: bytes) -> None:
    [error] = api.post("/api/transform", content=body).json()["errors"]
    assert "kept" not in error["msg"]
    assert "send" not in error["msg"]
