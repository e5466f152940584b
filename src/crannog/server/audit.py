"""The audit: a table that tells who asked for what, written behind the requests, in batches."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections import deque
from typing import Any

import pyarrow as pa

from crannog.embedded import EmbeddedLake
from crannog.engine.open_table import OpenTable
from crannog.errors import CrannogError, NotFound, Overloaded
from crannog.names import AUDIT as NAME
from crannog.server.request_context import Call

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
    ]
)
_MOST = 50_000
_EVERY_S = 2.0
_BATCH = 5_000
_LONGEST_SQL = 10_000
log = logging.getLogger("crannog.server")


class Audit:
    """Records entries at once and writes them in the background; at its limit it drops the oldest entries and counts them."""

    def __init__(self, lake: EmbeddedLake) -> None:
        self._lake = lake
        self.on = lake.settings.audit
        self._notes: deque[dict[str, Any]] = deque()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="crannog-audit", daemon=True)
        self._flushing = threading.Lock()
        self.dropped = 0

    def start(self) -> None:
        if self.on:
            self._thread.start()

    def note(self, call: Call, verb: str) -> None:
        """Note a request that was answered."""
        if not self.on:
            return
        if len(self._notes) >= _MOST:
            self._notes.popleft()
            self.dropped += 1
        self._notes.append(
            {
                "time": dt.datetime.now(dt.UTC),
                "request_id": call.request_id,
                "who": call.caller.name,
                "address": call.address,
                "verb": verb,
                "table": ", ".join(call.tables) or None,
                "rows": call.rows,
                "sql": call.sql[:_LONGEST_SQL] if call.sql else None,
                "status": call.status,
                "elapsed_ms": round(call.elapsed_ms, 3),
                "error": call.error_code or None,
            }
        )

    def stop(self, timeout_s: float = 5.0) -> None:
        """Keep what was noted and end."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self.flush()
        self.flush()

    def flush(self) -> None:
        """Keep what was noted so far; what cannot be kept now is tried again later."""
        with self._flushing:
            self._flush()

    def _flush(self) -> None:
        while self._notes:
            batch = [self._notes.popleft() for _ in range(min(len(self._notes), _BATCH))]
            try:
                self._keep(batch)
            except CrannogError as error:
                if isinstance(error, Overloaded) or error.retryable:
                    room = _MOST - len(self._notes)
                    self.dropped += max(0, len(batch) - room)
                    self._notes.extendleft(reversed(batch[-room:] if room > 0 else []))
                else:
                    self.dropped += len(batch)
                log.warning("the audit cannot be written: %s", error.message)
                return

    def _keep(self, batch: list[dict[str, Any]]) -> None:
        # Text that is no Unicode came in a header or a statement; it must not keep the rest from being kept.
        for note in batch:
            for name in ("request_id", "sql", "table"):
                if note[name] is not None:
                    note[name] = note[name].encode("utf-8", "replace").decode()
        rows = pa.Table.from_pylist(batch, schema=SCHEMA)
        # On the engine's table: through the API, nobody writes to it.
        try:
            self._table().write("append", rows, None)
        except NotFound:
            # Removed by hand while the server runs: the audit goes on in a new table.
            log.warning("the audit table %s was removed; a new one is made", NAME)
            self._lake.engine.forget(NAME)
            self._table().write("append", rows, None)

    def _table(self) -> OpenTable:
        engine = self._lake.engine
        try:
            return engine.open(NAME)
        except NotFound:
            properties = {"crannog.retentionDays": str(self._lake.settings.audit_days)}
            engine.create(NAME, SCHEMA, if_exists="ok", properties=properties)
            return engine.open(NAME)
