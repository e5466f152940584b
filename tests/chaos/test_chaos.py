"""Chaos runs of three lengths: a few kills by default, fifty with a server in the slow tests, and `make chaos` for hours.

The oracle itself is tested first: it must notice everything that it is there for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chaos_acts import Act, act_of, event_ids, keys_of, row_ids, text_of
from chaos_files import tokens_in
from chaos_journal import History, Journal
from chaos_oracle import compare
from chaos_plan import life_of
from crannog.storage import failpoints

HERE = Path(__file__).parent


def history(*acts: Act, acknowledged: set[int]) -> History:
    answers = {act.turn: {"indexes": [1, 2]} if act.kind == "build" else {} for act in acts if act.turn in acknowledged}
    return History("c0", {act.turn: act for act in acts}, answers)


def rows(act: Act) -> list[tuple[str, int, str]]:
    return [(name, act.turn, text_of(name, act.turn)) for name in row_ids(act)]


GROUP = "group-c0-0-0-"
APPEND, UPSERT, LATER = Act("c0", 0, "append", 2), Act("c0", 1, "upsert", 3, GROUP), Act("c0", 2, "upsert", 3, GROUP)
BUILD = Act("c0", 3, "build", 2)
EVENTS = list(enumerate(event_ids(BUILD), 1))
ALL = history(APPEND, UPSERT, LATER, BUILD, acknowledged={0, 1, 2, 3})
GOOD: dict[str, list[Any]] = {"rows": rows(APPEND), "keyed": rows(LATER), "spans": [], "builds": EVENTS}


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("lost", {"rows": rows(APPEND)[:1]}),
        ("lost", {"keyed": rows(UPSERT)}),
        ("lost", {"keyed": []}),
        ("lost", {"builds": []}),
        ("doubled", {"rows": rows(APPEND) * 2}),
        ("doubled", {"keyed": rows(LATER) + rows(LATER)[:1]}),
        ("torn", {"keyed": rows(LATER)[:1] + rows(UPSERT)[1:]}),
        ("wrong", {"rows": [*rows(APPEND), ("row-c9.0-0", 0, text_of("row-c9.0-0", 0))]}),
        ("wrong", {"rows": [(name, turn, "other") for name, turn, _ in rows(APPEND)]}),
        ("wrong", {"builds": [(index + 1, name) for index, name in EVENTS]}),
    ],
)
def test_the_oracle_notices(kind: str, changed: dict[str, list[Any]]) -> None:
    assert compare([ALL], GOOD).all() == {}
    assert kind in compare([ALL], {**GOOD, **changed}).all()


def test_the_oracle_allows_an_act_in_doubt_whole_or_not_at_all() -> None:
    doubtful = history(APPEND, UPSERT, LATER, BUILD, acknowledged={1, 3})
    for kept in ([], rows(APPEND)):
        for keyed in (rows(UPSERT), rows(LATER)):
            assert compare([doubtful], {**GOOD, "rows": kept, "keyed": keyed}).all() == {}
    assert list(compare([doubtful], {**GOOD, "rows": rows(APPEND)[:1]}).all()) == ["torn"]
    assert list(compare([doubtful], {**GOOD, "keyed": []}).all()) == ["lost"]


def test_the_names_of_groups_are_found_in_compressed_files(tmp_path: Path) -> None:
    table = pa.table({"id": keys_of(GROUP) * 1_000, "n": list(range(3_000))})
    pq.write_table(table, tmp_path / "a", compression="zstd")
    assert GROUP in tokens_in((tmp_path / "a").read_bytes())
    assert tokens_in(b'{"stats": "group-c1-2-3-0"}') == {"group-c1-2-3-"}


def test_decisions_follow_from_the_seed() -> None:
    plans = [life_of("7", f"c{number % 3}", number) for number in range(600)]
    assert plans == [life_of("7", f"c{number % 3}", number) for number in range(600)]
    assert {plan["failpoint"] for plan in plans if "failpoint" in plan} == set(failpoints.ALL)
    assert all(any(name in plan for plan in plans) for name in ("storage", "clock", "stop_after_s", "pause_at"))
    assert act_of("7", "c0", 5, {}) == act_of("7", "c0", 5, {}) != act_of("8", "c0", 5, {})


def test_a_journal_is_read_step_by_step(tmp_path: Path) -> None:
    journal, read = Journal(tmp_path / "j"), History("c0")
    journal.write(**UPSERT.as_dict())
    assert read.read(tmp_path / "j").in_doubt == [UPSERT]
    journal.write(ack=UPSERT.turn, sequence=4)
    journal.write(**Act("c0", 2, "erase", 3, GROUP).as_dict())
    assert [act.kind for act in read.read(tmp_path / "j").in_doubt] == ["erase"]
    assert (read.next_turn, read.generations) == (3, {0: 1})


def run(tmp_path: Path, *options: str) -> dict[str, Any]:
    """Run a chaos run and return its report; fails with what it printed if it found anything."""
    support = [str(HERE), str(HERE.parent / "support"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "chaos_run", "--report", str(tmp_path / "r"), "--work", str(tmp_path / "w"), *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, support))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-4_000:]
    return dict(json.loads((tmp_path / "r").read_text()))


def test_a_few_kills(tmp_path: Path) -> None:
    report = run(tmp_path, "--kills", "6", "--no-server", "--clients", "2", "--round", "6")
    assert report["kills_in_all"] >= 6
    assert report["checks"] >= 2
    assert report["acknowledged"]["append"] > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("place", ["folder", "bucket"])
def test_fifty_kills_beside_a_server(tmp_path: Path, place: str) -> None:
    report = run(tmp_path, "--kills", "50", "--place", place, "--round", "25", "--event-every", "6", "--patience", "2")
    assert report["kills_in_all"] >= 50
    assert any(kind.endswith("over HTTP") for kind in report["acknowledged"])
