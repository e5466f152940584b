"""What upkeep has to do for each table, the same embedded and over HTTP, and by the caller's rights."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path

import httpx
import pyarrow as pa

import crannog
from crannog.engine.maintenance.scheduler import run_as_task
from crannog.names import TableName
from doors import serving_here
from servers import made_token

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


def test_backlog_lag_tasks_and_storage_of_each_table(tmp_path: Path) -> None:
    with serving_here(tmp_path) as server, crannog.connect(server.url) as remote:
        lake = server.service.lake
        eu = lake.create_table("shop.eu.people", SCHEMA, key="id")
        lake.create_table("shop.us.people", SCHEMA)
        assert [entry["lag_s"] for entry in lake.upkeep()] == [0.0, 0.0]
        before = dt.datetime.now(dt.UTC)
        eu.append([{"id": "a", "n": 1}])
        time.sleep(0.05)
        [entry] = remote.upkeep(["shop.eu.people"])
        assert (entry["staged_rows"], entry["base_rows"], entry["storage"], entry["tasks"]) == (1, 0, None, [])
        assert 0.04 < entry["lag_s"] < 60
        assert entry["oldest_staged_at"] is not None
        assert entry["rows"] == 1
        assert before <= dt.datetime.fromisoformat(entry["changed_at"]) <= dt.datetime.now(dt.UTC)
        eu.fold()
        eu.upsert([{"id": "a", "n": 2}])
        eu.fold()
        [entry] = remote.upkeep(["shop.eu.people"], storage=True)
        assert (entry["staged_rows"], entry["base_rows"], entry["lag_s"], entry["rows"]) == (0, 1, 0.0, 1)
        assert before <= dt.datetime.fromisoformat(entry["changed_at"]) <= dt.datetime.now(dt.UTC)
        assert entry["storage"]["pending_files"] == 1
        assert entry["storage"]["base_bytes"] == entry["base_bytes"] > 0
        assert entry["storage"]["log_bytes"] > 0
        run_as_task(lake.operations.control, TableName.parse("shop.eu.people"), "vacuum", lambda: {"seconds": 1.5})
        first, second = remote.upkeep()
        assert (first["name"], second["name"], second["tasks"]) == ("shop.eu.people", "shop.us.people", [])
        [task] = first["tasks"]
        assert (task["kind"], task["status"], task["failures"], task["seconds"]) == ("vacuum", "idle", 0, 1.5)
        assert [first, second] == lake.upkeep()
        page = httpx.get(f"{server.url}/metrics").text
        assert 'crannog_base_bytes{table="shop.eu.people"}' in page
        assert 'crannog_fold_lag_seconds{table="shop.eu.people"} 0.0' in page
        token = {"Authorization": f"Bearer {made_token(tmp_path / 'warehouse', 'eu', 'read:shop.eu')}"}
        time.sleep(2.1)  # the server reads tokens again
        address = f"{server.url}/api/v1/upkeep"
        assert [entry["name"] for entry in httpx.get(address, headers=token).json()] == ["shop.eu.people"]
        assert httpx.get(address, params={"name": "shop.us.people"}, headers=token).status_code == 403
        assert httpx.get(address, params={"name": "x"}, headers=token).status_code == 400
