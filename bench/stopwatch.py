"""Timing, and the table that a run prints and keeps: ours and the peers side by side, and their ratio."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


def timed(work: Callable[[], object]) -> float:
    """Return the seconds one call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def timed_threads(work: Callable[[int], object], count: int) -> float:
    """Return the seconds until `count` threads, each with its number, have finished."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started


def median_ms(work: Callable[[], object], repeats: int, *, warm_up: int = 1) -> float:
    """Return the median of several calls, in milliseconds."""
    for _ in range(warm_up):
        work()
    return statistics.median(timed(work) for _ in range(repeats)) * 1000


def medians_ms(works: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median of each, in milliseconds, taken in turns: what else the machine does then hits all alike."""
    spent: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(repeats):
        for name, work in works.items():
            spent[name].append(timed(work))
    return {name: statistics.median(times) * 1000 for name, times in spent.items()}


def quantile(times: Sequence[float], share: float) -> float:
    """Return the time that this share of all were not slower than."""
    return sorted(times)[max(math.ceil(len(times) * share) - 1, 0)]


@dataclass
class Line:
    """One measurement; peers are given in the same unit as ours."""

    what: str
    ours: float
    unit: str = "ms"
    peers: dict[str, float] = field(default_factory=dict)
    aim: str = ""
    more_is_better: bool = False

    def ratio(self, peer: str) -> float:
        """How many times better ours is."""
        other = self.peers[peer]
        return self.ours / other if self.more_is_better else other / self.ours

    def times(self, peer: str) -> str:
        """Return the ratio as it is shown: near 1 its second digit matters."""
        ratio = self.ratio(peer)
        return f"{ratio:,.2f}x" if ratio < 3 else f"{ratio:,.1f}x"


@dataclass
class Results:
    """What one run measured."""

    sections: dict[str, list[Line]] = field(default_factory=dict)

    def add(self, section: str, line: Line) -> None:
        self.sections.setdefault(section, []).append(line)
        peers = "  ".join(f"{name} {value:,.2f} ({line.times(name)})" for name, value in line.peers.items())
        print(f"  {line.what:<52} {line.ours:>12,.2f} {line.unit:<8} {peers}  {line.aim}", flush=True)

    def markdown(self) -> str:
        text = []
        for section, lines in self.sections.items():
            text.append(f"\n## {section}\n\n| | Crannog | peers (times slower than Crannog) | aim |\n|---|---|---|---|")
            for line in lines:
                peers = "; ".join(
                    f"{name} {value:,.2f} {line.unit} (**{line.times(name)}**)" for name, value in line.peers.items()
                )
                text.append(f"| {line.what} | {line.ours:,.2f} {line.unit} | {peers} | {line.aim} |")
        return "\n".join(text) + "\n"
