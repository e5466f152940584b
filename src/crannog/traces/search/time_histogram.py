"""How spans lie in time: enough to choose a stretch of time that holds about so many of them.

Files are taken to be even between their smallest and largest start, which the log tells; of the staged tail a sample
is looked at. A wrong guess costs a smaller or larger step, never a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from crannog.engine.snapshot import Snapshot

EARLIEST, LATEST = -(2**63), 2**63 - 1
_SAMPLE_SIZE = 512


@dataclass(frozen=True, slots=True)
class TimeBin:
    """Spans that start from `low` to `high`, both included."""

    low: int
    high: int
    rows: int


class TimeHistogram:
    """Where in time the rows are."""

    def __init__(self, stretches: Sequence[TimeBin]) -> None:
        self.low = min((one.low for one in stretches), default=0)
        self.high = max((one.high for one in stretches), default=0)
        changes: dict[int, float] = {}
        for one in stretches:
            density = one.rows / (one.high - one.low + 1)
            changes[one.high + 1] = changes.get(one.high + 1, 0.0) + density
            changes[one.low] = changes.get(one.low, 0.0) - density
        self._changes = sorted(changes.items(), reverse=True)

    def before(self, time: int, rows: int) -> int:
        """Return a time such that about `rows` rows start from it to just before `time`; at the start of all, `EARLIEST`."""
        density, left, at = 0.0, float(rows), min(time, self.high + 1)
        for place, change in self._changes:
            if place < at:
                if density > 0:
                    here = (at - place) * density
                    if here >= left:
                        found = at - max(1, int(left / density))
                        return found if found > self.low else EARLIEST
                    left -= here
                at = place
            density += change
        return EARLIEST


def time_histogram_of(snapshot: Snapshot, files: Sequence[str]) -> TimeHistogram:
    """Look at some files of a base and at the whole tail."""
    return TimeHistogram([*_file_bins(snapshot, set(files)), *_tail_bins(snapshot.tail.rows["start_ns"])])


def _file_bins(snapshot: Snapshot, files: set[str]) -> list[TimeBin]:
    actions = snapshot.base.actions
    if not files or "min" not in actions.column_names:
        return [TimeBin(EARLIEST, LATEST, sum(snapshot.base.files[path].rows for path in files))] if files else []
    lows, highs = (pc.struct_field(actions[name], "start_ns").to_pylist() for name in ("min", "max"))
    return [
        TimeBin(EARLIEST if low is None else low, LATEST if high is None else high, file.rows)
        for low, high, (path, file) in zip(lows, highs, snapshot.base.files.items(), strict=True)
        if path in files
    ]


def _tail_bins(starts: pa.ChunkedArray) -> list[TimeBin]:
    count = len(starts)
    if not count:
        return []
    ends = pc.min_max(starts).as_py()
    step = max(1, count // _SAMPLE_SIZE)
    sample = sorted([ends["min"], *starts.take(pa.array(range(0, count, step), pa.int64())).to_pylist(), ends["max"]])
    share = -(-count // (len(sample) - 1))
    return [TimeBin(low, high, share) for low, high in pairwise(sample)]
