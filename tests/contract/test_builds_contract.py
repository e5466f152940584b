"""What every build log promises, held against each of them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from build_logs import Place, place_of
from build_samples import NESTED, job, one_of_each, partition, random_stream, request, whole_build
from build_server import build_server  # noqa: F401
from crannog.builds import (
    BuildEvent,
    BuildRequestStatus,
    DelegationEvent,
    EventLog,
    JobEvent,
    JobStatus,
    Kind,
    PartitionEvent,
    PartitionInvalidationEvent,
    PartitionStatus,
    Watch,
    plain,
)
from crannog.errors import CallerError, Conflict, Refused, Unavailable
from postgres_server import postgres  # noqa: F401
from s3 import s3_client, s3_location, s3_server  # noqa: F401

# On a bucket the code is that of delta; test_builds_delta has the short of it.
KINDS = ["memory", "sqlite", "tee", "delta", "postgresql", "http", pytest.param("s3", marks=pytest.mark.slow)]
B, P, J = BuildRequestStatus, PartitionStatus, JobStatus


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = place_of(request.param, tmp_path, request.getfixturevalue)
    yield found
    found.close()


@pytest.fixture
def log(place: Place) -> EventLog:
    return place.open()


# -- writing -----------------------------------------------------------------------------------------------------


def test_every_kind_comes_back_as_it_was(log: EventLog) -> None:
    events = one_of_each()
    assert log.append_events(events) == list(range(1, 9))
    assert [log.get_event(event.event_id) for event in events] == events
    found = list(log.all_events())
    assert found == events
    assert [event.index for event in found] == list(range(1, 9))
    assert [event.as_json() for event in found] == [
        BuildEvent(e.event_id, e.timestamp, e.build_request_id, e.payload, n).as_json() for n, e in enumerate(events, 1)
    ]


def test_indexes_are_dense_and_start_at_one(log: EventLog) -> None:
    assert log.head() == 0
    events = list(random_stream(3, 30))
    assert log.append_event(events[0]) == 1
    assert log.append_events(events[1:10]) == list(range(2, 11))
    assert log.append_events([]) == []
    assert [log.append_event(event) for event in events[10:]] == list(range(11, 31))
    assert log.head() == 30


def test_the_same_event_again_returns_its_index(log: EventLog) -> None:
    events = one_of_each()
    log.append_events(events)
    assert log.append_event(events[3]) == 4
    extra = request("b9", B.RECEIVED)
    assert log.append_events([events[7], extra, events[0], extra]) == [8, 9, 1, 9]
    assert log.head() == 9
    assert len(list(log.all_events())) == 9


def test_the_same_id_with_other_content_is_a_conflict_and_nothing_is_kept(log: EventLog) -> None:
    events = one_of_each()
    log.append_events(events[:3])
    other = BuildEvent(events[1].event_id, events[1].timestamp, "b1", PartitionEvent("p/1", P.FAILED))
    with pytest.raises(Conflict, match="other content, at index 2"):
        log.append_events([events[4], other, events[5]])
    assert log.head() == 3
    assert log.get_event(events[4].event_id) is None
    with pytest.raises(Conflict):  # within one batch too
        log.append_events([events[6], BuildEvent(events[6].event_id, 1, "b1", events[6].payload)])
    assert log.append_event(events[4]) == 4


def test_equal_in_python_is_not_enough_to_be_the_same(log: EventLog) -> None:
    def with_config(config: object) -> BuildEvent:
        return BuildEvent("e", 0, "b", JobEvent("r", "l", [], J.RUNNING, config=config))

    assert log.append_event(with_config({"a": 1, "b": 2})) == 1
    assert log.append_event(with_config({"b": 2, "a": 1})) == 1
    with pytest.raises(Conflict):
        log.append_event(with_config({"a": True, "b": 2}))


def test_what_is_no_event_is_refused_and_nothing_is_kept(log: EventLog) -> None:
    with pytest.raises(CallerError, match="BuildEvent values, got dict"):
        log.append_events([one_of_each()[0], {"event_id": "x"}])  # type: ignore[list-item]
    assert log.head() == 0


def test_large_and_strange_payloads(log: EventLog) -> None:
    large = {"text": "ü☃" * 150_000, "nested": NESTED}
    event = BuildEvent(
        "große-id ☃", 2**63 - 1, "b 'quoted\"", JobEvent("r", "l", ["p"], J.RUNNING, "\0\n", large, [large])
    )
    log.append_event(event)
    assert log.get_event("große-id ☃") == event
    assert log.get_build_request_events("b 'quoted\"") == [event]
    assert log.get_events_in_range(2**63 - 1, 2**63 - 1) == [event]
    with pytest.raises(CallerError, match="is the most"):
        log.append_event(BuildEvent("big", 0, "b", JobEvent("r", "l", ["p"], J.RUNNING, config="x" * 17_000_000)))


def test_threads_lose_nothing(log: EventLog, place: Place) -> None:
    count = 5 if place.kind == "s3" else 25
    results: dict[int, list[int]] = {}

    def write(number: int) -> None:
        results[number] = [log.append_event(partition(f"b{number}", f"p{n}", P.BUILDING)) for n in range(count)]

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(index for listed in results.values() for index in listed) == list(range(1, 4 * count + 1))
    for number, indexes in results.items():
        assert indexes == sorted(indexes)
        assert [event.index for event in log.get_build_request_events(f"b{number}")] == indexes


# -- events back -------------------------------------------------------------------------------------------------


def test_pages_reproduce_the_whole_order_in_both_directions(log: EventLog) -> None:
    events = list(random_stream(5, 57))
    log.append_events(events)
    for size in (1, 7, 57, 100):
        seen, since = [], 0
        while True:
            page = log.list_events(since, size)
            seen += page.events
            since = page.next_index
            if not page.has_more:
                break
        assert seen == events, size
    down = log.list_events(limit=100, descending=True)
    assert list(down.events) == events[::-1]
    page = log.list_events(50, 10, descending=True)
    assert [event.index for event in page] == list(range(49, 39, -1))
    assert (page.next_index, page.has_more) == (40, True)
    end = log.list_events(57)
    assert (list(end), end.next_index, end.has_more) == ([], 57, False)
    assert log.list_events(1, descending=True).events == ()


def test_pages_of_one_build_are_not_disturbed_by_others(log: EventLog) -> None:
    events = list(random_stream(6, 80))
    log.append_events(events)
    for build in {event.build_request_id for event in events}:
        mine = [event for event in events if event.build_request_id == build]
        assert log.get_build_request_events(build) == mine
        seen, since = [], 0
        while (page := log.list_events(since, 3, build_request_id=build)).events:
            seen += page.events
            since = page.next_index
        assert seen == mine
        third = log.get_build_request_events(build)[0].index
        assert log.get_build_request_events(build, since=third) == mine[1:]


def test_filters(log: EventLog) -> None:
    events = list(random_stream(7, 150))
    log.append_events(events)

    def refs(event: BuildEvent) -> list[str]:
        payload = event.payload
        one = [payload.partition_ref] if hasattr(payload, "partition_ref") else []
        return [*one, *getattr(payload, "target_partitions", ()), *getattr(payload, "requested_partitions", ())]

    def found(**filter: object) -> list[BuildEvent]:
        return list(log.list_events(limit=1000, **filter))

    ref = "data/größe/1"
    assert found(partition_refs=[ref]) == log.get_partition_events(ref) == [e for e in events if ref in refs(e)]
    assert found(partition_globs=["data/gr*"]) == [e for e in events if any(r.startswith("data/gr") for r in refs(e))]
    assert found(partition_globs=["*/[12]"]) == [e for e in events if any(r[-1] in "12" for r in refs(e))]
    assert found(partition_glob="*/[!12]") == [e for e in events if any(r[-1] not in "12" for r in refs(e))]
    assert found(partition_globs=["data/a[*]b/?"]) == [e for e in events if any("a*b" in r for r in refs(e))]
    assert found(partition_globs=["raw", "DATA*"]) == []
    run = [e for e in events if e.kind in (Kind.JOB, Kind.TASK_CANCEL) and e.payload.job_run_id == "run-3"]  # type: ignore[union-attr]
    assert found(job_run_ids=["run-3"]) == log.get_job_run_events("run-3") == run
    assert found(job_label="//jobs:2") == [
        e for e in events if e.kind is Kind.JOB and e.payload.job_label == "//jobs:2"
    ]  # type: ignore[union-attr]
    assert found(kinds=["job", Kind.DELEGATION]) == [e for e in events if e.kind in (Kind.JOB, Kind.DELEGATION)]
    assert log.get_events_in_range(10**11, 5 * 10**11) == [e for e in events if 10**11 <= e.timestamp <= 5 * 10**11]
    both = found(build_request_ids=["build-1", "build-2"], kind="partition", start_ns=10**11)
    assert both == [
        e
        for e in events
        if e.build_request_id in ("build-1", "build-2") and e.kind is Kind.PARTITION and e.timestamp >= 10**11
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"limit": 0}, "from 1 to"),
        ({"limit": True}, "from 1 to"),
        ({"since": -1}, "0 or more"),
        ({"since": "3"}, "0 or more"),
        ({"colour": "red"}, "cannot be filtered by colour"),
        ({"kinds": ["nothing"]}, "is not a kind of event"),
        ({"partition_refs": []}, "empty list"),
        ({"start_ns": 1.5}, "nanoseconds"),
        ({"job_labels": [3]}, "list of texts"),
        ({"since": 2**70}, "index of an event"),
    ],
)
@pytest.mark.parametrize("place", ["memory", "delta"], indirect=True)
def test_wrong_questions_are_refused(log: EventLog, arguments: dict[str, object], says: str) -> None:
    with pytest.raises(CallerError, match=says):
        log.list_events(**arguments)  # type: ignore[arg-type]


def test_unknown_ids_give_an_empty_answer(log: EventLog) -> None:
    log.append_events(one_of_each())
    for unknown in ("nobody", "", "\0", "\ud800", "'; DROP TABLE events"):
        assert log.get_event(unknown) is None
        assert log.get_latest_partition_status(unknown) is None
        assert log.get_active_builds_for_partition(unknown) == []
        assert log.get_build(unknown) is None
        assert log.get_build_partitions(unknown) == {}
        assert log.list_job_runs(build_request_id=unknown) == []
        for part in ("build_request_ids", "partition_refs", "partition_globs", "job_labels", "job_run_ids"):
            assert log.list_events(**{part: [unknown]}).events == ()
    assert log.get_events_in_range(2**70, 2**71) == log.get_events_in_range(-(2**70), -1) == []
    assert len(log.get_events_in_range(-(2**70), 2**70)) == 8
    assert (
        log.get_build_request_events("nobody")
        == log.get_partition_events("nobody")
        == log.get_job_run_events("nobody")
        == []
    )
    assert log.list_build_requests(status=B.FAILED).builds == ()


def test_an_empty_log_answers_everything(log: EventLog) -> None:
    assert log.list_events().events == ()
    assert log.list_recent_partitions() == []
    assert log.list_jobs() == []
    assert log.list_build_requests().total == 0
    assert log.get_activity_summary().total_events_count == 0
    assert (log.stats().events, log.stats().schema_version) == (0, 1)


# -- states ------------------------------------------------------------------------------------------------------


def test_the_latest_status_is_by_commit_order_not_by_clock(log: EventLog) -> None:
    log.append_event(partition("b1", "p", P.BUILDING, at=500))
    log.append_event(partition("b2", "p", P.AVAILABLE, at=100))
    found = log.get_latest_partition_status("p")
    assert found is not None
    assert (found.status, found.timestamp, found.build_request_id, found.index, found.invalidated) == (
        P.AVAILABLE,
        100,
        "b2",
        2,
        False,
    )
    log.append_event(BuildEvent("i", 600, "b2", PartitionInvalidationEvent("p", "stale")))
    found = log.get_latest_partition_status("p")
    assert found is not None
    assert (found.status, found.invalidated) == (P.AVAILABLE, True)
    log.append_event(partition("b3", "p", P.REQUESTED, at=1))
    found = log.get_latest_partition_status("p")
    assert found is not None
    assert (found.status, found.invalidated) == (P.REQUESTED, False)


def test_active_builds_follow_delegation_and_leave_out_finished_ones(log: EventLog) -> None:
    log.append_events(
        [request("b1", B.RECEIVED, "p"), request("b1", B.EXECUTING, "p"), partition("b1", "p", P.BUILDING)]
    )
    assert log.get_active_builds_for_partition("p") == ["b1"]
    log.append_events([request("b2", B.RECEIVED, "p", "q"), BuildEvent("d2", 0, "b2", DelegationEvent("p", "b1"))])
    assert log.get_active_builds_for_partition("p") == ["b1"]
    assert log.get_active_builds_for_partition("q") == ["b2"]
    log.append_events([job("b3", "r3", J.RUNNING, "p"), BuildEvent("d4", 0, "b4", DelegationEvent("p", "elsewhere"))])
    assert log.get_active_builds_for_partition("p") == ["b1", "b3", "elsewhere"]
    log.append_event(request("b1", B.COMPLETED))
    assert log.get_active_builds_for_partition("p") == ["b3", "elsewhere"]
    log.append_events([request("b3", B.FAILED), request("elsewhere", B.CANCELLED)])
    assert log.get_active_builds_for_partition("p") == []


def test_builds_are_listed_newest_first_with_paging_and_total(log: EventLog) -> None:
    for number in range(7):
        log.append_events(whole_build(f"b{number}", [f"p{number}"], at=number, failed=number % 3 == 0))
    log.append_event(request("late", B.RECEIVED, "p9", at=5))
    page = log.list_build_requests(limit=3)
    assert ([build.build_request_id for build in page], page.total, len(page)) == (["late", "b6", "b5"], 8, 3)
    assert [build.build_request_id for build in log.list_build_requests(limit=3, offset=6)] == ["b1", "b0"]
    failed = log.list_build_requests(status=B.FAILED)
    assert ([build.build_request_id for build in failed], failed.total) == (["b6", "b3", "b0"], 3)
    assert log.list_build_requests(status="COMPLETED", limit=1).total == 4
    build = log.get_build("b1")
    assert build is not None
    assert (build.status, build.requested_partitions, build.created_at, build.ended_at) == (
        B.COMPLETED,
        ("p1",),
        10**9,
        10 * 10**9,
    )
    assert build.duration_ns == 9 * 10**9
    assert log.get_build_partitions("b1") == {"p1": P.AVAILABLE}
    assert [part.partition_ref for part in log.list_recent_partitions(3)] == ["p6", "p5", "p4"]


def test_jobs_tell_how_their_runs_went(log: EventLog) -> None:
    second = 10**9
    log.append_events(
        [
            job("b1", "r1", J.SCHEDULED, "p", label="//a", at=0),
            job("b1", "r1", J.RUNNING, "p", label="//a", at=1 * second),
            job("b1", "r1", J.FAILED, "p", label="//a", at=3 * second),
            job("b1", "r2", J.RUNNING, "p", label="//a", at=4 * second),
            job("b1", "r2", J.COMPLETED, "p", label="//a", at=10 * second),
            job("b2", "r3", J.RUNNING, "p", label="//a", at=11 * second),
            job("b2", "r4", J.COMPLETED, "q", label="//b", at=12 * second),
        ]
    )
    second_job, first_job = log.list_jobs()
    assert (first_job.job_label, first_job.runs, first_job.completed, first_job.failed, first_job.active) == (
        "//a",
        3,
        1,
        1,
        1,
    )
    assert (first_job.success_rate, first_job.retries) == (0.5, 1)
    assert (first_job.duration_p50_ns, first_job.duration_max_ns) == (2 * second, 6 * second)
    assert (first_job.last_run.job_run_id, first_job.last_run.duration_ns) == ("r3", None)
    assert (second_job.job_label, second_job.success_rate, second_job.retries) == ("//b", 1.0, 0)
    assert [run.job_run_id for run in log.list_job_runs(build_request_id="b1")] == ["r2", "r1"]
    assert [run.job_run_id for run in log.list_job_runs(job_label="//a", limit=1)] == ["r3"]


def test_activity_manifests_and_stats(log: EventLog) -> None:
    log.append_events(whole_build("b1", ["p1", "p2"], sources=["s1"]))
    log.append_event(request("b2", B.EXECUTING, "p3"))
    activity = log.get_activity_summary(recent=1)
    assert (activity.active_builds_count, activity.total_builds_count, activity.total_partitions_count) == (1, 2, 2)
    assert activity.builds_by_status == {"BUILD_REQUEST_EXECUTING": 1, "BUILD_REQUEST_COMPLETED": 1}
    assert [build.build_request_id for build in activity.recent_builds] == ["b2"]
    assert log.get_manifests(build_request_id="b1") == [{"outputs": ["p1", "p2"], "inputs": ["s1"]}]
    assert log.get_manifests(partition_ref="p2") == log.get_manifests("b1")
    assert log.get_manifests(partition_ref="p3") == []
    stats = log.stats()
    assert (stats.events, stats.last_index, stats.builds, stats.job_runs) == (13, 13, 2, 1)
    assert stats.events_by_kind["partition"] == 4
    assert plain(activity)["recent_builds"][0]["status"] == "BUILD_REQUEST_EXECUTING"


# -- removing ----------------------------------------------------------------------------------------------------


def test_removed_events_are_gone_and_their_indexes_are_not_given_again(log: EventLog) -> None:
    log.append_events(whole_build("b1", ["p1"]))
    log.append_events(whole_build("b2", ["p1", "p2"]))
    last = log.head()
    mine = [event.index for event in log.get_build_request_events("b2")]
    assert log.remove_events(mine) == len(mine)
    assert log.remove_events(mine) == 0
    assert log.get_build("b2") is None
    assert log.get_build_request_events("b2") == []
    assert log.get_latest_partition_status("p2") is None
    found = log.get_latest_partition_status("p1")
    assert found is not None
    assert found.build_request_id == "b1"
    assert [job.runs for job in log.list_jobs()] == [1]
    assert log.head() == last
    assert log.append_event(request("b3", B.RECEIVED)) == last + 1


def test_what_is_left_after_removing_is_as_if_it_had_never_been_there(log: EventLog, tmp_path: Path) -> None:
    events = list(random_stream(8, 120))
    log.append_events(events)
    dice = random.Random(8)
    going = set(dice.sample(range(1, 121), 60))
    log.remove_events(going)
    left = Place("fresh", f"sqlite:///{tmp_path}/left.db").open()
    for event in (event for number, event in enumerate(events, 1) if number not in going):
        left.append_event(event)
    assert list(log.all_events()) == list(left.all_events())
    refs = sorted({f"data/{name}/{day}" for name in ("raw", "clean", "größe", "a*b") for day in range(6)})
    for ref in refs:
        ours, theirs = log.get_latest_partition_status(ref), left.get_latest_partition_status(ref)
        assert (ours and (ours.status, ours.build_request_id, ours.invalidated)) == (
            theirs and (theirs.status, theirs.build_request_id, theirs.invalidated)
        )
        assert log.get_active_builds_for_partition(ref) == left.get_active_builds_for_partition(ref)
    assert [(b.build_request_id, b.status) for b in log.list_build_requests()] == [
        (b.build_request_id, b.status) for b in left.list_build_requests()
    ]
    assert [(j.job_label, j.runs, j.retries, j.success_rate) for j in log.list_jobs()] == [
        (j.job_label, j.runs, j.retries, j.success_rate) for j in left.list_jobs()
    ]
    left.close()


# -- following ---------------------------------------------------------------------------------------------------


def test_following_starts_after_the_cursor_and_sees_each_event_once(log: EventLog, place: Place) -> None:
    events = list(random_stream(9, 40))
    log.append_events(events[:10])
    seen: dict[str, list[BuildEvent]] = {"resumed": [], "from head": [], "filtered": []}
    stop = threading.Event()
    followers = {
        "resumed": log.follow(4, stop=stop),
        "from head": log.follow(stop=stop),
        "filtered": log.follow(0, stop=stop, kinds=["job"]),
    }

    def run(name: str) -> None:
        for event in followers[name]:
            seen[name].append(event)
            if name != "filtered" and event.event_id == events[-1].event_id:
                return

    threads = [threading.Thread(target=run, args=(name,)) for name in followers]
    for thread in threads:
        thread.start()
    if place.kind == "s3":
        log.append_events(events[10:])
    else:
        for event in events[10:]:
            log.append_event(event)
    for thread in threads[:2]:
        thread.join(20)
    for _ in range(200):
        if len(seen["filtered"]) == sum(event.kind is Kind.JOB for event in events):
            break
        threading.Event().wait(0.02)
    stop.set()
    threads[2].join(20)
    assert seen["resumed"] == events[4:]
    assert seen["from head"] == events[10:]
    assert seen["filtered"] == [event for event in events if event.kind is Kind.JOB]


def test_following_ends_when_nothing_comes(log: EventLog) -> None:
    log.append_events(one_of_each())
    assert len(list(log.follow(3, idle_s=0.05, poll_s=0.01))) == 5


def test_watches_do_not_disturb_each_other(log: EventLog) -> None:
    log.append_event(request("b0", B.RECEIVED))
    good: list[int | None] = []
    done = threading.Event()

    def bad(event: BuildEvent) -> None:
        raise RuntimeError("a callback that fails")

    def collect(event: BuildEvent) -> None:
        good.append(event.index)
        if len(good) == 3:
            done.set()

    closed = threading.Event()

    def closing(event: BuildEvent) -> None:
        self_closing.close()
        closed.set()

    failing = Watch(log, bad, poll_s=0.01)
    watch = Watch(log, collect, poll_s=0.01)
    self_closing = Watch(log, closing, poll_s=0.01)
    log.append_events([request(f"b{n}", B.RECEIVED) for n in (1, 2, 3)])
    assert done.wait(20)
    assert closed.wait(20)
    for _ in range(500):
        if failing.errors == 3:
            break
        threading.Event().wait(0.02)
    for one in (failing, watch, self_closing):
        one.close()
    assert good == [2, 3, 4]
    assert failing.errors == 3


def test_waiting_for_a_build(log: EventLog) -> None:
    with pytest.raises(Unavailable, match="is not in the log after 0 s"):
        log.wait_for_build("b1", timeout_s=0)
    log.append_event(request("b1", B.RECEIVED))
    with pytest.raises(Unavailable, match="is BUILD_REQUEST_RECEIVED"):
        log.wait_for_build("b1", timeout_s=0)
    writer = threading.Timer(0.1, lambda: log.append_event(request("b1", B.FAILED)))
    writer.start()
    assert log.wait_for_build("b1", timeout_s=20, poll_s=0.01).status is B.FAILED
    writer.join()


# -- opening -----------------------------------------------------------------------------------------------------


def test_another_opening_sees_everything_and_goes_on(place: Place) -> None:
    if not place.lasts:
        pytest.skip(f"{place.kind} lasts as long as it is open")
    first = place.open()
    first.append_events(one_of_each())
    second = place.open()
    assert list(second.all_events()) == one_of_each()
    assert second.append_event(request("x", B.RECEIVED)) == 9
    # On a bucket other processes' events are seen within `refresh_ms`; a write always sees them.
    assert first.append_event(request("x", B.RECEIVED)) == 9
    assert first.append_event(request("y", B.RECEIVED)) == 10
    assert [event.build_request_id for event in first.all_events(8)] == ["x", "y"]
    first.close()
    second.close()
    third = place.open()
    assert third.head() == 10
    assert third.append_event(one_of_each()[2]) == 3


def test_a_closed_log_says_so(place: Place) -> None:
    log = place.open()
    log.close()
    log.close()
    with pytest.raises(CallerError, match="closed"):
        log.append_event(request("b", B.RECEIVED))
    with pytest.raises(CallerError, match="closed"):
        log.list_events()


def test_states_are_checked_only_if_asked(place: Place) -> None:
    if place.kind == "s3":
        pytest.skip("the code is that of delta")
    free = place.open()
    free.append_events([request("free", B.COMPLETED), request("free", B.RECEIVED)])
    strict = place.open(check_states=True)
    strict.append_events([request("b", B.RECEIVED), request("b", B.RECEIVED, n="again"), request("b", B.EXECUTING)])
    with pytest.raises(Refused, match="BUILD_REQUEST_EXECUTING and cannot become BUILD_REQUEST_PLANNING"):
        strict.append_event(request("b", B.PLANNING))
    with pytest.raises(Refused, match="build c is BUILD_REQUEST_FAILED"):
        strict.append_events([request("c", B.RECEIVED), request("c", B.FAILED), request("c", B.EXECUTING)])
    assert strict.get_build("c") is None
    strict.append_events([job("b", "r", J.RUNNING), job("b", "r", J.COMPLETED)])
    with pytest.raises(Refused, match="job run r is JOB_COMPLETED"):
        strict.append_event(BuildEvent("again", 0, "b", JobEvent("r", "//job", [], J.RUNNING)))
    strict.append_events([partition("b", "p", P.AVAILABLE), partition("other", "p", P.BUILDING)])
    with pytest.raises(Refused, match="partition p in build b is PARTITION_AVAILABLE"):
        strict.append_event(partition("b", "p", P.BUILDING))
    # An argument of the append wins over how the log was opened.
    with pytest.raises(Refused, match="build d is BUILD_REQUEST_FAILED"):
        free.append_events([request("d", B.FAILED), request("d", B.EXECUTING)], check_states=True)
    assert free.get_build("d") is None
    strict.append_event(request("b", B.PLANNING), check_states=False)
