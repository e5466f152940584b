"""The traces of a warehouse: spans in, durable when acknowledged; traces, services and operations out."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.engine.tables import Tables
from crannog.engine.warehouse import Warehouse
from crannog.errors import CallerError, NotFound
from crannog.lake.stage import BYTES_PER_CHANGE, Change
from crannog.traces import names
from crannog.traces.ids import trace_id_of
from crannog.traces.lookup import newest_of_each, rows_of_trace
from crannog.traces.otlp.receive import PROTOBUF, ZIPKIN, received
from crannog.traces.spans import SCHEMA, SPANS, open_spans
from crannog.traces.trace import COLUMNS, Trace, in_tree_order, span_of

_MOST_NAMES = 10_000


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """What became of a request: `message` says why spans were rejected, `duplicate` that it was kept before."""

    accepted: int
    rejected: int
    message: str
    duplicate: bool


class Traces:
    """Writes and reads the span table, which is made when the first span comes. Safe for threads."""

    def __init__(self, warehouse: Warehouse, tables: Tables) -> None:
        self._warehouse = warehouse
        self._tables = tables

    # -- writing -----------------------------------------------------------------------------------------------------

    def write_otlp(self, body: bytes, *, content_type: str = PROTOBUF, encoding: str | None = None) -> WriteOutcome:
        """Keep the spans of an OTLP request; durable and visible when it returns.

        The same request again is kept once. Spans that cannot be kept are rejected one by one, the others are kept.
        Raises CallerError if the body cannot be read and TooLarge if it is too large (do not send it again),
        Overloaded and Unavailable if it may be sent again later; then nothing of it is acknowledged.
        """
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise CallerError(f"the body of a request is bytes, got {type(body).__name__}")
        limit = self._warehouse.settings.otlp_request_bytes
        got = received(bytes(body), content_type=content_type, encoding=encoding, limit=limit)
        duplicate = self._keep(got.rows, "otlp-" + hashlib.sha256(got.body).hexdigest()) if got.rows.num_rows else False
        return WriteOutcome(got.rows.num_rows, got.rejected.count, got.rejected.message, duplicate)

    def write_zipkin(self, body: bytes, *, encoding: str | None = None) -> WriteOutcome:
        """Keep the spans of Zipkin's v2 JSON, an array; as `write_otlp` otherwise."""
        return self.write_otlp(body, content_type=ZIPKIN, encoding=encoding)

    def _keep(self, rows: pa.Table, batch_id: str) -> bool:
        """Stage rows, in as many changes as the limit of one asks for; True if all of them were there already."""
        table = self.spans
        most = self._warehouse.settings.group_commit_rows
        if rows.num_rows <= most:
            return self._stage(table, rows, batch_id)
        # Each part has an id of its own: a retry after half of them finds that half.
        kept = [self._stage(table, rows.slice(start, most), f"{batch_id}-{start}") for start in range(0, rows.num_rows, most)]
        return all(kept)

    def _stage(self, table: OpenTable, rows: pa.Table, batch_id: str) -> bool:
        # The rows were made in exactly the table's form: to check each value again would cost a third of the time.
        size = int(rows.nbytes) + rows.num_rows * 64 + BYTES_PER_CHANGE
        return table.writer.write(Change(batch_id, "append", rows, size, at_us=time.time_ns() // 1000)).duplicate

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def spans(self) -> OpenTable:
        """The span table, made if there is none yet."""
        return open_spans(self._tables)

    def get(self, trace_id: str) -> Trace:
        """Return a trace by its id, at any age; each span once, the newest if it was sent again in another form.

        Raises CallerError if the id is none, NotFound if no span has it.
        """
        wanted = trace_id_of(trace_id)
        limit = self._warehouse.settings.trace_spans_limit
        rows = self._rows_of(wanted, limit + 1, COLUMNS)
        if not rows.num_rows:
            raise NotFound(f"there is no trace {wanted.hex()}: no span with this id was kept, or it has expired")
        truncated = rows.num_rows > limit
        spans = in_tree_order(span_of(row) for row in newest_of_each(rows.slice(0, limit)).to_pylist())
        return Trace(wanted.hex(), tuple(spans), truncated)

    def rows_of(self, trace_id: str) -> pa.Table:
        """Return the rows of a trace, each span once, in the columns of the span table; for exports."""
        rows = self._rows_of(trace_id_of(trace_id), self._warehouse.settings.trace_spans_limit, SCHEMA.names)
        return newest_of_each(rows).select(SCHEMA.names)

    def _rows_of(self, trace_id: bytes, limit: int, columns: Sequence[str]) -> pa.Table:
        table = self._existing()
        if table is None:
            return SCHEMA.empty_table()

        def found(snapshot: Snapshot) -> pa.Table:
            return rows_of_trace(table, snapshot, trace_id, columns=columns, limit=limit)

        return table.newest(found)

    def _existing(self) -> OpenTable | None:
        try:
            return self._tables.open(SPANS)
        except NotFound:
            return None

    def services(self) -> list[str]:
        """Return the names of all services, in order; the first 10,000."""
        table = self._existing()
        return [] if table is None else names.services(table, limit=_MOST_NAMES)

    def operations(self, service: str, kind: str | None = None) -> list[str]:
        """Return the names of a service's operations, in order; the first 10,000. `kind` asks for one kind only."""
        found = self.operations_by_kind(service)
        return list(dict.fromkeys(name for name, of in found if kind is None or of == kind))

    def operations_by_kind(self, service: str) -> list[tuple[str, str | None]]:
        """Return each operation of a service with each kind it has, in order; the first 10,000."""
        table = self._existing()
        return [] if table is None else names.operations(table, service, limit=_MOST_NAMES)
