"""The web pages in a browser: the first picture of each page; traces of 300, 50,000 and 1,000,000 spans, at pixel ratios 1 and 2.

Alone, without Spark and the other sections: `python bench/pages.py [SPANS…]`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from stopwatch import Line, Results

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from browsers import reason_to_skip, running_browser, served_here
from crannog.tour.samples import fill
from large_traces import large_trace
from page_measures import TraceMeasures, measure_trace, wait_until_read

if TYPE_CHECKING:
    from run import Bench

_TITLE = "Pages: a trace in Chromium"
_FIRST = "Pages: the first picture, and when all data are there"
_PATHS = ("", "traces", "services", "conversations", "tables", "tables/shop.sales.orders", "sql", "load", "builds", "jobs",
          "partitions", "upkeep", "audit", "erase")  # fmt: skip
_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
# What each measure is called, and what it must not pass.
_LINES = (
    ("first_rows_ms", "first rows on the screen", "ms", 1_000.0),
    ("server_ms", "of that the wait for the server", "ms", None),
    ("all_rows_ms", "all rows", "ms", None),
    ("open_work_ms", "work of the page's thread until then", "ms", None),
    ("scroll_ms_a_frame", "scroll: work a frame", "ms", 50.0),
    ("jump_ms", "to the last row: work", "ms", 50.0),
    ("collapse_ms", "close to three levels: work", "ms", None),
    ("find_ms", "find, with its typing: work", "ms", None),
    ("next_match_ms", "next match: work", "ms", 50.0),
    ("zoom_ms", "zoom: work", "ms", 50.0),
    ("flame_ms", "flame graph: work", "ms", 50.0),
    ("process_mb", "memory of the page's process", "MB", 300.0),
)


def measured(folder: Path, counts: tuple[int, ...]) -> Iterator[TraceMeasures]:
    """Yield the measures of traces of these numbers of spans, each at both ratios; the server holds the tree of each already."""
    with served_here(folder) as (url, lake), running_browser() as browser:
        for place, count in enumerate(counts, 1):
            trace_id = bytes([place]) * 16
            for body in large_trace(count, trace_id, time.time_ns() - 3_600 * 10**9):
                lake.traces.write_otlp(body)
            seconds = wait_until_read(url, trace_id.hex())
            print(f"  the server read {count:,} staged spans for the first time in {seconds:.1f} s")
            for ratio in (1, 2):
                yield measure_trace(browser, url, trace_id.hex(), ratio=ratio)


def first_pictures(results: Results, folder: Path) -> None:
    """Open each page on the demo's data in a browser that has nothing cached, three times, and take the middle."""
    with served_here(folder) as (url, lake), running_browser() as browser:
        fill(lake)
        for path in _PATHS:
            found = []
            for _ in range(3):
                with browser.new_context(viewport={"width": 1400, "height": 900}) as context:
                    page = context.new_page()
                    began = time.perf_counter()
                    page.goto(f"{url}/{path}", wait_until="load")
                    page.wait_for_selector("main h1")
                    page.wait_for_function("!document.querySelector('main [aria-busy=true]')")
                    found.append((float(page.evaluate(_PAINTED)), (time.perf_counter() - began) * 1000))
            shown = f"/{path}"
            results.add(_FIRST, Line(f"{shown}: first picture", sorted(first for first, _ in found)[1], "ms"))
            results.add(_FIRST, Line(f"{shown}: all data", sorted(whole for _, whole in found)[1], "ms"))


def _add(results: Results, folder: Path, counts: tuple[int, ...]) -> None:
    for found in measured(folder, counts):
        for name, what, unit, most in _LINES:
            aim = "" if most is None else f"≤ {most:,.0f} {unit}"
            line = Line(f"{found.spans:,} spans, ratio {found.ratio:g}: {what}", getattr(found, name), unit, aim=aim)
            results.add(_TITLE, line)


def pages(bench: Bench) -> None:
    """In Chromium: traces of 300, 50,000 and 1,000,000 spans, opened, scrolled, closed, searched."""
    if reason := reason_to_skip():
        print(f"  left out: {reason}")
        return
    first_pictures(bench.results, bench.folder / "pages-demo")
    _add(bench.results, bench.folder / "pages", (300, 50_000) if bench.quick else (300, 50_000, 1_000_000))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="crannog-bench-") as name:
        first_pictures(Results(), Path(name) / "demo")
        _add(Results(), Path(name) / "warehouse", tuple(map(int, sys.argv[1:])) or (300, 50_000, 1_000_000))
