"""A connection inside the process with all domains: tables, SQL, traces and builds over one warehouse."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING

from crannog.engine.maintenance.scheduler import Scheduler
from crannog.settings import Settings
from crannog.tables.lake import Lake

if TYPE_CHECKING:
    from crannog.builds.stores.delta_log import DeltaLog
    from crannog.traces.store import EmbeddedTraces, TraceStore


class EmbeddedLake(Lake):
    """What `crannog.connect` returns for a folder or a bucket."""

    def __init__(self, location: str, *, maintain: bool = False, settings: Settings | None = None) -> None:
        self._builds: DeltaLog | None = None
        self._builds_lock = threading.Lock()
        super().__init__(location, maintain=maintain, settings=settings)

    # Made on first use: a program that keeps tables alone need not load it.
    @cached_property
    def traces(self) -> EmbeddedTraces:
        """The traces: OTLP in, traces, metrics and dependencies out."""
        from crannog.traces.store import EmbeddedTraces

        return EmbeddedTraces(self.trace_store)

    @cached_property
    def trace_store(self) -> TraceStore:
        """What carries out the operations on traces, for the server."""
        from crannog.traces.store import TraceStore

        return TraceStore(self.warehouse, self.engine, lambda: self.copies)

    @property
    def builds(self) -> DeltaLog:
        """The build log of this warehouse, with the interface of `crannog.builds.open_log`.

        Its table, `crannog.builds.build_events`, is created on first use. The log is closed with the connection.
        """
        log = self._builds
        if log is not None and not log.is_closed:
            return log
        from crannog.builds.open_log import warehouse_uri
        from crannog.builds.stores.delta_log import DEFAULT_TABLE, DeltaLog
        from crannog.names import TableName

        # One log for all threads: each would have a read model and a queue of appends of its own.
        with self._builds_lock:
            if self._builds is None or self._builds.is_closed:
                uri = warehouse_uri(self.warehouse.location)
                self._builds = DeltaLog(self.warehouse, self.engine, uri, TableName.parse(DEFAULT_TABLE))
            return self._builds

    def new_scheduler(self) -> Scheduler:
        """Return a scheduler of the maintenance of all domains, not yet started."""
        from crannog.builds.maintenance import BuildMaintenance
        from crannog.traces.maintenance import TraceMaintenance

        domains = [TraceMaintenance(self.engine), BuildMaintenance(self.warehouse, lambda: self.builds)]
        return Scheduler(self.warehouse, self.engine, self.control, domains)

    def _close_domains(self) -> None:
        with self._builds_lock:
            if self._builds is not None:
                self._builds.close()
