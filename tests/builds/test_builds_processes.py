"""Several processes and one log: nothing is lost, nothing is locked, the order is the same for all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from build_logs import Place, place_of
from build_samples import request
from crannog.builds import BuildEvent, BuildRequestStatus, check
from postgres_server import postgres  # noqa: F401

KINDS = ["sqlite", "delta", "postgresql"]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found = place_of(request.param, tmp_path, request.getfixturevalue)
    yield found
    found.close()


def started(place: Place, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).parents[1] / "support" / "build_child.py"), place.uri, name, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")},
    )


def test_five_processes_open_a_new_log_at_once_and_write(place: Place) -> None:
    count = 15
    children = [started(place, f"w{number}", count) for number in range(5)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n", child.stderr and child.stderr.read()
    log = place.open()
    seen: list[BuildEvent] = []
    stop = threading.Event()

    def tail() -> None:
        for event in log.follow(0, stop=stop, poll_s=0.005):
            seen.append(event)

    reader = threading.Thread(target=tail)
    reader.start()
    acknowledged: dict[int, str] = {}
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        out, err = child.communicate(timeout=120)
        assert child.returncode == 0, err
        mine = [line.split() for line in out.splitlines()]
        assert len(mine) == count
        acknowledged.update((int(index), event_id) for index, event_id in mine)
    assert sorted(acknowledged) == list(range(1, 5 * count + 1))
    for _ in range(500):
        if len(seen) >= 5 * count:
            break
        time.sleep(0.02)
    stop.set()
    reader.join(20)
    assert [(event.index, event.event_id) for event in seen] == sorted(acknowledged.items())
    assert {event.index: event.event_id for event in place.open().all_events()} == acknowledged
    assert check(log).problems == ()


@pytest.mark.parametrize(
    "place", ["sqlite", "delta", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
def test_what_was_acknowledged_is_there_after_kill_9(place: Place) -> None:
    children = [started(place, f"k{number}", 100_000) for number in range(3)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    lines: list[str] = []
    for child in children:
        assert child.stdout is not None
        lines.extend(child.stdout.readline() for _ in range(5))
    acknowledged: dict[int, str] = {}
    for child in children:
        child.send_signal(signal.SIGKILL)
    for child in children:
        assert child.stdout is not None
        for line in (*lines, *child.stdout.read().splitlines()):
            index, _, event_id = line.strip().partition(" ")
            if event_id and line.count("-"):
                acknowledged[int(index)] = event_id
        child.wait()
        child.stdout.close()
    assert len(acknowledged) > 10
    log = place.open()
    kept = {event.index: event.event_id for event in log.all_events()}
    missing = {index: name for index, name in acknowledged.items() if kept.get(index) != name}
    # A line may be cut off where the process was killed while it printed.
    assert all(any(kept_name.startswith(name) for kept_name in kept.values()) for name in missing.values())
    assert len(missing) <= 3
    assert sorted(kept) == list(range(1, len(kept) + 1))
    assert log.append_event(request("after", BuildRequestStatus.RECEIVED)) == len(kept) + 1
    assert check(log).problems == ()
