"""The build event log: Delta against SQLite (synchronous=FULL) and PostgreSQL, the same events, in turns."""

from __future__ import annotations

import itertools
import multiprocessing
import resource
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stopwatch import Line, quantile, timed, timed_threads

from crannog.builds import (
    BuildEvent,
    BuildRequestEvent,
    BuildRequestStatus,
    EventLog,
    JobEvent,
    JobStatus,
    PartitionEvent,
    PartitionStatus,
    open_log,
    prune,
)
from crannog.builds.stores.delta_log import DeltaLog

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from postgres_server import NoServer, started

if TYPE_CHECKING:
    from run import Bench

OURS, SQLITE, POSTGRES = "Delta", "SQLite", "PostgreSQL"
_EVENTS_PER_BUILD = 20
_START_NS = 1_767_225_600 * 10**9
_BATCH = 20_000


def made_up(count: int, *, first: int = 0) -> Iterator[BuildEvent]:
    """Yield builds of 20 events each: a request, six jobs with their partitions, and the end."""
    for number in range(first, first + count):
        build, step = divmod(number, _EVENTS_PER_BUILD)
        yield BuildEvent(
            str(uuid.UUID(int=number)), _START_NS + number * 10**6, f"build-{build}", _payload(build, step)
        )


def _payload(build: int, step: int) -> Any:
    if step in (0, _EVENTS_PER_BUILD - 1):
        status = BuildRequestStatus.RECEIVED if step == 0 else BuildRequestStatus.COMPLETED
        return BuildRequestEvent(status, tuple(_ref(build, job) for job in range(6)))
    job, part = divmod(step - 1, 3)
    run, ref = f"run-{build}-{job}", _ref(build, job)
    if part == 2:
        return PartitionEvent(ref, PartitionStatus.AVAILABLE, "made", run)
    config = {
        "outputs": [ref],
        "inputs": [{"dep_type": 1, "partition_ref": _ref(build, job + 1)}],
        "args": ["--day", str(build)],
        "env": {"ZONE": "eu"},
    }
    job_status = JobStatus.RUNNING if part == 0 else JobStatus.COMPLETED
    return JobEvent(run, f"//jobs:load_{job}", (ref,), job_status, "", config if part == 0 else None)


def _ref(build: int, job: int) -> str:
    return f"sales/region={job}/day={build % 1_000}"


class Logs:
    """One log of each kind, all with the same events."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        folder.mkdir(parents=True)
        self._folders = [folder]
        self.uris = {OURS: f"delta://{folder}/warehouse", SQLITE: f"sqlite:///{folder}/log.db"}
        with suppress(NoServer):
            server = stack.enter_context(started())
            self._folders.append(Path(server.socket_folder))
            self.uris[POSTGRES] = server.new_schema(f"bench_{uuid.uuid4().hex}")
        self.logs: dict[str, EventLog] = {name: stack.enter_context(open_log(uri)) for name, uri in self.uris.items()}
        self.next = 0

    def fresh(self, count: int) -> list[BuildEvent]:
        """Return events that no log has."""
        self.next += count
        return list(made_up(count, first=self.next - count))

    def warm(self) -> None:
        """Read every file once: the system may have dropped files that were unused for minutes from its page cache."""
        files = [file for folder in self._folders for file in folder.rglob("*") if file.is_file()]
        # In another process: closing a file releases the locks that SQLite holds on it in the same process.
        subprocess.run(["cat", "--", *files], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def appends(bench: Bench) -> None:
    """Durable appends to a build log of 1 event and of 100, and by several threads and processes."""
    with ExitStack() as stack:
        logs = Logs(bench.folder / "build-appends", stack)
        where = "Build log: append, to the acknowledgement"
        for size, repeats, aim in ((1, 300, "≤ 2x SQLite"), (100, 60, "faster than SQLite")):
            batches = [logs.fresh(size) for _ in range(repeats)]
            spent = _in_turns(
                logs,
                lambda log, number, batches=batches: log.append_events(batches[number]),
                lambda _, repeats=repeats: repeats,
            )
            for label, at in (("p50", 0.5), ("p95", 0.95)):
                _line(
                    bench,
                    where,
                    f"{size} event(s), {label}",
                    {name: quantile(times, at) for name, times in spent.items()},
                    aim if at == 0.5 else "",
                )
        where = "Build log: concurrent writers, one event a call"
        seconds = 2.0 if bench.quick else 4.0
        for what, counts, work in (("threads", (8, 16), _threads), ("processes", (4, 8), _processes)):
            for count in counts:
                rates = _rates(logs, partial(work, count=count, seconds=seconds))
                _line(bench, where, f"{count} {what}", rates, "more than SQLite", unit="events/s", more=True)


def _rates(logs: Logs, work: Callable[[EventLog, str], float]) -> dict[str, float]:
    """Return the median of five rounds in turns: from one round to the next the same work takes up to half as long again."""
    found = [{name: work(log, logs.uris[name]) for name, log in logs.logs.items()} for _ in range(5)]
    return {name: statistics.median(rates[name] for rates in found) for name in logs.logs}


def _in_turns(
    logs: Logs, act: Callable[[EventLog, int], object], repeats: Callable[[list[EventLog]], int]
) -> dict[str, list[float]]:
    """Time an act on Delta and SQLite in turns, then on the others: after a wait for a server anybody finds the processor cold."""
    spent: dict[str, list[float]] = {name: [] for name in logs.logs}
    for names in ((OURS, SQLITE), *((name,) for name in logs.logs if name not in (OURS, SQLITE))):
        for number in range(repeats([logs.logs[name] for name in names])):
            for name in names if number % 2 else reversed(names):
                spent[name].append(timed(lambda log=logs.logs[name], number=number: act(log, number)) * 1000)
    return spent


def _line(
    bench: Bench, where: str, what: str, found: dict[str, float], aim: str = "", *, unit: str = "ms", more: bool = False
) -> None:
    peers = {name: value for name, value in found.items() if name != OURS}
    bench.results.add(where, Line(what, found[OURS], unit, peers, aim, more_is_better=more))


def _threads(log: EventLog, _: str, *, count: int, seconds: float) -> float:
    done = [0] * count
    ends = time.perf_counter() + seconds

    def work(number: int) -> None:
        while time.perf_counter() < ends:
            log.append_event(_single())
            done[number] += 1

    return sum(done) / timed_threads(work, count)


def _single() -> BuildEvent:
    return BuildEvent.new(
        "build-many", PartitionEvent("sales/region=1/day=1", PartitionStatus.BUILDING, "at work", "run-1")
    )


def _processes(_: EventLog, uri: str, *, count: int, seconds: float) -> float:
    context = multiprocessing.get_context("spawn")
    done: Any = context.Queue()
    begin: Any = context.Barrier(count)
    running = [context.Process(target=_write, args=(uri, seconds, begin, done)) for _ in range(count)]
    for one in running:
        one.start()
    total = sum(done.get(timeout=seconds + 120) for _ in running)
    for one in running:
        one.join()
    return total / seconds


def _write(uri: str, seconds: float, begin: Any, done: Any) -> None:
    kept = 0
    with open_log(uri) as log:
        log.append_event(_single())  # what is loaded once is no matter of throughput
        begin.wait(120)
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            log.append_event(_single())
            kept += 1
        done.put(kept)


def reads(bench: Bench) -> None:
    """Every query of a build log of 10k, 100k and 1M events; loading, opening, following, pruning; memory."""
    for size in (10_000, 100_000) if bench.quick else (10_000, 100_000, 1_000_000):
        with ExitStack() as stack:
            logs = Logs(bench.folder / f"build-reads-{size}", stack)
            where = f"Build log of {size:,} events"
            loads = {name: timed(partial(_load, log, size)) for name, log in logs.logs.items()}
            _line(bench, where, "loaded in batches", loads, unit="s")
            ours = logs.logs[OURS]
            assert isinstance(ours, DeltaLog)
            bench.results.add(where, Line("folded into the table by Spark", timed(ours.fold), "s"))
            opens = {name: timed(lambda uri=uri: open_log(uri).close()) for name, uri in logs.uris.items()}
            _line(bench, where, "opened, read model warm", opens, "< 1 s" if size == 1_000_000 else "", unit="s")
            for what, ask in _questions(size).items():
                logs.warm()
                _compare(bench, where, what, logs, ask)
            walks = {
                name: timed(lambda log=log: sum(1 for _ in log.follow(0, idle_s=0))) for name, log in logs.logs.items()
            }
            _line(bench, where, "followed from the first event", walks, unit="s")
            prunes = {name: timed(partial(prune, log, keep_events=size // 2)) for name, log in logs.logs.items()}
            _line(bench, where, "pruned to half", prunes, unit="s")
            bench.results.add(
                where,
                Line(
                    "largest memory of the measuring process so far",
                    resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                    "MiB",
                ),
            )


def _load(log: EventLog, size: int) -> None:
    events = made_up(size)
    while batch := list(itertools.islice(events, _BATCH)):
        log.append_events(batch)


def _questions(size: int) -> dict[str, Callable[[EventLog, int], object]]:
    builds = size // _EVENTS_PER_BUILD
    return {
        "events of a build": lambda log, n: log.get_build_request_events(f"build-{n % builds}"),
        "events of a partition, first 100": lambda log, n: log.list_events(partition_refs=[_ref(n % builds, n % 6)]),
        "events by partition glob, first 100": lambda log, n: log.list_events(
            partition_globs=[f"sales/region={n % 6}/day={n % 1_000}*"]
        ),
        "events by any glob, first 100": lambda log, n: log.list_events(partition_globs=[f"*day={n % 1_000}"]),
        "events of a job run": lambda log, n: log.get_job_run_events(f"run-{n % builds}-{n % 6}"),
        "page of 100 by label": lambda log, n: log.list_events(n % size, 100, job_labels=[f"//jobs:load_{n % 6}"]),
        "last 100 events": lambda log, n: log.list_events(limit=100, descending=True),
        "a time range of 100 events": lambda log, n: log.get_events_in_range(
            _START_NS + n % size * 10**6, _START_NS + (n % size + 99) * 10**6
        ),
        "page of 100 by label and time": lambda log, n: log.list_events(
            job_labels=["//jobs:load_1"],
            start_ns=_START_NS + n % size * 10**6,
            end_ns=_START_NS + (n % size + 5_000) * 10**6,
        ),
        "one event": lambda log, n: log.get_event(str(uuid.UUID(int=n % size))),
        "latest partition status": lambda log, n: log.get_latest_partition_status(_ref(n % builds, n % 6)),
        "active builds of a partition": lambda log, n: log.get_active_builds_for_partition(_ref(n % builds, n % 6)),
        "list of builds": lambda log, n: log.list_build_requests("COMPLETED", limit=50, offset=n % 100),
        "recent partitions": lambda log, n: log.list_recent_partitions(),
        "jobs": lambda log, n: log.list_jobs(),
        "job runs": lambda log, n: log.list_job_runs(limit=100),
        "manifests of a build": lambda log, n: log.get_manifests(f"build-{n % builds}"),
        "one build": lambda log, n: log.get_build(f"build-{n % builds}"),
        "activity": lambda log, n: log.get_activity_summary(),
        "lineage": lambda log, n: log.get_lineage(_ref(n % builds, 0), depth=2, limit=50),
        "statistics": lambda log, n: log.stats(),
    }


def _compare(bench: Bench, where: str, what: str, logs: Logs, ask: Callable[[EventLog, int], object]) -> None:
    def repeats(measured: list[EventLog]) -> int:
        """Run quick queries often and slow ones less; with only a few runs, a p95 would be chance."""
        for log in measured:
            ask(log, 0)
        once = max(timed(lambda log=log: ask(log, 1)) for log in measured)
        return max(200, min(10_000, int(2.0 / max(once, 1e-6))))

    spent = _in_turns(logs, lambda log, number: ask(log, number * 7_919), repeats)
    for label, at in (("p50", 0.5), ("p95", 0.95)):
        _line(
            bench,
            where,
            f"{what}, {label}",
            {name: quantile(times, at) for name, times in spent.items()},
            "≤ 1.2x SQLite",
        )
