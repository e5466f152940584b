"""The writer: rules 1 to 3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .actors import Actor, Step, View, before_put, finished, listing, of_size, pack_order, temporary
from .model import ABSENT, Broken, Scenario, Store, merged, packed, stage_put, tail_end


class Writer(NamedTuple):
    """Where a writer stands: `item` of its script, the acts still to do (a number: check the packs of that size)."""

    item: int = 0
    todo: tuple[str | int, ...] = ()
    view: View = View()
    folded: int | None = None
    in_ledger: bool = False
    n: int = 0
    known: frozenset[int] = frozenset()  # the batches a steady writer has seen


def writer(scenario: Scenario, script: tuple[int, ...], name: str) -> Actor:
    """Rules 1 to 3 for the batches of `script`, one after the other."""
    broken = scenario.broken
    before = before_put(scenario)
    order: tuple[str, ...] = ("list", "head", "ledger")
    if Broken.LEDGER_BEFORE_HEAD in broken:
        order = ("list", "ledger", "head")
    if Broken.WRITER_HEAD_BEFORE_LISTING in broken:
        order = ("head", "list", "ledger")
    # Packs first: a pack that covered n when n was put is still there, or was folded, which the head then shows.
    checks: tuple[str | int, ...] = (*pack_order(scenario), "check head")
    if Broken.HEAD_CHECK_BEFORE_PACK_CHECK in broken:
        checks = ("check head", *pack_order(scenario))
    if Broken.NO_HEAD_CHECK in broken:
        checks = pack_order(scenario)
    if Broken.NO_PACK_CHECK in broken:
        checks = ("check head",)

    def acknowledged(label: str, store: Store, me: Writer) -> Step:
        batch = script[me.item]
        store = store._replace(acked=store.acked | {batch})
        label = f"{label}, acknowledges batch {batch}"
        after = Writer(me.item + 1)
        if scenario.steady and me.todo[-1:] == checks[-1:] and after.item < len(script):
            # That n + 1 is free proves that nobody staged since; if it was folded or packed, the checks tell.
            after = Writer(after.item, (*before, "put"), n=me.n + 1, known=me.known | {batch})
            if script[after.item] in after.known:
                after = Writer(after.item)
        return Step(label, store, after)

    def decided(label: str, store: Store, me: Writer) -> Step:
        """Acknowledge a known batch as soon as it is known; go on to the put when rule 1 is done."""
        batch = script[me.item]
        if me.in_ledger:
            return acknowledged(f"{label}, a duplicate", store, me)
        if me.view.done and me.folded is not None:
            view = merged(me.view.stage, me.view.packs, broken)
            if batch in view[me.folded :]:
                return acknowledged(f"{label}, a duplicate", store, me)
            # Only the number is needed from here on, so nothing else stays in the state.
            known = frozenset(view[me.folded :]) - {ABSENT} if scenario.steady else frozenset()
            me = me._replace(view=View(), folded=None, n=tail_end(view, me.folded) + 1, known=known)
        if not me.todo:
            known = me.known | store.ledger if scenario.steady else me.known
            return Step(f"{label}, will take {me.n}", store, Writer(me.item, (*before, "put"), n=me.n, known=known))
        return Step(label, store, me)

    def put(store: Store, me: Writer) -> Iterator[Step]:
        batch, n = script[me.item], me.n
        again = Writer(me.item)
        following = me._replace(n=n + 1)
        if n > scenario.sequences:
            return  # the bound of the model
        linked = finished(scenario, store, name)
        if linked is None:
            yield Step("finds its temporary file gone", store, again)
            return
        store = linked
        done = stage_put(store, n, batch)
        if done is None:
            yield Step(f"finds {n} taken", store, following if Broken.EXISTING_TAKES_NEXT in broken else again)
            return
        yield Step(f"puts batch {batch} at {n}", done, me._replace(todo=checks))
        if store.losses:
            after = following if Broken.LOST_TAKES_NEXT in broken else again
            yield Step(f"puts batch {batch} at {n}, answer lost", done._replace(losses=store.losses - 1), after)
            if store.inflight is None:
                late = store._replace(inflight=(n, batch), losses=store.losses - 1)
                yield Step(f"puts batch {batch} at {n}, answer lost, still under way", late, after)

    def steps(store: Store, me: Writer) -> Iterator[Step]:
        if me.item == len(script):
            return
        if not me.todo:
            me = Writer(me.item, order)
        elif store.crashes:
            yield Step("crashes, its client retries", store._replace(crashes=store.crashes - 1), Writer(me.item))
        act, rest = me.todo[0], me.todo[1:]
        if act == "list":
            for label, view in listing(scenario, "writer", store, me.view):
                after = me._replace(view=view, todo=rest if view.done else me.todo)
                yield decided(label, store, after)
        elif act == "head":
            yield decided(f"reads s={store.folded}", store, me._replace(folded=store.folded, todo=rest))
        elif act == "ledger":
            known = script[me.item] in store.ledger
            yield decided("reads the ledger", store, me._replace(in_ledger=known, todo=rest))
        elif act in before:
            step = temporary(store, name, str(act), me.n, (script[me.item],))
            yield Step(step.label, step.store, me._replace(todo=rest) if step.local else Writer(me.item))
        elif act == "put":
            yield from put(store, me)
        else:
            if isinstance(act, int):
                label, covered = f"looks for {me.n} in packs of {act}", packed(of_size(store.packs, act), me.n)
            else:
                label, covered = f"reads s={store.folded} again", store.folded >= me.n
            if covered:
                yield Step(f"{label}, starts again", store, Writer(me.item))
            elif rest:
                yield Step(label, store, me._replace(todo=rest))
            else:
                yield acknowledged(label, store, me)

    return Actor(name, Writer(), steps)
