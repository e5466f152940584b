"""Parquet made into rows of a table: its types are kept, or cast where nothing is lost. A file is read in batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crannog.api.reports import BadRow
from crannog.engine.rows.arrow import from_table
from crannog.engine.rows.values import Call, Node, plan_of
from crannog.errors import BadRows, CallerError, SchemaMismatch
from crannog.formats.input_files import Source
from crannog.formats.json_types import flat_table
from crannog.tables.load_parts import Block, Fault, Reader, Seen, Survey, Target, fit_columns, without

BATCH_ROWS = 50_000
_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}
_CALL = Call("", "load")


@contextmanager
def open_parquet(source: Source) -> Iterator[Any]:
    """Open a Parquet file. Raises CallerError if it is invalid, also while it is read."""
    try:
        with pq.ParquetFile(source.path, page_checksum_verification=True) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError, ValueError) as error:
        raise CallerError(
            f"{source.name} is not a Parquet file that can be read: {' '.join(str(error).split())[:200]}"
        ) from None


def blocks(file: Any) -> Iterator[pa.Table]:
    """Yield the rows in batches, with at most one row group in memory."""
    for batch in file.iter_batches(batch_size=BATCH_ROWS):
        yield pa.Table.from_batches([batch])


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which a table stores a column of this type; the type itself if it is supported."""
    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return stored_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return stored_type(kind.storage_type)
    if kind in _SIGNED:
        return _SIGNED[kind]
    if types.is_float16(kind):
        return pa.float32()
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if types.is_date64(kind):
        return pa.date32()
    if types.is_time(kind) or types.is_null(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_duration(kind):
        return pa.int64()
    if types.is_large_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_struct(kind) and kind.num_fields:
        return pa.struct([pa.field(child.name, stored_type(child.type)) for child in kind])
    if types.is_map(kind):
        return pa.map_(stored_type(kind.key_type), stored_type(kind.item_type))
    if hasattr(kind, "value_field"):
        return pa.list_(pa.field("element", stored_type(kind.value_type)))
    return kind


def castable_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in a type that the engine can cast: times of day as text, durations as numbers."""
    if pa.types.is_time(column.type):
        return pc.cast(column, pa.string())
    if pa.types.is_duration(column.type):
        return pc.cast(column, pa.int64())
    return column


class ParquetReader(Reader):
    """One Parquet file; a bad row is named by its number."""

    def __init__(self, source: Source, *, flatten: bool = False) -> None:
        super().__init__(source)
        self._flatten = flatten
        with open_parquet(source) as file:
            # Without rows: only how the columns are called and typed.
            shape = self._flat(file.schema_arrow.empty_table())
        self._name_columns(shape.column_names)
        if len(set(shape.column_names)) < len(shape.column_names):
            raise CallerError(f"{source.name} has two columns of one name; rename one")
        self._types = {self._names[field.name]: stored_type(field.type) for field in shape.schema}

    def survey(self, target: Target, seen: Seen) -> Survey:
        survey = Survey(renamed=self._renamed)
        survey.digest = self._digest()
        nodes, first = target.nodes(), 1
        with open_parquet(self.source) as file:
            for rows, share in self._blocks(file):
                kept, faults = self._fit(rows, target, nodes)
                survey.add_good(kept)
                survey.rows += kept.num_rows
                survey.add_bad(self._bad(faults, first))
                first += rows.num_rows
                seen(share, rows.num_rows)
        known = set(target.known.names)
        survey.columns = {
            name: target.known.field(name).type if name in known else kind for name, kind in self._types.items()
        }
        # What a new table's column is cast to is known only now.
        survey.sure = target.complete or known >= set(self._types)
        return survey

    def blocks(self, target: Target, seen: Seen) -> Iterator[Block]:
        nodes, first = target.nodes(), 1
        with open_parquet(self.source) as file:
            for rows, share in self._blocks(file):
                kept, faults = self._fit(rows, target, nodes)
                bad: list[tuple[BadRow, object]] = []
                for fault, row in zip(faults, self._bad(faults, first), strict=True):
                    bad.append((row, rows.slice(fault.place, 1).to_pylist()[0]))
                first += rows.num_rows
                seen(share, rows.num_rows)
                yield Block(target.with_all_columns(kept), bad)

    def _digest(self) -> str:
        found = hashlib.sha256()
        with self.source.path.open("rb") as file:
            while data := file.read(1 << 20):
                found.update(data)
        return found.hexdigest()

    def _blocks(self, file: pq.ParquetFile) -> Iterator[tuple[pa.Table, int]]:
        total = max(1, file.metadata.num_rows)
        done = 0
        for rows in blocks(file):
            done += rows.num_rows
            rows = self._flat(rows)
            yield (
                rows.rename_columns([self._names[name] for name in rows.column_names]),
                self.source.size * done // total,
            )

    def _flat(self, rows: pa.Table) -> pa.Table:
        return flat_table(rows) if self._flatten else rows

    def _fit(self, rows: pa.Table, target: Target, nodes: dict[str, Node]) -> tuple[pa.Table, list[Fault]]:
        """Return the known columns in their types, and the rows that cannot be kept."""
        columns, faults = fit_columns(rows, target, nodes, self._column)
        return without(columns, faults) if columns.num_columns else columns, faults

    def _column(self, column: pa.ChunkedArray, node: Node, target: Target, faults: list[Fault]) -> pa.ChunkedArray:
        column = castable_column(column)
        schema = pa.schema([pa.field(node.name, node.type)])
        try:
            [fitted] = from_table(pa.table({node.name: column}), plan_of(schema), _CALL, naive_is_utc=True).columns
            return fitted
        except BadRows:
            pass
        except SchemaMismatch:
            if not pa.types.is_string(node.type):
                faults += [
                    Fault(place, node.name, f"a {column.type}", f"the column is {node.type}")
                    for place in pc.indices_nonzero(column.is_valid()).to_pylist()
                ]
                return pa.chunked_array([pa.nulls(len(column), node.type)])
        return self._one_by_one(column, node, target, faults)

    def _one_by_one(self, column: pa.ChunkedArray, node: Node, target: Target, faults: list[Fault]) -> pa.ChunkedArray:
        found = []
        for place in range(len(column)):
            value = reason = None
            try:
                given = column[place].as_py()
                if pa.types.is_string(node.type) and given is not None and not isinstance(given, str):
                    given = str(given)
                value, reason = target.exact(given, node)
            except (ValueError, OverflowError, UnicodeDecodeError, pa.ArrowException):
                given, reason = "a value", "it cannot be read"
            if reason:
                faults.append(Fault(place, node.name, given, reason))
            found.append(value)
        return pa.chunked_array([pa.array(found, node.type)])

    def _bad(self, faults: list[Fault], first: int) -> list[BadRow]:
        return [self._bad_row(first + fault.place, fault.column, fault.value, fault.reason) for fault in faults]
