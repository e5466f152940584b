"""What all actors have in common: each is a function from the store and its own state to the steps it may take next.

One step is one storage operation (list, read the head, read the ledger, put, delete) and the decision that
follows from its answer. An actor that is never scheduled again has crashed; a `crash` step is a crash after
which the client, or the next run of the task, starts over and remembers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from itertools import product
from typing import Any, NamedTuple

from .model import Broken, Packs, Scenario, Stage, Store


class Step(NamedTuple):
    """What was done, and the store and the actor's own state after it."""

    label: str
    store: Store
    local: Hashable


class Actor(NamedTuple):
    """A name for traces, the first local state, and the function that yields the steps."""

    name: str
    start: Hashable
    steps: Callable[[Store, Any], Iterator[Step]]  # the local state is whatever `start` is


class View(NamedTuple):
    """A listing under way or done: what stood there when it began, what it gave, and the acts still to do."""

    todo: tuple[int, ...] = ()  # FILES, or the size of the packs to list
    before: tuple[Stage, Packs] | None = None
    stage: Stage = ()
    packs: Packs = ()

    @property
    def done(self) -> bool:
        """Tell whether everything was listed."""
        return bool(self.stage) and not self.todo


FILES = 1


def before_put(scenario: Scenario) -> tuple[str, ...]:
    """What comes before a put to the stage where somebody may erase: the temporary file first, what it holds last."""
    if not scenario.erases:
        return ()
    if Broken.PUTS_UNCONFIRMED in scenario.broken:
        return ("make", "fill")
    if Broken.FILLS_BEFORE_CONFIRMING in scenario.broken:
        return ("make", "fill", "confirm")
    return ("make", "confirm", "fill")


def temporary(store: Store, name: str, act: str, n: int, batches: Stage) -> Step:
    """Do one of those acts for a put at sequence `n`; the step's local state tells whether to go on."""
    others = tuple(entry for entry in store.unfinished if entry[0] != name)
    if act == "make":
        return Step("makes a temporary file", store._replace(unfinished=tuple(sorted((*others, (name, ()))))), True)
    if act == "confirm":
        if n > store.folded:
            return Step(f"reads s={store.folded}, below {n}", store, True)
        return Step(f"reads s={store.folded}, gives {n} up", store._replace(unfinished=others), False)
    if others == store.unfinished:  # deleted: what is written to it goes when it is closed
        return Step("fills a file that has no name any more", store, True)
    return Step("fills it", store._replace(unfinished=tuple(sorted((*others, (name, batches))))), True)


def finished(scenario: Scenario, store: Store, name: str) -> Store | None:
    """The store without the temporary file that a put gives its final name; None if that file is gone."""
    if not scenario.erases:
        return store
    others = tuple(entry for entry in store.unfinished if entry[0] != name)
    return None if others == store.unfinished else store._replace(unfinished=others)


def listing(scenario: Scenario, kind: str, store: Store, view: View) -> Iterator[tuple[str, View]]:
    """One step of seeing the stage: the files and what is in them first, then the packs, small ones before large.

    The order is what makes it safe to delete originals at once: a file that was read before the packs were listed
    is the original unless a pack or s covers it by then, and a file that is gone was covered before.
    """
    together = Broken.ONE_LISTING in scenario.broken
    if not view.todo:
        view = View((FILES,) if together else (FILES, *pack_order(scenario)))
    act, rest = view.todo[0], view.todo[1:]
    packs = store.packs if together else ()
    if act != FILES:
        found = tuple(sorted((*view.packs, *of_size(store.packs, act))))
        yield f"lists the packs of {act}", view._replace(todo=rest, packs=found)
    elif kind not in scenario.torn:
        yield "lists and reads the files", View(rest, None, store.stage, packs)
    elif view.before is None:
        yield "begins to list", view._replace(before=(store.stage, packs))
    else:
        for stage in _either(*zip(view.before[0], store.stage, strict=True)):
            for seen in _subsets(view.before[1], packs):
                shown = f"{stage} and packs {seen}" if together else f"{stage}"
                yield f"ends its listing with {shown}", View(rest, None, stage, seen)


def pack_order(scenario: Scenario) -> tuple[int, ...]:
    """In which order packs are looked at, by size."""
    sizes = scenario.pack_sizes
    return sizes[::-1] if Broken.LARGE_PACKS_FIRST in scenario.broken else sizes


def of_size(packs: Packs, size: int) -> Packs:
    """The packs that cover `size` sequences."""
    return tuple(pack for pack in packs if len(pack[1]) == size)


def _either(*pairs: tuple[int, int]) -> Iterator[Stage]:
    """All results of a listing that ran from before to after: what changed meanwhile shows either way."""
    return product(*[(before,) if before == after else (before, after) for before, after in pairs])


def _subsets(before: Packs, after: Packs) -> Iterator[Packs]:
    """The same for packs."""
    sure = set(before) & set(after)
    for shown in product(*[((), (pack,)) for pack in sorted(set(before) ^ set(after))]):
        yield tuple(sorted(sure.union(*shown)))
