"""Tasks that keep running after they were cancelled: Spark stops a task only between rows, or batches of rows.

A task that computes within a batch for hours would block a core for everyone, the pipeline included. In a Java process
of our own the one remedy is a new process; all work that Spark does for us can be repeated.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from crannog.spark.session import SparkRuntime

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
                    runtime.stop()
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
