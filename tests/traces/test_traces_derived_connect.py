"""The derived tables through Spark Connect: the same queries, in a server of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from test_clusters import SPARK_HOME, free_port, process

pytestmark = pytest.mark.slow

# In a process of its own: this one has the Spark of the run.
WORK = """
import json, sys
sys.path.insert(0, sys.argv[3])
from lakes import opened
from span_samples import NOON, Sent, body, counted, derived_by_hand, stored
from crannog.settings import Settings
from local_traces import LocalTraces

with opened(Settings(warehouse=sys.argv[2], **json.loads(sys.argv[1]))) as lake:
    traces = LocalTraces(lake.operations.warehouse, lake.operations.tables)
    requests = [[Sent(1, 1, attributes={"n": 1}), Sent(1, 2, 1, "api"), Sent(2, 1)], [Sent(1, 1, attributes={"n": 1})]]
    for request in requests:
        traces.write_otlp(body(request))
    traces.derive()
    assert stored(lake) == derived_by_hand(counted(requests))
    requests.append([Sent(1, 3, 2, "db", start=NOON + 1), Sent(2, 1, name="renamed")])
    traces.write_otlp(body(requests[-1]))
    assert traces.derive().days_anew["red"] == 1
    assert stored(lake) == derived_by_hand(counted(requests))
print("done")
"""


@pytest.mark.timeout(900)
def test_the_pipeline_runs_through_spark_connect(tmp_path: Path) -> None:
    port = free_port()
    command = [
        str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]", "--conf", "spark.driver.memory=1g",
        "--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.connect.grpc.binding.address=127.0.0.1", "--conf", "spark.ui.enabled=false",
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal",
    ]  # fmt: skip
    with process(tmp_path, "connect", *command, port=port):
        done = subprocess.run(
            [sys.executable, "-c", WORK, json.dumps({"spark_remote": f"sc://127.0.0.1:{port}"}), str(tmp_path / "warehouse"), str(Path(__file__).parents[1] / "support")],
            cwd=tmp_path, capture_output=True, text=True, timeout=800, check=False,
        )  # fmt: skip
    assert done.stdout == "done\n", done.stderr[-3000:]
