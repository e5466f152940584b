"""A staged file: several callers' changes of one table in one small Parquet file.

Rows have the table's columns and `_seq` (the file's sequence), `_ord` (their order inside it) and `_op`.
The footer has the sequence, batch id, kind and row count of each change, and the actor and reason of a delete.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from crannog.delta.schemas import all_nullable
from crannog.errors import Corrupted
from crannog.protocol.small_parquet import MAX_ROWS, RowBuffer, column, concat_buffers, merged_buffers

UPSERT, DELETE = 0, 1
CREATED_AT, BATCH_ID, DATE = "_created_at", "_batch_id", "_date"
_SYSTEM_COLUMN_NAMES = frozenset((CREATED_AT, BATCH_ID, DATE))
_US_PER_DAY = 86_400_000_000

STAGE_COLUMNS = (
    pa.field("_seq", pa.int64()),
    pa.field("_ord", pa.int32()),
    pa.field("_op", pa.int8()),
)
_SYSTEM_COLUMNS = {
    field.name: column(field.name, field.type)
    for field in (
        pa.field(CREATED_AT, pa.timestamp("us", "UTC")), pa.field(BATCH_ID, pa.string()), pa.field(DATE, pa.date32()), *STAGE_COLUMNS
    )
}  # fmt: skip
_FOOTER = b"crannog"
_JSON = json.JSONEncoder(separators=(",", ":"))
_FORMAT = 1
BYTES_PER_CHANGE = 256
"""The memory that a change takes in addition to its rows."""
# Below this a codec costs more time than the bytes it saves; above it LZ4 costs less than writing them.
_WORTH_COMPRESSING_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Change:
    """One call's change before it is staged; `rows` has only the columns that the caller gave."""

    batch_id: str
    kind: str
    rows: pa.Table | RowBuffer
    bytes: int
    actor: str = ""
    reason: str = ""
    at_us: int = 0
    writer: str = ""
    """Tells this call's change from another one with its batch id; empty if its group commit does."""


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """The footer's record of one staged change."""

    sequence: int
    batch_id: str
    kind: str
    rows: int
    actor: str
    reason: str
    at_us: int
    # The group commit that wrote it: a writer whose answer was lost can tell its own change from another's.
    writer: str

    @property
    def position(self) -> BatchPosition:
        return BatchPosition(self.sequence, self.writer)


class BatchPosition(NamedTuple):
    """The sequence of a batch, and the group commit that wrote it."""

    sequence: int
    writer: str


@dataclass(frozen=True, slots=True)
class Segment:
    """The changes of the sequences `first` to `last`, in memory."""

    first: int
    last: int
    content: pa.Table | RowBuffer
    records: tuple[ChangeRecord, ...]
    bytes: int

    @property
    def rows(self) -> pa.Table:
        return as_table(self.content)


def as_table(rows: pa.Table | RowBuffer) -> pa.Table:
    """Return rows as Arrow."""
    return rows.table if isinstance(rows, RowBuffer) else rows


def staged_schema(table: pa.Schema) -> pa.Schema:
    """Return the schema of a staged file: the table's columns, all nullable (a delete has only keys), and the stage columns."""
    return pa.schema([*all_nullable(table), *STAGE_COLUMNS])


def build_segment(changes: Sequence[Change], sequence: int, writer: str, columns: Mapping[str, pa.DataType]) -> Segment:
    """Merge the changes of one group commit under their sequence, in the table's `columns`, all nullable.

    A column that no change has is left out (a delete has only its key), except the system columns: readers of the tail
    see it as null.
    """
    counts = [change.rows.num_rows for change in changes]
    records = tuple(
        ChangeRecord(
            sequence,
            change.batch_id,
            change.kind,
            count,
            change.actor,
            change.reason,
            change.at_us,
            change.writer or writer,
        )
        for change, count in zip(changes, counts, strict=True)
    )
    return Segment(
        sequence,
        sequence,
        _staged(changes, counts, sequence, columns),
        records,
        sum(change.bytes for change in changes),
    )


def _staged(
    changes: Sequence[Change], counts: Sequence[int], sequence: int, columns: Mapping[str, pa.DataType]
) -> pa.Table | RowBuffer:
    """Return the rows of the changes with the system columns added."""
    buffers = [change.rows for change in changes if isinstance(change.rows, RowBuffer) and change.rows.fits(columns)]
    if len(buffers) == len(changes):
        few = _staged_buffer(changes, buffers, sequence, columns)
        return few if few.num_rows <= MAX_ROWS else few.table
    first = changes[0]
    if len(changes) == 1 and isinstance(first.rows, pa.Table):
        given = first.rows
    else:
        given = _concat_tables([as_table(change.rows) for change in changes], columns)
    total = given.num_rows
    present = set(given.column_names)
    system = _repeat_per_row(
        {
            CREATED_AT: ([change.at_us for change in changes], columns.get(CREATED_AT)),
            BATCH_ID: ([change.batch_id for change in changes], columns.get(BATCH_ID)),
            DATE: ([change.at_us // _US_PER_DAY for change in changes], columns.get(DATE)),
            "_op": ([DELETE if change.kind == "delete" else UPSERT for change in changes], pa.int8()),
        },
        counts,
    )
    arrays: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name, kind in columns.items():
        if name in present:
            column = given.column(name)
            arrays[name] = column if column.type == kind else column.cast(kind)
        elif name in _SYSTEM_COLUMN_NAMES:
            arrays[name] = system[name]
    arrays["_seq"] = pa.repeat(pa.scalar(sequence, pa.int64()), total)
    arrays["_ord"] = pa.array(range(total), pa.int32())
    arrays["_op"] = system["_op"]
    rows = pa.Table.from_arrays(list(arrays.values()), names=list(arrays))
    return rows.combine_chunks() if len(changes) > 1 else rows


def _staged_buffer(
    changes: Sequence[Change], buffers: Sequence[RowBuffer], sequence: int, columns: Mapping[str, pa.DataType]
) -> RowBuffer:
    rows = merged_buffers(buffers)
    # The change of each row.
    by_row = [change for change, buffer in zip(changes, buffers, strict=True) for _ in range(buffer.num_rows)]
    system: dict[str, Sequence[object]] = {
        CREATED_AT: [change.at_us for change in by_row],
        BATCH_ID: [change.batch_id for change in by_row],
        DATE: [change.at_us // _US_PER_DAY for change in by_row],
        "_seq": [sequence] * len(by_row),
        "_ord": range(len(by_row)),
        "_op": [DELETE if change.kind == "delete" else UPSERT for change in by_row],
    }
    names = [name for name in system if name in columns or name not in _SYSTEM_COLUMN_NAMES]
    return rows.with_columns([_SYSTEM_COLUMNS[name] for name in names], [system[name] for name in names])


def _concat_tables(tables: Sequence[pa.Table], columns: Mapping[str, pa.DataType]) -> pa.Table:
    if len(tables) == 1:
        return tables[0]
    if all(table.schema.equals(tables[0].schema) for table in tables):
        return pa.concat_tables(tables)
    # Deletes among upserts, or calls from before and after an evolution.
    alike = [
        pa.table([table[name].cast(columns[name]) for name in table.column_names], names=table.column_names)
        for table in tables
    ]
    return pa.concat_tables(alike, promote_options="default")


def _repeat_per_row(
    columns: Mapping[str, tuple[Sequence[object], pa.DataType | None]], counts: Sequence[int]
) -> dict[str, pa.Array]:
    """Repeat each change's value for each of its rows; a column without a type is left out."""
    found: dict[str, pa.Array] = {}
    for name, (values, kind) in columns.items():
        if kind is None:
            continue
        if len(values) == 1:
            found[name] = pa.repeat(pa.scalar(values[0], kind), counts[0])
        elif len(values) == sum(counts):
            found[name] = pa.array(values, kind)
        else:
            repeated = [pa.repeat(pa.scalar(value, kind), n) for value, n in zip(values, counts, strict=True)]
            found[name] = pa.concat_arrays(repeated)
    return found


def merge_segments(segments: Sequence[Segment], first: int, last: int, schema: pa.Schema) -> Segment:
    """Merge adjacent segments, in commit order and in the table's current columns, into the segment of a pack."""
    rows = concat_segments(segments, staged_schema(schema)).combine_chunks()
    records = tuple(record for segment in segments for record in segment.records)
    return Segment(first, last, rows, records, sum(segment.bytes for segment in segments))


def encode(segment: Segment, *, table_id: str, schema_version: str, smallest: int = 0) -> bytes:
    """Write a segment as the bytes of a staged file or pack, padded to `smallest` bytes before its footer."""
    footer = {
        "format": _FORMAT,
        "table": table_id,
        "schema": schema_version,
        "first": segment.first,
        "last": segment.last,
        # Columns instead of objects: a pack of 4,096 single-row changes is read in a few milliseconds.
        "notes": {
            "sequence": [record.sequence for record in segment.records],
            "batch_id": [record.batch_id for record in segment.records],
            "kind": [record.kind for record in segment.records],
            "rows": [record.rows for record in segment.records],
            "actor": [record.actor for record in segment.records],
            "reason": [record.reason for record in segment.records],
            "at_us": [record.at_us for record in segment.records],
            "writer": [record.writer for record in segment.records],
        },
    }
    metadata = {_FOOTER: _JSON.encode(footer).encode()}
    small = segment.bytes < _WORTH_COMPRESSING_BYTES
    if small and isinstance(segment.content, RowBuffer):
        return padded(segment.content.to_parquet(metadata), smallest)
    # A column with only nulls is left out: reading adds it again, and a file of few columns costs a third.
    rows = segment.content if isinstance(segment.content, pa.Table) else segment.content.table
    rows = rows.select(
        [
            name
            for name, column in zip(rows.column_names, rows.columns, strict=True)
            if column.null_count < max(len(column), 1)
        ]
    )
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        rows.schema,
        compression="none" if small else "lz4",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata(metadata)
    return padded(bytes(sink.getvalue().to_pybytes()), smallest)


def padded(file: bytes, size: int) -> bytes:
    """Return the Parquet file padded to `size` with zeros between its pages and its footer, unless it is larger."""
    if len(file) >= size:
        return file
    footer = len(file) - 8 - int.from_bytes(file[-8:-4], "little")
    return file[:footer] + bytes(size - len(file)) + file[footer:]


def decode(data: bytes, *, path: str, table_id: str) -> Segment:
    """Read a staged file, in the columns it was written with. Raises Corrupted with the file's path."""
    try:
        # Passing the columns of a small file to threads costs more than reading them.
        small = len(data) < _WORTH_COMPRESSING_BYTES
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True, pre_buffer=not small)
        footer = json.loads((file.metadata.metadata or {})[_FOOTER])
        if footer["format"] != _FORMAT or footer["table"] != table_id:
            raise Corrupted(
                f"staged file {path} is format {footer['format']} of table {footer['table']},"
                f" not format {_FORMAT} of table {table_id}; it was put there by another version or by hand"
            )
        records = tuple(map(ChangeRecord, *(footer["notes"][name] for name in ChangeRecord.__slots__)))
        rows = file.read(use_threads=not small).replace_schema_metadata(None)
        size = int(rows.nbytes) + BYTES_PER_CHANGE * len(records)
        return Segment(footer["first"], footer["last"], rows, records, size)
    except (KeyError, ValueError, TypeError, OSError, RecursionError, pa.ArrowException) as error:
        raise Corrupted(
            f"staged file {path} cannot be read ({type(error).__name__}: {str(error)[:200]});"
            " restore it from a backup, the changes in it were acknowledged"
        ) from error


def concat_segments(segments: Sequence[Segment], wanted: pa.Schema) -> pa.Table:
    """Concatenate the rows of segments in the columns of `wanted`, a staged schema."""
    types = dict(zip(wanted.names, wanted.types, strict=True))
    parts: list[pa.Table] = []
    # Converting each buffer by itself would cost as much as converting all of them together.
    for few, group in groupby(
        (segment.content for segment in segments),
        lambda content: isinstance(content, RowBuffer) and content.fits(types),
    ):
        some = list(group)
        parts += (
            [concat_buffers(some, wanted)] if few else [cast_to_schema(as_table(content), wanted) for content in some]
        )
    return pa.concat_tables(parts)


def cast_to_schema(rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Convert rows staged under an earlier schema to the staged schema `wanted`: added columns are null, widened ones cast."""
    if rows.schema.equals(wanted):
        return rows
    present = set(rows.column_names)
    columns: Iterable[pa.ChunkedArray] = [
        rows.column(field.name).cast(field.type) if field.name in present else pa.nulls(rows.num_rows, field.type)
        for field in wanted
    ]
    return pa.Table.from_arrays(list(columns), schema=wanted)
