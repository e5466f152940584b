"""Bloom filters in memory: they never leave out a file that has the id, and leave out nearly all that have not."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crannog.engine.duckdb import bloom_filters
from crannog.engine.duckdb.bloom_filters import BloomFilters


def written(
    folder: Path, name: str, ids: list[bytes], *, options: str = "ROW_GROUP_SIZE 2048, DICTIONARY_SIZE_LIMIT 100000"
) -> str:
    """Write ids by another writer than the one whose filters are read in production: the format must be Parquet's, not Spark's."""
    path = str(folder / name)
    with duckdb.connect() as connection:
        connection.register("given", pa.table({"n": pa.array(range(len(ids))), "trace_id": pa.array(ids, pa.binary())}))
        connection.execute(f"COPY (SELECT * FROM given) TO '{path}' (FORMAT parquet, {options})")
    return path


def ids(count: int, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(16) for _ in range(count)]


def test_what_is_there_passes_and_little_else(tmp_path: Path) -> None:
    files = {written(tmp_path, f"{seed}.parquet", ids(10_000, seed)): ids(10_000, seed) for seed in range(4)}
    assert all(pq.ParquetFile(path).metadata.row_group(0).column(1).bloom_filter_length for path in files)
    known = BloomFilters("trace_id")
    for path, there in files.items():
        assert all(path in known.may_contain(list(files), value)[0] for value in there[::50])
    false = sum(len(known.may_contain(list(files), value)[0]) for value in ids(1_000, 99))
    assert false < 4_000 * 0.2, f"{false} of 4,000 looks found what is not there"
    (tmp_path / "0.parquet").unlink()
    assert known.may_contain(list(files), files[str(tmp_path / "0.parquet")][0]) == (
        [str(tmp_path / "0.parquet")],
        2048,
    ), "read once"


def test_many_ids_pass_where_one_of_them_does(tmp_path: Path) -> None:
    files = {written(tmp_path, f"{seed}.parquet", ids(5_000, seed)): ids(5_000, seed) for seed in range(4)}
    plain = str(tmp_path / "plain.parquet")
    pq.write_table(pa.table({"trace_id": pa.array(ids(10, 1), pa.binary())}), plain)
    paths = [*files, plain]
    known = BloomFilters("trace_id")
    chance = random.Random(5)
    for _ in range(50):
        wanted = [chance.choice([*ids(5_000, chance.randrange(6))]) for _ in range(chance.randrange(1, 6))]
        expected = {path for value in wanted for path in known.may_contain(paths, value)[0]}
        found = known.row_ranges(paths, wanted)
        assert list(found) == [path for path in paths if path in expected]
        assert found.pop(plain) is None
        for path, ranges in found.items():
            assert ranges
            assert all(before[1] < after[0] for before, after in pairwise(ranges)), "neighbours are one range"
            places = [place for place, value in enumerate(files[path]) if value in wanted]
            assert all(any(start <= place < end for start, end in ranges) for place in places)


def test_a_file_without_filters_may_hold_anything(tmp_path: Path) -> None:
    plain = str(tmp_path / "plain.parquet")
    pq.write_table(pa.table({"trace_id": pa.array(ids(10, 1), pa.binary())}), plain)
    other = str(tmp_path / "other.parquet")
    pq.write_table(pa.table({"x": [1]}), other)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 not really PAR1")
    paths = [plain, other, str(broken), str(tmp_path / "gone.parquet")]
    assert BloomFilters("trace_id").may_contain(paths, bytes(16)) == (paths, None)


def test_the_limit_lets_go_of_files_that_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [written(tmp_path, f"{seed}.parquet", ids(5_000, seed)) for seed in range(3)]
    known = BloomFilters("trace_id")
    known.may_contain(paths[:1], bytes(16))
    one = known._bytes
    assert one > 0
    monkeypatch.setattr(bloom_filters, "_LIMIT_BYTES", 2 * one + one // 2)
    known.may_contain(paths, bytes(16))
    assert known._bytes == 2 * one
    assert known.may_contain(paths, bytes(16)) == ([paths[2]], None), "what is not kept may hold anything"
    known.may_contain(paths[1:], bytes(16))
    assert known.may_contain(paths[1:], ids(5_000, 1)[7])[0][0] == paths[1]
    fresh = written(tmp_path, "fresh.parquet", ids(5_000, 9))
    assert known.may_contain([paths[1], fresh], ids(5_000, 9)[7])[0] == [fresh]
    assert set(known._filters) == {paths[1], fresh}, "the file that is no longer asked for made way"
