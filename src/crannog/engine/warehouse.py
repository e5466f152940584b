"""A warehouse in one process: its storage, its engines and its background thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from crannog.engine.conditions import Conditions
from crannog.engine.duckdb.engine import DuckDBEngine
from crannog.errors import CallerError
from crannog.settings import Settings
from crannog.storage import scratch_folders
from crannog.storage.interface import Storage, open_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("crannog.engine")


class Warehouse:
    """What the tables of one warehouse share. Thread-safe; `close` waits for background work."""

    def __init__(self, location: str, settings: Settings) -> None:
        self.location = location
        self.settings = settings
        self.storage: Storage = open_storage(location, settings.folder_mode)
        if self.storage.is_local:
            self.storage.make_folder("")
        self._copies = None if self.storage.is_local else scratch_folders.create("copies")
        self._duckdb: DuckDBEngine | None = None
        self._lock = threading.Lock()
        # One thread: packing and small maintenance must never take cores from callers.
        self._background = ThreadPoolExecutor(1, thread_name_prefix="crannog-upkeep")
        self.closed = False
        self.conditions = Conditions()
        """The tasks of this process that fail."""
        self.is_maintained = False
        """Whether a scheduler of this process folds the tables."""

    @property
    def duckdb(self) -> DuckDBEngine:
        """The DuckDB engine, created on first use."""
        with self._lock:
            if self._duckdb is None:
                folder = self.storage.uri("") if self._copies is None else str(self._copies)
                self._duckdb = DuckDBEngine(self.settings, (folder,), scratch_folders.create("spill"))
            return self._duckdb

    def spark(self, check: Callable[[], object] = lambda: None) -> SparkSession:
        """Return the Spark session, started on first use. Raises Unavailable with the reason if it cannot start.

        `check` is called while it starts, and raises if the caller was cancelled.
        """
        from crannog.spark.session import spark_runtime

        runtime = spark_runtime(self.settings)
        if self.storage.spark_settings:
            runtime.configure_storage(self.storage.spark_settings)
        return runtime.session(check)

    def set_spark_nice(self, nice: int) -> None:
        """Change the priority of Spark, if this process runs it."""
        from crannog.spark.session import spark_runtime

        spark_runtime(self.settings).set_nice(nice)

    def local_paths(self, paths: Sequence[str]) -> list[str]:
        """Return local paths of files for DuckDB: in place, or copies of a bucket's files (which never change)."""
        if self._copies is None:
            return [self.storage.uri(path) for path in paths]
        from crannog.storage.object_store import ObjectStorage

        assert isinstance(self.storage, ObjectStorage)
        return [str(path) for path in self.storage.fetch(paths, self._copies)]

    def forget_copies(self, paths: Sequence[str]) -> None:
        """Delete the copies of files that were erased."""
        if self._copies is not None:
            for path in paths:
                (self._copies / path).unlink(missing_ok=True)

    def in_background(self, work: object, *arguments: object) -> Future[object] | None:
        """Run `work` in the background thread; None if the warehouse is closing."""
        try:
            future: Future[object] = self._background.submit(work, *arguments)  # type: ignore[arg-type]
        except RuntimeError:
            return None
        future.add_done_callback(_log_failure)
        return future

    def check_open(self) -> None:
        if self.closed:
            raise CallerError("this connection is closed; connect again")

    def close(self) -> None:
        self._background.shutdown(wait=True)
        self.closed = True
        self.storage.close()
        with self._lock:
            if self._duckdb is not None:
                self._duckdb.close()
            if self._copies is not None:
                scratch_folders.remove(self._copies)


def _log_failure(done: Future[object]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.warning("background work failed: %s: %s", type(error).__name__, error)
