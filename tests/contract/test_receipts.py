"""Receipts of erasures: kept, listed and found by id, one for several tables, and only for those who may read them."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

import crannog
from crannog.errors import CallerError, NotFound
from doors import serving_here
from otlp_samples import request_of, span, trace_id
from servers import made_token

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


def test_one_receipt_for_several_tables_and_traces(tmp_path: Path) -> None:
    with serving_here(tmp_path) as server, crannog.connect(server.url) as remote:
        lake = server.service.lake
        for name in ("shop.eu.people", "shop.us.people"):
            lake.create_table(name, SCHEMA, key="id").append([{"id": "ann-7f3", "n": 1}, {"id": "bob", "n": 2}])
        lake.traces.write_otlp(request_of(span(1, 1)).SerializeToString())
        assert remote.receipts() == []
        with pytest.raises(NotFound, match="no receipt"):
            remote.receipt("case-7")
        for bad in ("../x", "a/b", "", "x" * 65, "-a"):
            if bad:
                with pytest.raises(CallerError, match="the id of an erasure"):
                    remote.table("shop.eu.people").erase(["ann-7f3"], erasure_id=bad)
        first = lake.table("shop.eu.people").erase(["ann-7f3"], "clerk", "asked", erasure_id="case-7")
        assert first.erasure_id == "case-7"
        remote.table("shop.us.people").erase(["ann-7f3"], "clerk", "asked", erasure_id="case-7")
        remote.traces.erase([trace_id(1).hex()], actor="clerk", reason="asked", erasure_id="case-7")
        alone = lake.table("shop.eu.people").erase(["bob"])
        found = remote.receipt("case-7")
        assert found == lake.receipt("case-7")
        assert found["tables"] == ["shop.eu.people", "shop.us.people", "crannog.traces.spans"]
        assert (found["keys"], found["rows_erased"], found["found_after"], found["actor"]) == (3, 3, 0, "clerk")
        assert [part["table"] for part in found["receipts"]] == found["tables"]
        assert "ann-7f3" not in str(found)
        assert [entry["erasure_id"] for entry in lake.receipts()] == [alone.erasure_id, "case-7"]
        assert len(remote.receipts(limit=1)) == 1
        folder = tmp_path / "warehouse"
        headers, other = (
            {"Authorization": f"Bearer {made_token(folder, name, scope)}"}
            for name, scope in (("eu", "read:shop.eu"), ("none", "read:other"))
        )
        time.sleep(2.1)  # the server reads tokens again
        seen = httpx.get(f"{server.url}/api/v1/receipts/case-7", headers=headers).json()
        assert (seen["tables"], seen["rows_erased"]) == (["shop.eu.people"], 1)
        assert httpx.get(f"{server.url}/api/v1/receipts", headers=other).json() == []
        assert httpx.get(f"{server.url}/api/v1/receipts/case-7", headers=other).status_code == 404
