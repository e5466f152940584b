"""Trees of traces as they stand now; those of large traces are kept for the next window."""

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
    """Remembers a few large trees, each for one snapshot: about a second of work for a million spans. Safe for threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, TreeAnalysis] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, table: OpenTable, snapshot: Snapshot, trace_id: bytes, *, limit: int) -> TreeAnalysis | None:
        """Return the tree of a trace, or of its first `limit` spans; None if there is no such trace."""
        key = (snapshot.base.table_id, snapshot.base.version, snapshot.sequence, trace_id)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        arrays = read_span_arrays(table, snapshot, trace_id, limit=limit)
        if arrays is None:
            return None
        shown = TreeAnalysis(build_tree(arrays))
        if len(arrays) >= _CACHED_FROM_SPANS:
            with self._lock:
                self._kept[key] = shown
                while (
                    len(self._kept) > 1
                    and sum(len(each.tree.arrays) for each in self._kept.values()) > _MAX_CACHED_SPANS
                ):
                    self._kept.popitem(last=False)
        return shown
