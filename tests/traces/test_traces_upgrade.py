"""A span table that an earlier Crannog made gets the columns it lacks, without a rewrite, and goes on as before."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import llm_samples as samples
from crannog.embedded import EmbeddedLake as Lake
from crannog.engine.maintenance.compact import compact
from crannog.engine.maintenance.fold import fold
from crannog.settings import Settings
from crannog.traces import span_table as spans_module
from crannog.traces.span_table import SCHEMA, SPANS
from derived_stand_in import stand_in_for_all
from flatten_reference import flat_by_objects
from lakes import live_files, log_entries, opened, read_delta_rs
from local_traces import LocalTraces
from otlp_samples import START, comparable, request_of, span, trace_id

ADDED = ("cost", "total_input_tokens", "total_output_tokens", "total_cost", "reported_end_ns")
FIRST = pa.schema([field for field in SCHEMA if field.name not in ADDED])


@pytest.fixture(params=["stand-in", pytest.param("spark", marks=pytest.mark.slow)])
def jobs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs on Spark too, where there is time."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    else:
        stand_in_for_all(monkeypatch)


@pytest.fixture
def lake(settings: Settings) -> Iterator[Lake]:
    with opened(settings) as lake:
        yield lake


def make_first_version(lake: Lake) -> None:
    """The table as the first version made it: two folded spans, and one staged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spans_module, "SCHEMA", FIRST)
        patch.setattr(spans_module, "_COLUMN_NAMES", frozenset(FIRST.names))
        table = spans_module.open_spans(lake.operations.tables)
        for number, trace in enumerate((1, 1, 2), 1):
            rows, _ = flat_by_objects(
                request_of(span(trace, number, name=f"old {number}", attributes={"user.id": "u"}))
            )
            table.stage(rows.select(FIRST.names))
            if number == 2:
                fold(table)
                LocalTraces(lake.operations.warehouse, lake.operations.tables).derive()
    assert not set(ADDED) & set(table.log.head().schema.names)


def root(lake: Lake) -> Path:
    return Path(lake.operations.warehouse.storage.uri(SPANS.path))


@pytest.mark.usefixtures("jobs")
def test_a_table_of_the_first_version_takes_spans_folds_derives_and_answers(lake: Lake, settings: Settings) -> None:
    make_first_version(lake)
    files = live_files(root(lake))
    assert [name for name in ADDED if name in pq.read_schema(files[0]).names] == []

    with opened(settings) as later:  # as a process that starts with the new version
        newer = LocalTraces(later.operations.warehouse, later.operations.tables)
        assert [one.name for one in newer.get(trace_id(1).hex()).spans] == ["old 1", "old 2"]
        assert newer.get(trace_id(2).hex()).spans[0].cost is None
        entries = log_entries(root(lake))
        evolved = entries[max(entries)]
        assert [one["commitInfo"]["operation"] for one in evolved if "commitInfo" in one] == ["EVOLVE"]
        assert not any("add" in action or "remove" in action for action in evolved), "no file was rewritten"
        assert live_files(root(lake)) == files

        sent = request_of(*samples.spans_of(samples.OPENINFERENCE, trace=3))
        backwards = span(4, 1, start=START + 10)
        backwards.end_time_unix_nano = START
        newer.write_otlp(sent.SerializeToString())
        newer.write_otlp(request_of(backwards).SerializeToString())
        check(later, newer)
        fold(newer.spans)
        newer.derive()
        check(later, newer)
        compact(newer.spans)
        check(later, newer)
        assert len(log_entries(root(lake))) - len(entries) >= 2
        assert comparable(
            ExportTraceServiceRequest.FromString(newer.export_protobuf([trace_id(3).hex()]))
        ) == comparable(sent)
        [point] = newer.metrics(step="1d")
        assert point.count == 6

    plain = read_delta_rs(root(lake))
    assert plain.num_rows == 6
    assert sorted(filter(None, plain["cost"].to_pylist())) == [0.5]
    assert sorted(filter(None, plain["reported_end_ns"].to_pylist())) == [START]

    check_first_process(LocalTraces(lake.operations.warehouse, lake.operations.tables))


def check(lake: Lake, traces: LocalTraces) -> None:
    found = lake.sql(
        "SELECT sum(cost) AS cost, sum(input_tokens) AS own, max(total_input_tokens) AS total, count(*) AS n FROM crannog.traces.spans"
    )
    assert [dict(row) for row in found.rows()] == [{"cost": 0.5, "own": 9, "total": 9, "n": 6}]
    agent, call = traces.get(trace_id(3).hex()).spans
    assert (agent.total_cost, call.cost) == (0.5, 0.5)
    assert traces.get(trace_id(4).hex()).spans[0].warnings
    assert [one.name for one in traces.get(trace_id(1).hex()).spans] == ["old 1", "old 2"]


def check_first_process(traces: LocalTraces) -> None:
    """The process that had the table open before sees what came, and may write on."""
    assert traces.get(trace_id(3).hex()).spans[1].cost == 0.5
    traces.write_otlp(request_of(span(5, 1, attributes={"gen_ai.usage.cost": 0.25})).SerializeToString())
    assert traces.get(trace_id(5).hex()).spans[0].cost == 0.25


def test_rows_without_the_new_columns_are_taken_by_a_table_that_has_them(lake: Lake) -> None:
    """As a process of the earlier version stages them, that runs on for a while."""
    traces = LocalTraces(lake.operations.warehouse, lake.operations.tables)
    traces.write_otlp(request_of(span(1, 1)).SerializeToString())
    rows, _ = flat_by_objects(request_of(span(1, 2, 1)))
    traces.spans.stage(rows.select(FIRST.names))
    assert [(one.name, one.cost) for one in traces.get(trace_id(1).hex()).spans] == [("op 1", None), ("op 2", None)]


@pytest.mark.usefixtures("jobs")
def test_many_at_once_add_the_columns_once(lake: Lake, settings: Settings) -> None:
    make_first_version(lake)
    with opened(settings) as first, opened(settings) as second, ThreadPoolExecutor(8) as threads:
        stores = [LocalTraces(each.operations.warehouse, each.operations.tables) for each in (first, second)]
        bodies = [request_of(span(10 + number, 1)).SerializeToString() for number in range(16)]
        sent = list(threads.map(lambda number: stores[number % 2].write_otlp(bodies[number]), range(16)))
    assert [one.accepted for one in sent] == [1] * 16
    operations = [
        one["commitInfo"]["operation"]
        for entry in log_entries(root(lake)).values()
        for one in entry
        if "commitInfo" in one
    ]
    assert operations.count("EVOLVE") == 1
    assert len(read_rows(lake)) == 3 + 16


def read_rows(lake: Lake) -> list[object]:
    return LocalTraces(lake.operations.warehouse, lake.operations.tables).spans.to_arrow()["span_name"].to_pylist()
