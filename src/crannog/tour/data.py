"""What the steps of the demo share: generated data, the state of the tour, and a timer."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from crannog.embedded import EmbeddedLake, EmbeddedTable

ORDERS, READINGS = "shop.eu.orders", "ops.plant.readings"
TIMES = 50
ROWS = 1_000
THREADS, CALLS = 16, 100
ORDER = [
    pa.field("order_id", pa.string(), nullable=False),
    pa.field("customer", pa.string()),
    pa.field("quantity", pa.int32()),
    pa.field("amount", pa.decimal128(12, 2)),
    pa.field("ordered_at", pa.timestamp("us", "UTC")),
]
READING = pa.schema([("sensor_id", pa.string()), ("value", pa.float64()), ("at", pa.timestamp("us", "UTC"))])
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Tour:
    """The state that the steps share."""

    def __init__(self, lake: EmbeddedLake, folder: Path) -> None:
        self.lake, self.folder = lake, folder

    @property
    def orders(self) -> EmbeddedTable:
        return self.lake.table(ORDERS)

    @property
    def readings(self) -> EmbeddedTable:
        return self.lake.table(READINGS)

    @property
    def orders_folder(self) -> Path:
        return self.folder / ORDERS.replace(".", "/")


def order(number: int, **changes: Any) -> dict[str, Any]:
    """Return a generated order."""
    made = {
        "order_id": f"order-{number:06}",
        "customer": f"customer {number % 997}",
        "quantity": number % 9 + 1,
        "amount": f"{number % 500}.{number % 100:02}",
        "ordered_at": START + dt.timedelta(seconds=number),
    }
    return made | changes


def reading(number: int) -> dict[str, Any]:
    """Return a generated reading."""
    return {
        "sensor_id": f"sensor-{number % 40:02}",
        "value": number % 1000 / 8,
        "at": START + dt.timedelta(milliseconds=number),
    }


def took(work: Callable[[], Any]) -> float:
    """Return the duration of a call in milliseconds."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000
