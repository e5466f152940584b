"""How events get into a Delta log: threads share a commit, and so do the processes of one machine.

A commit is one staged file. Its rows carry their indexes, so it must stand exactly after everything they were worked
out from: it is committed as the very next sequence or not at all, and made again if another process was first.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa

from crannog.builds.append_plan import plan
from crannog.builds.events import BuildEvent
from crannog.builds.stores.delta_read_model import Applied, Position
from crannog.builds.stores.event_rows import rows_of
from crannog.builds.stores.handover_messages import Append, Wish, answer_of, calls_of, slip_of, take_answer
from crannog.builds.stores.process_handover import Desk
from crannog.builds.stores.read_model_sync import Follower
from crannog.builds.stores.shared_mailbox import Tray
from crannog.builds.transitions import check_changes
from crannog.engine.commit.group import Group
from crannog.engine.open_table import OpenTable
from crannog.errors import CallerError, Conflict, Unavailable

_MAX_ATTEMPTS = 1_000
_MOST_WAITING = 10_000
_PAUSE_S = 0.0001
_MOMENT_S = 0.002
_SHUNNED_S = 10.0
# Writing more than that down for another process costs more than to wait and commit it oneself.
_MOST_ON_A_SLIP = 200


class DeltaAppends:
    """The appends of one process to one log. Safe for threads."""

    def __init__(self, table: OpenTable, follower: Follower, desk: Desk | None, uri: str) -> None:
        self._table = table
        self._follower = follower
        self._desk = desk
        self._uri = uri
        self._calls: Group[Wish, list[int]] = Group(
            self._together, called=lambda: "the build log", most_waiting=_MOST_WAITING
        )
        self._alone = False
        self._company = 0
        self._shunned_until = 0.0
        self._is_warm = False

    def append(self, events: list[BuildEvent], *, check_states: bool) -> list[int]:
        """Keep a batch; return its indexes once it is durable."""
        if not self._is_warm:
            # pyarrow loads numpy and pandas, for a while, at the first array it makes: not while others wait for the turn.
            pa.array([0])
            self._is_warm = True
        return self._calls.submit(Wish(events, check_states))

    def close(self) -> None:
        if self._desk is not None:
            self._desk.close()

    def _together(self, calls: list[Append]) -> None:
        size = sum(len(call.value.events) for call in calls)
        if self._desk is None or not self._desk.is_ours or time.monotonic() < self._shunned_until:
            self._commit(calls)
        elif self._desk.take_turn(size):
            self._in_turn(self._desk, calls)
        elif size <= _MOST_ON_A_SLIP and self._desk.leave(slip_of(calls)):
            self._by_slip(self._desk, calls, size)
        else:
            with self._desk.turn(size) as mine:
                self._shun_unless(mine)
                self._commit(calls)
        self._follower.flush_when_due()

    def _by_slip(self, desk: Desk, calls: list[Append], size: int) -> None:
        """Take the answer of whoever has the turn, or the turn when that one is done; go alone when it stands still."""
        try:
            answer, mine = self._answered(desk, size)
        finally:
            desk.tray.withdraw()
        if answer is not None:
            take_answer(calls, answer)
        elif mine:
            self._in_turn(desk, calls)
        else:
            self._shun_unless(False)
            self._commit(calls)

    def _answered(self, desk: Desk, size: int) -> tuple[bytes | None, bool]:
        """Wait for the answer to the slip; without one, tell whether the turn is ours or whoever has it stands still."""
        began = time.monotonic()
        while not desk.is_stuck(began):
            answer = desk.tray.answer()
            if answer is None and desk.take_turn(size):
                # Asked for again: who had the turn answered before it ended.
                answer = desk.tray.answer()
                if answer is None:
                    return None, True
                desk.end_turn()
                desk.ring_next()
            if answer is not None:
                return answer, False
            desk.listen()
        return None, False

    def _shun_unless(self, mine: bool) -> None:
        """Where somebody stands still with the turn, do without it for a while instead of waiting each time."""
        if not mine:
            self._shunned_until = time.monotonic() + _SHUNNED_S

    def _in_turn(self, desk: Desk, calls: list[Append]) -> None:
        others: list[tuple[Tray, list[Append]]] = []
        try:
            others = self._slips(desk)
            self._commit([*calls, *(call for _, left in others for call in left)])
            for tray, left in others:
                if left:
                    tray.give(answer_of(left))
        finally:
            desk.end_turn(in_company=bool(others))
            # Only now: who wakes up takes the time of who rings, and the turn would be held meanwhile.
            for tray, _ in others:
                tray.ring()
            desk.ring_next()

    def _slips(self, desk: Desk) -> list[tuple[Tray, list[Append]]]:
        """Return what stands on the slips, after a moment for those who have just had their answers to come again."""
        ends = time.monotonic() + _MOMENT_S
        read: dict[str, tuple[Tray, list[Append]]] = {}
        while True:
            read |= {tray.name: (tray, calls_of(slip)) for tray, slip in desk.slips(but=read.keys())}
            if len(read) >= self._company or time.monotonic() > ends:
                break
            time.sleep(_PAUSE_S)
        self._company = len(read)
        return list(read.values())

    def _commit(self, calls: Sequence[Append]) -> None:
        for _ in range(_MAX_ATTEMPTS):
            if self._try(calls):
                return
        raise Unavailable(
            f"cannot append to {self._uri}: other writers won {_MAX_ATTEMPTS} times; try again", retry_after_s=1.0
        )

    def _try(self, calls: Sequence[Append]) -> bool:
        seen = self._follower.seen
        if not self._alone:
            newest = self._follower.newest()
            # Who finds nothing new will look at the next commit only: it fails if somebody else wrote meanwhile.
            self._alone, seen = newest == seen, newest
        fresh, indexes = self._planned(calls, seen)
        if fresh:
            try:
                receipt = self._table.stage(rows_of(fresh), after=seen.sequence)
            except Conflict:
                self._alone = False
                return False  # another process was first: its events may be among ours, and ours come after them
            self._follower.committed(Applied(receipt.sequence, tuple(fresh)))
        # Not before: a call with a result counts as kept, whatever happens to the commit.
        for call, given in indexes:
            call.result = given
        return True

    def _planned(
        self, calls: Sequence[Append], seen: Position
    ) -> tuple[list[BuildEvent], list[tuple[Append, list[int]]]]:
        """Return the events to keep, and each call's indexes once they are kept; a call that cannot be gets its error."""
        known = self._follower.known([event.event_id for call in calls for event in call.value.events])
        fresh: list[BuildEvent] = []
        indexes: list[tuple[Append, list[int]]] = []
        for call in calls:
            call.error = None
            try:
                planned = plan(call.value.events, known, seen.last_index + len(fresh))
                if call.value.check_states:
                    self._follower.flush()
                    with self._follower.model.database.reading() as model:
                        check_changes(model, [*fresh, *planned.fresh])
            except (CallerError, Conflict) as error:
                call.error = error
                continue
            indexes.append((call, planned.indexes))
            fresh.extend(planned.fresh)
            known.update((event.event_id, event) for event in planned.fresh)
        return fresh, indexes
