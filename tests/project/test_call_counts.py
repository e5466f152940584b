"""How long the common paths are, in named calls inside the package and in modules: they do not grow unnoticed."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa

import crannog
from build_samples import partition
from call_counts import counted_calls
from crannog.builds import PartitionStatus, open_log

WARM = 40


def test_one_row_appended_in_the_process(tmp_path: Path) -> None:
    with crannog.connect(str(tmp_path)) as lake:
        lake.create_table("a.b.c", pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())]))
        table = lake.table("a.b.c")

        def append() -> None:
            table.append([{"id": 1, "name": "x", "amount": 1.0}])

        for _ in range(WARM):
            append()
        found = min(counted_calls(append) for _ in range(5))
    assert found.calls <= 70
    assert found.modules <= 18


def test_one_build_event_appended_to_a_delta_log(tmp_path: Path) -> None:
    with open_log(f"delta://{tmp_path}") as log:
        events = (partition("b", f"p{number}", PartitionStatus.BUILDING) for number in itertools.count())
        for _ in range(WARM):
            log.append_event(next(events))
        found = min(counted_calls(lambda event=event: log.append_event(event)) for event in itertools.islice(events, 5))
    assert found.calls <= 120
    assert found.modules <= 28
