"""An estimate of how many spans start when: enough to choose a time range with about a given number of them.

The spans of a file are assumed to start evenly between the earliest and latest start in the log's statistics; the
staged tail is sampled. A wrong estimate makes a step smaller or larger, and never changes a result.
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
    """The number of rows by start, from bins that may overlap."""

    def __init__(self, bins: Sequence[TimeBin]) -> None:
        self.low = min((time_bin.low for time_bin in bins), default=0)
        self.high = max((time_bin.high for time_bin in bins), default=0)
        changes: dict[int, float] = {}
        for time_bin in bins:
            density = time_bin.rows / (time_bin.high - time_bin.low + 1)
            changes[time_bin.high + 1] = changes.get(time_bin.high + 1, 0.0) + density
            changes[time_bin.low] = changes.get(time_bin.low, 0.0) - density
        self._density_changes = sorted(changes.items(), reverse=True)

    def range_start(self, end: int, rows: int) -> int:
        """Return a time from which to `end`, excluded, about `rows` rows start; `EARLIEST` if there are fewer."""
        density, remaining, time = 0.0, float(rows), min(end, self.high + 1)
        for change_time, change in self._density_changes:
            if change_time < time:
                if density > 0:
                    rows_between = (time - change_time) * density
                    if rows_between >= remaining:
                        start = time - max(1, int(remaining / density))
                        return start if start > self.low else EARLIEST
                    remaining -= rows_between
                time = change_time
            density += change
        return EARLIEST


def time_histogram_of(snapshot: Snapshot, files: Sequence[str]) -> TimeHistogram:
    """Return the histogram of some files of a base and of the whole tail."""
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
