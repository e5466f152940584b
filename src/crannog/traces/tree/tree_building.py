"""Builds the tree of a trace by columns: a million spans take less than half a second of processor time.

Spans are numbered by start. Sums along the path to the top come from pointer jumping, in as many passes as the depth has
binary digits; neither deep trees nor cycles can make it hang.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crannog.engine.sql.running_queries import check_cancelled
from crannog.traces.span_table import SPAN_ID_BYTES
from crannog.traces.trace import ERROR_STATUS
from crannog.traces.tree.tree import MISSING_PARENT, NO_PARENT, SpanArrays, Tree
from crannog.traces.tree.tree_rows import FILE_NUMBER, ROW_NUMBER, RowPlaces, column_of, numbers_of, single_chunk

if TYPE_CHECKING:
    from crannog.traces.tree.tree import Numbers

_MAX_LEVELS_BY_COLUMN = 10_000
"""In a deeper tree most levels have few spans: a loop over spans is then faster than one over levels."""
_SPAN_ID = pa.binary(SPAN_ID_BYTES)
_EARLIEST = -(2**63)


def span_arrays_of(
    trace_id: bytes, rows: pa.Table, files: Sequence[str] = (), *, truncated: bool = False
) -> SpanArrays:
    """Return the arrays of a table that has each span once, with the places of its row in `files`, if they are known."""
    columns = {name: single_chunk(rows[name]) for name in rows.column_names}
    ids = columns["span_id"].cast(_SPAN_ID)
    starts = numbers_of(columns["start_ns"], np.int64)
    order = _sorted_by_start(starts, numbers_of(ids, ">u8"))  # as bytes, ids compare like big-endian numbers
    check_cancelled()
    # As integers, ids are looked up in a third of the time.
    id_numbers = column_of(numbers_of(ids, np.int64)[order], pa.int64())
    parent_ids = columns["parent_span_id"].cast(_SPAN_ID)
    has_parent = numbers_of(parent_ids.is_valid().cast(pa.uint8()), np.uint8)[order] > 0
    found = pc.index_in(column_of(numbers_of(parent_ids, np.int64)[order], pa.int64()), value_set=id_numbers)
    indexes = numbers_of(pc.fill_null(found, MISSING_PARENT), np.int32)
    places = column_of(order, pa.int64())
    return SpanArrays(
        trace_id,
        ids.take(places),
        np.where(has_parent, indexes, np.int32(NO_PARENT)),
        starts[order],
        numbers_of(columns["end_ns"], np.int64)[order],
        _texts(columns["service_name"], order),
        _texts(columns["span_name"], order),
        numbers_of(columns["status_code"], np.int32)[order] == ERROR_STATUS,
        truncated,
        _places(columns, order, files),
    )


def _sorted_by_start(starts: Numbers, ids: Numbers) -> Numbers:
    """Return the spans sorted by start, those with the same start by id."""
    order = np.argsort(starts)
    in_order = starts[order]
    is_same = in_order[1:] == in_order[:-1]
    if is_same.any():
        tied = np.flatnonzero(np.append(is_same, False) | np.append(False, is_same))
        spans = order[tied]
        order[tied] = spans[np.lexsort((ids[spans], starts[spans]))]
    return order


def _places(columns: Mapping[str, pa.Array], order: Numbers, files: Sequence[str]) -> RowPlaces | None:
    if FILE_NUMBER not in columns:
        return None
    file_numbers, row_numbers = columns[FILE_NUMBER], columns[ROW_NUMBER]
    return RowPlaces(files, numbers_of(file_numbers, np.int32)[order], numbers_of(row_numbers, np.int64)[order])


def _texts(column: pa.Array, order: Numbers) -> pa.DictionaryArray:
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    codes = numbers_of(encoded.indices.cast(pa.int32()), np.int32)[order]
    return pa.DictionaryArray.from_arrays(column_of(codes, pa.int32()), encoded.dictionary)


def build_tree(arrays: SpanArrays, version: str = "") -> Tree:
    """Return the tree of the spans in `arrays`."""
    sent = arrays.parents
    parents = np.maximum(sent, -1)
    ones = np.ones(len(arrays), np.int32)
    depths, in_cycles = _sums_to_top(parents, ones)
    cycles = _open_cycles(parents, np.flatnonzero(in_cycles))
    if len(cycles):
        parents[cycles] = -1
        depths, _ = _sums_to_top(parents, ones)
    depths -= 1
    check_cancelled()
    sizes = _subtree_sizes(parents, depths)
    roots, orphans = np.flatnonzero(sent == NO_PARENT), np.flatnonzero(sent == MISSING_PARENT)
    top_spans = np.concatenate([roots, orphans, cycles]).astype(np.int32)
    # Sorted by parent, then by start: as one number, several times as fast as a stable sort.
    count = len(arrays)
    by_parent = (np.sort((parents + np.int64(1)) * count + np.arange(count)) % count).astype(np.int32)
    by_parent[: len(top_spans)] = top_spans  # the first group has the parent -1
    tree_position, _ = _sums_to_top(parents, _offsets_below_parent(parents, sizes, by_parent))
    tree_position -= 1
    order = np.empty(len(arrays), np.int32)
    order[tree_position] = np.arange(len(arrays), dtype=np.int32)
    check_cancelled()
    child_bounds = np.append(0, np.cumsum(np.bincount(parents + 1, minlength=len(arrays) + 1))).astype(np.int32)
    return Tree(
        arrays, order, tree_position, parents, depths, sizes, _self_times(arrays, parents, by_parent), by_parent,
        child_bounds, len(roots), len(orphans), len(cycles), version,
    )  # fmt: skip


def _sums_to_top(parents: Numbers, values: Numbers) -> tuple[Numbers, Numbers]:
    """Return the sum of the values from each span up to the top, and which spans are in or below a cycle."""
    count = len(parents)
    sums = np.append(values, np.zeros(1, values.dtype))
    above = np.append(np.where(parents < 0, count, parents), count).astype(np.int32)
    for _ in range(count.bit_length() + 1):
        if (above == count).all():
            break
        sums += sums[above]
        above = above[above]
    return sums[:count], above[:count] != count


def _open_cycles(parents: Numbers, in_cycles: Numbers) -> Numbers:
    """Return the spans at which cycles are opened: the first by start, then the first that cannot be reached from it …"""
    children: dict[int, list[int]] = {}
    for index in in_cycles.tolist():
        children.setdefault(int(parents[index]), []).append(index)
    opened, reached = [], set()
    for top in in_cycles.tolist():
        if top in reached:
            continue
        opened.append(top)
        stack = [top]
        while stack:
            index = stack.pop()
            if index not in reached:
                reached.add(index)
                stack += children.get(index, ())
    return np.array(opened, np.int32)


def _subtree_sizes(parents: Numbers, depths: Numbers) -> Numbers:
    sizes = np.ones(len(parents), np.int32)
    by_depth = np.argsort(depths)
    deepest = int(depths[by_depth[-1]])
    if deepest > _MAX_LEVELS_BY_COLUMN:
        listed, parent_of = sizes.tolist(), parents.tolist()
        for index in by_depth[::-1].tolist():
            if parent_of[index] >= 0:
                listed[parent_of[index]] += listed[index]
        return np.array(listed, np.int32)
    bounds = np.searchsorted(depths[by_depth], np.arange(deepest + 2))
    for begin, end in list(itertools.pairwise(bounds))[:0:-1]:
        level = by_depth[begin:end]
        np.add.at(sizes, parents[level], sizes[level])
    return sizes


def _offsets_below_parent(parents: Numbers, sizes: Numbers, by_parent: Numbers) -> Numbers:
    """Return how far after its parent each span comes in tree order: 1 plus the sizes of the siblings before it."""
    before = np.cumsum(sizes[by_parent]) - sizes[by_parent]
    group = parents[by_parent]
    is_first = np.append(True, group[1:] != group[:-1])
    offsets = np.empty(len(parents), np.int32)
    offsets[by_parent] = before - before[is_first][np.cumsum(is_first) - 1] + 1
    return offsets


def _self_times(arrays: SpanArrays, parents: Numbers, by_parent: Numbers) -> Numbers:
    """Return how long each span ran while none of its children did."""
    starts, ends = arrays.starts, arrays.ends
    self_ns = ends - starts
    children = by_parent[parents[by_parent] >= 0]
    if not len(children):
        return self_ns
    parent = parents[children]  # sorted; siblings are sorted by start
    limit = ends[parent]
    # Up to where earlier siblings cover the parent's time.
    covered = np.maximum(starts[parent], largest_before(parent, ends[children], _EARLIEST))
    gained = np.minimum(ends[children], limit) - np.maximum(starts[children], covered)
    np.subtract.at(self_ns, parent, np.maximum(gained, 0))
    return self_ns


def largest_before(group: Numbers, values: Numbers, nothing: int) -> Numbers:
    """Return the largest of the values before each one in its group, `nothing` for the first; groups are ascending."""
    count = len(values)
    by_value = np.argsort(values)
    ranks = np.empty(count, np.int64)
    ranks[by_value] = np.arange(count)
    # One maximum over all groups: a later group has larger numbers than all ranks of the earlier ones.
    running = np.maximum.accumulate(group.astype(np.int64) * count + ranks)
    largest = np.full(count, nothing, np.int64)
    same = group[1:] == group[:-1]
    largest[1:][same] = values[by_value[running[:-1][same] % count]]
    return largest
