"""Names of staged files, and which of them cover the sequences after the folded one.

A staged file holds one sequence; a pack holds the sequences of one aligned block, so that two packers
choose the same name. Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

BLOCK_SIZES = (64, 4096)


@dataclass(frozen=True, slots=True, order=True)
class StagedName:
    """The name of a staged file or pack, and the sequences it may hold."""

    first: int
    last: int
    name: str

    @property
    def is_pack(self) -> bool:
        return self.block_size is not None

    @property
    def block_size(self) -> int | None:
        """The size of a pack's block; None for a single file."""
        return int(self.name.split("-")[1]) if self.name.startswith("pack-") else None


def file_name(sequence: int) -> StagedName:
    """Name the staged file of one sequence."""
    return StagedName(sequence, sequence, f"{sequence:020}.parquet")


def pack_name(size: int, sequence: int) -> StagedName:
    """Name the pack of `size` whose block holds `sequence`; sequence 0 does not exist."""
    block = sequence // size
    return StagedName(max(block * size, 1), block * size + size - 1, f"pack-{size}-{block:010}.parquet")


@lru_cache(maxsize=65_536)
def parse_name(name: str) -> StagedName | None:
    """Parse a name; None for any other file in the folder."""
    stem, dot, ending = name.partition(".")
    if ending != "parquet" or not dot:
        return None
    if stem.startswith("pack-"):
        _, size, block = (*stem.split("-"), "", "")[:3]
        if not (size.isdigit() and block.isdigit() and int(size) in BLOCK_SIZES):
            return None
        parsed = pack_name(int(size), int(block) * int(size))
    elif stem.isdigit():
        parsed = file_name(int(stem))
    else:
        return None
    return parsed if parsed.name == name else None


@dataclass(frozen=True, slots=True)
class Coverage:
    """The files that hold the sequences from `after` + 1 without a gap, and the first missing sequence."""

    after: int
    files: tuple[StagedName, ...]
    missing: int | None

    @property
    def end(self) -> int:
        """The last sequence covered, or `after` if nothing is covered."""
        return self.files[-1].last if self.files else self.after


def cover(names: Collection[str], after: int) -> Coverage:
    """Choose the files for the sequences after `after`: a pack wins over the files it was built from.

    `missing` is the first sequence that no file holds although a later one exists.
    """
    chosen: list[StagedName] = []
    position = after + 1
    while found := _file_holding(names, position):
        chosen.append(found)
        position = found.last + 1
    beyond = any((parsed := parse_name(name)) is not None and parsed.last >= position for name in names)
    return Coverage(after, tuple(chosen), position if beyond else None)


def _file_holding(names: Collection[str], sequence: int) -> StagedName | None:
    for size in reversed(BLOCK_SIZES):
        if (pack := pack_name(size, sequence)).name in names:
            return pack
    single = file_name(sequence)
    return single if single.name in names else None


def packs_covering(sequence: int) -> tuple[str, ...]:
    """Return the names of the packs that would hold `sequence`, small ones first."""
    return _packs_of_block(sequence // BLOCK_SIZES[0])


@lru_cache(maxsize=1_024)
def _packs_of_block(block: int) -> tuple[str, ...]:
    return tuple(pack_name(size, block * BLOCK_SIZES[0]).name for size in BLOCK_SIZES)


def larger_packs_covering(file: StagedName) -> tuple[str, ...]:
    """Return the names of the packs that `file` would be a member of."""
    return tuple(pack_name(size, file.first).name for size in BLOCK_SIZES if size > (file.block_size or 0))


def complete_blocks(coverage: Coverage) -> list[tuple[StagedName, tuple[StagedName, ...]]]:
    """Return the packs that could be built now, each with the files it would replace, oldest first.

    A block is complete when all of its sequences are covered: a block whose first sequences are
    folded can never be packed whole, so it is left to the fold.
    """
    made = []
    for size in BLOCK_SIZES:
        by_block: dict[StagedName, list[StagedName]] = {}
        for file in coverage.files:
            pack = pack_name(size, file.first)
            if file != pack and file.last <= pack.last:
                by_block.setdefault(pack, []).append(file)
        for pack, members in by_block.items():
            whole = members[0].first == pack.first and members[-1].last == pack.last
            if whole and len(members) > 1 and pack.first > coverage.after:
                made.append((pack, tuple(members)))
    # A block of 64 inside a complete block of 4,096 is not packed twice.
    return [
        (pack, members)
        for pack, members in made
        if not any(other.first <= pack.first and pack.last <= other.last and other != pack for other, _ in made)
    ]
