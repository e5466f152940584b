"""The operations on tables and SQL, carried out in the process: the engine opens, closes and reopens the tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from crannog.api import table_requests as ops
from crannog.api.operations import AnyOperation, Operation, Q, R
from crannog.api.reports import (
    Cancellation,
    CompactReport,
    ErasureReceipt,
    Progress,
    VacuumReport,
    WriteReceipt,
)
from crannog.delta.log import DeltaLog
from crannog.delta.schemas import colliding_columns, fingerprint
from crannog.engine.facets import facets
from crannog.engine.maintenance import delete_audit, receipts
from crannog.engine.maintenance.compact import compact
from crannog.engine.maintenance.control import ControlTable
from crannog.engine.maintenance.erase import erase
from crannog.engine.maintenance.erase_audit_texts import erase_from_audit
from crannog.engine.maintenance.evolve import evolve
from crannog.engine.maintenance.expire import expire
from crannog.engine.maintenance.fold import fold
from crannog.engine.maintenance.scheduler import AFTER_COMPACT, run_as_task
from crannog.engine.maintenance.vacuum import vacuum
from crannog.engine.open_table import OpenTable
from crannog.engine.owned_tables import check_change, check_create, is_reserved, is_system
from crannog.engine.row_lookup import row_by_key
from crannog.engine.row_pages import page
from crannog.engine.rows.keys import described, exact_key
from crannog.engine.snapshot import ResultLimit, Snapshot
from crannog.engine.tables import Tables
from crannog.engine.warehouse import Warehouse
from crannog.errors import Corrupted, NotFound, Refused, needed_for
from crannog.names import TableName
from crannog.tables.upkeep import changed_at, upkeep_of

if TYPE_CHECKING:
    import pyarrow as pa

    from crannog.api.result import Explanation, Result, Stream
    from crannog.engine.sql.hot_tables import HotCache
    from crannog.engine.sql.queries import Queries, Visible

T = TypeVar("T")


class TableOperations:
    """Carries out the operations on the tables of a warehouse: the transport of `api.Lake` inside the process."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self.tables = Tables(warehouse)
        self.control = ControlTable(warehouse.storage, lease_s=warehouse.settings.claim_lease_s)

    # Created on first use: a command that runs no SQL need not load a parser.
    @cached_property
    def queries(self) -> Queries:
        with needed_for("SQL"):
            from crannog.engine.sql.queries import Queries

        return Queries(self.warehouse, self.tables)

    @property
    def copies(self) -> HotCache | None:
        """The copies of tables in memory; None before the first query."""
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

    def cancel(self, query_id: str, owner: str = "") -> None:
        self.queries.running.cancel(query_id, owner)

    def sql(self, request: ops.RunSql, *, visible: Visible | None = None, owner: str = "") -> Result:
        """Run a statement; SHOW TABLES lists the tables for which `visible` is true. Query ids belong to their owner."""
        return self.queries.sql(request, visible=visible, owner=owner)

    def stream(self, request: ops.StreamSql, *, visible: Visible | None = None, owner: str = "") -> Stream:
        return self.queries.stream(request, visible=visible, owner=owner)

    def explain(self, request: ops.ExplainSql, *, owner: str = "") -> Explanation:
        return self.queries.explain(request, owner=owner)

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

    # -- carrying out the operations ---------------------------------------------------------------------------------

    def _list_tables(self, request: ops.ListTables) -> list[str]:
        self.warehouse.check_open()
        return [str(name) for name in self.tables.names() if request.system or not is_system(name)]

    def _create(self, request: ops.CreateTable) -> bool:
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

    def _drop(self, request: ops.DropTable) -> None:
        self.check_change(request.name, "drop", fresh=True)
        self.tables.drop(request.name)

    def _append(self, request: ops.WriteRows) -> WriteReceipt:
        return self.change("append", request.name, lambda table: table.write("append", request.rows, request.batch_id))

    def _upsert(self, request: ops.WriteRows) -> WriteReceipt:
        return self.change("upsert", request.name, lambda table: table.write("upsert", request.rows, request.batch_id))

    def rows(self, request: ops.PageRows | ops.PreviewRows, most: ResultLimit | None = None) -> ops.RowPage:
        """Return rows of a table; raises TooLarge if there are more than `most`, before they are all in memory."""

        def read(table: OpenTable) -> ops.RowPage:
            if isinstance(request, ops.PreviewRows):
                return ops.RowPage(table.to_arrow(raw=request.raw, limit=request.n, most=most))
            if request.is_whole_table:
                return ops.RowPage(table.to_arrow(raw=request.raw, most=most))
            return page(table, request, self.copies, most)

        return self.on(request.name, read)

    def row(self, name: TableName, key_of: Callable[[ops.Definition], Any]) -> pa.Table:
        """Return the row of a key as a table of one row; `key_of` reads the key by the definition of the table."""

        def find(table: OpenTable) -> tuple[str, pa.Table | None]:
            base = table.log.last_seen_base()
            given = key_of(definition_of(table)) if base.key else None
            key = exact_key(given, base.user_schema, base.key, table=str(name))
            return described(base.key, key), row_by_key(table, key, self.copies)

        key, found = self.on(name, find)
        if found is None:
            raise NotFound(f"{name} has no row with {key}")
        return found

    def _row(self, request: ops.GetRow) -> dict[str, Any]:
        [row] = self.row(request.name, lambda _: request.key).to_pylist(maps_as_pydicts="strict")
        return dict(row)

    def _erase(
        self, request: ops.EraseRows, progress: Progress | None, cancellation: Cancellation | None
    ) -> ErasureReceipt:
        receipt = self.change(
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
        return receipts.kept(self.warehouse.storage, receipt, request.erasure_id)

    def _compact(
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

    def _evict(self, request: ops.EvictTable) -> bool:
        if self.queries.cache.evict(request.name):
            return True
        self.tables.open(request.name)
        return False

    def _tasks(self, _request: ops.ListTasks) -> list[dict[str, Any]]:
        """Return the control table, and the loads of hot tables that failed in this process as tasks named `hot_load`."""
        failed_loads = self.queries.cache.failed_tasks() if "queries" in self.__dict__ else []
        tasks = [*self.control.tasks(), *failed_loads]
        return [{name: getattr(task, name) for name in task.__slots__} for task in tasks]

    def _upkeep(self, request: ops.ListUpkeep) -> list[dict[str, Any]]:
        names = [TableName.parse(name) for name in request.names] or self.tables.names()
        return upkeep_of(names, self.on, self.control.tasks(), storage=request.storage)


def definition_of(table: OpenTable, *, fresh: bool = False) -> ops.Definition:
    """Return the definition of a table, as it is now or as this process last saw it."""
    base = table.log.head() if fresh else table.log.last_seen_base()
    return ops.Definition(base.schema, base.user_schema, base.key)


def _vacuum(table: OpenTable, request: ops.VacuumTable) -> VacuumReport:
    retention_s = None if request.retention_hours is None else request.retention_hours * 3600
    return vacuum(table, retention_s=retention_s, force=request.force, dry_run=request.dry_run)


def _delete(table: OpenTable, request: ops.DeleteRows) -> WriteReceipt:
    return table.delete(request.keys, actor=request.actor, reason=request.reason, batch_id=request.batch_id)


_Call = Callable[[TableOperations, Any], Any]
_Job = Callable[[TableOperations, Any, Progress | None, Cancellation | None], Any]


def _of_table(act: Callable[[OpenTable, Any], Any], change: str = "") -> _Call:
    """Return an operation on one open table; with `change`, it is refused if a part of Crannog owns the table."""
    if change:
        return lambda self, request: self.change(change, request.name, lambda table: act(table, request))
    return lambda self, request: self.on(request.name, lambda table: act(table, request))


def _job(act: Callable[..., Any], change: str = "") -> _Job:
    """Return a long operation on one open table; `act` takes the progress and the cancellation by name."""
    return lambda self, request, progress, cancellation: _of_table(
        partial(act, progress=progress, cancellation=cancellation), change
    )(self, request)


_CALLS: dict[AnyOperation, _Call] = {
    ops.LIST_TABLES: TableOperations._list_tables,
    ops.CREATE: TableOperations._create,
    ops.DROP: TableOperations._drop,
    ops.DEFINITION: _of_table(lambda table, _: definition_of(table, fresh=True)),
    ops.LAST_DEFINITION: _of_table(lambda table, _: definition_of(table)),
    ops.DESCRIBE: _of_table(lambda table, _: table.newest(lambda snapshot: _description(table, snapshot))),
    ops.HISTORY: _of_table(
        lambda table, request: DeltaLog(table.warehouse.storage, table.folder).history(request.limit)
    ),
    ops.TOMBSTONES: _of_table(lambda table, _: table.tombstones()),
    ops.DELETES: _of_table(lambda table, _: delete_audit.applied(table)),
    ops.PREVIEW: lambda self, request: self.rows(request).rows,
    ops.READ: TableOperations.rows,
    ops.FACETS: lambda self, request: self.on(request.name, lambda table: facets(table, request, self.copies)),
    ops.ROW: TableOperations._row,
    ops.COUNT: _of_table(lambda table, request: table.count(raw=request.raw)),
    ops.APPEND: TableOperations._append,
    ops.UPSERT: TableOperations._upsert,
    ops.DELETE: _of_table(_delete, "delete"),
    ops.PIN: lambda self, request: self.queries.cache.pin(self.tables.open(request.name)),
    ops.EVICT: TableOperations._evict,
    ops.CACHE_STATS: lambda self, _: self.queries.cache.stats(),
    ops.TASKS: TableOperations._tasks,
    ops.UPKEEP: TableOperations._upkeep,
    ops.RECEIPTS: lambda self, request: receipts.receipts(self.warehouse.storage, request.limit),
    ops.RECEIPT: lambda self, request: receipts.receipt_of(self.warehouse.storage, request.erasure_id),
}
_JOBS: dict[AnyOperation, _Job] = {
    ops.ERASE: TableOperations._erase,
    ops.FOLD: _job(lambda table, _, **job: fold(table, **job)),
    ops.COMPACT: TableOperations._compact,
    ops.VACUUM: _job(lambda table, request, **_: _vacuum(table, request)),
    ops.EXPIRE: _job(
        lambda table, request, **job: expire(table, request.before, column=request.column, **job), "expire"
    ),
    ops.EVOLVE: _job(lambda table, request, **job: evolve(table, request.schema, **job), "evolve"),
}


def _description(table: OpenTable, snapshot: Snapshot) -> dict[str, Any]:
    base, backlog = snapshot.base, table.log.backlog()
    return {
        "name": str(table.name),
        "table_id": base.table_id,
        "version": base.version,
        "sequence": snapshot.sequence,
        "folded_sequence": base.folded,
        "changed_at": changed_at(snapshot),
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
