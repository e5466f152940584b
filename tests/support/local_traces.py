"""Traces over a store of their own, whose internals a test may look at."""

from __future__ import annotations

from typing import Any

from crannog.api.traces import Traces
from crannog.engine.tables import Tables
from crannog.engine.warehouse import Warehouse
from crannog.traces.store import TraceStore


class LocalTraces(Traces):
    """The traces of a warehouse; what is not public is looked up in the store."""

    def __init__(self, warehouse: Warehouse, tables: Tables) -> None:
        self.store = TraceStore(warehouse, tables)
        super().__init__(self.store)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)
