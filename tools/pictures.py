"""Takes the pictures of the web pages for the documentation, from the data of the demo, with the browser of the tests.

    python tools/pictures.py [NAME …]        writes docs/pictures/pages/NAME.webp, all or those named

Needs the pages as `make pages` builds them, Chromium and Playwright, and Spark, which gives the tables a history.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

TARGET = Path(__file__).parents[1] / "docs" / "pictures" / "pages"
_QUALITY = 82
_SIZE = {"width": 1280, "height": 800}
_PHONE = {"width": 390, "height": 780}
_SETTLE_MS = 1_500
_PATIENCE_S = 600


class Server:
    """The demo as a person starts it, with what its pages need to be addressed."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "crannog.cli.main", "demo", "--serve", "--keep", str(folder), "--port", "0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = next(line for line in self._process.stdout if line.startswith("look at it")).split()[-1]
        self._client = httpx.Client(base_url=f"{self.url}/api/v1", timeout=60)

    def get(self, path: str, **query: Any) -> Any:
        """Ask the API."""
        return self._client.get(path, params=query).raise_for_status().json()

    def wait_for_history(self) -> None:
        """Wait until Spark has folded the orders three times."""
        ends = time.monotonic() + _PATIENCE_S
        while len(self.get("/tables/shop.sales.orders/history")) < 4 and time.monotonic() < ends:
            time.sleep(2)

    def failed_checkout(self) -> str:
        """Return the id of a trace with an error."""
        found = self.get("/traces", service="payments", has_errors=True, limit=1)["traces"]
        return str(found[0]["trace_id"])

    def build(self, status: str) -> str:
        """Return the id of the newest build with a status."""
        return str(self.get("/builds", status=status, limit=1)["builds"][0]["build_request_id"])

    def close(self) -> None:
        """Stop it."""
        self._client.close()
        self._process.terminate()
        self._process.wait(30)


_QUERY = (
    "SELECT state, count(*) AS orders, sum(amount) AS total FROM shop.sales.orders GROUP BY state ORDER BY total DESC"
)
Address = Callable[[Server], str]
PICTURES: dict[str, Address] = {
    "home": lambda server: "/",
    "traces": lambda server: "/traces",
    "trace": lambda server: f"/traces/{server.failed_checkout()}",
    "services": lambda server: "/services",
    "map": lambda server: "/services?tab=map",
    "conversations": lambda server: "/conversations",
    "conversation": lambda server: "/conversations/chat-0001",
    "tables": lambda server: "/tables",
    "table": lambda server: "/tables/shop.sales.orders",
    "statistics": lambda server: "/tables/shop.sales.orders?tab=statistics",
    "sql": lambda server: str(httpx.URL("/sql", params={"q": _QUERY})),
    "load": lambda server: "/load",
    "builds": lambda server: "/builds",
    "build": lambda server: f"/builds/{server.build('BUILD_REQUEST_FAILED')}",
    "graph": lambda server: f"/builds/{server.build('BUILD_REQUEST_FAILED')}?view=graph",
    "jobs": lambda server: "/jobs",
    "lineage": lambda server: str(
        httpx.URL("/lineage", params={"ref": f"marts/revenue/date={time.strftime('%Y-%m-%d')}"})
    ),
    "upkeep": lambda server: "/upkeep",
    "erase": lambda server: "/erase",
}


_ACTS: dict[str, Callable[[Page], object]] = {
    "sql": lambda page: page.get_by_role("button", name="Run").click(),
    "trace": lambda page: page.get_by_text("POST bank/authorize").first.click(),
}
"""What is done on a page before its picture is taken."""


def main(names: list[str]) -> int:
    """Take the pictures."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        print("there is no Chromium here: run `apt-get install chromium`", file=sys.stderr)
        return 1
    TARGET.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = Server(Path(folder) / "warehouse")
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=options)
        try:
            server.wait_for_history()
            for name in names or PICTURES:
                _take(browser, server, name)
            if not names:
                _take(browser, server, "traces", suffix="-dark", color_scheme="dark")
                _take(browser, server, "home", suffix="-phone", viewport=_PHONE, device_scale_factor=2)
        finally:
            browser.close()
            server.close()
    return 0


def _take(browser: Browser, server: Server, name: str, *, suffix: str = "", **options: Any) -> None:
    context = browser.new_context(**{"viewport": _SIZE, "timezone_id": "UTC", "color_scheme": "light", **options})
    page = context.new_page()
    page.goto(server.url + PICTURES[name](server))
    page.wait_for_selector("h1, .empty")
    page.wait_for_timeout(_SETTLE_MS)
    if name in _ACTS:
        _ACTS[name](page)
        page.wait_for_timeout(_SETTLE_MS)
    if page.get_by_text("There is no such page").count():
        print(f"{name}: there is no such page yet")
    else:
        target = TARGET / f"{name}{suffix}.webp"
        target.write_bytes(_picture(page))
        print(f"{target.relative_to(TARGET.parents[2])}: {target.stat().st_size / 1000:.0f} KB")
    context.close()


def _picture(page: Page) -> bytes:
    """Take a picture as WebP, which Playwright's own way does not offer."""
    session = page.context.new_cdp_session(page)
    taken = session.send("Page.captureScreenshot", {"format": "webp", "quality": _QUALITY})
    return base64.b64decode(taken["data"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
