"""Keeping the read model in sync with the table of a Delta log, in commit order.

Changes that this process commits, or finds from others, are noted at once and applied to the model in larger chunks,
before a read or in the background. Locks are taken in one order: flushing, then the state, then the model's own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from itertools import groupby, islice
from pathlib import Path

import pyarrow.compute as pc

from crannog.builds.events import BuildEvent
from crannog.builds.read_model.event_queries import events_by_id
from crannog.builds.stores.delta_read_model import DeltaReadModel, Position, TableChange, load_base
from crannog.builds.stores.event_table import KEY, events_of
from crannog.engine.open_table import OpenTable
from crannog.errors import CallerError, Corrupted, SnapshotGone, Unavailable
from crannog.protocol.staged_files import DELETE, Segment

_FLUSH_EVENTS = 500
_MOST_PENDING = 20_000
_READS = 5


class ReadModelSync:
    """Follows the table of a log for one process. Safe for threads."""

    def __init__(self, table: OpenTable, model_path: Path | None, uri: str) -> None:
        self.table = table
        self.uri = uri
        self.model = DeltaReadModel(model_path, table.log.table_id)
        self._is_local = table.warehouse.storage.is_local
        self._refresh_s = table.warehouse.settings.refresh_ms / 1000
        self._state = threading.RLock()
        self._flushing = threading.Lock()
        self._pending: list[TableChange] = []
        self._pending_ids: dict[str, BuildEvent] = {}
        self._pending_events = 0
        self.seen = Position(0, 0)
        """How far this process has followed the table."""
        self._refreshed_at = 0.0
        self._stage = _opened(table.warehouse.storage.uri(table.log.stage_folder)) if self._is_local else None
        self._unchanged_since: int | None = None
        try:
            self._start_from_model()
            self._check_agrees()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.model.database.close()
        if self._stage is not None:
            os.close(self._stage)
            self._stage = None

    # -- seeing ------------------------------------------------------------------------------------------------------

    def newest(self) -> Position:
        """Note all changes of the table; return its newest position."""
        with self._state:
            if not self.table.log.is_last(self.seen.sequence):
                self._pull()
            return self.seen

    def refresh(self) -> None:
        """Bring the model to everything committed before this call (in buckets: up to `refresh_ms` before it)."""
        if self._is_local:
            if not self.table.log.is_last(self.seen.sequence):
                with self._state:
                    self._pull()
            self._unchanged_since = self.table.log.unchanged_stamp(self.seen.sequence)
        elif time.monotonic() - self._refreshed_at > self._refresh_s:
            self.newest()
            self._refreshed_at = time.monotonic()
        self.flush()

    def is_unchanged(self) -> bool:
        """Tell by one stat of the stage folder that nothing changed: for most reads this is the only cost."""
        stage = self._stage
        if stage is None or self._unchanged_since is None:
            return False
        try:
            folder = os.fstat(stage)
        except OSError:  # another thread closes the log
            return False
        return folder.st_mtime_ns == self._unchanged_since and folder.st_nlink > 0 and not self._pending

    def known(self, ids: list[str]) -> dict[str, BuildEvent]:
        """Return the events with these ids that the table had when it was last seen."""
        # Pending first: what is flushed meanwhile is then found in the model.
        with self._state:
            known = {event_id: self._pending_ids[event_id] for event_id in ids if event_id in self._pending_ids}
        others = [event_id for event_id in ids if event_id not in known]
        if others:
            with self.model.database.reading() as model:
                known.update(events_by_id(model, others))
        return known

    def committed(self, change: TableChange) -> None:
        """Note a change that this process committed, unless a reader has found and noted it already."""
        with self._state:
            if change.sequence == self.seen.sequence + 1:
                self._note(change)

    def pull(self) -> None:
        """Read what is new in the table."""
        with self._state:
            self._pull()

    def _pull(self) -> None:
        base, tail = self.table.log.catch_up()
        if base.folded > self.seen.sequence:
            # Changes folded before we saw them are only in the base. No flush here: a flush may be waiting for the state lock.
            self._start_from_model()
            return
        if not self._note_segments(tail.segments):
            self._start_from_model()

    def _note_segments(self, segments: Iterable[Segment]) -> bool:
        """Note what is new in staged files; large amounts are applied at once, so that they are not all held in memory.

        False if the model was rebuilt meanwhile and does not continue from there.
        """
        for segment in segments:
            if segment.last > self.seen.sequence:
                self._note_segment(segment)
                if self._pending_events > _MOST_PENDING:
                    changes = list(self._pending)
                    if not self.model.apply(changes):
                        return False
                    self._forget(changes)
        return True

    def _note_segment(self, segment: Segment) -> None:
        rows = segment.rows
        if segment.first <= self.seen.sequence:
            rows = rows.filter(pc.greater(rows["_seq"], self.seen.sequence))
        operations = rows["_op"].to_pylist()
        kept, gone = rows, []
        if DELETE in operations:
            kept = rows.filter(pc.not_equal(rows["_op"], DELETE))
            gone = rows.filter(pc.equal(rows["_op"], DELETE))[KEY].to_pylist()
        added, removed = iter(events_of(kept) if kept.num_rows else ()), iter(gone)
        # Each sequence either adds events or removes indexes.
        for (sequence, operation), part in groupby(zip(rows["_seq"].to_pylist(), operations, strict=True)):
            count = sum(1 for _ in part)
            if operation == DELETE:
                self._note(TableChange(sequence, removed=tuple(islice(removed, count))))
            else:
                self._note(TableChange(sequence, tuple(islice(added, count))))

    def _note(self, change: TableChange) -> None:
        following = self.seen.last_index + 1
        if [event.index for event in change.added] != list(range(following, following + len(change.added))):
            raise Corrupted(
                f"sequence {change.sequence} of {self.table.name} does not continue after index {self.seen.last_index}:"
                " something other than a build log wrote to the table; restore its folder from a backup, or move it away to"
                " start a new log"
            )
        self._pending.append(change)
        self._pending_events += len(change.added) + len(change.removed)
        self._pending_ids.update((event.event_id, event) for event in change.added)
        self.seen = Position(change.sequence, self.seen.last_index + len(change.added))

    # -- the model ---------------------------------------------------------------------------------------------------

    def flush_when_due(self) -> None:
        """Flush if many changes are pending, in the background if possible."""
        if self._pending_events > _MOST_PENDING:
            self.flush()
        elif self._pending_events > _FLUSH_EVENTS and not self._flushing.locked():
            self.table.warehouse.in_background(self.flush)

    def flush(self) -> None:
        """Apply the pending changes to the model."""
        if not self._pending:
            return
        with self._flushing:
            with self._state:
                changes = list(self._pending)
            if not changes:
                return
            try:
                whole = self.model.apply(changes)
            except Corrupted:
                self.model.reopen()
                whole = False
            if not whole:
                # The model was rebuilt, by us or another process: follow the table from its position.
                self._start_again()
                return
            with self._state:
                self._forget(changes)

    def _forget(self, changes: list[TableChange]) -> None:
        last = changes[-1].sequence
        self._pending = [change for change in self._pending if change.sequence > last]
        self._pending_events = sum(len(change.added) + len(change.removed) for change in self._pending)
        for change in changes:
            for event in change.added:
                self._pending_ids.pop(event.event_id, None)

    def _start_again(self) -> None:
        with self._state:
            self._start_from_model()
            changes = list(self._pending)
        if changes and self.model.apply(changes):
            with self._state:
                self._forget(changes)

    def _start_from_model(self) -> None:
        """Continue from the position of the model, after bringing it to the base if the base is ahead."""
        for _ in range(_READS):
            try:
                with self.model.database.writing() as model:
                    # Under the lock of the model: the table has everything that the model has.
                    at = self.model.position(model)
                    try:
                        snapshot = self.table.snapshot(min_sequence=at.sequence)
                    except CallerError:
                        self.model.clear(model)  # the table was restored from a backup and is behind the model
                        at, snapshot = Position(0, 0), self.table.snapshot()
                    if at.sequence < snapshot.base.folded:
                        load_base(model, self.table, snapshot, largest_assigned=self._largest_assigned())
                        at = self.model.position(model)
            except SnapshotGone:
                continue
            with self._state:
                self._pending, self._pending_ids, self._pending_events = [], {}, 0
                self.seen = at
                if self._note_segments(snapshot.tail.segments):
                    return
        raise Unavailable(f"cannot read {self.uri}: its files changed at every try; try again", retry_after_s=1.0)

    def _check_agrees(self) -> None:
        """Rebuild the model if it does not have as many events as the table at the same sequence."""
        self.refresh()
        with self.model.database.reading(snapshot=True) as model:
            [(count,)], at = model.query("SELECT count(*) FROM events"), self.model.position(model)
        snapshot = self.table.snapshot()
        # An index is added once and removed at most once, so the footers give the number without reading rows.
        staged = sum(-record.rows if record.kind == "delete" else record.rows for record in snapshot.tail.records)
        if at.sequence == snapshot.sequence and count != snapshot.base.rows + staged:
            self.rebuild()

    def rebuild(self) -> None:
        """Rebuild the read model from the table."""
        with self._flushing:
            with self.model.database.writing() as model:
                self.model.clear(model)
            self._start_again()

    # -- assigned indexes --------------------------------------------------------------------------------------------

    @property
    def _marks(self) -> str:
        return f"{self.table.log.own_folder}/builds"

    def record_assigned_index(self, index: int) -> None:
        """Record the largest index assigned: when the last events are removed, the table no longer shows it."""
        storage = self.table.warehouse.storage
        storage.make_folder(self._marks)
        storage.put_if_absent(f"{self._marks}/given-{index:020}", b"{}")

    def _largest_assigned(self) -> int:
        names = self.table.warehouse.storage.names(self._marks)
        return max((int(name.removeprefix("given-")) for name in names if name.startswith("given-")), default=0)


def _opened(folder: str) -> int | None:
    """Open a folder to stat it repeatedly: by its path that costs as much as a small query."""
    try:
        return os.open(folder, os.O_RDONLY)
    except OSError:
        return None
