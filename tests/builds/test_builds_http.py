"""The build log behind a server: the routes, the command line through it, and following it as a stream."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from build_samples import one_of_each, partition, request, whole_build
from build_server import BuildServer, build_server  # noqa: F401
from crannog.builds import (
    BuildRequestStatus,
    EventLog,
    PartitionStatus,
    check,
    job_graph,
    mermaid,
    open_log,
    plain,
    prune,
    wipe_build,
)
from crannog.cli.main import app
from crannog.errors import BadRows, CallerError, Forbidden, Unavailable
from servers import made_token, serving

B, P = BuildRequestStatus, PartitionStatus


@pytest.fixture
def kept(tmp_path: Path, build_server: BuildServer) -> Iterator[EventLog]:  # noqa: F811
    """The log itself, as the server's own machine has it."""
    uri = f"sqlite:///{tmp_path}/kept.db"
    with open_log(uri) as log:
        log.append_events(whole_build("b1", ["p/1", "p 2"], at=1_700_000_000, sources=["raw"]))
        log.append_events(whole_build("b2", ["p/1"], at=1_700_000_100, failed=True))
        log.append_events(one_of_each("b3"))
        build_server.serve(uri)
        yield log


@pytest.fixture
def http(build_server: BuildServer) -> Iterator[httpx.Client]:  # noqa: F811
    with httpx.Client(base_url=f"{build_server.url}/api/v1", timeout=30) as client:
        yield client


def test_each_route_says_what_python_says(kept: EventLog, http: httpx.Client) -> None:
    queries: dict[str, tuple[dict[str, Any], Any]] = {
        "": ({"status": "FAILED", "limit": 1}, kept.list_build_requests("FAILED", 1)),
        "/build": ({"build_request_id": "b1"}, kept.get_build("b1")),
        "/build/partitions": ({"build_request_id": "b1"}, kept.get_build_partitions("b1")),
        "/build/graph": ({"build_request_id": "b3"}, {"mermaid": mermaid(kept, "b3"), **plain(job_graph(kept, "b3"))}),
        "/events": ({"partition_glob": ["p/*"], "kind": ["partition", "job"], "limit": 3, "descending": True},
                    kept.list_events(None, 3, True, partition_globs=["p/*"], kinds=["partition", "job"])),
        "/event": ({"event_id": "b3-2"}, kept.get_event("b3-2")),
        "/head": ({}, {"index": kept.head()}),
        "/partitions": ({"limit": 2}, kept.list_recent_partitions(2)),
        "/partitions/status": ({"partition_ref": "p 2"}, kept.get_latest_partition_status("p 2")),
        "/partitions/active": ({"partition_ref": "p/1"}, kept.get_active_builds_for_partition("p/1")),
        "/lineage": ({"partition_ref": "p/1"}, kept.get_lineage("p/1")),
        "/manifests": ({"build_request_id": "b3"}, kept.get_manifests("b3")),
        "/jobs": ({}, kept.list_jobs()),
        "/runs": ({"build_request_id": "b1"}, kept.list_job_runs("b1")),
        "/activity": ({"recent": 2}, kept.get_activity_summary(2)),
        "/prunable": ({"keep_events": 5, "limit": 7}, {"indexes": kept.list_prunable(None, 5, 7)}),
    }  # fmt: skip
    for path, (params, expected) in queries.items():
        answer = http.get(f"/builds{path}", params=params)
        assert answer.status_code == 200, (path, answer.text)
        assert json.loads(answer.text) == plain(expected), path
    compared = http.get("/builds/compare", params={"first": "b1", "second": "b2"}).json()
    assert compared["first"]["build_request_id"] == "b1"
    assert http.get("/builds/stats").json()["events"] == kept.stats().events
    assert http.get("/builds/build", params={"build_request_id": "nobody"}).json() is None


def test_every_read_can_be_of_the_past(kept: EventLog, http: httpx.Client) -> None:
    half = kept.head() // 2
    for index in (half, half, 3, 1, kept.head() + 10):
        with kept.as_of(index) as then:
            for path, params, expected in (
                ("", {}, then.list_build_requests()),
                ("/events", {"kind": ["job"]}, then.list_events(kinds=["job"])),
                ("/partitions/status", {"partition_ref": "p/1"}, then.get_latest_partition_status("p/1")),
                ("/head", {}, {"index": then.head()}),
            ):
                answer = http.get(f"/builds{path}", params={**params, "as_of": index})
                assert answer.status_code == 200, answer.text
                assert json.loads(answer.text) == plain(expected), (path, index)
            edges = http.post("/builds/edges", params={"as_of": index}, json={"partition_refs": ["p/1"]})
            assert json.loads(edges.text) == plain(then.list_edges(["p/1"], upstream=True))
    wipe_build(kept, "b1")
    with kept.as_of(half) as then:
        assert json.loads(http.get("/builds", params={"as_of": half}).text) == plain(then.list_build_requests()), (
            "what is wiped is gone from the past"
        )
    for wrong in ("-1", "soon"):
        refused = http.get("/builds/head", params={"as_of": wrong})
        assert (refused.status_code, "as_of" in refused.text) == (400, True)
    too_long = http.get("/builds/head", params={"as_of": 10**9})
    assert too_long.status_code == 413
    assert "as_of" in too_long.json()["error"]["message"]


def test_what_is_wrong_is_told_in_the_one_shape_of_errors(kept: EventLog, http: httpx.Client) -> None:
    wrong: list[tuple[httpx.Response, int, str]] = [
        (http.post("/builds/events", json=[{"event_id": "x"}]), 422, "event 0"),
        (http.post("/builds/events", content=b"{", headers={"Content-Type": "application/json"}), 422, "not JSON"),
        (http.post("/builds/events", content=b"\xff", headers={"Content-Type": "application/json"}), 422, "not UTF-8"),
        (http.post("/builds/events", content=b"a,b", headers={"Content-Type": "text/csv"}), 415, "text/csv"),
        (http.post("/builds/events", json={**one_of_each("b3")[0].as_dict(), "timestamp": 9}), 409, "other content"),
        (http.get("/builds/events", params={"limit": 0}), 400, "limit"),
        (http.get("/builds/events", params={"kind": "none"}), 422, "is not a kind of event"),
        (http.get("/builds/events", params={"since": 2**70}), 400, "index of an event"),
        (http.get("/builds/events", params={"build": "b1"}), 400, "no parameter build"),
        (http.post("/builds/events/query", json={"colour": "red"}), 400, "colour"),
        (http.get("/builds", params={"status": "WELL"}), 422, "WELL"),
        (http.post("/builds/edges", json={"partition_refs": [["p/1"]]}), 400, "list of texts"),
        (http.post("/builds/events/remove", json={"indexes": "12"}), 400, "index is a whole number"),
        (http.post("/builds/prune", json={}), 400, "age or a number"),
        (http.get("/builds/compare", params={"first": "b1", "second": "no"}), 404, "no build no"),
    ]
    for answer, status, words in wrong:
        assert answer.status_code == status, answer.text
        assert words in answer.json()["error"]["message"]
    assert kept.head() == kept.stats().events


def test_a_batch_over_http_is_kept_whole_or_not_at_all(kept: EventLog, http: httpx.Client) -> None:
    head = kept.head()
    good, bad = partition("h", "p", P.BUILDING).as_dict(), {"event_id": "bad"}
    assert http.post("/builds/events", json=[good, bad]).status_code == 422
    assert kept.head() == head
    assert http.post("/builds/events", json=good).json() == {"indexes": [head + 1]}
    lines = "\n".join(json.dumps(one) for one in (good, partition("h", "q", P.BUILDING).as_dict()))
    answer = http.post("/builds/events", content=lines.encode(), headers={"Content-Type": "application/x-ndjson"})
    assert answer.json() == {"indexes": [head + 1, head + 2]}


def test_a_stream_follows_the_log_and_says_that_it_lives(kept: EventLog, http: httpx.Client) -> None:
    head = kept.head()
    seen: list[Any] = []
    with http.stream(
        "POST",
        "/builds/events/follow",
        params={"beat_s": 0.05},
        json={"since": head - 1, "partition_refs": ["p/1", "late"]},
    ) as answer:
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        for line in answer.iter_lines():
            seen.append(json.loads(line))
            if seen == [{}]:
                kept.append_event(partition("other", "elsewhere", P.BUILDING))
                kept.append_event(partition("late", "late", P.BUILDING))
            if any(one.get("build_request_id") == "late" for one in seen):
                break
    assert [one["index"] for one in seen if one] == [head + 2]


def test_a_watch_over_http_goes_on_after_the_server_was_away(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    seen: list[int] = []
    stop = threading.Event()
    with serving(warehouse) as server:
        port = int(server.url.rpartition(":")[2])
        with open_log(server.url) as log:
            assert log.append_event(request("b", B.RECEIVED)) == 1
            reader = threading.Thread(
                target=lambda: [seen.append(event.index or 0) for event in log.follow(0, stop=stop)]
            )
            reader.start()
            _until(lambda: seen == [1])
            server.kill()
            with serving(warehouse, port=port):
                assert log.append_event(request("b", B.COMPLETED)) == 2
                _until(lambda: seen == [1, 2])
                stop.set()
                reader.join(30)
    # By default the server keeps the log as a Delta table in its warehouse, where others may open it too.
    with open_log(f"delta://{warehouse}") as log:
        assert [event.index for event in log.all_events()] == [1, 2]
    with pytest.raises(Unavailable, match="no server responds"):
        open_log(f"http://127.0.0.1:{port}")


def _until(holds: Any) -> None:
    for _ in range(3_000):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not happen")


def test_the_command_line_through_a_server_says_the_same(kept: EventLog, build_server: BuildServer) -> None:  # noqa: F811
    def run(*arguments: str) -> str:
        found = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"}, catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found.stdout

    for command in (
        ["list"],
        ["show", "b1"],
        ["jobs"],
        ["partitions"],
        ["lineage", "p/1"],
        ["compare", "b1", "b2"],
        ["graph", "b3"],
        ["tail"],
    ):
        wanted = run("builds", "--log", kept.uri, *command, "--json")
        assert run("builds", "--log", build_server.url, *command, "--json") == wanted
        assert run("--server", build_server.url, "builds", *command, "--json") == wanted
    exported = run("builds", "--log", kept.uri, "export")
    assert run("builds", "--log", build_server.url, "export") == exported
    assert json.loads(run("builds", "--log", build_server.url, "check", "--json"))["ok"]


def test_keeping_a_log_small_through_a_server(kept: EventLog, build_server: BuildServer, http: httpx.Client) -> None:  # noqa: F811
    with open_log(build_server.url) as log:
        dry = prune(log, keep_events=10, dry_run=True)
        assert http.post("/builds/prune", json={"keep_events": 10, "dry_run": True}).json() == plain(
            prune(kept, keep_events=10, dry_run=True)
        )
        assert prune(log, keep_events=10).removed == dry.removed > 0
        assert wipe_build(log, "b3") == 8
        assert check(log).problems == ()
        assert log.get_build("b3") is None
    assert kept.stats().events == dry.events_after - 8
    assert http.post("/builds/wipe", params={"build_request_id": "nobody"}).json() == {"removed": 0}


def test_scopes_say_who_may_write_and_who_may_remove(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    tokens = {name: made_token(warehouse, name, f"{name}:crannog.builds") for name in ("read", "write", "admin")}
    stranger = made_token(warehouse, "stranger", "admin:other")
    with serving(warehouse) as server:
        with open_log(server.url, token=tokens["write"]) as log:
            assert log.append_events(one_of_each()) == list(range(1, 9))
            with pytest.raises(Forbidden, match="may not admin"):
                log.remove_events([1])
        with open_log(server.url, token=tokens["read"]) as log:
            assert len(list(log.all_events())) == 8
            with pytest.raises(Forbidden, match="may not write"):
                log.append_event(request("b", B.RECEIVED))
        with open_log(server.url, token=tokens["admin"]) as log:
            assert log.remove_events([1]) == 1
        with pytest.raises(Forbidden, match="stranger may not read"):
            open_log(server.url, token=stranger)
        with pytest.raises(CallerError, match="requires a token"):
            open_log(server.url)


def test_an_event_is_checked_before_it_is_sent(kept: EventLog, build_server: BuildServer) -> None:  # noqa: F811
    with open_log(build_server.url, check_states=True) as log:
        with pytest.raises(BadRows, match="a log takes BuildEvent values"):
            log.append_events(["no event"])  # type: ignore[list-item]
        log.append_event(request("s", B.FAILED))
        with pytest.raises(CallerError, match="cannot become BUILD_REQUEST_EXECUTING"):
            log.append_event(request("s", B.EXECUTING))
