"""One table as its users see it. Stands for a name: the engine opens, closes and reopens the table behind it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from crannog.api.cancellation import Cancellation
from crannog.api.reports import (
    CompactReport,
    ErasureReceipt,
    EvolveReport,
    ExpireReport,
    FoldReport,
    Progress,
    VacuumReport,
    WriteReceipt,
)
from crannog.delta.name_collisions import colliding_columns
from crannog.delta.schemas import fingerprint
from crannog.engine.maintenance import delete_audit as audit
from crannog.engine.maintenance.compact import compact
from crannog.engine.maintenance.erase import erase
from crannog.engine.maintenance.erase_audit_texts import erase_from_audit
from crannog.engine.maintenance.evolve import evolve
from crannog.engine.maintenance.expire import expire
from crannog.engine.maintenance.fold import fold
from crannog.engine.maintenance.scheduler import AFTER_COMPACT, run_as_task
from crannog.engine.maintenance.vacuum import vacuum
from crannog.engine.open_table import OpenTable
from crannog.engine.owned_tables import check_change
from crannog.engine.snapshot import Snapshot
from crannog.errors import Corrupted, NotFound, Refused
from crannog.names import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from crannog.tables.lake import Lake

T = TypeVar("T")


class Table:
    """A table of a lake. Safe for threads."""

    def __init__(self, lake: Lake, name: TableName, *, raw: bool = False) -> None:
        self._lake = lake
        self._name = name
        self._raw = raw

    @property
    def name(self) -> str:
        return str(self._name)

    def _on(self, act: Callable[[OpenTable], T]) -> T:
        try:
            return act(self._lake.engine.open(self._name))
        except (NotFound, FileNotFoundError):
            # Another process may have dropped the table and made it again: open what stands there now.
            self._lake.engine.forget(self._name)
        try:
            return act(self._lake.engine.open(self._name))
        except FileNotFoundError as error:
            raise NotFound(
                f"a file of table {self.name} is gone, it may have been dropped: {error.filename}"
            ) from error

    def check_change(self, change: str, *, fresh: bool = False) -> None:
        """Raise Refused if this table belongs to a part of Crannog, which alone may change it so.

        `fresh` looks at the storage, where another process may have made another table of this name.
        """
        properties: Mapping[str, str] | None = None
        # Of a table that is damaged, the name alone tells whose it is.
        with suppress(NotFound, Corrupted, Refused):
            properties = self._on(lambda table: (table.log.head() if fresh else table.log.last_seen_base()).properties)
        check_change(change, self._name, properties)

    def _change(self, change: str, act: Callable[[OpenTable], T]) -> T:
        def checked(table: OpenTable) -> T:
            check_change(change, self._name, table.log.last_seen_base().properties)
            return act(table)

        return self._on(checked)

    @property
    def schema(self) -> pa.Schema:
        """The columns, the system's included."""
        return self._on(lambda table: table.log.head().schema)

    @property
    def user_schema(self) -> pa.Schema:
        """The columns that a caller gives, as this process last saw them."""
        return self._on(lambda table: table.log.last_seen_base().user_schema)

    @property
    def key(self) -> tuple[str, ...]:
        return self._on(lambda table: table.log.head().key)

    def append(self, rows: Any, batch_id: str | None = None) -> WriteReceipt:
        """Keep rows; durable and visible when it returns. On a table with a key this is `upsert`.

        Raises BadRows or SchemaMismatch if a row does not fit (nothing of the batch is kept), Overloaded at a
        limit, Unavailable if the storage fails. The same batch id again keeps nothing and answers `duplicate`.
        """
        return self._change("append", lambda table: table.write("append", rows, batch_id))

    def upsert(self, rows: Any, batch_id: str | None = None) -> WriteReceipt:
        """Keep rows, each replacing the row of its key; CallerError on a table without a key."""
        return self._change("upsert", lambda table: table.write("upsert", rows, batch_id))

    def delete(self, keys: Any, actor: str = "", reason: str = "", batch_id: str | None = None) -> WriteReceipt:
        """Hide the rows of these keys at once from every query of Crannog; the next fold takes them out of the base.

        Readers of the Delta table itself, without Crannog, see the rows until that fold; call `fold` if they must not.
        """
        return self._change("delete", lambda table: table.delete(keys, actor=actor, reason=reason, batch_id=batch_id))

    def erase(
        self,
        keys: Any,
        actor: str = "",
        reason: str = "",
        *,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> ErasureReceipt:
        """Remove these keys from every file of the table and prove it; VerificationFailed if one is still readable."""
        return self._change(
            "erase",
            lambda table: erase(
                table,
                keys,
                actor=actor,
                reason=reason,
                copies=self._lake.copies,
                progress=progress,
                cancellation=cancellation,
                then=partial(erase_from_audit, self._lake.engine, cancellation=cancellation),
            ),
        )

    def fold(self, *, progress: Progress | None = None, cancellation: Cancellation | None = None) -> FoldReport:
        """Bring everything staged into the base, once."""
        return self._on(lambda table: fold(table, progress=progress, cancellation=cancellation))

    def compact(
        self, *, dry_run: bool = False, progress: Progress | None = None, cancellation: Cancellation | None = None
    ) -> CompactReport:
        """Fold, then merge small files into large, clustered ones. A vacuum at the floor follows by itself."""
        if dry_run:
            return self._on(lambda table: compact(table, dry_run=True))
        report = self._on(lambda table: compact(table, progress=progress, cancellation=cancellation))
        self._lake.warehouse.behind(
            run_as_task, self._lake.control, self._name, AFTER_COMPACT, self._vacuum_at_the_floor
        )
        return report

    def _vacuum_at_the_floor(self) -> dict[str, Any]:
        floor_s = self._lake.settings.retention_floor_s
        return self._on(lambda table: vacuum(table, retention_s=floor_s)).as_dict()

    def vacuum(
        self, retention_hours: float | None = None, *, force: bool = False, dry_run: bool = False
    ) -> VacuumReport:
        """Delete files that left the base longer than the retention ago; never below the floor unless forced."""
        retention_s = None if retention_hours is None else retention_hours * 3600
        return self._on(lambda table: vacuum(table, retention_s=retention_s, force=force, dry_run=dry_run))

    def expire(
        self,
        before: dt.date,
        *,
        column: str | None = None,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> ExpireReport:
        """Drop the rows before a date."""
        return self._change(
            "expire", lambda table: expire(table, before, column=column, progress=progress, cancellation=cancellation)
        )

    def evolve(
        self, schema: Any, *, progress: Progress | None = None, cancellation: Cancellation | None = None
    ) -> EvolveReport:
        """Add nullable columns or widen types; anything else is refused with the reason."""
        return self._change("evolve", lambda table: evolve(table, schema, progress=progress, cancellation=cancellation))

    def describe(self) -> dict[str, Any]:
        """Tell what the table is and how it stands."""
        return self._on(lambda table: table.newest(lambda snapshot: _description(table, snapshot)))

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """List the versions of the base, newest first."""
        return self._on(lambda table: table.log.history(limit))

    def tombstones(self) -> list[dict[str, Any]]:
        """List the deletes that are not folded yet: key, who, why, when, and whether the key was there."""
        return self._on(lambda table: table.tombstones())

    def audit(self) -> list[dict[str, Any]]:
        """List the deletes that were carried out: who, why, when, and a keyed hash of the key."""
        return self._on(audit.applied)

    def preview(self, n: int = 100, raw: bool = False) -> pa.Table:
        """Return some rows; `raw` shows deleted ones too until they are folded."""
        return self._on(lambda table: table.to_arrow(raw=raw or self._raw, limit=n))

    def to_arrow(self, *, raw: bool = False) -> pa.Table:
        """Return all rows."""
        return self._on(lambda table: table.to_arrow(raw=raw or self._raw))

    def to_spark(self, *, raw: bool = False) -> DataFrame:
        """Return all rows as a DataFrame of the process's Spark session."""
        from crannog.engine.spark_read import to_spark

        session = self._lake.warehouse.spark()
        return self._on(lambda table: to_spark(table, table.snapshot(), session, raw=raw or self._raw))

    def count(self, *, raw: bool = False) -> int:
        """Return the number of rows."""
        return self._on(lambda table: table.count(raw=raw or self._raw))

    def __repr__(self) -> str:
        return f"Table({self.name!r})"


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
