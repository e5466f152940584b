"""Nothing of a statement is ignored: an argument of a node that no rule reads sends the statement to Spark."""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
from collections.abc import Iterator

import pyarrow as pa
import pytest
from sqlglot import exp

from crannog.engine.sql.duckdb_compiler import NoRule, compile_statement
from crannog.engine.sql.duckdb_compiler.expressions import Expressions
from crannog.engine.sql.duckdb_compiler.relations import SourceShape
from crannog.engine.sql.statement import Statement, parse
from sql_corpus import MORE, SERVED
from sql_tables import INSTANT, KEYED, ORDERS, VALUES

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SYSTEM = [pa.field("_created_at", INSTANT), pa.field("_batch_id", pa.string())]
SCHEMAS = {"v": VALUES, "k": KEYED, "o": ORDERS, "e": KEYED}
LONGEST = 1_000_000
# What an argument may hold, in the shapes that the parser gives them.
INTRUDERS = (True, "intruder", exp.Var(this="intruder"), [exp.Var(this="intruder")])
# Said of the statement, not of its answer: how it may be run, and that a name was in quotes.
WITHOUT_MEANING = {
    (exp.Select, "hint"),
    (exp.Identifier, "quoted"),
    (exp.Div, "typed"),
    (exp.Div, "safe"),
    (exp.DPipe, "safe"),
    (exp.Window, "over"),
    (exp.DataType, "nested"),
}


def shapes(statement: Statement) -> dict[int, SourceShape]:
    found = {}
    for ref in statement.tables:
        name = ref.parts[-1].lower().removeprefix("__raw__")
        found[ref.start] = SourceShape(("eq", "s", ref.parts[-1].lower()), pa.schema([*SCHEMAS[name], *SYSTEM]))
    return found


def compiled_sql(statement: Statement) -> str:
    return compile_statement(statement, shapes(statement), NOW).sql


def served() -> Iterator[Statement]:
    for texts in (SERVED | MORE).values():
        for text in texts:
            statement = parse(text, LONGEST)
            try:
                compiled_sql(statement)
            except NoRule:
                continue
            yield statement


@pytest.fixture(scope="module")
def examples() -> dict[type[exp.Expression], tuple[Statement, int]]:
    """For each class of nodes a short statement that compiles with one, and the place of the node in a walk."""
    found: dict[type[exp.Expression], tuple[Statement, int]] = {}
    for statement in sorted(served(), key=lambda one: len(one.text)):
        assert statement.tree is not None
        for place, node in enumerate(statement.tree.walk()):
            found.setdefault(type(node), (statement, place))
    return found


def test_every_argument_that_no_rule_reads_sends_the_statement_to_spark(
    examples: dict[type[exp.Expression], tuple[Statement, int]],
) -> None:
    assert len(examples) > 60
    ignored, tried = [], 0
    for kind, (statement, place) in examples.items():
        plain = compiled_sql(statement)
        assert statement.tree is not None
        for argument in kind.arg_types:
            if (kind, argument) in WITHOUT_MEANING or list(statement.tree.walk())[place].args.get(argument):
                continue
            for intruder in INTRUDERS:
                tree = statement.tree.copy()
                list(tree.walk())[place].set(
                    argument, intruder.copy() if isinstance(intruder, exp.Expression) else intruder
                )
                tried += 1
                try:
                    if compiled_sql(dataclasses.replace(statement, tree=tree)) == plain:
                        ignored.append(f"{kind.__name__}.{argument} = {intruder!r} in {statement.text}")
                except NoRule:
                    continue
    assert not ignored, "\n".join(ignored)
    assert tried > 500


def classes() -> list[type[exp.Expression]]:
    found = [kind for _, kind in inspect.getmembers(exp, inspect.isclass) if issubclass(kind, exp.Expression)]
    return [kind for kind in found if not inspect.isabstract(kind)]


def test_a_node_of_any_class_without_a_rule_sends_the_statement_to_spark() -> None:
    """Each class of sqlglot's, whichever it is, in the place of a value, of a relation and of a whole statement."""
    statement = parse("SELECT id FROM eq.s.k", LONGEST)
    assert statement.tree is not None
    known = {name.removeprefix("on_") for name in dir(Expressions) if name.startswith("on_")}
    assert len(classes()) > 500
    for kind in classes():
        arguments = {name: exp.column("id") for name, needed in kind.arg_types.items() if needed}
        for place in ("value", "relation"):
            tree = statement.tree.copy()
            try:
                node = kind(**arguments)
                if place == "value":
                    tree.set("expressions", [exp.alias_(node, "v") if not isinstance(node, exp.Alias) else node])
                else:
                    tree.args["from_"].set("this", node)
            except Exception:
                continue  # not a class that can be made so
            try:
                sql = compiled_sql(dataclasses.replace(statement, tree=tree))
            except NoRule:
                continue
            assert kind.key in known or issubclass(kind, (exp.Binary, exp.Connector)), f"{kind.__name__} became {sql}"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM (SELECT id, v, w FROM eq.s.k) PIVOT (sum(w) FOR v IN ('a', 'b'))",
        "SELECT count(*) FROM (SELECT id, grp FROM eq.s.k) UNPIVOT (n FOR m IN (id, grp))",
        "SELECT count(*) FROM (SELECT id FROM eq.s.k) TABLESAMPLE (5 ROWS)",
        "SELECT count(*) FROM eq.s.k TABLESAMPLE (5 ROWS)",
        "SELECT count(DISTINCT *) FROM eq.s.k",
        "SELECT id + 1 AS id FROM eq.s.k |> AGGREGATE sum(id) AS s",
        "SELECT (SELECT k.id ORDER BY 1 LIMIT 1) AS one FROM eq.s.k k",
        "SELECT CAST('a' AS STRING COLLATE UTF8_LCASE) = 'A' AS same",
        "SELECT + id FROM eq.s.k",
        "SELECT id FROM eq.s.k WHERE id ! IN (1)",
        "SELECT count() FROM eq.s.k",
        "SELECT id FROM eq.s.k GROUP BY -1",
        "WITH w AS (SELECT 1 AS x), w AS (SELECT 2 AS x) SELECT x FROM w",
        "SELECT grp, rank() OVER (ORDER BY grp) AS r FROM eq.s.k GROUP BY grp ORDER BY sum(id)",
        "SELECT exists(SELECT 1 FROM eq.s.o o WHERE o.id = k.id) FROM eq.s.k k",
        "SELECT id FROM eq.s.k SORT BY id",
        "SELECT id FROM eq.s.k QUALIFY rank() OVER (ORDER BY id) = 1",
    ],
)
def test_what_was_once_dropped_silently_goes_to_spark(text: str) -> None:
    with pytest.raises(NoRule):
        compiled_sql(parse(text, LONGEST))
