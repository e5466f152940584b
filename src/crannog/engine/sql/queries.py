"""The entry point of the query layer: runs statements within limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import pyarrow as pa

from crannog.api.result import Explanation, Result, Stream
from crannog.api.table_requests import ExplainSql, RunSql
from crannog.engine.open_table import check_files
from crannog.engine.sql import run_on_duckdb, run_on_spark
from crannog.engine.sql.bounded_cache import BoundedCache
from crannog.engine.sql.commands import Command, DescribeTable, Explain, columns_of, read_command, tables_shown
from crannog.engine.sql.duckdb_compiler import Compiled
from crannog.engine.sql.hot_tables import HotCache
from crannog.engine.sql.query_plan import (
    QueryPlan,
    Route,
    Source,
    Sources,
    Unsupported,
    choose_engine,
    compiled_or_not,
    hidden_paths,
    spark_instead,
)
from crannog.engine.sql.run_on_duckdb import FallBackToSpark
from crannog.engine.sql.run_on_spark import spilled
from crannog.engine.sql.running_queries import Running, RunningQueries
from crannog.engine.sql.spark_types import first_rows
from crannog.engine.sql.statement import Statement, parse
from crannog.engine.tables import Tables
from crannog.engine.warehouse import Warehouse
from crannog.errors import CallerError, SnapshotGone, SparkLost, Unavailable
from crannog.names import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MAX_ATTEMPTS = 4
_COMPILED_BYTES = 32 * 1024**2
_COMPILED_ENTRY_BYTES = 4096
_SMALL_RESULT_ROWS = 20_000
# A Java process whose connections are gone may take a moment to end.
_LOST_PAUSE_S = 0.5
T = TypeVar("T")
Visible = Callable[[TableName], bool]
"""Tells whether a caller may see a table."""


class Queries:
    """Runs statements over the tables of one warehouse. Thread-safe."""

    def __init__(self, warehouse: Warehouse, tables: Tables) -> None:
        self._warehouse = warehouse
        self._settings = warehouse.settings
        self._tables = tables
        self._sources = Sources(tables, self._settings)
        self.running = RunningQueries(self._settings)
        self.cache = HotCache(
            lambda: warehouse.duckdb, self._settings.cache_bytes, auto_reads=self._settings.cache_auto_reads
        )
        self._compiled: BoundedCache[tuple[Any, ...], Compiled | Unsupported] = BoundedCache(_COMPILED_BYTES)
        self._short: WeakSet[Compiled] = WeakSet()
        self._lock = threading.Lock()

    def sql(self, request: RunSql, *, visible: Visible | None = None, owner: str = "") -> Result:
        """Run a statement and return up to `max_rows` of its result; SHOW TABLES lists the `visible` tables.

        The id of the query belongs to `owner`.
        """
        self._warehouse.check_open()
        most = self._row_limit(request.max_rows)
        with self.running.running(request.query_id, request.timeout_s, owner) as running:
            command = read_command(request.sql, self._settings.sql_text_bytes)
            if command is not None:
                table = self._run_command(command, visible, running)
                more = table.num_rows > most
                return Result(
                    table.slice(0, most), "local", more, running.elapsed_ms, running.query_id, "the catalogue answers"
                )
            statement = parse(request.sql, self._settings.sql_text_bytes)
            running.check()
            return self._retry_on_newest(statement, lambda: self._answer(statement, request.engine, running, most))

    def _answer(self, statement: Statement, engine: str, running: Running, most: int) -> Result:
        with ExitStack() as resources:
            plan = self._plan(statement)
            route, relations = self._route(plan, engine, resources)
            if route.engine != "spark":
                try:
                    table, more = self._on_duckdb(plan, relations, running, most)
                    return Result(table, route.engine, more, running.elapsed_ms, running.query_id, route.why)
                except FallBackToSpark as error:
                    route = spark_instead(route, engine, error)
            table = self._on_spark(plan, running, lambda rows: run_on_spark.collected(rows, most + 1))
            self._check_bytes(table.nbytes)
            more = table.num_rows > most
            return Result(first_rows(table, most), "spark", more, running.elapsed_ms, running.query_id, route.why)

    def stream(self, request: RunSql, *, visible: Visible | None = None, owner: str = "") -> Stream:
        """Run a statement as `sql` does, and return its result in batches, of any size."""
        self._warehouse.check_open()
        with ExitStack() as resources:
            running = resources.enter_context(self.running.running(request.query_id, request.timeout_s, owner))
            command = read_command(request.sql, self._settings.sql_text_bytes)
            first: list[pa.RecordBatch] = []
            if command is not None:
                table = self._run_command(command, visible, running)
                engine, schema, batches = "local", table.schema, iter(table.to_batches())
            else:
                plan = self._plan(parse(request.sql, self._settings.sql_text_bytes))
                route, relations = self._route(plan, request.engine, resources)
                if route.engine != "spark":
                    try:
                        schema, batches = resources.enter_context(self._duckdb_batches(plan, relations, running))
                        # The first batch shows whether DuckDB can run it at all.
                        first = [batch for batch in [next(batches, None)] if batch is not None]
                    except FallBackToSpark as error:
                        route = spark_instead(route, request.engine, error)
                if route.engine == "spark":
                    on_spark = partial(self._on_spark, plan, running)
                    schema, batches = resources.enter_context(
                        spilled(self._warehouse, on_spark, running, plan.table_names)
                    )
                engine = route.engine
            return Stream(schema, engine, running.query_id, _closing_with(first, batches, resources.pop_all()))

    def explain(self, request: ExplainSql, *, owner: str = "") -> Explanation:
        """Return the engine that would run and why, what is pruned, and the plan; `analyze` also runs it."""
        self._warehouse.check_open()
        with self.running.running(request.query_id, request.timeout_s, owner) as running:
            return self._explained(request, running)

    def _explained(self, request: ExplainSql, running: Running) -> Explanation:
        statement = parse(request.sql, self._settings.sql_text_bytes)
        with ExitStack() as resources:
            plan = self._plan(statement)
            route, relations = self._route(plan, request.engine, resources)
            if route.engine == "spark":
                shown = self._on_spark(plan, running, run_on_spark.explained, before="EXPLAIN FORMATTED ")
            else:
                sql, tables = self._duckdb_sql(plan, relations, None, may_copy_staged=False)
                shown = run_on_duckdb.explained(self._warehouse.duckdb, sql, tables, running)
            reports = plan.reports(relations)
        result = None
        if request.analyze:
            most = self._row_limit(None)
            result = self._retry_on_newest(statement, lambda: self._answer(statement, route.engine, running, most))
        return Explanation(route.engine, route.why, reports, hidden_paths(shown, self._warehouse.location), result)

    def tables_in(self, text: str) -> list[TableName]:
        """Return the tables that a statement names, without opening them. Raises as `sql` does for invalid statements."""
        command = read_command(text, self._settings.sql_text_bytes)
        if isinstance(command, DescribeTable):
            return [self._sources.table_named(command.parts)[0]]
        if isinstance(command, Explain):
            return self.tables_in(command.statement)
        if command is not None:
            return []
        statement = parse(text, self._settings.sql_text_bytes)
        return list(dict.fromkeys(self._sources.table_named(ref.parts)[0] for ref in statement.tables))

    def _run_command(self, command: Command, visible: Visible | None, running: Running) -> pa.Table:
        """Return the result of DESCRIBE, SHOW or EXPLAIN."""
        if isinstance(command, Explain):
            explained = self._explained(ExplainSql(command.statement), running)
            return pa.table({"plan": [f"{explained.engine}: {explained.why}\n{explained.plan}"]})
        if isinstance(command, DescribeTable):
            name, _ = self._sources.table_named(command.parts)
            return columns_of(self._tables.open(name).snapshot().base.read_schema, with_types=command.with_types)
        return tables_shown(command, [name for name in self._tables.names() if visible is None or visible(name)])

    # -- planning ----------------------------------------------------------------------------------------------

    def _plan(self, statement: Statement) -> QueryPlan:
        sources = self._sources.of(statement)
        return QueryPlan(statement, sources, self._outcome(statement, sources))

    def _outcome(self, statement: Statement, sources: Mapping[int, Source]) -> Compiled | Unsupported:
        """Return the compiled statement, or the part of it that has no rule."""
        key = (statement.text, *(source.schema_key for source in sources.values()))
        known = self._compiled.get(key)
        if known is not None:
            return known
        outcome = compiled_or_not(statement, sources)
        if isinstance(outcome, Unsupported) or not outcome.uses_now:
            # The values of IN stand in the SQL and, to prune files, in the conditions.
            size = 4 * len(statement.text) + (0 if isinstance(outcome, Unsupported) else 4 * len(outcome.sql))
            self._compiled.put(key, outcome, size + _COMPILED_ENTRY_BYTES)
        return outcome

    def _route(self, plan: QueryPlan, engine: str, resources: ExitStack) -> tuple[Route, dict[int, str]]:
        """Choose the engine; except for Spark, also return the sources read from memory, kept until `resources` closes."""
        relations: dict[int, str] = {}
        not_hot, unsupported = "", plan.unsupported
        if engine != "spark" and unsupported is not None and unsupported.error is not None:
            raise unsupported.error
        if unsupported is None and engine in ("auto", "hot"):
            for start, source in plan.sources.items():
                relation = None
                if source.is_current:
                    relation = resources.enter_context(
                        self.cache.borrowed(source.table, source.snapshot, wait=engine == "hot")
                    )
                if relation is None:
                    not_hot = not_hot or str(source.name)
                else:
                    relations[start] = relation
        # A statement without tables needs no memory and no files: DuckDB runs it.
        hot = not not_hot and bool(plan.sources)
        route = choose_engine(
            engine,
            no_rule=unsupported.reason if unsupported else None,
            hot=hot or (engine == "hot" and not plan.sources and unsupported is None),
            not_hot=not_hot or "no table",
            scan_bytes=plan.scan_bytes(relations),
            scan_limit=self._settings.local_scan_bytes,
        )
        return route, relations

    # -- running -----------------------------------------------------------------------------------------------

    def _on_spark(self, plan: QueryPlan, running: Running, use: Callable[[DataFrame], T], *, before: str = "") -> T:
        files = {} if plan.unsupported else {start: plan.pruned(start).files for start in plan.sources}
        return run_on_spark.run(self._warehouse, plan.statement, plan.sources, files, running, use, before=before)

    def _duckdb_sql(
        self, plan: QueryPlan, hot: Mapping[int, str], limit: int | None, *, may_copy_staged: bool = True
    ) -> tuple[str, dict[str, pa.Table]]:
        relations: dict[int, str] = {}
        tables: dict[str, pa.Table] = {}
        for number, (start, source) in enumerate(plan.sources.items()):
            if start in hot:
                relations[start] = hot[start]
                continue
            query, needed = source.table.relation(
                source.snapshot,
                f"t{number}",
                raw=source.raw,
                files=plan.pruned(start).files,
                may_copy_staged=may_copy_staged,
            )
            relations[start] = f"({query})"
            tables.update(needed)
        return run_on_duckdb.sql_of(plan.compiled, relations, limit), tables

    @contextmanager
    def _duckdb_batches(
        self,
        plan: QueryPlan,
        hot: Mapping[int, str],
        running: Running,
        *,
        limit: int | None = None,
        enough: int | None = None,
    ) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        """Yield the batches of up to `limit` rows; the caller will read about `enough` of them, all if not given."""
        sql, tables = self._duckdb_sql(plan, hot, limit)
        with (
            plan.leased(hot, may_be_long=enough is None),
            run_on_duckdb.batches(self._warehouse.duckdb, plan.compiled, sql, tables, running, enough) as found,
        ):
            yield found

    def _on_duckdb(self, plan: QueryPlan, hot: Mapping[int, str], running: Running, most: int) -> tuple[pa.Table, bool]:
        compiled = plan.compiled
        # With a limit DuckDB uses one core. A result that was not cut off last time is likely to be short again.
        limit = None if compiled in self._short else most + 1
        table = (
            self._small_result(plan, hot, running, limit)
            if limit and most < _SMALL_RESULT_ROWS
            else self._large_result(plan, hot, running, limit, most + 1)
        )
        more = table.num_rows > most
        with self._lock:
            if more:
                self._short.discard(compiled)
            else:
                self._short.add(compiled)
        return table.slice(0, most), more

    def _small_result(self, plan: QueryPlan, hot: Mapping[int, str], running: Running, limit: int) -> pa.Table:
        sql, tables = self._duckdb_sql(plan, hot, limit)
        with plan.leased(hot):
            table = run_on_duckdb.run(self._warehouse.duckdb, plan.compiled, sql, tables, running)
        # Adding up the buffers, shared or not, takes a tenth of the time of the exact sum.
        if table.get_total_buffer_size() > self._settings.sql_result_bytes:
            self._check_bytes(table.nbytes)
        return table

    def _large_result(
        self, plan: QueryPlan, hot: Mapping[int, str], running: Running, limit: int | None, enough: int
    ) -> pa.Table:
        found: list[pa.RecordBatch] = []
        rows = size = 0
        with self._duckdb_batches(plan, hot, running, limit=limit, enough=enough) as (schema, batches):
            for batch in batches:
                found.append(batch)
                rows += batch.num_rows
                size += batch.get_total_buffer_size()
                if size > self._settings.sql_result_bytes:
                    self._check_bytes(sum(one.nbytes for one in found))
                if rows >= enough:
                    break
        return pa.Table.from_batches(found, schema)

    def _retry_on_newest(self, statement: Statement, act: Callable[[], T]) -> T:
        lost = 0
        for _ in range(_MAX_ATTEMPTS):
            try:
                return act()
            except SnapshotGone:
                continue
            except SparkLost:
                # It may be this statement that ends Spark.
                lost += 1
                if lost > 1:
                    raise
                time.sleep(_LOST_PAUSE_S)
        try:
            return act()
        except SnapshotGone:
            for source in self._sources.of(statement).values():
                check_files(source.table)
            raise

    # -- limits ------------------------------------------------------------------------------------------------

    def _row_limit(self, max_rows: int | None) -> int:
        if max_rows is None:
            return min(self._settings.sql_max_rows, self._settings.sql_rows_ceiling)
        if max_rows > self._settings.sql_rows_ceiling:
            raise CallerError(
                f"max_rows is at most {self._settings.sql_rows_ceiling:,}, got {max_rows:,}; stream a larger result"
            )
        return max_rows

    def _check_bytes(self, size: int) -> None:
        if size > self._settings.sql_result_bytes:
            raise CallerError(
                f"the result has more than {self._settings.sql_result_bytes:,} bytes; select fewer columns or rows, or stream it"
            )


def _closing_with(
    first: list[pa.RecordBatch], batches: Iterator[pa.RecordBatch], resources: ExitStack
) -> Iterator[pa.RecordBatch]:
    with resources:
        yield from first
        try:
            yield from batches
        except FallBackToSpark as error:
            # The caller already has batches: another engine cannot take over in the middle.
            raise Unavailable(f"the stream stopped at: {error}; run it again with engine='spark'") from None
