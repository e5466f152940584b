"""What a statement may be: one, read-only, over tables of the warehouse, and nothing that reaches outside."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from crannog.embedded import EmbeddedLake as Lake
from crannog.engine.sql.function_calls import DENIED, KNOWN, TABLE_FUNCTIONS
from crannog.engine.sql.statement import parse
from crannog.errors import CallerError, CrannogError, NotFound, Refused
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from lakes import opened

LONGEST = 1_000_000
NOT_ALLOWED = r"""
DROP TABLE a.b.c
CREATE TABLE a.b.c (x int)
CREATE TEMP VIEW v AS SELECT * FROM parquet.`/etc`
CREATE TEMPORARY VIEW v USING parquet OPTIONS (path '/etc')
CREATE FUNCTION f AS 'x'
INSERT INTO a.b.c VALUES (1)
UPDATE a.b.c SET x = 1
DELETE FROM a.b.c
MERGE INTO a.b.c USING d ON c.x = d.x WHEN MATCHED THEN DELETE
TRUNCATE TABLE a.b.c
ALTER TABLE a.b.c ADD COLUMN y int
WITH x AS (DELETE FROM a.b.c RETURNING *) SELECT * FROM x
SELECT 1; SELECT 2
SELECT 1; DROP TABLE a.b.c
SELECT * FROM parquet.`/etc/passwd`
SELECT * FROM delta.`/tmp/x`
SELECT * FROM csv.`s3://bucket/x`
SELECT * FROM json.`file:///etc`
SELECT * FROM `parquet`.`/x`
SELECT * FROM text.`../../x`
SELECT * FROM '/etc/passwd'
SELECT * FROM "/etc/passwd"
SELECT * FROM read_parquet('/etc/x')
SELECT * FROM read_csv('/etc/passwd')
SELECT * FROM read_csv_auto('/etc/passwd')
SELECT * FROM read_files('/etc')
SELECT * FROM glob('/*')
SELECT * FROM duckdb_settings()
SELECT * FROM table_changes('a', 1)
SELECT * FROM python_worker_logs()
SELECT read_text('/etc/passwd')
SELECT getenv('HOME')
SELECT reflect('java.lang.System', 'getenv', 'HOME')
SELECT java_method('java.lang.System', 'getenv', 'HOME')
SELECT try_reflect('java.lang.System', 'getenv', 'HOME')
SELECT REFLECT/**/('java.lang.System', 'getenv')
SELECT `reflect`('java.lang.System', 'getenv', 'HOME')
SELECT system.builtin.reflect('java.lang.System', 'exit', 1)
SELECT builtin.`reflect` ('java.lang.System', 'exit', 1)
SELECT transform(array(1), x -> reflect('java.lang.System', 'exit', x))
SELECT reflect(1) FROM a.b.c AS reflect(x)
SELECT input_file_name() FROM a.b.c
SELECT IDENTIFIER('reflect')('java.lang.System', 'getenv', 'x')
SELECT * FROM IDENTIFIER('parquet.`/etc`')
SELECT from_protobuf(x, 'M', '/etc/desc') FROM a.b.c
SELECT TRANSFORM(x) USING 'cat /etc/passwd' AS (y) FROM a.b.c
FROM a.b.c MAP x USING 'cat' AS y
FROM a.b.c REDUCE x USING 'cat' AS y
SELECT my_udf(1)
SELECT default.my_udf(1)
SELECT * INTO x FROM a.b.c
SELECT ?
SELECT :x
SELECT ${env:HOME}
ATTACH '/tmp/x.db'
COPY (SELECT 1) TO '/tmp/x'
EXPORT DATABASE 'x'
INSTALL httpfs
LOAD httpfs
PRAGMA database_list
SET spark.sql.ansi.enabled=false
RESET
USE a.b
SHOW FUNCTIONS
SHOW TABLES EXTENDED x y
DESCRIBE
DESCRIBE FUNCTION abs
EXPLAIN
EXPLAIN DROP TABLE a.b.c
CACHE TABLE x
REFRESH TABLE x
ADD JAR '/x.jar'
LOAD DATA INPATH '/x' INTO TABLE y
CALL x()
VACUUM
DECLARE x INT DEFAULT 1
BEGIN SELECT 1; END
EXECUTE IMMEDIATE 'SELECT 1'
SELECT * FROM a.b.c.d
SELECT 'abc
SELECT "abc
SELECT `abc
SELECT 1 /* abc
SELECT FROM WHERE
""".strip().splitlines()


@pytest.fixture
def lake(settings: Settings) -> Iterator[Lake]:
    with opened(settings) as lake:
        table = lake.create_table("a.b.c", pa.schema([("x", pa.int64())]))
        table.append([{"x": 1}, {"x": 2}])
        yield lake


@pytest.mark.parametrize("text", NOT_ALLOWED)
def test_what_is_not_a_plain_query_is_refused_on_every_engine(lake: Lake, text: str) -> None:
    for engine in ("auto", "local", "hot", "spark"):
        with pytest.raises(CallerError) as refused:
            lake.sql(text, engine=engine)
        assert len(str(refused.value)) < 500
    for ask in (lake.stream, lake.explain):
        with pytest.raises(CallerError):
            ask(text)


@pytest.mark.parametrize("text", ["", "  ", ";", "-- nothing", "/* nothing */"])
def test_an_empty_statement_says_so(lake: Lake, text: str) -> None:
    with pytest.raises(CallerError, match="empty"):
        lake.sql(text)


@pytest.mark.parametrize("text", [None, 1, b"SELECT 1", ["SELECT 1"]])
def test_a_statement_is_text(lake: Lake, text: object) -> None:
    with pytest.raises(CallerError, match="a statement is text"):
        lake.sql(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["SELECT x FROM a.b.c;", "SELECT x FROM a.b.c ; -- done", "/* a */ SELECT x FROM a.b.c /* b /* c */ */"]
)
def test_comments_and_a_last_semicolon_are_fine(lake: Lake, text: str) -> None:
    assert sorted(row["x"] for row in lake.sql(text).rows()) == [1, 2]


DEEP = {
    "parentheses": "SELECT " + "(" * 10_000 + "1" + ")" * 10_000,
    "subqueries": "SELECT * FROM " + "(SELECT * FROM " * 5_000 + "a.b.c" + ")" * 5_000,
    "not": "SELECT " + "NOT " * 10_000 + "true",
    "minus": "SELECT " + "- " * 10_000 + "1",
    "case": "SELECT " + "CASE WHEN true THEN " * 5_000 + "1" + " END" * 5_000,
    "functions": "SELECT " + "abs(" * 10_000 + "1" + ")" * 10_000,
    "brackets": "SELECT x" + "[0]" * 10_000,
    "sum": "SELECT " + "1 + " * 10_000 + "1",
    "concatenation": "SELECT " + "'a' || " * 10_000 + "'b'",
    "lambdas": "SELECT " + "x -> " * 5_000 + "1",
    "union": " UNION ALL ".join(["SELECT 1"] * 10_000),
    "joins": "SELECT * FROM a.b.c" + " JOIN a.b.c" * 5_000,
    "dots": "SELECT " + ".".join(["a"] * 10_000),
}


@pytest.mark.parametrize("shape", DEEP)
def test_ten_thousand_levels_are_an_error_and_no_crash(lake: Lake, shape: str) -> None:
    before = sys.getrecursionlimit()
    with pytest.raises(Refused, match="nested deeper"):
        lake.sql(DEEP[shape])
    assert sys.getrecursionlimit() == before
    assert lake.sql("SELECT count(*) AS n FROM a.b.c").rows() == [{"n": 2}]


def test_a_huge_statement_is_refused_at_once(lake: Lake) -> None:
    with pytest.raises(Refused, match="10,000,009 bytes"):
        lake.sql("SELECT '" + "x" * 10_000_000 + "'")


def test_long_flat_conditions_are_fine(lake: Lake) -> None:
    many = " OR ".join(f"x = {n}" for n in range(2_000))
    assert lake.sql(f"SELECT count(*) AS n FROM a.b.c WHERE {many}").rows() == [{"n": 2}]
    listed = ", ".join(map(str, range(20_000)))
    assert lake.sql(f"SELECT count(*) AS n FROM a.b.c WHERE x IN ({listed})").rows() == [{"n": 2}]


# -- names -----------------------------------------------------------------------------------------------------


def test_names_are_found_quoted_or_not_and_with_defaults(settings: Settings) -> None:
    with opened(settings, default_catalog="a", default_schema="b") as lake:
        lake.create_table("a.b.c", pa.schema([("x", pa.int64())])).append([{"x": 7}])
        lake.create_table("a.b.d-1", pa.schema([("x", pa.int64())])).append([{"x": 8}])
        for name in ("a.b.c", "`a`.`b`.`c`", "b.c", "c", "`c`", "a . b . c"):
            assert lake.sql(f"SELECT x FROM {name}").rows() == [{"x": 7}], name
        assert lake.sql("SELECT x FROM `d-1`").rows() == [{"x": 8}]
        for column in ("c.x", "b.c.x", "a.b.c.x", "C.X"):
            assert lake.sql(f"SELECT {column} AS x FROM a.b.c").rows() == [{"x": 7}], column
        assert lake.sql("WITH c AS (SELECT 1 AS x) SELECT x FROM c").rows() == [{"x": 1}], "WITH wins over a table"
        assert lake.sql("WITH c AS (SELECT x + 1 AS x FROM c) SELECT x FROM c").rows() == [{"x": 8}], (
            "inside it is the table"
        )


@pytest.mark.parametrize("name", ["a.b.nosuch", "nosuch", "x.nosuch", "a.b.`__raw__nosuch`"])
def test_a_table_that_is_not_there_is_named(lake: Lake, name: str) -> None:
    with pytest.raises(NotFound, match="nosuch"):
        lake.sql(f"SELECT * FROM {name}")


@pytest.mark.parametrize("name", ["`a`.`b`.`../c`", "`a`.`b`.`_delta_log`", "`..`.`b`.`c`", "`a`.`b`.`c d`"])
def test_names_that_try_to_leave_the_warehouse_are_refused(lake: Lake, name: str) -> None:
    with pytest.raises(CallerError):
        lake.sql(f"SELECT * FROM {name}")


# -- what reaches Spark ----------------------------------------------------------------------------------------


def spark_text(text: str) -> str:
    statement = parse(text, LONGEST)
    return statement.for_spark({ref.start: f"v{place}" for place, ref in enumerate(statement.tables)})


def test_spark_gets_the_checked_tokens_without_comments() -> None:
    assert spark_text("SELECT /* a */ x -- b\n FROM a.b.c") == "SELECT x FROM v0 AS `c`"
    assert spark_text("SELECT c.x, a.b.c.x FROM a.b.c WHERE x = 'a.b.c -- /*'") == (
        "SELECT c.x, c.x FROM v0 AS `c` WHERE x = 'a.b.c -- /*'"
    )
    assert spark_text("SELECT t.x FROM a.b.c VERSION AS OF 3 AS t, `a`.`b`.`c` u") == "SELECT t.x FROM v0 AS t, v1 u"
    assert spark_text("SELECT 1L, 'it''s', `q``r` FROM a.b.c FOR TIMESTAMP AS OF '2026-01-01';") == (
        "SELECT 1L, 'it''s', `q``r` FROM v0 AS `c`"
    )


def test_every_function_of_spark_is_either_known_or_denied(spark: SparkRuntime) -> None:
    listed = {row[0].lower() for row in spark.session().sql("SHOW SYSTEM FUNCTIONS").collect()}
    words = {name for name in listed if name.replace("_", "").isalnum()}
    assert words - KNOWN - DENIED == set(), "new functions: decide whether they reach outside"
    assert KNOWN - words == set()
    assert not KNOWN & DENIED
    assert TABLE_FUNCTIONS <= KNOWN


def test_nothing_outside_is_read_even_if_a_check_were_missing(lake: Lake, tmp_path: Path) -> None:
    """The in-process engine itself is closed to files outside the warehouse, and its settings are locked."""
    (tmp_path / "secret.csv").write_text("a\n1\n")
    lake.sql("SELECT x FROM a.b.c")
    for text in (
        f"SELECT * FROM read_csv('{tmp_path}/secret.csv')",
        "SELECT * FROM read_text('/etc/hostname')",
        f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
        f"ATTACH '{tmp_path}/x.db'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
    ):
        with (
            lake.operations.warehouse.duckdb.cursor() as cursor,
            pytest.raises(Exception, match=r"(?i)permission|disabled|locked|allowed"),
        ):
            cursor.execute(text).fetchall()
    assert not (tmp_path / "out.csv").exists()


def test_errors_of_spark_come_without_paths_or_stacks(lake: Lake, spark: SparkRuntime) -> None:
    for text in ("SELECT nosuch FROM a.b.c", "SELECT explode(x) FROM a.b.c", "SELECT assert_true(x > 1) FROM a.b.c"):
        with pytest.raises(CrannogError) as wrong:
            lake.sql(text)
        assert str(lake.operations.warehouse.location) not in str(wrong.value)
        assert "\tat " not in str(wrong.value)


ANSWERED = {
    "FROM a.b.c |> WHERE x > 1 |> SELECT a.b.c.x": [{"x": 2}],
    "SELECT x + 1 AS x FROM a.b.c |> AGGREGATE sum(x) AS s": [{"s": 5}],
    "TABLE a.b.c |> AGGREGATE count(*) AS n": [{"n": 2}],
    "SELECT /*+ BROADCAST(c) */ count(*) AS n FROM A.B.C WHERE X = 1 AND exists(SELECT 1)": [{"n": 1}],
    "SELECT count(DISTINCT *) AS n FROM (SELECT 1 AS k FROM a.b.c)": [{"n": 1}],
    "SELECT count(*) AS n FROM (SELECT x FROM a.b.c) PIVOT (sum(x) FOR x IN (1, 2))": [{"n": 1}],
    "SELECT timestampdiff(MINUTE, TIMESTAMP '2026-01-01 00:00:00', TIMESTAMP '2026-01-01 01:00:00') AS m": [{"m": 60}],
    "SELECT INTERVAL '1-2' YEAR TO MONTH AS i, array() AS e": [{"i": "INTERVAL '1-2' YEAR TO MONTH", "e": []}],
    "SELECT make_interval(1, 2) AS i": [{"i": "1 years 2 months"}],
    "SELECT s.k FROM (SELECT named_struct('k', x) AS s FROM a.b.c) WHERE s.k = 1": [{"k": 1}],
    "SELECT (SELECT max(z) FROM (SELECT t.x + 1 AS z)) AS m FROM a.b.c t WHERE t.x = 1": [{"m": 2}],
    "SELECT ! (x > 1) AS n, + x AS p FROM a.b.c WHERE x = 1": [{"n": True, "p": 1}],
    "SELECT '${env:HOME}' AS h, '${spark.app.name}' AS a, max(array(1)) AS l": [
        {"h": "${env:HOME}", "a": "${spark.app.name}", "l": [1]}
    ],
    "SELECT xpath_string('<a><b>1</b></a>', 'a/b')": [{"xpath_string(<a><b>1</b></a>, a/b)": "1"}],
    "SELECT uniform(NULL, 1, 0) AS u": [{"u": None}],
    "SELECT * FROM explode(array())": [],
    "SELECT x FROM a.b.c |> WHERE x = 1 |> DROP x": [{}],
    "SELECT st_srid(g) AS n FROM (SELECT st_geomfromwkb(X'0101000000000000000000F03F0000000000000040') AS g)": [
        {"n": 0}
    ],
    "SELECT datediff(WEEK, TIMESTAMP '2026-01-01 00:00:00', TIMESTAMP '2026-01-15 00:00:00') AS w": [{"w": 2}],
    "SELECT concat_ws('-', x) FROM a.b.c WHERE x = 1 GROUP BY `concat_ws(-, x)`": [{"concat_ws(-, x)": "1"}],
    "SELECT from_json('{\"a\": 1}', 'a INT', map('mode', 'FAILFAST')).a AS a": [{"a": 1}],
}
WRONG = {
    "SELECT xpath_string('<!DOCTYPE a SYSTEM \"file:///etc/hostname\"><a/>', 'a')": "XML with a DOCTYPE is not allowed",
    "SELECT array(1) AS l, explode(l) AS e": "Spark cannot run this statement",
    "SELECT x FROM a.b.c |> WHERE": "(?i)syntax",
    "WITH w AS (SELECT 1), w AS (SELECT 2) SELECT * FROM w": "duplicate names",
    "SELECT count() FROM a.b.c": "parameters",
    "SELECT format_string('%s')": "Format specifier",
    "SELECT * FROM range(0, 5, 0)": "range",
    "SELECT x FROM a.b.c ORDER BY (SELECT x FROM VALUES (1))": ".",
    "SELECT c.x FROM a.b.c JOIN a.b.c d ON exists(SELECT 1 FROM a.b.c e WHERE e.x = c.x AND e.x = d.x)": ".",
    "SELECT x FROM a.b.c WHERE (SELECT count(*) FROM a.b.c d WHERE d.x = c.x GROUP BY c.x) = 1": ".",
    "SELECT x FROM a.b.c GROUP BY -1": "GROUP BY position -1",
    "SELECT x FROM a.b.c WHERE x ! IN (1)": "(?i)syntax|!",
    "SELECT x, sum(x) OVER () FROM a.b.c GROUP BY x ORDER BY sum(x)": ".",
    "SELECT * FROM a.b.c VERSION AS OF 99999999999999999999999": "99999999999999999999999",
}


def test_spark_answers_what_only_spark_reads_and_says_what_is_wrong(lake: Lake, spark: SparkRuntime) -> None:
    for text, rows in ANSWERED.items():
        assert lake.sql(text).rows() == rows, text
    for text, said in WRONG.items():
        with pytest.raises(CallerError, match=said):
            lake.sql(text)
    with lake.stream("SELECT INTERVAL '1-2' YEAR TO MONTH AS i, x AS i FROM a.b.c WHERE x = 1") as batches:
        [batch] = batches
    assert batch.schema.names == ["i", "i"]
    assert [column.to_pylist() for column in batch.columns] == [["INTERVAL '1-2' YEAR TO MONTH"], [1]]


def test_nothing_that_spark_alone_reads_can_change_anything(lake: Lake, spark: SparkRuntime) -> None:
    """Without a tree, a statement is first analysed as a subquery, where Spark accepts nothing but a query."""
    from crannog.engine.sql import statement as module

    text = "FROM a.b.c |> SELECT x"
    lake.sql(text)
    parsed = module.parse(text, LONGEST)
    assert parsed.tree is None
    spark.session().sql("CREATE TEMPORARY VIEW other_query AS SELECT 'secret' AS s")
    try:
        for leak in (
            "SELECT s FROM other_query",
            "FROM other_query |> SELECT s",
            "SELECT s FROM global_temp.other_query",
        ):
            with pytest.raises(NotFound):
                lake.sql(leak)
    finally:
        spark.session().catalog.dropTempView("other_query")


def test_the_catalogue_answers_without_spark(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake.operations.warehouse, "spark", lambda: pytest.fail("Spark was asked"))
    assert lake.sql("SHOW TABLES").rows() == [{"namespace": "a.b", "tableName": "c", "isTemporary": False}]
    assert lake.sql("show tables in A.B like 'c*'").row_count == 1
    assert lake.sql("SHOW TABLES IN a.b 'd|e'").row_count == 0
    assert lake.sql("DESCRIBE TABLE EXTENDED A.b.C").rows()[0] == {
        "col_name": "x",
        "data_type": "bigint",
        "comment": None,
    }
    assert lake.sql("-- all\nSHOW COLUMNS FROM a.b.c").rows()[0] == {"col_name": "x"}
    assert lake.sql("EXPLAIN FORMATTED SELECT x FROM a.b.c").rows()[0]["plan"].startswith("local: ")
    with lake.stream("DESC a.b.c") as batches:
        assert sum(batch.num_rows for batch in batches) == 3
    for wrong in ("SHOW", "SHOW PARTITIONS a.b.c", "DESCRIBE a.b.c x", "EXPLAIN", "SHOW TABLES IN", "DESCRIBE 'x'"):
        with pytest.raises(CallerError, match="the commands are"):
            lake.sql(wrong)
    with pytest.raises(NotFound):
        lake.sql("DESCRIBE a.b.nosuch")
