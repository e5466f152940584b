"""What the scheduler does for traces besides the upkeep of any table: derive after folds, and expire by the settings."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from crannog.api.cancellation import Cancellation
from crannog.engine.maintenance.scheduler import ExtraTasks, Work
from crannog.engine.open_table import OpenTable
from crannog.engine.tables import Tables
from crannog.traces.derived.derive import derive, needs_derive
from crannog.traces.retention import expire_by_settings
from crannog.traces.span_table import SPANS


class TraceMaintenance(ExtraTasks):
    """The trace store's work for a scheduler: pass it as one of `upkeep`."""

    kinds: Sequence[str] = ("derive", "expire-traces")

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def due(self, table: OpenTable, cancellation: Cancellation) -> list[Work]:
        """Return the work there is for the span table now; none for any other."""
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
            work.append(("expire-traces", lambda: self._expired(table, cancellation), settings.expire_interval_s))
        return work

    def _expired(self, table: OpenTable, cancellation: Cancellation) -> dict[str, Any]:
        done = expire_by_settings(self._tables, table, dt.datetime.now(dt.UTC).date(), cancellation)
        return {
            "rows_dropped": sum(one.spans.rows_dropped for one in done),
            "bytes_given_back": sum(one.bytes_given_back for one in done),
        }
