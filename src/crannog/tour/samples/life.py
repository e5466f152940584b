"""What goes on while the demo serves: requests arrive, builds run, and Spark folds the tables so that they have a history."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from crannog.builds import BuildEvent
from crannog.errors import CrannogError
from crannog.tour.samples.builds import next_build
from crannog.tour.samples.requests import request_traces
from crannog.tour.samples.spans import otlp_bodies
from crannog.tour.samples.tables import change_orders

if TYPE_CHECKING:
    from crannog.embedded import EmbeddedLake

_STEP_S = 2.0
_BUILD_S = 240.0
_TRACES = 4
_TABLES = ("shop.sales.orders", "shop.sales.customers", "ops.warehouse.readings")


class Life:
    """Two threads that write to a lake until an event is set."""

    def __init__(self, lake: EmbeddedLake, stop: threading.Event) -> None:
        self._lake, self._stop = lake, stop
        self._dice = random.Random()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"crannog-demo-{place}", daemon=True)
            for place, work in enumerate((self._go_on, self._make_history))
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until the threads have ended, after the event was set."""
        for thread in self._threads:
            if thread.is_alive():
                thread.join(5)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except CrannogError:
            # The lake is closed or closing, or Spark is missing: the demo goes on with what it has.
            pass

    def _go_on(self) -> None:
        events: list[BuildEvent] = []
        builds, next_at = 0, time.monotonic()
        while not self._stop.wait(_STEP_S):
            now = time.time_ns()
            for body in otlp_bodies(request_traces(self._dice, self._dice.randint(1, _TRACES), now, hours=0.001)):
                self._lake.traces.write_otlp(body, content_type="application/json")
            if time.monotonic() >= next_at:
                builds, next_at = builds + 1, next_at + _BUILD_S
                events += next_build(self._dice, builds, now)
            due = [event for event in events if event.timestamp <= now]
            events = [event for event in events if event.timestamp > now]
            if due:
                self._lake.builds.append_events(due)

    def _make_history(self) -> None:
        """Fold the tables, change some rows, and fold again: then there are versions to look at, and changes to fold."""
        if not self._lake.settings.spark_at_start:
            return
        for name in _TABLES:
            if not self._stop.is_set():
                self._lake.table(name).fold()
        for _ in range(2):
            change_orders(self._lake, self._dice)
            if not self._stop.is_set():
                self._lake.table(_TABLES[0]).fold()
        change_orders(self._lake, self._dice)
