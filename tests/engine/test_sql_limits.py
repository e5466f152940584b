"""What a statement may cost before it runs: its tokens, its tree, its SQL for DuckDB, and what is kept of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from crannog.embedded import EmbeddedLake as Lake
from crannog.engine.sql import statement as statements
from crannog.engine.sql.bounded_cache import BoundedCache
from crannog.engine.sql.query_plan import QueryPlan
from crannog.engine.sql.statement import parse
from crannog.engine.sql.tokens import DIALECT, TooManySteps, tokenize
from crannog.errors import CallerError, Refused
from crannog.settings import Settings

MIB = 1024**2


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder: Path = tmp_path_factory.mktemp("limits")
    with Lake(str(folder), settings=Settings()) as made:
        made.create_table("a.b.c", pa.schema([("n", pa.int64()), ("s", pa.string())])).append([{"n": 1, "s": "x"}])
        yield made


def planned(lake: Lake, text: str) -> QueryPlan:
    return lake.operations.queries._plan(parse(text, MIB))


def test_a_long_list_is_left_to_spark_without_a_tree(lake: Lake) -> None:
    text = f"SELECT n FROM a.b.c WHERE n IN ({', '.join(map(str, range(100_000, 155_000)))})"
    began = time.process_time()
    plan = planned(lake, text)
    assert time.process_time() - began < 5
    assert plan.unsupported is not None
    assert "more than 100,000 words" in plan.unsupported.reason
    assert [ref.written for ref in plan.statement.tables] == ["a.b.c"]
    assert plan.statement.for_spark({ref.start: "v" for ref in plan.statement.tables}).endswith(", 154999)")


def test_too_many_tokens_are_refused_before_they_are_read() -> None:
    began = time.process_time()
    with pytest.raises(Refused, match=r"more than 500,000 words.*put the values into a table"):
        tokenize("SELECT " + "1," * 400_000 + "1")
    assert time.process_time() - began < 1
    assert len(tokenize(f"SELECT '{'word, ' * 200_000}'")) == 2, "a text is one token"


def test_a_parser_that_goes_back_again_and_again_is_stopped() -> None:
    parser = DIALECT.parser()
    parser._tokens_size = 0
    with pytest.raises(TooManySteps):
        while True:
            parser._advance(0)


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT {'lower(' * 25}s{')' * 25} FROM a.b.c",
        f"SELECT {'pmod(' * 25}n{', 7)' * 25} FROM a.b.c",
        f"SELECT n + n AS c0, {', '.join(f'c{i} + c{i} AS c{i + 1}' for i in range(60))} FROM a.b.c",
    ],
)
def test_sql_that_grows_exponentially_is_left_to_spark(lake: Lake, text: str) -> None:
    began = time.process_time()
    plan = planned(lake, text)
    assert plan.unsupported is not None
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("repeat(repeat(s, 1000), 1000)", "repeat of a computed text"),
        ("replace(replace(s, 'a', 'aaaaaaaaaa'), 'a', 'aaaaaaaaaa')", "replace of a computed text"),
        ("replace(repeat(s, 10), 'a', s)", "replace of a computed text"),
    ],
)
def test_functions_that_multiply_text_are_not_nested_in_duckdb(lake: Lake, text: str, reason: str) -> None:
    plan = planned(lake, f"SELECT {text} FROM a.b.c")
    assert plan.unsupported is not None
    assert plan.unsupported.reason == reason


@pytest.mark.parametrize(
    "text",
    [
        "repeat('x', 1000000000)",
        "repeat(upper(repeat('x', 10000)), 10000)",
        "length(repeat(replace(replace('aaaaaaaaaa', 'a', 'aaaaaaaaaaaaaaaaaaaa'), 'a', 'aaaaaaaaaaaaaaaaaaaa'), 100000))",
        "space(999999999)",
        "lpad(s, 999999999, 'x')",
        "array_repeat(repeat(s, 100000), 100000)",
        "size(sequence(-1, 1000000000))",
        "format_string('%999999999d', 1)",
    ],
)
def test_products_that_stand_in_the_statement_are_refused(text: str) -> None:
    with pytest.raises(Refused, match="the maximum is 67,108,864"):
        parse(f"SELECT {text} FROM a.b.c", MIB)


def test_products_that_are_small_or_unknown_are_not_refused() -> None:
    for text in (
        "repeat(s, 1000000)",
        "repeat(s, n)",
        "concat(repeat(s, 60000000), repeat(s, 60000000))",
        "lpad(repeat(s, 20000), 30000, 'x')",
        "sequence(0, 1000000000, 1000)",
        "format_string('%05d of 100000000000', 1)",
        "CASE WHEN repeat(s, 3) = 'x' THEN 99999999999 END",
    ):
        parse(f"SELECT {text} FROM a.b.c", MIB)


def test_a_product_of_text_is_bounded_in_duckdb(lake: Lake) -> None:
    assert lake.sql("SELECT repeat(s, 10000) AS r FROM a.b.c", engine="local").rows() == [{"r": "x" * 10_000}]
    assert lake.sql("SELECT replace(s, 'x', 'yy') AS r FROM a.b.c", engine="local").rows() == [{"r": "yy"}]
    assert lake.sql("SELECT replace(replace(s, 'x', 'y'), 'y', '') AS r FROM a.b.c", engine="local").rows() == [
        {"r": ""}
    ]
    with pytest.raises(CallerError, match="a long text to repeat"):
        lake.sql("SELECT length(repeat('12345678', 10000)) AS r FROM a.b.c", engine="local")


def test_the_cache_of_statements_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    cache: BoundedCache[tuple[str, int], statements.Statement] = BoundedCache(4 * MIB)
    monkeypatch.setattr(statements, "_parsed", cache)
    for number in range(60):
        parse(f"SELECT {', '.join(f'c{number}_{place}' for place in range(300))} FROM t", MIB)
        assert cache.bytes <= 4 * MIB
    assert 1 <= len(cache) < 60
    newest = parse(f"SELECT {', '.join(f'c59_{place}' for place in range(300))} FROM t", MIB)
    assert newest is parse(newest.text, MIB)
    kept = len(cache)
    parse(f"SELECT '{'x' * 500_000}'", MIB)
    assert len(cache) == kept, "what would take a quarter of it is not kept"
