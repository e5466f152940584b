"""TPC-H on hot, local and Spark: the same answer to each of its queries."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

import tpch
from crannog.embedded import EmbeddedLake as Lake
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from sql_equal import FAST, ask, compiled, difference

SCALE = 0.01
QUERIES = tpch.queries(SCALE)
# Averages and quotients of decimals, correlated subqueries, an outer join, NOT EXISTS, a scalar below HAVING.
ON_SPARK_BY_DEFAULT = (1, 11, 13, 17, 22)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: SparkRuntime) -> Iterator[Lake]:
    settings = Settings(
        warehouse=str(tmp_path_factory.mktemp("tpch") / "warehouse"),
        default_catalog=tpch.CATALOG,
        default_schema=tpch.SCHEMA,
        spark_memory_mb=1024,
        port=0,
        otlp_http_port=0,
        otlp_grpc_port=0,
    )
    with Lake(settings.warehouse, settings=settings) as opened:
        _fill(opened)
        yield opened


def _fill(lake: Lake) -> None:
    """Make and pin the tables: some staged only; lineitem in files and staged; orders keyed, changed since the fold."""
    for name, rows in tpch.tables(SCALE).items():
        key = ["o_orderkey"] if name == "orders" else None
        table = lake.create_table(f"{tpch.CATALOG}.{tpch.SCHEMA}.{name}", tpch.SCHEMAS[name], key=key)
        half = rows.num_rows // 2
        if name == "orders":
            wrong = rows.set_column(
                rows.schema.get_field_index("o_orderpriority"), "o_orderpriority", pa.array(["9-WRONG"] * rows.num_rows)
            )
            table.append(pa.concat_tables([rows.slice(0, half), wrong.slice(half, 500)]))
            table.fold()
            table.append(rows.slice(half))
        elif name == "lineitem":
            table.append(rows.slice(0, half))
            table.fold()
            table.append(rows.slice(half))
        else:
            table.append(rows)
        lake.cache.pin(f"{tpch.CATALOG}.{tpch.SCHEMA}.{name}")


def test_what_the_fast_engines_serve(lake: Lake) -> None:
    """All of them; one that they cease to serve shows here, with the reason."""
    reasons = {number: found for number, text in QUERIES.items() if isinstance(found := compiled(lake, text), str)}
    assert reasons == {}
    assert {lake.explain(text).engine for text in QUERIES.values()} == {"hot"}


@pytest.mark.parametrize("number", QUERIES)
def test_local_and_hot(lake: Lake, number: int) -> None:
    local, hot = (ask(lake, QUERIES[number], engine) for engine in FAST)
    assert local.result is not None, local.error
    assert hot.result is not None, hot.error
    assert local.result.row_count
    assert difference(local.result, hot.result, ordered=True) is None


@pytest.mark.parametrize("number", ON_SPARK_BY_DEFAULT)
def test_spark(lake: Lake, number: int) -> None:
    same_as_spark(lake, number)


@pytest.mark.slow
@pytest.mark.parametrize("number", [number for number in QUERIES if number not in ON_SPARK_BY_DEFAULT])
def test_the_rest_on_spark(lake: Lake, number: int) -> None:
    same_as_spark(lake, number)


def same_as_spark(lake: Lake, number: int) -> None:
    """Every ORDER BY of the 22 fixes the order of these rows, and no answer holds a floating number: all is exact."""
    spark = ask(lake, QUERIES[number], "spark")
    assert spark.result is not None, spark.error
    assert spark.result.row_count
    assert not any(pa.types.is_floating(kind) for kind in spark.result.schema.types)
    local = ask(lake, QUERIES[number], "local")
    assert local.result is not None, local.error
    assert difference(spark.result, local.result, ordered=True) is None


def test_the_tables(lake: Lake) -> None:
    """The same rows each time, in the numbers the specification gives, and every reference leads somewhere."""
    made, again = tpch.tables(SCALE), tpch.tables(SCALE)
    assert made == again
    counts = {name: rows.num_rows for name, rows in made.items()}
    lines = counts.pop("lineitem")
    assert counts == {
        "region": 5,
        "nation": 25,
        "supplier": 100,
        "customer": 1_500,
        "part": 2_000,
        "partsupp": 8_000,
        "orders": 15_000,
    }
    assert abs(lines - 60_000) < 1_000
    with duckdb.connect() as connection:
        for name, rows in made.items():
            connection.register(name, rows)
        for child, parent, pairs in (
            ("nation", "region", {"n_regionkey": "r_regionkey"}),
            ("supplier", "nation", {"s_nationkey": "n_nationkey"}),
            ("customer", "nation", {"c_nationkey": "n_nationkey"}),
            ("orders", "customer", {"o_custkey": "c_custkey"}),
            ("lineitem", "orders", {"l_orderkey": "o_orderkey"}),
            ("lineitem", "partsupp", {"l_partkey": "ps_partkey", "l_suppkey": "ps_suppkey"}),
            ("partsupp", "part", {"ps_partkey": "p_partkey"}),
            ("partsupp", "supplier", {"ps_suppkey": "s_suppkey"}),
        ):
            match = " AND ".join(f"{one} = {other}" for one, other in pairs.items())
            assert connection.sql(f"SELECT count(*) FROM {child} ANTI JOIN {parent} ON {match}").fetchall() == [(0,)], (
                child,
                parent,
            )
        unique = "SELECT count(DISTINCT (ps_partkey, ps_suppkey)) FROM partsupp"
        assert connection.sql(unique).fetchall() == [(8_000,)]
