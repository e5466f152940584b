"""Maintenance of traces by the scheduler: derive after folds, and expiry by the settings."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from crannog.api.reports import Cancellation
from crannog.engine.maintenance.scheduler import ExtraTasks, Work
from crannog.engine.open_table import OpenTable
from crannog.engine.tables import Tables
from crannog.traces.derived.derive import derive, needs_derive
from crannog.traces.retention import expire_by_settings
from crannog.traces.span_table import SPANS


class TraceMaintenance(ExtraTasks):
    """The maintenance tasks of traces, for the `upkeep` of a scheduler."""

    kinds: Sequence[str] = ("derive", "expire-traces")

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def due(self, table: OpenTable, cancellation: Cancellation) -> list[Work]:
        """Return the tasks that are due for the span table; none for other tables."""
        if table.name != SPANS:
            return []
        settings = table.warehouse.settings
        work: list[Work] = []
        if needs_derive(self._tables, table):
            work.append(
                (
                    "derive",
                    lambda: derive(self._tables, table, cancellation=cancellation).as_dict(),
                    settings.derive_interval_s,
                )
            )
        if settings.trace_retention_days is not None or settings.trace_service_retention_days:
            work.append(("expire-traces", lambda: self._expire(table, cancellation), settings.expire_interval_s))
        return work

    def _expire(self, table: OpenTable, cancellation: Cancellation) -> dict[str, Any]:
        expiries = expire_by_settings(self._tables, table, dt.datetime.now(dt.UTC).date(), cancellation)
        return {
            "rows_dropped": sum(expiry.spans.rows_dropped for expiry in expiries),
            "bytes_given_back": sum(expiry.bytes_given_back for expiry in expiries),
        }
