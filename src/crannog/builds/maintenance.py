"""Scheduled maintenance of the build log: pruning by the settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from crannog.api.reports import Cancellation
from crannog.builds.log import EventLog
from crannog.builds.open_log import EVENTS, open_log, other_than_warehouse
from crannog.builds.upkeep import prune
from crannog.engine.maintenance.scheduler import ExtraTasks, Work
from crannog.engine.open_table import OpenTable
from crannog.engine.warehouse import Warehouse
from crannog.names import TableName

_DAY_NS = 24 * 3600 * 10**9


class BuildMaintenance(ExtraTasks):
    """Prunes the build log of the settings: another store if `build_log` names one, else the warehouse's, which `log` returns."""

    kinds: Sequence[str] = ("prune-builds",)

    def __init__(self, warehouse: Warehouse, log: Callable[[], EventLog]) -> None:
        self._settings = warehouse.settings
        self._other = other_than_warehouse(self._settings.build_log, warehouse.location)
        self._log = log

    def due(self, table: OpenTable, cancellation: Cancellation) -> Sequence[Work]:
        return [self._pruning(cancellation)] if table.name == EVENTS and self._is_set and not self._other else []

    def due_outside(self, cancellation: Cancellation) -> Sequence[tuple[TableName, Work]]:
        # A server prunes its own log, and standard output keeps nothing.
        prunable = self._other and not self._other.startswith(("http:", "https:", "stdout:"))
        return [(EVENTS, self._pruning(cancellation))] if prunable and self._is_set else []

    @property
    def _is_set(self) -> bool:
        return (self._settings.build_retention_days, self._settings.build_retention_events) != (None, None)

    def _pruning(self, cancellation: Cancellation) -> Work:
        return "prune-builds", lambda: self._prune(cancellation), self._settings.expire_interval_s

    def _prune(self, cancellation: Cancellation) -> dict[str, Any]:
        days = self._settings.build_retention_days
        with open_log(self._other) if self._other else nullcontext(self._log()) as log:
            report = prune(
                log,
                before_ns=None if days is None else max(0, time.time_ns() - days * _DAY_NS),
                keep_events=self._settings.build_retention_events,
                progress=lambda _: cancellation.check(),
            )
        return {"events_removed": report.removed, "events_after": report.events_after}
