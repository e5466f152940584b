"""What the tokens of a statement tell: its tables, wherever they stand, and its calls, each one looked at."""

from __future__ import annotations

import pytest

from crannog.engine.sql.function_calls import DENIED, KNOWN, OPTIONS, XPATH
from crannog.engine.sql.statement import parse
from crannog.errors import CallerError, Refused
from sql_corpus import MORE, SERVED

LONGEST = 1_000_000

TABLES = {
    "SELECT * FROM a.b.c": ["a.b.c"],
    "SELECT * FROM c, b.d AS e JOIN `a`.`b`.`f` ON true, g": ["c", "b.d", "a.b.f", "g"],
    "SELECT extract(YEAR FROM d), trim(BOTH 'x' FROM s), a IS DISTINCT FROM b FROM t": ["t"],
    "SELECT (SELECT max(x) FROM u) FROM (SELECT * FROM t) WHERE EXISTS (SELECT 1 FROM v)": ["u", "t", "v"],
    "WITH w AS (SELECT 1 FROM w), z (a) AS (SELECT * FROM w) SELECT * FROM w, z, y": ["w", "y"],
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r": [],
    "SELECT * FROM (WITH i AS (SELECT 1) SELECT * FROM i) JOIN i": ["i"],
    "SELECT * FROM t VERSION AS OF 3 JOIN u FOR TIMESTAMP AS OF '2026-01-01' AS x ON true": ["t", "u"],
    "SELECT * FROM VALUES (1, 2), (3, 4) AS v (a, b), t": ["t"],
    "SELECT * FROM VALUES (1), (2) v (a) JOIN t": ["t"],
    "SELECT * FROM range(10) r (n), LATERAL (SELECT n FROM t)": ["t"],
    "SELECT * FROM ((a JOIN b) JOIN (c)) d": ["a", "b", "c"],
    "SELECT * FROM t LATERAL VIEW explode(l) x AS p, q WHERE p IN (TABLE u)": ["t", "u"],
    "SELECT * FROM t PIVOT (sum(x) FOR y IN ('a', 'b')) JOIN u": ["t", "u"],
    "TABLE t": ["t"],
    "TABLE t UNION ALL TABLE u": ["t", "u"],
    "FROM t SELECT x": ["t"],
    "FROM t |> JOIN u ON true |> UNION ALL TABLE v |> UNION ALL (SELECT * FROM w)": ["t", "u", "v", "w"],
    "SELECT * FROM t TABLESAMPLE (10 PERCENT) x, u TABLESAMPLE (5 ROWS) REPEATABLE (1)": ["t", "u"],
    "SELECT * FROM t GROUP BY a, b ORDER BY c, d": ["t"],
    "VALUES (1, 2), (3, 4)": [],
    "SELECT a `from` FROM t, `from` f": ["t", "from"],
}


@pytest.mark.parametrize("text", TABLES)
def test_tables_are_found_wherever_they_stand(text: str) -> None:
    assert [ref.written for ref in parse(text, LONGEST).tables] == TABLES[text]


def test_from_after_from_is_refused() -> None:
    """Spark takes the first for an alias: read as a table of that name, the answer would be another one."""
    for text in ("SELECT a from from t", "SELECT count(*) FROM from t"):
        with pytest.raises(Refused, match="in backticks"):
            parse(text, LONGEST)


def test_tables_are_those_of_the_syntax_tree_where_there_is_one() -> None:
    from sqlglot import exp

    for texts in (SERVED | MORE).values():
        for text in texts:
            statement = parse(text, LONGEST)
            assert statement.tree is not None
            starts = {table.parts[0].meta.get("start") for table in statement.tree.find_all(exp.Table)}
            assert {ref.start for ref in statement.tables} <= starts, text


def spark_text(text: str) -> str:
    statement = parse(text, LONGEST)
    return statement.for_spark({ref.start: f"v{place}" for place, ref in enumerate(statement.tables)})


def test_what_spark_gets() -> None:
    assert (
        spark_text("SELECT * FROM t TABLESAMPLE (10 PERCENT) WHERE t.x = 1")
        == "SELECT * FROM v0 TABLESAMPLE (10 PERCENT) AS `t` WHERE t.x = 1"
    )
    assert spark_text("TABLE a.b.c |> SELECT c.x") == "SELECT * FROM v0 AS `c` |> SELECT c.x"
    assert (
        spark_text("SELECT /*+ BROADCAST(t), REPARTITION(3) */ 1 FROM t")
        == "SELECT /*+ BROADCAST(t), REPARTITION(3) */ 1 FROM v0 AS `t`"
    )
    with pytest.raises(Refused, match="ambiguous"):
        spark_text("SELECT /*+ BROADCAST('t') */ 1 FROM t")


# -- calls -------------------------------------------------------------------------------------------------------

REFUSED = {
    "SELECT from_xml('<a/>', 'b INT', map('rowValidationXSDPath', '/etc/passwd'))": "no option 'rowValidationXSDPath'",
    "SELECT from_xml('<a/>', 'b INT', map('ROWvalidationxsdpath', 'http://127.0.0.1/'))": "no option",
    "SELECT from_xml('<a/>', 'b INT', map(concat('row', 'ValidationXSDPath'), '/etc/passwd'))": "a map of literals",
    "SELECT from_xml(x, 'b INT', m) FROM (SELECT '<a/>' AS x, map('rowValidationXSDPath', '/x') AS m)": "a map of literals",
    "SELECT from_xml('<a/>', 'b INT', map_from_arrays(array('rowValidationXSDPath'), array('/x')))": "a map of literals",
    "SELECT from_xml('<a/>', 'b INT', str_to_map('rowValidationXSDPath=/x', ';', '='))": "a map of literals",
    "SELECT from_xml('<a/>', 'b INT', CAST(NULL AS map<string, string>))": "a map of literals",
    "SELECT from_xml('<a/>', schema => 'b INT', options => map('rowValidationXSDPath', '/x'))": "by position, not by name",
    "SELECT schema_of_xml('<a/>', map('rowValidationXSDPath', '/x'))": "no option",
    "SELECT to_json(struct(1), map('nosuch', 'x'))": "no option",
    "SELECT system.builtin.from_xml('<a/>', 'b INT', map('rowValidationXSDPath', '/x'))": "no option",
    "SELECT `from_xml`('<a/>', 'b INT', map('rowValidationXSDPath', '/x'))": "no option",
    "FROM t |> SELECT from_xml(x, 'b INT', map('rowValidationXSDPath', '/x'))": "no option",
    "FROM t |> EXTEND nosuch(x) AS y": "no function 'nosuch'",
    "SELECT x FROM t LATERAL VIEW OUTER nosuch(x) y AS z": "no function 'nosuch'",
    "SELECT a DIV nosuch(x) FROM t": "no function 'nosuch'",
    "SELECT x FROM t, nosuch(1)": "table function 'nosuch'",
    "SELECT x FROM t nosuch(x) WHERE reflect('java.lang.System', 'exit', 1)": "reflect is not allowed",
}


@pytest.mark.parametrize("text", REFUSED)
def test_calls_that_nobody_looked_at_are_refused(text: str) -> None:
    with pytest.raises(CallerError, match=REFUSED[text]):
        parse(text, LONGEST)


def test_options_with_known_keys_pass() -> None:
    for text in (
        "SELECT from_json(x, 'a INT', map('mode', 'FAILFAST', 'timestampFormat', 'yyyy')) FROM t",
        "SELECT from_csv(x, 'a INT', map('sep', ';')), to_json(s, map()), schema_of_json('{}') FROM t",
        "SELECT from_xml(x, 'a INT', map('rowTag', 'r')) FROM t",
    ):
        parse(text, LONGEST)


def test_a_document_with_a_doctype_fails_in_spark() -> None:
    for name in sorted(XPATH):
        text = spark_text(f"SELECT {name}(doc, 'a/b') FROM t")
        assert "contains(d, '<!DOCTYPE')" in text
        assert text.startswith(f"SELECT {name}(element_at(transform(array(doc), ")


def test_lists_of_functions_do_not_overlap() -> None:
    assert not KNOWN & DENIED
    assert set(OPTIONS) <= KNOWN
    assert XPATH <= KNOWN
