"""The critical path: the spans that, had they been shorter, would have made the trace shorter.

Walked back from the end of the trace: what was running last held up the end; before it started, what ended last
before that did; and so on, into the children of each.
"""

from __future__ import annotations

from crannog.traces.tree.tree import Tree


def critical_times(tree: Tree) -> dict[int, int]:
    """Return, by place, the time in which each span of the critical path held up the end; others are not in it."""
    starts, ends = tree.arrays.starts, tree.arrays.ends
    held: dict[int, int] = {}
    waiting = [(-1, tree.start_ns, tree.end_ns)]
    while waiting:
        index, since, until = waiting.pop()
        now = until
        children = tree.top_spans if index < 0 else tree.children(index)
        for child in sorted(children, key=lambda each: (ends[each], starts[each]), reverse=True):
            end = min(ends[child], now)
            start = max(starts[child], since)
            if end <= start:
                continue
            if index >= 0 and now > end:
                held[index] = held.get(index, 0) + now - end
            waiting.append((child, start, end))
            now = start
            if now <= since:
                break
        if index >= 0 and now > since:
            held[index] = held.get(index, 0) + now - since
    return held
