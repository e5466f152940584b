"""The same code on a standalone cluster and through Spark Connect, each started here on loopback."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from crannog.settings import Settings
from crannog.spark.java import find_java

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SPARK_HOME = Path(pyspark.__file__).parent
# In a process of its own: this one has the Spark of the run.
WORK = """
import json, sys
import pyarrow as pa
import crannog
from crannog.errors import TimedOut

settings, location = json.loads(sys.argv[1]), sys.argv[2]
with crannog.connect(location, **settings) as lake:
    table = lake.create_table("a.b.c", pa.schema([("id", pa.int64()), ("x", pa.string())]), key=["id"])
    table.upsert([{"id": n, "x": f"x{n}"} for n in range(1000)])
    assert table.fold().final_rows == 1000
    table.upsert([{"id": 1, "x": "new"}])
    table.delete([2])
    assert lake.sql("SELECT count(*) AS n FROM a.b.c", engine="spark").rows() == [{"n": 999}]
    found = lake.sql("SELECT id, x FROM a.b.c WHERE id < 4 ORDER BY id", engine="spark")
    assert found.to_arrow().equals(lake.sql("SELECT id, x FROM a.b.c WHERE id < 4 ORDER BY id", engine="local").to_arrow())
    assert table.compact().final_rows == 999
    assert table.erase([5]).rows_erased == 1
    try:
        lake.sql("SELECT max(id % 7) AS m FROM range(100000000000000)", timeout_s=3)
        raise AssertionError("it ended by itself")
    except TimedOut:
        pass
    assert lake.sql("SELECT count(*) AS n FROM a.b.c", engine="spark").rows() == [{"n": 998}], "cancelled work made way"
    with lake.stream("SELECT id FROM a.b.c ORDER BY id", engine="spark") as stream:
        assert [n for batch in stream for n in batch["id"].to_pylist()][:3] == [0, 1, 3]
    assert location not in str(lake.explain("SELECT count(*) AS n FROM a.b.c", engine="spark"))
print("done")
"""

# With a wrong secret, or none, nothing is done, and the caller hears so.
REFUSED = """
import json, sys
from crannog.errors import Unavailable
from crannog.spark.session import spark_runtime, translated
from crannog.settings import Settings

try:
    spark_runtime(Settings(**json.loads(sys.argv[1]))).session().range(10).count()
except Exception as error:
    assert isinstance(translated(error), Unavailable), repr(error)
    print("done")
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(folder: Path, name: str, *command: str, port: int | None = None, **more: str) -> Iterator[None]:
    """Run a part of Spark, with more environment variables, until the test ends; where it listens, wait for that."""
    java = find_java(Settings())
    env = {
        **os.environ,
        **more,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_HOME": str(java.executable.parent.parent),
        "SPARK_HOME": str(SPARK_HOME),
    }
    with open(folder / f"{name}.log", "wb") as log:
        started = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 90
        while port is not None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert started.poll() is None, (folder / f"{name}.log").read_text()[-2000:]
            assert time.monotonic() < deadline, (folder / f"{name}.log").read_text()[-2000:]
            time.sleep(0.2)
        yield
    finally:
        started.terminate()
        started.wait(30)


def do_work(folder: Path, program: str = WORK, variables: dict[str, str] | None = None, **settings: object) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(settings), str(folder / "warehouse")],
        cwd=folder,
        env={**os.environ, **(variables or {})},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr[-3000:]


def secret_file(folder: Path, name: str) -> tuple[str, Path]:
    """A new secret, and the file it is in, which only we can read."""
    file = folder / name
    file.touch(mode=0o600)
    secret = secrets.token_hex(32)
    file.write_text(secret)
    return secret, file


def test_a_standalone_cluster(tmp_path: Path) -> None:
    port = free_port()
    spark_class = str(SPARK_HOME / "bin" / "spark-class")
    secret, file = secret_file(tmp_path, "secret")
    _, wrong = secret_file(tmp_path, "wrong")
    # As the documentation says: in a properties file of the cluster's own, not on a command line.
    properties = tmp_path / "cluster.conf"
    properties.touch(mode=0o600)
    properties.write_text(
        f"spark.authenticate true\nspark.authenticate.secret {secret}\nspark.network.crypto.enabled true\n"
    )
    with ExitStack() as running:
        deploy, at = (
            "org.apache.spark.deploy",
            ("--host", "127.0.0.1", "--webui-port", "0", "--properties-file", str(properties)),
        )
        running.enter_context(
            process(tmp_path, "master", spark_class, f"{deploy}.master.Master", *at, "--port", str(port), port=port)
        )
        running.enter_context(
            process(
                tmp_path,
                "worker",
                spark_class,
                f"{deploy}.worker.Worker",
                *at,
                "--cores",
                "2",
                "--memory",
                "2g",
                f"spark://127.0.0.1:{port}",
            )
        )
        cluster = {"spark_master": f"spark://127.0.0.1:{port}", "spark_memory_mb": 1024, "spark_python": sys.executable}
        do_work(tmp_path, **cluster, spark_secret_file=str(file))
        do_work(tmp_path, REFUSED, **cluster, spark_secret_file=str(wrong), spark_start_timeout_s=200)
    for log in tmp_path.glob("*.log"):
        assert secret not in log.read_text(), log.name


def test_spark_connect(tmp_path: Path) -> None:
    port = free_port()
    token = secrets.token_hex(32)
    command = [
        str(SPARK_HOME / "bin" / "spark-submit"),
        "--master",
        "local[2]",
        "--conf",
        "spark.driver.memory=1g",
        "--conf",
        f"spark.connect.grpc.binding.port={port}",
        "--conf",
        "spark.connect.grpc.binding.address=127.0.0.1",
        "--conf",
        "spark.ui.enabled=false",
        "--conf",
        "spark.authenticate=true",
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "spark-internal",
    ]
    # PySpark sends a token without TLS only to a host that is called localhost.
    address = f"sc://localhost:{port}"
    python = {"PYSPARK_PYTHON": sys.executable}
    with process(tmp_path, "connect", *command, port=port, SPARK_CONNECT_AUTHENTICATE_TOKEN=token, **python):
        do_work(tmp_path, spark_remote=address, variables={"SPARK_CONNECT_AUTHENTICATE_TOKEN": token})
        do_work(tmp_path, REFUSED, spark_remote=address, spark_start_timeout_s=200)
