"""Rows of the span table by trace id, without time bounds: from the staged tail in memory, and from few files of the base.

The first half of the id, a number, prunes files by the log's statistics; the bloom filters of the id spare row groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from crannog.engine.local import quoted
from crannog.engine.open_table import OpenTable
from crannog.engine.query.fast.terms import Condition
from crannog.engine.query.pruning import pruned
from crannog.engine.snapshot import Snapshot, read
from crannog.traces.ids import first_half

ARRIVED = "_created_at"
_NEWEST_FIRST = [(ARRIVED, "descending"), ("end_ns", "descending"), ("start_ns", "descending"), ("_batch_id", "descending")]


def rows_of_trace(table: OpenTable, snapshot: Snapshot, trace_id: bytes, *, columns: Sequence[str], limit: int) -> pa.Table:
    """Return up to `limit` rows of a trace, as they were kept: duplicates too."""
    names = [*dict.fromkeys([*columns, ARRIVED, "_batch_id", "start_ns", "end_ns", "span_id"])]
    schema = pa.schema([snapshot.base.readable.field(name) for name in names])
    parts = [_staged(snapshot, trace_id, names).cast(schema)]
    files = pruned(snapshot.base, [Condition(0, "trace_hi", "=", (first_half(trace_id),))]).files
    if files and parts[0].num_rows < limit:
        engine = table.warehouse.local
        wanted = ", ".join(map(quoted, names))
        scan = engine.scan(snapshot.local_paths(list(files)), snapshot.base.schema)
        with engine.cursor() as cursor:
            found = read(
                cursor,
                f"SELECT {wanted} FROM {scan} WHERE trace_id = from_hex('{trace_id.hex()}') LIMIT {int(limit)}",
            )
        parts.append(found.cast(schema))
    return pa.concat_tables(parts).slice(0, limit)


def _staged(snapshot: Snapshot, trace_id: bytes, names: list[str]) -> pa.Table:
    rows = snapshot.tail.rows
    near = rows.select(names + [name for name in ("trace_hi", "trace_id") if name not in names]).filter(
        pc.equal(rows["trace_hi"], first_half(trace_id))
    )
    return near.filter(pc.equal(near["trace_id"], pa.scalar(trace_id, pa.binary()))).select(names)


def newest_of_each(rows: pa.Table) -> pa.Table:
    """Keep one row per span id, the newest: the last to arrive, of those that came together the one that ends last."""
    ordered = rows.take(pc.sort_indices(rows, sort_keys=_NEWEST_FIRST))
    places = pa.table({"span_id": ordered["span_id"], "place": pa.array(range(ordered.num_rows), pa.int64())})
    first = places.group_by("span_id", use_threads=False).aggregate([("place", "min")])["place_min"]
    return ordered if len(first) == ordered.num_rows else ordered.take(first.combine_chunks().sort())
