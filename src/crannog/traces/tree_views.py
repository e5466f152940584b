"""What callers see of the trees of traces: a window with its complete spans, and the comparison of two traces by path."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from crannog.api.traces import Path, PathChange, ShownSpan, Span, TraceComparison, TraceView
from crannog.engine.duckdb.engine import quoted
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.engine.sql.duckdb_compiler.terms import Condition
from crannog.errors import CallerError
from crannog.traces.search.snapshot_reader import open_reader
from crannog.traces.search.summaries import newest_copies_sql
from crannog.traces.span_table import trace_id_high
from crannog.traces.trace import SPAN_COLUMNS, span_values
from crannog.traces.tree import Tree, build_tree, critical_times, dictionary_codes, read_span_arrays

MAX_PATH = 128
_MAX_CRITICAL = 1_000


class TraceOrSpanMissing(Exception):
    """There is no such trace or span. Not a NotFound, which would mean that the table is gone."""


class TreeAnalysis:
    """A tree with figures that are computed once for all its windows."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @cached_property
    def critical(self) -> dict[int, int]:
        return critical_times(self.tree)

    @cached_property
    def skewed(self) -> int:
        tree = self.tree
        return sum(tree.starts_early(index) or tree.ends_late(index) for index in range(len(tree.arrays)))

    @cached_property
    def deepest(self) -> int:
        return max(self.tree.depths)

    def indexes(self, depth: int | None, under: str | None) -> Sequence[int]:
        """Return the spans in tree order, no deeper than `depth` and in the subtree of the span `under`."""
        tree = self.tree
        position, end, base_depth = 0, len(tree.order), 0
        if under is not None:
            top = self._index_of(under)
            position, base_depth = tree.tree_position[top], tree.depths[top]
            end = position + tree.sizes[top]
        if depth is None or depth >= self.deepest - base_depth:
            return tree.order[position:end]
        indexes = []
        while position < end:
            index = tree.order[position]
            indexes.append(index)
            position += tree.sizes[index] if tree.depths[index] - base_depth >= depth else 1
        return indexes

    def _index_of(self, span_id: str) -> int:
        try:
            id_bytes = bytes.fromhex(span_id)
        except (ValueError, TypeError):
            raise CallerError(f"a span id must have 16 hexadecimal digits, got {str(span_id)[:80]!r}") from None
        index = self.tree.arrays.index_of(id_bytes)
        if index is None:
            raise TraceOrSpanMissing(f"trace {self.tree.arrays.trace_id.hex()} has no span {span_id}")
        return index


def trace_view(
    table: OpenTable,
    snapshot: Snapshot,
    analysis: TreeAnalysis,
    *,
    offset: int,
    limit: int,
    depth: int | None,
    under: str | None,
) -> TraceView:
    """Return a window of a trace: up to `limit` spans from `offset` on."""
    tree, arrays = analysis.tree, analysis.tree.arrays
    indexes = analysis.indexes(depth, under)
    window = indexes[offset : offset + limit]
    spans = _read_spans(table, snapshot, tree, window)
    end = offset + len(window)
    on_path = sorted(analysis.critical, key=lambda index: tree.tree_position[index])[:_MAX_CRITICAL]
    return TraceView(
        trace_id=arrays.trace_id.hex(),
        spans=tuple(_tree_span(analysis, index, spans[arrays.ids[index].as_py()]) for index in window),
        offset=offset,
        total=len(indexes),
        next_offset=end if end < len(indexes) else None,
        span_count=len(arrays),
        error_count=arrays.error_count,
        start_ns=tree.start_ns,
        end_ns=tree.end_ns,
        services=tuple(sorted(arrays.services.dictionary.to_pylist())),
        deepest=analysis.deepest,
        roots=tree.roots,
        orphans=tree.orphans,
        cycles=tree.cycles,
        skewed=analysis.skewed,
        critical_path=tuple(map(arrays.span_id, on_path)),
        truncated=arrays.truncated,
    )


def _tree_span(analysis: TreeAnalysis, index: int, values: tuple[Any, ...]) -> ShownSpan:
    tree = analysis.tree
    place = (tree.depths[index], tree.is_orphan(index), tree.is_in_cycle(index))
    return ShownSpan(
        span=Span(*(values + place)),
        order=tree.tree_position[index],
        path=tuple(map(tree.arrays.span_id, tree.path(index, MAX_PATH))),
        self_ns=tree.self_ns[index],
        critical_ns=analysis.critical.get(index, 0),
        children=sum(1 for _ in tree.children(index)),
        descendants=tree.sizes[index] - 1,
        starts_early=tree.starts_early(index),
        ends_late=tree.ends_late(index),
    )


def _read_spans(
    table: OpenTable, snapshot: Snapshot, tree: Tree, window: Sequence[int]
) -> dict[bytes, tuple[Any, ...]]:
    """Read the values of the spans of a window, by span id."""
    arrays = tree.arrays
    if not window:
        return {}
    wanted = arrays.ids.take(pa.array(window, pa.int64()))
    names = ", ".join(map(quoted, dict.fromkeys([*SPAN_COLUMNS, "_created_at", "_batch_id"])))
    trace_hi = trace_id_high(arrays.trace_id)
    with open_reader(table, snapshot) as reader:
        rows = reader.rows([Condition(0, "trace_hi", "=", (trace_hi,))])
        of_trace = (
            f"SELECT {names} FROM {rows} WHERE trace_hi = {trace_hi} AND trace_id = from_hex('{arrays.trace_id.hex()}')"
        )
        found = reader.query(
            newest_copies_sql(f"SELECT * FROM ({of_trace}) SEMI JOIN wanted USING (span_id)"),
            {"wanted": pa.table([wanted], names=["span_id"])},
        )
    return dict(zip(found["span_id"].to_pylist(), span_values(found), strict=True))


_CACHED_FROM_SPANS = 10_000
_MAX_CACHED_SPANS = 1_500_000
_Key = tuple[str, int, int, bytes]


class TreeCache:
    """Caches a few large trees, each for one snapshot; a million spans take about a second. Thread-safe."""

    def __init__(self) -> None:
        self._cached: OrderedDict[_Key, TreeAnalysis] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, table: OpenTable, snapshot: Snapshot, trace_id: bytes, *, limit: int) -> TreeAnalysis | None:
        """Return the tree of the first `limit` spans of a trace; None if there is no such trace."""
        key = (snapshot.base.table_id, snapshot.base.version, snapshot.sequence, trace_id)
        with self._lock:
            cached = self._cached.get(key)
            if cached is not None:
                self._cached.move_to_end(key)
                return cached
        arrays = read_span_arrays(table, snapshot, trace_id, limit=limit)
        if arrays is None:
            return None
        analysis = TreeAnalysis(build_tree(arrays))
        if len(arrays) >= _CACHED_FROM_SPANS:
            with self._lock:
                self._cached[key] = analysis
                while len(self._cached) > 1 and self._cached_spans() > _MAX_CACHED_SPANS:
                    self._cached.popitem(last=False)
        return analysis

    def _cached_spans(self) -> int:
        return sum(len(analysis.tree.arrays) for analysis in self._cached.values())


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
