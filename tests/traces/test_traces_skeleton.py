"""The skeleton of a trace: the columns of the whole tree, equal to what windows show, in types that hold any trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import given

from crannog.api.traces import Skeleton, SpanFlag
from crannog.errors import CallerError, NotFound, TooLarge
from crannog.remote.lake import RemoteLake
from crannog.settings import Settings
from crannog.traces.tree.skeleton import skeleton_table
from crannog.traces.tree.tree_building import build_tree, span_arrays_of
from doors import serving_here
from otlp_samples import START, request_of, span, trace_id
from test_traces_show import SOME, Store, many, shapes, tree_and_spans

ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    store = Store(settings)
    yield store
    store.warehouse.close()


def send_odd_trace(write: Any) -> str:
    """A trace with an error, skew, an orphan, a cycle and two roots; the second half comes later."""
    first = [
        span(1, 1, start=START, took=100_000),
        span(1, 2, 1, start=START - 5_000, took=50_000),  # starts before its parent
        span(1, 3, 1, start=START + 50_000, took=90_000),  # ends after it
    ]
    second = [
        span(1, 4, 99, start=START + 10_000, took=1_999),
        span(1, 5, 6, start=START + 20_000, took=5_000),
        span(1, 6, 5, start=START + 21_000, took=1_000, status={"code": 2}),
        span(1, 7, start=START + 30_000, took=1_000),
    ]
    write(request_of(*first, service="a").SerializeToString())
    write(request_of(*second, service="b").SerializeToString())
    return trace_id(1).hex()


def flags_of(shown: Any) -> SpanFlag:
    one = shown.span
    return (
        SpanFlag.ERROR * one.is_error
        | SpanFlag.ROOT * (one.parent_span_id is None)
        | SpanFlag.ORPHAN * one.orphan
        | SpanFlag.IN_CYCLE * one.in_cycle
        | SpanFlag.STARTS_EARLY * shown.starts_early
        | SpanFlag.ENDS_LATE * shown.ends_late
        | SpanFlag.CRITICAL * (shown.critical_ns > 0)
    )


def test_a_skeleton_has_what_windows_show(store: Store) -> None:
    name = send_odd_trace(store.write_otlp)
    view, found = store.show(name), store.skeleton(name)
    assert found.table.to_pylist() == [
        {
            "depth": one.depth,
            "start_us": (one.span.start_ns - view.start_ns) // 1_000,
            "duration_us": one.span.duration_ns // 1_000,
            "name": one.span.name,
            "service": one.span.service,
            "flags": flags_of(one),
        }
        for one in view.spans
    ]
    assert {SpanFlag(value) for value in found.table["flags"].to_pylist()} >= {SpanFlag.ORPHAN, SpanFlag.ERROR}
    assert (found.trace_id, found.start_ns, found.end_ns, found.spans, found.is_complete) == (
        name, view.start_ns, view.end_ns, 7, True,
    )  # fmt: skip
    types = [str(field.type) for field in found.table.schema]
    text = "dictionary<values=string, indices=uint8, ordered=0>"
    assert types == ["uint16", "uint32", "uint32", text, text, "uint8"]


@SOME
@given(shapes)
def test_depths_alone_give_the_parents_back(shape: list[tuple[int | None, int, int]]) -> None:
    tree, spans = tree_and_spans(shape)
    depths = skeleton_table(tree)["depth"].to_pylist()
    last: dict[int, int] = {}
    for row, (depth, one) in enumerate(zip(depths, spans, strict=True)):
        last[depth] = row
        if depth:
            assert spans[last[depth - 1]].span_id == one.parent_span_id


def test_types_grow_with_the_trace(store: Store) -> None:
    hour = 3_600 * 10**9
    store.send(span(2, 1, took=3 * hour), *(span(2, n, 1, start=START + hour, took=n) for n in range(2, 400)))
    long = store.skeleton(trace_id(2).hex()).table
    assert [str(long.schema.field(name).type) for name in ("start_us", "duration_us")] == ["double", "double"]
    assert (long["duration_us"][0].as_py(), long["start_us"][1].as_py()) == (3 * hour // 1_000, hour // 1_000)
    assert long.schema.field("name").type.index_type == pa.uint16()
    deep = skeleton_table(build_tree(span_arrays_of(trace_id(1), many(70_000, lambda n: n - 1 if n else None))))
    assert deep.schema.field("depth").type == pa.uint32()
    assert deep["depth"][-1].as_py() == 69_999


def test_the_etag_changes_with_the_trace_and_not_with_others(store: Store) -> None:
    name = send_odd_trace(store.write_otlp)
    before = store.skeleton(name).etag
    store.send(span(2, 1))
    assert store.skeleton(name).etag == before
    store.send(span(1, 8, 1))
    assert store.skeleton(name).etag != before


def test_limits_and_wrong_arguments(settings: Settings) -> None:
    store = Store(settings.model_copy(update={"trace_tree_spans_limit": 5}))
    with pytest.raises(NotFound):
        store.skeleton(trace_id(1).hex())
    store.send(*(span(1, number) for number in range(1, 9)))
    name = trace_id(1).hex()
    cut = store.skeleton(name)
    assert (cut.spans, cut.is_complete) == (5, False)
    with pytest.raises(TooLarge, match="5 spans, more than the limit of 4"):
        store.skeleton(name, limit=4)
    with pytest.raises(NotFound):
        store.skeleton(trace_id(3).hex())
    wrong: Any
    for wrong in (0, -1, True, "x", 10**12):
        with pytest.raises(CallerError):
            store.skeleton(name, limit=wrong)
    with pytest.raises(CallerError):
        store.skeleton("metrics")
    store.warehouse.close()


def test_over_http(tmp_path: Any) -> None:
    with serving_here(tmp_path) as server, RemoteLake(server.url) as remote:
        lake = server.service.lake
        name = send_odd_trace(lake.traces.write_otlp)
        here, there = lake.traces.skeleton(name), remote.traces.skeleton(name)
        assert isinstance(there, Skeleton)
        assert here.table.equals(there.table, check_metadata=True)
        with pytest.raises(TooLarge):
            remote.traces.skeleton(name, limit=3)
        with httpx.Client(base_url=f"{server.url}/api/v1/traces") as api:
            first = api.get(f"/{name}/skeleton")
            assert first.headers["content-type"] == ARROW
            assert pa.ipc.open_stream(first.content).read_all().equals(here.table)
            again = {"If-None-Match": f'"x", {first.headers["etag"]}'}
            known = api.get(f"/{name}/skeleton", headers=again)
            assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", first.headers["etag"])
            plain = api.get(f"/{name}/skeleton", headers={"Accept": "application/json", **again})
            assert plain.status_code == 200
            document = plain.json()
            assert document["columns"]["flags"] == here.table["flags"].to_pylist()
            assert (document["spans"], document["complete"], document["start_ns"]) == (7, True, here.start_ns)
            lake.traces.write_otlp(request_of(span(1, 8, 1)).SerializeToString())
            assert api.get(f"/{name}/skeleton", headers=again).status_code == 200
            for path, status in (
                ("zz/skeleton", 400),
                (f"{trace_id(9).hex()}/skeleton", 404),
                (f"{name}/skeleton?limit=x", 400),
                (f"{name}/skeleton?limit=1", 413),
            ):
                answer = api.get(f"/{path}", headers={"If-None-Match": '"x"'})
                assert answer.status_code == status, path
                assert set(answer.json()["error"]) == {"code", "message", "retry_after_s"}
