"""Metric points from histograms of durations: counts, rates, averages, and quantiles from fixed buckets.

A bucket is at most 1/32 of its lowest value wide, and a quantile is the middle of its bucket, so its error is at most
1.6 %, no matter how the histogram was merged. Below 64 ns it is exact.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa

from crannog.api.traces import MetricPoint
from crannog.engine.duckdb.engine import DuckDBEngine
from crannog.engine.snapshot import read
from crannog.traces.metric_query import GroupKey
from crannog.traces.query_scope import scoped_cursor
from crannog.traces.times import Step

QUANTILES = {"p50_ns": Decimal("0.5"), "p95_ns": Decimal("0.95"), "p99_ns": Decimal("0.99")}
VALUES = ("span_count", "error_count", "duration_s", "duration_rest_ns", "min_ns", "max_ns")
_NS_PER_S = 10**9
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def bucket_middle(bucket: int) -> int:
    """Return the middle of a duration bucket, in nanoseconds."""
    if bucket < 64:
        return bucket
    shift = bucket // 32 - 1
    low = (bucket - 32 * shift) << shift
    return low + ((1 << shift) - 1) // 2


def merged_histograms(
    engine: DuckDBEngine,
    histograms: Sequence[pa.Table],
    groups: Sequence[str],
    limit: int,
    extra_quantiles: Sequence[Decimal] = (),
) -> pa.Table:
    """Return up to `limit` rows, one for each `begin` and group, sorted, with the bucket of each quantile.

    The buckets of `extra_quantiles` are in the columns q0, q1, ….
    """
    keys = ", ".join(["begin", *groups])
    sums = ", ".join(f"sum({name}) AS {name}" for name in VALUES[:4])
    shares = [*QUANTILES.items(), *((f"q{number}", share) for number, share in enumerate(extra_quantiles))]
    quantiles = ", ".join(
        # The nearest rank: the lowest bucket at which at least this share of the spans is reached.
        f"min(bucket) FILTER (up_to * {part.denominator} >= total * {part.numerator}) AS {name}"
        for name, part in ((name, Fraction(share)) for name, share in shares)
    )
    query = (
        f"WITH buckets AS (SELECT {keys}, bucket, {sums}, min(min_ns) AS min_ns, max(max_ns) AS max_ns FROM histogram"
        f" GROUP BY {keys}, bucket),"
        f" cumulated AS (SELECT *, sum(span_count) OVER (PARTITION BY {keys}) AS total,"
        f" sum(span_count) OVER (PARTITION BY {keys} ORDER BY bucket) AS up_to FROM buckets)"
        f" SELECT {keys}, {', '.join(f'sum({name})::VARCHAR AS {name}' for name in VALUES[:4])},"
        f" min(min_ns) AS min_ns, max(max_ns) AS max_ns, {quantiles} FROM cumulated GROUP BY {keys}"
        f" ORDER BY {keys} LIMIT {limit}"
    )
    with scoped_cursor(engine, {"histogram": pa.concat_tables(histograms)}) as cursor:
        return read(cursor, query)


def metric_points(
    rows: pa.Table, groups: Mapping[str, GroupKey], step: Step, start_ns: int | None, end_ns: int | None
) -> list[MetricPoint]:
    """Return the points of merged rows; `groups` are the group keys by column."""
    points = []
    extra = [name for name in rows.column_names if name.startswith("q")]
    for row in rows.to_pylist():
        begin, end = row["begin"] * _NS_PER_S, step.end(row["begin"]) * _NS_PER_S
        within = min(end, end_ns if end_ns is not None else end) - max(
            begin, start_ns if start_ns is not None else begin
        )
        count, errors, seconds_sum, rest_ns = (int(row[name]) for name in VALUES[:4])
        quantiles = {
            name: max(row["min_ns"], min(bucket_middle(row[name]), row["max_ns"])) for name in (*QUANTILES, *extra)
        }
        points.append(
            MetricPoint(
                start=_EPOCH + dt.timedelta(seconds=row["begin"]),
                seconds=within / _NS_PER_S,
                group={group.name: group.display_value(row[column]) for column, group in groups.items()},
                count=count,
                rate=count * _NS_PER_S / within,
                errors=errors,
                error_rate=errors / count,
                avg_ns=(seconds_sum * _NS_PER_S + rest_ns) / count,
                **{name: quantiles[name] for name in QUANTILES},
                quantiles_ns=tuple(quantiles[name] for name in extra),
            )
        )
    return points
