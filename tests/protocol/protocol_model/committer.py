"""The committers: folds that append, folds that rewrite the base as a keyed one may, and compactions.

Rules 5, 10 and 12. Writing data files is not a step: nothing refers to them until the log entry is put.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .actors import Actor, Step, View, listing
from .model import EMPTY, Broken, DataFile, Entry, ProtocolError, Scenario, Store, log_put, merged, tail_end


class Committer(NamedTuple):
    """Where a rewrite stands; `left` is how many more this actor may finish."""

    left: int
    act: str = ""
    view: View = View()
    base: int = 0  # the version it is about to follow
    folded: int = 0  # the s it was planned from
    target: int | None = None  # the s its entry carries
    reads: tuple[DataFile, ...] = ()
    batches: tuple[int, ...] = ()  # what its data file holds
    folds: tuple[int, ...] = ()  # those of them that come from the stage
    unsure: bool = False  # an answer to its put was lost


def committer(scenario: Scenario, kind: str, left: int, name: str) -> Actor:
    """One committer; `kind` is 'append' or 'merge' for a fold, or 'compact'."""
    broken = scenario.broken
    ledger_last = Broken.LEDGER_AFTER_COMMIT in broken

    def plans(store: Store, me: Committer) -> Iterator[Step]:
        """Read the head, after the listing, and choose: a fold may stop anywhere in the contiguous tail."""
        label = f"reads head {store.version}, s={store.folded}"
        reads = () if kind == "append" else store.files
        kept = tuple(sorted(batch for file in reads for batch in file.batches))
        plan = Committer(me.left, "commit", View(), store.version, store.folded, None, reads, kept)
        if kind == "compact":
            if reads:
                target = store.folded if Broken.COMPACTION_WRITES_S in broken else None
                yield Step(label, store, plan._replace(target=target))
            return
        view = merged(me.view.stage, me.view.packs, broken)
        end = tail_end(view, store.folded)
        if end == store.folded:
            yield Step(f"{label}, nothing to fold", store, Committer(me.left))
        for target in range(store.folded + 1, end + 1):
            folds = tuple(batch for batch in view[store.folded : target] if batch != EMPTY)
            act = "commit" if ledger_last else "ledger"
            after = plan._replace(act=act, target=target, batches=tuple(sorted(kept + folds)), folds=folds)
            yield Step(f"{label}, folds {folds} up to {target}", store, after)

    def commits(store: Store, me: Committer) -> Iterator[Step]:
        version = me.base + 1
        entry = Entry(version, me.target, me.reads, DataFile(version, name, me.batches))
        done = log_put(store, entry)
        if done is None:
            yield Step(f"finds version {version} taken", store, me._replace(act="refresh"))
            return
        label = f"puts version {version} (s={me.target}, {me.batches})"
        after = me._replace(act="ledger") if ledger_last and me.folds else Committer(me.left - 1)
        yield Step(label, done, after)
        if store.losses:
            unsure = me._replace(act="refresh", unsure=True)
            yield Step(f"{label}, answer lost", done._replace(losses=store.losses - 1), unsure)
            if store.inflight is None:
                late = store._replace(inflight=entry, losses=store.losses - 1)
                yield Step(f"{label}, answer lost, still under way", late, unsure)

    def refreshes(store: Store, me: Committer) -> Step:
        """Rule 12, with the one addition that a fold runs again when s is not the one it was planned from."""
        label = f"reads head {store.version}, s={store.folded} again"
        again, done = Committer(me.left), Committer(me.left - 1)
        mine = any(file.owner == name and file.version == me.base + 1 for file in store.files)
        if mine and me.unsure:
            if Broken.DROPS_OWN_COMMIT in broken:
                raise ProtocolError(f"I4: {name} {label} and drops its files, which version {me.base + 1} names")
            return Step(f"{label}, its own entry", store, done)
        if me.folds and me.target is not None:
            if store.folded >= me.target and Broken.NO_REACHED_CHECK not in broken:
                return Step(f"{label}, s has reached {me.target}, drops its files", store, done)
            lenient = {Broken.MOVED_S_ACCEPTED, Broken.NO_REACHED_CHECK} & broken
            if store.folded != me.folded and not lenient:
                return Step(f"{label}, s has moved, runs again", store, again)
        if not set(me.reads) <= set(store.files) and Broken.NO_CONFLICT_CHECK not in broken:
            return Step(f"{label}, its input is gone, runs again", store, again)
        return Step(f"{label}, no conflict", store, me._replace(act="commit", base=store.version))

    def steps(store: Store, me: Committer) -> Iterator[Step]:
        if not me.left:
            return
        if me.act and store.crashes:
            yield Step("crashes", store._replace(crashes=store.crashes - 1), Committer(me.left - 1))
        if me.act == "ledger":
            noted = store._replace(ledger=store.ledger | set(me.folds))
            after = Committer(me.left - 1) if ledger_last else me._replace(act="commit")
            yield Step(f"writes {me.folds} to the ledger", noted, after)
        elif me.act == "commit":
            yield from commits(store, me)
        elif me.act == "refresh":
            yield refreshes(store, me)
        elif kind == "compact" or me.view.done:
            yield from plans(store, me)
        else:
            for label, view in listing(scenario, "fold", store, me.view):
                yield Step(label, store, me._replace(act="list", view=view))

    return Actor(name, Committer(left), steps)
