"""A log of a million events: it opens, answers, follows and prunes, in memory that does not grow with what is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def measured(uri: str, count: int) -> dict[str, Any]:
    child = subprocess.run(
        [sys.executable, str(Path(__file__).parents[1] / "support" / "build_million.py"), uri, str(count)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")},
    )
    assert child.returncode == 0, child.stderr
    found: dict[str, Any] = json.loads(child.stdout)
    return found


def check(found: dict[str, Any], count: int) -> None:
    assert (found["head"], found["last"]) == (count, f"e{count - 1}")
    assert found["of_a_build"] == 10
    assert found["followed"] == count
    # Older than the newest nine tenths, except what tells a partition's latest status.
    assert found["pruned"] + found["kept"] == count
    assert found["kept"] >= count - count // 10


@pytest.mark.parametrize("kind", ["sqlite", "delta"])
def test_the_short_of_it(kind: str, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/log.db" if kind == "sqlite" else f"delta://{tmp_path}/warehouse"
    check(measured(uri, 4_000), 4_000)


@pytest.mark.slow
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize(("kind", "most_mib"), [("sqlite", 500), ("delta", 2_000)])
def test_a_million_events(kind: str, most_mib: int, tmp_path: Path, record_property: Any) -> None:
    uri = f"sqlite:///{tmp_path}/log.db" if kind == "sqlite" else f"delta://{tmp_path}/warehouse"
    found = measured(uri, 1_000_000)
    check(found, 1_000_000)
    record_property(f"{kind} with a million events", found)
    print(kind, found)
    # Until a fold, a Delta log's staged events are held in memory, as columns.
    assert found["memory_mib"] < most_mib
