"""Runs a statement on Spark: over views of the same snapshots, in the pool that maintenance does not starve.

A large result is written by Spark as files, which are read in batches and then deleted.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from crannog.engine import result_files
from crannog.engine.sql.function_calls import without_guards
from crannog.engine.sql.query_plan import Source
from crannog.engine.sql.running_queries import Running
from crannog.engine.sql.spark_types import in_schema, plain_schema, without_columns
from crannog.engine.sql.statement import Statement
from crannog.engine.warehouse import Warehouse
from crannog.errors import Cancelled, CrannogError, SnapshotGone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

_BATCH = 50_000
T = TypeVar("T")


def run(
    warehouse: Warehouse,
    statement: Statement,
    sources: Mapping[int, Source],
    files: Mapping[int, tuple[str, ...]],
    running: Running,
    use: Callable[[DataFrame], T],
    *,
    before: str = "",
) -> T:
    """Return what `use` makes of the statement, prefixed with `before`, as a DataFrame.

    It ends when the query is cancelled. What cannot be interrupted, such as planning, is given up then and goes on in a
    thread of its own.
    """
    from crannog.spark.guard import run_abandonable
    from crannog.spark.session import spark_runtime

    def work() -> T:
        with frame(warehouse, statement, sources, files, running, before=before) as rows:
            return use(rows)

    runtime = spark_runtime(warehouse.settings)
    try:
        return run_abandonable(work, is_cancelled=lambda: running.is_cancelled, abandon=runtime.abandon)
    except Cancelled:
        running.check()
        raise


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
    """Yield the statement, prefixed with `before`, as a DataFrame.

    Its jobs in this thread end when the query is cancelled.
    """
    from crannog.engine.spark_files import to_spark
    from crannog.spark.errors import translated_for_statement
    from crannog.spark.jvm import watch
    from crannog.spark.session import in_pool, interruptible, spark_runtime

    session = _session(warehouse, running)
    with ExitStack() as held:
        try:
            held.enter_context(in_pool(session, "interactive"))
            # Not by its id, which two callers may have chosen.
            interrupt = held.enter_context(interruptible(session, f"crannog-query-{uuid.uuid4().hex}"))
            held.enter_context(running.interrupting(interrupt))
            names: dict[int, str] = {}
            views: dict[tuple[str, bool, int | None, str | None, tuple[str, ...] | None], str] = {}
            for start, source in sources.items():
                what = (str(source.name), source.raw, source.ref.version, source.ref.timestamp, files.get(start))
                if what not in views:
                    held.enter_context(source.table.reading(source.snapshot))
                    # No statement can name the view of another query.
                    views[what] = f"crannog_{uuid.uuid4().hex}"
                    rows = to_spark(source.table, source.snapshot, session, raw=source.raw, files=files.get(start))
                    rows.createOrReplaceTempView(views[what])
                    held.callback(_drop, session, views[what])
                names[start] = views[what]
            text = statement.for_spark(names)
            if statement.tree is None:
                # Only Spark has parsed it: parentheses allow nothing but a query, and nothing runs yet.
                session.sql(f"SELECT * FROM ({text}) AS checked")
            rows = session.sql(before + text)
            yield rows.toDF(*map(without_guards, rows.columns)) if statement.has_guards and not before else rows
        except CrannogError:
            raise
        except Exception as error:
            try:
                running.check()
            except CrannogError:
                watch(spark_runtime(warehouse.settings), session)
                raise
            raise translated_for_statement(error) from error


def collected(rows: DataFrame, limit: int) -> pa.Table:
    """Return up to `limit` rows, in the common result types."""
    found = in_arrow_types(rows).limit(limit)
    if not found.columns:
        return without_columns(found.count())
    try:
        table = found.toArrow()
    except ValueError:
        # A null in a column that Spark considers not nullable, such as uniform(NULL, 1).
        table = _nullable(found).toArrow()
    return in_schema(table, plain_schema(table.schema))


def _nullable(rows: DataFrame) -> DataFrame:
    """Return the same rows with every column nullable for Spark."""
    from pyspark.sql.functions import col, spark_partition_id, when

    always = spark_partition_id() >= 0  # always true, but Spark's optimizer does not know that
    numbered = rows.toDF(*(f"c{place}" for place in range(len(rows.columns))))
    return numbered.select(*(when(always, col(name)) for name in numbered.columns)).toDF(*rows.columns)


def in_arrow_types(rows: DataFrame) -> DataFrame:
    """Return rows without types that Arrow cannot represent.

    Month intervals, calendar intervals and untyped elements become text, geographic values WKB.
    """
    from pyspark.sql.functions import col, st_asbinary
    from pyspark.sql.types import BinaryType

    kinds = [(field.name, field.dataType, _carried(field.dataType, field.nullable)) for field in rows.schema]
    if all(kind == carried for _, kind, carried in kinds):
        return rows
    # Columns are numbered, since names may repeat.
    numbered = rows.toDF(*(f"c{place}" for place in range(len(kinds))))
    chosen = []
    for place, (_, kind, carried) in enumerate(kinds):
        column = col(f"c{place}")
        if carried == BinaryType() != kind:
            chosen.append(st_asbinary(column))
        else:
            chosen.append(column if kind == carried else column.cast(carried))
    return numbered.select(*chosen).toDF(*(name for name, _, _ in kinds))


def _carried(kind: DataType, nullable: bool = True) -> DataType:
    from pyspark.sql import types

    if isinstance(kind, types.NullType) and not nullable:
        return types.StringType()
    if isinstance(kind, (types.YearMonthIntervalType, types.CalendarIntervalType)):
        return types.StringType()
    if isinstance(kind, (types.GeometryType, types.GeographyType)):
        return types.BinaryType()
    if isinstance(kind, types.ArrayType):
        inner = types.StringType() if isinstance(kind.elementType, types.NullType) else _carried(kind.elementType)
        return kind if inner == kind.elementType else types.ArrayType(inner, kind.containsNull)
    if isinstance(kind, types.MapType):
        sides = [
            types.StringType() if isinstance(side, types.NullType) else _carried(side)
            for side in (kind.keyType, kind.valueType)
        ]
        return kind if sides == [kind.keyType, kind.valueType] else types.MapType(*sides, kind.valueContainsNull)
    if isinstance(kind, types.StructType):
        fields = [types.StructField(field.name, _carried(field.dataType), field.nullable) for field in kind]
        return types.StructType(fields) if fields != list(kind) else kind
    return kind


def _session(warehouse: Warehouse, running: Running) -> SparkSession:
    """Wait for Spark within the query's timeout."""
    from crannog.spark.session import spark_runtime

    runtime = spark_runtime(warehouse.settings)
    if runtime.state() != "ready":
        runtime.start_in_background()
        while runtime.state() == "starting":
            running.check()
            time.sleep(0.02)
    return warehouse.spark(running.check)


def _drop(session: SparkSession, view: str) -> None:
    with suppress(Exception):  # the session may be gone
        session.catalog.dropTempView(view)


def explained(rows: DataFrame) -> str:
    """Return the plan that an EXPLAIN statement gave."""
    return str(rows.collect()[0][0])


@contextmanager
def spilled(
    warehouse: Warehouse,
    on_spark: Callable[[Callable[[DataFrame], pa.Schema]], pa.Schema],
    running: Running,
    tables: Sequence[str],
) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Yield a result that reads `tables` as batches, in order; `on_spark` calls a function with the DataFrame.

    Raises SnapshotGone if an erasure deletes it.
    """
    storage = warehouse.storage
    name = uuid.uuid4().hex
    folder = f"{result_files.FOLDER}/{name}"
    result_files.remove_abandoned(storage)
    with result_files.lease_on(storage, name, running.query_id, tables):
        try:
            schema = on_spark(lambda rows: _write(in_arrow_types(rows), storage.spark_uri(f"{folder}/rows")))
            if not result_files.is_leased(storage, name):
                raise _erased()
            parts = sorted(part for part in storage.names(f"{folder}/rows") if part.endswith(".parquet"))
            yield schema, _batches(warehouse, name, [f"{folder}/rows/{part}" for part in parts], schema, running)
        finally:
            with suppress(CrannogError):
                storage.delete_folder(folder)


def _write(rows: DataFrame, folder: str) -> pa.Schema:
    """Write rows as files and return their types as they arrive, from a result without rows."""
    schema = plain_schema(rows.limit(0).toArrow().schema)
    # Columns are numbered: names may repeat in a result, but not in a file.
    numbered = rows.toDF(*(f"c{place}" for place in range(len(schema))))
    numbered.write.mode("overwrite").parquet(folder)
    return schema


def _erased() -> SnapshotGone:
    return SnapshotGone("the rows that this query read were erased before its result was sent; run it again")


def _batches(
    warehouse: Warehouse, name: str, paths: list[str], schema: pa.Schema, running: Running
) -> Iterator[pa.RecordBatch]:
    storage = warehouse.storage
    for path in paths:
        try:
            file = storage.open(path)
        except FileNotFoundError:
            raise _erased() from None
        with file:
            for batch in pq.ParquetFile(pa.PythonFile(file, mode="r")).iter_batches(_BATCH):
                running.check()
                # An open file stays readable after its deletion.
                if not result_files.is_leased(storage, name):
                    raise _erased()
                if batch.num_rows:
                    yield in_schema(batch, schema)
