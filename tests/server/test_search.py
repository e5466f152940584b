"""One box that finds anything: by parts of names and beginnings of ids, bounded, and by the caller's rights."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from build_samples import request
from crannog.builds import BuildRequestStatus
from doors import serving_here
from otlp_samples import request_of, span, trace_id
from servers import made_token

SCHEMA = pa.schema([("id", pa.string())])


def test_everything_is_found_by_name_or_id(tmp_path: Path) -> None:
    with serving_here(tmp_path) as server:
        lake = server.service.lake

        def find(text: str, limit: int = 10, **headers: str) -> list[dict[str, Any]]:
            answer = httpx.get(f"{server.url}/api/v1/search", params={"q": text, "limit": limit}, headers=headers)
            assert answer.status_code == 200, answer.text
            found: list[dict[str, Any]] = answer.json()
            return found

        assert find("x") == []
        assert lake.tables() == []  # looking creates nothing
        for name in ("shop.eu.orders", "shop.eu.old_orders", "orders.us.people", "shop.us.items"):
            lake.create_table(name, SCHEMA)
        assert [entry["name"] for entry in find("ORDER")] == [
            "orders.us.people",
            "shop.eu.orders",
            "shop.eu.old_orders",
        ]
        assert len(find("shop", limit=2)) == 2
        lake.traces.write_otlp(request_of(span(1, 1), span(2, 2)).SerializeToString())
        wanted = trace_id(1).hex()
        assert {"kind": "trace", "name": wanted} in find(wanted)
        assert {"kind": "trace", "name": wanted} in find(wanted[:31].upper())
        assert [entry for entry in find(wanted[:7]) if entry["kind"] == "trace"] == []
        [service] = lake.traces.services()
        operation = lake.traces.operations(service)[0]
        assert {"kind": "service", "name": service} in find(service[1:].upper())
        assert {"kind": "operation", "name": operation, "service": service} in find(operation[:3])
        lake.builds.append_event(request("Build-77", BuildRequestStatus.RECEIVED))
        assert [entry["name"] for entry in find("build-7") if entry["kind"] == "build"] == ["Build-77"]
        for hostile in ("'", '"; DROP TABLE x --', "%", "_", "\x00", "\\", "é\u2028", "a" * 200, "{}", "../.."):
            find(hostile)
        for params in ({}, {"q": ""}, {"q": " "}, {"q": "a" * 201}, {"q": "a", "limit": 0}, {"q": "a", "limit": 51}):
            assert httpx.get(f"{server.url}/api/v1/search", params=params).status_code == 400  # type: ignore[arg-type]
        token = made_token(tmp_path / "warehouse", "eu", "read:shop.eu")
        time.sleep(2.1)  # the server reads tokens again
        seen = find("o", Authorization=f"Bearer {token}")
        assert {entry["name"] for entry in seen} == {"shop.eu.orders", "shop.eu.old_orders"}
        assert find(wanted, Authorization=f"Bearer {token}") == []
