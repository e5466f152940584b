"""A warehouse worth looking at: generated traces, conversations, tables and builds, up to the present moment.

The same seed makes the same data, but for the times, which end at `now_ns`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from crannog.tour.samples.builds import build_events
from crannog.tour.samples.conversations import conversation_traces
from crannog.tour.samples.life import Life
from crannog.tour.samples.requests import request_traces
from crannog.tour.samples.spans import otlp_bodies
from crannog.tour.samples.tables import fill_tables

if TYPE_CHECKING:
    from crannog.embedded import EmbeddedLake

__all__ = ["Life", "fill"]
_JSON = "application/json"


def fill(
    lake: EmbeddedLake,
    *,
    traces: int = 1_500,
    conversations: int = 60,
    builds: int = 60,
    rows: int = 5_000,
    seed: int = 7,
    now_ns: int | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> None:
    """Write the samples to a lake; `report` is called with what is written next."""
    now = time.time_ns() if now_ns is None else now_ns
    dice = random.Random(seed)
    report(f"{traces:,} requests through six services")
    for body in otlp_bodies(request_traces(dice, traces, now)):
        lake.traces.write_otlp(body, content_type=_JSON)
    report(f"{conversations:,} conversations with language models")
    for body in otlp_bodies(conversation_traces(dice, conversations, now)):
        lake.traces.write_otlp(body, content_type=_JSON)
    report("tables with keys, changes and deletes")
    fill_tables(lake, dice, rows, now)
    report(f"{builds:,} builds")
    lake.builds.append_events(build_events(dice, builds, now))
