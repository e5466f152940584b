"""Rows of the audit that stand for several requests, one a minute for each sender.

A row for each batch of spans would be as much writing as the batches; a row for each request without a valid token would let
strangers fill the disk. So both are counted in memory, for a bounded number of senders, and written once a minute.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

EVERY_S = 60.0
_MOST = 1_000
OTHERS = "others"
"""Who a row is for that has the requests of all further senders, once there are too many to tell apart."""
Record = dict[str, Any]
_Key = tuple[str, ...]


@dataclass(slots=True)
class _Summary:
    since: float
    record: Record


class Summaries:
    """The sums of the current minute. Safe for threads."""

    def __init__(self) -> None:
        self._sums: dict[_Key, _Summary] = {}
        self._lock = threading.Lock()

    def add(self, key: _Key, record: Record, *, now: float | None = None) -> None:
        """Add one request: its numbers are summed, and the rest is that of the first request with this key."""
        now = time.monotonic() if now is None else now
        with self._lock:
            known = self._sums.get(key)
            if known is None and len(self._sums) >= _MOST:
                key = (OTHERS,)
                known = self._sums.get(key)
                record = record | {"who": OTHERS, "address": None}
            if known is None:
                self._sums[key] = _Summary(now, dict(record))
                return
            kept = known.record
            kept["requests"] += record["requests"]
            kept["elapsed_ms"] += record["elapsed_ms"]
            for name in ("rows", "rejected"):
                if record[name] is not None:
                    kept[name] = (kept[name] or 0) + record[name]
            if record["address"] != kept["address"]:
                kept["address"] = None  # several

    def take(self, *, all_of_them: bool = False, now: float | None = None) -> list[Record]:
        """Return, and forget, the sums whose minute is over."""
        now = time.monotonic() if now is None else now
        with self._lock:
            due = [key for key, each in self._sums.items() if all_of_them or now - each.since >= EVERY_S]
            return [self._sums.pop(key).record for key in due]
