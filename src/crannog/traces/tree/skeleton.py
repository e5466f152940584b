"""The skeleton of a trace: the columns of its tree that a viewer needs for all spans at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crannog.api.traces import Skeleton, SpanFlag
from crannog.api.traces.requests import SkeletonQuery
from crannog.engine.sql.running_queries import check_cancelled
from crannog.errors import TooLarge
from crannog.traces.span_store import SpanStore
from crannog.traces.span_table import parse_trace_id
from crannog.traces.tree.tree import MISSING_PARENT, NO_PARENT, Tree
from crannog.traces.tree.tree_views import checked_rows, found_trace

if TYPE_CHECKING:
    from crannog.traces.tree.tree import Numbers

_NS_PER_US = 1_000


def skeleton(store: SpanStore, query: SkeletonQuery) -> Skeleton:
    """Return all spans of a trace as columns."""
    trace_id, limit = parse_trace_id(query.trace_id), checked_rows(query.limit)
    tree = found_trace(store, lambda table, snapshot: store.trees.get(table, snapshot, trace_id), trace_id)
    if len(tree) > limit:
        raise TooLarge(
            f"trace {trace_id.hex()} has {len(tree):,} spans, more than the limit of {limit:,}: raise `limit`,"
            " or read windows of it with `offset` and `limit`"
        )
    return Skeleton(skeleton_table(tree))


def skeleton_table(tree: Tree) -> pa.Table:
    """Return the columns of a tree, in tree order."""
    import numpy as np

    arrays, order = tree.arrays, tree.order
    starts, ends = arrays.starts[order], arrays.ends[order]
    check_cancelled()
    times = np.uint32 if tree.end_ns - tree.start_ns < _NS_PER_US << 32 else np.float64
    columns = {
        "depth": _column(tree.depths[order].astype(_smallest(tree.deepest))),
        "start_us": _column(((starts - tree.start_ns) // _NS_PER_US).astype(times)),
        "duration_us": _column(((ends - starts) // _NS_PER_US).astype(times)),
        "name": _dictionary(arrays.names, order),
        "service": _dictionary(arrays.services, order),
        "flags": _column(_flags(tree)[order]),
    }
    return pa.table(columns).replace_schema_metadata(_metadata(tree))


def _flags(tree: Tree) -> Numbers:
    """Return the flags of each span, by its index."""
    import numpy as np

    sent_parents = tree.arrays.parents
    bits = {
        SpanFlag.ERROR: tree.arrays.is_error,
        SpanFlag.ROOT: sent_parents == NO_PARENT,
        SpanFlag.ORPHAN: sent_parents == MISSING_PARENT,
        SpanFlag.IN_CYCLE: (tree.parents < 0) & (sent_parents >= 0),
        SpanFlag.STARTS_EARLY: tree.starts_early,
        SpanFlag.ENDS_LATE: tree.ends_late,
        SpanFlag.CRITICAL: tree.critical_ns > 0,
    }
    flags = np.zeros(len(tree), np.uint8)
    for flag, holds in bits.items():
        flags[holds] |= int(flag)
    return flags


def _metadata(tree: Tree) -> Mapping[str, str]:
    arrays = tree.arrays
    figures = {
        "trace_id": arrays.trace_id.hex(),
        "start_ns": tree.start_ns,
        "end_ns": tree.end_ns,
        "spans": len(tree),
        "errors": arrays.error_count,
        "roots": tree.roots,
        "orphans": tree.orphans,
        "cycles": tree.cycles,
        "skewed": tree.skewed,
        "deepest": tree.deepest,
        "complete": "false" if arrays.truncated else "true",
        "etag": tree.version,
    }
    return {name: str(value) for name, value in figures.items()}


def _smallest(largest: int) -> Any:
    import numpy as np

    return np.uint16 if largest < 1 << 16 else np.uint32


def _dictionary(column: pa.DictionaryArray, order: Numbers) -> pa.DictionaryArray:
    """Return a column of texts in tree order, with the smallest codes."""
    import numpy as np

    from crannog.traces.tree.tree_rows import numbers_of

    size = len(column.dictionary)
    kind = np.uint8 if size <= 1 << 8 else _smallest(size - 1)
    codes = numbers_of(column.indices, np.int32)[order].astype(kind)
    return pa.DictionaryArray.from_arrays(_column(codes), column.dictionary)


def _column(numbers: Numbers) -> pa.Array:
    from crannog.traces.tree.tree_rows import column_of

    return column_of(numbers, _TYPES[numbers.dtype.name])


_TYPES = {"uint8": pa.uint8(), "uint16": pa.uint16(), "uint32": pa.uint32(), "float64": pa.float64()}
