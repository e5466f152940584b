"""Run a statement on Spark: the same snapshots, as views, in the pool that maintenance does not starve."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from crannog.engine.query.conform import in_schema, plain_schema
from crannog.engine.query.running import Running
from crannog.engine.query.sources import Source
from crannog.engine.query.statement import Statement
from crannog.engine.warehouse import Warehouse
from crannog.errors import CrannogError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_view_numbers = itertools.count(1)


@contextmanager
def frame(
    warehouse: Warehouse,
    statement: Statement,
    sources: Mapping[int, Source],
    files: Mapping[int, tuple[str, ...]],
    running: Running,
    *,
    before: str = "",
) -> Iterator[DataFrame]:
    """Lend the statement, with `before` before it, as a DataFrame.

    What runs from it in this thread ends when the query is cancelled.
    """
    from crannog.engine.spark_read import to_spark
    from crannog.lake.spark import in_pool, interruptible, spark_runtime
    from crannog.lake.spark_errors import translated
    from crannog.lake.stuck import watch

    session = _session(warehouse, running)
    with ExitStack() as held:
        try:
            held.enter_context(in_pool(session, "interactive"))
            interrupt = held.enter_context(interruptible(session, f"crannog-query-{running.query_id}"))
            held.enter_context(running.interrupting(interrupt))
            names: dict[int, str] = {}
            views: dict[tuple[str, bool, int | None, str | None, tuple[str, ...] | None], str] = {}
            for start, source in sources.items():
                what = (str(source.name), source.raw, source.ref.version, source.ref.timestamp, files.get(start))
                if what not in views:
                    held.enter_context(source.table.reading(source.snapshot))
                    views[what] = f"crannog_{os.getpid()}_{next(_view_numbers)}"
                    rows = to_spark(source.table, source.snapshot, session, raw=source.raw, files=files.get(start))
                    rows.createOrReplaceTempView(views[what])
                    held.callback(_drop, session, views[what])
                names[start] = views[what]
            yield session.sql(before + statement.for_spark(names))
        except CrannogError:
            raise
        except Exception as error:
            try:
                running.check()
            except CrannogError:
                watch(spark_runtime(warehouse.settings), session)
                raise
            raise translated(error) from error


def collected(rows: DataFrame, limit: int) -> pa.Table:
    """Return up to `limit` rows, in the types every engine gives."""
    table = rows.limit(limit).toArrow()
    return in_schema(table, plain_schema(table.schema))


def _session(warehouse: Warehouse, running: Running) -> SparkSession:
    """Wait for Spark as long as the query may."""
    from crannog.lake.spark import spark_runtime

    runtime = spark_runtime(warehouse.settings)
    if runtime.state() != "ready":
        runtime.start_in_background()
        while runtime.state() == "starting":
            running.check()
            time.sleep(0.02)
    return warehouse.spark()


def _drop(session: SparkSession, view: str) -> None:
    with suppress(Exception):  # the session may be gone
        session.catalog.dropTempView(view)



def explained(rows: DataFrame) -> str:
    """Return the plan that an EXPLAIN statement gave."""
    return str(rows.collect()[0][0])
