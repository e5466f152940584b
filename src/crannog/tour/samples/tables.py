"""Tables of a shop: with keys and without, changed rows, deletes that are not folded yet."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from crannog.embedded import EmbeddedLake

_ORDERS = "shop.sales.orders"
_TOWNS = ("Berlin", "Cork", "Göteborg", "Lyon", "Utrecht", "Łódź")
_STATES = ("paid", "paid", "paid", "sent", "sent", "returned")
_ORDER = pa.schema(
    [
        pa.field("order_id", pa.string(), nullable=False),
        ("customer_id", pa.int64()),
        ("state", pa.string()),
        ("items", pa.int32()),
        ("amount", pa.decimal128(12, 2)),
        ("ordered_at", pa.timestamp("us", "UTC")),
        ("note", pa.string()),
    ]
)
_CUSTOMER = pa.schema(
    [
        pa.field("customer_id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("email", pa.string()),
        ("town", pa.string()),
        ("since", pa.date32()),
        ("newsletter", pa.bool_()),
    ]
)
_READING = pa.schema(
    [
        ("sensor", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("celsius", pa.float64()),
        ("humidity", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)


def fill_tables(lake: EmbeddedLake, dice: random.Random, rows: int, now_ns: int) -> None:
    """Create the tables and write to them."""
    now = dt.datetime.fromtimestamp(now_ns / 1e9, dt.UTC)
    lake.create_table("shop.sales.customers", _CUSTOMER, key="customer_id")
    lake.create_table(_ORDERS, _ORDER, key="order_id")
    lake.create_table("ops.warehouse.readings", _READING)
    lake.create_table("ops.warehouse.incidents", pa.schema([("at", pa.timestamp("us", "UTC")), ("what", pa.string())]))
    people = [_customer(dice, number, now) for number in range(1, rows // 10 + 1)]
    lake.table("shop.sales.customers").append(pa.Table.from_pylist(people, _CUSTOMER))
    orders = lake.table(_ORDERS)
    made = [_order(dice, number, rows, now) for number in range(rows)]
    orders.append(pa.Table.from_pylist(made, _ORDER))
    orders.upsert([{**row, "state": "returned", "note": "came back"} for row in dice.sample(made, rows // 100)])
    orders.delete([row["order_id"] for row in dice.sample(made, 5)])
    lake.table("ops.warehouse.readings").append(
        pa.Table.from_pylist([_reading(dice, number, now) for number in range(rows * 2)], _READING)
    )


def change_orders(lake: EmbeddedLake, dice: random.Random) -> None:
    """Change some orders and delete a few, as a day of business does."""
    orders = lake.table(_ORDERS)
    numbers = [f"O-{dice.randint(1, 900):06}" for _ in range(30)]
    known = ", ".join(f"'{number}'" for number in numbers)
    found = lake.sql(f"SELECT * EXCEPT (_created_at, _batch_id) FROM {_ORDERS} WHERE order_id IN ({known})").rows()
    orders.upsert([{**row, "state": "sent", "note": "changed by the demo"} for row in found[5:]])
    orders.delete([row["order_id"] for row in found[:5]])


def _customer(dice: random.Random, number: int, now: dt.datetime) -> dict[str, Any]:
    return {
        "customer_id": number,
        "name": f"Customer {number}",
        "email": f"customer-{number}@shop.example",
        "town": dice.choice(_TOWNS),
        "since": (now - dt.timedelta(days=dice.randint(1, 2_000))).date(),
        "newsletter": dice.random() < 0.4,
    }


def _order(dice: random.Random, number: int, rows: int, now: dt.datetime) -> dict[str, Any]:
    return {
        "order_id": f"O-{number + 1:06}",
        "customer_id": dice.randint(1, max(1, rows // 10)),
        "state": dice.choice(_STATES),
        "items": dice.randint(1, 9),
        "amount": Decimal(f"{dice.lognormvariate(4, 0.8):.2f}"),
        "ordered_at": now - dt.timedelta(minutes=(rows - number) * 3),
        "note": "gift wrap" if dice.random() < 0.05 else None,
    }


def _reading(dice: random.Random, number: int, now: dt.datetime) -> dict[str, Any]:
    return {
        "sensor": f"hall-{number % 8 + 1}",
        "at": now - dt.timedelta(seconds=number * 5),
        "celsius": round(18 + (number % 8) * 0.4 + dice.gauss(0, 1.2), 2),
        "humidity": None if dice.random() < 0.02 else round(45 + dice.gauss(0, 6), 1),
        "tags": ["indoor"] if number % 3 else ["indoor", "calibrated"],
    }
