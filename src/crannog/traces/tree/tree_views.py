"""What callers see of the trees of traces: a window with its complete spans, and the comparison of two traces by path."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from crannog.api.traces import Path, PathChange, ShownSpan, Span, SpanPlace, TraceComparison, TraceView
from crannog.api.traces.requests import ComparisonQuery, PlaceQuery, WindowQuery
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.errors import CallerError, NotFound
from crannog.traces.search.request import checked_limit
from crannog.traces.span_store import SpanStore
from crannog.traces.span_table import no_trace, parse_trace_id
from crannog.traces.trace import SPAN_COLUMNS, span_values
from crannog.traces.tree.tree import TraceOrSpanMissing, Tree

if TYPE_CHECKING:
    from crannog.traces.tree.tree import Numbers

MAX_PATH = 128
_MAX_ANCESTORS = 10_000
_MAX_ROWS = 100_000_000
_MAX_CRITICAL = 1_000
T = TypeVar("T")


def show(store: SpanStore, query: WindowQuery) -> TraceView:
    """Return a window of a trace: up to `limit` spans from `offset` on."""
    trace_id = parse_trace_id(query.trace_id)
    checked_limit(query.limit)
    for name, value in (("offset", query.offset), ("depth", query.depth)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise CallerError(f"{name} must be an integer of 0 or more, got {value!r}")
    if query.around is not None and query.offset:
        raise CallerError("give offset or around, not both")
    return found_trace(
        store,
        lambda table, snapshot: _window(table, snapshot, store.trees.get(table, snapshot, trace_id), query),
        trace_id,
    )


def place(store: SpanStore, query: PlaceQuery) -> SpanPlace:
    """Return where a span is in its trace."""
    trace_id = parse_trace_id(query.trace_id)
    tree = found_trace(store, lambda table, snapshot: store.trees.get(table, snapshot, trace_id), trace_id)
    try:
        index = tree.index_of(query.span_id)
    except TraceOrSpanMissing as error:
        raise NotFound(str(error)) from None
    path = tree.path(index, _MAX_ANCESTORS)
    return SpanPlace(
        trace_id=trace_id.hex(),
        span_id=tree.arrays.span_id(index),
        row=int(tree.tree_position[index]),
        depth=int(tree.depths[index]),
        ancestors=tuple(tree.tree_position[path[:-1]].tolist()),
        path=tuple(map(tree.arrays.span_id, path)),
        children=len(tree.children(index)),
        descendants=int(tree.sizes[index]) - 1,
        span_count=len(tree),
    )


def trace_version(store: SpanStore, trace_id: str) -> str:
    """Return a text that changes with a trace, without building its tree. Raises NotFound if there is no such trace."""
    wanted = parse_trace_id(trace_id)
    return found_trace(store, lambda table, snapshot: store.trees.version(table, snapshot, wanted), wanted)


def checked_rows(limit: int) -> int:
    """Check a limit of rows without their attributes."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MAX_ROWS:
        raise CallerError(f"limit must be an integer from 1 to {_MAX_ROWS:,}, got {limit!r}"[:200])
    return limit


def found_trace(store: SpanStore, act: Callable[[OpenTable, Snapshot], T], trace_id: bytes) -> T:
    """Read from the newest snapshot of the span table. Raises NotFound if it has no such trace or span."""
    try:
        found = store.read_newest(act, None)
    except TraceOrSpanMissing as error:
        raise NotFound(str(error)) from None
    if found is None:
        raise no_trace(trace_id)
    return found


def _window(table: OpenTable, snapshot: Snapshot, tree: Tree, query: WindowQuery) -> TraceView:
    arrays, offset = tree.arrays, query.offset
    indexes = tree.indexes(query.depth, query.under)
    if query.around is not None:
        offset = _offset_around(tree, indexes, query.around, query.limit)
    window = indexes[offset : offset + query.limit]
    spans = _read_spans(table, snapshot, tree, window)
    end = offset + len(window)
    critical_rows = tree.critical_ns[tree.order].nonzero()[0][:_MAX_CRITICAL]
    return TraceView(
        trace_id=arrays.trace_id.hex(),
        spans=tuple(_tree_span(tree, index, spans[arrays.ids[index].as_py()]) for index in window.tolist()),
        offset=offset,
        total=len(indexes),
        next_offset=end if end < len(indexes) else None,
        span_count=len(arrays),
        error_count=arrays.error_count,
        start_ns=tree.start_ns,
        end_ns=tree.end_ns,
        services=tuple(sorted(arrays.services.dictionary.to_pylist())),
        deepest=tree.deepest,
        roots=tree.roots,
        orphans=tree.orphans,
        cycles=tree.cycles,
        skewed=tree.skewed,
        critical_path=tuple(map(arrays.span_id, tree.order[critical_rows].tolist())),
        truncated=arrays.truncated,
    )


def _offset_around(tree: Tree, indexes: Numbers, span_id: str, limit: int) -> int:
    """Return the offset of a window with two fifths of its rows before a span, or before its last ancestor that is shown."""
    index = tree.index_of(span_id)
    while not len(found := (indexes == index).nonzero()[0]):
        index = int(tree.parents[index])
        if index < 0:
            raise TraceOrSpanMissing(f"span {span_id} is not in the subtree of `under`")
    return int(max(0, min(int(found[0]) - limit * 2 // 5, len(indexes) - limit)))


def _tree_span(tree: Tree, index: int, values: tuple[Any, ...]) -> ShownSpan:
    place = (int(tree.depths[index]), tree.is_orphan(index), tree.is_in_cycle(index))
    return ShownSpan(
        span=Span(*(values + place)),
        order=int(tree.tree_position[index]),
        path=tuple(map(tree.arrays.span_id, tree.path(index, MAX_PATH))),
        self_ns=int(tree.self_ns[index]),
        critical_ns=int(tree.critical_ns[index]),
        children=len(tree.children(index)),
        descendants=int(tree.sizes[index]) - 1,
        starts_early=bool(tree.starts_early[index]),
        ends_late=bool(tree.ends_late[index]),
    )


def _read_spans(table: OpenTable, snapshot: Snapshot, tree: Tree, window: Numbers) -> dict[bytes, tuple[Any, ...]]:
    """Read the values of the spans of a window, by span id."""
    from crannog.traces.tree.tree_rows import rows_at

    arrays = tree.arrays
    if not len(window) or arrays.places is None:
        return {}
    found = rows_at(table, snapshot, arrays.trace_id, arrays.places, window, SPAN_COLUMNS)
    return dict(zip(found["span_id"].to_pylist(), span_values(found), strict=True))


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


def compare(store: SpanStore, query: ComparisonQuery) -> TraceComparison:
    """Compare two traces."""
    before, after = parse_trace_id(query.before), parse_trace_id(query.after)
    limit, tolerance = checked_limit(query.limit), query.tolerance
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 <= tolerance < 1e9:
        raise CallerError(f"tolerance must be a fraction of 0 or more, got {tolerance!r}")

    def compared(table: OpenTable, snapshot: Snapshot) -> TraceComparison:
        trees = [store.trees.get(table, snapshot, trace_id) for trace_id in (before, after)]
        return compare_trees(*trees, limit=limit, tolerance=tolerance)

    return found_trace(store, compared, before)


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
    service_of, name_of = arrays.services.indices.to_pylist(), arrays.names.indices.to_pylist()
    parents, durations, self_times = (
        tree.parents.tolist(),
        (arrays.ends - arrays.starts).tolist(),
        tree.self_ns.tolist(),
    )
    numbers = [-1] * len(arrays)
    sums: dict[int, tuple[int, int, int]] = {}
    for index in tree.order.tolist():
        parent = parents[index]
        number = paths.number(
            numbers[parent] if parent >= 0 else -1, services[service_of[index]], names[name_of[index]]
        )
        numbers[index] = number
        count, duration_ns, self_ns = sums.get(number, (0, 0, 0))
        sums[number] = (count + 1, duration_ns + durations[index], self_ns + self_times[index])
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
