"""Rate limits: a token bucket for each caller, refilled at a steady rate."""

from __future__ import annotations

import time
from collections import OrderedDict

from crannog.errors import Overloaded

_MAX_BUCKETS = 10_000


class Rates:
    """The buckets of all callers."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str, *, now: float | None = None) -> None:
        """Count a request. Raises Overloaded, with the seconds to wait, if the caller sends too many."""
        if not self._per_s:
            return
        now = time.monotonic() if now is None else now
        left, at = self._buckets.pop(who, (float(self._burst), now))
        left = min(float(self._burst), left + (now - at) * self._per_s)
        if left < 1:
            self._buckets[who] = (left, now)
            wait = (1 - left) / self._per_s
            raise Overloaded(
                f"{who} sends more than {self._per_s:g} requests per second; try again in {wait:.3f} s",
                retry_after_s=wait,
            )
        self._buckets[who] = (left - 1, now)
        # The caller that was idle longest has a full bucket by now, or soon.
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
