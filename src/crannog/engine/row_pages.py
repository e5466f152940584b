"""Pages of a table in a stable order: by its key, or by a column with the key behind it.

A cursor has the values of the last row in that order, so a page costs the same wherever it is, and changes between two pages
neither repeat nor skip rows. A table without a key is read in the order of writing; a hash of the row separates the rows of one
batch, and the cursor counts how many equal ones came before.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crannog.api.table_requests import PageRows, RowPage
from crannog.engine.duckdb.engine import quoted
from crannog.engine.open_table import OpenTable
from crannog.engine.row_filters import Where, column_node, exact, where_of
from crannog.engine.rows.values import Node, node_of
from crannog.engine.snapshot import ResultLimit, Snapshot, duckdb_errors_translated
from crannog.errors import CallerError
from crannog.formats.json_values import from_lossless_json, to_lossless_json, to_plain_json

if TYPE_CHECKING:
    from crannog.engine.sql.hot_tables import HotCache

_MAX_CURSOR = 20_000
_ROW_HASH = "crannog_row_hash"
_INVALID = "the cursor is not valid: use next_cursor or previous_cursor of a page, or start without a cursor"


@dataclass(frozen=True, slots=True)
class SortColumn:
    """One column of an order; nulls come last."""

    node: Node
    sql: str
    descending: bool = False

    def order(self, *, backward: bool) -> str:
        direction = "DESC" if self.descending != backward else "ASC"
        return f"{self.sql} {direction} NULLS {'FIRST' if backward else 'LAST'}"

    def beyond(self, value: Any, where: Where, *, backward: bool) -> str | None:
        """Return the condition that a row comes behind a value in reading direction; None if no row can."""
        if value is None:
            return f"{self.sql} IS NOT NULL" if backward else None
        compared = f"{self.sql} {'<' if self.descending != backward else '>'} {where.parameter(value)}"
        return compared if backward else f"({compared} OR {self.sql} IS NULL)"

    def equal(self, value: Any, where: Where) -> str:
        return f"{self.sql} IS NULL" if value is None else f"{self.sql} = {where.parameter(value)}"


@dataclass(frozen=True, slots=True)
class Position:
    """A place between two rows: the values of a row in an order, and how many rows with the same values come before it.

    In a cursor to continue after, 0 means all of them; in one to end before, none.
    """

    values: tuple[Any, ...]
    equal_before: int = 0


def page(table: OpenTable, request: PageRows, copies: HotCache | None, most: ResultLimit | None = None) -> RowPage:
    """Return a page of the newest snapshot. Raises CallerError if an order, a filter or a cursor does not fit the table.

    TooLarge says that the page has more rows or bytes than `most`.
    """
    return table.newest(lambda snapshot: _page(table, snapshot, request, copies, most))


def _page(
    table: OpenTable, snapshot: Snapshot, request: PageRows, copies: HotCache | None, most: ResultLimit | None
) -> RowPage:
    schema = snapshot.base.read_schema
    columns = list(request.columns) or schema.names
    for name in columns:
        if name not in schema.names:
            column_node(name, schema)
    order = _order(request.order, snapshot, schema)
    backward = request.before is not None
    cursor = request.before if backward else request.after
    start = None if cursor is None else _decoded(cursor, request.order, order)
    shown = ", ".join(map(quoted, columns))
    places = ", ".join(f"{part.sql} AS {quoted(f'crannog_order_{place}')}" for place, part in enumerate(order))
    limit = "" if request.limit is None else f" LIMIT {request.limit + 1}"
    where = where_of(request.where, schema)
    with source(table, snapshot, where, request.raw, copies) as (relation, tables):
        if not snapshot.key:
            relation = f"(SELECT *, hash(t) AS {_ROW_HASH} FROM {relation} t)"

        def run(what: str, parts: Where, sorting: str = "") -> pa.Table:
            query = f"SELECT {what} FROM {relation} WHERE {parts.sql}{sorting}"
            with table.warehouse.duckdb.cursor(tables) as engine, duckdb_errors_translated():
                rows = engine.sql(query, params=parts.parameters)
                return rows.to_arrow_table() if most is None else most.taken(rows)

        def equal_rows(values: Sequence[Any]) -> int:
            alike = where_of(request.where, schema)
            alike.parts += [part.equal(value, alike) for part, value in zip(order, values, strict=True)]
            return int(run("count(*) AS n", alike)["n"][0].as_py())

        skipped = start.equal_before if start is not None else 0
        if start is not None:
            if backward and skipped:
                skipped = max(0, equal_rows(start.values) - skipped)
            where.parts.append(_behind(order, start, where, backward=backward))
        sorting = ", ".join(part.order(backward=backward) for part in order)
        found = run(f"{shown}, {places}", where, f" ORDER BY {sorting}{limit} OFFSET {skipped}")
        return _cut(found, request, start, pa.schema([schema.field(name) for name in columns]), equal_rows)


@contextmanager
def source(
    table: OpenTable,
    snapshot: Snapshot,
    where: Where,
    raw: bool,
    copies: HotCache | None,
    *,
    files: Sequence[str] | None = None,
) -> Iterator[tuple[str, Mapping[str, pa.Table]]]:
    """Yield the rows of a snapshot as SQL: its copy in memory, or the files that the filters leave and what is staged.

    With `files`, only these of the base are read.
    """
    from crannog.engine.sql.file_pruning import pruned  # loads a parser of SQL

    if copies is not None and not raw:
        with copies.borrowed(table, snapshot) as copy:
            if copy is not None:
                yield f"(SELECT * FROM {copy})", {}
                return
    left = pruned(snapshot.base, where.conditions).files
    if files is not None:
        left = tuple(path for path in left if path in set(files)) or left[:1]
    sql, tables = table.relation(snapshot, "page", raw=raw, files=left)
    yield f"({sql})", tables


def _order(given: str, snapshot: Snapshot, schema: pa.Schema) -> list[SortColumn]:
    """Return the columns to sort by: the given one, and behind it what separates equal values."""
    order: list[SortColumn] = []
    if given:
        node = column_node(given.removeprefix("-") if given not in schema.names else given, schema)
        order.append(SortColumn(node, quoted(node.name), given not in schema.names))
    # Rows of a table without a key are the same wherever they move: by the time and the batch that wrote them.
    further = snapshot.key or ("_created_at", "_batch_id")
    descending = bool(order) and order[0].descending
    order += [
        SortColumn(column_node(name, schema), quoted(name), descending)
        for name in further
        if not order or name != order[0].node.name
    ]
    if not snapshot.key:
        order.append(
            SortColumn(node_of(_ROW_HASH, pa.field(_ROW_HASH, pa.string())), f"{_ROW_HASH}::VARCHAR", descending)
        )
    return order


def _behind(order: Sequence[SortColumn], start: Position, where: Where, *, backward: bool) -> str:
    """Return the condition of the rows behind a position, and of those at it if only some of them are."""
    options: list[str] = []
    equal: list[str] = []
    for part, value in zip(order, start.values, strict=True):
        beyond = part.beyond(value, where, backward=backward)
        if beyond is not None:
            options.append(" AND ".join([*equal, beyond]))
        if start.equal_before or part is not order[-1]:
            equal.append(part.equal(value, where))
    if start.equal_before:
        options.append(" AND ".join(equal))
    return " OR ".join(f"({option})" for option in options) or "false"


def _cut(
    found: pa.Table,
    request: PageRows,
    start: Position | None,
    schema: pa.Schema,
    equal_rows: Callable[[Sequence[Any]], int],
) -> RowPage:
    """Return the rows of a page in reading order, with the cursors at its ends."""
    places = found.select(range(len(schema), found.num_columns))
    count = found.num_rows if request.limit is None else min(found.num_rows, request.limit)
    has_more = found.num_rows > count
    rows = found.select(range(len(schema))).slice(0, count).cast(schema)
    if not count:
        return RowPage(rows)
    first, last = _values(places, 0), _values(places, count - 1)
    before = start.equal_before if start is not None else 0
    at_start = start.values if start is not None else None
    alike = next((n for n in range(1, count) if _values(places, count - 1 - n) != last), count)
    if request.before is None:
        # A key is not repeated, and then all rows with its values come before the cursor.
        repeated = has_more and _values(places, count) == last
        ahead = Position(last, alike + (before if alike == count and last == at_start else 0) if repeated else 0)
        behind = Position(first, before if first == at_start else 0)
        next_cursor = _encoded(ahead, request.order) if has_more else None
        return RowPage(rows, next_cursor, _encoded(behind, request.order) if start is not None else None)
    rows = rows.take(pa.array(range(count - 1, -1, -1), pa.int64()))
    ahead = Position(first, before if first == at_start else 0)
    if not has_more:
        return RowPage(rows, _encoded(ahead, request.order))
    repeated = _values(places, count) == last
    total = (before if last == at_start else equal_rows(last)) if repeated else alike
    return RowPage(rows, _encoded(ahead, request.order), _encoded(Position(last, total - alike), request.order))


def _values(places: pa.Table, row: int) -> tuple[Any, ...]:
    return tuple(column[row].as_py() for column in places.columns)


def _encoded(position: Position, order: str) -> str:
    content = json.dumps(
        [order, [_plain(value) for value in position.values], position.equal_before], separators=(",", ":")
    )
    return base64.urlsafe_b64encode(content.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def _plain(value: Any) -> Any:
    return to_lossless_json(value) if isinstance(value, float) else to_plain_json(value)


def _decoded(cursor: str, order_text: str, order: Sequence[SortColumn]) -> Position:
    if not isinstance(cursor, str) or len(cursor) > _MAX_CURSOR:
        raise CallerError(_INVALID)
    try:
        data = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        of, values, skipped = json.loads(data)
        if type(skipped) is not int or not 0 <= skipped < 2**62 or len(values) != len(order):
            raise ValueError
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise CallerError(_INVALID) from None
    if of != order_text:
        raise CallerError("the cursor belongs to another order: repeat the order, or start without a cursor")
    try:
        exact_values = [
            None if value is None else exact(from_lossless_json(value), part.node)
            for value, part in zip(values, order, strict=True)
        ]
    except (CallerError, LookupError, ValueError, TypeError, RecursionError):
        raise CallerError(_INVALID) from None
    return Position(tuple(exact_values), skipped)
