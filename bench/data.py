"""The rows of the benchmarks: orders (keyed) and spans, made up with a fixed seed."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa

ORDERS = pa.schema(
    [
        ("order_id", pa.string()),
        ("customer_id", pa.string()),
        ("product", pa.string()),
        ("region", pa.string()),
        ("quantity", pa.int64()),
        ("price", pa.float64()),
        ("discount", pa.float64()),
        ("paid", pa.bool_()),
        ("ordered_at", pa.timestamp("us", "UTC")),
        ("note", pa.string()),
    ]
)
COLUMNS = ORDERS.names
_START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def orders(count: int, *, first: int = 0) -> pa.Table:
    """Return `count` orders with the ids from `first` on."""
    random = np.random.default_rng(first)
    numbers = np.arange(first, first + count)
    return pa.table(
        [
            pa.array([f"order-{number:012d}" for number in numbers]),
            pa.array([f"customer-{number:07d}" for number in random.integers(0, 1_000_000, count)]),
            pa.array(random.choice(["lamp", "chair", "table", "shelf", "rug"], count)),
            pa.array(random.choice(["eu", "us", "apac"], count)),
            pa.array(random.integers(1, 100, count)),
            pa.array(random.random(count) * 100),
            pa.array(random.random(count)),
            pa.array(random.random(count) < 0.5),
            pa.array(_START.timestamp() * 1e6 + numbers * 1000.0).cast(pa.int64()).cast(pa.timestamp("us", "UTC")),
            pa.array([f"note {number}" for number in random.integers(0, 10_000, count)]),
        ],
        schema=ORDERS,
    )


def order_rows(count: int, *, first: int = 0) -> list[dict[str, Any]]:
    return orders(count, first=first).to_pylist()


SPANS = pa.schema(
    [
        ("trace_id", pa.string()),
        ("span_id", pa.string()),
        ("parent_span_id", pa.string()),
        ("service_name", pa.string()),
        ("span_name", pa.string()),
        ("span_kind", pa.string()),
        ("start_time", pa.timestamp("us", "UTC")),
        ("end_time", pa.timestamp("us", "UTC")),
        ("duration_ns", pa.int64()),
        ("status_code", pa.int32()),
        ("attributes", pa.map_(pa.string(), pa.string())),
        ("search_blob", pa.string()),
    ]
)


def spans(count: int, *, first: int = 0) -> pa.Table:
    """Return `count` spans, ten to a trace, four attributes each."""
    random = np.random.default_rng(first)
    numbers = np.arange(first, first + count)
    traces = [f"{number // 10 * 2654435761 % 2**64:016x}{number // 10:016x}" for number in numbers.tolist()]
    ids = [f"{number:016x}" for number in numbers.tolist()]
    starts = (_START.timestamp() * 1e6 + numbers * 50.0).astype("int64")
    lengths = random.integers(1_000, 10_000_000, count)
    services = random.choice([f"service-{n}" for n in range(20)], count)
    names = random.choice([f"GET /resource/{n}" for n in range(200)], count)
    keys = np.tile(["http.method", "http.status_code", "user.id", "region"], count)
    values = random.choice([f'"value-{n}"' for n in range(5_000)], count * 4)
    return pa.table(
        [
            pa.array(traces),
            pa.array(ids),
            pa.array([f"{number - number % 10:016x}" for number in numbers]),
            pa.array(services),
            pa.array(names),
            pa.array(random.choice(["SERVER", "CLIENT", "INTERNAL"], count)),
            pa.array(starts).cast(pa.timestamp("us", "UTC")),
            pa.array(starts + lengths // 1000).cast(pa.timestamp("us", "UTC")),
            pa.array(lengths),
            pa.array(random.integers(0, 3, count), pa.int32()),
            pa.MapArray.from_arrays(np.arange(0, count * 4 + 1, 4), pa.array(keys), pa.array(values)),
            pa.array([f"|{service}| |{name}|" for service, name in zip(services, names, strict=True)]),
        ],
        schema=SPANS,
    )
