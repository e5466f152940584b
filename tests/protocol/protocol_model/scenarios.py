"""The scenarios that are explored, and for each broken rule the smallest one that shows why the rule is there."""

from __future__ import annotations

from .model import Broken, Scenario

ALL = frozenset({"writer", "fold", "packer", "reader"})
FOLD = (("append", 1),)

QUICK = {
    "a retry elsewhere, folds": Scenario(folds=FOLD),
    "a retry after a loss or a crash": Scenario(writers=((1,),), folds=FOLD, losses=1, crashes=1),
    "two folds and a compaction": Scenario(
        writers=(), preloaded=(1, 2), folds=(("append", 1), ("merge", 1)), compactions=1
    ),
    "a compaction between lost commits": Scenario(
        writers=(), preloaded=(1, 2), folds=(("merge", 2),), compactions=1, losses=1
    ),
    "packs under writers": Scenario(writers=((1, 2), (3,)), packers=1),
    "packs under a reader": Scenario(
        writers=((1, 2),), packers=1, reader=True, torn=frozenset({"reader"}), sequences=3
    ),
    "a fold under a reader": Scenario(
        writers=((1,), (2,)), folds=FOLD, reader=True, torn=frozenset({"reader"}), sequences=2
    ),
    "a steady writer": Scenario(writers=((1, 2), (2,)), folds=FOLD, steady=True),
    "an erasure beside a packer": Scenario(
        writers=(), preloaded=(1, 2), packers=1, folds=FOLD, erases=True, sequences=2
    ),
    "an erasure beside writers": Scenario(writers=((1,), (1,)), folds=FOLD, erases=True, sequences=2),
}
"""Each is explored to the end in a second or so."""

FULL = {
    "retries": Scenario(folds=(("append", 2),), losses=1, crashes=1),
    "retries and all committers": Scenario(
        writers=((1,), (1,)), folds=(("append", 1), ("merge", 1)), compactions=1, losses=1, crashes=1, sequences=2
    ),
    "committers": Scenario(
        writers=((1,),),
        preloaded=(2, 3),
        folds=(("append", 2), ("merge", 2)),
        compactions=2,
        losses=1,
        crashes=1,
        sequences=3,
    ),
    "packs": Scenario(writers=((1, 2), (3,)), folds=FOLD, packers=1, reader=True, sequences=3),
    "two packers": Scenario(folds=FOLD, packers=2, torn=frozenset({"packer"}), sequences=3),
    "packs of packs": Scenario(
        writers=((1,), (6,)),
        preloaded=(2, 3, 4),
        prepacked=((1, (2, 3)),),
        folds=FOLD,
        packers=1,
        pack_sizes=(2, 4),
    ),
    "torn listings": Scenario(writers=((1,), (2,)), folds=FOLD, packers=1, reader=True, torn=ALL, sequences=2),
    "torn listings and a retry": Scenario(folds=FOLD, packers=1, reader=True, torn=ALL, sequences=3),
    "three writers": Scenario(
        writers=((1, 2), (3,), (3,)), folds=FOLD, packers=1, torn=frozenset({"writer"}), sequences=3
    ),
    "steady writers": Scenario(writers=((1, 2), (2, 3)), folds=FOLD, packers=1, losses=1, steady=True),
}
"""Several are explored to the end, the others up to a limit."""

FULL["an erasure beside everybody"] = Scenario(
    writers=((1, 2), (2,)), folds=(("append", 2),), packers=2, crashes=1, erases=True, sequences=3
)

EVERYTHING = Scenario(
    folds=(("append", 2), ("merge", 1)),
    compactions=1,
    packers=1,
    reader=True,
    remembers=True,
    torn=ALL,
    losses=2,
    crashes=2,
)
"""Too large to finish: its first steps breadth first, the depth by random walks."""

_PACKED = Scenario(writers=((1, 2), (3,)), packers=1)
_TORN_READER = frozenset({"reader"})

COUNTEREXAMPLES = {
    Broken.LEDGER_BEFORE_HEAD: Scenario(folds=FOLD, sequences=3),
    Broken.WRITER_HEAD_BEFORE_LISTING: Scenario(folds=FOLD, sequences=3),
    Broken.LOST_TAKES_NEXT: Scenario(writers=((1,),), losses=1),
    Broken.EXISTING_TAKES_NEXT: Scenario(writers=((1,), (1,))),
    Broken.NO_HEAD_CHECK: Scenario(folds=FOLD),
    Broken.NO_PACK_CHECK: _PACKED,
    Broken.HEAD_CHECK_BEFORE_PACK_CHECK: Scenario(writers=((1, 2), (3,)), packers=1, folds=FOLD),
    Broken.LEDGER_AFTER_COMMIT: Scenario(writers=((1,), (1,)), folds=FOLD),
    Broken.READER_HEAD_BEFORE_LISTING: Scenario(writers=((1,),), folds=FOLD, reader=True),
    Broken.HOLES_ACCEPTED: Scenario(writers=((1,), (2,)), reader=True, torn=_TORN_READER),
    Broken.PROBE_AFTER_HEAD: Scenario(folds=FOLD, reader=True, torn=_TORN_READER, sequences=3),
    Broken.FILE_WINS: Scenario(writers=((1, 2), (3,)), packers=1, reader=True, sequences=3),
    Broken.ONE_LISTING: Scenario(writers=((1, 2),), packers=1, reader=True, torn=_TORN_READER, sequences=3),
    Broken.LARGE_PACKS_FIRST: Scenario(writers=(), preloaded=(1, 2, 3, 4), packers=1, pack_sizes=(2, 4), reader=True),
    Broken.SMALL_PACK_WINS: Scenario(
        writers=((1,), (6,)), preloaded=(2, 3, 4), prepacked=((1, (2, 3)),), packers=1, pack_sizes=(2, 4)
    ),
    Broken.NO_CONFLICT_CHECK: QUICK["two folds and a compaction"],
    Broken.NO_REACHED_CHECK: QUICK["two folds and a compaction"],
    Broken.MOVED_S_ACCEPTED: Scenario(writers=(), preloaded=(1, 2), folds=(("append", 1), ("append", 1))),
    Broken.DROPS_OWN_COMMIT: Scenario(writers=(), preloaded=(1,), folds=FOLD, losses=1),
    Broken.COMPACTION_WRITES_S: Scenario(writers=(), preloaded=(1, 2), folds=(("append", 2),), compactions=1),
    Broken.CLEANS_FILES_ABOVE_S: Scenario(writers=((1,),)),
    Broken.CLEANS_STRADDLING_PACK: Scenario(writers=(), preloaded=(1, 2), folds=FOLD, packers=1),
    Broken.UNALIGNED_PACKS: _PACKED,
    Broken.INCOMPLETE_PACKS: Scenario(writers=((1,), (2,)), packers=1),
    Broken.PUTS_UNCONFIRMED: QUICK["an erasure beside a packer"],
    Broken.FILLS_BEFORE_CONFIRMING: QUICK["an erasure beside a packer"],
    Broken.UNFINISHED_STAYS: QUICK["an erasure beside a packer"],
    Broken.ENDS_PUTS_BEFORE_FOLD: QUICK["an erasure beside a packer"],
}

ONE_LISTING_BREAKS = {
    "fold": Scenario(writers=((1, 2), (3,)), packers=1, folds=FOLD, torn=frozenset({"fold"}), sequences=3),
    "writer": Scenario(writers=((1, 2), (3,), (3,)), packers=1, torn=frozenset({"writer"}), sequences=3),
    "reader": Scenario(writers=((1, 2),), packers=1, folds=FOLD, reader=True, torn=_TORN_READER, sequences=3),
}
"""Who goes wrong when files and packs come from one listing and originals are deleted at once."""
