"""A stand-in for Spark in the jobs of the trace store: its tasks run in this process.

What they do, and what is read, verified and committed, is the real code.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from crannog.engine import spark_files
from crannog.engine.columnar.parquet_files import by_partition, sorted_by
from forcing import ArrowFrame, stand_in_for_spark


def stand_in_for_all(patch: pytest.MonkeyPatch) -> None:
    """Let no job of the trace store need Spark."""
    stand_in_for_spark(patch)
    patch.setattr(spark_files, "write_files", _write_files)
    patch.setattr(spark_files, "newest_of_each", _newest_of_each)


def _write_files(
    rows: ArrowFrame, storage: Any, folder: str, _base: Any, *, sort_by: Sequence[str], **_: Any
) -> list[str]:
    place = Path(storage.uri(f"{folder}/0"))
    place.mkdir(parents=True)
    paths = []
    for part in by_partition(rows.table, ["partition_date"]):
        name = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
        pq.write_table(sorted_by(part, sort_by), place / name, compression="zstd", store_schema=False)
        paths.append(f"{folder}/0/{name}")
    return paths


def _newest_of_each(rows: ArrowFrame, distinct_by: Sequence[str], newest_by: Sequence[str]) -> ArrowFrame:
    order = pc.sort_indices(rows.table.select(list(newest_by)), [(name, "descending") for name in newest_by])
    ordered = rows.table.take(order)
    seen: set[tuple[Any, ...]] = set()
    first = []
    for entry in ordered.select(list(distinct_by)).to_pylist():
        key = tuple(entry.values())
        first.append(key not in seen)
        seen.add(key)
    return ArrowFrame(ordered.filter(pa.array(first, pa.bool_())))
