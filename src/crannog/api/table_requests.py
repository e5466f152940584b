"""The operations on tables, SQL and the cache, each with its request."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crannog.api.arguments import (
    ENGINES,
    checked_engine,
    checked_erasure_id,
    checked_if_exists,
    checked_limit,
    checked_max_rows,
    checked_query_id,
    checked_timeout,
)
from crannog.api.operations import Operation, delete, get, in_query, post, put
from crannog.api.reports import (
    CompactReport,
    ErasureReceipt,
    EvolveReport,
    ExpireReport,
    FoldReport,
    VacuumReport,
    WriteReceipt,
)
from crannog.errors import CallerError
from crannog.names import TableName

if TYPE_CHECKING:
    import pyarrow as pa

_TIMEOUT = {"schema": {"exclusiveMinimum": 0, "maximum": 86_400}}
_QUERY_ID = {"schema": {"minLength": 1, "maxLength": 128}}
_ENGINE = {"schema": {"enum": list(ENGINES)}}


@dataclass(frozen=True, slots=True)
class OfTable:
    """A request about one table."""

    name: TableName


@dataclass(frozen=True, slots=True)
class Definition:
    """The columns of a table, with and without system columns, and the key."""

    schema: pa.Schema
    user_schema: pa.Schema
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListTables:
    """List the tables that the caller may read."""

    system: bool = field(default=False, metadata={"about": "List the server's own tables too."})


@dataclass(frozen=True, slots=True)
class CreateTable(OfTable):
    """Create a table: 201 if it was created, 200 if it exists with this definition, 409 if with another."""

    schema: Any
    key: Sequence[str] | str | None = None
    partition_by: Sequence[str] | str = ()
    if_exists: str = "error"
    cluster_by: Sequence[str] | str = ()
    bloom: Sequence[str] | str = ()

    def __post_init__(self) -> None:
        checked_if_exists(self.if_exists)


@dataclass(frozen=True, slots=True)
class DropTable(OfTable):
    """Remove a table and all its files."""


@dataclass(frozen=True, slots=True)
class GetDefinition(OfTable):
    """Return the columns, including system columns, and the key.

    In Arrow they are a stream without rows, and the key is in the header Crannog-Key, as JSON.
    """


@dataclass(frozen=True, slots=True)
class GetLastDefinition(OfTable):
    """Return the definition that this process last read; the current one if it has read none."""


@dataclass(frozen=True, slots=True)
class DescribeTable(OfTable):
    """Describe a table: its definition, size and state."""


@dataclass(frozen=True, slots=True)
class ListHistory(OfTable):
    """List the versions of the base, newest first."""

    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and (type(self.limit) is not int or not 1 <= self.limit <= 1_000_000):
            raise CallerError(f"limit is a whole number from 1 to 1,000,000, got {self.limit!r}")


@dataclass(frozen=True, slots=True)
class ListTombstones(OfTable):
    """List the deletes that are not folded yet; as Arrow where the keys have types that JSON lacks."""


@dataclass(frozen=True, slots=True)
class ListDeletes(OfTable):
    """List the deletes that were carried out."""


@dataclass(frozen=True, slots=True)
class ReadRows(OfTable):
    """Return all rows."""

    raw: bool = field(default=False, metadata={"about": "Include deleted rows until they are folded."})


OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "in", "contains", "icontains", "starts_with", "is_null", "is_not_null")
"""What a filter of a column may be; `icontains` ignores case."""
MAX_PAGE_ROWS = 100_000
MAX_FILTERS = 50
MAX_IN_VALUES = 1_000


@dataclass(frozen=True, slots=True)
class PageRows(ReadRows):
    """Return all rows, or a page of them in a stable order: by the key, or by a column and then the key.

    The cursors of a page are in the headers Crannog-Next-Cursor and Crannog-Previous-Cursor. A table without a key is in the
    order in which it was written.
    """

    limit: int | None = field(
        default=None, metadata={"about": f"Rows of a page, up to {MAX_PAGE_ROWS:,}; all if not given."}
    )
    order: str = field(default="", metadata={"about": "A column; with - before it, descending. Nulls come last."})
    after: str | None = field(default=None, metadata={"about": "The next cursor of a page: continue behind it."})
    before: str | None = field(default=None, metadata={"about": "The previous cursor of a page: end before it."})
    where: Sequence[Any] = field(
        default=(),
        metadata=in_query("where", list, f'A filter as a JSON array, ["column", "op", value]: {", ".join(OPERATORS)}.'),
    )
    columns: Sequence[str] = field(
        default=(), metadata=in_query("column", list, "A column to return; all if not given.")
    )

    def __post_init__(self) -> None:
        if self.limit is not None and (type(self.limit) is not int or not 1 <= self.limit <= MAX_PAGE_ROWS):
            raise CallerError(f"limit is a whole number from 1 to {MAX_PAGE_ROWS:,}, got {self.limit!r}")
        if self.after is not None and self.before is not None:
            raise CallerError("a page continues after a cursor or ends before one; give only one of them")
        if not isinstance(self.order, str) or isinstance(self.columns, str):
            raise CallerError("order is the name of a column, and columns is a list of names")

    @property
    def is_whole_table(self) -> bool:
        """Whether neither a page nor an order nor a part of the table was requested."""
        return not (self.limit or self.order or self.after or self.before or self.where or self.columns)


@dataclass(frozen=True, slots=True)
class RowPage:
    """Some rows of a table, and the cursors with which to continue: None at the ends."""

    rows: pa.Table
    next_cursor: str | None = None
    previous_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class FacetTable(OfTable):
    """Return what each column holds: nulls, distinct values, bounds, mean, most frequent values and a histogram.

    A table of more than 200,000 rows is sampled, and `sampled` says so.
    """

    columns: Sequence[str] = field(default=(), metadata=in_query("column", list, "A column; all if not given."))
    where: Sequence[Any] = field(default=(), metadata=in_query("where", list, "A filter, as for pages of rows."))
    top: int = field(default=10, metadata={"about": "How many of the most frequent values to return, up to 100."})
    bins: int = field(default=30, metadata={"about": "Bins of a histogram, up to 30."})

    def __post_init__(self) -> None:
        for name, most in (("top", 100), ("bins", 30)):
            if type(value := getattr(self, name)) is not int or not 1 <= value <= most:
                raise CallerError(f"{name} is a whole number from 1 to {most}, got {value!r}")
        if isinstance(self.columns, str):
            raise CallerError("columns is a list of names")


@dataclass(frozen=True, slots=True)
class TopValue:
    """A frequent value, in its JSON form and cut at 200 characters, and how often it occurs."""

    value: Any
    count: int


@dataclass(frozen=True, slots=True)
class HistogramBin:
    """How many values are at or above `low` and below `high`; the last bin includes its end. Times are in ISO 8601."""

    low: Any
    high: Any
    count: int


@dataclass(frozen=True, slots=True)
class ColumnFacets:
    """What one column holds. Nested columns have only their nulls; only numbers have a mean, only they and times a histogram."""

    name: str
    type: str
    nulls: int
    null_share: float
    distinct: int | None = None
    """Approximate number of distinct values."""
    min: Any = None
    max: Any = None
    mean: float | None = None
    top: tuple[TopValue, ...] = ()
    histogram: tuple[HistogramBin, ...] = ()


@dataclass(frozen=True, slots=True)
class TableFacets:
    """The facets of a table: of `rows` rows, which are a sample if `sampled`."""

    table: str
    rows: int
    sampled: bool
    columns: tuple[ColumnFacets, ...]
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class PreviewRows(ReadRows):
    """Return some rows."""

    n: int = 100

    def __post_init__(self) -> None:
        checked_limit(self.n)


@dataclass(frozen=True, slots=True)
class GetRow(OfTable):
    """Return the row of a key; 404 if it does not exist. Reads by the key alone, without planning SQL.

    A key of several columns is given by `key` once for each column in the order of the key, or as one JSON object or array.
    """

    key: Any = field(metadata=in_query("key", list, "The key: its text, or one value for each of its columns."))


@dataclass(frozen=True, slots=True)
class CountRows(ReadRows):
    """Count the rows."""


@dataclass(frozen=True, slots=True)
class WriteRows(OfTable):
    """Append rows; they are durable and visible when the call returns. On a table with a key, each replaces the row of its key."""

    rows: Any
    batch_id: str | None = None


@dataclass(frozen=True, slots=True)
class UpsertRows(WriteRows):
    """Write rows, each replacing the row with the same key."""


@dataclass(frozen=True, slots=True)
class DeleteRows(OfTable):
    """Hide the rows of these keys immediately from every query; the next fold removes them from the base.

    Programs that read the Delta table directly, without Crannog, see the rows until that fold.
    """

    keys: Any
    actor: str = ""
    reason: str = ""
    batch_id: str | None = None


@dataclass(frozen=True, slots=True)
class EraseRows(OfTable):
    """Remove these keys from every file of the table, including old versions, and verify it.

    The receipt is kept; erasures of several tables with the same `erasure_id` have one receipt.
    """

    keys: Any
    actor: str = ""
    reason: str = ""
    erasure_id: str | None = None

    def __post_init__(self) -> None:
        checked_erasure_id(self.erasure_id)


@dataclass(frozen=True, slots=True)
class ListReceipts:
    """List the erasures of tables that the caller may read, newest first."""

    limit: int = 100

    def __post_init__(self) -> None:
        if type(self.limit) is not int or not 1 <= self.limit <= 10_000:
            raise CallerError(f"limit is a whole number from 1 to 10,000, got {self.limit!r}")


@dataclass(frozen=True, slots=True)
class GetReceipt:
    """Return the receipt of an erasure: what was found and removed in each table, and what is left."""

    erasure_id: str


@dataclass(frozen=True, slots=True)
class FoldTable(OfTable):
    """Fold all staged changes into the base."""


@dataclass(frozen=True, slots=True)
class CompactTable(OfTable):
    """Fold, then merge small files into large, clustered ones."""

    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class VacuumTable(OfTable):
    """Delete files that no version within the retention, reader or job needs."""

    retention_hours: float | None = None
    force: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        hours = self.retention_hours
        if hours is not None and not (isinstance(hours, (int, float)) and 0 <= hours <= 1_000_000):
            raise CallerError(f"retention_hours is a number from 0 to 1,000,000, got {hours!r}")


@dataclass(frozen=True, slots=True)
class ExpireRows(OfTable):
    """Drop the rows before a day."""

    before: dt.date
    column: str | None = None


@dataclass(frozen=True, slots=True)
class EvolveTable(OfTable):
    """Add nullable columns or widen types."""

    schema: Any


@dataclass(frozen=True, slots=True)
class RunSql:
    """Run a statement and return up to `max_rows`."""

    sql: str
    max_rows: int | None = field(default=None, metadata={"schema": {"minimum": 0}})
    engine: str = field(default="auto", metadata=_ENGINE)
    timeout_s: float | None = field(default=None, metadata=_TIMEOUT)
    query_id: str | None = field(default=None, metadata=_QUERY_ID)

    def __post_init__(self) -> None:
        checked_engine(self.engine)
        checked_timeout(self.timeout_s)
        checked_max_rows(self.max_rows)
        if self.query_id is not None:
            checked_query_id(self.query_id)


@dataclass(frozen=True, slots=True)
class StreamSql(RunSql):
    """Run a statement and return its rows as they are produced: objects in JSON, lines, CSV or Arrow by `Accept`.

    After the first byte, an error is an empty batch with `crannog-error` in its metadata in Arrow; other forms break off.
    """


@dataclass(frozen=True, slots=True)
class ExplainSql:
    """Return which engine would answer and why, which files are pruned, and the plan; `analyze` runs it too."""

    sql: str
    engine: str = field(default="auto", metadata=_ENGINE)
    analyze: bool = False
    timeout_s: float | None = field(default=None, metadata=_TIMEOUT)
    query_id: str | None = field(default=None, metadata=_QUERY_ID)

    def __post_init__(self) -> None:
        checked_engine(self.engine)
        checked_timeout(self.timeout_s)
        if self.query_id is not None:
            checked_query_id(self.query_id)


@dataclass(frozen=True, slots=True)
class PinTable(OfTable):
    """Hold a table in memory until it is evicted."""


@dataclass(frozen=True, slots=True)
class EvictTable(OfTable):
    """Release a table from memory."""


@dataclass(frozen=True, slots=True)
class GetCacheStats:
    """Return the tables held in memory that the caller may read, and the limit."""


@dataclass(frozen=True, slots=True)
class ListTasks:
    """Return the control table: state, owner, last result and next run of each task on a table the caller may read."""


@dataclass(frozen=True, slots=True)
class ListUpkeep:
    """Return, for each table that the caller may read: rows, last change, what is staged and since when, its tasks, its files.

    `storage` also lists all files of the tables, to tell what is pending deletion.
    """

    names: Sequence[str] = field(default=(), metadata=in_query("name", list, "A table; all if not given."))
    storage: bool = field(default=False, metadata={"about": "Return the bytes of the files by what they are for."})


_TABLE = "/tables/{name}"
LIST_TABLES = Operation("tables", ListTables, list[str], "read", (get("/tables"),))
CREATE = Operation("create_table", CreateTable, bool, "admin", (put(_TABLE),))
DROP = Operation("drop_table", DropTable, dict[str, Any], "admin", (delete(_TABLE),))
DEFINITION = Operation("schema", GetDefinition, Definition, "schema", (get(f"{_TABLE}/schema"),))
LAST_DEFINITION = Operation("last_schema", GetLastDefinition, Definition, "read", ())
DESCRIBE = Operation("describe", DescribeTable, dict[str, Any], "read", (get(_TABLE),))
HISTORY = Operation("history", ListHistory, list[dict[str, Any]], "read", (get(f"{_TABLE}/history"),))
TOMBSTONES = Operation("tombstones", ListTombstones, list[dict[str, Any]], "read", (get(f"{_TABLE}/tombstones"),))
DELETES = Operation("audit", ListDeletes, list[dict[str, Any]], "read", (get(f"{_TABLE}/audit"),))
PREVIEW = Operation("preview", PreviewRows, Any, "read", (get(f"{_TABLE}/preview"),))
READ = Operation("rows", PageRows, RowPage, "read", (get(f"{_TABLE}/rows"),))
ROW = Operation("get", GetRow, dict[str, Any], "read", (get(f"{_TABLE}/row"), get(f"{_TABLE}/rows/{{key:path}}")))
FACETS = Operation("facets", FacetTable, TableFacets, "read", (get(f"{_TABLE}/facets"),))
COUNT = Operation("count", CountRows, int, "read", (get(f"{_TABLE}/count"),))
APPEND = Operation("append", WriteRows, WriteReceipt, "ingest", (post(f"{_TABLE}/rows"),))
UPSERT = Operation("upsert", UpsertRows, WriteReceipt, "write", (put(f"{_TABLE}/rows"),))
DELETE = Operation("delete", DeleteRows, WriteReceipt, "write", (post(f"{_TABLE}/delete"),))
ERASE = Operation("erase", EraseRows, ErasureReceipt, "admin", (post(f"{_TABLE}/erase"),))
RECEIPTS = Operation("receipts", ListReceipts, list[dict[str, Any]], "read", (get("/receipts"),))
RECEIPT = Operation("receipt", GetReceipt, dict[str, Any], "read", (get("/receipts/{erasure_id}"),))
FOLD = Operation("fold", FoldTable, FoldReport, "write", (post(f"{_TABLE}/fold"),))
COMPACT = Operation("compact", CompactTable, CompactReport, "admin", (post(f"{_TABLE}/compact"),))
VACUUM = Operation("vacuum", VacuumTable, VacuumReport, "admin", (post(f"{_TABLE}/vacuum"),))
EXPIRE = Operation("expire", ExpireRows, ExpireReport, "admin", (post(f"{_TABLE}/expire"),))
EVOLVE = Operation("evolve", EvolveTable, EvolveReport, "admin", (post(f"{_TABLE}/evolve"),))
SQL = Operation("sql", RunSql, Any, "read", (post("/sql"),))
STREAM = Operation("stream", StreamSql, Any, "read", (post("/sql/stream"),))
EXPLAIN = Operation("explain", ExplainSql, Any, "read", (post("/sql/explain"),))
PIN = Operation("pin", PinTable, dict[str, Any], "write", (put("/cache/{name}"),))
EVICT = Operation("evict", EvictTable, bool, "write", (delete("/cache/{name}"),))
CACHE_STATS = Operation("stats", GetCacheStats, dict[str, Any], "read", (get("/cache"),))
TASKS = Operation("tasks", ListTasks, list[dict[str, Any]], "read", (get("/tasks"),))
UPKEEP = Operation("upkeep", ListUpkeep, list[dict[str, Any]], "read", (get("/upkeep"),))
