"""The change log of one table: commits changes and reads what is committed (PROTOCOL 1 to 8, 16).

One thread-safe `ChangeLog` per table and process. Any number of processes may have one.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from crannog.delta.log import Base, DeltaLog, marker_path
from crannog.errors import Conflict, CrannogError, NotFound, Unavailable
from crannog.protocol.file_names import complete_blocks, file_name, packs_covering, parse_name
from crannog.protocol.ledger import Ledger
from crannog.protocol.staged_files import Change, Segment, build_segment, encode, merge_segments, staged_schema
from crannog.protocol.tail import Tail, TailCache
from crannog.storage import failpoints
from crannog.storage.interface import Storage
from crannog.storage.local import PREALLOCATED_BYTES, PREALLOCATED_FOLDER

_COMMIT_TIMEOUT_S = 60.0
_MAX_LOST_ANSWERS = 3
_PREALLOCATE_AFTER_COMMITS = 8
_MAX_DURABLE_PATHS = 20_000


class _FoldedMeanwhile(Exception):
    """The sequence to be put was folded meanwhile."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The sequence of a committed change; `duplicate` if an earlier call committed it."""

    sequence: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is staged and not folded yet."""

    rows: int
    bytes: int
    files: int
    oldest_us: int | None


class ChangeLog:
    """The ordered, durable changes of one table, and the head of its base."""

    def __init__(
        self, storage: Storage, folder: str, *, dedup_window_s: float, dedup_window_batches: int, pack_bytes: int
    ) -> None:
        self._storage = storage
        self.folder = folder
        self.log = DeltaLog(storage, folder)
        self._pack_bytes = pack_bytes
        self._state = threading.RLock()
        self._packing = threading.Lock()
        base = self.log.head()
        self.table_id = base.table_id
        own = f"{folder}/_crannog/{base.table_id}"
        self.stage_folder = f"{own}/stage"
        self.own_folder = own
        self.ledger = Ledger(storage, f"{own}/batches", window_s=dedup_window_s, max_batches=dedup_window_batches)
        self._tail = TailCache(storage, self.stage_folder, base.table_id)
        self._writer = uuid.uuid4().hex
        self._durable: set[str] = set()
        self._groups = 0
        self._is_preallocating = False
        self._ledger_version = -1
        self._stale = True
        self._known_base = base
        self._last_checked: tuple[int, int | None] = (-1, None)

    def head(self) -> Base:
        """Return the newest version of the base."""
        with self._state:
            base = self.log.head()
            if base.table_id != self.table_id:
                raise NotFound(f"table {self.folder.replace('/', '.')} was dropped and created again; reopen it")
            return base

    def refresh(self) -> tuple[Base, Tail]:
        """Return one consistent snapshot: a version of the base and the changes staged after it."""
        with self._state:
            base = self._refresh()
            return base, self._tail.view(base)

    def catch_up(self) -> tuple[Base, Tail]:
        """Return what `refresh` returns, without a listing where few changes were staged since the last read."""
        with self._state:
            base = self._catch_up()
            return base, self._tail.view(base)

    def last_seen(self) -> tuple[Base, Tail]:
        """Return the snapshot as this process last saw it, its own commits included, without touching storage."""
        with self._state:
            if self._stale:
                return self.refresh()
            return self._known_base, self._tail.view(self._known_base)

    def last_seen_base(self) -> Base:
        """Return the base as this process last saw it."""
        with self._state:
            return self._catch_up() if self._stale else self._known_base

    def backlog(self) -> Backlog:
        """Return the staged backlog as this process last saw it."""
        with self._state:
            if self._stale:
                self._catch_up()
            tail = self._tail
            return Backlog(tail.rows, tail.bytes, len(tail.coverage.files), tail.oldest_us)

    @property
    def position(self) -> tuple[int, int]:
        """The version of the base and the last sequence, as this process knows them; changes with every change of the table."""
        return self._known_base.version, self._tail.end

    def is_last(self, sequence: int) -> bool:
        """Tell, with a few probes instead of a listing, whether nothing was committed after `sequence`.

        False may also mean that only a refresh can tell. The next change would be in a file of its own, then in a pack,
        then in the base; they are probed in this order.
        """
        # Read before the probes: a put after it changes the stamp, and the probes find a put before it.
        stamp = self._storage.change_stamp(self.stage_folder)
        if stamp is not None and self._last_checked == (sequence, stamp) and self._tail.end == sequence:
            return True
        with self._state:
            if self._stale or self._tail.end != sequence:
                return False
            following, base = sequence + 1, self._known_base
        names = (file_name(following).name, *packs_covering(following))
        if any(self._storage.exists(f"{self.stage_folder}/{name}") for name in names):
            return False
        if self.head() is not base:
            return False
        self._last_checked = (sequence, stamp)
        return True

    def unchanged_stamp(self, sequence: int) -> int | None:
        """Return the change stamp under which `sequence` was last seen to be the end of the stage.

        While the stage folder has this stamp, nothing was staged after `sequence`. None if that is not known.
        """
        known, stamp = self._last_checked
        return stamp if known == sequence else None

    def commit(self, changes: Sequence[Change], *, after: int | None = None) -> list[Committed]:
        """Commit the changes in one staged file and return once they are durable and visible; skip known batches.

        With `after`, the changes become the very next sequence after it or are not committed: raises Conflict if
        another writer took that sequence. This is for callers whose rows depend on everything committed before them.

        Callers come one at a time (the writer's group commit), or with `after`. Raises Unavailable if the storage failed; the changes
        may or may not be committed then, and sending them again with the same batch ids is safe.
        """
        with self._state:
            self._groups += 1
            own = f"{self._writer}-{self._groups}"
        lost = 0
        gives_up = time.monotonic() + _COMMIT_TIMEOUT_S
        while time.monotonic() < gives_up:
            with self._state:
                if self._stale:
                    self._catch_up()
                committed = self._look_up(changes, own)
                fresh = self._first_per_batch(changes, committed) if len(changes) > 1 or committed[0] else changes
                sequence = self._tail.end + 1
            if not fresh:
                if self._make_durable(committed):
                    return committed  # type: ignore[return-value]
                continue
            if after is not None and sequence != after + 1:
                raise Conflict(
                    f"{self.folder.replace('/', '.')} is at sequence {sequence - 1}, the change was prepared for {after}:"
                    " nothing was committed; read the new changes and prepare it again"
                )
            segment = build_segment(fresh, sequence, own, self._known_base.staged_types)
            name = file_name(sequence)
            path = f"{self.stage_folder}/{name.name}"
            try:
                taken = self._put(path, segment)
            except Unavailable as error:
                # The answer is lost: rule 1 finds the file if it was written.
                lost += 1
                self._resolve_lost_answer(sequence, error, lost)
                continue
            with self._state:
                if taken and self._is_still_valid(sequence):
                    self._mark_durable(path)
                    if self._tail.end < sequence:
                        self._tail.add(name, segment)
                    if failpoints.hook is not None:
                        failpoints.reached("stage.acknowledged")
                    if len(fresh) == len(changes):
                        return [Committed(sequence, duplicate=False)] * len(changes)
                    return self._look_up(changes, own)  # type: ignore[return-value]
                self._stale = True
        raise Unavailable(
            f"cannot write to {self.folder.replace('/', '.')}: other writers won for {_COMMIT_TIMEOUT_S:.0f} s; try again"
        )

    def _put(self, path: str, segment: Segment) -> bool:
        """Put a staged file; return False if its sequence is taken or was folded meanwhile. Raises as `put_if_absent`."""
        smallest = PREALLOCATED_BYTES if self._storage.is_local else 0
        data = encode(segment, table_id=self.table_id, schema_version=str(self._known_base.version), smallest=smallest)
        # In a bucket the check before the put would cost as much as the put, and could not stop a late one.
        before_write = partial(self._check_not_folded, segment.last) if self._storage.is_local else None
        try:
            return self._storage.put_if_absent(path, data, before_write=before_write)
        except _FoldedMeanwhile:
            return False
        except FileNotFoundError:
            if not self._storage.exists(marker_path(self.folder, self.table_id)):
                raise NotFound(f"table {self.folder.replace('/', '.')} was dropped") from None
            return False  # an erase deleted the unfinished file

    def expect_others(self) -> None:
        """Make the next commit look first at what other processes have committed."""
        with self._state:
            self._stale = True

    def pack(self) -> int:
        """Merge complete blocks of small staged files into packs and delete the files; return the number of packs."""
        made = 0
        with self._packing:
            with self._state:
                # Refresh first: what was folded meanwhile, and perhaps erased, must not come back as a pack.
                self._refresh()
                blocks = complete_blocks(self._tail.coverage)
                work = [(pack, [self._tail.segment(file) for file in files], files) for pack, files in blocks]
            for pack, segments, files in work:
                if sum(segment.bytes for segment in segments) > self._pack_bytes * (len(segments) // 64 + 1):
                    continue
                base = self._known_base
                whole = merge_segments(segments, pack.first, pack.last, base.schema)
                data = encode(whole, table_id=self.table_id, schema_version=str(base.version))
                # If the name is taken, another packer put the same changes there.
                with suppress(FileNotFoundError, _FoldedMeanwhile):
                    path = f"{self.stage_folder}/{pack.name}"
                    mine = self._storage.put_if_absent(
                        path, data, before_write=partial(self._check_not_folded, pack.first)
                    )
                    failpoints.reached("pack.written")
                    with self._state:
                        if pack.last <= self.head().folded:
                            # Another packer's file stays: an erase may have taken the name to keep late packers out.
                            self._storage.delete([path] if mine else [])
                            continue
                        if all(file in self._tail.coverage.files for file in files):
                            self._tail.replace_with_pack(pack, whole)
                    # No grace period: readers that listed the files find them gone, list again and find the pack.
                    self._storage.delete(f"{self.stage_folder}/{file.name}" for file in files)
                    failpoints.reached("pack.originals_deleted")
                    made += 1
        return made

    def end_unfinished_puts(self) -> bool:
        """Make every unfinished put to the stage that began before this call fail; its writer then starts over.

        Together with `_check_not_folded`, this ensures that nothing staged up to the folded sequence can be put again
        after this call. Returns False if, in a bucket, a pack that reaches beyond that sequence is being put: fold
        once more and try again.
        """
        unfinished = [
            file.path
            for folder in (self.stage_folder, f"{self.own_folder}/{PREALLOCATED_FOLDER}")
            for file in self._storage.walk(folder)
            if file.path.endswith(".tmp")
        ]
        if self._storage.is_local:
            self._storage.delete(unfinished)
            return True
        base = self.head()
        ended = True
        for path in unfinished:
            # In a bucket a put cannot be cancelled, but its name can be taken: readers skip a folded pack.
            pack = parse_name(path.rpartition("/")[2].removeprefix(".").rsplit(".", 2)[0])
            if pack is not None and pack.last > base.folded:
                ended = False
                continue
            if pack is not None:
                empty = Segment(pack.first, pack.last, staged_schema(base.schema).empty_table(), (), 0)
                data = encode(empty, table_id=self.table_id, schema_version=str(base.version))
                self._storage.put_if_absent(f"{self.stage_folder}/{pack.name}", data)
            self._storage.delete([path])
        return ended

    def work_due(self) -> list[Callable[[], object]]:
        """Return, without I/O, what to do in the background after a commit: pack, or preallocate files."""
        due: list[Callable[[], object]] = []
        if (self._tail.end + 1) % 64 == 0:  # the commit may have completed a block
            due.append(self.pack)
        # Not worthwhile for a process that rarely writes.
        writes_often = self._groups >= _PREALLOCATE_AFTER_COMMITS and not self._is_preallocating
        if writes_often and not self._storage.is_preallocated(self.stage_folder):
            due.append(self._preallocate)
        return due

    def _preallocate(self) -> None:
        self._is_preallocating = True
        try:
            self._storage.preallocate(self.stage_folder)
        finally:
            self._is_preallocating = False

    def staged_names(self) -> list[str]:
        """Return the names of the staged files, for the cleaner."""
        return [name for name in self._storage.names(self.stage_folder) if parse_name(name)]

    def _catch_up(self) -> Base:
        # In a bucket a listing costs no more than a few probes, and a miss costs as much as a hit.
        if (
            self._storage.is_local
            and self._ledger_version == self._known_base.version
            and self._tail.advance(self.head, self._known_base)
        ):
            self._stale = False
            return self._known_base
        return self._refresh()

    def _refresh(self) -> Base:
        # Rule 1: files, packs, then the head, then the ledger.
        base = self._tail.refresh(self.head)
        if base.version != self._ledger_version:
            self.ledger.refresh()
            self._ledger_version = base.version
        self._known_base, self._stale = base, False
        return base

    def _look_up(self, changes: Sequence[Change], own: str) -> list[Committed | None]:
        found: list[Committed | None] = []
        seen: set[str] = set()
        for change in changes:
            position = self._tail.batches.get(change.batch_id) or self.ledger.batches.get(change.batch_id)
            if position is None:
                found.append(None)
                continue
            # Of two calls with the same id in this group, the first committed it.
            repeated = position.writer != (change.writer or own) or change.batch_id in seen
            seen.add(change.batch_id)
            found.append(Committed(position.sequence, duplicate=repeated))
        return found

    def _make_durable(self, committed: Sequence[Committed | None]) -> bool:
        """Make durable what other writers staged before acknowledging it as a duplicate.

        They may have died before they synced it, or their sync failed, and then another sync would prove nothing.
        Returns False if it was packed or folded meanwhile; the next lookup finds it.
        """
        with self._state:
            covering = self._tail.coverage.files
            doubtful = {
                f"{self.stage_folder}/{file.name}": file
                for file in covering
                for position in committed
                if position is not None and file.first <= position.sequence <= file.last
            }
        try:
            for path in doubtful.keys() - self._durable:
                self._storage.rewrite_synced(path, before_write=partial(self._check_not_folded, doubtful[path].last))
                self._mark_durable(path)
        except (FileNotFoundError, _FoldedMeanwhile):
            with self._state:
                self._stale = True
            return False
        return True

    def _mark_durable(self, path: str) -> None:
        """Remember a staged file that this process has synced."""
        with self._state:
            self._durable.add(path)
            if len(self._durable) > _MAX_DURABLE_PATHS:
                self._durable = {
                    f"{self.stage_folder}/{file.name}" for file in self._tail.coverage.files
                } & self._durable

    @staticmethod
    def _first_per_batch(changes: Sequence[Change], committed: Sequence[Committed | None]) -> list[Change]:
        first: dict[str, Change] = {}
        for change, position in zip(changes, committed, strict=True):
            if position is None:
                first.setdefault(change.batch_id, change)
        return list(first.values())

    def _is_still_valid(self, sequence: int) -> bool:
        # Rule 3: a paused writer may have reused a number whose file was packed or folded, and deleted. Packs
        # first: one that is gone by now was folded, and the head shows it.
        if any(self._storage.exists(f"{self.stage_folder}/{name}") for name in packs_covering(sequence)):
            return False
        return sequence > self.head().folded

    def _check_not_folded(self, sequence: int) -> None:
        # Called when the temporary file exists and is still empty: an erase folds first and then deletes such files.
        # So either this check finds the fold, or the erase finds the file.
        if sequence <= self.head().folded:
            raise _FoldedMeanwhile

    def _resolve_lost_answer(self, sequence: int, error: Unavailable, lost: int) -> None:
        path = f"{self.stage_folder}/{file_name(sequence).name}"
        try:
            there = self._storage.exists(path)
            if there and self._storage.is_local:
                # Most likely the sync failed. A second sync would succeed and prove nothing.
                self._storage.rewrite_synced(path, before_write=partial(self._check_not_folded, sequence))
                self._mark_durable(path)
        except (FileNotFoundError, _FoldedMeanwhile):
            there = True  # folded, and perhaps deleted: rule 1 finds the batch in the ledger
        except CrannogError:
            there = False
        with self._state:
            self._stale = True
        if not there and (self._storage.is_local or lost >= _MAX_LOST_ANSWERS):
            raise error
