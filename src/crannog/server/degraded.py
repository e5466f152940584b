"""What does not work as it should while the server takes requests, from what is known without waiting.

Everybody may read it, so it names no table and no path.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from crannog.storage import local

if TYPE_CHECKING:
    from crannog.server.service import Service


def degraded(service: Service) -> list[dict[str, Any]]:
    """Return what is degraded, since when, and what to do."""
    return [
        {"what": what, "since": dt.datetime.fromtimestamp(since, dt.UTC).isoformat(timespec="seconds"), "message": text}
        for what, since, text in _found(service)
    ]


def _found(service: Service) -> Iterator[tuple[str, float, str]]:
    from crannog.spark.session import spark_runtime

    incident = spark_runtime(service.settings).incident()
    if incident is not None:
        yield "spark", *incident
    full_since = local.full_since()
    if full_since is not None:
        yield "disk", full_since, "no space is left on the device; free some space, writes fail until then"
    failing = service.lake.operations.warehouse.conditions.all()
    if failing:
        since = min(condition.since for condition in failing.values())
        tasks = "a maintenance task fails" if len(failing) == 1 else f"{len(failing)} maintenance tasks fail"
        yield "maintenance", since, f"{tasks}; `crannog tasks` and GET /api/v1/tasks show the errors"
