"""A connection inside the process with all domains: tables, SQL, traces and builds over one warehouse."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Unpack

from crannog.api.lake import Lake, LoadArguments
from crannog.api.table import Table
from crannog.engine.maintenance.scheduler import Scheduler
from crannog.engine.warehouse import Warehouse
from crannog.errors import needed_for
from crannog.names import TableName, without_raw_prefix
from crannog.settings import Settings, load_settings
from crannog.tables.operations import TableOperations

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pyspark.sql import DataFrame

    from crannog.api.producer import Producer, ProducerArguments
    from crannog.api.reports import LoadReport
    from crannog.builds.stores.delta_log import DeltaLog
    from crannog.traces.store import EmbeddedTraces, TraceStore


class EmbeddedTable(Table):
    """A table of a warehouse in this process."""

    def __init__(self, lake: EmbeddedLake, name: TableName, *, raw: bool = False) -> None:
        super().__init__(lake.operations, name, raw=raw)
        self._lake = lake

    def check_change(self, change: str) -> None:
        """Raise Refused if this table belongs to a part of Crannog, which alone may change it so."""
        self._lake.operations.check_change(self._name, change)

    def to_spark(self, *, raw: bool = False) -> DataFrame:
        """Return all rows as a DataFrame of the process's Spark session."""
        from crannog.engine.spark_files import to_spark

        session = self._lake.operations.warehouse.spark()
        return self._lake.operations.on(
            self._name, lambda table: to_spark(table, table.snapshot(), session, raw=raw or self._raw)
        )


class EmbeddedLake(Lake):
    """What `crannog.connect` returns for a folder or a bucket. Safe for threads.

    `operations`, `trace_store` and `new_scheduler` are for the server and the tests, and may change at any time.
    """

    def __init__(self, location: str, *, maintain: bool = False, settings: Settings | None = None) -> None:
        self.settings = settings or load_settings()
        self.operations = TableOperations(Warehouse(location, self.settings))
        super().__init__(self.operations)
        self._builds: DeltaLog | None = None
        self._builds_lock = threading.Lock()
        self._scheduler: Scheduler | None = None
        if maintain:
            self._scheduler = self.new_scheduler()
            self._scheduler.start()

    # Created on first use: a program that uses tables alone need not load it.
    @cached_property
    def traces(self) -> EmbeddedTraces:
        """The traces: OTLP in, traces, metrics and dependencies out."""
        store = self.trace_store
        from crannog.traces.store import EmbeddedTraces

        return EmbeddedTraces(store)

    @cached_property
    def trace_store(self) -> TraceStore:
        """What carries out the operations on traces, for the server."""
        with needed_for("lake.traces"):
            from crannog.traces.store import TraceStore

        operations = self.operations
        return TraceStore(operations.warehouse, operations.tables, lambda: operations.copies)

    @property
    def builds(self) -> DeltaLog:
        """The build log of this warehouse, with the interface of `crannog.builds.open_log`.

        Its table, `crannog.builds.build_events`, is created on first use. The log is closed with the connection.
        """
        log = self._builds
        if log is not None and not log.is_closed:
            return log
        from crannog.builds.open_log import EVENTS, warehouse_uri
        from crannog.builds.stores.delta_log import DeltaLog

        # One log for all threads: each would have a read model and a queue of appends of its own.
        with self._builds_lock:
            if self._builds is None or self._builds.is_closed:
                warehouse = self.operations.warehouse
                uri = warehouse_uri(warehouse.location)
                self._builds = DeltaLog(warehouse, self.operations.tables, uri, EVENTS)
            return self._builds

    def new_scheduler(self) -> Scheduler:
        """Return a scheduler of the maintenance of all domains, not yet started."""
        from crannog.builds.maintenance import BuildMaintenance
        from crannog.traces.retention import TraceMaintenance

        warehouse, tables = self.operations.warehouse, self.operations.tables
        domains = [TraceMaintenance(tables), BuildMaintenance(warehouse, lambda: self.builds)]
        return Scheduler(warehouse, tables, self.operations.control, domains)

    def table(self, name: str) -> EmbeddedTable:
        """Return a table; NotFound if it does not exist. `catalog.schema.__raw__table` includes deleted rows until they are folded."""
        plain, raw = without_raw_prefix(name)
        table_name = TableName.parse(plain)
        self.operations.tables.open(table_name)
        return self._table(table_name, raw=raw)

    def _table(self, name: TableName, *, raw: bool) -> EmbeddedTable:
        return EmbeddedTable(self, name, raw=raw)

    def producer(
        self, name: str, model: type[BaseModel] | None = None, **options: Unpack[ProducerArguments]
    ) -> Producer:
        """Return a producer for a table, which sends rows in batches in the background; see `crannog.Producer`."""
        self.table(name).check_change("append")
        return super().producer(name, model, **options)

    def load(self, files: Sequence[str] | str, name: str, **options: Unpack[LoadArguments]) -> LoadReport:
        """Load files (names, patterns, `-`) into a table, each once; see `api.Lake.load` for the options.

        A file of `load_spark_bytes` or more goes into a table without a key through Spark, by one commit.
        """
        from crannog.tables.spark_load import load_files

        return load_files(self, self.operations, files, name, options)

    def close(self) -> None:
        """Close the connection: acknowledged changes are durable already; work in the background is waited for."""
        if self._producers is not None:
            self._producers.close()
        if self._scheduler is not None and not self._scheduler.stop():
            return  # a job that cannot be interrupted is still running: what it uses must not be closed under it
        with self._builds_lock:
            if self._builds is not None:
                self._builds.close()
        self.operations.close()

    def __repr__(self) -> str:
        return f"Lake({self.operations.warehouse.location!r})"
