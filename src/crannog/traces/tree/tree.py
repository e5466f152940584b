"""The tree of a trace, computed once over all its spans.

Roots come first, then orphans (whose parent has not arrived), then cycles of parents, each opened at its earliest span;
siblings are sorted by start. All these top spans have depth 0. What a tree needs are flat arrays: a million spans take about
100 MB.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.engine.sql.running_queries import check_cancelled
from crannog.errors import CallerError
from crannog.traces.lookup import TracePlaces, places_of_trace
from crannog.traces.span_table import SPAN_ID_BYTES, no_trace

if TYPE_CHECKING:
    import numpy as np  # loaded with the first tree: most commands need none

    from crannog.traces.tree.tree_rows import RowPlaces

    Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]

NO_PARENT, MISSING_PARENT = -1, -2
_COLUMNS = ["span_id", "parent_span_id", "start_ns", "end_ns", "service_name", "span_name", "status_code"]


@dataclass(frozen=True)
class SpanArrays:
    """Each span once, sorted by start. `truncated` means that the trace has more spans than were read."""

    trace_id: bytes
    ids: pa.FixedSizeBinaryArray = field(repr=False)
    parents: Numbers = field(repr=False)
    """The index of the parent, `NO_PARENT` or `MISSING_PARENT`."""
    starts: Numbers = field(repr=False)
    ends: Numbers = field(repr=False)
    services: pa.DictionaryArray = field(repr=False)
    names: pa.DictionaryArray = field(repr=False)
    is_error: Numbers = field(repr=False)
    truncated: bool
    places: RowPlaces | None = field(default=None, repr=False)

    @property
    def error_count(self) -> int:
        return int(self.is_error.sum())

    def __len__(self) -> int:
        return len(self.starts)

    def span_id(self, index: int) -> str:
        return str(self.ids[index].as_py().hex())


class TraceOrSpanMissing(Exception):
    """There is no such trace or span. Not a NotFound, which would mean that the table is gone."""


@dataclass(frozen=True)
class Tree:
    """The tree of the spans in `arrays`; a span is its index there."""

    arrays: SpanArrays
    order: Numbers = field(repr=False)
    """The spans in tree order."""
    tree_position: Numbers = field(repr=False)
    """The index of each span in `order`."""
    parents: Numbers = field(repr=False)
    """The parent of each span in the tree; -1 for a top span."""
    depths: Numbers = field(repr=False)
    sizes: Numbers = field(repr=False)
    """The number of spans in the subtree of each span, itself included."""
    self_ns: Numbers = field(repr=False)
    """The time of each span in which no child was running."""
    by_parent: Numbers = field(repr=False)
    """The spans grouped by parent, in tree order within a group; top spans come first."""
    child_bounds: Numbers = field(repr=False)
    """The children of a span are `by_parent[child_bounds[span + 1] : child_bounds[span + 2]]`; top spans are those of -1."""
    roots: int
    orphans: int
    cycles: int
    version: str = ""
    """See `TreeCache.version`."""

    @property
    def start_ns(self) -> int:
        return int(self.arrays.starts[0])

    @cached_property
    def end_ns(self) -> int:
        return int(self.arrays.ends.max())

    def is_orphan(self, index: int) -> bool:
        return bool(self.arrays.parents[index] == MISSING_PARENT)

    def is_in_cycle(self, index: int) -> bool:
        """Return whether a cycle was opened at this span."""
        return bool(self.parents[index] < 0 and self.arrays.parents[index] >= 0)

    @cached_property
    def starts_early(self) -> Numbers:
        """Whether each span starts before its parent."""
        starts = self.arrays.starts
        return (self.parents >= 0) & (starts < starts[self.parents])

    @cached_property
    def ends_late(self) -> Numbers:
        """Whether each span ends after its parent."""
        ends = self.arrays.ends
        return (self.parents >= 0) & (ends > ends[self.parents])

    @property
    def top_spans(self) -> Numbers:
        return self.children(-1)

    def children(self, index: int) -> Numbers:
        """Return the children of a span, in tree order."""
        return self.by_parent[self.child_bounds[index + 1] : self.child_bounds[index + 2]]

    def child_counts(self, indexes: Numbers) -> Numbers:
        """Return the number of children of each of some spans."""
        found: Numbers = self.child_bounds[indexes + 2] - self.child_bounds[indexes + 1]
        return found

    def __len__(self) -> int:
        return len(self.order)

    @cached_property
    def critical_ns(self) -> Numbers:
        """See `critical_times`."""
        from crannog.traces.tree.critical_path import critical_times

        return critical_times(self)

    @cached_property
    def skewed(self) -> int:
        """The number of spans that start before their parent or end after it."""
        return int((self.starts_early | self.ends_late).sum())

    @cached_property
    def deepest(self) -> int:
        return int(self.depths.max())

    def indexes(self, depth: int | None, under: str | None) -> Numbers:
        """Return the spans in tree order, no deeper than `depth` and in the subtree of the span `under`."""
        begin, end, base_depth = 0, len(self.order), 0
        if under is not None:
            top = self.index_of(under)
            begin, base_depth = int(self.tree_position[top]), int(self.depths[top])
            end = begin + int(self.sizes[top])
        indexes = self.order[begin:end]
        if depth is None or depth >= self.deepest - base_depth:
            return indexes
        return indexes[self.depths[indexes] <= base_depth + depth]

    def index_of(self, span_id: str) -> int:
        """Return the index of a span. Raises CallerError if the id is invalid, TraceOrSpanMissing if it is not there."""
        try:
            id_bytes = bytes.fromhex(span_id)
        except (ValueError, TypeError):
            id_bytes = b""
        if len(id_bytes) != SPAN_ID_BYTES:
            raise CallerError(f"a span id must have 16 hexadecimal digits, got {str(span_id)[:80]!r}")
        index = int(pc.index(self.arrays.ids, pa.scalar(id_bytes, self.arrays.ids.type)).as_py())
        if index < 0:
            raise TraceOrSpanMissing(f"trace {self.arrays.trace_id.hex()} has no span {span_id}")
        return index

    def path(self, index: int, max_length: int) -> list[int]:
        """Return the path from the top to a span, which comes last; only the end of a path longer than `max_length`."""
        path = [index]
        while len(path) < max_length and (index := int(self.parents[index])) >= 0:
            path.append(index)
        return path[::-1]


_CACHED_FROM_SPANS = 10_000
_MAX_CACHED_SPANS = 1_500_000
_WAIT_S = 0.1


class TreeCache:
    """Caches a few large trees, each while no span is added to its trace. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._cached: OrderedDict[str, Tree] = OrderedDict()
        self._building: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, table: OpenTable, snapshot: Snapshot, trace_id: bytes) -> Tree:
        """Return the tree of a trace, up to the limit of spans. Raises TraceOrSpanMissing if there is no such trace."""
        places = places_of_trace(table, snapshot, trace_id)
        key = self._key(snapshot, trace_id, places)
        if cached := self._known(key):
            return cached
        # A viewer asks for a window and for the skeleton at once: the second request waits for the tree of the first.
        with self._alone(key):
            return self._known(key) or self._build(table, snapshot, trace_id, places, key)

    def _known(self, key: str) -> Tree | None:
        with self._lock:
            cached = self._cached.get(key)
            if cached is not None:
                self._cached.move_to_end(key)
            return cached

    @contextmanager
    def _alone(self, key: str) -> Iterator[None]:
        """Wait until nobody else builds the same tree, or until this query is cancelled."""
        with self._lock:
            building = self._building.setdefault(key, threading.Lock())
        while not building.acquire(timeout=_WAIT_S):
            check_cancelled()
        try:
            yield
        finally:
            with self._lock:
                self._building.pop(key, None)
            building.release()

    def _build(self, table: OpenTable, snapshot: Snapshot, trace_id: bytes, places: TracePlaces, key: str) -> Tree:
        from crannog.traces.tree.tree_building import build_tree, span_arrays_of
        from crannog.traces.tree.tree_rows import columns_of_trace

        rows, truncated = columns_of_trace(table, snapshot, trace_id, places, _COLUMNS, self._limit)
        if not rows.num_rows:
            raise TraceOrSpanMissing(no_trace(trace_id).message)
        tree = build_tree(span_arrays_of(trace_id, rows, places.files, truncated=truncated), key)
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
        return self._key(snapshot, trace_id, places)

    def _key(self, snapshot: Snapshot, trace_id: bytes, places: TracePlaces) -> str:
        parts = (snapshot.base.table_id, trace_id, self._limit, places)
        return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()
