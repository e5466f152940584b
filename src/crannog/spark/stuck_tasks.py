"""Tasks that go on after they were cancelled: Spark asks a task to stop only between rows, or batches of rows.

One that computes within a batch for hours would keep a core from everybody, the pipeline included. In a Java process of
our own there is one remedy, a new process; all work that Spark does for us can be done again.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from crannog.spark.session import SparkRuntime

PATIENCE_S = 10.0
# What Spark tells of its tasks is up to some ten seconds old.
_WATCH_S = 30.0
_LOOK_EVERY_S = 0.5
_watching = threading.Lock()


def watch(runtime: SparkRuntime, session: SparkSession) -> None:
    """After a cancellation, look in the background whether its tasks end, and start Spark anew if they do not."""
    if not runtime.owns(session):
        return  # a cluster has its own means: spark.task.reaper

    def look() -> None:
        if not _watching.acquire(blocking=False):
            return
        try:
            with suppress(Exception):  # the Java process may be gone
                if _stays_stuck(session) and runtime.owns(session):
                    runtime.stop()
        finally:
            _watching.release()

    threading.Thread(target=look, name="crannog-stuck", daemon=True).start()


def _stays_stuck(session: Any) -> bool:
    began = time.monotonic()
    since: float | None = None
    while (now := time.monotonic()) - began < _WATCH_S or since is not None:
        since = (since or now) if _stuck(session) else None
        if since is not None and now - since >= PATIENCE_S:
            return True
        time.sleep(_LOOK_EVERY_S)
    return False


def _stuck(session: Any) -> int:
    """Return how many tasks run that belong to no stage any more."""
    context = session.sparkContext
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    wanted = sum(stage.numActiveTasks for stage in stages if stage is not None)
    running = sum(executor.numRunningTasks() for executor in context._jsc.sc().statusTracker().getExecutorInfos())
    return max(int(running) - int(wanted), 0)
