"""The audit: a table with a row for each request, or for the requests of a minute, written in batches in the background."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections import deque

import pyarrow as pa

from crannog.delta.schemas import user_columns
from crannog.embedded import EmbeddedLake
from crannog.engine.maintenance.evolve import evolve
from crannog.engine.open_table import OpenTable
from crannog.errors import CrannogError, NotFound, Overloaded
from crannog.names import AUDIT as NAME
from crannog.server.audit_summaries import Record, Summaries
from crannog.server.requests import Call
from crannog.server.scopes import NOBODY

SCHEMA = pa.schema(
    [
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("request_id", pa.string(), nullable=False),
        pa.field("who", pa.string(), nullable=False),
        pa.field("address", pa.string()),
        pa.field("verb", pa.string(), nullable=False),
        pa.field("table", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("sql", pa.string()),
        pa.field("status", pa.int32(), nullable=False),
        pa.field("elapsed_ms", pa.float64(), nullable=False),
        pa.field("error", pa.string()),
        pa.field("requests", pa.int64()),
        pa.field("rejected", pa.int64()),
    ]
)
_MAX_BUFFERED = 50_000
_INTERVAL_S = 2.0
_BATCH_ROWS = 5_000
_MAX_SQL = 10_000
_MAX_VERB = 100
log = logging.getLogger("crannog.server")


def _record(call: Call, verb: str) -> Record:
    return {
        "time": dt.datetime.now(dt.UTC),
        "request_id": call.request_id,
        "who": call.caller.name,
        "address": call.address,
        "verb": verb[:_MAX_VERB],
        "table": ", ".join(map(str, call.tables)) or None,
        "rows": call.rows,
        "sql": call.sql[:_MAX_SQL] if call.sql else None,
        "status": call.status,
        "elapsed_ms": round(call.elapsed_ms, 3),
        "error": call.error_code or None,
        "requests": 1,
        "rejected": call.rejected,
    }


class Audit:
    """Records entries at once and writes them in the background; at its limit it drops the oldest entries and counts them."""

    def __init__(self, lake: EmbeddedLake) -> None:
        self._lake = lake
        self.on = lake.settings.audit
        self._records: deque[Record] = deque()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="crannog-audit", daemon=True)
        self._flushing = threading.Lock()
        self.dropped = 0
        self._summaries = Summaries()
        self._is_current = False

    def start(self) -> None:
        """Start the thread that writes."""
        if self.on:
            self._thread.start()

    def note(self, call: Call, verb: str) -> None:
        """Record a request that ended."""
        if self.on:
            self._buffer([_record(call, verb)])

    def sum_up(self, call: Call, verb: str) -> None:
        """Record a request with those of the same minute: of one caller, or of an address without a valid token."""
        if not self.on:
            return
        if call.caller is NOBODY:
            # A stranger chooses method and path, which must not make more rows.
            self._summaries.add((NOBODY.name, call.address, str(call.status)), _record(call, verb))
        else:
            self._summaries.add((call.caller.name, verb, str(call.status)), _record(call, verb))

    def _buffer(self, records: list[Record]) -> None:
        for record in records:
            if len(self._records) >= _MAX_BUFFERED:
                self._records.popleft()
                self.dropped += 1
            self._records.append(record)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Write the buffered records and stop."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL_S):
            self.flush(unfinished=False)
        self.flush()

    def flush(self, *, unfinished: bool = True) -> None:
        """Write the buffered records; those that cannot be written now are retried later.

        `unfinished` also writes the sums of a minute that is not over.
        """
        with self._flushing:
            self._buffer(self._summaries.take(all_of_them=unfinished))
            self._flush()

    def _flush(self) -> None:
        while self._records:
            batch = [self._records.popleft() for _ in range(min(len(self._records), _BATCH_ROWS))]
            try:
                self._write(batch)
            except CrannogError as error:
                if isinstance(error, Overloaded) or error.retryable:
                    room = _MAX_BUFFERED - len(self._records)
                    self.dropped += max(0, len(batch) - room)
                    self._records.extendleft(reversed(batch[-room:] if room > 0 else []))
                else:
                    self.dropped += len(batch)
                log.warning("the audit cannot be written: %s", error.message)
                return

    def _write(self, batch: list[Record]) -> None:
        # Headers and statements may have text that is not valid Unicode, which must not fail the batch.
        for record in batch:
            for name in ("request_id", "sql", "table", "verb"):
                if record[name] is not None:
                    record[name] = record[name].encode("utf-8", "replace").decode()
        rows = pa.Table.from_pylist(batch, schema=SCHEMA)
        # Directly on the engine's table, since the API does not allow writes to it.
        try:
            self._table().write("append", rows, None)
        except NotFound:
            # Removed by hand while the server runs: continue in a new table.
            log.warning("the audit table %s was removed; creating a new one", NAME)
            self._lake.operations.tables.forget(NAME)
            self._table().write("append", rows, None)

    def _add_columns(self, table: OpenTable) -> None:
        """Add the columns that a table of an earlier version lacks; only its log changes."""
        current = user_columns(table.log.head().schema)
        if missing := [field for field in SCHEMA if field.name not in current.names]:
            evolve(table, pa.schema([*current, *missing]))
        self._is_current = True

    def _table(self) -> OpenTable:
        engine = self._lake.operations.tables
        try:
            table = engine.open(NAME)
            if not self._is_current:
                self._add_columns(table)
            return table
        except NotFound:
            properties = {"crannog.retentionDays": str(self._lake.settings.audit_days)}
            engine.create(NAME, SCHEMA, if_exists="ok", properties=properties)
            return engine.open(NAME)
