"""A cache of the trees of large traces, so that the next window does not compute them again."""

from __future__ import annotations

import threading
from collections import OrderedDict

from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.traces.tree.span_arrays import read_span_arrays
from crannog.traces.tree.tree import build_tree
from crannog.traces.tree.window import TreeAnalysis

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
