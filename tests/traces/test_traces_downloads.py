"""A trace as a file: OTLP, Jaeger's JSON and Perfetto's events, of any size and with any content."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crannog.errors import CallerError, NotFound
from crannog.remote.lake import RemoteLake
from crannog.settings import Settings
from crannog.traces import export
from crannog.traces.downloads import tracks_of
from crannog.traces.jaeger.responses import trace_v1
from doors import serving_here
from otlp_samples import START, request_of, span, trace_id
from test_traces_show import SOME, Store, shapes, tree_and_spans

NAME = trace_id(1).hex()
HOSTILE = {"<script>": "</script>\u2028", "bytes": b"\xff", "nan": float("nan"), "many": 2**63 - 1, "list": [1, b"x"]}


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    store = Store(settings)
    yield store
    store.warehouse.close()


def send(write: Any) -> None:
    front = [span(1, n, 1 if n > 1 else None, start=START + 10 * n, took=1_000 - n) for n in range(1, 8)]
    back = [span(1, 20, 2, start=START + 25, took=5_000, name="</script>\u2028\n", attributes=HOSTILE)]
    write(request_of(*front, service="front").SerializeToString())
    write(request_of(*back, service="bäck").SerializeToString())


def document(lines: Iterator[str]) -> Any:
    listed = list(lines)
    assert not any("\n" in line or "\u2028" in line for line in listed)
    return json.loads("\n".join(listed))


def test_each_form_has_all_spans(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    send(store.write_otlp)
    monkeypatch.setattr(export, "SPANS_PER_LINE", 3)  # several lines
    trace = store.get(NAME)
    otlp = document(store.download(NAME))
    parsed = [one for group in otlp["resourceSpans"] for scope in group["scopeSpans"] for one in scope["spans"]]
    assert sorted(one["spanId"] for one in parsed) == sorted(one.span_id for one in trace.spans)
    assert store.write_otlp(json.dumps(otlp).encode(), content_type="application/json").accepted == 8
    jaeger = document(store.download(NAME, "jaeger"))["data"][0]
    expected = trace_v1(trace)
    assert sorted(jaeger["processes"].values(), key=str) == sorted(expected["processes"].values(), key=str)
    key = lambda one: one["spanID"]  # noqa: E731
    without = [{**one, "processID": ""} for one in sorted(jaeger["spans"], key=key)]
    assert without == [{**one, "processID": ""} for one in sorted(expected["spans"], key=key)]
    perfetto = document(store.download(NAME, "perfetto"))
    events = [one for one in perfetto["traceEvents"] if one["ph"] == "X"]
    names = {one["pid"]: one["args"]["name"] for one in perfetto["traceEvents"] if one["ph"] == "M"}
    assert {(one["args"]["span_id"], names[one["pid"]], one["name"]) for one in events} == {
        (one.span_id, one.service, one.name) for one in trace.spans
    }
    assert perfetto["otherData"] == {"trace_id": NAME, "start_ns": str(trace.start_ns)}
    assert min(one["ts"] for one in events) == 0


@SOME
@given(shapes, st.integers(1, 3))
def test_events_of_a_thread_are_nested_or_follow_each_other(
    shape: list[tuple[int | None, int, int]], services: int
) -> None:
    tree, _ = tree_and_spans(shape)
    of_service = np.arange(len(tree), dtype=np.int32) % services
    tracks = tracks_of(tree, of_service)
    starts, ends = tree.arrays.starts.tolist(), tree.arrays.ends.tolist()
    for a in range(len(tree)):
        for b in range(a + 1, len(tree)):
            if tracks[a] == tracks[b]:
                assert of_service[a] == of_service[b]
                assert ends[a] <= starts[b] or ends[b] <= ends[a]


def test_over_http(tmp_path: Any) -> None:
    with serving_here(tmp_path) as server, RemoteLake(server.url) as remote:
        lake = server.service.lake
        send(lake.traces.write_otlp)
        with httpx.Client(base_url=f"{server.url}/api/v1/traces") as api:
            for form in ("otlp", "jaeger", "perfetto"):
                assert list(remote.traces.download(NAME, form)) == list(lake.traces.download(NAME, form))
                answer = api.get(f"/{NAME}/download", params={"format": form})
                assert answer.headers["content-type"] == "application/json"
                assert answer.headers["content-disposition"] == f'attachment; filename="trace-{NAME}.{form}.json"'
                assert answer.json() == document(lake.traces.download(NAME, form))
            for path, status in (
                (f"{NAME}/download?format=zip", 400),
                (f'{NAME}/download?format="%0d%0ax: y', 400),
                ("zz/download", 400),
                (f"{trace_id(9).hex()}/download", 404),
            ):
                assert api.get(f"/{path}").status_code == status


def test_errors_come_before_the_first_line(store: Store) -> None:
    with pytest.raises(NotFound):
        store.download(NAME)
    send(store.write_otlp)
    wrong: Any
    for wrong in ((NAME, "zip"), (NAME, None), ("zz", "otlp")):
        with pytest.raises(CallerError):
            store.download(*wrong)
