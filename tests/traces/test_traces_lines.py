"""Traces of any size go out in lines: the same spans as in one request, through every door, in a memory that is bounded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from crannog.cli.main import app
from crannog.embedded import EmbeddedLake
from crannog.engine.maintenance.fold import fold
from crannog.errors import CallerError, Cancelled, Forbidden, NotFound, Overloaded, TimedOut, TooLarge, Unavailable
from crannog.protocol.leases import live_leases
from crannog.remote.lake import RemoteLake
from crannog.server.auth import Tokens
from crannog.server.http_server import HttpServer
from crannog.settings import Settings
from crannog.traces import export, lookup
from crannog.traces.export import TraceExport
from crannog.traces.search.snapshot_reader import SnapshotReader
from derived_stand_in import stand_in_for_all
from doors import serving_here
from otlp_samples import START, request_of, span, trace_id
from test_jaeger import CHECKOUT, MISSING, SHORT, fill
from test_traces_bulk import ids_of
from test_traces_search import Model, filled
from test_traces_show import Store, many

LONG = trace_id(1).hex()
NDJSON = {"Accept": "application/x-ndjson"}
EXPORT = "/api/v1/traces/export"


def spans_in(document: dict[str, Any]) -> list[str]:
    """Each span of a request with its resource and its scope."""
    return [
        json.dumps([{**group, "scopeSpans": None}, {**scope, "spans": None}, one], sort_keys=True)
        for group in document.get("resourceSpans", ())
        for scope in group["scopeSpans"]
        for one in scope["spans"]
    ]


def spans_of(lines: Sequence[str]) -> list[str]:
    return [one for line in lines for one in spans_in(json.loads(line))]


def traces_in(line: str) -> set[str]:
    return {json.loads(one)[2]["traceId"] for one in spans_in(json.loads(line))}


def held(traces: Any) -> tuple[list[str], int]:
    """The questions that run, and the leases on the span table."""
    store = traces.store
    table = store.spans
    return store._running.ids(), len(list(live_leases(table.warehouse.storage, f"{table.log.own_folder}/leases")))


NOTHING: tuple[list[str], int] = ([], 0)


# -- the lines -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """Traces in files and staged, with spans that were sent again: in one request, in another one, and after a fold."""
    with pytest.MonkeyPatch.context() as patch:
        stand_in_for_all(patch)
        store = filled(Settings(warehouse=str(tmp_path_factory.mktemp("lines")), spark_memory_mb=1024))
        fold(store.spans)
    store.send(
        *(span(number, number * 10 + 1, start=START + number, attributes={"k": 2}) for number in range(0, 90, 3))
    )
    for again in range(3):
        store.send(
            *(
                span(1, number, 1, start=START + number, name=f"copy {again}")
                for number in range(1_000 + again * 5, 1_040)
            )
        )
    store.send(
        span(1, 1_039, name="first"),
        span(1, 1_039, name="second", start=START + 7),
        *[span(1, 1_038, name="alike")] * 3,
    )
    yield store
    store.warehouse.close()


@pytest.mark.parametrize(("most_spans", "most_rows"), [(5_000, 50_000), (7, 60)])
def test_lines_have_the_spans_that_one_request_has(
    store: Model, monkeypatch: pytest.MonkeyPatch, most_spans: int, most_rows: int
) -> None:
    monkeypatch.setattr(export, "SPANS_PER_LINE", most_spans)
    monkeypatch.setattr(lookup, "MAX_ROWS", most_rows)
    monkeypatch.setattr(lookup, "MAX_IDS", 50)
    ids = ids_of(store)[::-1]
    assert store.spans.snapshot().base.rows
    lines = list(store.export_lines([*ids, ids[0]]))
    found = spans_of(lines)
    assert len(found) == len(set(found)) > 200
    assert set(found) == set(spans_in(store.export(ids)))
    of_lines = [traces_in(line) for line in lines]
    assert all(len(each) == 1 for each in of_lines)
    assert list(dict.fromkeys(name for each in of_lines for name in each)) == ids
    sizes = [len(spans_in(json.loads(line))) for line in lines if LONG in line]
    assert all(size == most_spans for size in sizes[:-1])
    assert 1 <= sizes[-1] <= most_spans
    assert held(store) == NOTHING


def test_a_trace_comes_in_the_order_of_time(store: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "SPANS_PER_LINE", 7)
    starts = [
        [int(json.loads(one)[2]["startTimeUnixNano"]) for one in spans_in(json.loads(line))]
        for line in store.export_lines([LONG])
    ]
    assert all(max(line) <= min(after) for line, after in pairwise(starts))


def test_spans_with_much_in_them_make_shorter_lines(store: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "BYTES_PER_LINE", 20_000)
    wide = trace_id(5_000).hex()
    store.send(
        *(
            span(5_000, 50_000 + number, attributes={"text": "\u2028ä" * (10_000 if number == 9 else 500)})
            for number in range(40)
        )
    )
    lines = list(store.export_lines([wide]))
    assert len(lines) > 4
    assert sorted(spans_of(lines)) == sorted(spans_in(store.export([wide])))
    assert all(len(line.splitlines()) == 1 for line in lines)


def test_lines_that_are_kept_elsewhere_are_the_same_traces(
    store: Model, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "SPANS_PER_LINE", 7)
    ids = [LONG, *ids_of(store)[:15]]
    other = Store(settings)
    for line in store.export_lines(ids):
        assert not other.write_otlp(line.encode(), content_type="application/json").rejected
    assert [other.get(each) for each in ids] == [store.get(each) for each in ids]
    assert list(other.export_lines(ids)) == list(store.export_lines(ids))
    other.warehouse.close()


def test_what_is_wrong_is_told_before_the_first_line(store: Model, settings: Settings) -> None:
    with pytest.raises(NotFound, match=MISSING):
        store.export_lines([LONG, MISSING])
    for wrong in (["x"], LONG, [LONG, "0" * 32], [5]):
        with pytest.raises(CallerError):
            store.export_lines(wrong)
    assert list(store.export_lines([])) == []
    empty = Store(settings)
    with pytest.raises(NotFound, match=LONG):
        empty.export_lines([LONG])
    assert list(empty.export_lines([])) == []
    assert held(store) == NOTHING
    empty.warehouse.close()


def test_a_request_that_would_leave_spans_out_says_how_to_get_them(settings: Settings) -> None:
    small = Store(settings.model_copy(update={"trace_spans_limit": 3}))
    small.send(*(span(1, number) for number in range(1, 6)))
    for whole_export in (small.export, small.export_protobuf):
        with pytest.raises(TooLarge, match="export it as lines"):
            whole_export([LONG])
    assert len(spans_of(list(small.export_lines([LONG])))) == 5
    small.warehouse.close()
    result: Any = CliRunner().invoke(
        app, ["--warehouse", settings.warehouse, "traces", "export", LONG], env={"CRANNOG_TRACE_SPANS_LIMIT": "3"}
    )
    assert "export it as lines (NDJSON), or raise" in result.exception.message


# -- while they are read -------------------------------------------------------------------------------------------


@pytest.fixture
def single(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "SPANS_PER_LINE", 1)


def test_a_question_runs_and_its_files_are_kept_until_the_lines_are_closed(store: Model, single: None) -> None:
    lines = store.within(query_id="long").export_lines([LONG])
    next(lines)
    assert held(store) == (["long"], 1)
    lines.close()
    assert held(store) == NOTHING
    never_read = store.export_lines([LONG])
    assert held(store)[1] == 1
    del never_read
    assert held(store) == NOTHING


def test_between_lines_other_questions_are_asked_for_themselves(store: Model, single: None) -> None:
    one, other = store.within(query_id="one").export_lines([LONG]), store.within(query_id="other").export_lines([LONG])
    next(one), next(other)
    store.cancel("other")
    with pytest.raises(Cancelled, match="other"):
        list(other)
    assert store.get(LONG).spans
    assert store._running.ids() == ["one"]
    assert len(list(one)) == len(store.get(LONG).spans) - 1
    assert held(store) == NOTHING


def test_lines_end_in_the_middle_when_their_time_is_over(store: Model, single: None) -> None:
    lines = store.within(query_id="late").export_lines([LONG])
    next(lines)
    [running] = store._running._queries.values()
    running.time_is_over()
    with pytest.raises(TimedOut, match="late"):
        next(lines)
    assert held(store) == NOTHING


def test_a_read_that_works_on_its_first_line_is_ended(store: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, batches = threading.Event(), SnapshotReader.batches

    def endless(self: SnapshotReader, sql: str, size: int) -> Any:
        begun.set()
        return batches(self, "SELECT max(hash(i)) FROM range(1000000000000000) t(i)", size)

    monkeypatch.setattr(SnapshotReader, "batches", endless)
    lines = store.within(query_id="deep").export_lines([LONG])
    canceller = threading.Thread(target=lambda: (begun.wait(20), store.cancel("deep")))
    canceller.start()
    with pytest.raises(Cancelled):
        next(lines)
    canceller.join(20)
    assert held(store) == NOTHING


def test_more_than_may_be_spilled_is_told(settings: Settings) -> None:
    store = Store(settings.model_copy(update={"local_memory_mb": 64, "local_temp_mb": 1, "cache_bytes": 0}))
    rows = many(20_000, lambda n: n - 1 if n else None)
    place = rows.schema.get_field_index("search_blob")
    store.stage(rows.set_column(place, rows.schema.field(place), pa.repeat("x" * 5_000, rows.num_rows)), "wide")
    with pytest.raises(Overloaded, match="local_memory_mb"):
        next(store.export_lines([LONG]))
    assert held(store) == NOTHING
    store.warehouse.close()


# -- doors ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with serving_here(tmp_path_factory.mktemp("doors")) as server:
        fill(server.service.lake)
        for again in range(2):
            sent = [span(1, number, 1, start=START + number, name=f"copy {again}") for number in range(1, 30 + again)]
            server.service.lake.traces.write_otlp(request_of(*sent).SerializeToString())
        yield server


@pytest.fixture
def lake(server: HttpServer) -> EmbeddedLake:
    return server.service.lake


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "SPANS_PER_LINE", 4)


def test_every_door_gives_the_same_lines(server: HttpServer, lake: EmbeddedLake, few: None, tmp_path: Path) -> None:
    ids = [SHORT, LONG, CHECKOUT]
    lines = list(lake.traces.export_lines(ids))
    assert len(lines) == 1 + 8 + 1
    text = "".join(f"{line}\n" for line in lines)
    with RemoteLake(server.url) as remote, httpx.Client(base_url=server.url) as api:
        assert list(remote.traces.export_lines(ids)) == lines
        for encoding in ("identity", "gzip", "zstd"):
            answer = api.post(EXPORT, json={"trace_ids": ids}, headers={**NDJSON, "Accept-Encoding": encoding})
            assert (answer.status_code, answer.text, answer.headers["Content-Type"]) == (
                200,
                text,
                "application/x-ndjson",
            )
        assert api.get(f"/api/v1/traces/{LONG}/otlp", headers=NDJSON).text == "".join(
            f"{line}\n" for line in lines[1:-1]
        )
        assert api.get(f"/api/v1/traces/{LONG}/otlp").json()["resourceSpans"]
        assert api.post(EXPORT, json={"trace_ids": []}, headers=NDJSON).text == ""
        assert list(remote.traces.export_lines([])) == []
    here = ["--server", server.url, "traces", "export", "--lines"]
    assert CliRunner().invoke(app, [*here, *ids]).stdout == text
    file = tmp_path / "traces.jsonl"
    done = CliRunner().invoke(app, [*here, *ids, "--output", str(file)])
    assert done.stderr.startswith(f"3 traces written to {file}, ")
    assert file.read_text() == text
    other = ["--warehouse", str(tmp_path / "other"), "traces"]
    assert json.loads(CliRunner().invoke(app, [*other, "import", str(file), "--json"]).stdout)["accepted"] == len(
        spans_of(lines)
    )
    assert CliRunner().invoke(app, [*other, "export", "--lines", *ids]).stdout == text


def test_every_door_refuses_before_the_first_line(server: HttpServer, lake: EmbeddedLake, tmp_path: Path) -> None:
    with RemoteLake(server.url) as remote:
        for wrong, kind in (([LONG, MISSING], NotFound), (["x"], CallerError)):
            with pytest.raises(kind) as here:
                lake.traces.export_lines(wrong)
            with pytest.raises(kind) as there:
                remote.traces.export_lines(wrong)
            assert str(here.value) == str(there.value)
            answer = httpx.post(f"{server.url}{EXPORT}", json={"trace_ids": wrong}, headers=NDJSON)
            assert (answer.status_code, answer.json()["error"]["message"]) == (here.value.http_status, str(here.value))
        late = remote.traces.within(timeout_s=1e-9)
        with pytest.raises(TimedOut):
            late.export_lines([LONG])
    kept = tmp_path / "kept.jsonl"
    kept.write_text("kept")
    words = ["--server", server.url, "traces", "export", "--lines"]
    assert isinstance(CliRunner().invoke(app, [*words, MISSING, "-o", str(kept)]).exception, NotFound)
    assert kept.read_text() == "kept"
    for further in (["--format", "protobuf"], ["-o", "t.pb"]):
        assert "--lines writes JSON" in str(CliRunner().invoke(app, [*words, LONG, *further]).exception)
    assert held(lake.traces) == NOTHING


def test_lines_need_the_right_to_read(tmp_path: Path) -> None:
    with serving_here(tmp_path) as server:
        other = Tokens(server.service.lake.operations.warehouse.storage).create("other", ["admin:main"])
        server.service.tokens.refresh()
        with RemoteLake(server.url, other) as remote, pytest.raises(Forbidden):
            remote.traces.export_lines([CHECKOUT])


@pytest.fixture
def halted(monkeypatch: pytest.MonkeyPatch, few: None) -> threading.Event:
    """Let each export stop before its second line, until this is set."""
    go, parts = threading.Event(), TraceExport.parts

    def stopped(self: TraceExport) -> Iterator[Any]:
        for place, rows in enumerate(parts(self)):
            if place == 1:
                assert go.wait(20)
            yield rows

    monkeypatch.setattr(TraceExport, "parts", stopped)
    return go


def test_lines_come_while_the_server_still_reads_and_break_off_when_cancelled(
    server: HttpServer, lake: EmbeddedLake, halted: threading.Event
) -> None:
    with RemoteLake(server.url) as remote:
        lines = remote.traces.within(query_id="mine").export_lines([LONG])
        assert LONG in next(lines)
        remote.traces.cancel("mine")
        halted.set()
        with pytest.raises(Unavailable, match="did not complete"):
            list(lines)
        halted.clear()
        with httpx.stream(
            "POST", f"{server.url}{EXPORT}", json={"trace_ids": [LONG]}, headers={**NDJSON, "Crannog-Query-Id": "other"}
        ) as answer:
            assert answer.status_code == 200
            parts = answer.iter_raw()
            assert next(parts)
            lake.traces.cancel("other")
            halted.set()
            with pytest.raises(httpx.RemoteProtocolError):
                list(parts)
    assert held(lake.traces) == NOTHING


def test_a_client_that_goes_away_ends_the_question(
    server: HttpServer, lake: EmbeddedLake, halted: threading.Event
) -> None:
    with RemoteLake(server.url) as remote:
        lines = remote.traces.export_lines([LONG])
        next(lines)
        [running] = lake.trace_store._running._queries.values()
        lines.close()
        for _ in range(1_000):
            if running.is_cancelled:
                break
            threading.Event().wait(0.01)
        assert running.is_cancelled
        halted.set()
        for _ in range(1_000):
            if held(lake.traces) == NOTHING:
                break
            threading.Event().wait(0.01)
        assert held(lake.traces) == NOTHING


# -- size ----------------------------------------------------------------------------------------------------------

_CHILD = """
import sys
from crannog.cli.main import app
try:
    app(["--warehouse", sys.argv[1], "traces", "export", sys.argv[2], "--lines", "--output", sys.argv[3]])
except SystemExit as ended:
    assert not ended.code, ended.code
print([line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1])
"""


@pytest.mark.slow
def test_a_large_trace_goes_out_in_bounded_memory(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_for_all(monkeypatch)
    store = Store(settings)
    rows = many(300_000, lambda n: (n - 1) // 4 if n else None)
    for start in range(0, 300_000, 100_000):
        store.stage(rows.slice(start, 100_000), f"part-{start}")
    store.stage(rows.slice(0, 100_000), "again")
    fold(store.spans)
    store.warehouse.close()

    words = [sys.executable, "-c", _CHILD, settings.warehouse, LONG, str(tmp_path / "out.jsonl")]
    limits = {**os.environ, "CRANNOG_LOCAL_MEMORY_MB": "128", "CRANNOG_CACHE_BYTES": "0"}
    most_kib = int(subprocess.run(words, env=limits, stdout=subprocess.PIPE, text=True, check=True).stdout)
    with (tmp_path / "out.jsonl").open() as lines:
        found = [[json.loads(one)[2]["spanId"] for one in spans_in(json.loads(line))] for line in lines]
    assert [len(line) for line in found] == [5_000] * 60
    assert len({one for line in found for one in line}) == 300_000
    assert most_kib < 600 * 1024
