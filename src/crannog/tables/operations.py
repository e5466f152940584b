"""The operations on tables and SQL, carried out in the process: the engine opens, closes and reopens the tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from crannog.api import table_requests as ops
from crannog.api.operations import Operation, Q, R
from crannog.api.reports import (
    Cancellation,
    CompactReport,
    ErasureReceipt,
    EvolveReport,
    ExpireReport,
    FoldReport,
    Progress,
    VacuumReport,
    WriteReceipt,
)
from crannog.api.table_requests import ExplainSql, RunSql
from crannog.delta.name_collisions import colliding_columns
from crannog.delta.schemas import fingerprint
from crannog.engine.maintenance import delete_audit
from crannog.engine.maintenance.compact import compact
from crannog.engine.maintenance.control import ControlTable
from crannog.engine.maintenance.erase import erase
from crannog.engine.maintenance.erase_audit_texts import erase_from_audit
from crannog.engine.maintenance.evolve import evolve
from crannog.engine.maintenance.expire import expire
from crannog.engine.maintenance.fold import fold
from crannog.engine.maintenance.key_search import Copies
from crannog.engine.maintenance.scheduler import AFTER_COMPACT, run_as_task
from crannog.engine.maintenance.vacuum import vacuum
from crannog.engine.open_table import OpenTable
from crannog.engine.owned_tables import check_change, check_create, is_reserved
from crannog.engine.snapshot import Snapshot
from crannog.engine.tables import Tables
from crannog.engine.warehouse import Warehouse
from crannog.errors import Corrupted, NotFound, Refused
from crannog.missing import needed_for
from crannog.names import TableName

if TYPE_CHECKING:
    from crannog.api.result import Explanation, Result, Stream
    from crannog.engine.sql.queries import Queries

T = TypeVar("T")
Visible = Callable[[TableName], bool]
"""Tells whether a caller may see a table."""


class TableOperations:
    """Carries out the operations on the tables of a warehouse: the transport of `api.Lake` inside the process."""

    def __init__(self, warehouse: Warehouse, tables: Tables, control: ControlTable) -> None:
        self.warehouse = warehouse
        self.tables = tables
        self.control = control

    # Created on first use: a command that runs no SQL need not load a parser.
    @cached_property
    def queries(self) -> Queries:
        with needed_for("SQL"):
            from crannog.engine.sql.queries import Queries

        return Queries(self.warehouse, self.tables)

    @property
    def copies(self) -> Copies | None:
        """The copies of tables in memory, for an erasure to search; None before the first query."""
        return self.queries.cache if "queries" in self.__dict__ else None

    # -- the transport -----------------------------------------------------------------------------------------------

    def call(self, operation: Operation[Q, R], request: Q) -> R:
        result: R = _CALLS[operation](self, request)
        return result

    def run(
        self, operation: Operation[Q, R], request: Q, progress: Progress | None, cancellation: Cancellation | None
    ) -> R:
        result: R = _JOBS[operation](self, request, progress, cancellation)
        return result

    def lines(self, operation: Operation[Q, str], request: Q) -> Generator[str, None, None]:
        raise TypeError(f"{operation.name} has no lines")

    def within(self, timeout_s: float | None, query_id: str | None) -> TableOperations:
        return self

    def cancel(self, query_id: str) -> None:
        self.queries.cancel(query_id)

    def sql(self, request: RunSql, *, visible: Visible | None = None) -> Result:
        """Run a statement; SHOW TABLES lists the tables for which `visible` is true."""
        return self.queries.sql(
            request.sql,
            max_rows=request.max_rows,
            engine=request.engine,
            timeout_s=request.timeout_s,
            query_id=request.query_id,
            visible=visible,
        )

    def stream(self, request: RunSql, *, visible: Visible | None = None) -> Stream:
        return self.queries.stream(
            request.sql,
            engine=request.engine,
            timeout_s=request.timeout_s,
            query_id=request.query_id,
            visible=visible,
        )

    def explain(self, request: ExplainSql) -> Explanation:
        return self.queries.explain(request.sql, engine=request.engine, analyze=request.analyze)

    def close(self) -> None:
        self.warehouse.close()

    # -- one table ---------------------------------------------------------------------------------------------------

    def on(self, name: TableName, act: Callable[[OpenTable], T]) -> T:
        """Do something with an open table."""
        try:
            return act(self.tables.open(name))
        except (NotFound, FileNotFoundError):
            # Another process may have dropped the table and created it again: open the one that exists now.
            self.tables.forget(name)
        try:
            return act(self.tables.open(name))
        except FileNotFoundError as error:
            raise NotFound(f"a file of table {name} is gone, it may have been dropped: {error.filename}") from error

    def check_change(self, name: TableName, change: str, *, fresh: bool = False) -> None:
        """Raise Refused if this table belongs to a part of Crannog, which alone may change it so.

        `fresh` looks at the storage, where another process may have created another table with this name.
        """
        properties: Mapping[str, str] | None = None
        # For a damaged table, the name alone tells who owns it.
        with suppress(NotFound, Corrupted, Refused):
            properties = self.on(
                name, lambda table: (table.log.head() if fresh else table.log.last_seen_base()).properties
            )
        check_change(change, name, properties)

    def change(self, change: str, name: TableName, act: Callable[[OpenTable], T]) -> T:
        """Do something that changes a table; Refused, before anything else, if a part of Crannog owns it."""

        def checked(table: OpenTable) -> T:
            table.check_change(change)
            return act(table)

        return self.on(name, checked)

    def list_tables(self, request: ops.ListTables) -> list[str]:
        self.warehouse.check_open()
        return [str(name) for name in self.tables.names()]

    def create(self, request: ops.CreateTable) -> bool:
        """Create a table; return whether this call created it."""
        if is_reserved(request.name):
            try:
                self.tables.open(request.name)
                self.check_change(request.name, "create")
            except NotFound:
                check_create(request.name)
        return self.tables.create(
            request.name,
            request.schema,
            if_exists=request.if_exists,
            key=request.key or (),
            partition_by=request.partition_by,
            cluster_by=request.cluster_by,
            bloom=request.bloom,
        )

    def drop(self, request: ops.DropTable) -> None:
        self.check_change(request.name, "drop", fresh=True)
        self.tables.drop(request.name)

    def definition(self, request: ops.GetDefinition) -> ops.Definition:
        return self.on(request.name, lambda table: definition_of(table, fresh=request.fresh))

    def describe(self, request: ops.DescribeTable) -> dict[str, Any]:
        return self.on(request.name, lambda table: table.newest(lambda snapshot: _description(table, snapshot)))

    def history(self, request: ops.ListHistory) -> list[dict[str, Any]]:
        return self.on(request.name, lambda table: table.log.history(request.limit))

    def tombstones(self, request: ops.ListTombstones) -> list[dict[str, Any]]:
        return self.on(request.name, lambda table: table.tombstones())

    def deletes(self, request: ops.ListDeletes) -> list[dict[str, Any]]:
        return self.on(request.name, delete_audit.applied)

    def preview(self, request: ops.PreviewRows) -> pa.Table:
        return self.on(request.name, lambda table: table.to_arrow(raw=request.raw, limit=request.n))

    def read(self, request: ops.ReadRows) -> pa.Table:
        return self.on(request.name, lambda table: table.to_arrow(raw=request.raw))

    def count(self, request: ops.CountRows) -> int:
        return self.on(request.name, lambda table: table.count(raw=request.raw))

    # -- changes -----------------------------------------------------------------------------------------------------

    def append(self, request: ops.WriteRows) -> WriteReceipt:
        return self.change("append", request.name, lambda table: table.write("append", request.rows, request.batch_id))

    def upsert(self, request: ops.WriteRows) -> WriteReceipt:
        return self.change("upsert", request.name, lambda table: table.write("upsert", request.rows, request.batch_id))

    def delete(self, request: ops.DeleteRows) -> WriteReceipt:
        return self.change(
            "delete",
            request.name,
            lambda table: table.delete(
                request.keys, actor=request.actor, reason=request.reason, batch_id=request.batch_id
            ),
        )

    def erase(
        self, request: ops.EraseRows, progress: Progress | None, cancellation: Cancellation | None
    ) -> ErasureReceipt:
        return self.change(
            "erase",
            request.name,
            lambda table: erase(
                table,
                request.keys,
                actor=request.actor,
                reason=request.reason,
                copies=self.copies,
                progress=progress,
                cancellation=cancellation,
                then=partial(erase_from_audit, self.tables, cancellation=cancellation),
            ),
        )

    # -- maintenance -------------------------------------------------------------------------------------------------

    def fold(self, request: ops.FoldTable, progress: Progress | None, cancellation: Cancellation | None) -> FoldReport:
        return self.on(request.name, lambda table: fold(table, progress=progress, cancellation=cancellation))

    def compact(
        self, request: ops.CompactTable, progress: Progress | None, cancellation: Cancellation | None
    ) -> CompactReport:
        if request.dry_run:
            return self.on(request.name, lambda table: compact(table, dry_run=True))
        report = self.on(request.name, lambda table: compact(table, progress=progress, cancellation=cancellation))
        self.warehouse.in_background(
            run_as_task, self.control, request.name, AFTER_COMPACT, partial(self._vacuum_at_the_floor, request.name)
        )
        return report

    def _vacuum_at_the_floor(self, name: TableName) -> dict[str, Any]:
        floor_s = self.warehouse.settings.retention_floor_s
        return self.on(name, lambda table: vacuum(table, retention_s=floor_s)).as_dict()

    def vacuum(
        self, request: ops.VacuumTable, progress: Progress | None, cancellation: Cancellation | None
    ) -> VacuumReport:
        retention_s = None if request.retention_hours is None else request.retention_hours * 3600
        return self.on(
            request.name,
            lambda table: vacuum(table, retention_s=retention_s, force=request.force, dry_run=request.dry_run),
        )

    def expire(
        self, request: ops.ExpireRows, progress: Progress | None, cancellation: Cancellation | None
    ) -> ExpireReport:
        return self.change(
            "expire",
            request.name,
            lambda table: expire(
                table, request.before, column=request.column, progress=progress, cancellation=cancellation
            ),
        )

    def evolve(
        self, request: ops.EvolveTable, progress: Progress | None, cancellation: Cancellation | None
    ) -> EvolveReport:
        return self.change(
            "evolve",
            request.name,
            lambda table: evolve(table, request.schema, progress=progress, cancellation=cancellation),
        )

    # -- memory and tasks --------------------------------------------------------------------------------------------

    def pin(self, request: ops.PinTable) -> dict[str, Any]:
        return self.queries.cache.pin(self.tables.open(request.name))

    def evict(self, request: ops.EvictTable) -> bool:
        if self.queries.cache.evict(request.name):
            return True
        self.tables.open(request.name)
        return False

    def cache_stats(self, request: ops.GetCacheStats) -> dict[str, Any]:
        return self.queries.cache.stats()

    def tasks(self, request: ops.ListTasks) -> list[dict[str, Any]]:
        """Return the control table, and the loads of hot tables that failed in this process as tasks named `hot_load`."""
        failed_loads = self.queries.cache.failed_tasks() if "queries" in self.__dict__ else []
        tasks = [*self.control.tasks(), *failed_loads]
        return [{name: getattr(task, name) for name in task.__slots__} for task in tasks]


def definition_of(table: OpenTable, *, fresh: bool = False) -> ops.Definition:
    """Return the definition of a table, as it is now or as this process last saw it."""
    base = table.log.head() if fresh else table.log.last_seen_base()
    return ops.Definition(base.schema, base.user_schema, base.key)


_CALLS: dict[Operation[Any, Any], Callable[[TableOperations, Any], Any]] = {
    ops.LIST_TABLES: TableOperations.list_tables,
    ops.CREATE: TableOperations.create,
    ops.DROP: TableOperations.drop,
    ops.DEFINITION: TableOperations.definition,
    ops.DESCRIBE: TableOperations.describe,
    ops.HISTORY: TableOperations.history,
    ops.TOMBSTONES: TableOperations.tombstones,
    ops.DELETES: TableOperations.deletes,
    ops.PREVIEW: TableOperations.preview,
    ops.READ: TableOperations.read,
    ops.COUNT: TableOperations.count,
    ops.APPEND: TableOperations.append,
    ops.UPSERT: TableOperations.upsert,
    ops.DELETE: TableOperations.delete,
    ops.PIN: TableOperations.pin,
    ops.EVICT: TableOperations.evict,
    ops.CACHE_STATS: TableOperations.cache_stats,
    ops.TASKS: TableOperations.tasks,
}
_JOBS: dict[Operation[Any, Any], Callable[[TableOperations, Any, Progress | None, Cancellation | None], Any]] = {
    ops.ERASE: TableOperations.erase,
    ops.FOLD: TableOperations.fold,
    ops.COMPACT: TableOperations.compact,
    ops.VACUUM: TableOperations.vacuum,
    ops.EXPIRE: TableOperations.expire,
    ops.EVOLVE: TableOperations.evolve,
}


def _description(table: OpenTable, snapshot: Snapshot) -> dict[str, Any]:
    base, backlog = snapshot.base, table.log.backlog()
    return {
        "name": str(table.name),
        "table_id": base.table_id,
        "version": base.version,
        "sequence": snapshot.sequence,
        "folded_sequence": base.folded,
        "rows": table.count(snapshot=snapshot),
        "base_rows": base.rows,
        "staged_rows": backlog.rows,
        "staged_bytes": backlog.bytes,
        "staged_files": backlog.files,
        "files": len(base.files),
        "bytes": base.bytes,
        "key": list(base.key),
        "partition_by": list(base.partition_by),
        "cluster_by": list(base.cluster_by),
        "columns": [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in base.schema],
        "fingerprint": fingerprint(base.schema),
        "created_at": dt.datetime.fromtimestamp(base.created_ms / 1000, dt.UTC),
        "properties": dict(base.properties),
        "warnings": [
            f"columns {one} and {other} have one name for Spark, which compares names without case: a query on Spark that"
            " names one may fail; copy the rows into a table that calls them otherwise"
            for one, other in colliding_columns(base.schema)
        ],
    }
