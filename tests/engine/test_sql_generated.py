"""Statements that nobody thought of: made up from a grammar, over made-up tables, answered as Spark answers them.

`CRANNOG_SQL_SECONDS=3600 CRANNOG_SQL_SEED=7 make test-slow` looks for as long as one likes, from a seed of one's own;
what differs is made small and told at the end, all of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from random import Random

import pytest

from crannog.embedded import EmbeddedLake as Lake
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from sql_grammar import Grammar
from sql_made_tables import CATALOG, SCHEMA, made_tables
from sql_tree import Node, listed, node, shrunk
from sql_versus import Finding, Versus

# Read before the tests take all such variables away, so that settings of the person who runs them change nothing.
SECONDS = float(os.environ.get("CRANNOG_SQL_SECONDS", "300"))
SEED = int(os.environ.get("CRANNOG_SQL_SEED", str(time.time_ns() // 10**9)))
STATEMENTS_OF_A_ROUND = 60


@pytest.fixture(scope="module")
def versus(tmp_path_factory: pytest.TempPathFactory, spark: SparkRuntime) -> Iterator[Versus]:
    warehouse = str(tmp_path_factory.mktemp("generated") / "warehouse")
    settings = Settings(
        warehouse=warehouse,
        spark_memory_mb=1024,
        port=0,
        otlp_http_port=0,
        otlp_grpc_port=0,
        default_catalog=CATALOG,
        default_schema=SCHEMA,
    )
    with Lake(warehouse, settings=settings) as lake:
        yield Versus(lake, spark.session().newSession())


def look(
    versus: Versus, random: Random, *, statements: int, until: float | None = None, fast: bool = False
) -> list[Finding]:
    """Compare a round of statements over new tables."""
    tables, grammar, found = made_tables(random), Grammar(random, fast), []
    versus.set_up(tables)
    for _ in range(statements):
        if until is not None and time.monotonic() > until:
            break
        statement = grammar.statement()
        differs = versus.finding(statement, tables)
        if differs is not None:
            found.append(versus.smallest(differs, 60))
            versus.set_up(differs.tables)
    return found


def test_a_few_statements_made_up(versus: Versus) -> None:
    before = versus.answered
    found = look(versus, Random(20), statements=8)
    assert versus.answered - before > 5, "most of them are errors"
    assert not found, "\n\n".join(map(str, found))


def test_a_few_statements_made_up_of_what_has_rules(versus: Versus) -> None:
    before = versus.fast
    found = look(versus, Random(21), statements=10, fast=True)
    assert versus.fast - before >= 3, "most of them go to Spark"
    assert not found, "\n\n".join(map(str, found))


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_statements_made_up(versus: Versus) -> None:
    began, random, found = time.monotonic(), Random(SEED), []
    while time.monotonic() - began < SECONDS:
        for fast in (True, False):
            found += look(versus, random, statements=STATEMENTS_OF_A_ROUND, until=began + SECONDS, fast=fast)
    assert not found, f"seed {SEED}: {len(found)} differ\n\n" + "\n\n".join(map(str, found))


def test_a_statement_is_made_as_small_as_it_can_be() -> None:
    columns = listed("items", [node("number", "abs({})", node("number", name), least="1") for name in ("a", "b", "c")])
    tree = node(
        "statement",
        "select {} from t{}",
        columns,
        node("clause", " where {}", node("truth", "a > 1", least="true"), least=""),
    )
    candidates: list[str] = []

    def shows_it(candidate: Node) -> bool:
        candidates.append(str(candidate))
        return "b" in str(candidate).removeprefix("select").replace("abs", "")

    assert str(shrunk(tree, shows_it, 100)) == "select b from t"
    assert len(candidates) == len(set(candidates)) < 30
    assert str(shrunk(tree, shows_it, 0)) == str(tree)


def test_the_same_seed_makes_the_same_statements_and_tables() -> None:
    made = [
        ([str(Grammar(random).statement()) for _ in range(20)], [str(table) for table in made_tables(random)])
        for random in (Random(5), Random(5), Random(6))
    ]
    assert made[0] == made[1] != made[2]
