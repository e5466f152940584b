"""A process of its own that loads many events and asks of them: `build_million.py URI COUNT`, answers with JSON."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from crannog.builds import (
    BuildEvent,
    BuildRequestEvent,
    BuildRequestStatus,
    JobEvent,
    JobStatus,
    PartitionEvent,
    PartitionStatus,
    open_log,
    prune,
)

_PER_BUILD = 10
_BATCH = 10_000


def events(count: int) -> Iterator[BuildEvent]:
    """Yield builds of ten events over a thousand partitions."""
    for number in range(count):
        build, step = divmod(number, _PER_BUILD)
        ref = f"p/{build % 1_000}"
        if step in (0, _PER_BUILD - 1):
            payload: Any = BuildRequestEvent(
                BuildRequestStatus.COMPLETED if step else BuildRequestStatus.RECEIVED, [ref]
            )
        elif step % 2:
            payload = JobEvent(
                f"r{build}-{step}",
                f"//job:{step}",
                [ref],
                JobStatus.COMPLETED,
                "",
                {"outputs": [ref], "inputs": ["raw"]},
            )
        else:
            payload = PartitionEvent(ref, PartitionStatus.AVAILABLE, "made", f"r{build}-{step - 1}")
        yield BuildEvent(f"e{number}", number, f"b{build}", payload)


def main(uri: str, count: int) -> None:
    figures: dict[str, Any] = {}

    def timed(name: str, act: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        found = act()
        figures[f"{name}_s"] = round(time.perf_counter() - began, 3)
        return found

    def load() -> None:
        left = events(count)
        while batch := list(itertools.islice(left, _BATCH)):
            log.append_events(batch)
        log.head()

    log = open_log(uri)
    timed("load", load)
    log.close()
    log = timed("open", lambda: open_log(uri))
    figures["head"] = log.head()
    figures["last"] = timed("query", lambda: log.list_events(limit=1, descending=True)).events[0].event_id
    figures["of_a_build"] = len(timed("build", lambda: log.get_build_request_events("b7")))
    figures["status"] = timed("status", lambda: log.get_latest_partition_status("p/7")).index
    figures["followed"] = timed("follow", lambda: sum(1 for _ in log.follow(0, idle_s=0)))
    figures["pruned"] = timed("prune", lambda: prune(log, keep_events=count - count // 10)).removed
    figures["kept"] = log.stats().events
    log.close()
    # Not ru_maxrss: that remembers how large the process was that started this one.
    lines = Path("/proc/self/status").read_text().splitlines()
    figures["memory_mib"] = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
