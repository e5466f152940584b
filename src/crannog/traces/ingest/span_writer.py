"""Writes requests with spans: those that arrive while a commit runs are converted together and committed together.

Arrow's functions take about as long for a thousand spans as for two thousand, and so does a Parquet file.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa

from crannog.api.traces import WriteOutcome
from crannog.api.traces.requests import WriteSpans
from crannog.engine.commit.group import Call, Group
from crannog.engine.open_table import OpenTable
from crannog.errors import CallerError, NotFound
from crannog.protocol.staged_files import BYTES_PER_CHANGE, Change
from crannog.settings import Settings
from crannog.traces.ingest.decode import (
    ConvertedSpans,
    ParsedRequest,
    converted,
    converted_together,
    not_stored,
    parsed_request,
)
from crannog.traces.span_table import SPANS

_MAX_BYTES_TOGETHER = 4 * 1024**2
_SYSTEM_BYTES_PER_ROW = 64


@dataclass(slots=True)
class _Write:
    """One request, and its rows once it is converted."""

    request: ParsedRequest
    batch_id: str
    spans: ConvertedSpans | None = field(default=None)


_Writes = list[Call[_Write, WriteOutcome]]


class SpanWriter:
    """Takes requests from any thread; `write` returns once the spans are durable and visible."""

    def __init__(
        self,
        settings: Settings,
        on_spans: Callable[[Callable[[OpenTable], None]], None],
        pause_s: Callable[[], float],
    ) -> None:
        """`on_spans` calls a function with the span table, again with a new one if it was dropped meanwhile.

        `pause_s` returns how long to wait before a write, so that folds keep up.
        """
        self._settings = settings
        self._on_spans = on_spans
        self._pause_s = pause_s
        self._group: Group[_Write, WriteOutcome] = Group(
            self._write_together, called=lambda: str(SPANS), most_waiting=settings.queue_calls, take=_take
        )

    def write(self, given: WriteSpans) -> WriteOutcome:
        """Write the spans of a request. Raises CallerError if it is invalid, Overloaded, Unavailable."""
        request = parsed_request(
            bytes(given.body),
            content_type=given.content_type,
            encoding=given.encoding,
            limit=self._settings.otlp_request_bytes,
        )
        if pause_s := self._pause_s():
            time.sleep(pause_s)
        return self._group.submit(_Write(request, "otlp-" + hashlib.sha256(request.body).hexdigest()))

    def _write_together(self, calls: _Writes) -> None:
        self._convert(calls)
        to_store = []
        for call in calls:
            if call.value.spans is None:
                continue  # has an error
            if call.value.spans[0].num_rows:
                to_store.append(call)
            else:
                call.result = _outcome(call.value.spans, duplicate=False)
        if to_store:
            self._on_spans(lambda table: self._stage(table, to_store))

    def _convert(self, calls: _Writes) -> None:
        together = converted_together([call.value.request for call in calls]) if len(calls) > 1 else None
        for number, call in enumerate(calls):
            try:
                call.value.spans = converted(call.value.request) if together is None else together[number]
            except CallerError as error:
                call.error = not_stored(error)

    def _stage(self, table: OpenTable, calls: _Writes) -> None:
        changes = [self._changes(call.value) for call in calls]
        ends = [0]
        for parts in changes:
            ends.append(ends[-1] + len(parts))
        staged = table.writer.write_all([change for parts in changes for change in parts])
        for call, (start, end) in zip(calls, pairwise(ends), strict=True):
            errors = [part.error for part in staged[start:end] if part.error is not None]
            if errors and isinstance(errors[0], (NotFound, FileNotFoundError)):
                raise errors[0]
            if errors:
                call.error = errors[0]
                continue
            assert call.value.spans is not None
            duplicate = all(part.result is not None and part.result.duplicate for part in staged[start:end])
            call.result = _outcome(call.value.spans, duplicate=duplicate)

    def _changes(self, write: _Write) -> list[Change]:
        """Return the change of a request, or several if one would be too large."""
        assert write.spans is not None
        rows, limit = write.spans[0], self._settings.group_commit_rows
        if rows.num_rows <= limit:
            return [_change(rows, write.batch_id)]
        # Each part has its own id, so that a retry finds the parts that were stored before.
        return [
            _change(rows.slice(start, limit), f"{write.batch_id}-{start}") for start in range(0, rows.num_rows, limit)
        ]


def _change(rows: pa.Table, batch_id: str) -> Change:
    # The rows have exactly the table's schema: checking each value again would cost a third of the time.
    size = int(rows.nbytes) + rows.num_rows * _SYSTEM_BYTES_PER_ROW + BYTES_PER_CHANGE
    return Change(batch_id, "append", rows, size, at_us=time.time_ns() // 1000)


def _outcome(spans: ConvertedSpans, *, duplicate: bool) -> WriteOutcome:
    rows, rejected = spans
    return WriteOutcome(rows.num_rows, rejected.count, rejected.message, duplicate)


def _take(waiting: deque[Call[_Write, WriteOutcome]]) -> _Writes:
    taken = [waiting.popleft()]
    size = len(taken[0].value.request.body)
    while waiting and (size := size + len(waiting[0].value.request.body)) <= _MAX_BYTES_TOGETHER:
        taken.append(waiting.popleft())
    return taken
