"""How long the common paths are, in named calls inside the package and in modules: they do not grow unnoticed."""

from __future__ import annotations

import itertools
from pathlib import Path

import httpx
import pyarrow as pa

import crannog
from build_samples import partition
from call_counts import counted_calls, counting_new_threads, least
from crannog.builds import PartitionStatus, open_log
from doors import serving_here
from otlp_samples import request_of, span, trace_id

WARM = 40


def test_one_row_appended_in_the_process(tmp_path: Path) -> None:
    with crannog.connect(str(tmp_path)) as lake:
        lake.create_table("a.b.c", pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())]))
        table = lake.table("a.b.c")

        def append() -> None:
            table.append([{"id": 1, "name": "x", "amount": 1.0}])

        for _ in range(WARM):
            append()
        found = least(counted_calls(append) for _ in range(5))
    # One call for each column of the file, instead of pyarrow, which counts as none and takes three times as long.
    assert found.calls <= 85
    assert found.modules <= 17


def test_one_row_appended_over_http(tmp_path: Path) -> None:
    rows = [{"id": 1, "name": "x", "amount": 1.0}]
    with counting_new_threads() as counted, serving_here(tmp_path) as server, httpx.Client() as client:
        schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())])
        server.service.lake.create_table("a.b.c", schema)

        def append() -> None:
            client.post(f"{server.url}/api/v1/tables/a.b.c/rows", json=rows).raise_for_status()

        for _ in range(WARM):
            append()
        found = least(counted(append) for _ in range(5))
    assert found.calls <= 155
    assert found.modules <= 33


def test_ten_spans_received_over_http(tmp_path: Path) -> None:
    bodies = (
        request_of(*(span(trace, number + 1) for number in range(10))).SerializeToString()
        for trace in itertools.count(1)
    )
    with counting_new_threads() as counted, serving_here(tmp_path) as server, httpx.Client() as client:
        assert server.receivers is not None
        address = f"http://127.0.0.1:{server.receivers.http_port}/v1/traces"

        def receive() -> None:
            headers = {"Content-Type": "application/x-protobuf"}
            client.post(address, content=next(bodies), headers=headers).raise_for_status()

        for _ in range(WARM):
            receive()
        found = least(counted(receive) for _ in range(5))
    assert found.calls <= 175
    assert found.modules <= 30


def test_one_trace_of_ten_spans_by_its_id_over_http(tmp_path: Path) -> None:
    plain = {"Accept-Encoding": "identity"}
    with counting_new_threads() as counted, serving_here(tmp_path) as server, httpx.Client(headers=plain) as client:
        spans = request_of(*(span(1, number + 1) for number in range(10)))
        server.service.lake.traces.write_otlp(spans.SerializeToString())

        def get() -> None:
            client.get(f"{server.url}/api/v1/traces/{trace_id(1).hex()}/spans").raise_for_status()

        for _ in range(WARM):
            get()
        found = least(counted(get) for _ in range(5))
    assert found.calls <= 122
    assert found.modules <= 31


def test_one_build_event_appended_to_a_delta_log(tmp_path: Path) -> None:
    with open_log(f"delta://{tmp_path}") as log:
        events = (partition("b", f"p{number}", PartitionStatus.BUILDING) for number in itertools.count())
        for _ in range(WARM):
            log.append_event(next(events))
        found = least(
            counted_calls(lambda event=event: log.append_event(event)) for event in itertools.islice(events, 5)
        )
    assert found.calls <= 120
    assert found.modules <= 20
