"""The change log of one table: how a change becomes committed, and what stands committed now (PROTOCOL 1 to 8, 16).

One `ChangeLog` per table and process, safe for threads. Any number of processes may have one.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from crannog.delta.log import Base, DeltaLog, marker_path
from crannog.errors import Conflict, CrannogError, NotFound, Unavailable
from crannog.protocol.file_names import complete_blocks, file_name, packs_over, parse_name
from crannog.protocol.ledger import Ledger
from crannog.protocol.small_parquet import padded
from crannog.protocol.staged_files import Change, Segment, encode, joined, segment_of, staged_schema
from crannog.protocol.tail import Tail, TailCache
from crannog.storage import failpoints
from crannog.storage.interface import Storage
from crannog.storage.preallocated_files import SPARE_BYTES, SPARE_FOLDER

_PATIENCE_S = 60.0
_LOST_ANSWERS = 3
_OFTEN = 8
_MOST_REMEMBERED = 20_000


class _Overtaken(Exception):
    """What was to be put was folded meanwhile."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a change stands; `duplicate` if an earlier call put it there."""

    sequence: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Backlog:
    """How much is staged and not folded."""

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
        self.ledger = Ledger(storage, f"{own}/batches", window_s=dedup_window_s, most=dedup_window_batches)
        self._tail = TailCache(storage, self.stage_folder, base.table_id)
        self._writer = uuid.uuid4().hex
        self._durable: set[str] = set()
        self._groups = 0
        self._is_preparing = False
        self._ledger_version = -1
        self._stale = True
        self._known_base = base
        self._quiet: tuple[int, int | None] = (-1, None)

    def head(self) -> Base:
        """Return the newest version of the base."""
        with self._state:
            base = self.log.head()
            if base.table_id != self.table_id:
                raise NotFound(f"table {self.folder.replace('/', '.')} was dropped and made again; open it anew")
            return base

    def refresh(self) -> tuple[Base, Tail]:
        """Return one whole snapshot: a version of the base and the changes staged after it."""
        with self._state:
            base = self._refresh()
            return base, self._tail.view(base)

    def caught_up(self) -> tuple[Base, Tail]:
        """Return as `refresh` does; where little was staged since the last look, without listing anything."""
        with self._state:
            base = self._catch_up()
            return base, self._tail.view(base)

    def latest(self) -> tuple[Base, Tail]:
        """Return the snapshot as this process last saw it, its own commits included, without touching storage."""
        with self._state:
            if self._stale:
                return self.refresh()
            return self._known_base, self._tail.view(self._known_base)

    def latest_base(self) -> Base:
        """Return the base as this process last saw it."""
        with self._state:
            return self._refresh() if self._stale else self._known_base

    def backlog(self) -> Backlog:
        """Return the staged backlog as this process last saw it."""
        with self._state:
            if self._stale:
                self._refresh()
            tail = self._tail
            return Backlog(tail.rows, tail.bytes, len(tail.coverage.files), tail.oldest_us)

    def is_last(self, sequence: int) -> bool:
        """Tell, by a few probes instead of a listing, whether nothing was committed after `sequence`.

        False may also mean that it takes a refresh to tell. The next change would stand in a file of its own, then in a pack, then in the base: asked for in this order.
        """
        # Before the probes: what is put after it changes it, what was put before it the probes find.
        stamp = self._storage.quiet_stamp(self.stage_folder)
        if stamp is not None and self._quiet == (sequence, stamp) and self._tail.end == sequence:
            return True
        with self._state:
            if self._stale or self._tail.end != sequence:
                return False
            following, base = sequence + 1, self._known_base
        names = (file_name(following).name, *packs_over(following))
        if any(self._storage.exists(f"{self.stage_folder}/{name}") for name in names):
            return False
        if self.head() is not base:
            return False
        self._quiet = (sequence, stamp)
        return True

    def quiet_since(self, sequence: int) -> int | None:
        """Return when the stage folder last changed, if that is long enough ago to tell the next change by it.

        None if something was staged after `sequence`, or it is not known.
        """
        known, stamp = self._quiet
        return stamp if known == sequence else None

    def commit(self, changes: Sequence[Change], *, after: int | None = None) -> list[Kept]:
        """Return once every change is durable and visible, in one staged file; a known batch is not kept again.

        With `after`, the changes are kept as the very next sequence after it or not at all: Conflict if another
        writer took that one, for callers whose rows depend on everything committed before them.

        Callers come one at a time (the writer's group commit). Raises Unavailable if the storage failed; then the
        changes may or may not be kept, and sending them again with the same batch ids is safe.
        """
        with self._state:
            self._groups += 1
            own = f"{self._writer}-{self._groups}"
        lost = 0
        gives_up = time.monotonic() + _PATIENCE_S
        while time.monotonic() < gives_up:
            with self._state:
                if self._stale:
                    self._catch_up()
                kept = self._look_up(changes, own)
                fresh = self._first_of_each(changes, kept)
                sequence = self._tail.end + 1
            if not fresh:
                if self._made_durable(kept):
                    return kept  # type: ignore[return-value]
                continue
            if after is not None and sequence != after + 1:
                raise Conflict(
                    f"{self.folder.replace('/', '.')} stands at sequence {sequence - 1}, the change was made for {after}:"
                    " nothing was kept; look at what was committed and make it again"
                )
            segment = segment_of(fresh, sequence, own, self._known_base.staged_types)
            data = encode(segment, table_id=self.table_id, schema_version=str(self._known_base.version))
            if self._storage.is_local:
                data = padded(data, SPARE_BYTES)
            path = f"{self.stage_folder}/{file_name(sequence).name}"
            # In a bucket the look before the put would cost as much as the put, and could not stop a late one.
            confirm = partial(self._confirm, sequence) if self._storage.is_local else None
            try:
                taken = self._storage.put_if_absent(path, data, confirm=confirm)
            except _Overtaken:
                taken = False
            except FileNotFoundError:
                if not self._storage.exists(marker_path(self.folder, self.table_id)):
                    raise NotFound(f"table {self.folder.replace('/', '.')} was dropped") from None
                taken = False  # an erase took the unfinished file away
            except Unavailable as error:
                # The answer is lost: rule 1 finds the file if it was written after all.
                lost += 1
                self._settle(sequence, error, lost)
                continue
            with self._state:
                if taken and self._still_counts(sequence):
                    self._is_durable(path)
                    if self._tail.end < sequence:
                        self._tail.add(segment)
                    failpoints.reached("stage.acknowledged")
                    return self._look_up(changes, own)  # type: ignore[return-value]
                self._stale = True
        raise Unavailable(f"cannot write to {self.folder.replace('/', '.')}: other writers won for {_PATIENCE_S:.0f} s")

    def pack(self) -> int:
        """Join complete blocks of small staged files into packs and drop the files; return how many packs were made."""
        made = 0
        with self._packing:
            with self._state:
                # Fresh: what was folded meanwhile, and perhaps erased, must not come back as a pack.
                self._refresh()
                blocks = complete_blocks(self._tail.coverage)
                work = [(pack, [self._tail.segment(file) for file in files], files) for pack, files in blocks]
            for pack, segments, files in work:
                if sum(segment.bytes for segment in segments) > self._pack_bytes * (len(segments) // 64 + 1):
                    continue
                base = self._known_base
                whole = joined(segments, pack.first, pack.last, base.schema)
                data = encode(whole, table_id=self.table_id, schema_version=str(base.version))
                # Taken already: another packer put the same changes there.
                with suppress(FileNotFoundError, _Overtaken):
                    path = f"{self.stage_folder}/{pack.name}"
                    mine = self._storage.put_if_absent(path, data, confirm=partial(self._confirm, pack.first))
                    failpoints.reached("pack.written")
                    with self._state:
                        if pack.last <= self.head().folded:
                            # Another's stays: an erasure may have taken the name to keep late packers out.
                            self._storage.delete([path] if mine else [])
                            continue
                        if all(file in self._tail.coverage.files for file in files):
                            self._tail.packed(pack, whole)
                    # No grace: readers that listed the files find them gone, list again and find the pack.
                    self._storage.delete(f"{self.stage_folder}/{file.name}" for file in files)
                    failpoints.reached("pack.originals_deleted")
                    made += 1
        return made

    def end_unfinished_puts(self) -> bool:
        """Make every put to the stage fail that began before this call and has not ended; a writer then starts over.

        Together with `_confirm`, nothing that was staged up to the folded sequence can be put again after this call.
        False if a pack is under way in a bucket that reaches beyond that sequence: fold once more and try again.
        """
        unfinished = [
            file.path
            for folder in (self.stage_folder, f"{self.own_folder}/{SPARE_FOLDER}")
            for file in self._storage.walk(folder)
            if file.path.endswith(".tmp")
        ]
        if self._storage.is_local:
            self._storage.delete(unfinished)
            return True
        base = self.head()
        ended = True
        for path in unfinished:
            # In a bucket a put cannot be called off, but its name can be taken: readers pass over a folded pack.
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

    @property
    def wants_packing(self) -> bool:
        """Tell cheaply whether the last commit may have completed a block."""
        return (self._tail.end + 1) % 64 == 0

    @property
    def wants_preparing(self) -> bool:
        """Tell cheaply whether there should be room for more small files: not for who writes now and then."""
        return self._groups >= _OFTEN and not self._is_preparing and not self._storage.is_prepared(self.stage_folder)

    def prepare(self) -> None:
        """Make ready for the next commits."""
        self._is_preparing = True
        try:
            self._storage.prepare(self.stage_folder)
        finally:
            self._is_preparing = False

    def history(self, limit: int | None) -> list[dict[str, Any]]:
        """List the versions of the base, newest first."""
        return DeltaLog(self._storage, self.folder).history(limit)

    def staged_names(self) -> list[str]:
        """Return what lies in the stage folder, for the cleaner."""
        return [name for name in self._storage.names(self.stage_folder) if parse_name(name)]

    def _catch_up(self) -> Base:
        # In a bucket a listing costs no more than a few probes, and a refusal of a probe as much as its answer.
        if self._storage.is_local and self._tail.is_open and self._tail.advance(self.head, self._known_base):
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

    def _look_up(self, changes: Sequence[Change], own: str) -> list[Kept | None]:
        found: list[Kept | None] = []
        seen: set[str] = set()
        for change in changes:
            place = self._tail.batches.get(change.batch_id) or self.ledger.place_of(change.batch_id)
            if place is None:
                found.append(None)
                continue
            # Of two calls with one id in this group, the first put it there.
            repeated = place.writer != own or change.batch_id in seen
            seen.add(change.batch_id)
            found.append(Kept(place.sequence, duplicate=repeated))
        return found

    def _made_durable(self, kept: Sequence[Kept | None]) -> bool:
        """Make durable what others staged before it is acknowledged as a repetition.

        They may have died before they synced it, or their sync failed: then another one would prove nothing.
        False if it was packed or folded meanwhile; the next look finds where it is.
        """
        with self._state:
            covering = self._tail.coverage.files
            doubtful = {
                f"{self.stage_folder}/{file.name}": file
                for file in covering
                for place in kept
                if place is not None and file.first <= place.sequence <= file.last
            }
        try:
            for path in doubtful.keys() - self._durable:
                self._storage.renew(path, confirm=partial(self._confirm, doubtful[path].last))
                self._is_durable(path)
        except (FileNotFoundError, _Overtaken):
            with self._state:
                self._stale = True
            return False
        return True

    def _is_durable(self, path: str) -> None:
        """Remember a staged file that this process has synced itself."""
        with self._state:
            self._durable.add(path)
            if len(self._durable) > _MOST_REMEMBERED:
                self._durable = {
                    f"{self.stage_folder}/{file.name}" for file in self._tail.coverage.files
                } & self._durable

    @staticmethod
    def _first_of_each(changes: Sequence[Change], kept: Sequence[Kept | None]) -> list[Change]:
        first: dict[str, Change] = {}
        for change, place in zip(changes, kept, strict=True):
            if place is None:
                first.setdefault(change.batch_id, change)
        return list(first.values())

    def _still_counts(self, sequence: int) -> bool:
        # Rule 3: a paused writer may have re-used a number whose file was packed or folded, and deleted. Packs
        # first: one that is gone when we look was folded, and the head tells.
        if any(self._storage.exists(f"{self.stage_folder}/{name}") for name in packs_over(sequence)):
            return False
        return sequence > self.head().folded

    def _confirm(self, sequence: int) -> None:
        # After a temporary file exists, before it holds anything: an erase folds first and then deletes such files.
        # So either this finds the fold, or the erase finds the file.
        if sequence <= self.head().folded:
            raise _Overtaken

    def _settle(self, sequence: int, error: Unavailable, lost: int) -> None:
        path = f"{self.stage_folder}/{file_name(sequence).name}"
        try:
            there = self._storage.exists(path)
            if there and self._storage.is_local:
                # Here it was the sync that failed, most likely. A second one would succeed without a meaning.
                self._storage.renew(path, confirm=partial(self._confirm, sequence))
                self._is_durable(path)
        except (FileNotFoundError, _Overtaken):
            there = True  # folded, and perhaps cleaned: rule 1 finds the batch in the ledger
        except CrannogError:
            there = False
        with self._state:
            self._stale = True
        if not there and (self._storage.is_local or lost >= _LOST_ANSWERS):
            raise error
