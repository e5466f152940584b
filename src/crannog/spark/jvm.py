"""The Java process that runs Spark: how it is started, told apart from a dead one, and ended.

It talks to nobody's terminal, ignores the terminal's Ctrl-C, and ends by itself when its Python is
gone, because its standard input then closes.
"""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crannog.errors import Unavailable
from crannog.spark.java import JavaFound
from crannog.storage import scratch_folders

CONF = Path(__file__).parent / "conf"
_GRACE_S = 5.0


@dataclass(slots=True)
class Jvm:
    """A running Java process with Spark's gateway in it, and its scratch folder."""

    process: subprocess.Popen[bytes]
    folder: Path
    gateway: Any = None

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def end(self) -> None:
        """End the process, by force if it does not go in a few seconds, and remove its scratch folder."""
        if self.gateway is not None:
            with contextlib.suppress(Exception):
                self.gateway.close()
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        scratch_folders.remove(self.folder)

    def last_words(self) -> str:
        """Return what the process said of its failure, in one line."""
        try:
            lines = (self.folder / "output").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return "it said nothing"
        told = [
            line.strip()
            for line in lines
            if line.strip() and not line.startswith(("\tat ", "WARNING: Using incubator"))
        ]
        telling = [line for line in told if "rror" in line or "Exception" in line]
        return (telling or told or ["it said nothing"])[0][:300]


def _step_back(nice: int) -> None:
    """Lower the priority of this thread, which whatever it starts then has."""
    if sys.platform == "linux":  # elsewhere a priority is the whole process's
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)


def launch(
    java: JavaFound,
    spark_home: Path,
    folder: Path,
    conf: Mapping[str, str],
    *,
    nice: int,
    timeout_s: float,
    cancelled: Callable[[], bool],
) -> Jvm:
    """Start Spark's gateway process and connect to it; Unavailable says why it could not be.

    `nice` is how far it steps back where processors are short. The calling thread steps back with it.
    """
    told = folder / "gateway"
    command = [str(spark_home / "bin" / "spark-submit")]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    env = {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(spark_home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
    }
    if conf.get("spark.driver.bindAddress"):
        env["SPARK_LOCAL_IP"] = conf["spark.driver.bindAddress"]
    _step_back(nice)
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [*command, "pyspark-shell"],
            env=env,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            # PySpark's own launcher forks Python code into the child, which may deadlock beside other threads.
            start_new_session=True,
        )
    # Where Linux shares the processors among sessions first, priorities count only inside each.
    with contextlib.suppress(OSError):
        Path(f"/proc/{process.pid}/autogroup").write_text(str(nice))
    jvm = Jvm(process, folder)
    try:
        deadline = time.monotonic() + timeout_s
        while not told.is_file():
            if not jvm.alive:
                raise Unavailable(f"Spark's Java process ended at start: {jvm.last_words()}")
            if cancelled():
                raise Unavailable("Spark was stopped while it started")
            if time.monotonic() > deadline:
                raise Unavailable(f"Spark's Java process did not answer within {timeout_s:g} s")
            time.sleep(0.02)
        jvm.gateway = _connect(told.read_bytes())
        told.unlink()
    except BaseException:
        process.kill()
        jvm.end()
        raise
    return jvm


def _connect(told: bytes) -> Any:
    """Connect to the gateway that wrote its port and secret: two numbers of four bytes, the second a length."""
    from pyspark.java_gateway import launch_gateway

    port, length = struct.unpack_from("!ii", told)
    theirs = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": told[8 : 8 + length].decode()}
    # The documented way to use a gateway that runs already; the secret leaves the environment at once.
    os.environ.update(theirs)
    try:
        return launch_gateway()
    finally:
        for name in theirs:
            del os.environ[name]
