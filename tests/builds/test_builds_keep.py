"""Keeping a log and working with what it tells: retention, copies, checks, the past, lineage, graphs, comparison."""

from __future__ import annotations

import io
import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from build_logs import Place, place_of
from build_samples import job, one_of_each, partition, random_stream, request, whole_build
from crannog.builds import (
    BuildEvent,
    BuildRequestStatus,
    DataDep,
    EventLog,
    JobConfig,
    JobEdge,
    JobGraph,
    JobGraphEvent,
    JobStatus,
    PartitionStatus,
    Task,
    check,
    compare,
    copy,
    export_lines,
    import_lines,
    job_graph,
    mermaid,
    open_log,
    prune,
    stored_graph,
    wipe_build,
)
from crannog.embedded import EmbeddedLake
from crannog.errors import BadRows, CallerError, NotFound, Refused, VerificationFailed
from crannog.settings import Settings
from postgres_server import postgres  # noqa: F401

B, P, J = BuildRequestStatus, PartitionStatus, JobStatus
SECOND = 10**9


@pytest.fixture(params=["sqlite", "delta", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found = place_of(request.param, tmp_path, request.getfixturevalue)
    yield found
    found.close()


@pytest.fixture
def log(place: Place) -> EventLog:
    return place.open()


@pytest.fixture
def memory() -> Iterator[EventLog]:
    with open_log("sqlite::memory:") as log:
        yield log


# -- retention ---------------------------------------------------------------------------------------------------


def test_prune_by_age_keeps_each_partitions_latest_status(log: EventLog) -> None:
    log.append_events(whole_build("old", ["p", "q"], at=0))
    log.append_events(whole_build("new", ["q"], at=1000))
    latest = {ref: log.get_latest_partition_status(ref) for ref in ("p", "q")}
    report = prune(log, before_ns=500 * SECOND, dry_run=True)
    assert (report.events_before, report.removed, report.events_after) == (22, 11, 11)
    assert log.stats().events == 22
    report = prune(log, before_ns=500 * SECOND, batch=4)
    assert (report.removed, report.events_after, report.batches) == (11, 11, 3)
    assert {ref: log.get_latest_partition_status(ref) for ref in ("p", "q")} == latest
    assert [event.event_id for event in log.get_build_request_events("old")] == ["old:p:AVAILABLE"]
    assert log.get_build("old") is None
    assert log.get_active_builds_for_partition("p") == []
    assert prune(log, before_ns=500 * SECOND).removed == 0
    assert log.append_event(request("next", B.RECEIVED)) == 23
    assert check(log).problems == ()


def test_prune_by_count_and_unfinished_builds(memory: EventLog) -> None:
    memory.append_event(request("running", B.EXECUTING, "r", at=1))
    memory.append_events(whole_build("done", ["p"], at=2))
    memory.append_event(partition("running", "r", P.BUILDING, at=50 * SECOND))
    memory.append_event(request("abandoned", B.RECEIVED, at=1))
    memory.append_events(whole_build("last", ["p"], at=100))
    prune(memory, keep_events=12)
    left = [event.event_id for event in memory.all_events()]
    # "running" began before the newest twelve and still goes on, so all of it stays.
    assert left[:3] == ["running:EXECUTING", "running:r:BUILDING", "abandoned:RECEIVED"]
    assert memory.get_build("done") is None
    prune(memory, keep_events=0)
    assert [event.event_id for event in memory.all_events()] == ["running:r:BUILDING", "last:p:AVAILABLE"]


def test_a_retention_says_what_it_needs(memory: EventLog) -> None:
    with pytest.raises(CallerError, match="needs an age or a number"):
        prune(memory)
    with pytest.raises(CallerError, match="0 or more"):
        prune(memory, keep_events=-1)


def test_wiping_one_build_leaves_the_others(log: EventLog) -> None:
    log.append_events(whole_build("b1", ["p"]))
    log.append_events(whole_build("b2", ["p"]))
    before = log.get_build_request_events("b1")
    assert wipe_build(log, "b2") == 10
    assert wipe_build(log, "b2") == 0
    assert list(log.all_events()) == before
    found = log.get_latest_partition_status("p")
    assert found is not None
    assert found.build_request_id == "b1"


def test_space_is_given_back(tmp_path: Path) -> None:
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        log.append_events(partition(f"b{n}", f"p{n}", P.AVAILABLE, at=n) for n in range(3000))
        log.give_back_space()  # type: ignore[attr-defined]
        before = (tmp_path / "log.db").stat().st_size
        log.remove_events(range(1, 2900))
        log.give_back_space()  # type: ignore[attr-defined]
        assert (tmp_path / "log.db").stat().st_size < before / 5
        assert log.stats().events == 101


TASK = "prune-builds:crannog.builds.build_events"


@pytest.mark.parametrize("store", ["", "delta", "sqlite"])
def test_the_scheduler_prunes_by_age_and_number(settings: Settings, tmp_path: Path, store: str) -> None:
    """The log of the warehouse, also when it is named, or another one."""
    uri = {"": "", "delta": f"delta://{settings.warehouse}", "sqlite": f"sqlite:///{tmp_path}/log.db"}[store]
    now_s = time.time_ns() // SECOND

    def left(**retention: int) -> tuple[list[str], dict[str, str]]:
        """The builds that have events after a run, and the result of the task."""
        changed = settings.model_copy(update={"build_log": uri, "expire_interval_s": 0.001, **retention})
        with EmbeddedLake(changed.warehouse, settings=changed) as lake:
            scheduler = lake.new_scheduler()
            ran = scheduler.run_due()
            assert scheduler.last_error is None
            results = {task["task_name"]: task["last_result"] for task in lake.tasks() if task["task_name"] in ran}
            with open_log(uri) if store == "sqlite" else lake.builds as log:
                return sorted({event.build_request_id for event in log.all_events()}), results

    assert left(build_retention_days=7) == (
        [],
        {TASK: '{"events_removed": 0, "events_after": 0}'} if store == "sqlite" else {},
    )
    with open_log(uri or f"delta://{settings.warehouse}") as log:
        for days in (10, 5, 1):
            log.append_events(whole_build(f"{days}-days", ["p"], at=now_s - days * 24 * 3600))
    assert TASK not in left()[1]
    builds, results = left(build_retention_days=7)
    assert (builds, json.loads(results[TASK])) == (["1-days", "5-days"], {"events_removed": 10, "events_after": 20})
    builds, results = left(build_retention_events=10)
    assert (builds, json.loads(results[TASK])) == (["1-days"], {"events_removed": 10, "events_after": 10})
    builds, results = left(build_retention_days=2, build_retention_events=100)
    assert (builds, json.loads(results[TASK])) == (["1-days"], {"events_removed": 0, "events_after": 10})


@pytest.mark.parametrize("uri", ["http://127.0.0.1:1", "stdout:"])
def test_the_scheduler_leaves_logs_alone_that_are_not_its_own_to_prune(settings: Settings, uri: str) -> None:
    changed = settings.model_copy(update={"build_log": uri, "build_retention_days": 1})
    with EmbeddedLake(changed.warehouse, settings=changed) as lake:
        lake.builds.append_events(one_of_each())
        assert TASK not in lake.new_scheduler().run_due()
        assert lake.builds.stats().events == 8


def test_a_prune_that_is_cancelled_goes_on_later(settings: Settings) -> None:
    from crannog.api.reports import Cancellation
    from crannog.builds.maintenance import BuildMaintenance
    from crannog.errors import Cancelled

    changed = settings.model_copy(update={"build_retention_events": 1})
    with EmbeddedLake(changed.warehouse, settings=changed) as lake:
        for number in range(110):
            lake.builds.append_events(whole_build(f"b{number}", ["p"], at=number))
        cancellation, extra_tasks = Cancellation(), BuildMaintenance(lake.operations.warehouse, lambda: lake.builds)
        table = lake.operations.tables.open(lake.builds.name)
        cancellation.cancel()
        [(_, work, _)] = extra_tasks.due(table, cancellation)
        with pytest.raises(Cancelled):
            work()
        assert lake.builds.stats().events == 100
        [(_, work, _)] = extra_tasks.due(table, Cancellation())
        assert work() == {"events_removed": 98, "events_after": 2}


# -- copies ------------------------------------------------------------------------------------------------------


def test_copy_to_every_kind_and_back(log: EventLog, tmp_path: Path) -> None:
    events = list(random_stream(21, 150))
    with open_log(f"sqlite:///{tmp_path}/source.db") as source, open_log("sqlite::memory:") as back:
        source.append_events(events)
        report = copy(source, log, batch=40)
        assert (report.events, report.known_before, report.same_indexes, report.verified) == (150, 0, True, True)
        source.append_event(request("more", B.RECEIVED))
        again = copy(source, log)
        assert (again.events, again.known_before, again.same_indexes) == (151, 150, True)
        copy(log, back)
        assert [(event.index, event) for event in back.all_events()] == [
            (event.index, event) for event in source.all_events()
        ]
        source.remove_events([1, 2])
        with open_log("sqlite::memory:") as third:
            assert not copy(source, third).same_indexes
            assert list(third.all_events()) == list(source.all_events())


def test_a_copy_that_is_not_the_same_is_found(tmp_path: Path) -> None:
    with open_log(f"sqlite:///{tmp_path}/a.db") as source, open_log(f"sqlite:///{tmp_path}/b.db") as target:
        source.append_events(one_of_each())
        original = target.append_events

        def forgetful(events: list[BuildEvent]) -> list[int]:
            indexes = original(events)
            target.remove_events([5])
            return indexes

        target.append_events = forgetful  # type: ignore[method-assign, assignment]
        with pytest.raises(VerificationFailed, match=r"event b1-4 .*is missing"):
            copy(source, target)


def test_export_and_import_lines(log: EventLog, memory: EventLog) -> None:
    events = list(random_stream(22, 80))
    log.append_events(events)
    out = io.StringIO()
    assert export_lines(log, out) == 80
    lines = out.getvalue().splitlines()
    assert [json.loads(line)["index"] for line in lines] == list(range(1, 81))
    report = import_lines(memory, [*lines, ""], batch=30)
    assert (report.lines, report.kept, report.known_before) == (80, 80, 0)
    assert list(memory.all_events()) == events
    assert import_lines(memory, lines).kept == 0
    jobs = io.StringIO()
    export_lines(log, jobs, since=10, kinds=["job"])
    assert {json.loads(line)["event_type"] for line in jobs.getvalue().splitlines()} == {"job"}


def test_wrong_lines_are_named(memory: EventLog) -> None:
    good = one_of_each()[0].as_json()
    with pytest.raises(BadRows, match="line 2: it is not JSON"):
        import_lines(memory, [good, "{", good])
    with pytest.raises(BadRows, match="line 1: the event needs event_id"):
        import_lines(memory, ["{}"])
    with pytest.raises(BadRows, match="line 1: an event is an object"):
        import_lines(memory, ["3"])
    assert memory.head() == 0


# -- checks and the past -----------------------------------------------------------------------------------------


def test_a_check_finds_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "log.db"
    with open_log(f"sqlite:///{file}") as log:
        log.append_events(random_stream(23, 100))
        assert check(log).ok
        assert check(log).events == 100
    with sqlite3.connect(file) as raw:
        raw.execute("DELETE FROM job_runs")
        raw.execute("UPDATE builds SET status = 4 WHERE build_request_id = 'build-1'")
        raw.execute(
            """UPDATE events SET body = '{"reason":7}' WHERE idx = (SELECT min(idx) FROM events WHERE kind = 8)"""
        )
    raw.close()
    with open_log(f"sqlite:///{file}") as log:
        problems = "\n".join(check(log).problems)
    assert "table job_runs lacks" in problems
    assert "table builds has extra rows" in problems
    assert "reason is text, got int" in problems


def test_the_log_as_it_was(log: EventLog) -> None:
    log.append_events(whole_build("b1", ["p"]))
    with log.as_of(7) as then:
        state = then.get_build("b1")
        assert state is not None
        assert state.status is B.EXECUTING
        found = then.get_latest_partition_status("p")
        assert found is not None
        assert found.status is P.BUILDING
        assert then.head() == 7
        with pytest.raises(Refused, match="is read-only: it shows an earlier state"):
            then.append_event(request("b2", B.RECEIVED))
    with log.as_of(0) as nothing:
        assert nothing.list_events().events == ()


# -- lineage, graphs, comparison ---------------------------------------------------------------------------------


def test_lineage_follows_configs_and_manifests(log: EventLog) -> None:
    log.append_events(whole_build("b1", ["clean"], sources=["raw/1", "raw/2"]))
    log.append_events(whole_build("b2", ["report"], sources=["clean"]))
    nested = [{"outputs": ["top"], "inputs": [{"outputs": [{"str": "report"}], "inputs": ["clean"]}]}]
    log.append_event(job("b3", "r3", J.COMPLETED, "top", manifests=nested))
    log.append_event(
        job("b4", "r4", J.SCHEDULED, "plan", config={"outputs": ["plan"], "inputs": [{"partition_ref": "top"}]})
    )
    up = log.get_lineage("top")
    assert up.partitions == ("report", "clean", "raw/1", "raw/2")
    assert not up.truncated
    down = log.get_lineage("raw/1", "downstream")
    assert down.partitions == ("clean", "report", "top", "plan")
    assert [(edge.output_ref, edge.planned) for edge in down.edges][-1] == ("plan", True)
    assert not any(edge.planned for edge in down.edges[:-1])
    assert log.get_lineage("raw/1", "downstream", depth=1).truncated
    assert log.get_lineage("unknown").partitions == ()
    with pytest.raises(CallerError, match="upstream"):
        log.get_lineage("top", "sideways")


def test_a_ring_of_partitions_ends(memory: EventLog) -> None:
    for number, (output, source) in enumerate((("a", "b"), ("b", "c"), ("c", "a"))):
        memory.append_event(
            job("b", f"r{number}", J.COMPLETED, output, manifests=[{"outputs": [output], "inputs": [source]}])
        )
    assert memory.get_lineage("a").partitions == ("b", "c")
    assert len(memory.get_lineage("a").edges) == 3


def test_the_graph_is_drawn_with_states(log: EventLog) -> None:
    plan = JobGraph("g", ["out"], [
        Task("//first", JobConfig(outputs=["mid"], inputs=[DataDep('in"put')])),
        Task("//second", JobConfig(outputs=["out"], inputs=[DataDep("mid")])),
    ])  # fmt: skip
    log.append_event(BuildEvent("g", 0, "b1", JobGraphEvent(plan)))
    log.append_events(
        [job("b1", "r1", J.COMPLETED, "mid", label="//first"), job("b1", "r2", J.RUNNING, "out", label="//second")]
    )
    drawn = mermaid(log, "b1").splitlines()
    assert drawn[:6] == [
        "flowchart LR",
        '    j0["//first"]:::completed',
        '    j1["//second"]:::running',
        '    p0(["in#34;put"])',
        "    p0 --> j0",
        '    j0 -->|"mid"| j1',
    ]
    assert stored_graph(log, "b1") == plan.as_json()
    view = job_graph(log, "b1")
    assert [(node.job_label, node.state, node.job_run_id, node.inputs, node.outputs) for node in view.nodes] == [
        ("//first", "completed", "r1", ('in"put',), ("mid",)),
        ("//second", "running", "r2", ("mid",), ("out",)),
    ]
    assert view.edges == (JobEdge(None, 0, 'in"put'), JobEdge(0, 1, "mid"))
    with pytest.raises(NotFound, match="no job graph"):
        mermaid(log, "b2")


@pytest.mark.parametrize("document", [None, 7, [], {"nodes": 3}, {"nodes": [3, {"job": 1}, {"config": []}]}])
def test_any_document_can_be_drawn(memory: EventLog, document: object) -> None:
    memory.append_event(BuildEvent("g", 0, "b1", JobGraphEvent(document)))
    assert mermaid(memory, "b1").startswith("flowchart LR\n")


def test_two_builds_are_compared(log: EventLog) -> None:
    log.append_events(whole_build("b1", ["p", "q"]))
    log.append_events(whole_build("b2", ["q", "r"], failed=True))
    found = compare(log, "b1", "b2")
    assert [(part.partition_ref, part.first, part.second) for part in found.partitions] == [
        ("p", P.AVAILABLE, None), ("q", P.AVAILABLE, P.FAILED), ("r", None, P.FAILED),
    ]  # fmt: skip
    assert (found.same_partitions, found.slower_ns) == (0, 0)
    [difference] = found.jobs
    assert difference.differs
    assert (difference.first_runs, difference.second_runs, difference.slower_ns) == (1, 1, 0)
    with pytest.raises(NotFound, match="there is no build b9"):
        compare(log, "b1", "b9")
