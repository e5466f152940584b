"""A connection to a warehouse: tables by name, and what one does with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from crannog.engine.maintenance.control import ControlTable
from crannog.engine.maintenance.key_search import Copies
from crannog.engine.maintenance.scheduler import Scheduler
from crannog.engine.owned_tables import check_create, is_reserved
from crannog.engine.tables import Tables
from crannog.engine.warehouse import Warehouse
from crannog.errors import NotFound
from crannog.names import TableName, without_raw_prefix
from crannog.settings import Settings, load_settings
from crannog.tables.table import Table

if TYPE_CHECKING:
    from pydantic import BaseModel

    from crannog.api.explanation import Explanation
    from crannog.api.load_report import LoadReport
    from crannog.api.producer import Producer, Producers
    from crannog.api.result import Result, Stream
    from crannog.engine.sql.queries import Queries
    from crannog.tables.cache import Cache


class Lake:
    """An embedded connection. A context manager; safe for threads."""

    def __init__(self, location: str, *, maintain: bool = False, settings: Settings | None = None) -> None:
        self.settings = settings or load_settings()
        self.warehouse = Warehouse(location, self.settings)
        self.engine = Tables(self.warehouse)
        self.control = ControlTable(self.warehouse.storage, lease_s=self.settings.claim_lease_s)
        self._producers: Producers | None = None
        self.scheduler: Scheduler | None = None
        if maintain:
            self.scheduler = self.new_scheduler()
            self.scheduler.start()

    def new_scheduler(self) -> Scheduler:
        """Return a scheduler of all maintenance there is, not yet started."""
        return Scheduler(self.warehouse, self.engine, self.control)

    # Made on first use: a command that asks nothing in SQL need not load a parser.
    @cached_property
    def _queries(self) -> Queries:
        from crannog.engine.sql.queries import Queries

        return Queries(self.warehouse, self.engine)

    @cached_property
    def cache(self) -> Cache:
        """The tables held in memory: `pin`, `evict`, `stats`."""
        from crannog.tables.cache import Cache

        return Cache(self._queries.cache, self.engine)

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
        """Make a table; needs no Spark.

        `schema` is a pyarrow.Schema, a Pydantic model class or a JSON Schema. Raises CallerError if it cannot be
        kept, Conflict if the table exists with another definition, or at all unless `if_exists="ok"`, Refused if the
        name is in the catalog `crannog`, which is reserved.
        """
        self.ensure_table(
            name,
            schema,
            key=key or (),
            partition_by=partition_by,
            cluster_by=cluster_by,
            bloom=bloom,
            if_exists=if_exists,
        )
        return Table(self, TableName.parse(name))

    def ensure_table(self, name: str, schema: Any, *, if_exists: str, **layout: Any) -> bool:
        """Make a table as `create_table` does; return whether this call made it."""
        table_name = TableName.parse(name)
        if is_reserved(table_name):
            try:
                self.table(name).check_change("create")
            except NotFound:
                check_create(table_name)
        return self.engine.create(table_name, schema, if_exists=if_exists, **layout)

    def table(self, name: str) -> Table:
        """Return a table; NotFound if there is none. `catalog.schema.__raw__table` shows deleted rows until they are folded."""
        plain, raw = without_raw_prefix(name)
        table_name = TableName.parse(plain)
        self.engine.open(table_name)
        return Table(self, table_name, raw=raw)

    def tables(self) -> list[str]:
        """Return the names of all tables."""
        self.warehouse.check_open()
        return [str(name) for name in self.engine.names()]

    def drop_table(self, name: str) -> None:
        """Remove a table and all its files; NotFound if there is none, Refused if it is one of Crannog's own."""
        table_name = TableName.parse(name)
        Table(self, table_name).check_change("drop", fresh=True)
        self.engine.drop(table_name)

    def sql(
        self,
        text: str,
        max_rows: int | None = None,
        engine: str = "auto",
        timeout_s: float | None = None,
        query_id: str | None = None,
        *,
        visible: Callable[[TableName], bool] | None = None,
    ) -> Result:
        """Run one read-only statement of Spark SQL and return its answer, the same whichever engine gives it.

        `max_rows` None means `sql_max_rows` (10,000); `truncated` tells that there was more. `engine` is "auto", "hot",
        "local" or "spark". Raises Refused for a statement that is not allowed, CallerError for one that is wrong,
        TimedOut and Cancelled, Conflict if `query_id` runs already, Overloaded if too many queries wait. SHOW TABLES
        lists the tables for which `visible` is true.
        """
        return self._queries.sql(
            text, max_rows=max_rows, engine=engine, timeout_s=timeout_s, query_id=query_id, visible=visible
        )

    def stream(
        self,
        text: str,
        engine: str = "auto",
        timeout_s: float | None = None,
        query_id: str | None = None,
        *,
        visible: Callable[[TableName], bool] | None = None,
    ) -> Stream:
        """Run a statement and return its answer as Arrow batches, never held whole. Close it, or read it to its end."""
        return self._queries.stream(text, engine=engine, timeout_s=timeout_s, query_id=query_id, visible=visible)

    def explain(self, text: str, engine: str = "auto", *, analyze: bool = False) -> Explanation:
        """Tell which engine would answer and why, what is pruned by what, and the plan; `analyze` runs it too."""
        return self._queries.explain(text, engine=engine, analyze=analyze)

    def tables_in(self, text: str) -> list[TableName]:
        """Return the tables that a statement names, whether there are such tables or not; raises as `sql` does."""
        return self._queries.tables_in(text)

    @property
    def copies(self) -> Copies | None:
        """The copies of tables in memory, for an erase to look into; None before the first query."""
        return self._queries.cache if "_queries" in self.__dict__ else None

    def cancel(self, query_id: str) -> None:
        """End a query that runs or waits; NotFound if there is none by this id."""
        self._queries.cancel(query_id)

    def tasks(self) -> list[dict[str, Any]]:
        """Return the control table: state, owner, last result and next run of each maintenance task.

        Loads of hot tables that failed in this process follow, as tasks named `hot_load`.
        """
        failed_loads = self._queries.cache.failed_tasks() if "_queries" in self.__dict__ else []
        tasks = [*self.control.tasks(), *failed_loads]
        return [{name: getattr(task, name) for name in task.__slots__} for task in tasks]

    def producer(self, name: str, model: type[BaseModel] | None = None, **options: Any) -> Producer:
        """Return a producer of a table, which sends rows in batches behind the scenes; see `crannog.Producer`."""
        from crannog.api.producer import Producers

        table = self.table(name)
        table.check_change("append")
        self._producers = self._producers or Producers()
        return self._producers.make(table, model, **options)

    def load(self, files: Sequence[str] | str, name: str, **options: Any) -> LoadReport:
        """Load files (names, patterns, `-`) into a table, each once; see `LakeVerbs.load` for the options.

        A file of `load_spark_bytes` or more goes into a table without a key through Spark, by one commit.
        """
        from crannog.tables.spark_load import load_files

        return load_files(self, files, name, **options)

    def close(self) -> None:
        """End the connection: acknowledged changes are durable already; work behind the scenes is waited for."""
        if self._producers is not None:
            self._producers.close()
        if self.scheduler is not None and not self.scheduler.stop():
            return  # a job that cannot be interrupted is still at work: what it uses must not be closed under it
        self._close_domains()
        self.warehouse.close()

    def _close_domains(self) -> None:
        """Close what the domains keep open, before the warehouse closes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Lake({self.warehouse.location!r})"
