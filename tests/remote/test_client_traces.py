"""Traces through a server: the same verbs, values and errors as embedded ones; and the same over plain HTTP."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crannog.api.traces import ErasurePlan, SpanPage, Trace, TracePage, TraceView, WriteOutcome
from crannog.embedded import EmbeddedLake
from crannog.errors import CallerError, CrannogError, Forbidden, NotFound, Unauthorized
from crannog.formats.json_values import from_lossless_json, to_lossless_json
from crannog.remote.lake import RemoteLake
from crannog.spark.session import SparkRuntime
from crannog.traces.ingest.decode import json_of_request
from doors import serving_here
from otlp_samples import START, request_of, span, trace_id
from servers import made_token
from test_jaeger import CHECKOUT, MISSING, SHORT, T0, S, fill


@dataclass(frozen=True)
class Sides:
    """One lake, from inside and through its server."""

    embedded: EmbeddedLake
    remote: RemoteLake
    url: str

    def same(self, ask: Callable[[Any], Any]) -> Any:
        """Ask both sides and return the answer, which must be the same, of the same types."""
        here, there = ask(self.embedded.traces), ask(self.remote.traces)
        assert type(here) is type(there)
        assert repr(here) == repr(there)
        assert to_lossless_json(here) == to_lossless_json(there)
        return there

    def both_raise(self, ask: Callable[[Any], Any]) -> CrannogError:
        """Ask both sides, which must raise the same."""
        errors = []
        for traces in (self.embedded.traces, self.remote.traces):
            with pytest.raises(CrannogError) as raised:
                ask(traces)
            errors.append(raised.value)
        assert type(errors[0]) is type(errors[1])
        return errors[1]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with serving_here(tmp_path_factory.mktemp("client")) as server, RemoteLake(server.url) as remote:
        fill(server.service.lake)
        server.service.lake.traces.write_otlp(llm_request().SerializeToString())
        yield Sides(server.service.lake, remote, server.url)


LLM = trace_id(920).hex()


def llm_request() -> Any:
    """A trace of an agent that calls a model, with a session and a user on its root only."""
    chat = {
        "gen_ai.request.model": "m1",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "hello"}]}]),
        "gen_ai.output.messages": json.dumps(
            [{"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "f", "arguments": {"a": 1}}]}]
        ),
    }
    return request_of(
        span(920, 1, attributes={"session.id": "s1", "user.id": "u1"}), span(920, 2, 1, attributes=chat), service="llm"
    )


# -- the same ------------------------------------------------------------------------------------------------------


def test_a_trace_is_the_same_value_with_bytes_nan_and_large_numbers(sides: Sides) -> None:
    odd = {
        "bytes": b"\x00\xff", "nan": float("nan"), "inf": -float("inf"), "large": 2**63 - 1, "small": -(2**63), "double": 1.0, "tiny": 5e-324,
        "map": {"$bytes": "no bytes"}, "nested": [b"x", {"$map": 1}, {"a": b"y", "b": None}], "none": None, "text": 'a"\u2028\x00🦀', "$double": "NaN",
        "date": "2026-01-01",
    }  # fmt: skip
    made = span(900, 1, attributes=odd)
    made.events.add(name="e", time_unix_nano=START + 1, attributes=made.attributes)
    made.links.add(trace_id=trace_id(901), span_id=b"12345678", attributes=made.attributes)
    sides.embedded.traces.write_otlp(request_of(made, service="odd").SerializeToString())
    found = sides.same(lambda traces: traces.get(trace_id(900).hex()))
    assert isinstance(found, Trace)
    one = found.spans[0]
    for attributes in (one.attributes, one.events[0].attributes, one.links[0].attributes):
        assert {key: value for key, value in attributes.items() if key != "nan"} == {
            key: value for key, value in odd.items() if key != "nan"
        }
        assert attributes["nan"] != attributes["nan"]
        assert [type(attributes[key]) for key in ("bytes", "double", "large", "date")] == [bytes, float, int, str]
    sides.same(lambda traces: traces.search_spans(service="odd"))
    assert sides.remote.traces.get(CHECKOUT).spans[1] == sides.embedded.traces.get(CHECKOUT).spans[1]


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"service": "shop", "operation": "GET /checkout"},
        {"attributes": {"http.status_code": 500}},
        {"attributes": {"http.status_code": "500"}},
        {"attributes": {"http.status_code": [500, "402"], "paid": True}},
        {"attributes": {"card": ("visa",)}},
        {"where": 'duration > 1s or service = "bank/eu"', "order": "longest"},
        {"text": "card refused"},
        {"has_errors": False},
        {"min_duration_ms": 0.5, "max_duration_ms": 10},
        {"start": T0 + 1, "end": T0 + 100 * S},
        {"start": "2025-10-09T08:53:20.000000001Z"},
        {"start": dt.datetime(2025, 10, 9, 10, 53, 21, tzinfo=dt.timezone(dt.timedelta(hours=2)))},
        {"end": dt.datetime(2025, 10, 9, 8, 54)},  # without a zone it is UTC, on both sides
        {"limit": 1, "count": True},
    ],
)
def test_searches_find_the_same(sides: Sides, query: dict[str, Any]) -> None:
    page = sides.same(lambda traces: traces.search(**query))
    assert isinstance(page, TracePage)
    of_spans = {
        name: value for name, value in query.items() if name not in ("has_errors", "min_duration_ms", "max_duration_ms")
    }
    assert isinstance(sides.same(lambda traces: traces.search_spans(**of_spans)), SpanPage)
    assert page == sides.embedded.traces.search(**query)


def test_pages_go_both_ways_across_both_sides(sides: Sides) -> None:
    first = sides.remote.traces.search(limit=1)
    second = sides.embedded.traces.search(limit=1, cursor=first.next_cursor)
    assert sides.remote.traces.search(limit=1, cursor=first.next_cursor) == second
    assert sides.remote.traces.search(limit=1, cursor=second.previous_cursor).traces == first.traces


@pytest.mark.parametrize(
    "ask",
    [
        lambda traces: traces.services(),
        lambda traces: traces.operations("shop"),
        lambda traces: traces.operations("shop", "CLIENT"),
        lambda traces: traces.operations("bank/eu"),
        lambda traces: traces.operations_by_kind("shop"),
        lambda traces: traces.show(CHECKOUT),
        lambda traces: traces.show(CHECKOUT, 1, 2),
        lambda traces: traces.show(CHECKOUT, depth=1),
        lambda traces: traces.show(CHECKOUT, under="0000000000000002"),
        lambda traces: traces.show(CHECKOUT, limit=2, around="0000000000000003"),
        lambda traces: traces.place(CHECKOUT, "0000000000000003"),
        lambda traces: traces.skeleton(CHECKOUT).as_dict(),
        lambda traces: traces.find(CHECKOUT, "debit").as_dict(),
        lambda traces: traces.find(CHECKOUT, where="error", attributes={"http.status_code": 500}).as_dict(),
        lambda traces: traces.compare(CHECKOUT, SHORT),
        lambda traces: traces.compare(CHECKOUT, CHECKOUT, 1, tolerance=0.5),
        lambda traces: traces.metrics(),
        lambda traces: traces.metrics("shop", step="10s", group_by=["operation", "http.status_code"]),
        lambda traces: traces.metrics(where={"card": "visa"}),
        lambda traces: traces.metrics(of="traces", group_by="operation", quantiles=[0.9, 0.999]),
        lambda traces: traces.metrics(kind="server", start=T0, end=T0 + 60 * S, group_by="service"),
        lambda traces: traces.heatmap(),
        lambda traces: traces.heatmap(service="shop", times=3, start=T0, end=T0 + 60 * S, min_duration_ms=1),
        lambda traces: traces.differences("error"),
        lambda traces: traces.differences(min_duration_ms=100, limit=2, values=1, service="shop"),
        lambda traces: traces.sessions(),
        lambda traces: traces.usage(),
        lambda traces: traces.usage("1m", ["model", "user", "http.status_code"], where="not error", start=T0),
        lambda traces: traces.messages(LLM),
        lambda traces: traces.messages(LLM, "0000000000000002", max_chars=3),
        lambda traces: traces.dependencies(),
        lambda traces: traces.dependencies(dt.datetime(2025, 10, 9, tzinfo=dt.UTC), T0 + 60 * S),
        lambda traces: traces.attribute_keys(),
        lambda traces: traces.attribute_keys(dt.date(2025, 10, 9), dt.date(2025, 10, 9)),
        lambda traces: traces.complete("service"),
        lambda traces: traces.complete("value", key="http.status_code"),
        lambda traces: traces.complete("operation", "GET", where="error", service="shop"),
        lambda traces: traces.export([SHORT, CHECKOUT]),
        lambda traces: traces.export_protobuf([CHECKOUT]),
        lambda traces: traces.erasure_plan(where={"user.id": "u1"}),
        lambda traces: traces.erasure_plan([CHECKOUT]),
    ],
)
def test_every_question_has_the_same_answer(sides: Sides, ask: Callable[[Any], Any]) -> None:
    assert sides.same(ask)


def test_answers_are_the_values_they_were(sides: Sides) -> None:
    view = sides.remote.traces.show(SHORT)
    assert isinstance(view, TraceView)
    assert view == sides.embedded.traces.show(SHORT)
    plan = sides.remote.traces.erasure_plan([CHECKOUT])
    assert isinstance(plan, ErasurePlan)
    assert plan == sides.embedded.traces.erasure_plan([CHECKOUT])
    assert list(plan.days) == [dt.date(2025, 10, 9)]
    assert sides.remote.traces.metrics() == sides.embedded.traces.metrics()


@pytest.mark.parametrize(
    ("ask", "kind"),
    [
        (lambda traces: traces.get(MISSING), NotFound),
        (lambda traces: traces.get("zz"), CallerError),
        (lambda traces: traces.get("a/b"), CallerError),
        (lambda traces: traces.show("metrics"), CallerError),
        (lambda traces: traces.show(MISSING), NotFound),
        (lambda traces: traces.show(CHECKOUT, under="00000000000000ff"), NotFound),
        (lambda traces: traces.show(CHECKOUT, -1), CallerError),
        (lambda traces: traces.show(CHECKOUT, 1, around="0000000000000003"), CallerError),
        (lambda traces: traces.show(CHECKOUT, around="00000000000000ff"), NotFound),
        (lambda traces: traces.place(CHECKOUT, "00000000000000ff"), NotFound),
        (lambda traces: traces.place(CHECKOUT, "zz"), CallerError),
        (lambda traces: traces.place(CHECKOUT, "ff"), CallerError),
        (lambda traces: traces.place(MISSING, "0000000000000003"), NotFound),
        (lambda traces: traces.skeleton(MISSING), NotFound),
        (lambda traces: traces.skeleton("a/b"), CallerError),
        (lambda traces: traces.find(CHECKOUT), CallerError),
        (lambda traces: traces.find(MISSING, "x"), NotFound),
        (lambda traces: traces.find(CHECKOUT, where="service ="), CallerError),
        (lambda traces: traces.find(CHECKOUT, "x", limit=0), CallerError),
        (lambda traces: traces.export([MISSING]), NotFound),
        (lambda traces: traces.export_protobuf([MISSING]), NotFound),
        (lambda traces: traces.search(where="service ="), CallerError),
        (lambda traces: traces.search(service=5), CallerError),
        (lambda traces: traces.search(attributes={"k": b"x"}), CallerError),
        (lambda traces: traces.search(attributes={"k": float("nan")}), CallerError),
        (lambda traces: traces.search(attributes=[1]), CallerError),
        (lambda traces: traces.search(limit=0), CallerError),
        (lambda traces: traces.search(cursor="no"), CallerError),
        (lambda traces: traces.search_spans(order="most_errors"), CallerError),
        (lambda traces: traces.complete("anything"), CallerError),
        (lambda traces: traces.metrics(step="soon"), CallerError),
        (lambda traces: traces.heatmap(times=0), CallerError),
        (lambda traces: traces.heatmap(where="service ="), CallerError),
        (lambda traces: traces.differences(), CallerError),
        (lambda traces: traces.differences("error", values=0), CallerError),
        (lambda traces: traces.differences(selected="service ="), CallerError),
        (lambda traces: traces.sessions(limit=0), CallerError),
        (lambda traces: traces.sessions(offset=-1), CallerError),
        (lambda traces: traces.usage("soon"), CallerError),
        (lambda traces: traces.usage(group_by=["a"] * 9), CallerError),
        (lambda traces: traces.messages(MISSING), NotFound),
        (lambda traces: traces.messages(LLM, "00000000000000ff"), NotFound),
        (lambda traces: traces.messages(LLM, max_chars=0), CallerError),
        (lambda traces: traces.compare(CHECKOUT, MISSING), NotFound),
        (lambda traces: traces.compare(CHECKOUT, SHORT, tolerance=-1), CallerError),
        (lambda traces: traces.write_otlp("text"), CallerError),
        (lambda traces: traces.write_otlp(b"\xff\xff"), CallerError),
        (lambda traces: traces.erasure_plan(), CallerError),
        (lambda traces: traces.erase("abc"), CallerError),
        (lambda traces: traces.erase(where=""), CallerError),
    ],
)
def test_every_error_is_the_same(sides: Sides, ask: Callable[[Any], Any], kind: type[CrannogError]) -> None:
    assert type(sides.both_raise(ask)) is kind


# -- spans in ------------------------------------------------------------------------------------------------------


def test_spans_are_written_through_the_server(sides: Sides) -> None:
    body = request_of(span(910, 1), service="written").SerializeToString()
    assert sides.remote.traces.write_otlp(body) == WriteOutcome(1, 0, "", duplicate=False)
    # Whichever way it comes again, it is kept once.
    assert sides.embedded.traces.write_otlp(body).duplicate
    assert sides.remote.traces.write_otlp(gzip.compress(body), encoding="gzip").duplicate
    text = json.dumps(json_of_request(request_of(span(911, 1)))).encode()
    assert sides.remote.traces.write_otlp(text, content_type="application/json").accepted == 1
    zipkin = json.dumps(
        [{"traceId": trace_id(912).hex(), "id": "1", "name": "get", "timestamp": START // 1000}]
    ).encode()
    assert sides.remote.traces.write_zipkin(zipkin).accepted == 1
    bad = span(913, 1)
    bad.span_id = b""
    outcome = sides.remote.traces.write_otlp(request_of(bad, span(913, 2)).SerializeToString())
    assert (outcome.accepted, outcome.rejected) == (1, 1)
    assert [
        sides.embedded.traces.get(trace_id(number).hex()).spans[0].span_id[-1] for number in (910, 911, 912, 913)
    ] == ["1", "1", "1", "2"]


def test_what_goes_out_of_one_server_comes_into_another(sides: Sides, tmp_path: Path) -> None:
    with serving_here(tmp_path) as other, RemoteLake(other.url) as there:
        assert there.traces.services() == []
        assert there.traces.write_otlp(sides.remote.traces.export_protobuf([CHECKOUT])).accepted == 4
        assert repr(there.traces.get(CHECKOUT)) == repr(sides.remote.traces.get(CHECKOUT))


# -- plain HTTP ----------------------------------------------------------------------------------------------------


def test_traces_are_asked_for_by_plain_addresses(sides: Sides) -> None:
    with httpx.Client(base_url=f"{sides.url}/api/v1") as api:
        page = api.get(
            "/traces", params={"service": "shop", "attribute": ["http.status_code=500", "paid=true"], "count": "true"}
        ).json()
        assert ([one["trace_id"] for one in page["traces"]], page["total"]) == ([CHECKOUT], 1)
        assert (
            api.get("/traces", params={"start": str(T0 + 59 * S), "end": "2025-10-09T08:55:00Z"}).json()["traces"][0][
                "trace_id"
            ]
            == SHORT
        )
        shown = api.get(f"/traces/{CHECKOUT}", params={"limit": "2"}).json()
        assert [(one["name"], one["depth"], one["service"]) for one in shown["spans"]] == [
            ("GET /checkout", 0, "shop"),
            ("charge", 1, "shop"),
        ]
        assert (shown["next_offset"], shown["spans"][0]["children"]) == (2, 1)
        assert shown["spans"][0]["attributes"]["raw"] == {"$bytes": "AP8="}
        assert len(api.get(f"/traces/{CHECKOUT}/spans").json()["spans"]) == 4
        assert api.get(f"/traces/{SHORT}/otlp").json()["resourceSpans"]
        assert (
            api.get(f"/traces/{SHORT}/otlp", headers={"Accept": "application/x-protobuf"}).headers["content-type"]
            == "application/x-protobuf"
        )
        assert "shop" in api.get("/services").json()
        assert api.get("/services/bank%2Feu/operations").json() == ["debit"]
        assert api.get("/dependencies").json() == [{"parent": "shop", "child": "bank/eu", "calls": 1, "errors": 0}]
        assert api.get("/traces/metrics", params={"service": "bank/eu"}).json()[0]["count"] == 1
        assert api.get("/traces/complete", params={"what": "value", "key": "card"}).json() == [
            {"value": "visa", "count": 1}
        ]
        assert api.get("/traces/compare", params={"before": CHECKOUT, "after": SHORT}).json()["spans_before"] == 4
        for path, status in (
            ("/traces/zz", 400),
            (f"/traces/{MISSING}", 404),
            ("/traces?limit=0", 400),
            ("/traces?limit=x", 400),
            ("/traces?attribute=x", 400),
            ("/traces/attributes?first=x", 400),
        ):
            answer = api.get(path)
            assert answer.status_code == status
            assert set(answer.json()["error"]) == {"code", "message", "retry_after_s"}
        for document in ({"unknown": 1}, [1], {"limit": "many"}):
            assert api.post("/traces/search", json=document).status_code == 400
        assert api.post("/traces/expire", json={"before": "soon"}).status_code == 400
        paths = api.get(f"{sides.url}/api/openapi.json").json()["paths"]
        assert {"/api/v1/traces", "/api/v1/traces/{trace_id}", "/api/v1/traces/search", "/api/v1/traces/erase"} <= set(
            paths
        )
        assert not any(path.startswith("/api/v3") for path in paths)


def test_rights_are_asked_for_at_every_door(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    reader = made_token(tmp_path / "warehouse", "reader", "read:crannog.traces")
    other = made_token(tmp_path / "warehouse", "other", "admin:main")
    with serving_here(tmp_path) as server:
        with RemoteLake(server.url) as nobody, pytest.raises(Unauthorized):
            nobody.traces.services()
        with RemoteLake(server.url, reader) as lake:
            assert lake.traces.services() == []
            for forbidden in (
                lambda: lake.traces.write_otlp(b""),
                lambda: lake.traces.erasure_plan([CHECKOUT]),
                lambda: lake.traces.expire(dt.date(2026, 1, 1)),
            ):
                with pytest.raises(Forbidden):
                    forbidden()
        with RemoteLake(server.url, other) as lake:
            for verb in (
                lake.traces.services,
                lake.traces.search,
                lake.traces.metrics,
                lambda: lake.traces.get(CHECKOUT),
            ):
                with pytest.raises(Forbidden):
                    verb()
        with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {other}"}) as api:
            assert api.get("/api/services").json()["errors"][0]["code"] == 403
            assert api.get("/api/v3/services").json()["error"]["httpCode"] == 403


# -- the parts -----------------------------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["$bytes", "$map", "$double"]), inner),
    max_leaves=8,
)


@given(anything)
def test_any_value_comes_back_from_json_as_it_was(value: Any) -> None:
    back = from_lossless_json(json.loads(json.dumps(to_lossless_json(value), allow_nan=False)))
    assert repr(back) == repr(value)


def test_a_client_loads_no_engine() -> None:
    code = (
        "import sys; from crannog.remote.lake import RemoteLake; RemoteLake('http://127.0.0.1:9').traces;"
        " print([name for name in ('crannog.engine', 'crannog.traces', 'duckdb', 'opentelemetry', 'pyspark') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_server_loads_no_decoder_before_it_needs_one() -> None:
    code = (
        "import sys, crannog.server.app;"
        " print([name for name in ('crannog.traces.store', 'ptars', 'opentelemetry.proto', 'grpc') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# -- with Spark ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_traces_are_derived_expired_and_erased_through_the_server(tmp_path: Path, spark: SparkRuntime) -> None:
    steps: list[str] = []
    with serving_here(tmp_path) as server, RemoteLake(server.url) as remote:
        fill(server.service.lake)
        remote.traces.write_otlp(
            request_of(span(1, 1, start=START - 90 * 86_400 * S), service="old").SerializeToString()
        )
        report = remote.traces.derive(progress=lambda step, _: steps.append(step))
        assert report.rows_written
        assert steps
        expiry = remote.traces.expire(dt.date(2025, 10, 1), progress=lambda step, _: steps.append(step))
        assert expiry.spans.rows_dropped == 1
        assert remote.traces.services() == ["bank/eu", "shop"]
        receipt = remote.traces.erase(where='user = "u1"', actor="tests", reason="asked for")
        assert (receipt.actor, receipt.reason, receipt.rows_erased) == ("tests", "asked for", 4)
        assert all(place.after == 0 for place in receipt.places)
        with pytest.raises(NotFound):
            remote.traces.get(CHECKOUT)
        assert [one.trace_id for one in remote.traces.search().traces] == [SHORT]
        with pytest.raises(NotFound):
            remote.traces.erase(where='user = "u1"')
