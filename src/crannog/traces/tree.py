"""The tree of a trace, computed once over all its spans; neither deep trees nor cycles can make it hang.

Roots come first, then orphans (whose parent has not arrived), then cycles of parents, each opened at its earliest span;
siblings are sorted by start. All these top spans have depth 0. The columns that a tree needs are flat arrays: a million spans
take little memory.
"""

from __future__ import annotations

import hashlib
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.errors import CallerError
from crannog.traces.lookup import places_of_trace, rows_of_trace
from crannog.traces.span_table import no_trace
from crannog.traces.trace import ERROR_STATUS

NO_PARENT, MISSING_PARENT = -1, -2
_COLUMNS = ["span_id", "parent_span_id", "start_ns", "end_ns", "service_name", "span_name", "status_code"]


@dataclass(frozen=True)
class SpanArrays:
    """Each span once, sorted by start. `truncated` means that the trace has more spans than were read."""

    trace_id: bytes
    ids: pa.Array = field(repr=False)
    parents: array[int] = field(repr=False)
    starts: array[int] = field(repr=False)
    ends: array[int] = field(repr=False)
    services: pa.DictionaryArray = field(repr=False)
    names: pa.DictionaryArray = field(repr=False)
    errors: bytes = field(repr=False)
    """1 for each span whose status is ERROR, 0 for the others."""
    truncated: bool

    @cached_property
    def error_count(self) -> int:
        return self.errors.count(1)

    def __len__(self) -> int:
        return len(self.starts)

    def span_id(self, index: int) -> str:
        return str(self.ids[index].as_py().hex())


def span_arrays_of(trace_id: bytes, rows: pa.Table, *, truncated: bool = False) -> SpanArrays:
    """Return the arrays of a table that has each span once."""
    rows = rows.select(_COLUMNS)
    rows = rows.take(
        pc.sort_indices(rows, sort_keys=[("start_ns", "ascending"), ("span_id", "ascending")])
    ).combine_chunks()
    ids, parent_ids = _single_chunk(rows["span_id"]), _single_chunk(rows["parent_span_id"])
    indexes = pc.index_in(parent_ids, value_set=ids)
    parents = pc.if_else(parent_ids.is_null(), NO_PARENT, pc.fill_null(indexes, MISSING_PARENT)).cast(pa.int32())
    return SpanArrays(
        trace_id,
        ids,
        _to_array(parents, "i"),
        _to_array(_single_chunk(rows["start_ns"]), "q"),
        _to_array(_single_chunk(rows["end_ns"]), "q"),
        _single_chunk(rows["service_name"]).dictionary_encode(),
        _single_chunk(rows["span_name"]).dictionary_encode(),
        pc.equal(_single_chunk(rows["status_code"]), ERROR_STATUS)
        .cast(pa.uint8())
        .buffers()[1]
        .to_pybytes()[: rows.num_rows],
        truncated,
    )


def _single_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _to_array(column: pa.Array, code: str) -> array[int]:
    numbers = array(code)
    width = numbers.itemsize
    numbers.frombytes(column.buffers()[1].slice(column.offset * width, len(column) * width))
    return numbers


def dictionary_codes(column: pa.DictionaryArray) -> array[int]:
    """Return, for each span, the index of its text in the dictionary of a column."""
    return _to_array(column.indices, "i")


class TraceOrSpanMissing(Exception):
    """There is no such trace or span. Not a NotFound, which would mean that the table is gone."""


@dataclass(frozen=True)
class Tree:
    """The tree of the spans in `arrays`; a span is its index there."""

    arrays: SpanArrays
    order: array[int] = field(repr=False)
    """The spans in tree order."""
    tree_position: array[int] = field(repr=False)
    """The index of each span in `order`."""
    parents: array[int] = field(repr=False)
    """The parent of each span in the tree; -1 for a top span."""
    depths: array[int] = field(repr=False)
    sizes: array[int] = field(repr=False)
    """The number of spans in the subtree of each span, itself included."""
    self_ns: array[int] = field(repr=False)
    """The time of each span in which no child was running."""
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
        """Return whether a cycle was opened at this span."""
        return self.parents[index] < 0 and self.arrays.parents[index] >= 0

    def starts_early(self, index: int) -> bool:
        parent = self.parents[index]
        return parent >= 0 and self.arrays.starts[index] < self.arrays.starts[parent]

    def ends_late(self, index: int) -> bool:
        parent = self.parents[index]
        return parent >= 0 and self.arrays.ends[index] > self.arrays.ends[parent]

    def children(self, index: int) -> Iterator[int]:
        """Yield the children of a span, in tree order."""
        position, end = self.tree_position[index] + 1, self.tree_position[index] + self.sizes[index]
        while position < end:
            child = self.order[position]
            yield child
            position += self.sizes[child]

    def __len__(self) -> int:
        return len(self.order)

    @cached_property
    def critical(self) -> dict[int, int]:
        """See `critical_times`."""
        return critical_times(self)

    @cached_property
    def skewed(self) -> int:
        """The number of spans that start before their parent or end after it."""
        starts, ends = self.arrays.starts, self.arrays.ends
        return sum(
            parent >= 0 and (starts[index] < starts[parent] or ends[index] > ends[parent])
            for index, parent in enumerate(self.parents)
        )

    @cached_property
    def deepest(self) -> int:
        return max(self.depths)

    def indexes(self, depth: int | None, under: str | None) -> Sequence[int]:
        """Return the spans in tree order, no deeper than `depth` and in the subtree of the span `under`."""
        position, end, base_depth = 0, len(self.order), 0
        if under is not None:
            top = self._index_of(under)
            position, base_depth = self.tree_position[top], self.depths[top]
            end = position + self.sizes[top]
        if depth is None or depth >= self.deepest - base_depth:
            return self.order[position:end]
        indexes = []
        while position < end:
            index = self.order[position]
            indexes.append(index)
            position += self.sizes[index] if self.depths[index] - base_depth >= depth else 1
        return indexes

    def _index_of(self, span_id: str) -> int:
        try:
            id_bytes = bytes.fromhex(span_id)
        except (ValueError, TypeError):
            raise CallerError(f"a span id must have 16 hexadecimal digits, got {str(span_id)[:80]!r}") from None
        index = int(pc.index(self.arrays.ids, pa.scalar(id_bytes, pa.binary())).as_py())
        if index < 0:
            raise TraceOrSpanMissing(f"trace {self.arrays.trace_id.hex()} has no span {span_id}")
        return index

    def path(self, index: int, max_length: int) -> list[int]:
        """Return the path from the top to a span, which comes last; only the end of a path longer than `max_length`."""
        path = [index]
        while len(path) < max_length and (index := self.parents[index]) >= 0:
            path.append(index)
        return path[::-1]


def build_tree(arrays: SpanArrays) -> Tree:
    count = len(arrays)
    # Linked lists of children, last child first: no object per span.
    last_child, previous_sibling = array("i", [-1]) * count, array("i", [-1]) * count
    roots, orphans = [], []
    for index, parent in enumerate(arrays.parents):
        if parent >= 0:
            previous_sibling[index], last_child[parent] = last_child[parent], index
        elif parent == NO_PARENT:
            roots.append(index)
        else:
            orphans.append(index)
    order, tree_position = array("i"), array("i", [-1]) * count
    parents, depths = array("i", [-1]) * count, array("i", [0]) * count
    cycles = []

    def append_subtrees(top_spans: list[int]) -> None:
        stack = top_spans[::-1]
        while stack:
            index = stack.pop()
            if tree_position[index] >= 0:
                continue  # the span at which a cycle was opened
            tree_position[index] = len(order)
            order.append(index)
            child, depth = last_child[index], depths[index] + 1
            while child >= 0:
                if tree_position[child] < 0:
                    parents[child], depths[child] = index, depth
                    stack.append(child)
                child = previous_sibling[child]

    append_subtrees(roots + orphans)
    if len(order) < count:
        for index in range(count):
            if tree_position[index] < 0:
                cycles.append(index)
                append_subtrees([index])
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
    self_ns, covered_to = array("q"), array("q", starts)
    for index in range(len(arrays)):
        self_ns.append(ends[index] - starts[index])
    for index in range(len(arrays)):  # sorted by start, so the time that children cover only grows to the right
        parent = parents[index]
        if parent >= 0:
            begin, end = max(starts[index], covered_to[parent]), min(ends[index], ends[parent])
            if end > begin:
                self_ns[parent] -= end - begin
                covered_to[parent] = end
    return self_ns


def critical_times(tree: Tree) -> dict[int, int]:
    """Return the time, by index, in which each span of the critical path delayed the end of the trace.

    Computed back from the end of the trace: the span that ran last delayed the end, before its start the span that ended
    last before that, and so on, down to the children of each.
    """
    starts, ends = tree.arrays.starts, tree.arrays.ends
    critical_ns: dict[int, int] = {}
    stack = [(-1, tree.start_ns, tree.end_ns)]
    while stack:
        index, since, until = stack.pop()
        now = until
        children = tree.top_spans if index < 0 else tree.children(index)
        for child in sorted(children, key=lambda span: (ends[span], starts[span]), reverse=True):
            end = min(ends[child], now)
            start = max(starts[child], since)
            if end <= start:
                continue
            if index >= 0 and now > end:
                critical_ns[index] = critical_ns.get(index, 0) + now - end
            stack.append((child, start, end))
            now = start
            if now <= since:
                break
        if index >= 0 and now > since:
            critical_ns[index] = critical_ns.get(index, 0) + now - since
    return critical_ns


_CACHED_FROM_SPANS = 10_000
_MAX_CACHED_SPANS = 1_500_000


class TreeCache:
    """Caches a few large trees, each while no span is added to its trace. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._cached: OrderedDict[str, Tree] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, table: OpenTable, snapshot: Snapshot, trace_id: bytes) -> Tree:
        """Return the tree of a trace, up to the limit of spans. Raises TraceOrSpanMissing if there is no such trace."""
        key = self.version(table, snapshot, trace_id)
        with self._lock:
            cached = self._cached.get(key)
            if cached is not None:
                self._cached.move_to_end(key)
                return cached
        rows, truncated = rows_of_trace(table, snapshot, trace_id, columns=_COLUMNS, limit=self._limit)
        if not rows.num_rows:
            raise TraceOrSpanMissing(no_trace(trace_id).message)
        tree = build_tree(span_arrays_of(trace_id, rows, truncated=truncated))
        if rows.num_rows >= _CACHED_FROM_SPANS:
            with self._lock:
                self._cached[key] = tree
                while len(self._cached) > 1 and sum(map(len, self._cached.values())) > _MAX_CACHED_SPANS:
                    self._cached.popitem(last=False)
        return tree

    def version(self, table: OpenTable, snapshot: Snapshot, trace_id: bytes) -> str:
        """Return a text that changes when spans are added to a trace or removed; spans of other traces do not change it.

        It also changes when spans move to other files. Raises TraceOrSpanMissing if there is certainly no such trace.
        """
        places = places_of_trace(table, snapshot, trace_id)
        if not places.files and not places.staged_rows:
            raise TraceOrSpanMissing(no_trace(trace_id).message)
        parts = (snapshot.base.table_id, trace_id, self._limit, places)
        return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()
