"""A connection inside the process with all there is: tables, SQL and traces over one warehouse."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from crannog.engine.maintenance.scheduler import Scheduler
from crannog.tables.lake import Lake

if TYPE_CHECKING:
    from crannog.traces.traces import Traces


class EmbeddedLake(Lake):
    """What `crannog.connect` returns for a folder or a bucket."""

    # Made on first use: a program that keeps tables alone need not load it.
    @cached_property
    def traces(self) -> Traces:
        """The traces: OTLP in, traces, metrics and dependencies out."""
        from crannog.traces.traces import Traces

        return Traces(self.warehouse, self.engine, lambda: self.copies)

    def new_scheduler(self) -> Scheduler:
        """Return a scheduler of all maintenance there is, that of traces included, not yet started."""
        from crannog.traces.maintenance import TraceUpkeep

        return Scheduler(self.warehouse, self.engine, self.control, [TraceUpkeep(self.engine)])
