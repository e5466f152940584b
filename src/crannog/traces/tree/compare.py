"""Two traces compared: their spans grouped by the path of services and operations that leads to them."""

from __future__ import annotations

from crannog.api.traces import Path, PathChange, TraceComparison
from crannog.traces.tree.span_arrays import dictionary_codes
from crannog.traces.tree.tree import Tree


class _PathNumbers:
    """Numbers for paths, the same for the same path in both traces; a path is its parent and a step."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, str, str]] = []
        self._numbers: dict[tuple[int, str, str], int] = {}

    def number(self, parent: int, service: str, name: str) -> int:
        step = (parent, service, name)
        found = self._numbers.get(step)
        if found is None:
            found = self._numbers[step] = len(self.steps)
            self.steps.append(step)
        return found

    def path(self, number: int) -> Path:
        found = []
        while number >= 0:
            number, service, name = self.steps[number]
            found.append((service, name))
        return tuple(reversed(found))


def compare_trees(before: Tree, after: Tree, *, limit: int, tolerance: float = 0.0) -> TraceComparison:
    """Compare two traces; a mean duration that differs by no more than the share `tolerance` is the same."""
    paths = _PathNumbers()
    sums = [_sums(tree, paths) for tree in (before, after)]
    nothing = (0, 0, 0)
    rows = [(number, sums[0].get(number, nothing), sums[1].get(number, nothing)) for number in range(len(paths.steps))]
    rows.sort(key=lambda row: (-abs(row[2][1] - row[1][1]), row[0]))
    return TraceComparison(
        before.arrays.trace_id.hex(),
        after.arrays.trace_id.hex(),
        before.end_ns - before.start_ns,
        after.end_ns - after.start_ns,
        len(before.arrays),
        len(after.arrays),
        tuple(
            PathChange(paths.path(number), _change(old, new, tolerance), old[0], new[0], old[1], new[1], old[2], new[2])
            for number, old, new in rows[:limit]
        ),
        len(rows),
    )


def _sums(tree: Tree, paths: _PathNumbers) -> dict[int, tuple[int, int, int]]:
    """Return count, duration and own time of the spans at each path."""
    arrays = tree.arrays
    services, names = arrays.services.dictionary.to_pylist(), arrays.names.dictionary.to_pylist()
    service_of, name_of = dictionary_codes(arrays.services), dictionary_codes(arrays.names)
    numbers = [-1] * len(arrays)
    sums: dict[int, tuple[int, int, int]] = {}
    for index in tree.order:
        parent = tree.parents[index]
        number = paths.number(
            numbers[parent] if parent >= 0 else -1, services[service_of[index]], names[name_of[index]]
        )
        numbers[index] = number
        count, duration, own = sums.get(number, (0, 0, 0))
        sums[number] = (count + 1, duration + arrays.ends[index] - arrays.starts[index], own + tree.self_ns[index])
    return sums


def _change(old: tuple[int, int, int], new: tuple[int, int, int], tolerance: float) -> str:
    if not old[0]:
        return "added"
    if not new[0]:
        return "removed"
    # Means compared without dividing.
    was, now = old[1] * new[0], new[1] * old[0]
    if abs(now - was) <= tolerance * was:
        return "same"
    return "slower" if now > was else "faster"
