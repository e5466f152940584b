"""Metrics as Jaeger's monitor asks for them: latencies by quantile, calls per second, share of errors."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crannog.errors import CallerError, NotFound
from crannog.traces.jaeger import requests

if TYPE_CHECKING:
    from crannog.api.traces import MetricPoint

    Asked = Callable[..., list[MetricPoint]]
    Value = Callable[[MetricPoint], float]

_NAMES = {"latencies": "latencies", "calls": "call_rate", "errors": "error_rate"}
Line = tuple[Mapping[str, str], Sequence[tuple[int, float]]]


def family(
    metrics: Asked, what: str, given: Mapping[str, str], services: Sequence[str], kinds: Sequence[str], now_ms: int
) -> dict[str, Any]:
    """Ask `metrics` for one line per service, or per service and operation; return them as a family of gauges."""
    if what not in _NAMES:
        raise NotFound(f"there is no metric {what!r}; there are latencies, calls, errors and minstep")
    if not services:
        raise CallerError("parameter 'service' is required")
    end_ms = requests.milliseconds(given.get("endTs"), "endTs") or now_ms
    lookback_ms = requests.milliseconds(given.get("lookback"), "lookback") or 3_600_000
    step_s = max(1, (requests.milliseconds(given.get("step"), "step") or 5_000) // 1000)
    # A rate is per second and over each step; Jaeger would smooth it over this long, which must be a number all the same.
    requests.milliseconds(given.get("ratePer"), "ratePer")
    by_operation = given.get("groupByOperation") == "true"
    share = _quantile(given.get("quantile")) if what == "latencies" else ()
    value, described = _value(what, share)
    lines: list[Line] = []
    for service in services:
        points = metrics(
            service=service,
            start=(end_ms - lookback_ms) * 10**6,
            end=end_ms * 10**6,
            step=f"{step_s}s",
            group_by=["operation"] if by_operation else None,
            **requests.of_kinds(kinds or ["server"]),
            quantiles=share,
        )
        lines += _lines(service, points, value)
    name = f"service_{'operation_' if by_operation else ''}{_NAMES[what]}"
    grouped = "service & operation" if by_operation else "service"
    return series(name, f"{described}, grouped by {grouped}", lines)


def _quantile(text: str | None) -> tuple[float]:
    try:
        share = float(text) if text else 0.0
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise CallerError(
            f"malformed parameter 'quantile': it is required, a number above 0 and up to 1, got {str(text)[:40]!r}"
        )
    return (share,)


def _value(what: str, share: tuple[float, ...]) -> tuple[Value, str]:
    if what == "calls":
        return lambda point: float(point.rate), "calls/sec"
    if what == "errors":
        return lambda point: float(point.error_rate), "error rate, computed as a fraction of errors/sec over calls/sec"
    return lambda point: point.quantiles_ns[0] / 10**6, f"{share[0]:g}th quantile latency in milliseconds"


def _lines(service: str, points: Iterable[MetricPoint], value: Value) -> list[Line]:
    found: dict[tuple[tuple[str, str], ...], list[tuple[int, float]]] = {}
    for point in points:
        labels = {"service_name": service, **{name: str(of) for name, of in point.group.items()}}
        found.setdefault(tuple(labels.items()), []).append((int(point.start.timestamp() * 1000), value(point)))
    return [(dict(labels), line) for labels, line in found.items()]


def series(name: str, help_text: str, lines: Iterable[Line]) -> dict[str, Any]:
    """Return points of time, in milliseconds, and values as a family of gauges."""
    return {
        "name": name,
        "type": "GAUGE",
        "help": help_text,
        "metrics": [
            {
                "labels": [{"name": key, "value": value} for key, value in labels.items()],
                "metricPoints": [
                    {"gaugeValue": {"doubleValue": value}, "timestamp": _rfc3339(at_ms)} for at_ms, value in points
                ],
            }
            for labels, points in lines
        ],
    }


def _rfc3339(at_ms: int) -> str:
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
