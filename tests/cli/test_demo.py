"""The demo really runs, in a process and with a Spark of its own, and every claim it makes holds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

import crannog
from crannog.tour.shared import Notes, Printed
from crannog.tour.steps import STEPS, files_with

PROGRAM = str(Path(sys.executable).parent / "crannog")


def test_the_tour_holds_what_it_says(tmp_path: Path) -> None:
    done = subprocess.run(
        [PROGRAM, "demo", "--json", "--keep", str(tmp_path / "kept")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "CRANNOG_SPARK_MEMORY_MB": "1024"},
        check=False,
    )
    assert done.returncode == 0, done.stderr or done.stdout
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert report["ok"]
    assert report["error"] is None
    assert [step["step"] for step in report["steps"]] == [step.__name__ for _, step in STEPS]
    assert all(check["ok"] for step in report["steps"] for check in step["checks"])
    figures = {name: value for step in report["steps"] for name, value in step["figures"].items()}
    assert 0 < figures["append_1_p50_ms"] < 1000
    assert figures["group_commit_per_s"] > 10
    assert figures["rows_delta-rs"] == figures["rows_Polars"] == figures["rows_delta-spark"] == 19_998
    assert figures["files_with_the_id_before"] > 0
    assert figures["receipt"]["rows_erased"] == 1
    with crannog.connect(str(tmp_path / "kept")) as lake:
        assert {
            "crannog.builds.build_events",
            "crannog.traces.spans",
            "ops.plant.readings",
            "shop.eu.orders",
        } <= set(lake.tables())
        assert lake.table("shop.eu.orders").count() == 21_997
        assert lake.table("crannog.traces.spans").count() == 9_995


def test_a_claim_that_does_not_hold_is_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from crannog.cli import main
    from crannog.tour import steps

    def wrong(_tour: object, note: Notes) -> None:
        note.figure("n", 1, "number", "one")
        note.check("one is two", False)

    monkeypatch.setattr(steps, "STEPS", (("Sums", wrong),))
    for arguments, words in ((["demo"], "✗ one is two"), (["demo", "--json"], '"ok": false')):
        monkeypatch.setattr("sys.argv", ["crannog", *arguments])
        with pytest.raises(SystemExit) as ended:
            main.run()
        assert ended.value.code == 1
        assert words in capsys.readouterr().out


def test_a_step_that_fails_ends_the_tour(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from crannog.cli import main
    from crannog.tour import steps

    def failing(_tour: object, _note: Notes) -> None:
        raise crannog.Unavailable("Spark did not start")

    monkeypatch.setattr(steps, "STEPS", (("First", failing), ("Second", failing)))
    monkeypatch.setattr("sys.argv", ["crannog", "demo", "--json"])
    with pytest.raises(SystemExit) as ended:
        main.run()
    assert ended.value.code == 5
    out, err = capsys.readouterr()
    assert err == "crannog: Spark did not start\n"
    assert [step["error"] for step in json.loads(out)["steps"]] == ["Spark did not start"]


def test_what_a_person_sees_fits_the_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    audience = Printed()
    audience.welcome(tmp_path, kept=False)
    with audience.step(1, "A step"), Notes("a", "A step", audience) as note:
        note.figure("n", 1, "ops.plant.readings", "a figure " * 20)
        note.check("a claim " * 20, True)
        note.exhibit(lambda: print("exhibit"))
    audience.farewell(ok=True, seconds=1.0, kept="folder")
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "README.md" in out
    assert "ARCHITECTURE.md" in out


def test_the_search_looks_inside_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"id": [f"id-{number:05}" for number in range(5_000)], "n": range(5_000)})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd", use_dictionary=False)
    nested = pa.table({"add": [{"stats": '{"min": "id-00777"}'}] * 1_000})
    pq.write_table(nested, tmp_path / "b.parquet", compression="zstd", write_statistics=False)
    (tmp_path / "c.json").write_text("id-00777")
    (tmp_path / "d.json").write_text("id-00778")
    assert [path.name for path in files_with(tmp_path, "id-00777")] == ["a.parquet", "b.parquet", "c.json"]
    assert files_with(tmp_path, "id-99999") == []


def test_the_demo_serves_a_warehouse_worth_looking_at(tmp_path: Path) -> None:
    """Spans and builds go on while it serves, and Ctrl-C ends it."""
    env = {**os.environ, "CRANNOG_SPARK_AT_START": "false", "CRANNOG_PORT": "0"}
    process = subprocess.Popen([PROGRAM, "demo", "--serve"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        url = next(line for line in process.stdout if line.startswith("look at it")).split()[-1]
        with crannog.connect(url) as lake:
            assert {"shop.sales.orders", "ops.warehouse.readings"} <= set(lake.tables())
            assert {"web", "payments", "assistant"} <= set(lake.traces.services())
            before = lake.table("crannog.traces.spans").count()
            ends = time.monotonic() + 20
            while lake.table("crannog.traces.spans").count() == before and time.monotonic() < ends:
                time.sleep(0.2)
            assert lake.table("crannog.traces.spans").count() > before
        with httpx.Client(base_url=url) as client:
            statuses = client.get("/api/v1/builds/activity").json()["builds_by_status"]
        assert {"BUILD_REQUEST_EXECUTING", "BUILD_REQUEST_COMPLETED", "BUILD_REQUEST_FAILED"} <= statuses.keys()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
