"""The tree of a trace, worked out once over all its spans: neither depth nor cycles can hang it.

Roots come first, then orphans (whose parent is not there, or not yet), then what only a cycle holds together, cut open
at its earliest span; siblings by start. All of these tops have depth 0.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from crannog.traces.tree.span_arrays import MISSING_PARENT, NO_PARENT, SpanArrays


@dataclass(frozen=True)
class Tree:
    """Facts about each span, by its place in the skeleton; `order` has the places in the order of the tree."""

    arrays: SpanArrays
    order: array[int] = field(repr=False)
    tree_position: array[int] = field(repr=False)
    """Where a span stands in `order`."""
    parents: array[int] = field(repr=False)
    """The parent in the tree; -1 for a top."""
    depths: array[int] = field(repr=False)
    sizes: array[int] = field(repr=False)
    """Spans in the subtree, itself included."""
    self_ns: array[int] = field(repr=False)
    """Time during which no child ran."""
    top_spans: tuple[int, ...] = field(repr=False)
    roots: int
    orphans: int
    cycles: int

    @property
    def start_ns(self) -> int:
        return self.arrays.starts[0]

    @property
    def end_ns(self) -> int:
        return max(self.arrays.ends)

    def is_orphan(self, index: int) -> bool:
        return self.arrays.parents[index] == MISSING_PARENT

    def is_in_cycle(self, index: int) -> bool:
        """Tell whether a cycle was cut open here."""
        return self.parents[index] < 0 and self.arrays.parents[index] >= 0

    def starts_early(self, index: int) -> bool:
        parent = self.parents[index]
        return parent >= 0 and self.arrays.starts[index] < self.arrays.starts[parent]

    def ends_late(self, index: int) -> bool:
        parent = self.parents[index]
        return parent >= 0 and self.arrays.ends[index] > self.arrays.ends[parent]

    def children(self, index: int) -> Iterator[int]:
        """Yield the children of a span, in the order of the tree."""
        at, end = self.tree_position[index] + 1, self.tree_position[index] + self.sizes[index]
        while at < end:
            child = self.order[at]
            yield child
            at += self.sizes[child]

    def path(self, index: int, most: int) -> list[int]:
        """Return the way from the top to a span, itself last; of a longer one than `most`, its end."""
        found = [index]
        while len(found) < most and (index := self.parents[index]) >= 0:
            found.append(index)
        return found[::-1]


def build_tree(arrays: SpanArrays) -> Tree:
    count = len(arrays)
    given = arrays.parents
    # Linked lists of children, last first: no object per span.
    last, before = array("i", [-1]) * count, array("i", [-1]) * count
    roots, orphans = [], []
    for index in range(count):
        parent = given[index]
        if parent >= 0:
            before[index], last[parent] = last[parent], index
        elif parent == NO_PARENT:
            roots.append(index)
        else:
            orphans.append(index)
    order, tree_position = array("i"), array("i", [-1]) * count
    parents, depths = array("i", [-1]) * count, array("i", [0]) * count
    cycles = []

    def place_under(top_spans: list[int]) -> None:
        waiting = top_spans[::-1]
        while waiting:
            index = waiting.pop()
            if tree_position[index] >= 0:
                continue  # the span at which a cycle was cut open
            tree_position[index] = len(order)
            order.append(index)
            child, depth = last[index], depths[index] + 1
            while child >= 0:
                if tree_position[child] < 0:
                    parents[child], depths[child] = index, depth
                    waiting.append(child)
                child = before[child]

    place_under(roots + orphans)
    if len(order) < count:
        for index in range(count):
            if tree_position[index] < 0:
                cycles.append(index)
                place_under([index])
    sizes = array("i", [1]) * count
    for index in reversed(order):
        if parents[index] >= 0:
            sizes[parents[index]] += sizes[index]
    return Tree(
        arrays, order, tree_position, parents, depths, sizes, _self_times(arrays, parents), (*roots, *orphans, *cycles),
        len(roots), len(orphans), len(cycles),
    )  # fmt: skip


def _self_times(arrays: SpanArrays, parents: array[int]) -> array[int]:
    """Return how long each span ran while none of its children did."""
    starts, ends = arrays.starts, arrays.ends
    own, covered = array("q"), array("q", starts)
    for index in range(len(arrays)):
        own.append(ends[index] - starts[index])
    for index in range(len(arrays)):  # by start, so what children cover grows to the right only
        parent = parents[index]
        if parent >= 0:
            begin, end = max(starts[index], covered[parent]), min(ends[index], ends[parent])
            if end > begin:
                own[parent] -= end - begin
                covered[parent] = end
    return own
