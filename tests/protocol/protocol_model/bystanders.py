"""Those who never change what the table says: packers, the cleaner, the network, and the reader that looks on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .actors import Actor, Step, View, before_put, finished, listing, of_size, temporary
from .model import (
    ABSENT,
    EMPTY,
    Broken,
    DataFile,
    Entry,
    Pack,
    Packs,
    Scenario,
    Stage,
    Store,
    check_snapshot,
    log_put,
    merged,
    packed,
    replaced,
    stage_put,
    tail_end,
)


class Packer(NamedTuple):
    """A packer that lists, or that is about to put `pack`; `todo` are the acts before that."""

    view: View = View()
    pack: Pack | None = None
    todo: tuple[str, ...] = ()


def packer(scenario: Scenario, name: str) -> Actor:
    """Rule 16: aligned, complete blocks, put if absent. It need not look at the head."""
    incomplete = Broken.INCOMPLETE_PACKS in scenario.broken
    small = scenario.pack_sizes[0]
    before = before_put(scenario)

    def blocks(held: Stage, size: int) -> Iterator[Pack]:
        stride = 1 if Broken.UNALIGNED_PACKS in scenario.broken else size
        for first in range(1, len(held) - size + 2, stride):
            block = held[first - 1 : first - 1 + size]
            if all(block) or (incomplete and any(block)):
                yield first, tuple(batch or EMPTY for batch in block)

    def steps(store: Store, me: Packer) -> Iterator[Step]:
        if me.pack is not None and me.todo:
            step = temporary(store, name, me.todo[0], me.pack[0], me.pack[1])
            yield Step(step.label, step.store, me._replace(todo=me.todo[1:]) if step.local else Packer())
            return
        if me.pack is not None:
            linked = finished(scenario, store, name)
            if linked is None:
                yield Step("finds its temporary file gone", store, Packer())
                return
            store = linked
            taken = any((first, len(held)) == (me.pack[0], len(me.pack[1])) for first, held in store.packs)
            after = store if taken else store._replace(packs=tuple(sorted((*store.packs, me.pack))))
            yield Step("finds its pack there" if taken else f"puts pack {me.pack}", after, Packer())
            return
        for label, view in listing(scenario, "packer", store, me.view):
            if not view.stage:
                yield Step(label, store, Packer(view))
                continue
            for pack in blocks(view.stage, small):
                yield Step(f"{label}, packs {pack}", store, Packer(View(), pack, before))
        if me.view.before is None and len(scenario.pack_sizes) > 1:
            # A large pack is made of small ones only, as files under them may be anybody's.
            held = merged((ABSENT,) * scenario.sequences, of_size(store.packs, small))
            for pack in blocks(held, scenario.pack_sizes[1]):
                yield Step(f"reads the packs of {small}, packs {pack}", store, Packer(View(), pack, before))

    return Actor(name, Packer(), steps)


def cleaner(scenario: Scenario) -> Actor:
    """Rule 14 without any grace, and originals under a pack at once.

    It has no state of its own: what it may delete stays so (s never goes back, a pack goes only when s has passed
    it), so a cleaner that decided long ago deletes nothing that one deciding now would not.
    """
    above = 1 if Broken.CLEANS_FILES_ABOVE_S in scenario.broken else 0
    straddling = Broken.CLEANS_STRADDLING_PACK in scenario.broken

    def replaceable(packs: Packs, n: int) -> bool:
        return not scenario.keeps_originals and packed(packs, n)

    def steps(store: Store, me: object) -> Iterator[Step]:
        for n, batch in enumerate(store.stage, 1):
            if batch and (n <= store.folded + above or replaceable(store.packs, n)):
                yield Step(f"deletes file {n}", store._replace(stage=replaced(store.stage, n, ABSENT)), me)
        for pack in store.packs:
            first, held = pack
            folded = (first if straddling else first + len(held) - 1) <= store.folded
            larger = tuple(other for other in store.packs if len(other[1]) > len(held))
            if folded or replaceable(larger, first):
                packs = tuple(other for other in store.packs if other != pack)
                yield Step(f"deletes pack {pack}", store._replace(packs=packs), me)

    return Actor("cleaner", None, steps)


def eraser(scenario: Scenario) -> Actor:
    """Rule 18, of the stage: after a fold it ends unfinished puts; when the stage shows nothing up to s, that is proof.

    It deletes as the cleaner does, so the cleaner does it for both. Its state is the acts still to do, and s.
    """
    acts = ("fold", "end puts", "prove")
    if Broken.ENDS_PUTS_BEFORE_FOLD in scenario.broken:
        acts = ("end puts", "fold", "prove")
    if Broken.UNFINISHED_STAYS in scenario.broken:
        acts = ("fold", "prove")

    def steps(store: Store, me: tuple[tuple[str, ...], int]) -> Iterator[Step]:
        todo, folded = me
        if not todo:
            return
        if todo[0] == "fold" and store.folded:
            yield Step(f"has folded up to {store.folded}", store, (todo[1:], store.folded))
        elif todo[0] == "end puts":
            yield Step("deletes the temporary files", store._replace(unfinished=()), (todo[1:], folded))
        elif todo[0] == "prove":
            packs = any(first <= folded for first, _ in store.packs)
            if not packs and not any(store.stage[:folded]):
                gone = store.erased | set(store.truth[:folded])
                yield Step(f"proves that nothing up to {folded} is staged", store._replace(erased=gone), ((), folded))

    return Actor("eraser", (acts, 0), steps)


def network() -> Actor:
    """A put whose sender gave up on the answer arrives after all."""

    def steps(store: Store, me: object) -> Iterator[Step]:
        late = store.inflight
        if late is None:
            return
        done = log_put(store, late) if isinstance(late, Entry) else stage_put(store, *late)
        yield Step(f"delivers {tuple(late)}", (done or store)._replace(inflight=None), me)

    return Actor("network", None, steps)


class Reader(NamedTuple):
    """Where a read stands; `acked` is what was acknowledged when it began, `kept` the files read by earlier reads."""

    act: str = "begin"
    acked: frozenset[int] = frozenset()
    view: View = View()
    folded: int | None = None
    files: tuple[DataFile, ...] = ()
    kept: Stage = ()


def reader(scenario: Scenario) -> Actor:
    """Rule 6: list, probe, list the packs, read the head, accept contiguous coverage or start over."""
    broken = scenario.broken
    head_first = Broken.READER_HEAD_BEFORE_LISTING in broken
    late_probe = Broken.PROBE_AFTER_HEAD in broken
    holes = Broken.HOLES_ACCEPTED in broken

    def ended(store: Store, me: Reader) -> Reader:
        """Check the snapshot if there is one; the read is over either way."""
        assert me.folded is not None
        view = merged(me.view.stage, me.view.packs, broken)
        end = tail_end(view, me.folded)
        listed = max((n for n, batch in enumerate(view, 1) if batch), default=0)
        if holes or listed <= end:
            check_snapshot(store, me.folded, me.files, view[me.folded : max(end, listed)], me.acked)
        return Reader(kept=me.view.stage if scenario.remembers else ())

    def hole(view: Stage, folded: int) -> int:
        """The first missing number below one that was listed, or 0."""
        end = tail_end(view, folded)
        return end + 1 if any(view[end:]) else 0

    def probed(store: Store, me: Reader, folded: int) -> tuple[str, Reader]:
        n = hole(me.view.stage, folded)
        stage = replaced(me.view.stage, n, store.stage[n - 1])
        return f"probes {n}", me._replace(view=me.view._replace(stage=stage))

    def listed(label: str, store: Store, me: Reader, view: View) -> Step:
        """After the files a missing number is probed by name, once, before the packs are listed."""
        fresh = view.stage and not me.view.stage
        if fresh and me.kept:
            pairs = zip(view.stage, me.kept, strict=True)
            view = view._replace(stage=tuple(kept if kept and seen else seen for seen, kept in pairs))
        me = me._replace(view=view, act="list")
        if fresh and not (late_probe or holes) and hole(view.stage, 0):
            me = me._replace(act="probe")
        elif view.done and me.folded is None:
            me = me._replace(act="head")
        elif view.done:
            me = ended(store, me)
        return Step(label, store, me)

    def steps(store: Store, me: Reader) -> Iterator[Step]:
        if me.act == "begin":
            me = me._replace(act="head" if head_first else "list", acked=store.acked)
        if me.act == "head":
            label = f"reads head {store.version}, s={store.folded}"
            me = me._replace(folded=store.folded, files=store.files)
            if head_first:
                me = me._replace(act="list")
            elif late_probe and hole(merged(me.view.stage, me.view.packs), store.folded):
                me = me._replace(act="late probe")
            else:
                me = ended(store, me)
            yield Step(label, store, me)
        elif me.act == "late probe":
            assert me.folded is not None
            label, me = probed(store, me, me.folded)
            yield Step(label, store, ended(store, me))
        elif me.act == "probe":
            label, me = probed(store, me, 0)
            yield Step(label, store, me._replace(act="head" if me.view.done else "list"))
        else:
            for label, view in listing(scenario, "reader", store, me.view):
                yield listed(label, store, me, view)

    return Actor("reader", Reader(), steps)
