"""Derived tables: what Spark writes, what DuckDB works out and what Python computes from the spans are the same."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as tried
from hypothesis import strategies as st

from crannog.embedded import EmbeddedLake as Lake
from crannog.engine.maintenance.compact import compact
from crannog.engine.maintenance.unreferenced_files import LogEntry
from crannog.errors import Refused
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from crannog.traces.derived.base_changes import added_files_and_stale_days
from crannog.traces.derived.definitions import DERIVED_TABLES, RED
from derived_stand_in import stand_in_for_all
from lakes import live_files, log_entries, opened, read_delta_rs, root
from local_traces import LocalTraces
from span_samples import DAY, HOUR, MINUTE, NOON, Sent, any_spans, body, counted, derived_by_hand, seen, stored

SLACK = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


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


def write(traces: LocalTraces, requests: list[list[Sent]], *new: list[Sent]) -> None:
    """Send requests, and note those that are kept: one that was sent before is not kept again."""
    for request in new:
        outcome = traces.write_otlp(body(request))
        assert outcome.rejected == 0
        if not outcome.duplicate:
            requests.append(request)


# -- without Spark ---------------------------------------------------------------------------------------------------


@tried(max_examples=12, deadline=None, suppress_health_check=SLACK, phases=[Phase.reuse, Phase.generate])
@given(st.lists(any_spans(), min_size=1, max_size=3))
def test_staged_spans_count_at_once_and_once_each(requests: list[list[Sent]]) -> None:
    with tempfile.TemporaryDirectory() as folder, opened(Settings(warehouse=folder)) as lake:
        traces = LocalTraces(lake.operations.warehouse, lake.operations.tables)
        kept: list[list[Sent]] = []
        write(traces, kept, *requests)
        assert seen(lake, traces) == derived_by_hand(counted(kept))


def test_a_table_of_another_make_is_refused(lake: Lake, traces: LocalTraces) -> None:
    traces.write_otlp(body([Sent(1, 1)]))
    lake.operations.tables.create(RED.name, RED.columns)
    with pytest.raises(Refused, match="was not created by Crannog"):
        traces.metrics()


def entry(operation: str, added: dict[str, str], removed: dict[str, str] | None = None) -> LogEntry:
    actions: list[dict[str, object]] = [{"commitInfo": {"operation": operation, "timestamp": 0}}]
    actions += [{"add": {"path": path, "partitionValues": {"partition_date": day}}} for path, day in added.items()]
    actions += [
        {"remove": {"path": path, "partitionValues": {"partition_date": day}}} for path, day in (removed or {}).items()
    ]
    return LogEntry(1, "", tuple(actions))


def test_only_entries_that_take_rows_away_make_a_day_stale() -> None:
    fresh, stale = added_files_and_stale_days(
        [
            entry("FOLD", {"data/a%20b": "2026-01-01", "data/b": "2026-01-02"}),
            entry("COMPACT", {"data/c": "2026-01-01"}, {"data/a%20b": "2026-01-01"}),
            entry("EXPIRE", {}, {"data/z": "2025-12-31"}),
            entry("SOMETHING NEW", {"data/d": "2026-01-02"}, {"data/b": "2026-01-02"}),
        ]
    )
    assert {str(day): files for day, files in fresh.items()} == {"2026-01-01": ("data/a b",), "2026-01-02": ("data/b",)}
    assert {str(day) for day in stale} == {"2025-12-31", "2026-01-02"}


def test_spans_at_the_ends_of_time_count(lake: Lake, traces: LocalTraces) -> None:
    latest = 2**63 - 1
    request = [
        Sent(1, 1, duration=latest, start=0),
        Sent(1, 2, 1, "api", start=0, duration=latest),
        Sent(1, 3, 2, "db", start=latest, duration=0),
    ]
    write(traces, [], request)
    assert seen(lake, traces) == derived_by_hand(request)
    assert [point.count for point in traces.metrics(step="1y")] == [2, 1]


# -- with jobs -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_spark_works_out_what_python_does(lake: Lake, traces: LocalTraces, spark: SparkRuntime) -> None:
    midnight = NOON + 12 * HOUR
    first = [
        Sent(1, 1, attributes={"user.id": "x", "n": 1, "b": True}),
        Sent(1, 2, 1, "api", "list", NOON + 10, duration=63, status=2),
        Sent(2, 1, start=midnight - 1, duration=2**62),
        Sent(3, 1, start=NOON - 3 * DAY, duration=64),
    ]
    requests: list[list[Sent]] = []
    write(traces, requests, first, [first[0], Sent(2, 9, 8, "db", "q", kind=0, duration=10**12 + 7)])
    traces.derive()
    assert stored(lake) == derived_by_hand(counted(requests))
    # A day that is worked out anew, because a span came with another name, and days that only get spans: parents, children.
    changed = [
        Sent(3, 1, name="renamed", start=NOON - 3 * DAY),
        first[1],
        Sent(2, 8),
        Sent(2, 2, 1, "api", "list", midnight + 5),
    ]
    write(traces, requests, changed)
    report = traces.derive()
    assert (report.days_anew["red"], report.days_anew["edges"]) == (1, 3)
    assert stored(lake) == seen(lake, traces) == derived_by_hand(counted(requests))


def test_derived_tables_follow_the_spans_through_everything(lake: Lake, traces: LocalTraces, jobs: None) -> None:
    requests: list[list[Sent]] = []
    midnight = NOON + 12 * HOUR
    write(
        traces,
        requests,
        [Sent(1, 1, attributes={"user.id": "x"}), Sent(1, 2, 1, "api", "list", NOON + 10, status=2)],
        [Sent(2, 1, start=midnight - 1), Sent(2, 9, 8, "db", "q", duration=2**62)],
        [Sent(1, 1, attributes={"user.id": "x"}), Sent(3, 1)],
    )
    report = traces.derive()
    assert stored(lake) == seen(lake, traces) == derived_by_hand(counted(requests))
    assert report.rows_written["red"] > 0
    assert traces.derive().rows_written == dict.fromkeys(report.rows_written, 0)

    # A child after midnight whose parent is derived already, a parent whose child is, the same span alike, a late one.
    write(
        traces,
        requests,
        [Sent(2, 2, 1, "api", "list", midnight + 5), Sent(2, 8, None, "web", "GET /", NOON - 5)],
        [Sent(1, 2, 1, "api", "list", NOON + 10, status=2), Sent(4, 1, start=NOON - 3 * DAY)],
    )
    assert seen(lake, traces) == derived_by_hand(counted(requests))
    report = traces.derive()
    assert set(report.days_anew.values()) == {0}, "nothing that came differed from what was counted"
    assert stored(lake) == seen(lake, traces) == derived_by_hand(counted(requests))

    # The same span with other content: its day is worked out anew. The compaction drops the older copies.
    write(traces, requests, [Sent(1, 2, 1, "api", "renamed", NOON + 10, duration=7)])
    assert seen(lake, traces) == derived_by_hand(counted(requests))
    assert compact(traces.spans).duplicates_dropped == 3
    assert seen(lake, traces) == derived_by_hand(counted(requests))
    report = traces.derive()
    assert report.days_anew["red"] == 1
    assert stored(lake) == seen(lake, traces) == derived_by_hand(counted(requests))

    for derived in DERIVED_TABLES:
        operations = [
            actions[0]["commitInfo"]["operation"] for actions in log_entries(root(lake, str(derived.name))).values()
        ]
        assert operations == ["CREATE TABLE"] + ["DERIVE"] * 3, (
            "one commit each, none for the derive that had nothing to do"
        )


def test_many_small_derives_of_a_day_are_merged(
    lake: Lake, traces: LocalTraces, jobs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crannog.traces.derived.derive._MOST_SMALL_FILES", 2)
    monkeypatch.setattr("crannog.traces.derived.derive.DERIVED_TABLES", (RED,))
    requests: list[list[Sent]] = []
    for number in range(3):
        write(traces, requests, [Sent(number + 1, 1), Sent(number + 1, 2, start=NOON + number * MINUTE)])
        traces.derive()
    expected = derived_by_hand(counted(requests))["red"]
    assert len(live_files(root(lake, str(RED.name)))) == 1
    assert read_delta_rs(root(lake, str(RED.name))).num_rows == len(expected), "one row for each key"
    assert seen(lake, traces)["red"] == expected
