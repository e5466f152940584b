"""Expiry and erasure of traces: spans and everything derived from them go alike, and an erasure leaves no trace on disk."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crannog.api.reports import Cancellation
from crannog.embedded import EmbeddedLake as Lake
from crannog.engine.maintenance.fold import fold
from crannog.engine.maintenance.scheduler import Scheduler
from crannog.errors import CallerError, NotFound
from crannog.settings import Settings
from crannog.traces.derived.definitions import DERIVED_TABLES
from crannog.traces.retention import TraceMaintenance, expire_by_settings
from derived_stand_in import stand_in_for_all
from lakes import every_file, opened, root
from local_traces import LocalTraces
from span_samples import DAY, HOUR, NOON, Sent, body, counted, derived_by_hand, seen, stored, trace_id

TODAY = dt.date(2025, 10, 9)


@pytest.fixture
def lake(settings: Settings) -> Iterator[Lake]:
    with opened(settings) as lake:
        yield lake


@pytest.fixture
def traces(lake: Lake) -> LocalTraces:
    return LocalTraces(lake.operations.warehouse, lake.operations.tables)


@pytest.fixture(params=["stand-in", pytest.param("spark", marks=pytest.mark.slow)])
def jobs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs on Spark too, where there is time."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    else:
        stand_in_for_all(monkeypatch)


def said(content: bytes) -> str:
    """What a file says, unpacked if it is Parquet."""
    if not content.startswith(b"PAR1"):
        return repr(content)
    return repr(pq.read_table(pa.BufferReader(content)).to_pylist())


# -- without Spark ---------------------------------------------------------------------------------------------------


def test_where_no_span_was_kept_there_is_nothing_to_erase_and_no_table_is_made(lake: Lake, traces: LocalTraces) -> None:
    for query in (traces.erasure_plan, traces.erase):
        with pytest.raises(NotFound, match="nothing to erase"):
            query(where='user.id = "x"')
    assert lake.tables() == []


def test_the_plan_of_an_erasure_counts_and_changes_nothing(lake: Lake, traces: LocalTraces) -> None:
    spans = [
        Sent(1, 1, attributes={"user.id": "x"}),
        Sent(1, 2, 1, "api", start=NOON + DAY),
        Sent(2, 1, attributes={"user.id": "xy"}),
    ]
    traces.write_otlp(body(spans))
    before = every_file(root(lake, "crannog.traces.spans"))
    plan = traces.erasure_plan(where='user.id = "x"')
    assert (plan.traces, plan.spans) == (1, 2)
    assert plan.services == {"api": 1, "web": 1}
    assert plan.days == {TODAY: 1, TODAY + dt.timedelta(days=1): 1}
    assert traces.erasure_plan(where={"user.id": "x"}) == plan
    assert traces.erasure_plan(trace_ids=[trace_id(1).hex()]) == plan
    assert every_file(root(lake, "crannog.traces.spans")) == before


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ({}, CallerError),
        ({"trace_ids": ["zz"]}, CallerError),
        ({"trace_ids": "ab" * 16}, CallerError),
        ({"trace_ids": ["ab" * 16], "where": "error"}, CallerError),
        ({"where": ""}, CallerError),
        ({"where": {}}, CallerError),
        ({"where": "error"}, NotFound),
        ({"trace_ids": []}, NotFound),
    ],
)
def test_an_erasure_of_nothing_or_of_everything_is_refused(
    traces: LocalTraces, what: dict[str, Any], error: type[Exception]
) -> None:
    traces.write_otlp(body([Sent(1, 1)]))
    with pytest.raises(error):
        traces.erase(**what)


def test_expiry_takes_a_day_and_names(traces: LocalTraces) -> None:
    for wrong in ("2026-01-01", dt.datetime(2026, 1, 1, tzinfo=dt.UTC)):
        with pytest.raises(CallerError, match="must be a date"):
            traces.expire(wrong)  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="name of a service"):
        traces.expire(TODAY, service=[])


def test_the_scheduler_derives_after_folds_and_expires_where_days_are_set(settings: Settings) -> None:
    with opened(settings, trace_retention_days=30) as lake:
        traces = LocalTraces(lake.operations.warehouse, lake.operations.tables)
        traces.write_otlp(body([Sent(1, 1)]))
        extra_tasks = TraceMaintenance(lake.operations.tables)
        due = extra_tasks.due(traces.spans, Cancellation())
        assert [kind for kind, _, _ in due] == ["expire-traces"], "nothing is folded yet"
        lake.create_table("main.default.other", {"type": "object", "properties": {"a": {"type": "integer"}}})
        assert extra_tasks.due(lake.operations.tables.open(lake.operations.tables.names()[-1]), Cancellation()) == []


# -- with jobs ------------------------------------------------------------------------------------------------------


def test_expired_days_and_erased_traces_are_gone_from_everything(lake: Lake, traces: LocalTraces, jobs: None) -> None:
    before = NOON - 36 * HOUR - 1  # 2025-10-07, one nanosecond before midnight
    old = [Sent(1, 1, start=before), Sent(2, 1, start=before)]
    kept = [Sent(1, 2, 1, "api", start=before + 5), Sent(3, 1), Sent(3, 2, 1, "api", attributes={"user.id": "someone"})]
    personal = [
        Sent(4, 1, name="GET /users/secret-name", attributes={"user.id": "secret-id"}),
        Sent(4, 2, 1, "api", attributes={"note": "secret-note"}),
    ]
    traces.write_otlp(body([*old, *kept, *personal]))
    traces.derive()
    assert stored(lake) == derived_by_hand(counted([[*old, *kept, *personal]]))

    expiry = traces.expire(dt.date(2025, 10, 8))
    assert expiry.spans.rows_dropped == 2
    assert stored(lake) == seen(lake, traces) == derived_by_hand([*kept, *personal])

    traces.write_otlp(body([Sent(5, 1, attributes={"user.id": "secret-id"})]))
    receipt = traces.erase(where='user.id = "secret-id"', actor="dpo", reason="request 7")
    assert (receipt.keys, receipt.rows_erased) == (2, 3)
    assert all(place.after == 0 for place in receipt.places)
    named = {place.place for place in receipt.places if place.before}
    assert {"live files", "stage", "summaries: files of old versions", "attribute_keys: files of old versions"} <= named
    assert stored(lake) == seen(lake, traces) == derived_by_hand(kept)
    everything = every_file(root(lake, "crannog.traces"))
    words = ("secret-name", "secret-id", "secret-note", repr(trace_id(4))[2:-1], repr(trace_id(5))[2:-1])
    assert [(name, word) for name, content in everything.items() for word in words if word in said(content)] == []
    assert any("someone" in said(content) for content in everything.values()), "the search finds what is there"
    assert {name.partition("/")[0] for name in everything} == {
        "spans",
        *(derived.name.table for derived in DERIVED_TABLES),
    }


def test_what_killed_tasks_left_half_written_goes_with_an_erasure(lake: Lake, traces: LocalTraces, jobs: None) -> None:
    kept = [Sent(2, 1), Sent(2, 2, 1, "api", attributes={"user.id": "someone"})]
    traces.write_otlp(body([Sent(1, 1, attributes={"user.id": "secret-id"}), *kept]))
    traces.derive()
    halves = []
    for table in ("spans", *(derived.name.table for derived in DERIVED_TABLES)):
        folder = root(lake, f"crannog.traces.{table}")
        live = next((folder / "data").rglob("*.parquet")).read_bytes()
        [own] = (folder / "_crannog").iterdir()
        for place in (folder / "data", own / "jobs"):
            halves.append(place / "killed" / "0" / "part-1.parquet")
            halves[-1].parent.mkdir(parents=True)
            halves[-1].write_bytes(live[:-200])
    receipt = traces.erase(where='user.id = "secret-id"')
    assert receipt.rows_erased == 1
    assert [str(half) for half in halves if half.exists()] == []
    assert stored(lake) == seen(lake, traces) == derived_by_hand(kept)


def test_services_with_days_of_their_own_are_kept_by_these(settings: Settings, jobs: None) -> None:
    days = {"api": 1, "db": 30}
    with opened(settings, trace_retention_days=10, trace_service_retention_days=days, scheduler_tick_s=0.05) as lake:
        traces = LocalTraces(lake.operations.warehouse, lake.operations.tables)
        spans = [
            Sent(trace, span, None, service, start=NOON - age * DAY)
            for trace, age in enumerate((0, 1, 2, 9, 10, 11, 29, 31), start=1)
            for span, service in enumerate(("web", "api", "db"), start=1)
        ]
        traces.write_otlp(body(spans))
        traces.derive()
        expire_by_settings(lake.operations.tables, traces.spans, TODAY)
        limits = {"web": 10, "api": 1, "db": 30}
        kept = [sent for sent in spans if (TODAY - sent.day).days <= limits[sent.service]]
        assert stored(lake) == seen(lake, traces) == derived_by_hand(kept)

        traces.write_otlp(body([Sent(99, 1)]))
        fold(traces.spans)
        scheduler = Scheduler(
            lake.operations.warehouse,
            lake.operations.tables,
            lake.operations.control,
            extra_tasks=[TraceMaintenance(lake.operations.tables)],
        )
        assert "derive:crannog.traces.spans" in scheduler.run_due()
        tasks = {task["task_name"]: task for task in lake.tasks()}
        assert tasks["expire-traces:crannog.traces.spans"]["completed_at"] is not None
