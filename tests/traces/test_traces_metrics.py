"""Metrics and dependencies: the same numbers from the RED table, from the spans, and from plain Python."""

from __future__ import annotations

import datetime as dt
import math
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as tried
from hypothesis import strategies as st

from crannog.api.traces import Dependency, MetricPoint
from crannog.embedded import EmbeddedLake as Lake
from crannog.errors import CallerError
from crannog.settings import Settings
from crannog.traces.metrics.metrics import bucket_middle
from crannog.traces.times import parse_step
from lakes import opened
from local_traces import LocalTraces
from span_samples import DAY, HOUR, MINUTE, NOON, SECOND, Sent, any_spans, body, bucket_of, counted

SLACK = [HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.fixture
def lake(settings: Settings) -> Iterator[Lake]:
    with opened(settings) as lake:
        yield lake


@pytest.fixture
def traces(lake: Lake) -> LocalTraces:
    return LocalTraces(lake.operations.warehouse, lake.operations.tables)


def rank(durations: list[int], share: int) -> int:
    """The nearest rank, exactly."""
    return sorted(durations)[max(0, math.ceil(len(durations) * share / 100) - 1)]


def test_a_quantile_is_off_by_less_than_two_percent() -> None:
    for duration in [*range(5_000), *(int(1.37**power) + power for power in range(20, 135)), 2**63 - 1]:
        found = bucket_middle(bucket_of(duration))
        assert abs(found - duration) <= duration / 64, duration
    buckets = [bucket_of(duration) for duration in range(100_000)]
    assert buckets == sorted(buckets)


@tried(max_examples=10, deadline=None, suppress_health_check=SLACK, phases=[Phase.reuse, Phase.generate])
@given(
    st.lists(any_spans(), min_size=1, max_size=2),
    st.sampled_from(["1s", "1m", "5m", "1h", "1d"]),
    st.sampled_from([None, NOON - DAY, NOON, NOON + 1, NOON + 30 * SECOND, NOON + MINUTE]),
    st.sampled_from([None, NOON + 1, NOON + 40 * SECOND, NOON + MINUTE, NOON + 12 * HOUR, NOON + DAY]),
    st.sampled_from([None, "service", "kind", "user.id"]),
)
def test_metrics_equal_what_python_counts(
    requests: list[list[Sent]], step: str, start: int | None, end: int | None, group: str | None
) -> None:
    with tempfile.TemporaryDirectory() as folder, opened(Settings(warehouse=folder)) as lake:
        traces = LocalTraces(lake.operations.warehouse, lake.operations.tables)
        requests = [request for request in requests if not traces.write_otlp(body(request)).duplicate]
        found = traces.metrics(start=start, end=end, step=step, group_by=group)
        # A filter that holds of every span makes the same question go to the spans.
        by_spans = traces.metrics(start=start, end=end, step=step, group_by=group, where="duration >= 0ns")
    assert found == by_spans
    chosen = [
        sent
        for sent in counted(requests)
        if (start is None or sent.start >= start) and (end is None or sent.start < end)
    ]
    _check(found, chosen, parse_step(step).seconds, group)


def _check(found: list[MetricPoint], spans: list[Sent], step_s: int, group: str | None) -> None:
    members: dict[tuple[int, Any], list[Sent]] = {}
    for sent in spans:
        kinds = (None, "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
        value = {
            None: None,
            "service": sent.service,
            "kind": kinds[sent.kind],
            "user.id": sent.attributes.get("user.id"),
        }[group]
        members.setdefault((sent.start // SECOND // step_s * step_s, (type(value), value)), []).append(sent)
    by_place = {}
    for point in found:
        value = point.group[group] if group else None
        by_place[int(point.start.timestamp()), (type(value), value)] = point
    assert by_place.keys() == members.keys()
    for place, inside in members.items():
        point, durations = by_place[place], [sent.duration for sent in inside]
        assert (point.count, point.errors) == (len(inside), sum(sent.status == 2 for sent in inside))
        assert point.avg_ns == sum(durations) / len(durations)
        for share, value in ((50, point.p50_ns), (95, point.p95_ns), (99, point.p99_ns)):
            assert abs(value - rank(durations, share)) <= rank(durations, share) / 64


def test_metrics_are_filtered_and_grouped_by_fields_and_attributes(traces: LocalTraces) -> None:
    traces.write_otlp(
        body(
            [
                Sent(1, 1, attributes={"http.method": "GET", "n": 1}),
                Sent(1, 2, 1, "api", "list", duration=10**6, status=2, attributes={"http.method": "GET", "n": 10}),
                Sent(1, 3, 1, "api", "list", kind=3, attributes={"http.method": "POST"}),
            ]
        )
    )
    [point] = traces.metrics(service="api", operation="list", kind="server", step="hour")
    assert (point.count, point.errors, point.error_rate, point.avg_ns) == (1, 1, 1.0, 10**6)
    assert point.start == dt.datetime(2025, 10, 9, 12, tzinfo=dt.UTC)
    assert (point.seconds, point.rate) == (3600.0, 1 / 3600)
    assert [point.count for point in traces.metrics(where="n = 1")] == [1]
    assert [point.count for point in traces.metrics(where={"n": 10})] == [1]
    by_method = traces.metrics(group_by=["span.http.method", "service"], step="1mo")
    assert [(dict(point.group), point.count) for point in by_method] == [
        ({"span.http.method": "GET", "service": "api"}, 1),
        ({"span.http.method": "GET", "service": "web"}, 1),
        ({"span.http.method": "POST", "service": "api"}, 1),
    ]
    assert [(point.group["n"], point.group["status"]) for point in traces.metrics(group_by=["n", "status"])] == [
        (1, "UNSET"),
        (10, "ERROR"),
        (None, "UNSET"),
    ]


def test_the_rate_is_per_second_of_the_time_asked_for(traces: LocalTraces) -> None:
    traces.write_otlp(body([Sent(1, number, start=NOON + number * SECOND) for number in range(1, 31)]))
    [point] = traces.metrics(start=NOON, end=NOON + 20 * SECOND + 1, step="1h")
    assert (point.count, point.seconds) == (20, 20.000000001)
    assert point.rate == pytest.approx(1.0)


def test_steps_of_the_calendar_begin_where_it_does(traces: LocalTraces) -> None:
    traces.write_otlp(body([Sent(1, 1), Sent(1, 2, start=NOON + 40 * DAY)]))
    assert [(str(p.start.date()), p.seconds / 86_400) for p in traces.metrics(step="1mo")] == [
        ("2025-10-01", 31),
        ("2025-11-01", 30),
    ]
    assert [(str(p.start.date()), p.seconds / 86_400) for p in traces.metrics(step="year")] == [("2025-01-01", 365)]
    assert [(str(p.start.date()), p.start.weekday()) for p in traces.metrics(step="week")] == [
        ("2025-10-06", 0),
        ("2025-11-17", 0),
    ]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"step": "0m"}, "step must be"),
        ({"step": "2mo"}, "step must be"),
        ({"step": 60}, "step must be"),
        ({"kind": "sideways"}, "kind must be one of"),
        ({"service": 7}, "service must be text"),
        ({"start": "yesterday"}, "start must be ISO text"),
        ({"group_by": ["a"] * 2}, "group_by takes"),
        ({"where": "n ="}, "n ="),
        ({"where": 7}, ""),
    ],
)
def test_a_wrong_question_is_refused_in_words(traces: LocalTraces, question: dict[str, Any], said: str) -> None:
    traces.write_otlp(body([Sent(1, 1)]))
    with pytest.raises(CallerError) as refused:
        traces.metrics(**question)
    assert said in refused.value.message or said in str(question)


def test_without_spans_there_is_nothing_and_no_table_is_made(lake: Lake, traces: LocalTraces) -> None:
    assert traces.metrics() == []
    assert traces.dependencies() == []
    assert traces.attribute_keys() == []
    assert lake.tables() == []
    traces.write_otlp(body([Sent(1, 1)]))
    assert traces.metrics(start=NOON, end=NOON) == []
    assert traces.metrics(start=NOON + DAY) == []
    assert traces.dependencies(start=NOON, end=NOON - DAY) == []


def test_dependencies_are_calls_between_services_of_a_time(traces: LocalTraces) -> None:
    midnight = NOON + 12 * HOUR
    traces.write_otlp(
        body([Sent(1, 2, 1, "api", status=2), Sent(1, 3, 2, "api"), Sent(1, 4, 3, "db"), Sent(1, 5, 99, "db")])
    )
    assert traces.dependencies() == [Dependency("api", "db", 1, 0)]
    traces.write_otlp(body([Sent(1, 1)]))
    assert traces.dependencies() == [Dependency("api", "db", 1, 0), Dependency("web", "api", 1, 1)]
    traces.write_otlp(body([Sent(2, 1, start=midnight - 1), Sent(2, 2, 1, "api", start=midnight)]))
    assert traces.dependencies(start=midnight, end=midnight + 1) == [Dependency("web", "api", 1, 0)]
    assert traces.dependencies(end=NOON + MINUTE) == [Dependency("api", "db", 1, 0), Dependency("web", "api", 1, 1)]


def test_the_catalogue_lists_keys_by_level_and_type_with_examples(traces: LocalTraces) -> None:
    traces.write_otlp(
        body([Sent(1, 1, attributes={"n": 1}), Sent(1, 2, attributes={"n": 25}), Sent(1, 3, attributes={"n": "x"})])
    )
    keys = traces.attribute_keys()
    assert [(key.key, key.level, key.type, key.uses) for key in keys] == [
        ("service.name", "resource", "string", 3),
        ("n", "span", "int", 2),
        ("n", "span", "string", 1),
    ]
    assert keys[1].examples == ("1", "25")
    assert traces.attribute_keys(first=dt.date(2025, 10, 10)) == []
