"""Jaeger's query API, in the shapes that Jaeger's own pages and Grafana's data source read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from crannog.embedded import EmbeddedLake
from crannog.traces.jaeger.monitor import NO_VALUE
from doors import serving_here
from otlp_samples import attribute, request_of, span, span_id

S = 10**9
T0 = 1_760_000_000 * S
"""2025-10-09 08:53:20, UTC."""
T0_US = T0 // 1000
CHECKOUT, SHORT, MISSING = "0123456789abcdeffedcba9876543210", "00000000000000000000000000abc123", "f" * 32
DAY = {"start": str(T0_US - 3_600_000_000), "end": str(T0_US + 3_600_000_000)}
HOUR_V3 = {"query.start_time_min": "2025-10-09T08:00:00Z", "query.start_time_max": "2025-10-09T10:00:00Z"}


def of(trace: str, number: int, parent: int | None, **more: Any) -> Span:
    made = span(1, number, parent, **more)
    made.trace_id = bytes.fromhex(trace)
    return made


def fill(lake: EmbeddedLake) -> None:
    root = of(
        CHECKOUT, 1, None, start=T0, took=2 * S + 1_999, name="GET /checkout", kind=2, trace_state="a=1", flags=0x101
    )
    root.attributes.extend(
        attribute(key, value)
        for key, value in {
            "http.status_code": 500,
            "user.id": "u1",
            "paid": True,
            "share": 0.5,
            "big": 2**53,
            "raw": b"\x00\xff",
            "items": ["a", 1],
            "odd": float("nan"),
        }.items()
    )
    root.status.CopyFrom(Status(code=2, message="card refused"))
    root.events.add(name="retry", time_unix_nano=T0 + 1_000_500, attributes=[attribute("count", 2)])
    root.links.add(trace_id=bytes.fromhex(SHORT), span_id=span_id(9))
    shop = request_of(root, service="shop", scope="web")
    shop.resource_spans[0].scope_spans[0].scope.version = "1.2"
    shop.resource_spans[0].resource.attributes.append(attribute("host.name", "h1"))
    lake.traces.write_otlp(shop.SerializeToString())
    pay = of(
        CHECKOUT,
        2,
        1,
        start=T0 + 10**6,
        took=250 * 10**6,
        name="charge",
        kind=3,
        attributes={"card": "visa", "http.status_code": "402"},
    )
    bank = of(CHECKOUT, 3, 2, start=T0 + 2 * 10**6, took=200 * 10**6, name="debit", kind=2)
    orphan = of(CHECKOUT, 4, 77, start=T0 + 3 * 10**6, took=10**6, name="late", kind=1)
    lake.traces.write_otlp(request_of(pay, orphan, service="shop", scope="").SerializeToString())
    lake.traces.write_otlp(request_of(bank, service="bank/eu", scope="").SerializeToString())
    later = of(SHORT, 9, None, start=T0 + 60 * S, took=5 * 10**6, name="GET /health", kind=2)
    lake.traces.write_otlp(request_of(later, service="shop", scope="").SerializeToString())


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with (
        serving_here(tmp_path_factory.mktemp("jaeger")) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        fill(server.service.lake)
        yield client


def got(api: httpx.Client, path: str, status: int = 200, **params: Any) -> Any:
    answer = api.get(path, params=params)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def enveloped(data: Any, total: int = 0, errors: Any = None) -> dict[str, Any]:
    return {"data": data, "total": total, "limit": 0, "offset": 0, "errors": errors}


def ids(found: dict[str, Any]) -> list[str]:
    return [trace["traceID"] for trace in found["data"]]


# -- v1: names -----------------------------------------------------------------------------------------------------


def test_services_and_operations(api: httpx.Client) -> None:
    assert got(api, "/api/services") == enveloped(["bank/eu", "shop"], 2)
    assert got(api, "/api/services/shop/operations") == enveloped(["GET /checkout", "GET /health", "charge", "late"], 4)
    assert got(api, f"/api/services/{quote('bank/eu', safe='')}/operations") == enveloped(["debit"], 1)
    assert got(api, "/api/services/nobody/operations") == enveloped([], 0)
    assert got(api, "/api/operations", service="bank/eu") == enveloped([{"name": "debit", "spanKind": "server"}], 1)
    assert got(api, "/api/operations", service="shop", spanKind="client")["data"] == [
        {"name": "charge", "spanKind": "client"}
    ]
    assert got(api, "/api/operations", 400) == enveloped(
        None, errors=[{"code": 400, "msg": "parameter 'service' is required"}]
    )


# -- v1: one trace -------------------------------------------------------------------------------------------------


def tag(key: str, kind: str, value: Any) -> dict[str, Any]:
    return {"key": key, "type": kind, "value": value}


ROOT = {
    "traceID": CHECKOUT,
    "spanID": "0000000000000001",
    "flags": 1,
    "operationName": "GET /checkout",
    "references": [{"refType": "FOLLOWS_FROM", "traceID": "0000000000abc123", "spanID": "0000000000000009"}],
    "startTime": T0_US,
    "duration": 2_000_001,
    "tags": [
        tag("otel.scope.name", "string", "web"),
        tag("otel.scope.version", "string", "1.2"),
        tag("http.status_code", "int64", 500),
        tag("user.id", "string", "u1"),
        tag("paid", "bool", True),
        tag("share", "float64", 0.5),
        tag("big", "int64", str(2**53)),
        tag("raw", "binary", "AP8="),
        tag("items", "string", '["a", 1]'),
        tag("odd", "string", "nan"),
        tag("span.kind", "string", "server"),
        tag("otel.status_code", "string", "ERROR"),
        tag("error", "bool", True),
        tag("otel.status_description", "string", "card refused"),
        tag("w3c.tracestate", "string", "a=1"),
    ],
    "logs": [{"timestamp": T0_US + 1_000, "fields": [tag("event", "string", "retry"), tag("count", "int64", 2)]}],
    "processID": "p1",
    "warnings": None,
}


def test_a_trace_has_the_shape_that_jaeger_gives_it(api: httpx.Client) -> None:
    found = got(api, f"/api/traces/{CHECKOUT}")
    [trace] = found["data"]
    assert found == enveloped([trace])
    assert (trace["traceID"], trace["warnings"], len(trace["spans"])) == (CHECKOUT, None, 4)
    by_name = {one["operationName"]: one for one in trace["spans"]}
    assert by_name["GET /checkout"] == ROOT
    assert trace["processes"]["p1"] == {"serviceName": "shop", "tags": [tag("host.name", "string", "h1")]}
    assert {process["serviceName"] for process in trace["processes"].values()} == {"shop", "bank/eu"}
    assert by_name["charge"] == {
        "traceID": CHECKOUT,
        "spanID": "0000000000000002",
        "operationName": "charge",
        "references": [{"refType": "CHILD_OF", "traceID": CHECKOUT, "spanID": "0000000000000001"}],
        "startTime": T0_US + 1_000,
        "duration": 250_000,
        "tags": [
            tag("card", "string", "visa"),
            tag("http.status_code", "string", "402"),
            tag("span.kind", "string", "client"),
        ],
        "logs": [],
        "processID": by_name["late"]["processID"],
        "warnings": None,
    }


def test_a_trace_id_may_lack_its_zeros_and_is_printed_without_an_empty_half(api: httpx.Client) -> None:
    for written in (SHORT, "0000000000abc123", "abc123", "ABC123"):
        assert ids(got(api, f"/api/traces/{written}")) == ["0000000000abc123"]
    # Grafana may give times of another unit; a trace is found without them.
    assert ids(got(api, f"/api/traces/{SHORT}", start=str(T0 // 10**6), end=str(T0 // 10**6 + 1))) == [
        "0000000000abc123"
    ]


def test_a_trace_that_is_not_there_is_404_and_an_id_that_is_none_400_in_the_envelope(api: httpx.Client) -> None:
    assert got(api, f"/api/traces/{MISSING}", 404) == enveloped(None, errors=[{"code": 404, "msg": "trace not found"}])
    for wrong in ("xyz", "0" * 33, "0" * 32):
        found = got(api, f"/api/traces/{wrong}", 400)
        assert found["data"] is None
        assert found["errors"][0]["code"] == 400


@pytest.mark.parametrize("path", ["/api/services", f"/api/traces/{CHECKOUT}", f"/api/traces/{CHECKOUT}?raw=true"])
def test_json_is_indented_where_a_parameter_says_so(api: httpx.Client, path: str) -> None:
    plain = api.get(path)
    joined = f"{path}{'&' if '?' in path else '?'}prettyPrint="
    pretty = api.get(f"{joined}true")
    assert pretty.headers["content-type"] == "application/json"
    assert pretty.text.startswith('{\n    "data": [\n')
    assert pretty.json() == plain.json()
    assert api.get(f"{joined}false").content == plain.content


def test_traces_by_their_ids_name_those_that_are_missing(api: httpx.Client) -> None:
    found = got(api, "/api/traces", traceID=[CHECKOUT, MISSING, SHORT])
    assert ids(found) == [CHECKOUT, "0000000000abc123"]
    assert found["errors"] == [{"code": 404, "msg": "trace not found", "traceID": MISSING}]
    assert ids(got(api, "/api/traces", traceID=f"{CHECKOUT},{SHORT}")) == [CHECKOUT, "0000000000abc123"]
    got(api, "/api/traces", 400, traceID=[CHECKOUT, "no-id"])


# -- v1: search ----------------------------------------------------------------------------------------------------

BOTH, FIRST, SECOND = ["0000000000abc123", CHECKOUT], [CHECKOUT], ["0000000000abc123"]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"service": "shop"}, BOTH),
        ({}, BOTH),  # a service is not needed
        ({"service": "bank/eu"}, FIRST),
        ({"service": "nobody"}, []),
        ({"service": "shop", "operation": "GET /health"}, SECOND),
        ({"service": "shop", "operation": "debit"}, []),  # of one span, both
        ({"service": "shop", "tag": "card:visa"}, FIRST),
        ({"service": "shop", "tag": ["card:visa", "user.id:u1"]}, []),
        ({"service": "shop", "tags": '{"http.status_code":"500"}'}, FIRST),
        ({"service": "shop", "tags": '{"http.status_code":"50"}'}, []),
        ({"service": "shop", "tags": '{"http.status_code":402}'}, FIRST),
        ({"service": "shop", "tags": '{"paid":"true","user.id":"u1"}'}, FIRST),
        ({"service": "shop", "tags": '{"host.name":"h1"}'}, FIRST),
        ({"service": "shop", "tags": '{"error":"true"}'}, FIRST),
        ({"service": "shop", "tag": "span.kind:SERVER"}, BOTH),
        ({"service": "shop", "tags": '{"otel.status_code":"ERROR","otel.scope.name":"web"}'}, FIRST),
        ({"service": "shop", "minDuration": "1.5s"}, FIRST),
        ({"service": "shop", "minDuration": " 1.5 s"}, FIRST),
        ({"service": "shop", "minDuration": "1s 500 ms", "maxDuration": "1 h 1m"}, FIRST),
        ({"service": "shop", "minDuration": "1m"}, []),
        ({"service": "shop", "maxDuration": "10ms", "operation": "GET /health"}, SECOND),
        ({"service": "shop", "minDuration": "4ms", "maxDuration": "5000us"}, SECOND),
        ({"service": "shop", "limit": "1"}, SECOND),
    ],
)
def test_a_search_finds_traces_newest_first(api: httpx.Client, params: dict[str, Any], expected: list[str]) -> None:
    found = got(api, "/api/traces", **DAY, **params)
    assert ids(found) == expected
    assert found == enveloped(found["data"])


def test_times_of_a_search_are_microseconds_and_told_from_others_by_their_size(api: httpx.Client) -> None:
    minute = 60_000_000
    assert ids(got(api, "/api/traces", start=str(T0_US), end=str(T0_US))) == FIRST
    assert (
        ids(got(api, "/api/traces", start=str(T0_US + 1), end=str(T0_US + minute))) == BOTH
    )  # its other spans start then
    assert ids(got(api, "/api/traces", start=str(T0_US + minute), end=str(T0_US + 2 * minute))) == SECOND
    assert ids(got(api, "/api/traces", start=str(T0_US // 1000 - 1), end=str(T0_US // 1000 + 1))) == FIRST
    assert ids(got(api, "/api/traces", start=str(T0 - 1), end=str(T0 + 1))) == FIRST
    assert got(api, "/api/traces", service="shop") == enveloped([])  # the last two days


@pytest.mark.parametrize(
    "params",
    [
        {"limit": "no"},
        {"limit": "0"},
        {"limit": "100000"},
        {"minDuration": "5"},
        {"minDuration": "1 2ms"},
        {"minDuration": "2s", "maxDuration": "1s"},
        {"tag": "card"},
        {"tags": "{no"},
        {"tags": "[1]"},
        {"start": "yesterday"},
        {"end": "9" * 30},
    ],
)
def test_a_wrong_search_is_400_in_the_envelope(api: httpx.Client, params: dict[str, str]) -> None:
    found = got(api, "/api/traces", 400, service="shop", **params)
    assert found["data"] is None
    assert found["errors"][0]["code"] == 400
    assert found["errors"][0]["msg"]


def test_an_answer_holds_so_many_spans_and_names_what_it_leaves_out(
    api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crannog.server.routes.jaeger._MAX_SPANS", 3)
    found = got(api, "/api/traces", **DAY)
    assert ids(found) == SECOND
    assert [(error["code"], error["traceID"]) for error in found["errors"]] == [(413, CHECKOUT)]
    found = got(api, "/api/traces", traceID=[CHECKOUT, SHORT])  # a trace alone is always shown
    assert ids(found) == FIRST
    assert found["errors"][0]["traceID"] == SHORT
    assert got(api, "/api/v3/traces", 413, **HOUR_V3)["error"]["httpCode"] == 413
    assert len(got(api, "/api/v3/trace-summaries", **HOUR_V3)["summaries"]) == 2


# -- v1: dependencies and metrics ----------------------------------------------------------------------------------


def test_dependencies_of_a_time(api: httpx.Client) -> None:
    end = T0 // 10**6 + 600_000
    found = got(api, "/api/dependencies", endTs=str(end), lookback="3600000")
    assert found == enveloped([{"parent": "shop", "child": "bank/eu", "callCount": 1}], 1)
    assert got(api, "/api/dependencies", endTs=str(end - 86_400_000), lookback="3600000") == enveloped([], 0)
    assert got(api, "/api/dependencies", 400, endTs="soon")["errors"][0]["code"] == 400


def test_metrics_are_a_family_of_gauges(api: httpx.Client) -> None:
    params = {
        "service": "shop",
        "endTs": str(T0 // 10**6 + 300_000),
        "lookback": "600000",
        "step": "60000",
        "ratePer": "600000",
    }
    found = got(api, "/api/metrics/calls", **params)
    assert (found["name"], found["type"]) == ("service_call_rate", "GAUGE")
    [line] = found["metrics"]
    assert line["labels"] == [{"name": "service_name", "value": "shop"}]
    assert [point["timestamp"] for point in line["metricPoints"]] == [
        f"2025-10-09T08:{minute}:00.000Z" for minute in range(48, 59)
    ]
    assert line["metricPoints"][5]["gaugeValue"] == {"doubleValue": pytest.approx(1 / 60)}
    before, after = [NO_VALUE] * 5, [NO_VALUE] * 4
    errors = got(api, "/api/metrics/errors", **params)
    assert values_of(errors["metrics"][0]) == [*before, 1.0, 0.0, *after]
    slow = got(api, "/api/metrics/latencies", quantile="0.95", **params)
    latencies = [pytest.approx(2000, rel=0.02), pytest.approx(5, rel=0.02)]  # milliseconds
    assert values_of(slow["metrics"][0]) == [*before, *latencies, *after]
    spread = {
        "service": "shop",
        "spanKind": ["server", "client", "internal"],
        "endTs": str(T0 // 10**6 + 60_000),
        "lookback": "120000",
        "step": "3600000",
    }
    for quantile, expected in (("0.2", 1), ("0.5", 250), ("0.75", 2000), ("0.9", 2000), ("1", 2000)):
        found = got(api, "/api/metrics/latencies", quantile=quantile, **spread)
        assert found["metrics"][0]["metricPoints"][0]["gaugeValue"]["doubleValue"] == pytest.approx(expected, rel=0.02)


def values_of(line: dict[str, Any]) -> list[Any]:
    return [point["gaugeValue"]["doubleValue"] for point in line["metricPoints"]]


def shown_average(line: dict[str, Any]) -> float:
    """The average that Jaeger's UI shows: it rounds each value, and ignores what is not a number."""
    numbers = [round(value, 2) for value in values_of(line) if not isinstance(value, str)]
    return round(sum(numbers) / len(numbers), 2)


def test_a_series_has_a_point_for_every_step(tmp_path: Any) -> None:
    hour = T0 // (3600 * S) * 3600 * S
    rare = [
        of(f"{number + 1:032x}", 1, None, start=hour + 600 * S, took=10**8, name="rare", kind=2)
        for number in range(600)
    ]
    steady = [
        of(f"{number + 1:032x}", 2, None, start=hour + number * 60 * S, took=10**6, name="steady", kind=2)
        for number in range(60)
    ]
    params = {
        "service": "shop",
        "endTs": str(hour // 10**6 + 3_600_000),
        "lookback": "3600000",
        "step": "60000",
        "groupByOperation": "true",
    }
    with serving_here(tmp_path) as server, httpx.Client(base_url=server.url) as api:
        server.service.lake.traces.write_otlp(request_of(*rare, *steady, service="shop").SerializeToString())

        def lines(metric: str, **more: str) -> dict[str, dict[str, Any]]:
            found = got(api, f"/api/metrics/{metric}", **{**params, **more})["metrics"]
            return {line["labels"][-1]["value"]: line for line in found}

        calls = lines("calls")
        assert [len(line["metricPoints"]) for line in calls.values()] == [60, 60]
        assert shown_average(calls["rare"]) == 0.17
        assert shown_average(calls["steady"]) == 0.02
        assert values_of(calls["rare"]).count(0.0) == 59
        latencies = lines("latencies", quantile="0.95")
        assert shown_average(latencies["rare"]) == pytest.approx(100, rel=0.02)
        assert values_of(latencies["rare"]).count(NO_VALUE) == 59
        assert values_of(lines("errors")["rare"]).count(NO_VALUE) == 59
        both = [
            lines("latencies", quantile=quantile, groupByOperation="false")["shop"]["metricPoints"]
            for quantile in ("0.5", "0.75", "0.95")
        ]
        assert [len(points) for points in both] == [60, 60, 60]
        assert len({tuple(point["timestamp"] for point in points) for points in both}) == 1


def test_the_points_of_a_response_are_limited(api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    params = {"service": "shop", "endTs": str(T0 // 10**6 + 300_000), "lookback": "600000", "groupByOperation": "true"}
    refused = got(api, "/api/metrics/calls", 400, **{**params, "lookback": "86400000", "step": "1000"})
    assert "the limit is 11,000" in refused["errors"][0]["msg"]
    monkeypatch.setattr("crannog.traces.jaeger.monitor.MAX_POINTS", 20)
    lines = got(api, "/api/metrics/calls", step="60000", **params)["metrics"]
    assert [len(line["metricPoints"]) for line in lines] == [6, 6]  # two minutes each
    assert sum(value * 120 for line in lines for value in values_of(line)) == pytest.approx(2)


def test_metrics_may_be_by_operation_kind_and_several_services(api: httpx.Client) -> None:
    window = {"endTs": str(T0 // 10**6 + 300_000), "lookback": "600000", "step": "60000"}
    found = got(
        api,
        "/api/metrics/calls",
        service=["shop", "bank/eu"],
        groupByOperation="true",
        spanKind=["SPAN_KIND_SERVER", "client"],
        **window,
    )
    assert found["name"] == "service_operation_call_rate"
    labels = [tuple(label["value"] for label in line["labels"]) for line in found["metrics"]]
    assert sorted(labels) == [
        ("bank/eu", "debit"),
        ("shop", "GET /checkout"),
        ("shop", "GET /health"),
        ("shop", "charge"),
    ]
    assert found["metrics"][0]["labels"][1]["name"] == "operation"
    assert got(api, "/api/metrics/calls", service="nobody", **window)["metrics"] == []
    assert got(api, "/api/metrics/minstep")["data"] == 1000
    for path, params, status in (
        ("calls", {}, 400),
        ("latencies", {"service": "shop"}, 400),
        ("latencies", {"service": "shop", "quantile": "high"}, 400),
        ("nothing", {"service": "shop"}, 404),
        ("calls", {"service": "shop", "spanKind": "odd"}, 400),
    ):
        assert got(api, f"/api/metrics/{path}", status, **params)["errors"][0]["code"] == status


# -- v3 ------------------------------------------------------------------------------------------------------------


def test_v3_services_and_operations(api: httpx.Client) -> None:
    assert got(api, "/api/v3/services") == {"services": ["bank/eu", "shop"]}
    assert got(api, "/api/v3/operations", service="bank/eu") == {
        "operations": [{"name": "debit", "spanKind": "server"}]
    }
    for name in ("span_kind", "spanKind"):
        assert got(api, "/api/v3/operations", service="shop", **{name: "internal"}) == {
            "operations": [{"name": "late", "spanKind": "internal"}]
        }
    assert got(api, "/api/v3/operations", 400)["error"]["httpCode"] == 400


def test_a_v3_trace_is_otlp_with_hexadecimal_ids(api: httpx.Client) -> None:
    found = got(api, f"/api/v3/traces/{SHORT}")
    [resource] = found["result"]["resourceSpans"]
    assert resource["resource"]["attributes"] == [{"key": "service.name", "value": {"stringValue": "shop"}}]
    [one] = resource["scopeSpans"][0]["spans"]
    assert (one["traceId"], one["spanId"], one["name"], one["kind"]) == (SHORT, "0000000000000009", "GET /health", 2)
    assert one["startTimeUnixNano"] == str(T0 + 60 * S)
    assert got(api, f"/api/v3/traces/{MISSING}", 404) == {"error": {"httpCode": 404, "message": "trace not found"}}
    assert got(api, "/api/v3/traces/xyz", 400)["error"]["httpCode"] == 400


def spans_of(found: dict[str, Any]) -> set[str]:
    return {
        one["name"]
        for resource in found["result"]["resourceSpans"]
        for scope in resource["scopeSpans"]
        for one in scope["spans"]
    }


@pytest.mark.parametrize(
    "params",
    [
        {**HOUR_V3, "query.service_name": "shop", "query.attributes": '{"card":"visa"}'},
        {**HOUR_V3, "query.serviceName": "shop", "query.operationName": "GET /checkout"},
        {
            "query.startTimeMin": "2025-10-09T08:00:00Z",
            "query.startTimeMax": "2025-10-09T10:00:00Z",
            "query.durationMin": "1s",
        },
        {"query.start_time_min": "2025-10-09T10:53:19 02:00", "query.start_time_max": "2025-10-09T10:53:21+02:00"},
        {**HOUR_V3, "query.duration_max": "2.1s", "query.duration_min": "2s"},
        {**HOUR_V3, "query.service_name": "bank/eu", "query.search_depth": "5"},
    ],
)
def test_a_v3_search_gives_whole_traces_in_either_spelling(api: httpx.Client, params: dict[str, str]) -> None:
    assert spans_of(got(api, "/api/v3/traces", **params)) == {"GET /checkout", "charge", "debit", "late"}


def test_a_v3_search_without_a_match_is_404_and_without_times_400(api: httpx.Client) -> None:
    assert got(api, "/api/v3/traces", 404, **HOUR_V3, **{"query.service_name": "nobody"})["error"]["httpCode"] == 404
    assert got(api, "/api/v3/trace-summaries", **HOUR_V3, **{"query.service_name": "nobody"}) == {"summaries": []}
    for wrong in (
        {},
        {**HOUR_V3, "query.start_time_min": "then"},
        {**HOUR_V3, "query.search_depth": "many"},
        {**HOUR_V3, "query.attributes": "{"},
    ):
        error = got(api, "/api/v3/traces", 400, **wrong)["error"]
        assert error["httpCode"] == 400
        assert error["message"]


def test_v3_summaries(api: httpx.Client) -> None:
    found = got(api, "/api/v3/trace-summaries", **HOUR_V3, **{"query.searchDepth": "2"})
    assert [one["traceId"] for one in found["summaries"]] == [SHORT, CHECKOUT]
    assert found["summaries"][1] == {
        "traceId": CHECKOUT,
        "rootServiceName": "shop",
        "rootOperationName": "GET /checkout",
        "minStartTimeUnixNano": str(T0),
        "maxEndTimeUnixNano": str(T0 + 2 * S + 1_999),
        "spanCount": 4,
        "errorSpanCount": 1,
        "orphanSpanCount": 1,
        "services": [
            {"name": "bank/eu", "spanCount": 1, "errorSpanCount": 0},
            {"name": "shop", "spanCount": 3, "errorSpanCount": 1},
        ],
    }


# -- before the first span -----------------------------------------------------------------------------------------


def test_an_empty_store_answers_with_nothing(tmp_path: Any) -> None:
    with serving_here(tmp_path) as server, httpx.Client(base_url=server.url) as api:
        assert got(api, "/api/services") == enveloped([], 0)
        assert got(api, "/api/traces", service="x") == enveloped([])
        assert got(api, "/api/dependencies") == enveloped([], 0)
        assert got(api, "/api/v3/services") == {"services": []}
        got(api, f"/api/traces/{CHECKOUT}", 404)
        assert json.loads(json.dumps(got(api, "/api/metrics/calls", service="x")))["metrics"] == []
