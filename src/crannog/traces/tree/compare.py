"""Two traces compared: their spans grouped by the path of services and operations that leads to them."""

from __future__ import annotations

from crannog.api.traces import Path, PathChange, TraceComparison
from crannog.traces.tree.span_arrays import codes_of
from crannog.traces.tree.tree import Tree


class _Paths:
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


def compared(before: Tree, after: Tree, *, limit: int, tolerance: float = 0.0) -> TraceComparison:
    """Compare two traces; a mean duration that differs by no more than the share `tolerance` is the same."""
    paths = _Paths()
    sums = [_sums(tree, paths) for tree in (before, after)]
    nothing = (0, 0, 0)
    rows = [(number, sums[0].get(number, nothing), sums[1].get(number, nothing)) for number in range(len(paths.steps))]
    rows.sort(key=lambda row: (-abs(row[2][1] - row[1][1]), row[0]))
    return TraceComparison(
        before.bones.trace_id.hex(),
        after.bones.trace_id.hex(),
        before.end_ns - before.start_ns,
        after.end_ns - after.start_ns,
        len(before.bones),
        len(after.bones),
        tuple(
            PathChange(paths.path(number), _change(old, new, tolerance), old[0], new[0], old[1], new[1], old[2], new[2])
            for number, old, new in rows[:limit]
        ),
        len(rows),
    )


def _sums(tree: Tree, paths: _Paths) -> dict[int, tuple[int, int, int]]:
    """Return count, duration and own time of the spans at each path."""
    bones = tree.bones
    services, names = bones.services.dictionary.to_pylist(), bones.names.dictionary.to_pylist()
    service_of, name_of = codes_of(bones.services), codes_of(bones.names)
    numbers = [-1] * len(bones)
    sums: dict[int, tuple[int, int, int]] = {}
    for place in tree.order:
        parent = tree.parents[place]
        number = paths.number(
            numbers[parent] if parent >= 0 else -1, services[service_of[place]], names[name_of[place]]
        )
        numbers[place] = number
        count, duration, own = sums.get(number, (0, 0, 0))
        sums[number] = (count + 1, duration + bones.ends[place] - bones.starts[place], own + tree.own_ns[place])
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
