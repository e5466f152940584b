"""The memory of DuckDB: what is set for queries, and what hot tables take in addition."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from crannog.embedded import EmbeddedLake as Lake
from crannog.errors import CallerError
from crannog.settings import Settings

NAME = "a.b.c"
MIB = 1024**2


def limit_mb(lake: Lake) -> float:
    with lake.operations.warehouse.duckdb.cursor() as cursor:
        [[text]] = cursor.execute("SELECT current_setting('memory_limit')").fetchall()
    found = re.fullmatch(r"([\d.]+) (MiB|GiB)", text)
    assert found, text
    return float(found[1]) * (1024 if found[2] == "GiB" else 1)


def test_the_limit_is_the_one_that_is_set_and_hot_tables_come_on_top(tmp_path: Path) -> None:
    with Lake(str(tmp_path), settings=Settings(local_memory_mb=64, local_temp_mb=0, cache_bytes=512 * MIB)) as lake:
        table = lake.create_table(NAME, pa.schema([("n", pa.int64()), ("s", pa.string())]))
        table.append(pa.table({"n": range(400_000), "s": [f"{n:0200}" for n in range(400_000)]}))
        assert limit_mb(lake) == 64
        with pytest.raises(CallerError, match="Out of Memory"):
            lake.sql(f"SELECT max(r) FROM (SELECT s, row_number() OVER (ORDER BY s DESC) r FROM {NAME}) WHERE s > '0'",
                     engine="local")  # fmt: skip
        lake.cache.pin(NAME)
        taken = lake.cache.stats()["bytes"] / MIB
        assert taken > 16
        assert 64 + taken - 1 <= limit_mb(lake) <= 64 + taken + 64
        lake.cache.evict(NAME)
        assert limit_mb(lake) <= 64 + 64
