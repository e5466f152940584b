"""Metrics of whole traces: the same numbers from the summaries, from the spans, and from plain Python."""

from __future__ import annotations

import datetime as dt
import tempfile
from typing import Any

import pytest
from hypothesis import Phase, given
from hypothesis import settings as tried
from hypothesis import strategies as st

from crannog.api.traces import MetricPoint
from crannog.errors import CallerError
from crannog.settings import Settings
from derived_stand_in import stand_in_for_all
from lakes import opened
from local_traces import LocalTraces
from span_samples import DAY, HOUR, MINUTE, NOON, SECOND, Sent, any_spans, body, counted
from test_traces_metrics import SLACK, rank

_DAY_ONE = dt.timedelta(days=1)


@tried(max_examples=3, deadline=None, suppress_health_check=SLACK, phases=[Phase.reuse, Phase.generate])
@given(
    st.lists(any_spans(), min_size=1, max_size=2),
    st.sampled_from([1, 60, 3600, 86_400]),
    st.sampled_from([None, NOON - DAY, NOON, NOON + 1, NOON + 30 * SECOND]),
    st.sampled_from([None, NOON + 1, NOON + 40 * SECOND, NOON + MINUTE, NOON + 12 * HOUR]),
    st.sampled_from([None, "service", "operation", "user.id"]),
    st.sampled_from([None, "web", "api"]),
)
def test_metrics_of_traces_equal_what_python_counts(
    requests: list[list[Sent]], step_s: int, start: int | None, end: int | None, group: str | None, service: str | None
) -> None:
    query: dict[str, Any] = {
        "start": start,
        "end": end,
        "step": f"{step_s}s",
        "group_by": group,
        "service": service,
        "of": "traces",
    }
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory() as folder,
        opened(Settings(warehouse=folder)) as lake,
    ):
        stand_in_for_all(patch)
        traces = LocalTraces(lake.operations.warehouse, lake.operations.tables)
        requests = [request for request in requests if not traces.write_otlp(body(request)).duplicate]
        found = traces.metrics(**query)
        # A filter that holds of every span makes the same question go to the spans.
        assert traces.metrics(**query, where="duration >= 0ns") == found
        traces.derive()
        assert traces.metrics(**query) == found
    _check(found, _traces(counted(requests), start, end, service), step_s, group)


def _traces(spans: list[Sent], start: int | None, end: int | None, service: str | None) -> list[list[Sent]]:
    """The traces that start in a time and have a span of a service, each as its spans on the days near."""
    first = Sent(0, 0, start=start).day - _DAY_ONE if start is not None else dt.date.min
    last = Sent(0, 0, start=end - 1).day + _DAY_ONE if end is not None else dt.date.max
    by_id: dict[int, list[Sent]] = {}
    for sent in spans:
        if first <= sent.day <= last:
            by_id.setdefault(sent.trace, []).append(sent)
    return [
        trace
        for trace in by_id.values()
        if (start is None or min(one.start for one in trace) >= start)
        and (end is None or min(one.start for one in trace) < end)
        and (service is None or any(one.service == service for one in trace))
    ]


def _check(found: list[MetricPoint], traces: list[list[Sent]], step_s: int, group: str | None) -> None:
    members: dict[tuple[int, Any], list[tuple[int, bool]]] = {}
    for trace in traces:
        begin, until = min(one.start for one in trace), max(one.start + one.duration for one in trace)
        roots = sorted((one for one in trace if one.parent is None), key=lambda one: (one.start, one.span))
        value: Any = None
        if roots and group:
            value = {
                "service": roots[0].service,
                "operation": roots[0].name,
                "user.id": roots[0].attributes.get("user.id"),
            }[group]
        place = begin // SECOND // step_s * step_s
        members.setdefault((place, (type(value), value)), []).append(
            (until - begin, any(one.status == 2 for one in trace))
        )
    points = {}
    for point in found:
        value = point.group[group] if group else None
        points[int(point.start.timestamp()), (type(value), value)] = point
    assert points.keys() == members.keys()
    for place, inside in members.items():
        point, durations = points[place], [duration for duration, _ in inside]
        assert (point.count, point.errors) == (len(inside), sum(failed for _, failed in inside))
        assert point.avg_ns == sum(durations) / len(durations)
        for share, measured in ((50, point.p50_ns), (95, point.p95_ns), (99, point.p99_ns)):
            assert abs(measured - rank(durations, share)) <= rank(durations, share) / 64


def test_a_trace_counts_if_one_span_of_it_meets_all(settings: Settings) -> None:
    with opened(settings) as lake:
        traces = LocalTraces(lake.operations.warehouse, lake.operations.tables)
        traces.write_otlp(
            body(
                [
                    Sent(1, 1, duration=SECOND),
                    Sent(
                        1, 2, 1, "api", "list", start=NOON + SECOND, duration=2 * SECOND, status=2, attributes={"n": 1}
                    ),
                    Sent(2, 3, start=NOON + 5 * SECOND, attributes={"n": 10}),
                    Sent(3, 4, 9, "api", start=NOON + 6 * SECOND),
                ]
            )
        )
        [all_of_them] = traces.metrics(step="1h", of="traces")
        assert (all_of_them.count, all_of_them.errors, all_of_them.error_rate) == (3, 1, 1 / 3)
        [one] = traces.metrics(step="1h", of="traces", where="n = 1")
        assert (one.count, one.errors, one.avg_ns, one.rate) == (1, 1, 3e9, 1 / 3600)
        assert [
            point.count
            for point in traces.metrics(service="api", operation="list", kind="server", step="1h", of="traces")
        ] == [1]
        assert traces.metrics(service="api", where="n = 10", of="traces") == []
        by_root = traces.metrics(step="1h", group_by=["service", "n"], of="traces")
        assert sorted((str(point.group["service"]), point.group["n"] or 0, point.count) for point in by_root) == [
            ("None", 0, 1),
            ("web", 0, 1),
            ("web", 10, 1),
        ]


def test_any_quantile_is_of_the_nearest_rank(settings: Settings) -> None:
    with opened(settings) as lake:
        traces = LocalTraces(lake.operations.warehouse, lake.operations.tables)
        traces.write_otlp(
            body([Sent(number, number, duration=number) for number in range(1, 51)])
        )  # below 64 ns they are exact
        shares = [0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98, 0.999, 1]
        for of in ("spans", "traces"):
            [point] = traces.metrics(step="1h", quantiles=shares, of=of)
            assert point.quantiles_ns == (1, 5, 13, 25, 38, 45, 49, 50, 50)
            assert (point.p50_ns, point.p95_ns, point.p99_ns) == (25, 48, 50)
        for wrong in ([0], [1.5], ["0.5"], [True], [float("nan")], [1e-12], [0.5] * 21):
            with pytest.raises(CallerError, match="quantile"):
                traces.metrics(quantiles=wrong)  # type: ignore[arg-type]
        with pytest.raises(CallerError, match="of must be spans or traces"):
            traces.metrics(of="both")
