"""Builds of a small data platform: six jobs that depend on each other, day by day; some failed, the last still run."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from typing import Any

from crannog.builds import BuildEvent, BuildRequestEvent, BuildRequestStatus, JobEvent, JobStatus
from crannog.builds.event_values import PartitionStatus
from crannog.builds.events import JobGraphEvent, PartitionEvent

_S = 1_000_000_000
# A job: its label, the table it makes, the tables it reads, its typical seconds, its chance to fail.
_JOBS = (
    ("//ingest:orders", "raw/orders", (), 40, 0.01),
    ("//ingest:customers", "raw/customers", (), 15, 0.0),
    ("//clean:orders", "clean/orders", ("raw/orders",), 70, 0.02),
    ("//clean:customers", "clean/customers", ("raw/customers",), 25, 0.01),
    ("//marts:revenue", "marts/revenue", ("clean/orders", "clean/customers"), 120, 0.3),
    ("//marts:churn", "marts/churn", ("clean/customers", "clean/orders"), 200, 0.06),
)
_MESSAGES = (
    "the input has 3 rows without a customer",
    "out of memory: 2.1 of 2.0 GB",
    "lost the connection to the metastore",
)


def build_events(dice: random.Random, count: int, now: int) -> Iterator[BuildEvent]:
    """Yield the events of all builds up to now, in the order of time; the newest still runs."""
    today = dt.datetime.fromtimestamp(now / _S, dt.UTC).date()
    for number in range(count):
        left = count - number - 1
        day = today - dt.timedelta(days=left // 2)
        start = now - left * 6 * 3_600 * _S - 90 * _S
        events = _Build(dice, f"build-{day:%Y%m%d}-{number % 2 + 1}", f"{day}", start).events()
        yield from (event for event in events if event.timestamp <= now)


def next_build(dice: random.Random, number: int, start: int) -> list[BuildEvent]:
    """Return the events of a build that starts at a time, also those that are still to come."""
    day = dt.datetime.fromtimestamp(start / _S, dt.UTC).date()
    return _Build(dice, f"build-{day:%Y%m%d}-live-{number}", f"{day}", start).events()


class _Build:
    """One build while it is made."""

    def __init__(self, dice: random.Random, name: str, day: str, start: int) -> None:
        self._dice, self._name, self._day, self._start = dice, name, day, start
        self._count = self._runs = 0
        self._made: list[BuildEvent] = []

    def _add(self, at: int, payload: Any) -> None:
        self._count += 1
        self._made.append(BuildEvent(f"{self._name}-{self._count:04}", at, self._name, payload))

    def _ref(self, table: str) -> str:
        return f"{table}/date={self._day}"

    def events(self) -> list[BuildEvent]:
        """Return all events, also those that are still to come."""
        wanted = (self._ref("marts/revenue"), self._ref("marts/churn"))
        for place, status in enumerate((BuildRequestStatus.RECEIVED, BuildRequestStatus.PLANNING)):
            self._add(self._start + place * _S, BuildRequestEvent(status, wanted))
        nodes = [{"job": {"label": label}, "config": self._config(table, reads)} for label, table, reads, _, _ in _JOBS]
        self._add(self._start + 2 * _S, JobGraphEvent({"nodes": nodes, "outputs": list(wanted)}))
        self._add(self._start + 3 * _S, BuildRequestEvent(BuildRequestStatus.EXECUTING, wanted))
        ends: dict[str, int] = {}
        failed = False
        for label, table, reads, seconds, chance in _JOBS:
            if any(read not in ends for read in reads):
                continue
            began = max([self._start + 4 * _S, *(ends[read] for read in reads)])
            ended = began + int(self._dice.lognormvariate(0, 0.3) * seconds * _S)
            if self._dice.random() < chance:
                self._run(label, table, reads, began, ended, self._dice.choice(_MESSAGES))
                if self._dice.random() < 0.5:
                    failed = True
                    continue
                # A second try succeeds: the job is flaky, the build is not lost.
                began, ended = ended + 5 * _S, 2 * ended - began + 5 * _S
            self._run(label, table, reads, began, ended, "")
            ends[table] = ended
        last = max(event.timestamp for event in self._made)
        end = BuildRequestStatus.FAILED if failed else BuildRequestStatus.COMPLETED
        self._add(last + _S, BuildRequestEvent(end, wanted, "a job failed" if failed else ""))
        return sorted(self._made, key=lambda event: event.timestamp)

    def _config(self, table: str, reads: tuple[str, ...]) -> dict[str, Any]:
        inputs = [{"dep_type": "MATERIALIZE", "partition_ref": self._ref(read)} for read in reads]
        return {"outputs": [self._ref(table)], "inputs": inputs, "env": {"DAY": self._day}}

    def _run(self, label: str, table: str, reads: tuple[str, ...], began: int, ended: int, message: str) -> None:
        self._runs += 1
        run, ref = f"{self._name}-run-{self._runs}", self._ref(table)
        config = self._config(table, reads)
        self._add(began, JobEvent(run, label, (ref,), JobStatus.SCHEDULED, "", config))
        self._add(began + _S // 2, JobEvent(run, label, (ref,), JobStatus.RUNNING))
        self._add(began + _S // 2, PartitionEvent(ref, PartitionStatus.BUILDING, "", run))
        manifests = None if message else [{"outputs": [ref], "inputs": [self._ref(read) for read in reads]}]
        status = JobStatus.FAILED if message else JobStatus.COMPLETED
        self._add(ended, JobEvent(run, label, (ref,), status, message, None, manifests))
        made = PartitionStatus.FAILED if message else PartitionStatus.AVAILABLE
        self._add(ended, PartitionEvent(ref, made, message, run))
