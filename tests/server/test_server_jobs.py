"""Jobs over HTTP, with Spark: their reports, their progress, and that a client that goes away takes them back."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from crannog.api.reports import CompactReport, ErasureReceipt, EvolveReport, ExpireReport, FoldReport
from crannog.spark.session import SparkRuntime
from lakes import read_delta_rs
from servers import in_process, serving
from test_server_routes import ARROW, NOTE, stream_of

NAME = "t.jobs.notes"
TABLE = f"/api/v1/tables/{NAME}"
LINES = {"Accept": "application/x-ndjson"}


def test_a_table_goes_through_all_jobs(spark: SparkRuntime, tmp_path: Path) -> None:
    """Each report reads back as the very dataclass that an embedded connection gives."""
    spark.session()
    with in_process(tmp_path) as (_, ask):
        ask("PUT", TABLE, json={"schema": NOTE, "key": ["id"]})
        ask("POST", f"{TABLE}/rows", json=[{"id": number, "text": "a"} for number in range(100)])
        folded = TypeAdapter(FoldReport).validate_python(ask("POST", f"{TABLE}/fold").json())
        assert (folded.staged_rows, folded.final_rows) == (100, 100)
        ask("POST", f"{TABLE}/delete", json={"keys": [1]})
        lines = [json.loads(line) for line in ask("POST", f"{TABLE}/compact", headers=LINES).text.splitlines()]
        steps = [line["progress"] for line in lines if "progress" in line]
        assert steps
        assert all(0 <= step["share"] <= 1 and step["step"] for step in steps)
        compacted = TypeAdapter(CompactReport).validate_python(lines[-1]["result"])
        assert (compacted.tombstones_applied, compacted.final_rows) == (1, 99)
        erased = ask(
            "POST",
            f"{TABLE}/erase?actor=joe&reason=asked",
            content=stream_of(pa.table({"id": [2, 3]})),
            headers={"Content-Type": ARROW},
        )
        receipt = TypeAdapter(ErasureReceipt).validate_python(erased.json())
        assert (receipt.keys, receipt.actor, receipt.reason) == (2, "joe", "asked")
        assert all(place.after == 0 for place in receipt.places)
        wider = {**NOTE, "properties": {**NOTE["properties"], "more": {"type": "number"}}}  # type: ignore[dict-item]
        evolved = TypeAdapter(EvolveReport).validate_python(
            ask("POST", f"{TABLE}/evolve", json={"schema": wider}).json()
        )
        assert len(evolved.added) == 1
        assert "more" in evolved.added[0]
        tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)
        expired = TypeAdapter(ExpireReport).validate_python(
            ask("POST", f"{TABLE}/expire", json={"before": str(tomorrow)}).json()
        )
        assert (expired.before, expired.rows_kept) == (tomorrow, 0)
        assert len(ask("GET", f"{TABLE}/audit").json()) >= 3
    assert read_delta_rs(tmp_path / "warehouse/t/jobs/notes").num_rows == 0


@pytest.mark.slow
def test_a_job_whose_client_goes_away_is_taken_back(tmp_path: Path) -> None:
    with serving(tmp_path / "warehouse", spark_at_start=True) as server, server.client() as client:
        client.put(TABLE, json={"schema": NOTE, "key": ["id"]})
        for _ in range(600):
            if client.get("/readyz").json()["spark"] == "ready":
                break
            time.sleep(0.2)
        for start in range(0, 1_000_000, 250_000):
            client.post(
                f"{TABLE}/rows",
                content=stream_of(pa.table({"id": range(start, start + 250_000)})),
                headers={"Content-Type": ARROW},
            )
        with pytest.raises(httpx.ReadTimeout):
            client.post(f"{TABLE}/fold", timeout=0.5)
        # Taken back: nothing of it was committed, and the table takes the next fold.
        time.sleep(3)
        assert client.get(TABLE).json()["staged_rows"] == 1_000_000
        with client.stream("POST", f"{TABLE}/fold", headers=LINES) as answer:
            first = next(answer.iter_lines())
            assert json.loads(first) == {} or "progress" in json.loads(first)
        time.sleep(3)
        assert client.get(TABLE).json()["staged_rows"] == 1_000_000
        assert client.post(f"{TABLE}/fold", timeout=300).json()["staged_rows"] == 1_000_000
