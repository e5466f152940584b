"""The Java process that runs Spark: starting it, checking that it is alive, ending it, also when its tasks do not end.

It prints nothing to the terminal, ignores the terminal's Ctrl-C, and exits by itself when its Python process is
gone, because its standard input then closes.

Spark stops a cancelled task only between rows, or batches of rows. A task that computes within a batch for hours would
block a core for everyone, the pipeline included. In a Java process of our own the one remedy is a new process; all work
that Spark does for us can be repeated.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crannog.errors import Unavailable
from crannog.spark.java import JavaHome
from crannog.storage import scratch_folders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from crannog.spark.session import SparkRuntime

CONF = Path(__file__).parent / "conf"
_EXIT_TIMEOUT_S = 5.0


@dataclass(slots=True)
class Jvm:
    """A running Java process with Spark's gateway in it, and its scratch folder."""

    process: subprocess.Popen[bytes]
    folder: Path
    gateway: Any = None
    out_of_memory: str = ""
    """What the process said when it ran out of memory; empty if it did not."""

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def end(self) -> None:
        """End the process, by force if it does not exit within a few seconds, and remove its scratch folder."""
        if self.gateway is not None:
            with contextlib.suppress(Exception):
                self.gateway.close()
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.ran_out_of_memory()
        scratch_folders.remove(self.folder)

    def set_nice(self, nice: int) -> None:
        """Change the priority of the process and of Spark's tasks in Python; without the right to raise it, nothing happens."""
        waiting = [self.process.pid]
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.process.pid}/autogroup").write_text(str(nice))
        while waiting:
            tasks = Path(f"/proc/{waiting.pop()}/task")
            with contextlib.suppress(OSError):  # ended meanwhile
                for task in tasks.iterdir():
                    os.setpriority(os.PRIO_PROCESS, int(task.name), nice)
                    waiting += map(int, (task / "children").read_text(encoding="ascii").split())

    def ran_out_of_memory(self) -> bool:
        """Tell whether the process ended, or is about to end, because it had too little memory."""
        if not self.out_of_memory:
            with contextlib.suppress(OSError):
                text = (self.folder / "output").read_text(encoding="utf-8", errors="replace")
                found = re.search(r"^Terminating due to java\.lang\.OutOfMemoryError.*$", text, re.MULTILINE)
                self.out_of_memory = found[0] if found else ""
        return bool(self.out_of_memory)

    def failure_line(self) -> str:
        """Return the line of the process's output that explains its failure."""
        try:
            lines = (self.folder / "output").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return "it printed nothing"
        messages = [
            line.strip()
            for line in lines
            if line.strip() and not line.startswith(("\tat ", "WARNING: Using incubator"))
        ]
        failures = [line for line in messages if "rror" in line or "Exception" in line]
        return (failures or messages or ["it printed nothing"])[0][:300]


class Patience:
    """Waits for a process as long as it makes progress: on a busy machine Java may take minutes to start."""

    def __init__(self, pid: int, timeout_s: float) -> None:
        self._pid = pid
        self._timeout_s = timeout_s
        self._since = time.monotonic()
        self._spent = processor_ticks(pid)

    def is_over(self) -> bool:
        """Tell whether the time is up and the process has used no processor time since the last check at its end."""
        if time.monotonic() - self._since <= self._timeout_s:
            return False
        spent = processor_ticks(self._pid)
        if spent <= self._spent:
            return True
        self._since, self._spent = time.monotonic(), spent
        return False


def processor_ticks(pid: int) -> int:
    """Return the processor time of a process in ticks; 0 where the system does not tell."""
    try:
        parts = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return int(parts[11]) + int(parts[12])
    except (OSError, ValueError, IndexError):
        return 0


_newest: deque[Jvm] = deque(maxlen=1)


def was_out_of_memory() -> bool:
    """Tell whether the newest Java process of ours ran out of memory."""
    return bool(_newest) and _newest[0].ran_out_of_memory()


def _lower_priority(nice: int) -> None:
    """Lower the priority of this thread; processes it starts inherit the priority."""
    if sys.platform == "linux":  # elsewhere a priority applies to the whole process
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)


def launch(
    java: JavaHome,
    spark_home: Path,
    folder: Path,
    conf: Mapping[str, str],
    *,
    nice: int,
    timeout_s: float,
    cancelled: Callable[[], bool],
    launched: Callable[[Jvm], object],
) -> None:
    """Start Spark's gateway process, pass it to `launched`, and connect to it. Raises Unavailable if that fails.

    `nice` lowers its priority, and that of the calling thread, on a busy machine.
    """
    connection_file = folder / "gateway"
    _lower_priority(nice)
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            _command(spark_home, conf),
            env=_environment(java, spark_home, conf, connection_file),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            # PySpark's own launcher forks Python code into the child, which may deadlock when there are other threads.
            start_new_session=True,
        )
    # Where Linux divides the processors among sessions first, priorities apply only within a session.
    with contextlib.suppress(OSError):
        Path(f"/proc/{process.pid}/autogroup").write_text(str(nice))
    jvm = Jvm(process, folder)
    _newest.append(jvm)
    launched(jvm)
    try:
        patience = Patience(process.pid, timeout_s)
        while not connection_file.is_file():
            if not jvm.alive:
                raise Unavailable(f"Spark's Java process ended at start: {jvm.failure_line()}")
            if cancelled():
                raise Unavailable("Spark was stopped while it started")
            if patience.is_over():
                raise Unavailable(f"Spark's Java process did not answer within {timeout_s:g} s and does nothing")
            time.sleep(0.02)
        jvm.gateway = _connect(connection_file.read_bytes())
        connection_file.unlink()
    except BaseException:
        process.kill()  # the caller of this function removes what it left
        raise


def _command(spark_home: Path, conf: Mapping[str, str]) -> list[str]:
    options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    return [str(spark_home / "bin" / "spark-submit"), *options, "pyspark-shell"]


def _environment(java: JavaHome, spark_home: Path, conf: Mapping[str, str], connection_file: Path) -> dict[str, str]:
    env = {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(spark_home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file),
    }
    if conf.get("spark.driver.bindAddress"):
        env["SPARK_LOCAL_IP"] = conf["spark.driver.bindAddress"]
    return env


def _connect(address: bytes) -> Any:
    """Connect to the gateway at `address`: its port and the length of its secret, four bytes each, and the secret."""
    from pyspark.java_gateway import launch_gateway

    port, length = struct.unpack_from("!ii", address)
    theirs = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": address[8 : 8 + length].decode()}
    # The documented way to use a running gateway; the secret is removed from the environment at once.
    os.environ.update(theirs)
    try:
        return launch_gateway()
    finally:
        for name in theirs:
            del os.environ[name]


STUCK_AFTER_S = 10.0
# What Spark reports about its tasks is up to about ten seconds old.
_WATCH_S = 30.0
_POLL_INTERVAL_S = 0.5
_watching = threading.Lock()


def watch(runtime: SparkRuntime, session: SparkSession) -> None:
    """After a cancellation, check in the background that its tasks end, and stop Spark if they do not."""
    if not runtime.owns(session):
        return  # on a cluster spark.task.reaper does this

    def check() -> None:
        if not _watching.acquire(blocking=False):
            return
        try:
            with suppress(Exception):  # the Java process may be gone
                if _stays_stuck(session) and runtime.owns(session):
                    runtime.replace("tasks of a cancelled statement do not end")
        finally:
            _watching.release()

    threading.Thread(target=check, name="crannog-stuck", daemon=True).start()


def _stays_stuck(session: Any) -> bool:
    began = time.monotonic()
    since: float | None = None
    while (now := time.monotonic()) - began < _WATCH_S or since is not None:
        since = (since or now) if _stuck(session) else None
        if since is not None and now - since >= STUCK_AFTER_S:
            return True
        time.sleep(_POLL_INTERVAL_S)
    return False


def _stuck(session: Any) -> int:
    """Return the number of running tasks that no longer belong to a stage."""
    context = session.sparkContext
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    wanted = sum(stage.numActiveTasks for stage in stages if stage is not None)
    running = sum(executor.numRunningTasks() for executor in context._jsc.sc().statusTracker().getExecutorInfos())
    return max(int(running) - int(wanted), 0)
