"""SQL and the cache from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from crannog.spark.session import SparkRuntime
from test_cli import ORDERS, Shell, shell

__all__ = ["shell"]


def test_an_answer_for_people_scripts_and_spreadsheets(shell: Shell) -> None:
    shell.with_rows()
    text = f"SELECT order_id, quantity FROM {ORDERS} ORDER BY quantity DESC"
    shown = shell("sql", text)
    assert shown.code == 0
    assert shown.out.splitlines()[:4] == [
        "order_id  quantity",
        "o-2       2       ",
        "o-1       1       ",
        "o-0       0       ",
    ]
    assert "3 rows in" in shown.out
    assert "by local" in shown.out
    answer = shell("sql", text, "--json").json
    assert answer["columns"] == [{"name": "order_id", "type": "string"}, {"name": "quantity", "type": "bigint"}]
    assert answer["rows"] == [["o-2", 2], ["o-1", 1], ["o-0", 0]]
    assert (answer["row_count"], answer["truncated"], answer["engine"]) == (3, False, "local")
    cut = shell("sql", "-", "--json", "--max-rows", "1", stdin=text).json
    assert (cut["rows"], cut["truncated"]) == ([["o-2", 2]], True)
    assert "use --max-rows to see them" in " ".join(shell("sql", text, "--max-rows", "1").out.split())


def test_csv_goes_to_standard_output(tmp_path: Path, shell: Shell) -> None:
    shell.with_rows()
    program = str(Path(sys.executable).parent / "crannog")
    command = [
        program,
        "--warehouse",
        str(shell.warehouse),
        "sql",
        f"SELECT order_id FROM {ORDERS} ORDER BY 1",
        "--csv",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == '"order_id"\n"o-0"\n"o-1"\n"o-2"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("DROP TABLE x", "only SELECT"),
        ("SELECT * FROM a.b.nosuch", "there is no table a.b.nosuch"),
        ("SELECT (1", "cannot read"),
        ("", "empty"),
    ],
)
def test_a_wrong_statement_is_one_line_and_exit_code_2(shell: Shell, text: str, said: str) -> None:
    shell.with_rows()
    wrong = shell("sql", text)
    assert wrong.code == 2
    assert said in wrong.error


def test_explain_and_analyze(shell: Shell) -> None:
    shell.with_rows()
    plan = shell("sql", f"SELECT quantity FROM {ORDERS} WHERE order_id = 'o-1'", "--explain", "--json").json
    assert (plan["engine"], plan["tables"][0]["staged_rows"]) == ("local", 3)
    assert "engine: local" in shell("sql", f"SELECT quantity FROM {ORDERS}", "--analyze").out


def test_spark_answers_what_has_no_rule(shell: Shell, spark: SparkRuntime) -> None:
    shell.with_rows()
    answer = shell("sql", f"SELECT sort_array(collect_list(order_id)) AS ids FROM {ORDERS}", "--json").json
    assert (answer["engine"], answer["rows"]) == ("spark", [[["o-0", "o-1", "o-2"]]])


def test_the_cache_shows_what_a_table_takes(shell: Shell) -> None:
    shell.with_rows()
    held = shell("cache", "pin", ORDERS, "--json").json
    assert (held["name"], held["rows"], held["state"]) == (ORDERS, 3, "pinned")
    assert "Held until this command ends" in shell("cache", "pin", ORDERS).out
    assert shell("cache", "stats", "--json").json["tables"] == []
    assert json.loads(shell("cache", "evict", ORDERS, "--json").out) == {"name": ORDERS, "evicted": False}
    assert shell("cache", "pin", "a.b.nosuch").code == 2
