"""The trace store: durable at the acknowledgement, each request once, a trace by its id from stage and base alike."""

from __future__ import annotations

import datetime as dt
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as settings_of
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan

from crannog.api.table_requests import RunSql
from crannog.api.traces import Span
from crannog.engine.maintenance.fold import fold
from crannog.engine.sql.queries import Queries
from crannog.engine.tables import Tables
from crannog.engine.warehouse import Warehouse
from crannog.errors import CallerError, NotFound, Overloaded, Refused, TooLarge
from crannog.names import TableName
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from crannog.traces.export import request_of_rows
from crannog.traces.ingest.span_writer import SpanWriter
from crannog.traces.span_table import SCHEMA, SPANS
from crannog.traces.trace import spans_in_tree_order
from flatten_reference import flat_by_objects
from lakes import actions, footers, live_files, read_delta_rs
from local_traces import LocalTraces
from otlp_samples import START, comparable, recorded_by_sdk, request_of, requests, span, span_id, trace_id

DAY_NS = 86_400 * 10**9


class Store(LocalTraces):
    """A trace store with a warehouse of its own."""

    def __init__(self, settings: Settings) -> None:
        self.warehouse = Warehouse(settings.warehouse, settings)
        super().__init__(self.warehouse, Tables(self.warehouse))

    @property
    def root(self) -> Path:
        return Path(self.warehouse.storage.uri(SPANS.path))


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    store = Store(settings)
    yield store
    store.warehouse.close()


def send(store: LocalTraces, *spans: OtlpSpan, **more: Any) -> Any:
    return store.write_otlp(request_of(*spans, **more).SerializeToString())


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def staged_files(store: Store) -> list[pa.Table]:
    """What stands on disk, read behind the store's back."""
    return [pq.read_table(file) for file in sorted(store.root.glob("_crannog/*/stage/*.parquet"))]


# -- writing ---------------------------------------------------------------------------------------------------


def test_spans_are_on_disk_when_the_call_returns_and_another_process_sees_them(
    store: Store, settings: Settings
) -> None:
    outcome = send(store, span(1, 1), span(1, 2, 1))
    assert (outcome.accepted, outcome.rejected, outcome.message, outcome.duplicate) == (2, 0, "", False)
    [file] = staged_files(store)
    assert file["span_name"].to_pylist() == ["op 1", "op 2"]
    other = Store(settings)
    assert [one.name for one in other.get(trace_id(1).hex()).spans] == ["op 1", "op 2"]
    send(other, span(1, 3, 1))
    assert len(store.get(trace_id(1).hex()).spans) == 3
    other.warehouse.close()


def test_the_same_request_is_kept_once_however_it_is_packed(store: Store) -> None:
    import gzip

    body = request_of(span(1, 1)).SerializeToString()
    assert not store.write_otlp(body).duplicate
    again = store.write_otlp(gzip.compress(body), encoding="gzip")
    assert (again.duplicate, again.accepted) == (True, 1)
    assert sum(file.num_rows for file in staged_files(store)) == 1


def test_good_spans_are_kept_beside_bad_ones(store: Store) -> None:
    bad = span(1, 2)
    bad.trace_id = b"short"
    outcome = send(store, span(1, 1), bad)
    assert (outcome.accepted, outcome.rejected) == (1, 1)
    assert "trace id" in outcome.message
    only_bad = send(store, bad)
    assert (only_bad.accepted, only_bad.rejected, only_bad.duplicate) == (0, 1, False)


def test_a_refused_body_leaves_nothing_behind(store: Store, settings: Settings) -> None:
    for body in (b"\xff\xff", b"\x0a"):
        with pytest.raises(CallerError):
            store.write_otlp(body)
    with pytest.raises(CallerError):
        store.write_otlp("text")  # type: ignore[arg-type]
    assert not store.root.exists()
    small = Store(settings.model_copy(update={"otlp_request_bytes": 1024}))
    with pytest.raises(TooLarge):
        send(small, span(1, 1, name="x" * 2000))
    small.warehouse.close()


def test_a_full_stage_says_so_and_keeps_nothing_halfway(settings: Settings) -> None:
    store = Store(settings.model_copy(update={"staged_rows_limit": 3}))
    send(store, span(1, 1), span(1, 2))
    with pytest.raises(Overloaded):
        send(store, span(1, 3), span(1, 4))
    assert len(store.get(trace_id(1).hex()).spans) == 2
    store.warehouse.close()


def test_a_large_request_is_staged_in_parts_and_a_retry_completes_it(settings: Settings) -> None:
    spans = [span(1, number) for number in range(1, 26)]
    tight = Store(settings.model_copy(update={"group_commit_rows": 10, "staged_rows_limit": 20}))
    with pytest.raises(Overloaded):
        send(tight, *spans)
    tight.warehouse.close()
    store = Store(settings.model_copy(update={"group_commit_rows": 10}))
    assert not send(store, *spans).duplicate
    assert send(store, *spans).duplicate
    assert sum(file.num_rows for file in staged_files(store)) == 25
    store.warehouse.close()


def test_many_senders_at_once_lose_nothing(store: Store) -> None:
    def sender(number: int) -> None:
        for turn in range(5):
            send(store, *[span(number, turn * 10 + place) for place in range(1, 4)])

    threads = [threading.Thread(target=sender, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(store.get(trace_id(number).hex()).spans) for number in range(8)] == [15] * 8


def test_requests_of_one_group_each_get_their_own_outcome(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    send(store, span(1, 1))
    first_waits, all_are_here = threading.Event(), threading.Event()
    convert = SpanWriter._convert

    def held(writer: SpanWriter, calls: list[Any]) -> None:
        sizes.append(len(calls))
        if len(sizes) == 1:
            first_waits.set()
            assert all_are_here.wait(30)
        convert(writer, calls)

    sizes: list[int] = []
    monkeypatch.setattr(SpanWriter, "_convert", held)
    good, again = request_of(span(3, 1), span(3, 2)), request_of(span(1, 1))
    half_bad = request_of(span(4, 1), OtlpSpan(trace_id=b"short", span_id=span_id(1)))
    with ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(send, store, span(2, 1))]
        assert first_waits.wait(30)
        bodies = [request.SerializeToString() for request in (good, again, half_bad)]
        sent += [pool.submit(store.write_otlp, body) for body in bodies]
        group = store._writer._group
        wait_until(lambda: len(group._waiting) == 3)
        all_are_here.set()
        outcomes = [one.result() for one in sent]
    assert sizes == [1, 3]
    assert [(outcome.accepted, outcome.rejected, outcome.duplicate) for outcome in outcomes] == [
        (1, 0, False),
        (2, 0, False),
        (1, 0, True),
        (1, 1, False),
    ]
    files = staged_files(store)
    assert [file.num_rows for file in files] == [1, 1, 3], "one file for the group, without what was stored before"


def test_a_table_of_that_name_that_is_none_of_ours_is_refused(store: Store) -> None:
    Tables(store.warehouse).create(TableName("crannog", "traces", "spans"), pa.schema([("a", pa.int64())]))
    with pytest.raises(Refused, match="is not a span table"):
        send(store, span(1, 1))


@settings_of(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(requests, min_size=3, max_size=6))
def test_whatever_was_sent_comes_back_from_disk(sent: list[ExportTraceServiceRequest]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        own = Settings(warehouse=folder)
        store, kept = Store(own), []
        for request in {one.SerializeToString(): one for one in sent}.values():
            store.write_otlp(request.SerializeToString())
            kept += comparable(request_of_rows(flat_by_objects(request)[0]))
        store.warehouse.close()
        again = Store(own)
        assert comparable(request_of_rows(again.spans.to_arrow())) == sorted(kept)
        again.warehouse.close()


def test_a_huge_attribute_is_kept_whole(store: Store) -> None:
    text = 'say "ten million" \\ | ' * 500_000
    send(store, span(1, 1, attributes={"input.value": text}))
    [found] = store.get(trace_id(1).hex()).spans
    assert found.attributes["input.value"] == text
    assert json.loads(found.input or "") == text


def test_a_table_that_another_process_dropped_is_made_again(store: Store, settings: Settings) -> None:
    send(store, span(1, 1))
    other = Warehouse(settings.warehouse, settings)
    Tables(other).drop(SPANS)
    with pytest.raises(NotFound, match="not found"):
        store.get(trace_id(1).hex())
    send(store, span(1, 1))
    Tables(other).drop(SPANS)
    assert send(store, span(1, 2)).accepted == 1
    assert [one.name for one in store.get(trace_id(1).hex()).spans] == ["op 2"]
    assert store.services() == ["shop"]
    other.close()


# -- a trace ---------------------------------------------------------------------------------------------------


def test_a_trace_by_its_id_is_a_tree(store: Store) -> None:
    ms = 1_000_000
    send(
        store,
        span(1, 5, 2, start=START + 7 * ms),
        span(1, 3, 1, start=START + 5 * ms),
        span(1, 2, 1, start=START + 1 * ms, attributes={"n": 1, "d": 1.0, "list": [1, "x"], "bytes": b"\xff"}),
        span(1, 4, 2, start=START + 6 * ms),
        span(2, 1),
    )
    send(store, span(1, 1, took=20 * ms, kind=2), span(1, 9, 99, start=START - 5), service="other")
    trace = store.get(trace_id(1).hex())
    shown = [(int(one.span_id, 16), one.depth, one.orphan) for one in trace.spans]
    assert shown == [(1, 0, False), (2, 1, False), (4, 2, False), (5, 2, False), (3, 1, False), (9, 0, True)]
    second = trace.spans[1]
    assert second.attributes == {"n": 1, "d": 1.0, "list": [1, "x"], "bytes": b"\xff"}
    assert isinstance(second.attributes["d"], float)
    assert (second.name, second.service, second.parent_span_id) == ("op 2", "shop", f"{1:016x}")
    assert (second.start_ns, second.end_ns, second.duration_ns) == (START + ms, START + 2 * ms + 1, ms + 1)
    assert (trace.spans[0].kind, trace.spans[0].resource) == ("SERVER", {"service.name": "other"})
    assert trace.services == ("other", "shop")
    assert trace.root is trace.spans[0]
    assert not trace.truncated


def test_events_links_status_and_payloads_come_with_it(store: Store) -> None:
    from opentelemetry.trace import Link, Status, StatusCode

    def work(tracer: Any) -> None:
        with tracer.start_as_current_span("outer") as outer:
            outer.add_event("step", {"size": 3})
            outer.set_status(Status(StatusCode.ERROR, "bad"))
            with tracer.start_as_current_span("chat", links=[Link(outer.get_span_context(), {"why": "x"})]) as chat:
                chat.set_attributes(
                    {"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 5, "input.value": "hi", "user.id": "u"}
                )

    request = recorded_by_sdk("llm", work)
    store.write_otlp(request.SerializeToString())
    found = store.get(request.resource_spans[0].scope_spans[0].spans[0].trace_id.hex())
    outer, chat = found.spans
    assert (outer.status, outer.status_message, outer.is_error, found.error_count) == ("ERROR", "bad", True, 1)
    [event] = outer.events
    assert (event.name, event.attributes) == ("step", {"size": 3})
    assert outer.start_ns <= event.time_ns <= outer.end_ns
    [link] = chat.links
    assert (link.trace_id, link.span_id, link.attributes) == (found.trace_id, outer.span_id, {"why": "x"})
    assert (chat.depth, chat.model, chat.input_tokens, chat.input, chat.user_id) == (1, "m", 5, '"hi"', "u")


def test_a_span_sent_again_is_shown_once_as_it_was_sent_last(store: Store) -> None:
    send(store, span(1, 1, name="first"), span(1, 2, 1))
    send(store, span(1, 1, name="again"))
    assert [one.name for one in store.get(trace_id(1).hex()).spans] == ["again", "op 2"]
    send(store, span(3, 1, name="short", took=1), span(3, 1, name="long", took=9), span(3, 1, name="middle", took=5))
    assert [one.name for one in store.get(trace_id(3).hex()).spans] == ["long"]


def test_traces_that_are_not_there(store: Store) -> None:
    unknown = trace_id(77).hex()
    with pytest.raises(NotFound, match=f"trace {unknown} not found"):
        store.get(unknown)
    assert (store.services(), store.operations("x")) == ([], [])
    assert not store.root.exists(), "reading makes no table"
    send(store, span(1, 1))
    with pytest.raises(NotFound):
        store.get(unknown)
    for bad in ("", "xyz", "0" * 32, "g" * 32, unknown + "00", unknown[:-1], None, 7):
        with pytest.raises(CallerError, match="trace id") as caught:
            store.get(bad)  # type: ignore[arg-type]
        assert not isinstance(caught.value, NotFound)


def test_ids_are_read_in_either_case_and_short_ones_as_jaeger_prints_them(store: Store) -> None:
    one = span(1, 1)
    one.trace_id = bytes(8) + b"\xab" * 8
    send(store, one)
    for text in ("0" * 16 + "ab" * 8, "AB" * 8, "ab" * 8):
        assert len(store.get(text).spans) == 1


def test_cycles_and_great_depth_end_in_a_tree() -> None:
    def in_order(parents: dict[int, int | None]) -> list[Span]:
        rows = [
            dict.fromkeys(SCHEMA.names)
            | {
                "trace_id": trace_id(1), "span_id": span_id(number), "parent_span_id": None if parent is None else span_id(parent),
                "status_code": 0, "start_ns": number, "end_ns": number + 1,
            }
            for number, parent in parents.items()
        ]  # fmt: skip
        return spans_in_tree_order(pa.Table.from_pylist(rows))

    cycle = in_order({1: 3, 2: 1, 3: 2, 4: 4, 5: 3, 6: None})
    shown = [(int(one.span_id, 16), one.depth, one.in_cycle) for one in cycle]
    assert shown == [(6, 0, False), (1, 0, True), (2, 1, False), (3, 2, False), (5, 3, False), (4, 0, True)]
    deep = in_order({number: number - 1 or None for number in range(1, 5_000)})
    assert [one.depth for one in deep] == list(range(4_999))


def test_a_trace_with_too_many_spans_is_cut_and_says_so(settings: Settings) -> None:
    store = Store(settings.model_copy(update={"trace_spans_limit": 10}))
    send(store, *[span(1, number) for number in range(1, 30)])
    trace = store.get(trace_id(1).hex())
    assert (len(trace.spans), trace.truncated) == (10, True)
    store.warehouse.close()


def test_services_and_operations_are_those_of_the_spans(store: Store) -> None:
    send(store, span(1, 1, name="b", kind=2), span(1, 2, name="a", kind=3), span(1, 3, name="a", kind=2), service="web")
    send(store, span(1, 4, name="c"), service="it's")
    assert store.services() == ["it's", "web"]
    assert store.operations("web") == ["a", "b"]
    assert store.operations("web", kind="CLIENT") == ["a"]
    assert store.operations_by_kind("web") == [("a", "CLIENT"), ("a", "SERVER"), ("b", "SERVER")]
    assert store.operations("it's") == ["c"]
    assert store.operations("none") == []


# -- in SQL ----------------------------------------------------------------------------------------------------

ODD = ["10", "1", "a|k=1|", "x\\p", "x|", "", "b=c", "Łódź", "it's", "\\"]
MATCHES = (
    "SELECT span_name, match_attr(search_blob, 'k', span_name) AS own, match_attr(search_blob, 'k', '1') AS one,"
    " match_attr(search_blob, 'k', 'a|k=1|') AS odd, match_attr(search_blob, trace_state, 'x') AS by_key,"
    " match_attr(search_blob, 'k', status_message) AS nothing FROM crannog.traces.spans"
    " WHERE partition_date = DATE '2025-10-09' AND match_attr(search_blob, concat('odd=', 'key'), if(match_attr(search_blob, 'z', '0'), 'no', '|yes|'))"
    " ORDER BY span_id"
)


def odd_spans() -> list[OtlpSpan]:
    """Each has its own name as its value of k, and a key that needs escaping."""
    return [
        span(
            50,
            5000 + number,
            name=value,
            trace_state="back\\slash|=",
            attributes={"k": value, "odd=key": "|yes|", "back\\slash|=": "x"},
        )
        for number, value in enumerate(ODD)
    ]


def check_matches(answer: pa.Table) -> None:
    assert answer.to_pylist() == [
        {
            "span_name": value,
            "own": True,
            "one": value == "1",
            "odd": value == "a|k=1|",
            "by_key": True,
            "nothing": None,
        }
        for value in ODD
    ]


def test_match_attr_finds_whole_attributes_in_sql(store: Store) -> None:
    send(store, *odd_spans(), span(50, 1))
    queries = Queries(store.warehouse, store._tables)
    check_matches(queries.sql(RunSql(MATCHES, engine="local")).to_arrow())
    with pytest.raises(CallerError, match="match_attr takes 3 arguments, got 2"):
        queries.sql(RunSql("SELECT match_attr(search_blob, 'k') AS m FROM crannog.traces.spans"))


# -- on Spark --------------------------------------------------------------------------------------------------


def test_a_fold_keeps_every_span_in_the_promised_layout(store: Store, spark: SparkRuntime) -> None:
    """Two days, a late span, every kind of value; read back by the store, by plain Delta readers and from the footers."""
    rich = span(1, 1, attributes={"text": "x", "n": 1, "nested": {"a": [1, b"z"]}, "nan": float("nan")})
    rich.events.add(name="e", time_unix_nano=START + 1).attributes.extend(rich.attributes)
    rich.links.add(trace_id=trace_id(2), span_id=span_id(9), trace_state="a=b", flags=3)
    rich.status.code, rich.status.message = 2, "bad"
    many = [span(3 + number // 5, number, start=START + number * 1000) for number in range(10, 500)]
    late = span(1, 2, 1, start=START - DAY_NS)
    first = request_of(rich, *many)
    store.write_otlp(first.SerializeToString())
    send(store, late, *odd_spans())
    before = store.get(trace_id(1).hex())
    exported_before = store.export_protobuf([trace_id(1).hex()])
    table = store.spans

    report = fold(table)
    assert (report.staged_rows, report.final_rows) == (502, 502)
    assert table.snapshot().tail.row_count == 0
    assert store.get(trace_id(1).hex()) == before
    exported, expected = (
        comparable(ExportTraceServiceRequest.FromString(data))
        for data in (store.export_protobuf([trace_id(1).hex()]), exported_before)
    )
    assert exported == expected
    folded = read_delta_rs(store.root)
    own = pc.and_(pc.greater_equal(folded["start_ns"], START), pc.equal(folded["trace_state"], ""))
    assert comparable(request_of_rows(folded.filter(own))) == comparable(first)
    assert store.services() == ["shop"]

    send(store, span(1, 1, name="again"))
    assert [one.name for one in store.get(trace_id(1).hex()).spans] == ["again", "op 2"], "stage and base together"
    assert store.write_otlp(first.SerializeToString()).duplicate, "folded, and still known"

    dates = {add["partitionValues"]["partition_date"] for _, add in actions(store.root, "add")}
    day = dt.datetime.fromtimestamp(START // 10**9, dt.UTC).date()
    assert dates == {str(day), str(day - dt.timedelta(days=1))}
    for file, meta in zip(live_files(store.root), footers(store.root), strict=True):
        assert len(set(pq.read_table(file, columns=["partition_date"])["partition_date"].to_pylist())) == 1
        for group in range(meta.num_row_groups):
            chunks = {
                chunk.path_in_schema: chunk for chunk in map(meta.row_group(group).column, range(meta.num_columns))
            }
            assert chunks["trace_id"].bloom_filter_offset is not None
            for name in ("service_name", "span_name"):
                assert chunks[name].has_dictionary_page or chunks[name].bloom_filter_offset is not None
        with duckdb.connect() as connection:
            probes = connection.execute(
                "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, 'trace_id', ?)", [str(file), b"\x01" * 16]
            ).fetchall()
        assert all(excluded for [excluded] in probes)
    [(_, stats)] = [
        (v, json.loads(add["stats"]))
        for v, add in actions(store.root, "add")
        if add["partitionValues"]["partition_date"] == str(day)
    ]
    assert {"trace_hi", "start_ns", "start_time", "service_name", "duration_ns"} <= set(stats["minValues"])

    check_matches(Queries(store.warehouse, store._tables).sql(RunSql(MATCHES, engine="spark")).to_arrow())
