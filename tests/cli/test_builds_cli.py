"""`crannog builds`: the same answers as the Python interface, in words and in JSON."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from build_samples import partition, request, whole_build
from crannog.builds import BuildRequestStatus, PartitionStatus, open_log, plain
from crannog.cli.builds_log import duration
from crannog.cli.main import app
from crannog.errors import CallerError, NotFound, Refused

Run = Callable[..., Result]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = f"sqlite:///{tmp_path}/log.db"
    with open_log(uri) as log:
        log.append_events(whole_build("b1", ["p1", "p2"], at=1_700_000_000, sources=["raw"]))
        log.append_events(whole_build("b2", ["p1"], at=1_700_000_100, failed=True))
    return uri


@pytest.fixture
def run(uri: str) -> Run:
    def call(*arguments: str, stdin: str = "") -> Result:
        found = CliRunner().invoke(app, ["builds", "--log", uri, *arguments], input=stdin, env={"COLUMNS": "200"})
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return found

    return call


def as_json(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_reading_commands_say_what_python_says(run: Run, uri: str) -> None:
    with open_log(uri) as log:
        assert as_json(run("list", "--json")) == plain(log.list_build_requests())
        assert as_json(run("list", "--status", "failed", "--json"))["total"] == 1
        assert as_json(run("jobs", "--json")) == plain(log.list_jobs())
        assert as_json(run("partitions", "--json")) == plain(log.list_recent_partitions())
        assert as_json(run("lineage", "p1", "--json")) == plain(log.get_lineage("p1"))
        assert as_json(run("lineage", "raw", "--down", "--json"))["partitions"] == ["p1", "p2"]
        assert as_json(run("show", "b1", "--json"))["events"] == plain(log.get_build_request_events("b1"))
        stats = as_json(run("stats", "--json"))
        assert (stats["events"], stats["activity"]["total_builds_count"]) == (22, 2)
        assert as_json(run("compare", "b1", "b2", "--json"))["same_partitions"] == 0
        assert as_json(run("graph", "b1", "--json"))["mermaid"].startswith("flowchart")
        first = next(log.all_events())
        assert as_json(run("event", first.event_id, "--json")) == first.as_dict()
        assert as_json(run("runs", "--json")) == plain(log.list_job_runs())
        assert as_json(run("runs", "--build", "b1", "--job", "//job", "--json")) == plain(
            log.list_job_runs("b1", "//job")
        )
        assert (
            as_json(run("manifests", "--json")) == log.get_manifests() == [{"outputs": ["p1", "p2"], "inputs": ["raw"]}]
        )
        assert as_json(run("manifests", "--build", "b2", "--json")) == []
        one = as_json(run("partition", "p1", "--json"))
        assert (one["status"], one["active_builds"]) == (plain(log.get_latest_partition_status("p1")), [])
        assert one["events"] == plain(log.list_events(limit=20, descending=True, partition_refs=["p1"]).events)


def test_the_log_as_it_stood_earlier(run: Run, uri: str) -> None:
    with open_log(uri) as log, log.as_of(5) as then:
        assert as_json(run("--as-of", "5", "list", "--json")) == plain(then.list_build_requests())
        assert then.list_build_requests().builds[0].status.name == "EXECUTING"
        assert run("--as-of", "5", "tail", "-n", "1").stdout.startswith("       5  ")
    with pytest.raises(Refused, match="is read-only: it shows an earlier state"):
        run("--as-of", "5", "import", stdin=request("b9", BuildRequestStatus.RECEIVED).as_json())


def test_words_for_people(run: Run) -> None:
    assert [line.split()[:2] for line in run("list").stdout.splitlines()[1:]] == [["b2", "failed"], ["b1", "completed"]]
    assert "1 more of 2" in run("list", "-n", "1").stdout
    shown = run("show", "b1").stdout
    for words in ("b1 is completed", "p1, p2", "available", "//job", "job //job b1-run running"):
        assert words in shown
    assert "22, last index 22" in run("stats").stdout
    assert "50%" in run("jobs").stdout
    assert run("graph", "b2").stdout.startswith("flowchart LR\n")
    assert "p2" in run("partitions").stdout
    assert "b1-run" in run("runs", "--build", "b1").stdout
    assert '"outputs": ["p1", "p2"]' in run("manifests").stdout
    assert '"build_request_id": "b1"' in run("event", "b1:RECEIVED").stdout
    assert [line.split() for line in run("partition", "p1").stdout.splitlines()[1:2]] == [["status", "failed"]]
    for thing in ("event", "partition"):
        with pytest.raises(NotFound, match=f"there is no {thing} nothing"):
            run(thing, "nothing")
    assert "made" in run("lineage", "p1").stdout
    assert "The log does not show what nothing was made from" in run("lineage", "nothing").stdout
    assert "completed, failed" in run("compare", "b1", "b2").stdout


def test_tail_and_filters(run: Run) -> None:
    lines = run("tail", "-n", "3").stdout.splitlines()
    assert [int(line.split()[0]) for line in lines] == [20, 21, 22]
    lines = run("tail", "--since", "0", "-n", "2", "--json").stdout.splitlines()
    assert [json.loads(line)["index"] for line in lines] == [1, 2]
    lines = run("tail", "--build", "b2", "--kind", "partition", "--json").stdout.splitlines()
    assert [json.loads(line)["event_id"] for line in lines] == ["b2:p1:BUILDING", "b2:p1:FAILED"]
    assert len(run("tail", "--partition", "p[2]", "-n", "50").stdout.splitlines()) == 9
    assert len(run("tail", "--run", "b2-run").stdout.splitlines()) == 3
    # b1 began at 22:13:20 and took 13 s, b2 began 100 s later.
    assert len(run("tail", "--from", "2023-11-14T22:14:00", "-n", "50").stdout.splitlines()) == 10
    assert len(run("export", "--to", "2023-11-14T23:13:21+01:00").stdout.splitlines()) == 2


def test_wait_tells_how_it_ended(run: Run) -> None:
    assert run("wait", "b1").exit_code == 0
    assert run("wait", "b2").exit_code == 1


def test_export_import_migrate(run: Run, uri: str, tmp_path: Path) -> None:
    exported = run("export").stdout
    assert len(exported.splitlines()) == 22
    assert run("export", str(tmp_path / "events.jsonl"), "--kind", "job").exit_code == 0
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 6
    other = f"sqlite:///{tmp_path}/other.db"
    result = CliRunner().invoke(app, ["builds", "--log", other, "import", "-", "--json"], input=exported)
    assert json.loads(result.stdout) == {"lines": 22, "kept": 22, "known_before": 0}
    report = as_json(run("migrate", f"delta://{tmp_path}/warehouse", "--json"))
    assert (report["events"], report["same_indexes"], report["verified"]) == (22, True, True)
    with open_log(f"delta://{tmp_path}/warehouse") as copied, open_log(uri) as log:
        assert list(copied.all_events()) == list(log.all_events())
    with pytest.raises(CallerError, match="is the log itself"):
        run("migrate", uri)


def test_prune_and_wipe_ask_first(run: Run, uri: str) -> None:
    assert as_json(run("prune", "--keep", "3", "--dry-run", "--json"))["removed"] == 18
    with pytest.raises(Refused, match="confirm with --yes"):
        run("prune", "--keep", "3")
    with open_log(uri) as log:
        assert log.stats().events == 22
    assert "18 events removed; 4 of 22 remain" in run("prune", "--keep", "3", "--yes").stdout
    assert "3 events of b2 removed" in run("wipe", "b2", "--yes").stdout
    with pytest.raises(NotFound, match="no build b2"):
        run("wipe", "b2", "--yes")
    assert "no problems" in run("check").stdout
    assert run("compact").exit_code == 0


def test_ages(run: Run, uri: str) -> None:
    assert as_json(run("prune", "--older-than", "2023-11-14", "--dry-run", "--json"))["removed"] == 0
    assert as_json(run("prune", "--older-than", "30d", "--dry-run", "--json"))["removed"] == 20
    with pytest.raises(CallerError, match="write an age like 30d"):
        run("prune", "--older-than", "soon")


def test_a_check_that_finds_something_exits_with_1(run: Run, uri: str) -> None:
    import sqlite3

    with sqlite3.connect(uri.removeprefix("sqlite:///")) as raw:
        raw.execute("DELETE FROM partitions")
    raw.close()
    result = run("check")
    assert result.exit_code == 1
    assert "table partitions lacks rows" in result.stdout


def test_the_log_of_the_warehouse_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["--warehouse", str(warehouse), "builds", *arguments])

    assert isinstance(call("list").exception, NotFound)
    assert not list(warehouse.iterdir())
    with open_log(f"delta://{warehouse}") as log:
        log.append_events([request("b", BuildRequestStatus.RECEIVED), partition("b", "p", PartitionStatus.BUILDING)])
    assert json.loads(call("list", "--json").stdout)["total"] == 1
    other = f"sqlite:///{tmp_path}/other.db"
    open_log(other).close()
    monkeypatch.setenv("CRANNOG_BUILD_LOG", other)
    assert json.loads(call("list", "--json").stdout)["total"] == 0


def test_tail_with_f_prints_events_as_they_come(uri: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "crannog.cli.main", "builds", "--log", uri, "tail", "-f", "-n", "1", "--json"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        first = json.loads(child.stdout.readline())
        with open_log(uri) as log:
            assert first["index"] == log.head()
            log.append_event(partition("late", "p9", PartitionStatus.BUILDING))
            second = json.loads(child.stdout.readline())
            assert (second["index"], second["build_request_id"]) == (log.head(), "late")
        child.send_signal(signal.SIGINT)
        assert child.wait(20) in (0, 130)
        assert "Traceback" not in child.communicate()[1]
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize(
    ("nanoseconds", "said"),
    [
        (None, "–"),
        (0, "0 s"),
        (94_441, "94.4 µs"),
        (-2_500_000, "-2.5 ms"),
        (999_999_999, "1 s"),
        (12_340_000_000, "12.3 s"),
    ],
)
def test_lengths_of_time_read_well(nanoseconds: int | None, said: str) -> None:
    assert duration(nanoseconds) == said
