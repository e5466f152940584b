"""Showing traces: tree, own time, critical path, windows, comparison; equal to plain definitions on any tree."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from crannog.api.traces import Span
from crannog.engine.maintenance.fold import fold
from crannog.engine.tables import Tables
from crannog.engine.warehouse import Warehouse
from crannog.errors import CallerError, NotFound
from crannog.protocol.staged_files import Change
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from crannog.traces.span_table import SCHEMA
from crannog.traces.trace import spans_in_tree_order
from crannog.traces.tree import critical_path, tree_building
from crannog.traces.tree.critical_path import critical_times
from crannog.traces.tree.tree import Tree
from crannog.traces.tree.tree_building import build_tree, span_arrays_of
from crannog.traces.tree.tree_views import compare_trees
from flatten_reference import flat_by_objects
from local_traces import LocalTraces
from otlp_samples import START, request_of, span, span_id, trace_id

SOME = settings_of(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


class Store(LocalTraces):
    def __init__(self, settings: Settings) -> None:
        self.warehouse = Warehouse(settings.warehouse, settings)
        super().__init__(self.warehouse, Tables(self.warehouse))

    def stage(self, rows: pa.Table, batch_id: str) -> None:
        """Stage rows of the span table as one change."""
        self.spans.writer.write(Change(batch_id, "append", rows, rows.nbytes, at_us=time.time_ns() // 1000))

    def send(self, *made: Any, **more: Any) -> None:
        assert self.write_otlp(request_of(*made, **more).SerializeToString()).accepted == len(made)


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    store = Store(settings)
    yield store
    store.warehouse.close()


# -- any tree --------------------------------------------------------------------------------------------------------

# Parents at random: several roots, missing parents, cycles, children outside the time of their parents.
shapes = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(1, 14)), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12
)


def tree_and_spans(shape: list[tuple[int | None, int, int]]) -> tuple[Tree, list[Span]]:
    made = [span(1, n + 1, parent, start=START + begin, took=took) for n, (parent, begin, took) in enumerate(shape)]
    rows = flat_by_objects(request_of(*made))[0]
    return build_tree(span_arrays_of(trace_id(1), rows)), spans_in_tree_order(rows)


@SOME
@given(shapes)
def test_the_tree_is_that_of_a_whole_trace(shape: list[tuple[int | None, int, int]]) -> None:
    tree, expected = tree_and_spans(shape)
    listed = [tree.arrays.span_id(index) for index in tree.order]
    assert listed == [one.span_id for one in expected]
    for index, one in zip(tree.order, expected, strict=True):
        assert (tree.depths[index], tree.is_orphan(index), tree.is_in_cycle(index)) == (
            one.depth,
            one.orphan,
            one.in_cycle,
        )
        below = [other for other in tree.order if index in tree.path(other, 100)]
        assert tree.sizes[index] == len(below)
        assert [tree.parents[child] for child in tree.children(index)] == [index] * sum(
            p == index for p in tree.parents
        )
    assert tree.roots == sum(one.parent_span_id is None for one in expected)
    assert tree.orphans == sum(one.orphan for one in expected)
    assert tree.cycles == sum(one.in_cycle for one in expected)


@SOME
@given(shapes)
def test_own_time_is_what_no_child_covers(shape: list[tuple[int | None, int, int]]) -> None:
    tree, _ = tree_and_spans(shape)
    starts, ends = tree.arrays.starts, tree.arrays.ends
    for index in tree.order:
        children = list(tree.children(index))
        alone = [
            moment
            for moment in range(starts[index], ends[index])
            if not any(starts[child] <= moment < ends[child] for child in children)
        ]
        assert tree.self_ns[index] == len(alone)


@SOME
@given(shapes)
def test_the_critical_path_fills_the_time_in_which_anything_ran_at_the_top(
    shape: list[tuple[int | None, int, int]],
) -> None:
    tree, _ = tree_and_spans(shape)
    starts, ends = tree.arrays.starts, tree.arrays.ends
    held = {index: int(time) for index, time in enumerate(critical_times(tree)) if time}
    busy = [
        moment
        for moment in range(tree.start_ns, tree.end_ns)
        if any(starts[top] <= moment < ends[top] for top in tree.top_spans)
    ]
    assert sum(held.values()) == len(busy)
    for index, held_ns in held.items():
        assert 0 < held_ns <= ends[index] - starts[index]


@SOME
@given(shapes)
def test_levels_taken_as_columns_and_one_by_one_give_the_same(shape: list[tuple[int | None, int, int]]) -> None:
    by_loops, _ = tree_and_spans(shape)
    expected = critical_times(by_loops).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(critical_path, "_FEW_CHILDREN", -1)
        assert critical_times(by_loops).tolist() == expected
        patch.setattr(tree_building, "_MAX_LEVELS_BY_COLUMN", -1)
        assert tree_and_spans(shape)[0].sizes.tolist() == by_loops.sizes.tolist()


def test_the_critical_path_goes_through_what_was_waited_for() -> None:
    # root 0-100: a 10-40 and b 20-70 at once (b is waited for), then c 80-95 with d 85-90 in it
    tree, _ = tree_and_spans([(None, 0, 100), (1, 10, 30), (1, 20, 50), (1, 80, 15), (4, 85, 5)])
    held = {int(tree.arrays.span_id(index), 16): time for index, time in enumerate(critical_times(tree)) if time}
    # Before b started a was the last to run: it is on the path until then.
    assert held == {1: 5 + 10 + 10, 2: 10, 3: 50, 4: 10, 5: 5}
    assert [tree.self_ns[index] for index in tree.order] == [25, 30, 50, 10, 5]


# -- through the store -----------------------------------------------------------------------------------------------


def test_what_is_odd_about_a_trace_is_marked(store: Store) -> None:
    store.send(
        span(1, 1, start=START, took=100),
        span(1, 2, 1, start=START - 5, took=50),  # starts before its parent
        span(1, 3, 1, start=START + 50, took=90),  # ends after it
        span(1, 4, 99, start=START + 10, took=1),  # its parent is not there
        span(1, 5, 6, start=START + 20, took=5),
        span(1, 6, 5, start=START + 21, took=1, status={"code": 2}),  # a cycle
        span(1, 7, start=START + 30, took=1),  # a second root
    )
    view = store.show(trace_id(1).hex())
    shown = {int(one.span.span_id, 16): one for one in view.spans}
    assert [int(one.span.span_id, 16) for one in view.spans] == [1, 2, 3, 7, 4, 5, 6]
    assert [one.order for one in view.spans] == list(range(7))
    assert (view.roots, view.orphans, view.cycles, view.skewed, view.is_root_missing) == (2, 1, 1, 2, False)
    assert (view.span_count, view.error_count, view.deepest, view.total, view.next_offset) == (7, 1, 1, 7, None)
    assert [number for number, one in shown.items() if one.starts_early] == [2]
    assert [number for number, one in shown.items() if one.ends_late] == [3]
    assert [number for number, one in shown.items() if one.span.orphan] == [4]
    assert [number for number, one in shown.items() if one.span.in_cycle] == [5]
    assert shown[3].path == (span_id(1).hex(), span_id(3).hex())
    assert (shown[1].children, shown[1].descendants, shown[5].children) == (2, 2, 1)
    assert (view.start_ns, view.end_ns, view.duration_ns) == (START - 5, START + 140, 145)
    assert view.critical_path == tuple(one.span.span_id for one in view.spans if one.critical_ns)


def test_a_trace_without_its_root_is_shown_and_told(store: Store) -> None:
    store.send(span(1, 2, 1), span(1, 3, 2))
    view = store.show(trace_id(1).hex())
    assert view.is_root_missing
    assert [(one.depth, one.span.orphan) for one in view.spans] == [(0, True), (1, False)]
    store.send(span(1, 1, took=2_000_000))  # it comes later
    view = store.show(trace_id(1).hex())
    assert not view.is_root_missing
    assert [one.depth for one in view.spans] == [0, 1, 2]


def test_windows_depths_and_subtrees(store: Store) -> None:
    # 1 ─ 2..4, each with three children, each of those with three
    spans, number = [span(1, 1, start=START, took=10**6)], 1
    level = [1]
    for depth in range(1, 4):
        below = []
        for parent in level:
            for _ in range(3):
                number += 1
                below.append(number)
                spans.append(span(1, number, parent, start=START + depth, took=10, attributes={"n": number}))
        level = below
    store.send(*spans)
    store.send(span(1, 2, 1, start=START + 1, took=10, attributes={"n": "again"}))  # kept twice, shown once
    name = trace_id(1).hex()
    whole = store.show(name)
    assert whole.total == whole.span_count == len(spans) == 40
    assert [one.span.span_id for one in whole.spans] == [one.span_id for one in store.get(name).spans]
    assert whole.spans[1].span.attributes == {"n": "again"}
    offset, parts = 0, []
    while offset is not None:
        window = store.show(name, offset, 7)
        parts += window.spans
        offset = window.next_offset
    assert tuple(parts) == whole.spans
    assert store.show(name, 40).spans == store.show(name, 10_000).spans == ()
    shallow = store.show(name, depth=1)
    assert [one.depth for one in shallow.spans] == [0, 1, 1, 1]
    assert (shallow.total, shallow.deepest, shallow.spans[1].descendants) == (4, 3, 12)
    under = store.show(name, depth=1, under=span_id(3).hex())
    assert [one.depth for one in under.spans] == [1, 2, 2, 2]
    assert store.show(name, under=span_id(3).hex()).total == 13
    assert store.show(name, depth=0, under=span_id(3).hex()).total == 1


def test_requests_at_once_work_out_a_large_tree_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.send(span(1, 1), span(1, 2, 1))
    built = []

    def slowly(*given: Any) -> Tree:
        built.append(given)
        time.sleep(0.3)
        return build_tree(*given)

    monkeypatch.setattr(tree_building, "build_tree", slowly)
    monkeypatch.setattr("crannog.traces.tree.tree._CACHED_FROM_SPANS", 1)
    with ThreadPoolExecutor(4) as pool:
        shown = list(pool.map(lambda _: len(store.show(trace_id(1).hex()).spans), range(4)))
    assert (shown, len(built)) == ([2, 2, 2, 2], 1)


def test_a_wrong_window_is_refused(store: Store) -> None:
    with pytest.raises(NotFound, match="not found"):
        store.show(trace_id(1).hex())
    store.send(span(1, 1))
    name = trace_id(1).hex()
    with pytest.raises(NotFound, match="not found"):
        store.show(trace_id(2).hex())
    with pytest.raises(NotFound, match="has no span"):
        store.show(name, under=span_id(9).hex())
    with pytest.raises(NotFound, match="not found"):
        store.compare(name, trace_id(2).hex())
    for wrong in ({"offset": -1}, {"limit": 0}, {"depth": -1}, {"under": "xyz"}, {"offset": True}, {"limit": 10**9}):
        with pytest.raises(CallerError):
            store.show(name, **wrong)
    for ids in (("x", name), (name, "")):
        with pytest.raises(CallerError):
            store.compare(*ids)
    with pytest.raises(CallerError):
        store.compare(name, name, tolerance=-1)


def test_a_trace_beyond_the_limit_is_cut_and_told(settings: Settings) -> None:
    store = Store(settings.model_copy(update={"trace_tree_spans_limit": 5}))
    store.send(*(span(1, number) for number in range(1, 9)))
    view = store.show(trace_id(1).hex())
    assert view.truncated
    assert view.span_count == 5
    store.warehouse.close()


# -- two traces ------------------------------------------------------------------------------------------------------


def test_two_traces_are_compared_by_path(store: Store) -> None:
    store.send(
        span(1, 1, name="GET", took=100),
        span(1, 2, 1, name="query", took=10),
        span(1, 3, 1, name="query", took=20),
        span(1, 4, 1, name="mail", took=30),
        span(1, 5, 2, name="query", took=5),  # the same operation elsewhere in the tree
    )
    store.send(
        span(2, 1, name="GET", took=100),
        span(2, 2, 1, name="query", took=40),
        span(2, 3, 2, name="query", took=4),
        span(2, 4, 1, name="pay", took=1),
    )
    found = store.compare(trace_id(1).hex(), trace_id(2).hex())
    changes = {tuple(name for _, name in one.path): one for one in found.changes}
    assert {path: one.change for path, one in changes.items()} == {
        ("GET",): "same", ("GET", "query"): "slower", ("GET", "query", "query"): "faster", ("GET", "mail"): "removed", ("GET", "pay"): "added",
    }  # fmt: skip
    query = changes["GET", "query"]
    assert (query.count_before, query.count_after, query.duration_before_ns, query.duration_after_ns) == (2, 1, 30, 40)
    assert (query.self_before_ns, query.self_after_ns, query.difference_ns) == (25, 36, 10)
    assert found.changes[0].change == "removed"  # the largest difference
    assert (found.spans_before, found.spans_after, found.paths) == (5, 4, 5)
    assert found.of("added") == (changes["GET", "pay"],)
    assert len(store.compare(trace_id(1).hex(), trace_id(2).hex(), limit=2).changes) == 2
    alike = store.compare(trace_id(1).hex(), trace_id(1).hex())
    assert {one.change for one in alike.changes} == {"same"}
    assert {one.change for one in store.compare(trace_id(1).hex(), trace_id(2).hex(), tolerance=2).changes} == {
        "same",
        "added",
        "removed",
    }


# -- huge ------------------------------------------------------------------------------------------------------------


def many(count: int, parent: Any) -> pa.Table:
    """So many spans of one trace, whose parents a function of their number tells."""
    [row] = flat_by_objects(request_of(span(1, 1)))[0].to_pylist()
    columns = {
        name: pa.repeat(pa.scalar(row[name], SCHEMA.field(name).type), count)
        for name in SCHEMA.names
        if name not in ("events", "links")
    }
    columns |= {
        name: pa.array([[]], SCHEMA.field(name).type).take(pa.repeat(pa.scalar(0), count))
        for name in ("events", "links")
    }
    columns["span_id"] = pa.array([span_id(number + 1) for number in range(count)], pa.binary())
    columns["parent_span_id"] = pa.array(
        [None if parent(n) is None else span_id(parent(n) + 1) for n in range(count)], pa.binary()
    )
    columns["start_ns"] = pa.array(range(START, START + count), pa.int64())
    columns["end_ns"] = pa.array([START + 2 * count - n for n in range(count)], pa.int64())
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


@pytest.mark.parametrize("parent", [lambda n: n - 1 if n else None, lambda n: 0 if n else None, lambda n: (n - 1) // 3 if n else None, lambda n: n + 1 if n + 1 < 30_000 else 0], ids=["deep", "wide", "bushy", "circle"])  # fmt: skip
def test_large_trees_of_any_shape_are_worked_out_in_a_moment(parent: Any) -> None:
    tree = build_tree(span_arrays_of(trace_id(1), many(30_000, parent)))
    assert len(tree.order) == 30_000
    assert critical_times(tree).sum() == tree.end_ns - tree.start_ns
    assert compare_trees(tree, tree, limit=5).spans_after == 30_000
    assert len(tree.path(tree.order[-1], 128)) <= 128


def test_windows_read_rows_by_place_from_files_and_from_what_is_staged(settings: Settings, spark: SparkRuntime) -> None:
    store = Store(settings)
    other = [span(2, number, start=START + number, attributes={"n": -number}) for number in range(1, 9)]
    for step in range(6):  # more files than are opened without looking for the trace first
        numbers = range(10 * step + 1, 10 * step + 6)
        made = [span(1, n, 1 if n > 1 else None, start=START + n, attributes={"n": n}) for n in numbers]
        store.send(*other[:step], *made)
        if step < 5:
            fold(store.spans)
    store.send(span(1, 3, 1, start=START + 3, attributes={"n": "again"}))  # a newer copy, staged
    name = trace_id(1).hex()
    view = store.show(name)
    assert view.span_count == 30
    assert [one.span for one in view.spans] == list(store.get(name).spans)
    assert view.spans[2].span.attributes == {"n": "again"}
    assert store.show(name, 7, 9).spans == view.spans[7:16]
    store.warehouse.close()


@pytest.mark.slow
def test_a_million_spans_are_shown_in_windows_within_bounded_memory(settings: Settings, spark: SparkRuntime) -> None:
    store = Store(settings)
    rows = many(1_000_000, lambda n: (n - 1) // 4 if n else None)
    for start in range(0, 1_000_000, 100_000):
        store.stage(rows.slice(start, 100_000), f"part-{start}")
    fold(store.spans)
    name = trace_id(1).hex()
    tracemalloc.start()
    view = store.show(name, 0, 100)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (view.span_count, view.total, view.roots, view.deepest) == (1_000_000, 1_000_000, 1, 10)
    assert most < 400 * 1024**2
    last = store.show(name, 999_950, 100)
    assert len(last.spans) == 50
    assert last.next_offset is None
    assert store.show(name, depth=2).total == 21
    [found] = store.search().traces
    assert found.span_count == 1_000_000
    store.warehouse.close()
