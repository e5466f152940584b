"""The peer of the HTTP server: the least that keeps rows in SQLite behind FastAPI. Run with the file and the port."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import threading
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response

COLUMNS = (
    "order_id",
    "customer_id",
    "product",
    "region",
    "quantity",
    "price",
    "discount",
    "paid",
    "ordered_at",
    "note",
)


def make(file: str) -> FastAPI:
    connection = sqlite3.connect(file, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"CREATE TABLE IF NOT EXISTS orders ({COLUMNS[0]} PRIMARY KEY, {', '.join(COLUMNS[1:])})")
    one_at_a_time = threading.Lock()
    app = FastAPI()

    def keep(rows: list[dict[str, Any]]) -> None:
        marks = ", ".join(f":{name}" for name in COLUMNS)
        with one_at_a_time, connection:
            connection.executemany(f"INSERT OR REPLACE INTO orders VALUES ({marks})", rows)

    def find(order_id: str) -> list[Any]:
        with one_at_a_time:
            return connection.execute("SELECT * FROM orders WHERE order_id = ?", (order_id,)).fetchall()

    @app.post("/rows")
    async def append(request: Request) -> Response:
        rows = json.loads(await request.body())
        await asyncio.to_thread(keep, rows)
        return Response(json.dumps({"rows": len(rows)}), media_type="application/json")

    @app.get("/rows/{order_id}")
    async def read(order_id: str) -> Response:
        return Response(json.dumps(await asyncio.to_thread(find, order_id)), media_type="application/json")

    return app


if __name__ == "__main__":
    uvicorn.run(make(sys.argv[1]), port=int(sys.argv[2]), log_level="error")
