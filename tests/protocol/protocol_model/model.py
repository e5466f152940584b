"""What is modelled: one table's storage, the faults it may meet, and what must hold in every state.

Data is abstract. A batch is a small number, a staged file or one place in a pack holds one batch, a data file
of the base holds a multiset of batches. Packs cover blocks of 2 and 4 sequences instead of 64 and 4,096. All is an
immutable, hashable tuple; the actors say who may turn one into the next, one storage operation at a time.

`Store.truth` is a ghost: the batch that first took each sequence while that was above s and in no pack. No actor
reads it. It lets the checks say "every snapshot is a prefix of the one true history", which is what I4 means.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

ABSENT = 0
EMPTY = 7  # a place inside a pack that holds nothing; only a broken packer makes one

Stage = tuple[int, ...]  # the batch in the file of each sequence, from sequence 1 on
Pack = tuple[int, Stage]  # the first sequence it covers, and what it holds
Packs = tuple[Pack, ...]  # sorted


class DataFile(NamedTuple):
    """A file of the base, named by the version that added it and by who wrote it."""

    version: int
    owner: str
    batches: tuple[int, ...]


class Entry(NamedTuple):
    """A log entry to be put at `version`; `folded` is None where it carries no txn."""

    version: int
    folded: int | None
    removed: tuple[DataFile, ...]
    added: DataFile


class Store(NamedTuple):
    """Everything the actors share, with the budgets of faults that are left."""

    stage: Stage
    packs: Packs
    ledger: frozenset[int]
    version: int
    folded: int
    files: tuple[DataFile, ...]
    acked: frozenset[int]
    inflight: tuple[int, int] | Entry | None  # a put whose answer was lost and that may still arrive
    truth: Stage
    losses: int
    crashes: int
    unfinished: tuple[tuple[str, Stage], ...] = ()  # temporary files: who writes them, and what they hold by now
    erased: frozenset[int] = frozenset()  # batches of which an erasure has proved that the stage does not hold them


class Broken(Enum):
    """A rule taken out, or read in a way that turned out not to hold."""

    LEDGER_BEFORE_HEAD = "rule 1: the writer reads the ledger before the head"
    WRITER_HEAD_BEFORE_LISTING = "rule 1: the writer reads the head before it lists"
    LOST_TAKES_NEXT = "rule 2: after a lost answer the writer takes the next number"
    EXISTING_TAKES_NEXT = "rule 2: after an existing file the writer takes the next number"
    NO_HEAD_CHECK = "rule 3: the writer acknowledges without reading the head"
    NO_PACK_CHECK = "rule 3: the writer acknowledges without looking at the packs"
    HEAD_CHECK_BEFORE_PACK_CHECK = "rule 3: the writer checks the head, then the packs"
    LEDGER_AFTER_COMMIT = "rule 5: the fold writes the ledger after its commit"
    READER_HEAD_BEFORE_LISTING = "rule 6: the reader reads the head before it lists"
    HOLES_ACCEPTED = "rule 6: the reader takes whatever it listed above s"
    PROBE_AFTER_HEAD = "rule 6: the reader probes a missing number after it read the head"
    LARGE_PACKS_FIRST = "rule 6: large packs are listed before the small ones they replace"
    FILE_WINS = "rule 6: a file wins over a pack"
    SMALL_PACK_WINS = "rule 6: a small pack wins over the large one that replaced it"
    ONE_LISTING = "rule 6: files and packs come from one listing, which is not atomic"
    NO_CONFLICT_CHECK = "rule 12: a committer does not look whether its inputs are still there"
    NO_REACHED_CHECK = "rule 12: a fold commits although s has reached or passed its own"
    MOVED_S_ACCEPTED = "rule 12 to the letter: a fold commits although s moved, if it did not reach its own"
    DROPS_OWN_COMMIT = "rule 12: a fold whose answer was lost drops its files without looking whether they are live"
    COMPACTION_WRITES_S = "rule 10 to the letter: a compaction's entry carries the s it started from"
    CLEANS_FILES_ABOVE_S = "rule 14: the cleaner deletes the first file above s"
    CLEANS_STRADDLING_PACK = "rule 14: the cleaner deletes a pack that begins at or below s"
    UNALIGNED_PACKS = "rule 16: a pack may begin anywhere"
    INCOMPLETE_PACKS = "rule 16: a block is packed before all its sequences are there"
    PUTS_UNCONFIRMED = "rule 18: who puts does not read the head between making and filling the temporary file"
    FILLS_BEFORE_CONFIRMING = "rule 18: the temporary file is filled before the head is read"
    UNFINISHED_STAYS = "rule 18: an erasure leaves temporary files alone"
    ENDS_PUTS_BEFORE_FOLD = "rule 18: an erasure deletes temporary files before its fold is committed"


@dataclass(frozen=True)
class Scenario:
    """Who takes part and how often; small bounds, so that a scenario can be explored to the end."""

    writers: tuple[tuple[int, ...], ...] = ((1, 2), (2,))
    """The batches each writer sends, in order; one id with two writers is a client that tries again elsewhere."""
    folds: tuple[tuple[str, int], ...] = ()
    """'append' or 'merge' (rewrites the base, as a keyed fold may), and how many folds it commits at most."""
    compactions: int = 0
    packers: int = 0
    pack_sizes: tuple[int, ...] = (2,)
    keeps_originals: bool = False
    """Whether what a pack covers stays until s has reached it, instead of being deleted at once."""
    erases: bool = False
    """Whether an erasure runs, and whoever puts to the stage goes by way of a temporary file that it can delete."""
    reader: bool = False
    torn: frozenset[str] = frozenset()
    """Kinds of actor whose listings are not atomic: writer, fold, packer, reader."""
    steady: bool = False
    """Whether a writer that has just acknowledged n goes on with n + 1 from what it knows, without rule 1's reads."""
    remembers: bool = False
    """Whether the reader reads each file once and keeps what it read for its next reads (rule 7)."""
    preloaded: tuple[int, ...] = ()
    """Batches that are staged and acknowledged at the start."""
    prepacked: Packs = ()
    """Packs that hold some of those at the start; their originals are gone already."""
    sequences: int = 4
    losses: int = 0
    crashes: int = 0
    broken: frozenset[Broken] = field(default=frozenset())

    def start(self) -> Store:
        """The first state."""
        truth = self.preloaded + (ABSENT,) * (self.sequences - len(self.preloaded))
        stage = tuple(ABSENT if packed(self.prepacked, n) else batch for n, batch in enumerate(truth, 1))
        acked = frozenset(self.preloaded)
        return Store(stage, self.prepacked, frozenset(), 0, 0, (), acked, None, truth, self.losses, self.crashes)


class ProtocolError(Exception):
    """A state or a read that the rules should make impossible."""


def replaced(values: Stage, n: int, batch: int) -> Stage:
    """Return `values` with the one for sequence `n` changed."""
    return (*values[: n - 1], batch, *values[n:])


def packed(packs: Packs, n: int) -> bool:
    """Tell whether a pack covers sequence `n`."""
    return any(first <= n < first + len(batches) for first, batches in packs)


def merged(stage: Stage, packs: Packs, broken: frozenset[Broken] = frozenset()) -> Stage:
    """What a listing of files and packs gives per sequence: a pack wins over a file, a large one over a small one."""
    view = list(stage)
    for first, batches in sorted(packs, key=lambda pack: len(pack[1]), reverse=Broken.SMALL_PACK_WINS in broken):
        for n, batch in enumerate(batches, first):
            if not (Broken.FILE_WINS in broken and stage[n - 1]):
                view[n - 1] = batch
    return tuple(view)


def tail_end(view: Stage, folded: int) -> int:
    """The last sequence of the contiguous tail above `folded`."""
    n = folded
    while n < len(view) and view[n]:
        n += 1
    return n


def stage_put(store: Store, n: int, batch: int) -> Store | None:
    """Put the file of sequence `n` if absent; None if something stands there."""
    if store.stage[n - 1]:
        return None
    truth = store.truth
    if n > store.folded and not packed(store.packs, n) and not truth[n - 1]:
        truth = replaced(truth, n, batch)
    return store._replace(stage=replaced(store.stage, n, batch), truth=truth)


def log_put(store: Store, entry: Entry) -> Store | None:
    """Put a log entry at its version if absent; None if another took it."""
    if entry.version <= store.version:
        return None
    if entry.version != store.version + 1:
        raise ProtocolError(f"I3: version {entry.version} was put above head {store.version}")
    folded = store.folded if entry.folded is None else entry.folded
    if folded < store.folded:
        raise ProtocolError(f"I3: s goes back from {store.folded} to {folded}")
    files = [file for file in store.files if file not in entry.removed]
    return store._replace(version=entry.version, folded=folded, files=(*files, entry.added))


def check_snapshot(store: Store, folded: int, files: tuple[DataFile, ...], tail: Stage, acked: frozenset[int]) -> None:
    """Check what a reader got: the base of one version, and `tail`, the batches it took for `folded` + 1 on."""
    base = [batch for file in files for batch in file.batches]
    tail = tuple(ABSENT if batch == EMPTY else batch for batch in tail)
    counts = Counter([*base, *(batch for batch in tail if batch)])
    for batch in sorted(acked):
        if not counts[batch]:
            raise ProtocolError(f"I1: batch {batch} was acknowledged and is not in the snapshot")
    for batch, count in sorted(counts.items()):
        if count > 1:
            raise ProtocolError(f"I2: batch {batch} is {count} times in the snapshot")
    history = sorted(batch for batch in store.truth[:folded] if batch)
    if sorted(base) != history or tail != store.truth[folded : folded + len(tail)]:
        raise ProtocolError(f"I4: s={folded} base={base} tail={tail} is no prefix of the history {store.truth}")


def check_store(store: Store) -> None:
    """Check what a reader would get that did all its steps right now."""
    view = merged(store.stage, store.packs)
    tail = view[store.folded : tail_end(view, store.folded)]
    check_snapshot(store, store.folded, store.files, tail, store.acked)
    held = {batch for part in (store.stage, *(held for _, held in (*store.packs, *store.unfinished))) for batch in part}
    if store.erased & held:
        raise ProtocolError(f"I5: batch {min(store.erased & held)} was erased and is staged again")
    if any(store.truth[store.folded + len(tail) :]):
        raise ProtocolError(f"I4: the tail ends at {store.folded + len(tail)}, the history is {store.truth}")
