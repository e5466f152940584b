"""A window of a trace's tree: the spans of the window whole, and what holds for the trace as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from crannog.api.traces import ShownSpan, Span, TraceView
from crannog.engine.duckdb.engine import quoted
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.engine.sql.duckdb_compiler.terms import Condition
from crannog.errors import CallerError
from crannog.traces.ids import first_half
from crannog.traces.search.snapshot_reader import reading
from crannog.traces.search.summaries import newest_copies
from crannog.traces.trace import COLUMNS, span_of
from crannog.traces.tree.critical_path import critical_times
from crannog.traces.tree.tree import Tree

MOST_PATH = 128
_MOST_CRITICAL = 1_000


class Absent(Exception):
    """There is no such trace or span; apart from NotFound, which would say that the table is gone."""


class Shown:
    """A trace's tree with all that is said of it; worked out once, asked for many windows."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @cached_property
    def critical(self) -> dict[int, int]:
        return critical_times(self.tree)

    @cached_property
    def skewed(self) -> int:
        tree = self.tree
        return sum(tree.starts_early(place) or tree.ends_late(place) for place in range(len(tree.bones)))

    @cached_property
    def deepest(self) -> int:
        return max(self.tree.depths)

    def places(self, depth: int | None, under: str | None) -> Sequence[int]:
        """Return the spans of a view, in tree order: no deeper than `depth`, and in the subtree of `under`."""
        tree = self.tree
        at, end, base = 0, len(tree.order), 0
        if under is not None:
            top = self._place(under)
            at, end, base = tree.rank[top], tree.rank[top] + tree.sizes[top], tree.depths[top]
        if depth is None or depth >= self.deepest - base:
            return tree.order[at:end]
        found = []
        while at < end:
            place = tree.order[at]
            found.append(place)
            at += tree.sizes[place] if tree.depths[place] - base >= depth else 1
        return found

    def _place(self, span_id: str) -> int:
        try:
            wanted = bytes.fromhex(span_id)
        except (ValueError, TypeError):
            raise CallerError(f"a span id has 16 hexadecimal digits, got {str(span_id)[:80]!r}") from None
        found = self.tree.bones.place_of(wanted)
        if found is None:
            raise Absent(f"trace {self.tree.bones.trace_id.hex()} has no span {span_id}")
        return found


def view_of(
    table: OpenTable, snapshot: Snapshot, shown: Shown, *, offset: int, limit: int, depth: int | None, under: str | None
) -> TraceView:
    """Return a window of a trace."""
    tree, bones = shown.tree, shown.tree.bones
    places = shown.places(depth, under)
    window = places[offset : offset + limit]
    spans = _spans(table, snapshot, tree, window)
    end = offset + len(window)
    on_path = sorted(shown.critical, key=lambda place: tree.rank[place])[:_MOST_CRITICAL]
    return TraceView(
        trace_id=bones.trace_id.hex(),
        spans=tuple(_shown(shown, place, spans[bones.ids[place].as_py()]) for place in window),
        offset=offset,
        total=len(places),
        next_offset=end if end < len(places) else None,
        span_count=len(bones),
        error_count=bones.error_count,
        start_ns=tree.start_ns,
        end_ns=tree.end_ns,
        services=tuple(sorted(bones.services.dictionary.to_pylist())),
        deepest=shown.deepest,
        roots=tree.roots,
        orphans=tree.orphans,
        cycles=tree.cycles,
        skewed=shown.skewed,
        critical_path=tuple(map(bones.span_id, on_path)),
        truncated=bones.truncated,
    )


def _shown(shown: Shown, place: int, span: Span) -> ShownSpan:
    tree = shown.tree
    return ShownSpan(
        span=replace(span, depth=tree.depths[place], orphan=tree.is_orphan(place), in_cycle=tree.is_in_cycle(place)),
        order=tree.rank[place],
        path=tuple(map(tree.bones.span_id, tree.path(place, MOST_PATH))),
        self_ns=tree.own_ns[place],
        critical_ns=shown.critical.get(place, 0),
        children=sum(1 for _ in tree.children(place)),
        descendants=tree.sizes[place] - 1,
        starts_early=tree.starts_early(place),
        ends_late=tree.ends_late(place),
    )


def _spans(table: OpenTable, snapshot: Snapshot, tree: Tree, window: Sequence[int]) -> dict[bytes, Span]:
    """Read the spans of a window whole."""
    bones = tree.bones
    if not window:
        return {}
    wanted = bones.ids.take(pa.array(window, pa.int64()))
    names = ", ".join(map(quoted, dict.fromkeys([*COLUMNS, "_created_at", "_batch_id"])))
    half = first_half(bones.trace_id)
    with reading(table, snapshot) as open_reading:
        rows = open_reading.rows([Condition(0, "trace_hi", "=", (half,))])
        of_trace = (
            f"SELECT {names} FROM {rows} WHERE trace_hi = {half} AND trace_id = from_hex('{bones.trace_id.hex()}')"
        )
        found = open_reading.ask(
            newest_copies(f"SELECT * FROM ({of_trace}) SEMI JOIN wanted USING (span_id)"),
            {"wanted": pa.table([wanted], names=["span_id"])},
        )
    return {row["span_id"]: span_of(row) for row in found.to_pylist()}
