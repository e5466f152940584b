"""Following a Delta log's table in commit order: what was seen, what of it the read model lacks, and how it gets there.

What this process commits, and what it finds others have, is noted at once; the model gets it in larger pieces, before
a read or behind the scenes. Locks are taken in one order: flushing, then the state, then the model's own.
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
from crannog.builds.stores.delta_read_model import Applied, DeltaModel, Position, bring_to_base
from crannog.builds.stores.event_rows import KEY, events_of
from crannog.engine.open_table import OpenTable
from crannog.errors import CallerError, Corrupted, SnapshotGone, Unavailable
from crannog.protocol.staged_files import DELETE, Segment

_FLUSH_EVENTS = 500
_MOST_PENDING = 20_000
_READS = 5


class Follower:
    """How far one process follows the table of a log. Safe for threads."""

    def __init__(self, table: OpenTable, model_path: Path | None, uri: str) -> None:
        self.table = table
        self.uri = uri
        self.model = DeltaModel(model_path, table.log.table_id)
        self._is_local = table.warehouse.storage.is_local
        self._refresh_s = table.warehouse.settings.refresh_ms / 1000
        self._state = threading.RLock()
        self._flushing = threading.Lock()
        self._pending: list[Applied] = []
        self._pending_ids: dict[str, BuildEvent] = {}
        self._pending_events = 0
        self._seen = Position(0, 0)
        self._looked_at = 0.0
        self._stage = _opened(table.warehouse.storage.uri(table.log.stage_folder)) if self._is_local else None
        self._quiet_since: int | None = None
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

    @property
    def seen(self) -> Position:
        """How far this process has followed the table."""
        return self._seen

    def newest(self) -> Position:
        """Return how far the table is, after noting everything up to there."""
        with self._state:
            if not self.table.log.is_last(self._seen.sequence):
                self._pull()
            return self._seen

    def look(self) -> None:
        """Bring the model to what was committed before this call (on buckets: up to `refresh_ms` before it)."""
        if self._is_local:
            if not self.table.log.is_last(self._seen.sequence):
                with self._state:
                    self._pull()
            self._quiet_since = self.table.log.unchanged_stamp(self._seen.sequence)
        elif time.monotonic() - self._looked_at > self._refresh_s:
            self.newest()
            self._looked_at = time.monotonic()
        self.flush()

    def is_quiet(self) -> bool:
        """Tell by one look at the folder that there is nothing to `look` for: what most reads find, and all they pay."""
        stage = self._stage
        if stage is None or self._quiet_since is None:
            return False
        try:
            folder = os.fstat(stage)
        except OSError:  # another thread closes the log
            return False
        return folder.st_mtime_ns == self._quiet_since and folder.st_nlink > 0 and not self._pending

    def known(self, ids: list[str]) -> dict[str, BuildEvent]:
        """Return those of these events that were seen."""
        # Pending first: what is flushed meanwhile is in the model when that is asked.
        with self._state:
            known = {event_id: self._pending_ids[event_id] for event_id in ids if event_id in self._pending_ids}
        asked = [event_id for event_id in ids if event_id not in known]
        if asked:
            with self.model.database.reading() as model:
                known.update(events_by_id(model, asked))
        return known

    def committed(self, change: Applied) -> None:
        """Note what this process has committed, unless a reader found the file before and has noted it."""
        with self._state:
            if change.sequence == self._seen.sequence + 1:
                self._note(change)

    def pull(self) -> None:
        """Look at the table itself."""
        with self._state:
            self._pull()

    def _pull(self) -> None:
        base, tail = self.table.log.catch_up()
        if base.folded > self._seen.sequence:
            # What was folded before we saw it stands in the base alone. No flush here: who flushes may want the state.
            self._start_from_model()
            return
        if not self._note_segments(tail.segments):
            self._start_from_model()

    def _note_segments(self, segments: Iterable[Segment]) -> bool:
        """Note what is new in staged files; much of it goes to the model at once, so that it is never held whole.

        False if the model was made anew meanwhile and does not go on from there.
        """
        for segment in segments:
            if segment.last > self._seen.sequence:
                self._note_segment(segment)
                if self._pending_events > _MOST_PENDING:
                    changes = list(self._pending)
                    if not self.model.apply(changes):
                        return False
                    self._forget(changes)
        return True

    def _note_segment(self, segment: Segment) -> None:
        rows = segment.rows
        if segment.first <= self._seen.sequence:
            rows = rows.filter(pc.greater(rows["_seq"], self._seen.sequence))
        operations = rows["_op"].to_pylist()
        kept, gone = rows, []
        if DELETE in operations:
            kept = rows.filter(pc.not_equal(rows["_op"], DELETE))
            gone = rows.filter(pc.equal(rows["_op"], DELETE))[KEY].to_pylist()
        added, removed = iter(events_of(kept) if kept.num_rows else ()), iter(gone)
        # A sequence is either: events that were added, or indexes that were removed.
        for (sequence, operation), part in groupby(zip(rows["_seq"].to_pylist(), operations, strict=True)):
            count = sum(1 for _ in part)
            if operation == DELETE:
                self._note(Applied(sequence, removed=tuple(islice(removed, count))))
            else:
                self._note(Applied(sequence, tuple(islice(added, count))))

    def _note(self, change: Applied) -> None:
        following = self._seen.last_index + 1
        if [event.index for event in change.added] != list(range(following, following + len(change.added))):
            raise Corrupted(
                f"sequence {change.sequence} of {self.table.name} does not go on after index {self._seen.last_index}:"
                " rows were written to the table by something else than a build log; restore its folder from a backup, or move"
                " it away, and a new log is made"
            )
        self._pending.append(change)
        self._pending_events += change.size
        self._pending_ids.update((event.event_id, event) for event in change.added)
        self._seen = Position(change.sequence, self._seen.last_index + len(change.added))

    # -- the model ---------------------------------------------------------------------------------------------------

    def flush_when_due(self) -> None:
        """Keep what waits for the model small, if possible behind the scenes."""
        if self._pending_events > _MOST_PENDING:
            self.flush()
        elif self._pending_events > _FLUSH_EVENTS and not self._flushing.locked():
            self.table.warehouse.in_background(self.flush)

    def flush(self) -> None:
        """Apply to the model what was noted."""
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
                # The model was made anew, by us or another process: follow the table from where it stands.
                self._start_again()
                return
            with self._state:
                self._forget(changes)

    def _forget(self, changes: list[Applied]) -> None:
        last = changes[-1].sequence
        self._pending = [change for change in self._pending if change.sequence > last]
        self._pending_events = sum(change.size for change in self._pending)
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
        """Follow from what the model has, bringing it to the base first if the base is ahead."""
        for _ in range(_READS):
            try:
                with self.model.database.writing() as model:
                    # Looked at under the model's lock: whatever the model has, the table had before.
                    at = self.model.position(model)
                    try:
                        snapshot = self.table.snapshot(min_sequence=at.sequence)
                    except CallerError:
                        self.model.clear(model)  # ahead of its table, which was restored from a backup
                        at, snapshot = Position(0, 0), self.table.snapshot()
                    if at.sequence < snapshot.base.folded:
                        bring_to_base(model, self.table, snapshot, largest_given=self._largest_given())
                        at = self.model.position(model)
            except SnapshotGone:
                continue
            with self._state:
                self._pending, self._pending_ids, self._pending_events = [], {}, 0
                self._seen = at
                if self._note_segments(snapshot.tail.segments):
                    return
        raise Unavailable(f"cannot read {self.uri}: its files changed at every try; try again", retry_after_s=1.0)

    def _check_agrees(self) -> None:
        """Make the model again if it does not have as many events as the table had at the same sequence."""
        self.look()
        with self.model.database.reading(whole=True) as model:
            [(count,)], at = model.query("SELECT count(*) FROM events"), self.model.position(model)
        snapshot = self.table.snapshot()
        # An index is added once and removed at most once, so the footers tell the number without looking at a row.
        staged = sum(-record.rows if record.kind == "delete" else record.rows for record in snapshot.tail.records)
        if at.sequence == snapshot.sequence and count != snapshot.base.rows + staged:
            self.rebuild()

    def rebuild(self) -> None:
        """Make the read model again from the table."""
        with self._flushing:
            with self.model.database.writing() as model:
                self.model.clear(model)
            self._start_again()

    # -- indexes that were given -------------------------------------------------------------------------------------

    @property
    def _marks(self) -> str:
        return f"{self.table.log.own_folder}/builds"

    def mark_given(self, index: int) -> None:
        """Keep that an index was given: when the last events are removed, nothing in the table tells it any more."""
        storage = self.table.warehouse.storage
        storage.make_folder(self._marks)
        storage.put_if_absent(f"{self._marks}/given-{index:020}", b"{}")

    def _largest_given(self) -> int:
        names = self.table.warehouse.storage.names(self._marks)
        return max((int(name.removeprefix("given-")) for name in names if name.startswith("given-")), default=0)


def _opened(folder: str) -> int | None:
    """Open a folder, to look at it again and again: to find it by its path costs as much as a small query."""
    try:
        return os.open(folder, os.O_RDONLY)
    except OSError:
        return None
