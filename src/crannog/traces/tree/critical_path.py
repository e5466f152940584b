"""The critical path of a trace: the spans that delayed its end, and for how long."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from crannog.engine.sql.running_queries import check_cancelled
from crannog.traces.tree.tree import Tree
from crannog.traces.tree.tree_building import largest_before

if TYPE_CHECKING:
    from crannog.traces.tree.tree import Numbers

_FEW_CHILDREN = 64
_LATEST = 2**63 - 1


def critical_times(tree: Tree) -> Numbers:
    """Return the time in which each span delayed the end of the trace; 0 if it is not on the critical path.

    Computed back from the end of the trace: the span that ran last delayed the end, before its start the span that ended
    last before that, and so on, down to the children of each, level by level.
    """
    critical_ns = np.zeros(len(tree), np.int64)
    level = _Level(np.array([-1], np.int32), np.array([tree.start_ns]), np.array([tree.end_ns]))
    while len(level.spans):
        check_cancelled()
        small = _SmallLevels(tree, critical_ns)
        level = small.follow(level) if small.fits(level) else _next_level(tree, critical_ns, level)
    return critical_ns


@dataclass(frozen=True, slots=True)
class _Level:
    """Spans of one depth on the critical path, each with the time in which it is; -1 stands for the whole trace."""

    spans: Numbers
    since: Numbers
    until: Numbers


def _next_level(tree: Tree, critical_ns: Numbers, level: _Level) -> _Level:
    starts, ends = tree.arrays.starts, tree.arrays.ends
    first, counts = tree.child_bounds[level.spans + 1], tree.child_counts(level.spans)
    group = np.repeat(np.arange(len(counts)), counts)
    children = tree.by_parent[np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts - first, counts)]
    since = np.maximum(starts[children], level.since[group])
    ran = (ends[children] > since) & (since < level.until[group])
    children, group, since = children[ran], group[ran], since[ran]
    latest_first = np.lexsort((-starts[children], -ends[children], group))
    children, group, since = children[latest_first], group[latest_first], since[latest_first]
    # A child is on the path if it started before all siblings that ended later.
    now = np.minimum(level.until[group], -largest_before(group, -since, -_LATEST))
    on_path = since < now
    children, group, since, now = children[on_path], group[on_path], since[on_path], now[on_path]
    until = np.minimum(ends[children], now)
    parents = level.spans[group]
    begins = level.until.copy()
    np.minimum.at(begins, group, since)
    inner = parents >= 0
    np.add.at(critical_ns, parents[inner], (now - until)[inner])
    np.add.at(critical_ns, level.spans[level.spans >= 0], (begins - level.since)[level.spans >= 0])
    return _Level(children, since, until)


class _SmallLevels:
    """Follows levels of few spans, which take longer as columns: a deep tree may have a million of them."""

    def __init__(self, tree: Tree, critical_ns: Numbers) -> None:
        self._starts, self._ends = tree.arrays.starts.data, tree.arrays.ends.data
        self._by_parent, self._bounds = tree.by_parent.data, tree.child_bounds.data
        self._critical_ns = critical_ns.data
        self._child_counts = tree.child_counts

    def fits(self, level: _Level) -> bool:
        return len(level.spans) <= _FEW_CHILDREN and int(self._child_counts(level.spans).sum()) <= _FEW_CHILDREN

    def follow(self, level: _Level) -> _Level:
        """Return the first level below that is large, or the empty one at the end."""
        spans = list(zip(level.spans.tolist(), level.since.tolist(), level.until.tolist(), strict=True))
        bounds = self._bounds
        for passed in itertools.count():
            spans = [below for span in spans for below in self._children_on_path(*span)]
            if not passed % 1_000:
                check_cancelled()
            if not spans or sum(bounds[span + 2] - bounds[span + 1] for span, _, _ in spans) > _FEW_CHILDREN:
                break
        columns = list(zip(*spans, strict=True)) or [(), (), ()]
        return _Level(np.array(columns[0], np.int32), np.array(columns[1], np.int64), np.array(columns[2], np.int64))

    def _children_on_path(self, span: int, since: int, until: int) -> list[tuple[int, int, int]]:
        starts, ends = self._starts, self._ends
        children: list[int] = self._by_parent[self._bounds[span + 1] : self._bounds[span + 2]].tolist()
        if len(children) > 1:
            children.sort(key=lambda child: (ends[child], starts[child]), reverse=True)
        on_path, now, own = [], until, 0
        for child in children:
            end, start = min(ends[child], now), max(starts[child], since)
            if end > start:
                own += now - end
                on_path.append((child, start, end))
                now = start
                if now <= since:
                    break
        if span >= 0:
            self._critical_ns[span] += own + now - since
        return on_path
