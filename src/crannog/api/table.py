"""A table, in the process or through a server."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crannog.api import table_requests as ops
from crannog.api.operations import Transport
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
from crannog.names import TableName

if TYPE_CHECKING:
    import pyarrow as pa


class Table:
    """A table of a lake, referenced by name: if it is dropped and re-created, the new table is used. Thread-safe."""

    def __init__(self, transport: Transport, name: TableName, *, raw: bool = False) -> None:
        self._transport = transport
        self._name = name
        self._raw = raw

    @property
    def name(self) -> str:
        """The name, `catalog.schema.table`."""
        return str(self._name)

    @property
    def schema(self) -> pa.Schema:
        """The columns, including system columns."""
        return self._transport.call(ops.DEFINITION, ops.GetDefinition(self._name)).schema

    @property
    def user_schema(self) -> pa.Schema:
        """The columns that a caller gives, as this process last saw them."""
        return self._transport.call(ops.LAST_DEFINITION, ops.GetLastDefinition(self._name)).user_schema

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row; empty for a table without a key."""
        return self._transport.call(ops.DEFINITION, ops.GetDefinition(self._name)).key

    def append(self, rows: Any, batch_id: str | None = None) -> WriteReceipt:
        """Append rows; they are durable and visible when the call returns. On a table with a key this is `upsert`.

        Raises BadRows or SchemaMismatch if a row does not fit (nothing of the batch is stored), Overloaded at a
        limit, Unavailable if the storage fails, or if no server responds after several tries with the same batch id. The
        same batch id again stores nothing and returns `duplicate`.
        """
        return self._transport.call(ops.APPEND, ops.WriteRows(self._name, rows, batch_id))

    def upsert(self, rows: Any, batch_id: str | None = None) -> WriteReceipt:
        """Write rows, each replacing the row with the same key; raises CallerError on a table without a key."""
        return self._transport.call(ops.UPSERT, ops.UpsertRows(self._name, rows, batch_id))

    def delete(self, keys: Any, actor: str = "", reason: str = "", batch_id: str | None = None) -> WriteReceipt:
        """Hide the rows of these keys immediately from every query; the next fold removes them from the base.

        Programs that read the Delta table directly, without Crannog, see the rows until that fold; call `fold` to prevent it.
        """
        return self._transport.call(ops.DELETE, ops.DeleteRows(self._name, keys, actor, reason, batch_id))

    def erase(
        self,
        keys: Any,
        actor: str = "",
        reason: str = "",
        *,
        erasure_id: str | None = None,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> ErasureReceipt:
        """Remove these keys from every file of the table and verify it; raises VerificationFailed if one can still be read.

        The receipt is kept; erasures of several tables with the same `erasure_id` have one, which `Lake.receipt` returns.
        """
        request = ops.EraseRows(self._name, keys, actor, reason, erasure_id)
        return self._transport.run(ops.ERASE, request, progress, cancellation)

    def fold(self, *, progress: Progress | None = None, cancellation: Cancellation | None = None) -> FoldReport:
        """Fold all staged changes into the base."""
        return self._transport.run(ops.FOLD, ops.FoldTable(self._name), progress, cancellation)

    def compact(
        self, *, dry_run: bool = False, progress: Progress | None = None, cancellation: Cancellation | None = None
    ) -> CompactReport:
        """Fold, then merge small files into large, clustered ones. A vacuum with the minimum retention follows automatically."""
        return self._transport.run(ops.COMPACT, ops.CompactTable(self._name, dry_run), progress, cancellation)

    def vacuum(
        self, retention_hours: float | None = None, *, force: bool = False, dry_run: bool = False
    ) -> VacuumReport:
        """Delete files removed from the base longer ago than the retention, which has a minimum unless `force`."""
        request = ops.VacuumTable(self._name, retention_hours, force, dry_run)
        return self._transport.run(ops.VACUUM, request, None, None)

    def expire(
        self,
        before: dt.date,
        *,
        column: str | None = None,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> ExpireReport:
        """Drop the rows before a date."""
        return self._transport.run(ops.EXPIRE, ops.ExpireRows(self._name, before, column), progress, cancellation)

    def evolve(
        self, schema: Any, *, progress: Progress | None = None, cancellation: Cancellation | None = None
    ) -> EvolveReport:
        """Add nullable columns or widen types; other changes are refused with the reason."""
        return self._transport.run(ops.EVOLVE, ops.EvolveTable(self._name, schema), progress, cancellation)

    def describe(self) -> dict[str, Any]:
        """Describe the table: its definition, size and state."""
        return self._transport.call(ops.DESCRIBE, ops.DescribeTable(self._name))

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """List the versions of the base, newest first."""
        return self._transport.call(ops.HISTORY, ops.ListHistory(self._name, limit))

    def tombstones(self) -> list[dict[str, Any]]:
        """List the deletes that are not folded yet: key, actor, reason, time, and whether the key existed."""
        return self._transport.call(ops.TOMBSTONES, ops.ListTombstones(self._name))

    def audit(self) -> list[dict[str, Any]]:
        """List the deletes that were carried out: actor, reason, time, and a keyed hash of the key."""
        return self._transport.call(ops.DELETES, ops.ListDeletes(self._name))

    def preview(self, n: int = 100, raw: bool = False) -> pa.Table:
        """Return some rows; `raw` includes deleted ones until they are folded."""
        return self._transport.call(ops.PREVIEW, ops.PreviewRows(self._name, raw or self._raw, n))

    def get(self, key: Any) -> dict[str, Any]:
        """Return the row of a key, as fast as it can be found: without SQL, from memory where the table is pinned.

        A key of several columns is a dict of its columns, or a tuple in their order. Raises NotFound if there is no such row,
        and CallerError if the table has no key or the key does not have its types.
        """
        return self._transport.call(ops.ROW, ops.GetRow(self._name, key))

    def to_arrow(self, *, raw: bool = False) -> pa.Table:
        """Return all rows."""
        return self._transport.call(ops.READ, ops.PageRows(self._name, raw or self._raw)).rows

    def page(
        self,
        limit: int = 100,
        *,
        order: str = "",
        after: str | None = None,
        before: str | None = None,
        where: Sequence[Any] = (),
        columns: Sequence[str] = (),
        raw: bool = False,
    ) -> ops.RowPage:
        """Return a page of rows in the order of the key, or of a column (`"amount"`, `"-amount"`) and then the key.

        `where` has filters like `("amount", ">=", 5)`. `after` takes the `next_cursor` of a page, `before` its
        `previous_cursor`. A table without a key is in the order in which it was written.
        """
        request = ops.PageRows(self._name, raw or self._raw, limit, order, after, before, where, columns)
        return self._transport.call(ops.READ, request)

    def facets(
        self, columns: Sequence[str] = (), *, where: Sequence[Any] = (), top: int = 10, bins: int = 30
    ) -> ops.TableFacets:
        """Return what each column holds: nulls, distinct values, bounds, mean, most frequent values and a histogram.

        `where` has filters as for `page`. A table of more than 200,000 rows is sampled, and `sampled` says so.
        """
        return self._transport.call(ops.FACETS, ops.FacetTable(self._name, columns, where, top, bins))

    def count(self, *, raw: bool = False) -> int:
        """Return the number of rows."""
        return self._transport.call(ops.COUNT, ops.CountRows(self._name, raw or self._raw))

    def __repr__(self) -> str:
        return f"Table({self.name!r})"
