"""The documentation site builds without a warning, has every page, and fetches nothing from elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
_FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; building it fails the tests on any warning."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False, timeout=120)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr, built.stderr
    return folder


class _Fetches(HTMLParser):
    """What a browser fetches by itself to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(_FETCHED.get(tag, ""))
        if address:
            self.addresses.append(address)


def test_every_page_is_built(site: Path) -> None:
    pages = {str(page.relative_to(ROOT / "docs").with_suffix(".html")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages <= {str(page.relative_to(site)) for page in site.rglob("*.html")}


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    seen = 0
    for page in site.rglob("*.html"):
        fetches = _Fetches()
        fetches.feed(page.read_text())
        for address in fetches.addresses:
            seen += 1
            parts = urlsplit(address)
            assert not parts.netloc, f"{page.name} fetches {address}"
            if parts.path and not parts.path.startswith("/") and parts.scheme != "data":
                assert (page.parent / parts.path).exists(), f"{page.name} wants {address}, which is not there"
    assert seen > 50
    for sheet in site.rglob("*.css"):
        assert "url(http" not in sheet.read_text(), sheet.name
        assert "@import" not in sheet.read_text(), sheet.name


def test_pictures_stand_alone() -> None:
    for picture in (ROOT / "docs" / "pictures").glob("*.svg"):
        text = picture.read_text()
        assert "<title" in text, f"{picture.name} has no words for those who cannot see it"
        assert "href=" not in text
        assert text.count("http") == 1, f"{picture.name} names an address besides its namespace"
