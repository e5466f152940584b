"""The verbs of a lake, its tables and its cache. An embedded connection and one to a server both have all of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

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

if TYPE_CHECKING:
    import pyarrow as pa
    from pydantic import BaseModel

    from crannog.api.explanation import Explanation
    from crannog.api.load_report import LoadReport
    from crannog.api.producer import Producer
    from crannog.api.result import Result, Stream


class TableVerbs(Protocol):
    """One table. Safe for threads."""

    @property
    def name(self) -> str:
        """The name, `catalog.schema.table`."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, the system's included."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that name a row; empty for a table without a key."""

    def append(self, rows: Any, batch_id: str | None = None) -> WriteReceipt:
        """Keep rows; durable and visible when it returns. On a table with a key this is `upsert`.

        Raises BadRows or SchemaMismatch if a row does not fit (nothing of the batch is kept), Overloaded at a
        limit, Unavailable if the storage fails. The same batch id again keeps nothing and answers `duplicate`.
        """

    def upsert(self, rows: Any, batch_id: str | None = None) -> WriteReceipt:
        """Keep rows, each replacing the row of its key; CallerError on a table without a key."""

    def delete(self, keys: Any, actor: str = "", reason: str = "", batch_id: str | None = None) -> WriteReceipt:
        """Hide the rows of these keys at once from every query of Crannog; the next fold takes them out of the base.

        Readers of the Delta table itself, without Crannog, see the rows until that fold; call `fold` if they must not.
        """

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

    def fold(self, *, progress: Progress | None = None, cancellation: Cancellation | None = None) -> FoldReport:
        """Bring everything staged into the base, once."""

    def compact(
        self, *, dry_run: bool = False, progress: Progress | None = None, cancellation: Cancellation | None = None
    ) -> CompactReport:
        """Fold, then merge small files into large, clustered ones. A vacuum at the floor follows by itself."""

    def vacuum(
        self, retention_hours: float | None = None, *, force: bool = False, dry_run: bool = False
    ) -> VacuumReport:
        """Delete files that left the base longer than the retention ago; never below the floor unless forced."""

    def expire(
        self,
        before: dt.date,
        *,
        column: str | None = None,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> ExpireReport:
        """Drop the rows before a date."""

    def evolve(
        self, schema: Any, *, progress: Progress | None = None, cancellation: Cancellation | None = None
    ) -> EvolveReport:
        """Add nullable columns or widen types; anything else is refused with the reason."""

    def describe(self) -> dict[str, Any]:
        """Tell what the table is and how it stands."""

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """List the versions of the base, newest first."""

    def tombstones(self) -> list[dict[str, Any]]:
        """List the deletes that are not folded yet: key, who, why, when, and whether the key was there."""

    def audit(self) -> list[dict[str, Any]]:
        """List the deletes that were carried out: who, why, when, and a keyed hash of the key."""

    def preview(self, n: int = 100, raw: bool = False) -> pa.Table:
        """Return some rows; `raw` shows deleted ones too until they are folded."""

    def to_arrow(self, *, raw: bool = False) -> pa.Table:
        """Return all rows."""

    def count(self, *, raw: bool = False) -> int:
        """Return the number of rows."""


class CacheVerbs(Protocol):
    """The tables held in memory."""

    def pin(self, name: str) -> dict[str, Any]:
        """Hold a table in memory until it is evicted, and return its figures; Overloaded if it does not fit."""

    def evict(self, name: str) -> bool:
        """Let go of a table; False if it was not held. NotFound if there is no such table."""

    def stats(self) -> dict[str, Any]:
        """Return the tables held (rows, bytes, hits, misses, last access, version, state) and the limit."""


class LakeVerbs(Protocol):
    """A connection. A context manager; safe for threads."""

    @property
    def cache(self) -> CacheVerbs:
        """The tables held in memory: `pin`, `evict`, `stats`."""

    def create_table(
        self,
        name: str,
        schema: Any,
        key: Sequence[str] | str | None = None,
        partition_by: Sequence[str] | str = (),
        if_exists: str = "error",
        *,
        cluster_by: Sequence[str] | str = (),
        bloom: Sequence[str] | str = (),
    ) -> TableVerbs:
        """Make a table; needs no Spark.

        `schema` is a pyarrow.Schema, a Pydantic model class or a JSON Schema. Raises CallerError if it cannot be
        kept, Conflict if the table exists with another definition, or at all unless `if_exists="ok"`, Refused if the
        name is in the catalog `crannog`, which is reserved.
        """

    def table(self, name: str) -> TableVerbs:
        """Return a table; NotFound if there is none. `catalog.schema.__raw__table` shows deleted rows until they are folded."""

    def tables(self) -> list[str]:
        """Return the names of all tables."""

    def drop_table(self, name: str) -> None:
        """Remove a table and all its files; NotFound if there is none, Refused if it is one of Crannog's own."""

    def sql(
        self,
        text: str,
        max_rows: int | None = None,
        engine: str = "auto",
        timeout_s: float | None = None,
        query_id: str | None = None,
    ) -> Result:
        """Run one read-only statement of Spark SQL and return its answer, the same whichever engine gives it.

        `max_rows` None means `sql_max_rows` (10,000); `truncated` tells that there was more. `engine` is "auto", "hot",
        "local" or "spark". Raises Refused for a statement that is not allowed, CallerError for one that is wrong,
        TimedOut and Cancelled, Conflict if `query_id` runs already, Overloaded if too many queries wait.
        """

    def stream(
        self, text: str, engine: str = "auto", timeout_s: float | None = None, query_id: str | None = None
    ) -> Stream:
        """Run a statement and return its answer as Arrow batches, never held whole. Close it, or read it to its end."""

    def explain(self, text: str, engine: str = "auto", *, analyze: bool = False) -> Explanation:
        """Tell which engine would answer and why, what is pruned by what, and the plan; `analyze` runs it too."""

    def cancel(self, query_id: str) -> None:
        """End a query that runs or waits; NotFound if there is none by this id."""

    def tasks(self) -> list[dict[str, Any]]:
        """Return the control table: state, owner, last result and next run of each maintenance task."""

    def producer(self, name: str, model: type[BaseModel] | None = None, **options: Any) -> Producer:
        """Return a producer of a table, which sends rows in batches behind the scenes; see `crannog.Producer`."""

    def load(self, files: Sequence[str] | str, name: str, **options: Any) -> LoadReport:
        """Load CSV, JSON, NDJSON and Parquet files (names, patterns, `-` for standard input) into a table, each once.

        Options: `create`, `key`, `partition_by`, `types` (a mapping or "column=type,…"), `mode` ("append" or "upsert"),
        `format`, `delimiter`, `flatten`, `evolve`, `ignore_extra`, `reject` (a file for bad rows), `max_bad`, `again`,
        `dry_run`, `progress`, `cancellation`. Raises NotFound for a table that is not there unless `create`,
        SchemaMismatch for columns that do not fit, BadRows for rows that do not; then nothing was kept.
        """

    def close(self) -> None:
        """End the connection: acknowledged changes are durable already; work behind the scenes is waited for."""

    def __enter__(self) -> LakeVerbs: ...

    def __exit__(self, *_: object) -> None: ...
