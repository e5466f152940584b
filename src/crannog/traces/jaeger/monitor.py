"""Metrics in the shape of Jaeger's Monitor tab: latencies by quantile, calls per second, share of errors.

Jaeger's UI averages the points of a series and joins the series of several quantiles by index. So a series has a point for
every step of the requested time, as one from Prometheus has: without spans the call rate is 0, and a latency or a share of
errors is "NaN", the protobuf JSON form of what Prometheus computes there, which the UI shows as a gap.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crannog.errors import CallerError, NotFound
from crannog.traces.jaeger import requests
from crannog.traces.times import Step

if TYPE_CHECKING:
    from crannog.api.traces import MetricPoint

    MetricsQuery = Callable[..., list[MetricPoint]]
    ValueOf = Callable[[MetricPoint], float]

NO_VALUE = "NaN"
MAX_STEPS = 11_000
"""Points of one series; Prometheus has the same limit."""
MAX_POINTS = 250_000
"""Points of all series in one response."""
_NAMES = {"latencies": "latencies", "calls": "call_rate", "errors": "error_rate"}
Labels = tuple[tuple[str, str], ...]
Series = dict[Labels, dict[int, float]]
"""The values of each series by the second in which their step begins."""


@dataclass(frozen=True, slots=True)
class _Range:
    """The requested time, in steps."""

    start_ms: int
    end_ms: int
    step_s: int

    @property
    def seconds(self) -> range:
        """The seconds in which the steps begin."""
        step = Step(self.step_s)
        return range(step.begin(self.start_ms // 1000), -(-self.end_ms // 1000), self.step_s)


def metric_family(
    query: MetricsQuery,
    metric: str,
    params: Mapping[str, str],
    services: Sequence[str],
    kinds: Sequence[str],
    now_ms: int,
) -> dict[str, Any]:
    """Return one series per service, or per service and operation, as a family of gauges.

    Raises NotFound for an unknown metric and CallerError for wrong parameters.
    """
    if metric not in _NAMES:
        raise NotFound(f"there is no metric {metric!r}; there are latencies, calls, errors and minstep")
    if not services:
        raise CallerError("parameter 'service' is required")
    within = _range(params, now_ms)
    by_operation = params.get("groupByOperation") == "true"
    quantiles = _quantile(params.get("quantile")) if metric == "latencies" else ()
    value_of, description = _value(metric, quantiles)

    def series(within: _Range) -> Series:
        found: Series = {}
        for service in services:
            points = query(
                service=service,
                start=within.start_ms * 10**6,
                end=within.end_ms * 10**6,
                step=f"{within.step_s}s",
                group_by=["operation"] if by_operation else None,
                **requests.of_kinds(kinds or ["server"]),
                quantiles=quantiles,
            )
            for point in points:
                labels = (("service_name", service), *((name, str(value)) for name, value in point.group.items()))
                found.setdefault(labels, {})[int(point.start.timestamp())] = value_of(point)
        return found

    found = series(within)
    points = len(found) * len(within.seconds)
    if points > MAX_POINTS:
        # The UI always sends a step of a minute. A longer one leaves its averages as they are.
        within = _Range(within.start_ms, within.end_ms, within.step_s * -(-points // MAX_POINTS))
        found = series(within)
    name = f"service_{'operation_' if by_operation else ''}{_NAMES[metric]}"
    grouped = "service & operation" if by_operation else "service"
    empty: float | str = 0.0 if metric == "calls" else NO_VALUE
    return _family(name, f"{description}, grouped by {grouped}", found, within.seconds, empty)


def _range(params: Mapping[str, str], now_ms: int) -> _Range:
    end_ms = requests.milliseconds(params.get("endTs"), "endTs") or now_ms
    lookback_ms = requests.milliseconds(params.get("lookback"), "lookback") or 3_600_000
    step_s = max(1, (requests.milliseconds(params.get("step"), "step") or 5_000) // 1000)
    # Rates are over each step. Jaeger smooths them over this time, so it must be valid all the same.
    requests.milliseconds(params.get("ratePer"), "ratePer")
    within = _Range(max(0, end_ms - lookback_ms), end_ms, step_s)
    steps = len(within.seconds)
    if steps > MAX_STEPS:
        raise CallerError(
            f"a lookback of {lookback_ms:,} ms has {steps:,} steps of {step_s:,} s; the limit is {MAX_STEPS:,}:"
            " use a shorter 'lookback' or a longer 'step'"
        )
    return within


def _quantile(text: str | None) -> tuple[float]:
    try:
        quantile = float(text) if text else 0.0
    except ValueError:
        quantile = 0.0
    if not 0 < quantile <= 1:
        raise CallerError(
            f"malformed parameter 'quantile': it is required, a number above 0 and up to 1, got {str(text)[:40]!r}"
        )
    return (quantile,)


def _value(metric: str, quantiles: tuple[float, ...]) -> tuple[ValueOf, str]:
    if metric == "calls":
        return lambda point: float(point.rate), "calls/sec"
    if metric == "errors":
        return lambda point: float(point.error_rate), "error rate, computed as a fraction of errors/sec over calls/sec"
    return lambda point: point.quantiles_ns[0] / 10**6, f"{quantiles[0]:g}th quantile latency in milliseconds"


def _family(name: str, help_text: str, series: Series, seconds: Iterable[int], empty: float | str) -> dict[str, Any]:
    times = [(second, _rfc3339(second)) for second in seconds] if series else []
    return {
        "name": name,
        "type": "GAUGE",
        "help": help_text,
        "metrics": [
            {
                "labels": [{"name": key, "value": value} for key, value in labels],
                "metricPoints": [
                    {"gaugeValue": {"doubleValue": values.get(second, empty)}, "timestamp": time}
                    for second, time in times
                ],
            }
            for labels, values in series.items()
        ],
    }


def _rfc3339(second: int) -> str:
    return dt.datetime.fromtimestamp(second, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
