"""Bringing a read model to the folded part of its table: only what it lacks is read, in bounded pieces."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from crannog.builds.read_model.apply import add_events
from crannog.builds.read_model.connection import Connection
from crannog.builds.read_model.removal import remove_events
from crannog.builds.read_model.tables import last_index, stamp
from crannog.builds.stores.event_rows import KEY, SCHEMA, events_of
from crannog.engine.duckdb.engine import quoted
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read

_PIECE = 20_000


def bring_to_base(model: Connection, table: OpenTable, snapshot: Snapshot, *, largest_given: int) -> None:
    """Make the model what the base of `snapshot` is, at its folded sequence; part of a transaction.

    A model only lacks events at its end, and may hold events that were removed since: both are told by the indexes.
    """
    known = last_index(model)
    [(count,)] = model.query("SELECT count(*) FROM events WHERE idx <= ?", (known,))
    paths = snapshot.local_paths(list(snapshot.base.files))
    if count:
        present = _indexes(table, paths, known)
        if len(present) != count:
            stored = [index for (index,) in model.query("SELECT idx FROM events ORDER BY idx")]
            remove_events(model, [index for index in stored if index not in present])
    for rows in _after(table, paths, known):
        add_events(model, list(events_of(rows)))
    stamp(model, "last_index", str(max(last_index(model), largest_given)))
    stamp(model, "sequence", str(snapshot.base.folded))


def _indexes(table: OpenTable, paths: list[str], until: int) -> set[int]:
    if not paths:
        return set()
    engine = table.warehouse.local
    columns = pa.schema([SCHEMA.field(KEY)])
    with engine.cursor() as cursor:
        found = read(
            cursor, f"SELECT {quoted(KEY)} FROM {engine.scan(paths, columns)} WHERE {quoted(KEY)} <= {int(until)}"
        )
    return set(found.column(0).to_pylist())


def _after(table: OpenTable, paths: list[str], known: int) -> Iterator[pa.Table]:
    """Yield the rows after an index, in order, some at a time; the files' statistics skip the others."""
    if not paths:
        return
    engine = table.warehouse.local
    names = ", ".join(map(quoted, SCHEMA.names))
    while True:
        query = (
            f"SELECT {names} FROM {engine.scan(paths, SCHEMA)} WHERE {quoted(KEY)} > {int(known)}"
            f" ORDER BY {quoted(KEY)} LIMIT {_PIECE}"
        )
        with engine.cursor() as cursor:
            rows = read(cursor, query)
        if not rows.num_rows:
            return
        yield rows
        known = rows.column(KEY)[-1].as_py()
