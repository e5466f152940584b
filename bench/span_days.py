"""More days of spans than are worth sending: copies of the first day, with ids of their own, appended and folded."""

from __future__ import annotations

import hashlib

import duckdb

from crannog.embedded import EmbeddedLake

_DAY_NS = 86_400 * 10**9
_COPY = """
WITH renamed AS (SELECT * REPLACE (md5(hex(trace_id) || '-{day}') AS trace_id) FROM spans)
SELECT * REPLACE (
    unhex(trace_id) AS trace_id,
    (('0x' || trace_id[1:16])::UBIGINT::HUGEINT - if(trace_id[1] >= '8', 18446744073709551616, 0))::BIGINT AS trace_hi,
    start_time + INTERVAL {day} DAY AS start_time, end_time + INTERVAL {day} DAY AS end_time,
    start_ns + {ns} AS start_ns, end_ns + {ns} AS end_ns, start_minute + {day} * 1440 AS start_minute,
    (partition_date + INTERVAL {day} DAY)::DATE AS partition_date
)
FROM renamed
"""
_AT_ONCE = 250_000


def copied_id(trace_id: bytes, day: int) -> bytes:
    """Return the id that a trace of the first day has in the copy of a later one; 0 is the first."""
    return hashlib.md5(f"{trace_id.hex().upper()}-{day}".encode()).digest() if day else trace_id


def add_days(lake: EmbeddedLake, name: str, last: int, *, first: int = 1) -> None:
    """Append the spans of the first day again as the days from `first` to `last`, and fold each; the first day is 0."""
    table = lake.table(name)
    columns = ", ".join(f"`{each['name']}`" for each in table.describe()["columns"] if not each["name"].startswith("_"))
    first_day = f"(SELECT min(partition_date) FROM {name})"
    spans = lake.sql(f"SELECT {columns} FROM {name} WHERE partition_date = {first_day}", max_rows=5_000_000).to_arrow()
    with duckdb.connect() as files:
        files.execute("SET TimeZone = 'UTC'")
        files.register("spans", spans)
        for day in range(first, last + 1):
            rows = files.sql(_COPY.format(day=day, ns=day * _DAY_NS)).to_arrow_table()
            for start in range(0, rows.num_rows, _AT_ONCE):
                table.append(rows.slice(start, _AT_ONCE))
            table.fold()
