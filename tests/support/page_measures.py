"""What the page of a trace costs the browser: processor time of its main thread, not the time of a busy machine."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page

# Tells when the first row, and when all of them were there: milliseconds since the navigation began.
_WATCH = """
window.crannogSeen = {};
new MutationObserver(() => {
  const seen = window.crannogSeen;
  if (!seen.first && document.querySelector(".waterfall-row")) seen.first = performance.now();
  const button = [...document.querySelectorAll(".view-bar button")].find((each) => each.textContent === "Operations");
  if (!seen.whole && button && !button.disabled) seen.whole = performance.now();
}).observe(document, { childList: true, subtree: true, attributes: true, attributeFilter: ["disabled"] });
"""
_FRAMES = 40


@dataclass(frozen=True, slots=True)
class TraceMeasures:
    """Milliseconds, of the main thread's processor time but for `first_rows_ms`, `server_ms` and `all_rows_ms`; memory in MB."""

    spans: int
    ratio: float
    first_rows_ms: float
    server_ms: float  # the part of first_rows_ms that the server took to answer
    all_rows_ms: float
    open_work_ms: float
    scroll_ms_a_frame: float
    jump_ms: float
    collapse_ms: float
    expand_ms: float
    find_ms: float
    next_match_ms: float
    zoom_ms: float
    flame_ms: float
    heap_mb: float
    process_mb: float

    def __str__(self) -> str:
        return ", ".join(f"{each.name} {getattr(self, each.name):.5g}" for each in fields(self))


class _Work:
    """Counts the processor time of a page's main thread."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.session: CDPSession = page.context.new_cdp_session(page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def figures(self) -> dict[str, float]:
        found = self.session.send("Performance.getMetrics")["metrics"]
        return {each["name"]: each["value"] for each in found}

    def of(self, action: Any, frames: int = 2) -> float:
        """Return the milliseconds that an action and the frames after it take."""
        before = self.figures()["TaskDuration"]
        action()
        self._page.evaluate(f"""new Promise((done) => {{
            let left = {frames};
            const next = () => (left-- > 0 ? requestAnimationFrame(next) : setTimeout(done, 0));
            next();
        }})""")
        return (self.figures()["TaskDuration"] - before) * 1_000


def measure_trace(
    browser: Browser, url: str, trace_id: str, *, ratio: float = 1, find: str = "failed"
) -> TraceMeasures:
    """Open a trace, and scroll, close, open, find, zoom; returns what each took."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, device_scale_factor=ratio)
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.add_init_script(_WATCH)
    try:
        page.goto(f"{url}/traces")  # the files of the pages are in the browser's cache, as they are for most visits
        page.wait_for_selector("h1")
        work = _Work(page)
        idle = work.figures()["TaskDuration"]
        page.goto(f"{url}/traces/{trace_id}")
        _wait(page, "window.crannogSeen.whole")
        opened = (work.figures()["TaskDuration"] - idle) * 1_000
        seen = page.evaluate("window.crannogSeen")
        grid = page.get_by_role("treegrid")
        spans = int(grid.get_attribute("aria-rowcount") or 0)
        server = page.evaluate(
            "performance.getEntriesByType('resource').filter((each) => /traces\\/[0-9a-f]{32}\\?limit/.test(each.name))"
            ".map((each) => each.responseStart - each.requestStart)[0] ?? 0"
        )
        grid.focus()
        box = grid.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 200, box["y"] + 200)

        def scroll() -> None:
            for _ in range(_FRAMES):
                page.mouse.wheel(0, 240)
                page.evaluate("new Promise((done) => requestAnimationFrame(done))")

        scrolled = work.of(scroll) / _FRAMES
        jump = work.of(lambda: page.keyboard.press("End"))
        row = page.locator(".waterfall-row[aria-selected=true]")
        assert row.get_attribute("aria-rowindex") == str(spans), "the last row is not reached"
        bottom, own = grid.bounding_box(), row.bounding_box()
        assert bottom is not None
        assert own is not None
        assert own["y"] + own["height"] <= bottom["y"] + bottom["height"] + 1, "the last row is not on the screen"
        page.keyboard.press("Home")
        levels = page.get_by_label("Levels")
        collapse = work.of(lambda: levels.select_option("3"))
        expand = work.of(lambda: levels.select_option("0"))
        found, moved = _find(page, work, find)
        zoomed = work.of(lambda: page.keyboard.press("+"))
        flame = work.of(lambda: page.keyboard.press("f"))
        work.session.send("HeapProfiler.collectGarbage")
        heap = work.figures()["JSHeapUsedSize"] / 1e6
        return TraceMeasures(
            spans, ratio, seen["first"], server, seen["whole"], opened, scrolled, jump, collapse, expand, found, moved,
            zoomed, flame, heap, _process_mb(browser),
        )  # fmt: skip
    finally:
        context.close()


def _wait(page: Page, condition: str) -> None:
    """Wait in the page; Playwright's own way to wait is `eval`, which the pages do not allow."""
    page.evaluate(
        f"new Promise((done) => {{ const look = () => ({condition}) ? done() : setTimeout(look, 50); look(); }})"
    )


def _find(page: Page, work: _Work, text: str) -> tuple[float, float]:
    """Find a text; the time of the server is a wait, and no work of the page."""

    def look() -> None:
        page.get_by_label("Find in this trace").fill(text)
        _wait(page, "/\\/ [1-9]/.test(document.querySelector('.find-count')?.textContent ?? '')")

    found = work.of(look)
    page.get_by_role("treegrid").focus()
    return found, work.of(lambda: page.keyboard.press("n"))


def _process_mb(browser: Browser) -> float:
    """Return the memory of the largest process with a page, without what it shares with others."""
    session = browser.new_browser_cdp_session()
    sizes = [0.0]
    for each in session.send("SystemInfo.getProcessInfo")["processInfo"]:
        rollup = Path(f"/proc/{each['id']}/smaps_rollup")
        if each["type"] == "renderer" and rollup.exists():
            pss = next(line for line in rollup.read_text().splitlines() if line.startswith("Pss:"))
            sizes.append(int(pss.split()[1]) * 1024 / 1e6)
    session.detach()
    return max(sizes)


def wait_until_read(url: str, trace_id: str) -> float:
    """Ask for the first window until the server holds the tree; returns the seconds of the first time."""
    from urllib.request import urlopen

    began = time.monotonic()
    urlopen(f"{url}/api/v1/traces/{trace_id}?limit=1", timeout=120).read()
    return time.monotonic() - began
