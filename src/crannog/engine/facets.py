"""Facets: what a column holds, at a glance. Nulls, distinct values, bounds, the most frequent values and a histogram.

The rows, or a sample of a large table, are copied once into a temporary table, which every column is then read from.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crannog.api.table_requests import ColumnFacets, FacetTable, HistogramBin, TableFacets, TopValue
from crannog.engine.duckdb.engine import quoted
from crannog.engine.open_table import OpenTable
from crannog.engine.row_filters import Where, column_node, where_of
from crannog.engine.row_pages import source
from crannog.engine.snapshot import Snapshot, duckdb_errors_translated
from crannog.engine.sql.running_queries import Deadlines
from crannog.errors import TimedOut
from crannog.formats.json_values import to_plain_json

if TYPE_CHECKING:
    import duckdb

    from crannog.engine.sql.hot_tables import HotCache

MAX_ROWS = 200_000
MAX_S = 20.0
_MAX_FILES = 8
_MAX_CHARACTERS = 200
_deadlines = Deadlines()
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def facets(table: OpenTable, request: FacetTable, copies: HotCache | None) -> TableFacets:
    """Return the facets of the newest snapshot. Raises TimedOut if it takes too long."""
    return table.newest(lambda snapshot: _facets(table, snapshot, request, copies))


def _facets(table: OpenTable, snapshot: Snapshot, request: FacetTable, copies: HotCache | None) -> TableFacets:
    started = time.perf_counter()
    schema = snapshot.base.read_schema
    names = list(request.columns) or schema.names
    for name in names:
        if name not in schema.names:
            column_node(name, schema)
    where = where_of(request.where, schema)
    with table.warehouse.duckdb.cursor() as cursor, duckdb_errors_translated(), _interrupted_after(cursor, table):
        rows, sampled = _copied(table, snapshot, cursor, where, [schema.field(name) for name in names], copies)
        columns = [_column(cursor, place, schema.field(name), rows, request) for place, name in enumerate(names)]
    elapsed_ms = round((time.perf_counter() - started) * 1000, 3)
    return TableFacets(str(table.name), rows, sampled, tuple(columns), elapsed_ms)


@contextmanager
def _interrupted_after(cursor: duckdb.DuckDBPyConnection, table: OpenTable) -> Iterator[None]:
    import duckdb

    number = _deadlines.add(MAX_S, cursor.interrupt)
    try:
        yield
    except duckdb.InterruptException:
        raise TimedOut(
            f"the facets of {table.name} took longer than {MAX_S:g} s; name fewer columns, or filter the rows"
        ) from None
    finally:
        _deadlines.remove(number)


def _copied(
    table: OpenTable,
    snapshot: Snapshot,
    cursor: duckdb.DuckDBPyConnection,
    where: Where,
    fields: Sequence[pa.Field],
    copies: HotCache | None,
) -> tuple[int, bool]:
    """Copy rows, at most `MAX_ROWS`, into the temporary table `facet_rows`; return how many, and whether there are more."""
    shown = ", ".join(f"{_copied_sql(field)} AS c{place}" for place, field in enumerate(fields)) or "1"
    # Reading all of a large table would take long: a few of its files, evenly spread over it, are read instead.
    files = list(snapshot.base.files)
    part = files[:: max(1, len(files) // _MAX_FILES)] if snapshot.base.rows > 5 * MAX_ROWS else None
    with source(table, snapshot, where, False, copies, files=part) as (relation, tables):
        for name, staged in tables.items():
            cursor.register(name, staged)
        query = f"SELECT {shown} FROM {relation} WHERE {where.sql} USING SAMPLE {MAX_ROWS + 1} ROWS (reservoir, 42)"
        cursor.execute(f"CREATE TEMP TABLE facet_rows AS {query}", where.parameters)
        for name in tables:
            cursor.unregister(name)
    [[rows]] = cursor.execute("SELECT count(*) FROM facet_rows").fetchall()
    return int(rows), rows > MAX_ROWS or (part is not None and len(part) < len(files))


def _copied_sql(field: pa.Field) -> str:
    name = quoted(field.name)
    if pa.types.is_nested(field.type):
        return f"CASE WHEN {name} IS NULL THEN NULL ELSE true END"
    if pa.types.is_string(field.type):
        return f"left({name}, {_MAX_CHARACTERS})"
    return f"{name}[:{_MAX_CHARACTERS}]" if pa.types.is_binary(field.type) else name


def _column(
    cursor: duckdb.DuckDBPyConnection, place: int, field: pa.Field, rows: int, request: FacetTable
) -> ColumnFacets:
    column, types, kind = f"c{place}", pa.types, field.type
    [[present]] = cursor.execute(f"SELECT count({column}) FROM facet_rows").fetchall()
    share = round((rows - present) / rows, 6) if rows else 0.0
    if types.is_nested(kind) or not present:
        return ColumnFacets(field.name, str(kind), rows - present, share)
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    finite = f"isfinite({column})" if types.is_floating(kind) else f"{column} IS NOT NULL"
    # A sum of decimals of 38 digits does not fit any integer of DuckDB.
    mean = f"avg({column}::DOUBLE) FILTER ({finite})" if is_number else "NULL"
    [[distinct, low, high, average]] = cursor.execute(
        f"SELECT approx_count_distinct({column}), min({column}), max({column}), {mean} FROM facet_rows"
    ).fetchall()
    top = cursor.execute(
        f"SELECT {column}, count(*) AS n FROM facet_rows WHERE {column} IS NOT NULL GROUP BY 1 ORDER BY n DESC, 1 LIMIT ?",
        [request.top],
    ).fetchall()
    return ColumnFacets(
        field.name,
        str(kind),
        rows - present,
        share,
        min(int(distinct), present),
        to_plain_json(low),
        to_plain_json(high),
        None if average is None else float(average),
        tuple(TopValue(to_plain_json(value), int(count)) for value, count in top),
        _histogram(cursor, column, kind, finite, request.bins) if is_number or types.is_temporal(kind) else (),
    )


def _histogram(
    cursor: duckdb.DuckDBPyConnection, column: str, kind: pa.DataType, finite: str, bins: int
) -> tuple[HistogramBin, ...]:
    """Count the values in bins of equal width; whole numbers and days of a small range have a bin each."""
    types = pa.types
    is_time = types.is_temporal(kind)
    number = f"epoch_us({column}::TIMESTAMPTZ)" if is_time else f"{column}::DOUBLE"
    step = 86_400_000_000 if types.is_date(kind) else 1 if types.is_integer(kind) else 0
    [[low, high]] = cursor.execute(f"SELECT min({number}), max({number}) FROM facet_rows WHERE {finite}").fetchall()
    if low is None:
        return ()
    low, high = float(low), float(high)
    steps = (high - low) / step + 1 if step else 0
    count = int(min(bins, steps)) if step else (1 if low == high else bins)
    width = step if step and steps <= bins else (high - low) / count or 1.0
    found = cursor.execute(
        f"SELECT least(greatest(floor(({number} - ?) / ?), 0), ?)::INT AS bin, count(*) FROM facet_rows"
        f" WHERE {finite} GROUP BY bin",
        [low, width, count - 1],
    ).fetchall()
    counts = dict(found)

    def edge(value: float) -> Any:
        return to_plain_json(_EPOCH + dt.timedelta(microseconds=round(value))) if is_time else value

    ends = [low + width * place for place in range(count)] + [low + width * count if step and steps <= bins else high]
    return tuple(
        HistogramBin(edge(ends[place]), _edge_at_end(edge, ends[place + 1]), int(counts.get(place, 0)))
        for place in range(count)
    )


def _edge_at_end(edge: Any, value: float) -> Any:
    try:
        return edge(value)
    except OverflowError:  # the day after the last one of the calendar
        return None
