"""How much a browser loads for the first page: no more than the limit, and no library before it is needed."""

from __future__ import annotations

import gzip
import json

from playwright.sync_api import Response

from browsers import BUILT, Visitor

FIRST_PAGE_BYTES = 200_000


def test_the_first_page_is_small(visitor: Visitor) -> None:
    loaded: dict[str, int] = {}

    def note(response: Response) -> None:
        name = response.url.removeprefix(visitor.url).lstrip("/").partition("?")[0]
        if not name.startswith("api/"):
            loaded[name] = len(gzip.compress((BUILT / (name or "index.html")).read_bytes()))

    page = visitor.open("/")
    page.context.clear_cookies()
    page.on("response", note)
    page.reload()
    page.wait_for_selector(".chart canvas")
    assert any(name.endswith(".js") for name in loaded)
    assert sum(loaded.values()) < FIRST_PAGE_BYTES, json.dumps(loaded, indent=1)
