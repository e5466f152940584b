"""The tree of a trace, worked out once over all its spans: neither depth nor cycles can hang it.

Roots come first, then orphans (whose parent is not there, or not yet), then what only a cycle holds together, cut open
at its earliest span; siblings by start. All of these tops have depth 0.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from crannog.traces.tree.span_arrays import MISSING_PARENT, NO_PARENT, Skeleton


@dataclass(frozen=True)
class Tree:
    """Facts about each span, by its place in the skeleton; `order` has the places in the order of the tree."""

    bones: Skeleton
    order: array[int] = field(repr=False)
    rank: array[int] = field(repr=False)
    """Where a span stands in `order`."""
    parents: array[int] = field(repr=False)
    """The parent in the tree; -1 for a top."""
    depths: array[int] = field(repr=False)
    sizes: array[int] = field(repr=False)
    """Spans in the subtree, itself included."""
    own_ns: array[int] = field(repr=False)
    """Time during which no child ran."""
    tops: tuple[int, ...] = field(repr=False)
    roots: int
    orphans: int
    cycles: int

    @property
    def start_ns(self) -> int:
        return self.bones.starts[0]

    @property
    def end_ns(self) -> int:
        return max(self.bones.ends)

    def is_orphan(self, place: int) -> bool:
        return self.bones.parents[place] == MISSING_PARENT

    def is_in_cycle(self, place: int) -> bool:
        """Tell whether a cycle was cut open here."""
        return self.parents[place] < 0 and self.bones.parents[place] >= 0

    def starts_early(self, place: int) -> bool:
        parent = self.parents[place]
        return parent >= 0 and self.bones.starts[place] < self.bones.starts[parent]

    def ends_late(self, place: int) -> bool:
        parent = self.parents[place]
        return parent >= 0 and self.bones.ends[place] > self.bones.ends[parent]

    def children(self, place: int) -> Iterator[int]:
        """Yield the children of a span, in the order of the tree."""
        at, end = self.rank[place] + 1, self.rank[place] + self.sizes[place]
        while at < end:
            child = self.order[at]
            yield child
            at += self.sizes[child]

    def path(self, place: int, most: int) -> list[int]:
        """Return the way from the top to a span, itself last; of a longer one than `most`, its end."""
        found = [place]
        while len(found) < most and (place := self.parents[place]) >= 0:
            found.append(place)
        return found[::-1]


def tree_of(bones: Skeleton) -> Tree:
    count = len(bones)
    given = bones.parents
    # Linked lists of children, last first: no object per span.
    last, before = array("i", [-1]) * count, array("i", [-1]) * count
    roots, orphans = [], []
    for place in range(count):
        parent = given[place]
        if parent >= 0:
            before[place], last[parent] = last[parent], place
        elif parent == NO_PARENT:
            roots.append(place)
        else:
            orphans.append(place)
    order, rank = array("i"), array("i", [-1]) * count
    parents, depths = array("i", [-1]) * count, array("i", [0]) * count
    cycles = []

    def place_under(tops: list[int]) -> None:
        waiting = tops[::-1]
        while waiting:
            place = waiting.pop()
            if rank[place] >= 0:
                continue  # the span at which a cycle was cut open
            rank[place] = len(order)
            order.append(place)
            child, depth = last[place], depths[place] + 1
            while child >= 0:
                if rank[child] < 0:
                    parents[child], depths[child] = place, depth
                    waiting.append(child)
                child = before[child]

    place_under(roots + orphans)
    if len(order) < count:
        for place in range(count):
            if rank[place] < 0:
                cycles.append(place)
                place_under([place])
    sizes = array("i", [1]) * count
    for place in reversed(order):
        if parents[place] >= 0:
            sizes[parents[place]] += sizes[place]
    return Tree(
        bones, order, rank, parents, depths, sizes, _own_times(bones, parents), (*roots, *orphans, *cycles),
        len(roots), len(orphans), len(cycles),
    )  # fmt: skip


def _own_times(bones: Skeleton, parents: array[int]) -> array[int]:
    """Return how long each span ran while none of its children did."""
    starts, ends = bones.starts, bones.ends
    own, covered = array("q"), array("q", starts)
    for place in range(len(bones)):
        own.append(ends[place] - starts[place])
    for place in range(len(bones)):  # by start, so what children cover grows to the right only
        parent = parents[place]
        if parent >= 0:
            begin, end = max(starts[place], covered[parent]), min(ends[place], ends[parent])
            if end > begin:
                own[parent] -= end - begin
                covered[parent] = end
    return own
