"""Finds spans in a trace: the rows of its tree that match a filter, and their ancestors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from crannog.api.traces import TraceMatches
from crannog.api.traces.requests import FindQuery
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.errors import CallerError
from crannog.traces.search.filter_sql import condition_sql
from crannog.traces.search.filter_tree import MATCH_ALL
from crannog.traces.search.request import span_filter
from crannog.traces.span_store import SpanStore
from crannog.traces.span_table import parse_trace_id
from crannog.traces.tree.tree import Tree
from crannog.traces.tree.tree_views import checked_rows, found_trace

if TYPE_CHECKING:
    from crannog.traces.tree.tree import Numbers


def find(store: SpanStore, query: FindQuery) -> TraceMatches:
    """Return the rows of a trace that match, and their ancestors."""
    trace_id, limit, filter = parse_trace_id(query.trace_id), checked_rows(query.limit), span_filter(query)
    if filter == MATCH_ALL:
        raise CallerError("nothing to find: give text, where, attributes or another condition")
    condition = condition_sql(filter)

    def found(table: OpenTable, snapshot: Snapshot) -> TraceMatches:
        from crannog.traces.tree.tree_rows import spans_where

        tree = store.trees.get(table, snapshot, trace_id)
        assert tree.arrays.places is not None
        return TraceMatches(
            matches_table(tree, spans_where(table, snapshot, trace_id, tree.arrays.places, condition), limit)
        )

    return found_trace(store, found, trace_id)


def matches_table(tree: Tree, matches: Numbers, limit: int) -> pa.Table:
    """Return the rows of the first `limit` matches and their ancestors, in tree order."""
    import numpy as np

    from crannog.traces.tree.tree_rows import column_of

    rows = np.sort(tree.tree_position[matches])
    is_match = np.zeros(len(tree), np.uint8)
    is_match[rows[:limit]] = 1
    # A span is an ancestor of a match, or one itself, if its subtree, which follows it, has one.
    counts = np.append(0, np.cumsum(is_match, dtype=np.int64))
    ends = np.arange(len(tree)) + tree.sizes[tree.order]
    shown = np.flatnonzero(counts[ends] > counts[:-1])
    figures = {
        "trace_id": tree.arrays.trace_id.hex(),
        "spans": len(tree),
        "matches": len(rows),
        "complete": "true" if len(rows) <= limit and not tree.arrays.truncated else "false",
        "etag": tree.version,
    }
    columns = [column_of(shown.astype(np.uint32), pa.uint32()), column_of(is_match[shown], pa.uint8())]
    return pa.table(columns, ["row", "match"]).replace_schema_metadata(
        {name: str(value) for name, value in figures.items()}
    )
