"""Rewrites by columns: what the tasks read, sort and write, and how the work is divided. The files are read by pyarrow."""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crannog.engine.columnar.parquet_files import (
    ARROW_SUFFIX,
    FileLayout,
    RowRange,
    arrow_file,
    by_partition,
    sorted_by,
)
from crannog.engine.columnar.plans import GroupStart, group_starts, in_files, split_by_rows, starts_of_sorted
from crannog.engine.columnar.tasks import NotBefore, QueryResult, Relation, SortedFile, Source, TaskContext, WithoutKeys
from crannog.storage.local import LocalStorage

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("word", pa.string()),
        ("x", pa.float64()),
        ("day", pa.date32()),
        ("tags", pa.map_(pa.string(), pa.string())),
    ]
)


def layout(**changes: object) -> FileLayout:
    options = {
        "schema": SCHEMA,
        "partition_by": (),
        "sort_by": ("n", "word"),
        "sort_units": {},
        "row_group_rows": 100,
        "compression": "zstd",
        "compression_level": 3,
        "delta_encoded": True,
        "without_dictionary": frozenset({"word"}),
        "bloom_fpp": {"word": 0.01},
    }
    return FileLayout(**{**options, **changes})  # type: ignore[arg-type]


def rows(numbers: list[int | None]) -> pa.Table:
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "word": [f"w{number}" for number in numbers],
            "x": [float(number or 0) for number in numbers],
            "day": [dt.date(2026, 1, 1 + (number or 0) % 2) for number in numbers],
            "tags": [[("k", str(number))] for number in numbers],
        },
        schema=SCHEMA,
    )


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    (tmp_path / "out").mkdir()
    return LocalStorage(tmp_path)


def context(storage: LocalStorage, **changes: object) -> TaskContext:
    return TaskContext(storage.uri(""), {}, layout(**changes))


def put(storage: LocalStorage, name: str, table: pa.Table, group: int = 100) -> str:
    if name.endswith(ARROW_SUFFIX):
        Path(storage.uri(name)).write_bytes(arrow_file(table))
    else:
        pq.write_table(table, storage.uri(name), row_group_size=group)
    return name


def written(storage: LocalStorage, task: SortedFile | QueryResult, **changes: object) -> list[pa.Table]:
    files = task.run(context(storage, **changes))
    tables = [pq.read_table(storage.uri(file.path), partitioning=None) for file in files]
    assert [table.num_rows for table in tables] == [file.rows for file in files]
    return tables


def test_rows_of_several_files_are_sorted_into_one(storage: LocalStorage) -> None:
    paths = (put(storage, "a.parquet", rows([5, None, 1])), put(storage, "b.parquet", rows([4, 2, 3])))
    [table] = written(storage, SortedFile("out", (Source(paths),)))
    assert table["n"].to_pylist() == [None, 1, 2, 3, 4, 5]
    assert table["tags"].to_pylist()[5] == [("k", "5")]


def test_within_a_unit_rows_are_sorted_by_the_next_column() -> None:
    """Units of ten numbers; in each of them, the words w1 and w12 come before w2 and w9."""
    found = sorted_by(rows([12, 2, 1, None, 20, 9]), ("n", "word"), {"n": 10})
    assert found["n"].to_pylist() == [None, 1, 2, 9, 12, 20]
    assert sorted_by(rows([19, 110, 11]), ("n", "word"), {"n": 100})["n"].to_pylist() == [11, 19, 110]
    assert sorted_by(rows([19, 110, 11]), ("n", "word"), {"n": 1000})["n"].to_pylist() == [11, 110, 19]


def test_ranges_divide_the_rows_whatever_they_are(storage: LocalStorage) -> None:
    numbers: list[int | None] = [None, *range(1000), 7, 7, 7]
    path = put(storage, "a.parquet", rows(numbers), group=50)
    starts = group_starts(storage, [path], ("n", "word"))
    ranges = split_by_rows(starts, 120)
    assert len(ranges) > 5
    apart = [written(storage, SortedFile("out", (Source((path,)),), (each,))) for each in ranges]
    found = [n for tables in apart for table in tables for n in table["n"].to_pylist()]
    assert sorted(found, key=_nulls_first) == sorted(numbers, key=_nulls_first)
    [together] = written(storage, SortedFile("out", (Source((path,)),), tuple(ranges)))
    assert together["n"].to_pylist() == sorted(numbers, key=_nulls_first)


def _nulls_first(number: int | None) -> int:
    return -1 if number is None else number


def test_row_groups_are_full_but_for_the_last(storage: LocalStorage) -> None:
    path = put(storage, "a.parquet", rows(list(range(1000))), group=50)
    ranges = split_by_rows(group_starts(storage, [path], ("n",)), 130)
    [file] = SortedFile("out", (Source((path,)),), tuple(ranges)).run(context(storage))
    metadata = pq.ParquetFile(storage.uri(file.path)).metadata
    assert [metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)] == [100] * 10
    chunk = metadata.row_group(0).column(1)
    assert chunk.bloom_filter_offset is not None
    assert chunk.has_column_index
    assert metadata.row_group(0).column(0).encodings == ("RLE", "DELTA_BINARY_PACKED")


def test_columns_with_nan_have_no_bounds(storage: LocalStorage) -> None:
    """Bounds leave out NaN, which Spark sorts after every number: readers would skip rows that match."""
    table = rows([1, 2, 3]).set_column(2, "x", pa.array([1.0, math.nan, 3.0]))
    for name, given, has_bounds in (("a.parquet", rows([1, 2, 3]), True), ("b.parquet", table, False)):
        [file] = SortedFile("out", (Source((put(storage, name, given),)),)).run(context(storage))
        statistics = pq.ParquetFile(storage.uri(file.path)).metadata.row_group(0).column(2).statistics
        assert (statistics is not None and statistics.has_min_max) is has_bounds


def test_conditions_leave_rows_out(storage: LocalStorage) -> None:
    path = put(storage, "a.parquet", rows(list(range(10))))
    keys = put(storage, "keys.arrow", pa.table({"n": pa.array([3, 4, 99], pa.int64())}))
    [table] = written(storage, SortedFile("out", (Source((path,), WithoutKeys(keys)),)))
    assert table["n"].to_pylist() == [0, 1, 2, 5, 6, 7, 8, 9]
    pairs = put(storage, "pairs.arrow", pa.table({"n": pa.array([3, 5], pa.int64()), "word": ["w3", "other"]}))
    [table] = written(storage, SortedFile("out", (Source((path,), WithoutKeys(pairs)),)))
    assert table["n"].to_pylist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    old = NotBefore("day", dt.date(2026, 1, 2), {}, {"word": ["w0", "w2"]})
    [table] = written(storage, SortedFile("out", (Source((path,), old),)))
    assert table["n"].to_pylist() == [0, 1, 2, 3, 5, 7, 9]
    everything = put(storage, "all.arrow", pa.table({"n": pa.array(range(10), pa.int64())}))
    assert written(storage, SortedFile("out", (Source((path,), WithoutKeys(everything)),))) == []
    assert list((storage.root / "out").glob("*.tmp")) == []


def test_rows_of_the_process_are_read_in_ranges_like_those_of_files(storage: LocalStorage) -> None:
    numbers = list(range(100_000))
    given = pa.concat_tables([rows(numbers[start : start + 30_000]) for start in range(0, 100_000, 30_000)])
    path = put(storage, "given.arrow", given)
    assert Path(storage.uri(path)).stat().st_size < given.nbytes
    ranges = (RowRange(None, (50_000,)), RowRange((50_000,), None))
    [table] = written(storage, SortedFile("out", (Source((path,)),), ranges))
    assert table["n"].to_pylist() == numbers
    [table] = written(
        storage, SortedFile("out", (Source((put(storage, "none.arrow", rows([1]).slice(1)), path)),), ranges[:1])
    )
    assert table.num_rows == 50_000


def test_columns_that_a_file_lacks_are_null_and_others_are_cast(storage: LocalStorage) -> None:
    path = put(storage, "a.parquet", pa.table({"n": pa.array([2, 1], pa.int32())}))
    [table] = written(storage, SortedFile("out", (Source((path,)),)))
    assert table.schema.field("n").type == pa.int64()
    assert table["n"].to_pylist() == [1, 2]
    assert table["word"].to_pylist() == [None, None]


def test_a_query_over_a_file_that_was_deleted_says_so(storage: LocalStorage) -> None:
    there = put(storage, "there.parquet", rows([1]))
    relation = Relation("given", (there, "gone.parquet"), SCHEMA)
    with pytest.raises(FileNotFoundError, match=r"gone\.parquet"):
        written(storage, QueryResult("out", "SELECT * FROM given", (relation,)))


def test_a_query_writes_one_file_for_each_partition(storage: LocalStorage) -> None:
    relation = Relation("given", (put(storage, "a.parquet", rows(list(range(10)))),), SCHEMA)
    nothing = Relation("nothing", (), SCHEMA)
    query = QueryResult("out", "SELECT * FROM given WHERE n > 2 UNION ALL SELECT * FROM nothing", (relation, nothing))
    first, second = sorted(written(storage, query, partition_by=("day",)), key=lambda table: table["day"][0].as_py())
    assert (first["n"].to_pylist(), second["n"].to_pylist()) == ([4, 6, 8], [3, 5, 7, 9])


def test_a_failed_task_leaves_no_file(storage: LocalStorage) -> None:
    path = put(storage, "a.parquet", rows([1, 2]))
    with pytest.raises(FileNotFoundError):
        SortedFile("out", (Source((path, "gone.parquet")),)).run(context(storage))
    assert list((storage.root / "out").iterdir()) == []


def test_partitions_of_nulls_and_values(storage: LocalStorage) -> None:
    table = pa.table({"p": ["a", None, "b", "a", None], "q": [1, 1, 1, 2, None]})
    parts = by_partition(table, ["p", "q"])
    assert sorted(part.num_rows for part in parts) == [1, 1, 1, 1, 1]
    assert sum(part.num_rows for part in by_partition(table, ["p"])) == 5
    assert by_partition(table.slice(0, 0), ["p"]) == []


def test_work_is_divided_in_order() -> None:
    starts = [GroupStart((place,), 10) for place in (3, 1, 2, 2, 5)]
    ranges = split_by_rows(starts, 20)
    assert ranges == [RowRange(None, (2,)), RowRange((2,), (5,)), RowRange((5,), None)]
    assert in_files(ranges, 2) == [(ranges[0], ranges[1]), (ranges[2],)]
    assert split_by_rows([], 10) == [RowRange(None, None)]
    ordered = rows(sorted(range(1000)))
    assert sum(start.rows for start in starts_of_sorted(ordered, ("n",))) == 1000
