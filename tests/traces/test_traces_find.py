"""The place of a span in its trace, windows around it, and finding spans in a trace with their ancestors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crannog.engine.maintenance.fold import fold
from crannog.errors import CallerError, NotFound
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime
from crannog.traces.tree.tree_find import matches_table
from otlp_samples import START, span, span_id, trace_id
from test_traces_show import SOME, Store, shapes, tree_and_spans

NAME = trace_id(1).hex()


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    store = Store(settings)
    yield store
    store.warehouse.close()


def send_bushy(store: Store) -> None:
    """Span n has the children 3n - 1, 3n and 3n + 1: 40 spans on four levels."""
    store.send(
        *(
            span(1, n, (n + 1) // 3 if n > 1 else None, start=START + n, took=10**6 - 100 * n, attributes={"n": n})
            for n in range(1, 41)
        ),
        span(2, 1, attributes={"n": 14}),  # of another trace
    )


def ids(view: Any) -> list[str]:
    return [one.span.span_id for one in view.spans]


def test_a_place_is_that_of_the_window(store: Store) -> None:
    send_bushy(store)
    view = store.show(NAME)
    rows = {one.span.span_id: one.order for one in view.spans}
    for one in view.spans:
        place = store.place(NAME, one.span.span_id)
        assert (place.row, place.depth, place.path) == (one.order, one.depth, one.path)
        assert place.ancestors == tuple(rows[above] for above in one.path[:-1])
        assert (place.children, place.descendants, place.span_count) == (one.children, one.descendants, 40)
        assert store.show(NAME, place.row, 1).spans == (one,)


def test_a_window_around_a_span_has_it(store: Store) -> None:
    send_bushy(store)
    order = ids(store.show(NAME))
    for row, wanted in enumerate(order):
        view = store.show(NAME, limit=10, around=wanted)
        assert view.offset == max(0, min(row - 4, 30))
        assert ids(view) == order[view.offset : view.offset + 10]
    deep = span_id(40).hex()
    folded = store.show(NAME, limit=3, depth=1, around=deep)  # its last ancestor that is shown
    assert span_id(4).hex() in ids(folded)
    assert deep in ids(store.show(NAME, limit=3, under=span_id(4).hex(), around=deep))
    with pytest.raises(NotFound, match="not in the subtree"):
        store.show(NAME, under=span_id(2).hex(), around=deep)
    with pytest.raises(CallerError, match="not both"):
        store.show(NAME, 5, around=deep)


def test_matches_come_with_their_ancestors(store: Store) -> None:
    send_bushy(store)
    order = ids(store.show(NAME))
    found = store.find(NAME, where="n = 14 or n = 2")
    by_row = {row: int(order[row], 16) for row in (*found.rows, *found.ancestors)}
    assert [by_row[row] for row in found.rows] == [2, 14]
    assert [by_row[row] for row in found.ancestors] == [1, 5]
    assert (found.matches, found.spans, found.is_complete) == (2, 40, True)
    assert found.table["row"].to_pylist() == sorted(by_row)
    assert found.etag == store.skeleton(NAME).etag
    named = store.find(NAME, "op 40")
    assert [int(order[row], 16) for row in named.rows] == [40]
    nothing = store.find(NAME, where='service = "nobody"')
    assert (nothing.matches, nothing.rows, nothing.ancestors, nothing.is_complete) == (0, [], [], True)
    some = store.find(NAME, where="n > 0", limit=3)
    assert (some.rows, some.ancestors, some.matches, some.is_complete) == ([0, 1, 2], [], 40, False)


@SOME
@given(shapes, st.sets(st.integers(0, 11)))
def test_ancestors_are_those_on_the_paths(shape: list[tuple[int | None, int, int]], chosen: set[int]) -> None:
    tree, _ = tree_and_spans(shape)
    matches = sorted(index for index in chosen if index < len(tree))
    table = matches_table(tree, np.array(matches, np.int64), 100)
    above = {int(tree.tree_position[index]) for match in matches for index in tree.path(match, 100)}
    rows = {int(tree.tree_position[match]) for match in matches}
    assert table["row"].to_pylist() == sorted(above)
    assert table["match"].to_pylist() == [int(row in rows) for row in sorted(above)]


def test_wrong_arguments_are_refused(store: Store) -> None:
    with pytest.raises(NotFound):
        store.find(NAME, "x")
    with pytest.raises(NotFound):
        store.place(NAME, span_id(1).hex())
    send_bushy(store)
    wrong: Any
    for wrong in (
        {},
        {"text": 5},
        {"where": "n ="},
        {"text": "x", "limit": 0},
        {"text": "x", "limit": True},
        {"text": "\ud800"},
    ):
        with pytest.raises(CallerError):
            store.find(NAME, **wrong)
    assert store.find(NAME, "'); DROP TABLE spans; --").matches == 0
    for wrong in ("", "zz", "01", None, 7, span_id(1).hex() * 2):
        with pytest.raises(CallerError):
            store.place(NAME, wrong)
    with pytest.raises(NotFound, match="has no span"):
        store.place(NAME, span_id(99).hex())


def test_matches_in_files_and_in_what_is_staged_are_of_the_newest_copies(
    settings: Settings, spark: SparkRuntime
) -> None:
    store = Store(settings)
    send_bushy(store)
    fold(store.spans)
    store.send(
        span(1, 14, 5, start=START + 14, took=10, attributes={"n": "changed"}),
        span(1, 41, 14, start=START + 41, took=1, attributes={"n": 14}),
        span(2, 2, 1, attributes={"n": 14}),
    )
    order = ids(store.show(NAME))
    found = store.find(NAME, where="n = 14")
    assert [int(order[row], 16) for row in found.rows] == [41]
    assert [int(order[row], 16) for row in found.ancestors] == [1, 2, 5, 14]
    assert [int(order[row], 16) for row in store.find(NAME, where='n = "changed" or n = 7').rows] == [14, 7]
    store.warehouse.close()
