"""One run of maintenance on one table: its folder, its lease, its Spark tag, its progress and its cancellation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from crannog.api.arguments import new_batch_id
from crannog.api.reports import Cancellation, Progress
from crannog.delta.log import Base
from crannog.delta.rewrite import AlreadyFolded, Rewrite, RunAgain, commit
from crannog.engine.columnar.parquet_files import ARROW_SUFFIX, arrow_file
from crannog.engine.open_table import OpenTable
from crannog.errors import CrannogError, NotFound
from crannog.protocol.leases import Lease

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def progress_range(progress: Progress | None, start: float, end: float) -> Progress | None:
    """Return a progress callback that maps one part of a job into `start` to `end` of the whole."""
    if progress is None:
        return None
    return lambda step, share: progress(step, round(start + (end - start) * share, 3))


class Job:
    """A context manager that deletes what the job wrote and did not commit."""

    def __init__(
        self,
        table: OpenTable,
        operation: str,
        read: Base,
        *,
        progress: Progress | None = None,
        cancellation: Cancellation | None = None,
    ) -> None:
        self.table = table
        self.operation = operation
        self.id = new_batch_id()
        self.storage = table.warehouse.storage
        self.folder = f"data/{self.id}"
        self._keep_files = False
        self.input_bytes = 0
        self._input_files = 0
        self.started = time.perf_counter()
        self._inputs = f"{table.log.own_folder}/jobs/{self.id}"
        self._progress = progress or (lambda _step, _share: None)
        self._cancellation = cancellation or Cancellation()
        self._lease = Lease(
            self.storage,
            f"{table.log.own_folder}/leases/job-{self.id}.json",
            {"kind": "job", "job": self.id, "version": read.version},
        )

    def __enter__(self) -> Job:
        try:
            self._lease.__enter__()
        except FileNotFoundError as error:
            raise self._dropped() from error
        return self

    def _dropped(self) -> NotFound:
        return NotFound(f"table {self.table.name} was dropped while the job ran")

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        with suppress(CrannogError):
            self.storage.delete_folder(self._inputs)
            if not self._keep_files:
                self.storage.delete_folder(f"{self.table.folder}/{self.folder}")
        self._lease.__exit__()
        if isinstance(error, FileNotFoundError):
            raise self._dropped() from error

    def commit(self, rewrite: Rewrite, *, head: Callable[[], Base] | None = None) -> int:
        """Commit the rewrite and return its version; its files then stay unless it is certain that nothing names them.

        `head` reads the head that it follows, and may raise RunAgain.
        """
        self._keep_files = True
        try:
            return commit(self.storage, self.table.folder, rewrite, head or self.table.log.head)
        except (RunAgain, AlreadyFolded):
            self._keep_files = False
            raise

    @property
    def seconds(self) -> float:
        return round(time.perf_counter() - self.started, 3)

    def step(self, name: str, share: float) -> None:
        """Report progress, and stop here if the job was cancelled."""
        self._cancellation.check()
        self._progress(name, share)

    @contextmanager
    def spark(self) -> Iterator[SparkSession]:
        """Yield the session for this job: in the maintenance pool, interrupted when the job is cancelled."""
        from crannog.spark.errors import translated
        from crannog.spark.session import in_pool, interruptible

        try:
            session = self.table.warehouse.spark(self._cancellation.check)
            with (
                in_pool(session, "maintenance"),
                interruptible(session, f"crannog-{self.id}") as interrupt,
                self._cancellation.interrupting(interrupt),
            ):
                yield session
        except CrannogError:
            raise
        except Exception as error:
            self._cancellation.check()
            raise translated(error) from error

    def write_input(self, rows: pa.Table) -> str:
        """Write rows of this process as a file for the job's tasks, and return its path.

        Staged files may be packed or deleted at any moment; this one exists until the job ends.
        """
        if not self._input_files:
            self.storage.make_folder(self._inputs)
        path = f"{self._inputs}/{self._input_files:05}{ARROW_SUFFIX}"
        data = arrow_file(rows)
        self.storage.put_if_absent(path, data)
        self._input_files += 1
        self.input_bytes += len(data)
        return path
