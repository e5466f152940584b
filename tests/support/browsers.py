"""A real browser on the pages: pages that fail their test when they say something in the console or ask elsewhere."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from crannog.embedded import EmbeddedLake
from crannog.server.http_server import HttpServer
from crannog.settings import load_settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
BUILT = ROOT / "src" / "crannog" / "server" / "pages" / "built"
AXE = WEB / "node_modules" / "axe-core" / "axe.min.js"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE_MS = 20_000
_SERIOUS = ("serious", "critical")


@cache
def reason_to_skip() -> str | None:
    """Return why the pages cannot be tested here, with the command that changes it; None if they can."""
    if not (BUILT / "source.sha256").is_file():
        return "the pages are not built: run `make pages`"
    if (BUILT / "source.sha256").read_text() != _source_hash():
        return "the pages are not those of their source: run `make pages`"
    if not any(map(shutil.which, _NAMES)):
        return "there is no Chromium here: run `apt-get install chromium`"
    return None


def _source_hash() -> str:
    """Hash the source as web/vite.config.ts does."""
    found = hashlib.sha256()
    for path in sorted(str(path) for path in (WEB / "src").rglob("*") if path.is_file()):
        found.update(Path(path).read_bytes())
    return found.hexdigest()


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run Chromium without a window; skips the test if Chromium is not installed or the pages are not built."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is missing: run `make setup`")
    path = next(filter(None, map(shutil.which, _NAMES)))
    # A machine that runs other tests beside these is slow; what never comes fails all the same.
    api.expect.set_options(timeout=_PATIENCE_MS)
    # Chromium's sandbox does not work for root.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def served_here(warehouse: Path, **settings: Any) -> Iterator[tuple[str, EmbeddedLake]]:
    """Serve a warehouse from this process; yields the address and the lake. Nothing starts Spark."""
    quiet = {"spark_at_start": False, "audit": False, "otlp_http_port": 0, "otlp_grpc_port": 0}
    own = load_settings(warehouse=str(warehouse), **{**quiet, **settings})
    with EmbeddedLake(str(warehouse), settings=own) as lake:
        server = HttpServer(lake, "127.0.0.1", 0)
        server.start()
        try:
            yield server.url, lake
        finally:
            server.stop_accepting()
            server.cancel_running()
            server.join(5)
            server.close()


class Visitor:
    """Opens pages of one server; `check` fails on what should not have happened on them."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self.url = url
        self._contexts: list[Any] = []
        self.wrong: list[str] = []

    def open(
        self, address: str = "/", *, width: int = 1400, dark: bool = False, ratio: float = 1, **options: Any
    ) -> Page:
        """Open an address in a window of its own, and wait until it shows a heading."""
        context = self._browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            device_scale_factor=ratio,
            **options,
        )
        context.set_default_timeout(_PATIENCE_MS)
        self._contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: self.wrong.append(f"console: {message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("request", lambda request: self._look_at(request.url))
        page.goto(self.url + address)
        page.wait_for_selector("h1")
        return page

    def _look_at(self, url: str) -> None:
        parts, own = urlsplit(url), urlsplit(self.url)
        if (parts.scheme, parts.netloc) != (own.scheme, own.netloc) and parts.scheme not in ("data", "blob"):
            self.wrong.append(f"a request left the server: {url}")

    def close(self) -> None:
        """Close all windows."""
        while self._contexts:
            self._contexts.pop().close()

    def check(self) -> None:
        """Fail if a page wrote to the console, failed, or asked another server."""
        assert self.wrong == [], "\n".join(self.wrong)


def check_accessible(page: Page) -> None:
    """Fail on serious findings of axe-core; skips where npm did not install it."""
    if not AXE.is_file():
        pytest.skip("axe-core is missing: run `make pages`")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run().then((result) => result.violations)")
    serious = [
        f"{each['id']}: {each['help']}: {node['html'][:200]} {node.get('failureSummary', '')}"
        for each in found
        if each["impact"] in _SERIOUS
        for node in each["nodes"][:3]
    ]
    assert serious == [], "\n".join(serious)


def check_width(page: Page) -> None:
    """Fail if the page is wider than its window, so that one would have to scroll it sideways."""
    widths = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert widths[0] <= widths[1], f"the page is {widths[0]} px wide in a window of {widths[1]} px"


@contextmanager
def behind_prefix(url: str, prefix: str) -> Iterator[str]:
    """Serve a server under a prefix, as a proxy does that removes it; yields the address with the prefix."""
    target = urlsplit(url).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            if not self.path.startswith(prefix + "/"):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            inner = http.client.HTTPConnection(target, timeout=20)
            inner.request(self.command, self.path[len(prefix) :], body, dict(self.headers))
            answer = inner.getresponse()
            content = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                    self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            inner.close()

        do_GET = do_POST = do_DELETE = do_PUT = _pass_on

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{proxy.server_address[1]}{prefix}"
    finally:
        proxy.shutdown()
        proxy.server_close()
