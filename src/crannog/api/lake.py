"""A connection to a lake, in the process or through a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict, Unpack

from crannog.api import table_requests as ops
from crannog.api.operations import Transport
from crannog.api.table import Table
from crannog.api.table_requests import ExplainSql, RunSql, StreamSql
from crannog.names import TableName, without_raw_prefix

if TYPE_CHECKING:
    from pydantic import BaseModel

    from crannog.api.producer import Producer, ProducerArguments, Producers
    from crannog.api.reports import Cancellation, LoadReport, Progress
    from crannog.api.result import Explanation, Result, Stream
    from crannog.api.traces import Traces


class LoadArguments(TypedDict, total=False):
    """The options of a load; see `Lake.load`."""

    create: bool
    key: Sequence[str] | str | None
    partition_by: Sequence[str] | str
    types: Mapping[str, object] | str | None
    mode: str
    format: str | None
    delimiter: str | None
    flatten: bool
    evolve: bool
    ignore_extra: bool
    reject: str | None
    max_bad: int | None
    again: bool
    dry_run: bool
    progress: Progress | None
    cancellation: Cancellation | None


class LakeTransport(Transport, Protocol):
    """What a lake needs besides the declared operations: SQL with Arrow results, whole or batch by batch."""

    def sql(self, request: RunSql) -> Result:
        """Run a statement and return its result."""

    def stream(self, request: StreamSql) -> Stream:
        """Run a statement and return its rows as they are produced."""

    def explain(self, request: ExplainSql) -> Explanation:
        """Explain how a statement would be run."""

    def close(self) -> None:
        """Close the connection."""


class Cache:
    """The tables held in memory."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def pin(self, name: str) -> dict[str, Any]:
        """Hold a table in memory until it is evicted, and return its figures; Overloaded if it does not fit."""
        return self._transport.call(ops.PIN, ops.PinTable(TableName.parse(name)))

    def evict(self, name: str) -> bool:
        """Release a table; False if it was not held. NotFound if there is no such table."""
        return self._transport.call(ops.EVICT, ops.EvictTable(TableName.parse(name)))

    def stats(self) -> dict[str, Any]:
        """Return the tables held (rows, bytes, hits, misses, last access, version, state) and the limit."""
        return self._transport.call(ops.CACHE_STATS, ops.GetCacheStats())


class Lake(ABC):
    """A connection to a lake. A context manager; thread-safe and fork-safe."""

    def __init__(self, transport: LakeTransport) -> None:
        self._transport = transport
        self._producers: Producers | None = None

    @cached_property
    def cache(self) -> Cache:
        """The tables held in memory: `pin`, `evict`, `stats`."""
        return Cache(self._transport)

    @property
    @abstractmethod
    def traces(self) -> Traces:
        """The traces: store spans; read traces, metrics and dependencies."""

    # -- tables ------------------------------------------------------------------------------------------------------

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
    ) -> Table:
        """Create a table; does not need Spark.

        `schema` is a pyarrow.Schema, a Pydantic model class or a JSON Schema. Raises CallerError if it is not
        supported, Conflict if the table exists with another definition, or at all unless `if_exists="ok"`, Refused if the
        name is in the catalog `crannog`, which is reserved.
        """
        table_name = TableName.parse(name)
        request = ops.CreateTable(table_name, schema, key, partition_by, if_exists, cluster_by, bloom)
        self._transport.call(ops.CREATE, request)
        return self._table(table_name, raw=False)

    def table(self, name: str) -> Table:
        """Return a table; NotFound if it does not exist. `catalog.schema.__raw__table` includes deleted rows until they are folded."""
        plain, raw = without_raw_prefix(name)
        table_name = TableName.parse(plain)
        self._find(table_name)
        return self._table(table_name, raw=raw)

    def _find(self, name: TableName) -> None:
        self._transport.call(ops.DEFINITION, ops.GetDefinition(name))

    def _table(self, name: TableName, *, raw: bool) -> Table:
        return Table(self._transport, name, raw=raw)

    def tables(self) -> list[str]:
        """Return the names of all tables."""
        return self._transport.call(ops.LIST_TABLES, ops.ListTables(system=True))

    def drop_table(self, name: str) -> None:
        """Remove a table and all its files; NotFound if it does not exist, Refused if it is one of Crannog's own."""
        self._transport.call(ops.DROP, ops.DropTable(TableName.parse(name)))

    # -- queries -----------------------------------------------------------------------------------------------------

    def sql(
        self,
        text: str,
        max_rows: int | None = None,
        engine: str = "auto",
        timeout_s: float | None = None,
        query_id: str | None = None,
    ) -> Result:
        """Run one read-only statement of Spark SQL and return its result, the same from every engine.

        `max_rows` None means `sql_max_rows` (10,000); `truncated` says whether there was more. `engine` is "auto", "hot",
        "local" or "spark". Raises Refused for a statement that is not allowed, CallerError for one that is wrong,
        TimedOut and Cancelled, Conflict if `query_id` is already running, Overloaded if too many queries wait. Through a
        server, a statement interrupted here is cancelled there.
        """
        return self._transport.sql(RunSql(text, max_rows, engine, timeout_s, query_id))

    def stream(
        self, text: str, engine: str = "auto", timeout_s: float | None = None, query_id: str | None = None
    ) -> Stream:
        """Run a statement and return its rows as Arrow batches, never held whole. Close it, or read it to its end."""
        return self._transport.stream(StreamSql(text, None, engine, timeout_s, query_id))

    def explain(
        self,
        text: str,
        engine: str = "auto",
        *,
        analyze: bool = False,
        timeout_s: float | None = None,
        query_id: str | None = None,
    ) -> Explanation:
        """Return which engine would answer and why, which files are pruned, and the plan; `analyze` runs it too.

        It has a timeout and can be cancelled as a query.
        """
        return self._transport.explain(ExplainSql(text, engine, analyze, timeout_s, query_id))

    def cancel(self, query_id: str) -> None:
        """Cancel a running or waiting query; NotFound if no query has this id."""
        self._transport.cancel(query_id)

    def tasks(self) -> list[dict[str, Any]]:
        """Return the control table: state, owner, last result and next run of each maintenance task.

        Loads of hot tables that failed in the process follow, as tasks named `hot_load`.
        """
        return self._transport.call(ops.TASKS, ops.ListTasks())

    def upkeep(self, names: Sequence[str] = (), *, storage: bool = False) -> list[dict[str, Any]]:
        """Return, for some or all tables: rows, last change, what is staged and since when, its tasks, the size of its files.

        `storage` lists the files of the tables, to tell how many bytes are pending deletion.
        """
        return self._transport.call(ops.UPKEEP, ops.ListUpkeep(names, storage))

    def receipts(self, limit: int = 100) -> list[dict[str, Any]]:
        """List the erasures, newest first: who, why, when, how many rows in which tables, and the receipt of each table."""
        return self._transport.call(ops.RECEIPTS, ops.ListReceipts(limit))

    def receipt(self, erasure_id: str) -> dict[str, Any]:
        """Return the receipt of an erasure of one or several tables; raises NotFound if there is no such erasure."""
        return self._transport.call(ops.RECEIPT, ops.GetReceipt(erasure_id))

    # -- files and producers -----------------------------------------------------------------------------------------

    def producer(
        self, name: str, model: type[BaseModel] | None = None, **options: Unpack[ProducerArguments]
    ) -> Producer:
        """Return a producer for a table, which sends rows in batches in the background; see `crannog.Producer`."""
        from crannog.api.producer import Producers

        self._producers = self._producers or Producers()
        return self._producers.make(self.table(name), model, **options)

    @abstractmethod
    def load(self, files: Sequence[str] | str, name: str, **options: Unpack[LoadArguments]) -> LoadReport:
        """Load CSV, JSON, NDJSON and Parquet files (names, patterns, `-` for standard input) into a table, each once.

        Options: `create`, `key`, `partition_by`, `types` (a mapping or "column=type,…"), `mode` ("append" or "upsert"),
        `format`, `delimiter`, `flatten`, `evolve`, `ignore_extra`, `reject` (a file for bad rows), `max_bad`, `again`,
        `dry_run`, `progress`, `cancellation`. Raises NotFound for a table that does not exist unless `create`,
        SchemaMismatch for columns that do not fit, BadRows for rows that do not; then nothing was stored.
        """

    # -- the connection ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection. Acknowledged changes are already durable; rows held by producers are sent first."""
        if self._producers is not None:
            self._producers.close()
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
