"""How far a load is: bytes read against bytes there are, rows by the second, and whether it was taken back."""

from __future__ import annotations

import time

from crannog.api.cancellation import Cancellation
from crannog.api.reports import Progress

_EVERY_S = 0.1
_MANY = 10 * 1024**2


class Meter:
    """Tells progress as the share of bytes, each file being read twice: looked through, then loaded."""

    def __init__(self, progress: Progress | None, cancellation: Cancellation | None, total: int) -> None:
        self._progress = progress
        self._cancellation = cancellation or Cancellation()
        self._total = max(1, total)
        self._told = 0.0
        self._done = 0
        self._rows = 0
        self._step = ""
        self._since = time.perf_counter()

    def begin(self, step: str) -> None:
        """Start reading all files, from the first."""
        self._step, self._done, self._rows, self._since = step, 0, 0, time.perf_counter()

    def finished(self, size: int) -> None:
        """One file is read."""
        self._done += size

    def check(self) -> None:
        """Raise Cancelled if the load was taken back."""
        self._cancellation.check()

    def seen(self, consumed: int, rows: int) -> None:
        """Tell how far the present file is; raises Cancelled if the load was taken back."""
        self.check()
        self._rows += rows
        now = time.perf_counter()
        if self._progress is None or now - self._told < _EVERY_S:
            return
        self._told = now
        done = min(self._total, self._done + consumed)
        speed = self._rows / max(now - self._since, 1e-6)
        half = 0.5 if self._step == "load" else 0.0
        mib, digits = 1024**2, 1 if self._total < _MANY else 0
        self._progress(
            f"{self._step} {done / mib:,.{digits}f} of {self._total / mib:,.{digits}f} MiB, {speed:,.0f} rows/s",
            round(half + 0.5 * done / self._total, 3),
        )
