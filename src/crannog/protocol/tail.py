"""The tail: the changes staged after the folded sequence, cached in memory; each file is read once.

`Tail` is an immutable view; `TailCache` keeps the newest view current (PROTOCOL 6).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from crannog.delta.log import Base
from crannog.errors import Corrupted
from crannog.protocol.file_names import (
    BLOCK_SIZES,
    Coverage,
    StagedName,
    cover,
    file_name,
    larger_packs_covering,
    packs_covering,
    parse_name,
)
from crannog.protocol.staged_files import BatchPosition, ChangeRecord, Segment, concat_segments, decode, staged_schema
from crannog.storage.interface import Storage

_MAX_ATTEMPTS = 50
_MAX_STEPS = 256
_PAUSE_S = 0.01


@dataclass(frozen=True)
class Tail:
    """The changes of the sequences after `after` up to `end`, oldest first."""

    after: int
    end: int
    segments: tuple[Segment, ...]
    schema: pa.Schema

    @cached_property
    def rows(self) -> pa.Table:
        """All staged rows in commit order, with `_seq`, `_ord` and `_op`."""
        wanted = staged_schema(self.schema)
        if not self.segments:
            return wanted.empty_table()
        table = concat_segments(self.segments, wanted)
        if self.segments[0].first <= self.after:  # a pack may reach below the folded sequence
            table = table.filter(pc.greater(table["_seq"], self.after))
        return table

    @cached_property
    def records(self) -> tuple[ChangeRecord, ...]:
        return tuple(record for segment in self.segments for record in segment.records if record.sequence > self.after)

    @property
    def row_count(self) -> int:
        return sum(record.rows for record in self.records)

    @cached_property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)


class TailCache:
    """The staged changes of one table as this process knows them. Not thread-safe; its owner holds a lock."""

    def __init__(self, storage: Storage, folder: str, table_id: str) -> None:
        self._storage = storage
        self.folder = folder
        self._table_id = table_id
        self._segments: dict[str, Segment] = {}
        self._names: frozenset[str] = frozenset()
        self.coverage = Coverage(0, (), None)
        self.end = 0
        """The last staged sequence; the folded one if nothing is staged."""
        self.batches: dict[str, BatchPosition] = {}
        self.rows = 0
        self.bytes = 0
        self.oldest_us: int | None = None
        self._view: Tail | None = None
        self.is_open = False
        self._stamp: int | None = None

    def segment(self, file: StagedName) -> Segment:
        return self._segments[file.name]

    def refresh(self, read_head: Callable[[], Base]) -> Base:
        """List and read the files, then the small packs, then the large ones, and then read the head.

        In this order, because no listing is atomic and the originals of a pack are deleted as soon as it exists:
        whatever existed when the refresh began is found under one of its names. Contents are read before the head,
        because a number that was folded and deleted may come back with what a paused writer put there. Starts over
        until the sequences after the head's have no gap.
        """
        if not self.is_open:
            self.coverage, self.is_open = Coverage(read_head().folded, (), None), True
            self.end = self.coverage.after
        missing = None
        for attempt in range(_MAX_ATTEMPTS):
            if attempt > 2:
                time.sleep(_PAUSE_S)
            # Read before the listing: a later put changes the stamp.
            stamp = self._storage.change_stamp(self.folder)
            if stamp is not None and stamp == self._stamp:
                base = read_head()
                if base.folded == self.coverage.after:
                    return base
            after, fresh = self.coverage.after, dict(self._segments)
            try:
                names = self._read_in_order(after, fresh)
            except FileNotFoundError:
                continue  # folded or packed since it was listed: the next listing shows which
            unchanged = names == self._names
            missing = None if unchanged else cover(names, after).missing
            if missing is not None:
                # A listing may show n + 1 without n, although n existed before it: read n by name.
                with suppress(FileNotFoundError):
                    self._read(file_name(missing), fresh)
                    names |= {file_name(missing).name}
            base = read_head()
            if unchanged and base.folded == self.coverage.after:
                self._stamp = stamp
                return base  # same listing and same fold: the installed tail is current
            coverage = cover(names, base.folded)
            if coverage.missing is None and all(file.name in fresh for file in coverage.files):
                self._install(coverage, names, fresh)
                self._stamp = stamp
                return base
        raise Corrupted(
            f"staged file {self.folder}/{file_name(missing or 0).name} is missing although later ones exist;"
            " restore it from a backup, the changes in it were acknowledged"
        )

    def advance(self, read_head: Callable[[], Base], base: Base) -> bool:
        """Add what was staged since the last read, file by file, by name; return False if it takes a refresh instead.

        The order is the one of `refresh`: contents, then packs over them, then the head, which must still be `base`.
        """
        fresh: dict[str, Segment] = {}
        following = self.end + 1
        try:
            while following <= self.end + _MAX_STEPS:
                self._read(file_name(following), fresh)
                following += 1
            return False
        except FileNotFoundError:
            pass
        covering = {name for sequence in range(self.end + 1, following + 1) for name in packs_covering(sequence)}
        if any(self._storage.exists(f"{self.folder}/{name}") for name in sorted(covering, key=_block_size)):
            return False
        if read_head() is not base:
            return False
        for segment in fresh.values():
            self.add(file_name(segment.first), segment)
        return True

    def _read_in_order(self, after: int, fresh: dict[str, Segment]) -> frozenset[str]:
        found: set[str] = set()
        for size in (None, *BLOCK_SIZES):
            listed = self._storage.names(self.folder)
            packs = frozenset(name for name in listed if name.startswith("pack-"))
            for name in listed:
                file = parse_name(name)
                if file is None or file.block_size != size or file.last <= after:
                    continue
                found.add(name)
                # An existing pack wins, and its originals may be disappearing.
                if name not in fresh and packs.isdisjoint(larger_packs_covering(file)):
                    self._read(file, fresh)
        return frozenset(found)

    def add(self, name: StagedName, segment: Segment) -> None:
        """Add a segment that this process has just committed, under this name, as the next sequence."""
        self._segments[name.name] = segment
        self._names |= {name.name}
        self.coverage, self.end = Coverage(self.coverage.after, (*self.coverage.files, name), None), segment.last
        self._count(segment)
        self._view = None

    def replace_with_pack(self, pack: StagedName, segment: Segment) -> None:
        """Replace the members of a pack with the pack, as the next listing would."""
        members = {file.name for file in self.coverage.files if pack.first <= file.first <= file.last <= pack.last}
        self._segments[pack.name] = segment
        for name in members:
            self._segments.pop(name, None)
        self._names = (self._names - members) | {pack.name}
        self.coverage = cover(self._names, self.coverage.after)
        self._view = None

    def view(self, base: Base) -> Tail:
        """Return the tail after the folded sequence of `base`, which is the head that `refresh` returned."""
        if self._view is None or self._view.after != base.folded or self._view.schema is not base.schema:
            if base.folded != self.coverage.after:
                self._install(cover(self._names, base.folded), self._names, self._segments)
            segments = tuple(self._segments[file.name] for file in self.coverage.files)
            self._view = Tail(base.folded, self.coverage.end, segments, base.schema)
        return self._view

    def _read(self, file: StagedName, fresh: dict[str, Segment]) -> None:
        fresh[file.name] = self._from_memory(file) or decode(
            self._storage.read(f"{self.folder}/{file.name}"), path=f"{self.folder}/{file.name}", table_id=self._table_id
        )

    def _from_memory(self, pack: StagedName) -> Segment | None:
        """Build a pack from its original files, if all of them were read before."""
        if not pack.is_pack:
            return None
        members = [
            self._segments[file.name]
            for file in self.coverage.files
            if pack.first <= file.first and file.last <= pack.last
        ]
        if not members or members[0].first != pack.first or members[-1].last != pack.last:
            return None
        tables = [member.content for member in members if isinstance(member.content, pa.Table)]
        if len(tables) < len(members) or any(not table.schema.equals(tables[0].schema) for table in tables):
            return None  # not converted to Arrow yet, or written before and after an evolution: the pack has one schema
        rows = pa.concat_tables(tables).combine_chunks()
        records = tuple(record for member in members for record in member.records)
        return Segment(pack.first, pack.last, rows, records, sum(member.bytes for member in members))

    def _install(self, coverage: Coverage, names: frozenset[str], segments: dict[str, Segment]) -> None:
        if coverage == self.coverage and names == self._names:
            return
        self.coverage, self.end, self._names, self._view = coverage, coverage.end, names, None
        self._segments = {file.name: segments[file.name] for file in coverage.files}
        self.batches, self.rows, self.bytes, self.oldest_us = {}, 0, 0, None
        for file in coverage.files:
            self._count(self._segments[file.name])

    def _count(self, segment: Segment) -> None:
        after = self.coverage.after
        for record in segment.records:
            if record.sequence > after:
                self.batches[record.batch_id] = BatchPosition(record.sequence, record.writer)
                self.rows += record.rows
                if self.oldest_us is None:
                    self.oldest_us = record.at_us
        self.bytes += segment.bytes


def _block_size(pack: str) -> int:
    return int(pack.split("-")[1])
