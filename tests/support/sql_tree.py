"""Statements as trees, so that one that shows a difference can be made smaller and still be a statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Node:
    """A piece of a statement. Another piece of the same `kind` may stand in its place, and so may `least`.

    With `between`, the parts are a list of at least one, written with that text between them.
    """

    kind: str
    parts: tuple[str | Node, ...]
    least: str | None = None
    between: str | None = None

    def __str__(self) -> str:
        return (self.between or "").join(str(part) for part in self.parts)

    def below(self) -> Iterator[Node]:
        """Every piece inside this one."""
        for part in self.parts:
            if isinstance(part, Node):
                yield part
                yield from part.below()


def node(kind: str, template: str, *parts: Node, least: str | None = None) -> Node:
    """A piece written by a template with `{}` for each part."""
    texts = template.split("{}")
    assert len(texts) == len(parts) + 1, template
    found: list[str | Node] = [texts[0]]
    for part, text in zip(parts, texts[1:], strict=True):
        found += [part, text]
    return Node(kind, tuple(found), least)


def listed(kind: str, parts: list[Node], between: str = ", ") -> Node:
    return Node(kind, tuple(parts), between=between)


def smaller(tree: Node) -> Iterator[Node]:
    """Trees with one thing less, the shortest of each place first."""
    for candidate in _simpler_here(tree):
        yield candidate
    for place, part in enumerate(tree.parts):
        if isinstance(part, Node):
            for candidate in smaller(part):
                yield replace(tree, parts=(*tree.parts[:place], candidate, *tree.parts[place + 1 :]))


def _simpler_here(tree: Node) -> Iterator[Node]:
    if tree.least is not None and str(tree) != tree.least:
        yield Node(tree.kind, (tree.least,), tree.least)
    if tree.between is not None and len(tree.parts) > 1:
        for place in range(len(tree.parts)):
            yield replace(tree, parts=tree.parts[:place] + tree.parts[place + 1 :])
    same = {str(inner): inner for inner in tree.below() if inner.kind == tree.kind}
    yield from sorted(same.values(), key=lambda inner: len(str(inner)))


def shrunk(tree: Node, still_differs: Callable[[Node], bool], tries: int) -> Node:
    """Make a tree smaller, step by step, as long as it still shows what it showed; asks at most `tries` times."""
    seen = {str(tree)}
    found = True
    while found:
        found = False
        for candidate in smaller(tree):
            text = str(candidate)
            if text in seen or len(text) >= len(str(tree)):
                continue
            seen.add(text)
            if tries <= 0:
                return tree
            tries -= 1
            if still_differs(candidate):
                tree, found = candidate, True
                break
    return tree
