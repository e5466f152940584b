"""Trees of traces as they stand now; those of large traces are kept for the next window."""

from __future__ import annotations

import threading
from collections import OrderedDict

from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.traces.tree.span_arrays import skeleton_of
from crannog.traces.tree.tree import tree_of
from crannog.traces.tree.window import Shown

_LARGE = 10_000
_KEPT_SPANS = 1_500_000
_Key = tuple[str, int, int, bytes]


class Trees:
    """Remembers a few large trees, each for one snapshot: about a second of work for a million spans. Safe for threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, Shown] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, table: OpenTable, snapshot: Snapshot, trace_id: bytes, *, limit: int) -> Shown | None:
        """Return the tree of a trace, or of its first `limit` spans; None if there is no such trace."""
        key = (snapshot.base.table_id, snapshot.base.version, snapshot.sequence, trace_id)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        bones = skeleton_of(table, snapshot, trace_id, limit=limit)
        if bones is None:
            return None
        shown = Shown(tree_of(bones))
        if len(bones) >= _LARGE:
            with self._lock:
                self._kept[key] = shown
                while len(self._kept) > 1 and sum(len(each.tree.bones) for each in self._kept.values()) > _KEPT_SPANS:
                    self._kept.popitem(last=False)
        return shown
