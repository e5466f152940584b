"""Comparison of two traces by the paths of services and operations to their spans."""

from __future__ import annotations

from crannog.api.traces import Path, PathChange, TraceComparison
from crannog.traces.tree.span_arrays import dictionary_codes
from crannog.traces.tree.tree import Tree


class _PathNumbers:
    """Numbers paths, the same in both traces; a path is the number of its parent path, a service and an operation."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, str, str]] = []
        self._numbers: dict[tuple[int, str, str], int] = {}

    def number(self, parent: int, service: str, name: str) -> int:
        step = (parent, service, name)
        number = self._numbers.get(step)
        if number is None:
            number = self._numbers[step] = len(self.steps)
            self.steps.append(step)
        return number

    def path(self, number: int) -> Path:
        path = []
        while number >= 0:
            number, service, name = self.steps[number]
            path.append((service, name))
        return tuple(reversed(path))


def compare_trees(before: Tree, after: Tree, *, limit: int, tolerance: float = 0.0) -> TraceComparison:
    """Compare two traces. Mean durations that differ by at most the fraction `tolerance` are the same."""
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
    """Return the count, total duration and total self time of the spans at each path."""
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
        count, duration_ns, self_ns = sums.get(number, (0, 0, 0))
        sums[number] = (
            count + 1,
            duration_ns + arrays.ends[index] - arrays.starts[index],
            self_ns + tree.self_ns[index],
        )
    return sums


def _change(old: tuple[int, int, int], new: tuple[int, int, int], tolerance: float) -> str:
    if not old[0]:
        return "added"
    if not new[0]:
        return "removed"
    # Compares the means without division.
    before, after = old[1] * new[0], new[1] * old[0]
    if abs(after - before) <= tolerance * before:
        return "same"
    return "slower" if after > before else "faster"
