"""The writer of one table in one process: concurrent callers share one staged file (group commit)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from crannog.engine.commit.group import Call, Group
from crannog.errors import Overloaded
from crannog.protocol.changelog import ChangeLog, Committed
from crannog.protocol.staged_files import Change


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """What a writer holds at most."""

    queue_calls: int
    group_rows: int
    staged_rows: int
    staged_bytes: int


@dataclass(frozen=True, slots=True)
class Wish:
    """A change, and the sequence it must follow, if it must."""

    change: Change
    after: int | None = None


class Writer:
    """Takes changes from any thread; `write` returns once the change is durable and visible."""

    def __init__(self, log: ChangeLog, limits: WriterLimits, *, after_commit: Callable[[], None]) -> None:
        self._log = log
        self._limits = limits
        self._after_commit = after_commit
        self._group: Group[Wish, Committed] = Group(
            self._commit, called=lambda: self._name, most_waiting=limits.queue_calls, take=self._take
        )

    def write(self, change: Change, *, after: int | None = None) -> Committed:
        """Commit one change; Overloaded at a limit, Unavailable if the storage fails; neither keeps anything halfway.

        With `after`, as the very next sequence after it, or Conflict.
        """
        return self._group.submit(Wish(change, after))

    @property
    def _name(self) -> str:
        return self._log.folder.replace("/", ".")

    def _commit(self, group: list[Call[Wish, Committed]]) -> None:
        admitted = self._admit(group)
        if admitted:
            done = self._log.commit([call.value.change for call in admitted], after=admitted[0].value.after)
            for call, kept in zip(admitted, done, strict=True):
                call.result = kept
        self._after_commit()

    def _take(self, waiting: deque[Call[Wish, Committed]]) -> list[Call[Wish, Committed]]:
        group: list[Call[Wish, Committed]] = []
        rows = 0
        while waiting and (not group or rows + waiting[0].value.change.rows.num_rows <= self._limits.group_rows):
            if group and waiting[0].value.after is not None:
                break
            call = waiting.popleft()
            group.append(call)
            rows += call.value.change.rows.num_rows
            if call.value.after is not None:
                break  # its place is its own
        return group

    def _admit(self, group: list[Call[Wish, Committed]]) -> list[Call[Wish, Committed]]:
        """Refuse what would go over the staged backlog; a refusal looks at storage first, a fold may have made room."""
        backlog = self._log.backlog()
        rows, size = backlog.rows, backlog.bytes
        admitted: list[Call[Wish, Committed]] = []
        looked = False
        for call in group:
            change = call.value.change
            more_rows, more_bytes = change.rows.num_rows, change.bytes
            if not self._fits(rows + more_rows, size + more_bytes) and not looked:
                self._log.refresh()
                backlog, looked = self._log.backlog(), True
                rows = backlog.rows + sum(other.value.change.rows.num_rows for other in admitted)
                size = backlog.bytes + sum(other.value.change.bytes for other in admitted)
            if self._fits(rows + more_rows, size + more_bytes):
                admitted.append(call)
                rows, size = rows + more_rows, size + more_bytes
            else:
                call.error = Overloaded(
                    f"{self._name} has {rows:,} staged rows in {size:,} bytes, the limits are"
                    f" {self._limits.staged_rows:,} and {self._limits.staged_bytes:,}; this change adds {more_rows:,} rows."
                    " Nothing of it was kept: fold the table, or try again once the scheduler has",
                    retry_after_s=5.0,
                )
        return admitted

    def _fits(self, rows: int, size: int) -> bool:
        return rows <= self._limits.staged_rows and size <= self._limits.staged_bytes
