"""Guards a Java process of our own: it must answer, end what callers have given up, and keep to its disk space.

What runs inside a call to Spark's driver (planning, folding of constants) cannot be interrupted. Its caller gives it up at
its deadline; it goes on in the background until there is too much of that, or it takes too long. The one remedy is then, as
for a process that stands still, a new process: all work that Spark does for us can be repeated.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from crannog.errors import Cancelled, CrannogError, Overloaded
from crannog.spark.jvm import Jvm, processor_ticks

log = logging.getLogger("crannog.spark")
T = TypeVar("T")

MOST_ABANDONED = 4
# Some work takes a moment to end after it was interrupted.
_COUNTS_AFTER_S = 3.0
ABANDONED_S = 30.0
# A process that uses no processor time stands still; one that does may only be collecting garbage.
STILL_S, SILENT_S = 15.0, 90.0
_TICK_S = 0.5
_PING_EVERY_S = 2.0
_DISK_EVERY_S = 2.0
# How long ended work may take to give its files back, with a garbage collection, before the next step.
_DISK_PATIENCE_S = 15.0


@dataclass(eq=False)
class Work:
    """Work that runs on Spark now: when it began, how to interrupt it, and the error that it then raises."""

    name: str
    interrupt: Callable[[], object]
    since: float = field(default_factory=time.monotonic)
    error: CrannogError | None = None

    def end(self, error: CrannogError) -> None:
        """Interrupt it in the background; the caller gets `error`."""
        self.error = error
        threading.Thread(target=self._interrupt, name="crannog-end", daemon=True).start()

    def _interrupt(self) -> None:
        with contextlib.suppress(Exception):  # Spark may be gone
            self.interrupt()


class Guard:
    """Watches one Java process in a thread of its own until the process ends. Thread-safe."""

    def __init__(
        self, jvm: Jvm, session: Any, temp_bytes: int, *, replace: Callable[[str], object], ended: Callable[[], object]
    ) -> None:
        self._jvm = jvm
        self._ended = ended
        self._context = session.sparkContext
        self._temp_bytes = temp_bytes
        self._replace = replace
        self._lock = threading.Lock()
        self._abandoned: dict[threading.Thread, float] = {}
        self._running: set[Work] = set()
        self._answered_at = time.monotonic()
        self._still_since = (0, self._answered_at)
        self._disk_at = self._over_since = 0.0
        self.is_stopped = False
        """Whether the process lives but its Spark context was stopped."""

    def start(self) -> None:
        for target, name in ((self._watch, "crannog-spark-guard"), (self._ping, "crannog-spark-ping")):
            threading.Thread(target=target, name=name, daemon=True).start()

    @contextlib.contextmanager
    def working(self, work: Work) -> Iterator[None]:
        """Register work while a block runs; if the guard ends it, the block raises the guard's error."""
        with self._lock:
            self._running.add(work)
        try:
            yield
        except Exception as error:
            if work.error is not None:
                raise work.error from error
            raise
        finally:
            with self._lock:
                self._running.discard(work)

    def abandon(self, thread: threading.Thread) -> None:
        """Count work that its caller has given up and that goes on in a thread."""
        with self._lock:
            self._abandoned[thread] = time.monotonic()

    @property
    def abandoned(self) -> int:
        """How much work that was given up still runs."""
        with self._lock:
            return sum(thread.is_alive() for thread in self._abandoned)

    # -- watching ----------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while self._jvm.alive:
            try:
                reason = self._too_much_abandoned() or self._silence() or self._disk()
            except Exception as error:  # the process may end meanwhile
                log.debug("the guard of Spark failed: %s", error)
                reason = None
            if reason:
                self._replace(reason)
                return
            time.sleep(_TICK_S)
        self._ended()

    def _too_much_abandoned(self) -> str | None:
        now = time.monotonic()
        with self._lock:
            self._abandoned = {thread: at for thread, at in self._abandoned.items() if thread.is_alive()}
            ages = [now - at for at in self._abandoned.values()]
        if sum(age > _COUNTS_AFTER_S for age in ages) >= MOST_ABANDONED:
            return f"{len(ages)} statements that ran into their time limit do not end"
        if ages and max(ages) > ABANDONED_S:
            return f"a statement has not ended {max(ages):.0f} s after its time limit"
        return None

    def _silence(self) -> str | None:
        now = time.monotonic()
        silent_s = now - self._answered_at
        if silent_s < 2 * _PING_EVERY_S:
            self._still_since = (0, now)
            return None
        spent = processor_ticks(self._jvm.process.pid)
        if spent != self._still_since[0]:
            self._still_since = (spent, now)
        still_s = now - self._still_since[1]
        if (silent_s > STILL_S and still_s > STILL_S - 2 * _PING_EVERY_S) or silent_s > SILENT_S:
            return f"its Java process has not answered for {silent_s:.0f} s"
        return None

    def _ping(self) -> None:
        """Ask the process, again and again, whether its context runs; a process that stands still never answers."""
        while self._jvm.alive:
            try:
                self.is_stopped = bool(self._context._jsc.sc().isStopped())
            except Exception:
                if self._context._jsc is None:  # stopped from Python
                    self.is_stopped = True
                    return
            self._answered_at = time.monotonic()
            time.sleep(_PING_EVERY_S)

    def _disk(self) -> str | None:
        """End the longest statement, or else the longest job, while the temporary files take too much space."""
        now = time.monotonic()
        if not self._temp_bytes or now - self._disk_at < _DISK_EVERY_S:
            return None
        self._disk_at = now
        size = folder_bytes(self._jvm.folder)
        if size <= self._temp_bytes:
            self._over_since = 0.0
            return None
        if self._over_since and now - self._over_since < _DISK_PATIENCE_S:
            return None
        shown = f"Spark's temporary files take {size // 1024**2:,} MiB, more than spark_temp_mb"
        with self._lock:
            works = sorted(self._running, key=lambda work: (not work.name.startswith("crannog-query-"), work.since))
        if not works and self._over_since:
            return f"{shown}, and nothing runs that could give them back"
        self._over_since = now
        if works:
            log.warning("%s; ending %s, which runs longest", shown, works[0].name)
            works[0].end(
                Overloaded(f"{shown}; this was ended because it ran longest. Narrow it, or raise spark_temp_mb")
            )
        # Spark deletes the files of ended work when Java collects what names them.
        threading.Thread(target=self._collect_garbage, name="crannog-spark-gc", daemon=True).start()
        return None

    def _collect_garbage(self) -> None:
        time.sleep(1.0)
        with contextlib.suppress(Exception):
            self._context._jvm.java.lang.System.gc()


def run_abandonable(
    work: Callable[[], T],
    *,
    is_cancelled: Callable[[], bool],
    abandon: Callable[[threading.Thread], object],
    grace_s: float = 1.0,
) -> T:
    """Run work in a thread and return its result, or raise its error.

    Once it is cancelled it has `grace_s` to end by itself; then it is given up, and this raises Cancelled.
    """
    outcome: dict[str, Any] = {}
    done = threading.Event()

    def run() -> None:
        try:
            outcome["result"] = work()
        except BaseException as error:
            outcome["error"] = error
        finally:
            done.set()

    thread = threading.Thread(
        target=contextvars.copy_context().run, args=(run,), name="crannog-spark-work", daemon=True
    )
    thread.start()
    while not done.wait(0.1):
        if is_cancelled() and not done.wait(grace_s):
            abandon(thread)
            raise Cancelled("the work was given up and goes on in the background")
    if "error" in outcome:
        raise outcome["error"]
    result: T = outcome["result"]
    return result


def folder_bytes(folder: Path) -> int:
    """Return the disk space of the files in a folder."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # deleted meanwhile
                size += Path(place, name).stat().st_blocks * 512
    return size
