"""The writer of one table in one process: concurrent callers, of other processes too, share one staged file.

Processes pass changes to each other as messages.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from crannog.delta.log import Base
from crannog.delta.schemas import fingerprint
from crannog.engine.commit.group import Call, Group
from crannog.engine.commit.handover import Handover
from crannog.errors import Overloaded
from crannog.protocol.changelog import Backlog, ChangeLog, Committed
from crannog.protocol.staged_files import Change, as_table

_FORMAT = "changes 1"
_LARGEST_BYTES = 16 * 1024


class ChangeMessages:
    """Writes rows as Arrow record batches without their schema, which both processes know by its fingerprint."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self._schema: tuple[Base, str] | None = None

    def encode(self, calls: Sequence[Call[Change, Committed]]) -> bytes | None:
        base = self._log.last_seen_base()
        listed: list[Any] = []
        bodies: list[bytes] = []
        for call in calls:
            change, rows = call.value, as_table(call.value.rows)
            if change.bytes > _LARGEST_BYTES or not _has_types(rows, base):
                return None
            # If the answer is lost, this tells the change from an earlier one with the same batch id.
            change = call.value = replace(change, writer=change.writer or uuid.uuid4().hex)
            [batch] = rows.combine_chunks().to_batches()
            body = batch.serialize().to_pybytes()
            bodies.append(body)
            listed.append([change.batch_id, change.kind, change.bytes, change.actor, change.reason, change.at_us,
                           change.writer, rows.column_names, len(body)])  # fmt: skip
        head = json.dumps([_FORMAT, self._fingerprint(base), listed]).encode()
        return b"\n".join((head, b"".join(bodies)))

    def decode(self, message: bytes) -> list[Change]:
        try:
            head, _, body = message.partition(b"\n")
            version, schema, listed = json.loads(head)
            if version != _FORMAT:
                return []
            base = self._log.last_seen_base()
            if schema != self._fingerprint(base):
                # The sender may have seen the table evolve.
                base = self._log.refresh()[0]
                if schema != self._fingerprint(base):
                    return []
            found, start = [], 0
            for batch_id, kind, size, actor, reason, at_us, writer, names, length in listed:
                columns = pa.schema([base.user_schema.field(name) for name in names])
                batch = pa.ipc.read_record_batch(pa.py_buffer(body[start : start + length]), columns)
                start += length
                rows = pa.Table.from_batches([batch])
                found.append(Change(batch_id, kind, rows, size, actor, reason, at_us, writer))
            return found
        except (ValueError, TypeError, LookupError, pa.ArrowException):
            return []

    def encode_result(self, result: Committed) -> Any:
        return [result.sequence, result.duplicate]

    def decode_result(self, given: Any) -> Committed:
        return Committed(*given)

    def _fingerprint(self, base: Base) -> str:
        if self._schema is None or self._schema[0] is not base:
            self._schema = base, fingerprint(base.schema)
        return self._schema[1]


def _has_types(rows: pa.Table, base: Base) -> bool:
    """Tell whether rows have exactly the table's types, so that they can be read without a schema of their own."""
    wanted = base.user_schema
    return all(field.name in wanted.names and field.type.equals(wanted.field(field.name).type) for field in rows.schema)


Write = Call[Change, Committed]
_LONGEST_WAIT_S = 2.0
_UNHINDERED_SHARE = 0.125
_USUAL_RETRY_S, _SHORTEST_RETRY_S, _LONGEST_RETRY_S = 5.0, 1.0, 60.0


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """What a writer holds at most."""

    queue_calls: int
    group_rows: int
    staged_rows: int
    staged_bytes: int


def backlog_share(backlog: Backlog, rows_limit: int, bytes_limit: int) -> float:
    """Return how much of the limits of a table is staged."""
    return max(backlog.rows / rows_limit, backlog.bytes / bytes_limit)


def slow_down_s(backlog: Backlog, limits: WriterLimits) -> float:
    """Return how long a writer should wait before its commit, so that folds keep up.

    Nothing up to an eighth of a limit; from there on longer and longer, so that writers slow down to what folds take
    rather than stop at the limit, and the staged rows take little memory.
    """
    share = min(backlog_share(backlog, limits.staged_rows, limits.staged_bytes), 1.0)
    excess = max(0.0, share - _UNHINDERED_SHARE) / (1 - _UNHINDERED_SHARE)
    return _LONGEST_WAIT_S * excess * math.sqrt(excess)


def retry_after_s(excess_rows: int, folded_per_s: float) -> float:
    """Return when a refused caller should try again: once a fold as fast as the last one has made room."""
    if not folded_per_s:
        return _USUAL_RETRY_S
    return min(max(round(excess_rows / folded_per_s, 1), _SHORTEST_RETRY_S), _LONGEST_RETRY_S)


class Writer:
    """Takes changes from any thread; `write` returns once the change is durable and visible."""

    def __init__(
        self, log: ChangeLog, limits: WriterLimits, *, after_commit: Callable[[], None], handover_folder: Path | None
    ) -> None:
        """`handover_folder` is where the processes of this machine share commits; None if they do not."""
        self._log = log
        self._limits = limits
        self.folded_per_s = 0.0
        """How many staged rows the last fold of this process took in a second; 0 before the first."""
        self._after_commit = after_commit
        commit: Callable[[list[Write]], None] = self._commit
        if handover_folder is not None:
            commit = Handover(
                handover_folder, self._commit, ChangeMessages(log), rows=_rows, on_change=log.expect_others
            ).run
        self._group: Group[Change, Committed] = Group(
            commit, called=lambda: self._name, most_waiting=limits.queue_calls, take=self._take
        )

    def write(self, change: Change, *, keep_pace: bool = False) -> Committed:
        """Commit one change; with `keep_pace`, wait first while folds are behind. Overloaded at a limit, Unavailable if the storage fails; neither keeps anything halfway."""
        if keep_pace and (pause_s := self.pause_s()):
            time.sleep(pause_s)
        return self._group.submit(change)

    def write_all(self, changes: Sequence[Change]) -> list[Write]:
        """Commit several changes as `write` does one; return their calls, each with its result or error."""
        return self._group.submit_all(changes)

    def pause_s(self) -> float:
        """Return how long a caller should wait before its next change, so that folds keep up."""
        return slow_down_s(self._log.backlog(), self._limits)

    def write_after(self, change: Change, sequence: int) -> Committed:
        """Commit one change at once as the very next sequence after this one; Conflict if that is taken.

        For a caller that makes the change from everything up to there, and makes it again if another was first.
        """
        call: Write = Call(change)
        if self._admit([call]):
            [call.result] = self._log.commit([change], after=sequence)
        self._after_commit()
        if call.error is not None:
            raise call.error
        assert call.result is not None
        return call.result

    @property
    def _name(self) -> str:
        return self._log.folder.replace("/", ".")

    def _commit(self, group: list[Write]) -> None:
        admitted = self._admit(group)
        if admitted:
            for call, committed in zip(admitted, self._log.commit([call.value for call in admitted]), strict=True):
                call.result = committed
        self._after_commit()

    def _take(self, waiting: deque[Write]) -> list[Write]:
        group: list[Write] = []
        rows = 0
        while waiting and (not group or rows + waiting[0].value.rows.num_rows <= self._limits.group_rows):
            call = waiting.popleft()
            group.append(call)
            rows += call.value.rows.num_rows
        return group

    def _admit(self, group: list[Write]) -> list[Write]:
        """Refuse what would go over the staged backlog; a refusal looks at storage first, a fold may have made room."""
        backlog = self._log.backlog()
        rows, size = backlog.rows, backlog.bytes
        if self._fits(
            rows + sum(call.value.rows.num_rows for call in group), size + sum(call.value.bytes for call in group)
        ):
            return group
        admitted: list[Write] = []
        refreshed = False
        for call in group:
            more_rows, more_bytes = call.value.rows.num_rows, call.value.bytes
            if not self._fits(rows + more_rows, size + more_bytes) and not refreshed:
                self._log.refresh()
                backlog, refreshed = self._log.backlog(), True
                rows = backlog.rows + sum(other.value.rows.num_rows for other in admitted)
                size = backlog.bytes + sum(other.value.bytes for other in admitted)
            if self._fits(rows + more_rows, size + more_bytes):
                admitted.append(call)
                rows, size = rows + more_rows, size + more_bytes
            else:
                call.error = Overloaded(
                    f"{self._name} has {rows:,} staged rows in {size:,} bytes, the limits are"
                    f" {self._limits.staged_rows:,} and {self._limits.staged_bytes:,}; this change adds {more_rows:,} rows."
                    " Nothing of it was kept: fold the table, or try again once the scheduler has",
                    retry_after_s=retry_after_s(rows + more_rows - self._limits.staged_rows // 2, self.folded_per_s),
                )
        return admitted

    def _fits(self, rows: int, size: int) -> bool:
        return rows <= self._limits.staged_rows and size <= self._limits.staged_bytes


def _rows(change: Change) -> int:
    return int(change.rows.num_rows)
