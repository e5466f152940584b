"""The one Spark session of this process: started in the background, and restarted when its Java process died.

Only Spark jobs wait for it. If it cannot run, they raise `Unavailable` with what to do.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crannog.errors import CrannogError, Unavailable, needed_for
from crannog.settings import Settings
from crannog.spark import configuration, jars
from crannog.spark.configuration import secret_conf
from crannog.spark.errors import shortened, translated
from crannog.spark.guard import Guard, Work
from crannog.spark.java import find_java
from crannog.spark.jvm import Jvm, Patience, launch
from crannog.storage import scratch_folders
from crannog.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("crannog.spark")

__all__ = ["SparkRuntime", "in_pool", "interruptible", "spark_runtime", "translated"]


_END_TIMEOUT_S = 10
_STOP_TIMEOUT_S = 3.0
# Before there is a process, a start may be loading jars; if we exit then, no process is left.
_UNSTARTED_TIMEOUT_S = 1.5
_CHECK_EVERY_S = 0.2
# An incident is reported for this long.
_INCIDENT_S = 900.0
# PySpark keeps its session in class attributes: one start or end at a time touches them.
_pyspark_state = threading.RLock()


class _Start:
    """One attempt to start Spark, and its outcome."""

    def __init__(self, *, with_s3: bool, storage: Mapping[str, str]) -> None:
        self.with_s3 = with_s3
        self.storage = dict(storage)
        self.done = threading.Event()
        self.cancelled = False
        self.ending = False
        self.session: Any = None
        self.jvm: Jvm | None = None
        self.guard: Guard | None = None
        self.error: CrannogError | None = None
        self.seconds = 0.0
        self.began_at = time.time()
        self.nice: int | None = None

    def alive(self) -> bool:
        """Return whether the session can be used, as far as is known without a call to Java, which may never answer."""
        if self.jvm is None:
            return self.session is not None and not self.session.is_stopped
        stopped = self.guard is not None and self.guard.is_stopped
        return self.jvm.alive and not self.ending and not stopped and self.session.sparkContext._jsc is not None


class SparkRuntime:
    """Starts, keeps and ends this process's Spark session. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.RLock()
        self._start: _Start | None = None
        self._stopped = False
        self._storage: dict[str, str] = {}
        self._incident: tuple[float, str] | None = None

    def start_in_background(self) -> None:
        """Begin to start Spark unless it is running or starting; returns at once."""
        self._current()

    def session(self, check: Callable[[], object] = lambda: None) -> SparkSession:
        """Return the session, waiting for its start. Raises Unavailable if it cannot start.

        A session whose Java process died is replaced, and a failed start is tried again. `check` is called while it waits,
        and raises if the caller was cancelled.
        """
        start = self._current()
        timeout_s = self._settings.spark_start_timeout_s
        began = time.monotonic()
        patience: Patience | None = None
        while not start.done.wait(min(timeout_s, _CHECK_EVERY_S)):
            check()
            waited_s = time.monotonic() - began
            if waited_s < timeout_s:
                continue
            if patience is None and start.jvm is not None:
                patience = Patience(start.jvm.process.pid, timeout_s)
                log.warning("Spark is still starting after %.0f s; waiting while it makes progress", timeout_s)
            elif patience is None or patience.is_over():
                raise Unavailable(f"Spark is still starting after {round(waited_s, 1):g} s; try again", retry_after_s=5)
        if start.error is not None:
            # Several callers may wait for one start: each raises its own error.
            raise type(start.error)(
                start.error.message, retry_after_s=start.error.retry_after_s
            ) from start.error.__cause__
        return start.session

    def set_nice(self, nice: int) -> None:
        """Change the priority of a Java process of our own, if one is running."""
        start = self._start
        if start is not None and start.jvm is not None and start.nice != nice:
            start.nice = nice
            start.jvm.set_nice(nice)

    def state(self) -> str:
        """Return `absent`, `starting`, `ready`, `failed` or `stopped`."""
        # Without the lock: who holds it may be waiting for a Java process that does not answer.
        start = self._start
        if start is None:
            return "stopped" if self._stopped else "absent"
        if not start.done.is_set():
            return "starting"
        alive = start.jvm is None or (start.jvm.alive and not start.ending)
        return "ready" if start.error is None and alive else "failed"

    @property
    def start_seconds(self) -> float:
        """The duration of the last start; 0 before the first has finished."""
        start = self._start
        return start.seconds if start is not None else 0.0

    def configure_storage(self, mapping: Mapping[str, str]) -> None:
        """Give Spark the Hadoop settings of a storage (`spark.hadoop.` is optional), now and at every later start.

        Hadoop keeps a bucket's connection once it is used, so changed settings of the same bucket take effect at
        the next start. A session that was started without the S3 jars is stopped if they are needed now.
        """
        with self._lock:
            if all(self._storage.get(key) == value for key, value in mapping.items()):
                return
            self._storage.update(mapping)
            start = self._start
            outdated = start is not None and self._needs_s3() and not start.with_s3
        if outdated:
            self.stop()
        elif start is not None and start.done.is_set() and start.error is None and start.alive():
            _apply(start, mapping)

    def owns(self, session: SparkSession) -> bool:
        """Return whether this is the running session, in a Java process of our own that also runs its tasks."""
        start = self._start
        return (
            start is not None
            and start.session is session
            and start.jvm is not None
            and configuration.is_local(self._settings)
        )

    def replace(self, reason: str) -> None:
        """Kill a Java process of our own, which has to be replaced, and start another; its work can be repeated."""
        start = self._start
        if start is not None and start.jvm is not None and not start.ending:
            self._incident = (time.time(), f"Spark was restarted: {reason}")
            log.error("restarting Spark: %s", reason)
            start.ending = True
            start.jvm.process.kill()
            start.jvm.process.wait()
            self._restart(start)

    def _note_end(self, start: _Start) -> bool:
        """Report a Java process that ended by itself; return whether it did."""
        if start.jvm is None or start.ending or start.error is not None or start.jvm.alive:
            return False
        start.ending = True
        reason = "its Java process ended"
        if start.jvm.ran_out_of_memory():
            reason = (
                f"it ran out of memory ({configuration.memory_mb(self._settings, configuration.machine_bytes()):,} MiB);"
                " raise spark_memory_mb if that repeats"
            )
        self._incident = (time.time(), f"Spark was restarted: {reason}")
        log.error("restarting Spark: %s", reason)
        return True

    def _ended(self, start: _Start) -> None:
        if self._start is start and self._note_end(start):
            self._restart(start)

    def _restart(self, start: _Start) -> None:
        if self._start is start:
            self.start_in_background()

    def incident(self) -> tuple[float, str] | None:
        """Return when and why Spark was restarted, or did not start, in the last minutes; None if it was not."""
        start = self._start
        if start is not None and start.done.is_set() and start.error is not None:
            return start.began_at, start.error.message
        found = self._incident
        return found if found is not None and time.time() - found[0] < _INCIDENT_S else None

    def abandon(self, thread: threading.Thread) -> None:
        """Count work that its caller has given up and that goes on in a thread; too much of it restarts Spark."""
        start = self._start
        log.warning("a statement has not ended at its time limit and was given up; it goes on in the background")
        if start is not None and start.guard is not None:
            start.guard.abandon(thread)

    def abandoned(self) -> int:
        """Return how much work that was given up still runs."""
        start = self._start
        return start.guard.abandoned if start is not None and start.guard is not None else 0

    def working(self, session: SparkSession, work: Work) -> contextlib.AbstractContextManager[None]:
        """Register work on a session for its guard, if it has one."""
        start = self._start
        if start is None or start.guard is None or start.session is not session:
            return contextlib.nullcontext()
        return start.guard.working(work)

    def stop(self) -> None:
        """End the session and its Java process; the next use starts a new one."""
        with self._lock:
            start, self._start = self._start, None
            self._stopped = True
        if start is not None:
            start.cancelled = True
            _end(start)

    def _current(self) -> _Start:
        with self._lock:
            start = self._start
            if start is not None and start.done.is_set() and (start.error is not None or not start.alive()):
                self._note_end(start)
                _end(start)
                start = None
            if start is None:
                start = self._start = _Start(with_s3=self._wants_s3_jars(), storage=self._storage)
                self._stopped = False
                # In a separate thread: in the main thread Spark would take over the handling of Ctrl-C.
                threading.Thread(target=self._run, args=(start,), name="crannog-spark-start", daemon=True).start()
            return start

    def _needs_s3(self) -> bool:
        on_s3 = self._settings.warehouse.startswith(("s3://", "s3a://")) or any(
            "fs.s3a." in key for key in self._storage
        )
        return on_s3 and not self._settings.spark_remote

    def _wants_s3_jars(self) -> bool:
        # Jars that are on disk cost nothing, and needing them later would cost a restart.
        return not self._settings.spark_remote and (
            self._needs_s3() or jars.present(jars.S3_SET, self._settings) is not None
        )

    def _run(self, start: _Start) -> None:
        began = time.monotonic()
        with _pyspark_state:
            self._attempt(start)
        start.seconds = time.monotonic() - began
        # Under the lock, so that storage configured during the start is not lost between the two.
        with self._lock:
            if start.error is None:
                try:
                    _apply(start, self._storage)
                except CrannogError as error:
                    start.error = error
            if start.error is None and start.jvm is not None:
                start.guard = Guard(
                    start.jvm,
                    start.session,
                    self._settings.spark_temp_mb * 1024**2,
                    replace=self.replace,
                    ended=lambda: self._ended(start),
                )
                start.guard.start()
            start.done.set()

    def _attempt(self, start: _Start) -> None:
        try:
            if self._settings.spark_remote:
                self._connect(start)
            else:
                self._launch(start)
            if start.cancelled:
                raise Unavailable("Spark was stopped while it started")
        except CrannogError as error:
            start.error = error
        except BaseException as error:
            said = start.jvm.failure_line() if start.jvm is not None and not start.jvm.alive else shortened(str(error))
            start.error = Unavailable(f"Spark did not start: {said or type(error).__name__}")
        if start.error is not None:
            _end_process(start)

    def _launch(self, start: _Start) -> None:
        secret = secret_conf(self._settings)
        java, home = find_java(self._settings), jars.spark_home()
        jar_sets = [
            jars.ensure(spec, self._settings) for spec in (jars.DELTA_SET, *([jars.S3_SET] if start.with_s3 else []))
        ]
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        if SparkContext._active_spark_context is not None:
            raise Unavailable(
                "this process runs a Spark session that Crannog did not start; stop it first, a process can have only one"
            )
        _silence_python_side()
        is_local = configuration.is_local(self._settings)
        # Tasks over Arrow run in Python processes; those of this machine must find the same packages.
        if self._settings.spark_python or is_local:
            os.environ["PYSPARK_PYTHON"] = self._settings.spark_python or sys.executable
        if start.cancelled:
            raise Unavailable("Spark was stopped while it started")
        folder = scratch_folders.create("spark")
        conf = configuration.process_conf(
            self._settings,
            cores=configuration.cores(),
            machine_bytes=configuration.machine_bytes(),
            folder=folder,
            jars=jar_sets,
        )
        launch(
            java,
            home,
            folder,
            conf,
            nice=self._settings.spark_nice,
            timeout_s=self._settings.spark_start_timeout_s,
            cancelled=lambda: start.cancelled,
            launched=lambda jvm: setattr(start, "jvm", jvm),
        )
        assert start.jvm is not None
        # PySpark keeps the gateway of a stopped session and would reuse it.
        _forget_gateway(SparkContext._gateway)
        # Keys and secrets are sent over the connection; on the command line every user of the machine could read them.
        conf |= configuration.storage_conf(start.storage) | secret
        context = SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(conf.items())), gateway=start.jvm.gateway)
        start.session = SparkSession(context)
        _write_no_checksum_files(context)
        if not is_local:
            context.addPyFile(str(_package_archive(folder)))

    def _connect(self, start: _Start) -> None:
        # Spark Connect needs packages of its own, which it looks for when it connects.
        with needed_for("Spark Connect (spark_remote)"):
            from pyspark.sql import SparkSession

            start.session = SparkSession.builder.remote(self._settings.spark_remote).create()
        folder = scratch_folders.create("spark")
        try:
            start.session.addArtifacts(str(_package_archive(folder)), pyfile=True)
        finally:
            scratch_folders.remove(folder)
        for key, value in configuration.session_conf(self._settings, cores=configuration.cores()).items():
            start.session.conf.set(key, value)


@contextlib.contextmanager
def in_pool(session: SparkSession, pool: str) -> Iterator[None]:
    """Run this thread's jobs in the pool `interactive` or `maintenance`, so that neither starves the other."""
    assert pool in configuration.POOLS, pool
    context = getattr(session, "_sc", None)
    # A Spark Connect server manages its pools itself.
    if context is None:
        yield
        return
    before = context.getLocalProperty("spark.scheduler.pool")
    context.setLocalProperty("spark.scheduler.pool", pool)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            context.setLocalProperty("spark.scheduler.pool", before)


@contextlib.contextmanager
def interruptible(session: SparkSession, tag: str) -> Iterator[Callable[[], object]]:
    """Tag this thread's jobs and yield a function that cancels the running ones, callable from any thread.

    Raises Overloaded if the work was ended because Spark's temporary files took too much space.
    """
    context = getattr(session, "_sc", None)
    # In this process a session's own tags are visible only to the thread that set them, the context's to all.
    add, remove = (session.addTag, session.removeTag) if context is None else (context.addJobTag, context.removeJobTag)
    end = session.interruptTag if context is None else context.cancelJobsWithTag
    add(tag)
    if context is not None:
        # Without it a waiting task keeps waiting; a computing one ends with its current row at the latest.
        context.setLocalProperty("spark.job.interruptOnCancel", "true")
    runtime = _process_wide
    registered = contextlib.nullcontext() if runtime is None else runtime.working(session, Work(tag, lambda: end(tag)))
    try:
        with registered:
            yield lambda: end(tag)
    finally:
        with contextlib.suppress(Exception):  # the JVM may be gone
            remove(tag)


def _apply(start: _Start, mapping: Mapping[str, str]) -> None:
    try:
        for key, value in mapping.items():
            name = key.removeprefix("spark.hadoop.")
            if start.jvm is None or name.startswith("spark."):
                start.session.conf.set(name, value)
            else:
                start.session.sparkContext._jsc.hadoopConfiguration().set(name, value)
    except Exception as error:
        raise translated(error) from error


def _package_archive(folder: Path) -> Path:
    """Write this package as an archive that is sent to Spark's workers: their tasks run its code, in the same version."""
    package = Path(__file__).parent.parent
    archive = folder / f"crannog-{VERSION}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for file in sorted(package.rglob("*.py")):
            target.write(file, file.relative_to(package.parent))
    return archive


def _write_no_checksum_files(context: Any) -> None:
    # Hadoop would write a hidden .crc file next to each local file. Another file system class that does not
    # breaks S3A, which casts the local one; instead, the option is set on the one instance that all jobs share.
    java = context._jvm.java.net.URI("file:///")
    local = context._jvm.org.apache.hadoop.fs.FileSystem.get(java, context._jsc.hadoopConfiguration())
    local.setWriteChecksum(False)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Tell whether a record of the root logger is not the stack trace that py4j logs when the Java process ends."""
    return record.msg != "Exception while sending command."


def _silence_python_side() -> None:
    # `translated` reports failures; py4j and PySpark would also print them, with the stack trace.
    from pyspark.logger import PySparkLogger

    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _end(start: _Start) -> None:
    is_usable = start.done.is_set() and start.session is not None and start.alive()
    start.ending = True
    # The starting thread cleans up: when its process is gone, or as soon as it sees that it is cancelled.
    began = time.monotonic()
    while not start.done.wait(0.02):
        if start.jvm is not None:
            start.jvm.process.kill()
        if time.monotonic() - began > (_UNSTARTED_TIMEOUT_S if start.jvm is None else _END_TIMEOUT_S):
            return
    with _pyspark_state:
        if is_usable:
            _stop_session(start)
        _end_process(start)


def _stop_session(start: _Start) -> None:
    """Stop a session, if its Java process answers."""

    def stop() -> None:
        with contextlib.suppress(Exception):
            start.session.stop()

    stopping = threading.Thread(target=stop, name="crannog-spark-stop", daemon=True)
    stopping.start()
    stopping.join(_STOP_TIMEOUT_S)
    if stopping.is_alive() and start.jvm is not None:
        start.jvm.process.kill()
        stopping.join(_STOP_TIMEOUT_S)


def _end_process(start: _Start) -> None:
    if start.jvm is not None:
        gateway = start.jvm.gateway
        start.jvm.end()
        _forget_gateway(gateway)


def _forget_gateway(gateway: Any) -> None:
    """Clear PySpark's references to a Java process that is gone; it offers no other way."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if gateway is None or SparkContext._gateway is not gateway:
        return
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


_process_wide: SparkRuntime | None = None
_process_wide_lock = threading.Lock()


def spark_runtime(settings: Settings) -> SparkRuntime:
    """Return the process-wide runtime; it has the settings of the first caller."""
    global _process_wide
    with _process_wide_lock:
        if _process_wide is None:
            _process_wide = SparkRuntime(settings)
            atexit.register(_process_wide.stop)
        return _process_wide


def _after_fork() -> None:
    # The Java process belongs to the parent: a child starts its own and never ends the parent's.
    global _process_wide, _process_wide_lock, _pyspark_state
    if _process_wide is not None:
        atexit.unregister(_process_wide.stop)
    _process_wide = None
    _process_wide_lock = threading.Lock()
    _pyspark_state = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
