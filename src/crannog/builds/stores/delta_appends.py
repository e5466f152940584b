"""How events get into a Delta log: the threads of a process, and the processes of a machine, share a commit.

A commit is one staged file. Its rows carry their indexes, so it must come directly after everything they were computed
from: it is committed as the very next sequence or not at all, and made again if another process was first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from crannog.builds.append_plan import plan
from crannog.builds.events import BuildEvent
from crannog.builds.stores.append_messages import Append, AppendCall, AppendMessages
from crannog.builds.stores.delta_read_model import Position, TableChange
from crannog.builds.stores.event_rows import rows_of
from crannog.builds.stores.read_model_sync import ReadModelSync
from crannog.builds.transitions import check_changes
from crannog.engine.commit.group import Group
from crannog.engine.commit.handover import BUCKET_PATIENCE_S, Handover
from crannog.engine.open_table import OpenTable
from crannog.errors import CallerError, Conflict, Unavailable

_MAX_ATTEMPTS = 1_000
_MOST_WAITING = 10_000


class DeltaAppends:
    """The appends of one process to one log. Safe for threads."""

    def __init__(self, table: OpenTable, sync: ReadModelSync, uri: str) -> None:
        self._table = table
        self._sync = sync
        self._uri = uri
        self._handover = self._opened_handover()
        commit: Callable[[list[AppendCall]], None] = self._commit if self._handover is None else self._handover.run
        self._group: Group[Append, list[int]] = Group(
            commit, called=lambda: "the build log", most_waiting=_MOST_WAITING
        )
        self._looks_first = True
        """Whether to look for commits of other processes before the next one, instead of when it fails."""
        self._is_warm = False

    def _opened_handover(self) -> Handover[Append, list[int]] | None:
        folder, patience_s = self._table.handover_folder, None
        if folder is None and self._sync.model.path is not None:
            # In a bucket there are no locks, but the processes of this machine share the file of the read model.
            folder, patience_s = self._sync.model.path.with_suffix(".handover"), BUCKET_PATIENCE_S
        if folder is None:
            return None
        return Handover(
            folder, self._commit, AppendMessages(), rows=_events, on_change=self._look_first, patience_s=patience_s
        )

    def append(self, events: list[BuildEvent], *, check_states: bool) -> list[int]:
        """Store a batch; return its indexes once it is durable."""
        if not self._is_warm:
            # pyarrow loads numpy and pandas at the first array it makes: not while others wait for the turn.
            pa.array([0])
            self._is_warm = True
        indexes = self._group.submit(Append(events, check_states))
        self._sync.flush_when_due()
        return indexes

    def close(self) -> None:
        if self._handover is not None:
            self._handover.close()

    def _look_first(self) -> None:
        self._looks_first = True

    def _commit(self, calls: Sequence[AppendCall]) -> None:
        for _ in range(_MAX_ATTEMPTS):
            if self._try(calls):
                return
        raise Unavailable(
            f"cannot append to {self._uri}: other writers won {_MAX_ATTEMPTS} times; try again", retry_after_s=1.0
        )

    def _try(self, calls: Sequence[AppendCall]) -> bool:
        seen = self._sync.seen
        if self._looks_first:
            newest = self._sync.newest()
            # After a look that finds nothing the next commit goes without one: it fails if another process was first.
            self._looks_first, seen = newest != seen, newest
        fresh, indexes = self._planned(calls, seen)
        if fresh:
            try:
                receipt = self._table.stage(rows_of(fresh), after=seen.sequence)
            except Conflict:
                self._looks_first = True
                return False  # another process was first: its events may be among ours, and ours come after them
            self._sync.committed(TableChange(receipt.sequence, tuple(fresh)))
        # Only now: a call with a result counts as committed.
        for call, given in indexes:
            call.result = given
        return True

    def _planned(
        self, calls: Sequence[AppendCall], seen: Position
    ) -> tuple[list[BuildEvent], list[tuple[AppendCall, list[int]]]]:
        """Return the events to store and the indexes of each call; a call that is refused gets its error."""
        known = self._sync.known([event.event_id for call in calls for event in call.value.events])
        fresh: list[BuildEvent] = []
        indexes: list[tuple[AppendCall, list[int]]] = []
        for call in calls:
            call.error = None
            try:
                planned = plan(call.value.events, known, seen.last_index + len(fresh))
                if call.value.check_states:
                    self._sync.flush()
                    with self._sync.model.database.reading() as model:
                        check_changes(model, [*fresh, *planned.fresh])
            except (CallerError, Conflict) as error:
                call.error = error
                continue
            indexes.append((call, planned.indexes))
            fresh.extend(planned.fresh)
            known.update((event.event_id, event) for event in planned.fresh)
        return fresh, indexes


def _events(append: Append) -> int:
    return len(append.events)
