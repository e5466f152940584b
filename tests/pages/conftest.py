"""Fixtures of the tests in a browser: one browser and one server with samples for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browsers import Visitor, reason_to_skip, running_browser, served_here
from crannog.tour.samples import fill

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from crannog.embedded import EmbeddedLake


# Of a module, not of the run: Playwright keeps an event loop in the thread, beside which no other test could run one.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for the tests of a module."""
    with running_browser() as found:
        yield found


@pytest.fixture(scope="session")
def sample_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, EmbeddedLake]]:
    """A server over samples that all tests read: its address and its lake. Tests add what they need under names of their own."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    with served_here(tmp_path_factory.mktemp("pages") / "warehouse") as (url, lake):
        fill(lake, traces=300, conversations=12, builds=14, rows=800)
        yield url, lake


@pytest.fixture
def lake(sample_server: tuple[str, EmbeddedLake]) -> EmbeddedLake:
    """The lake that `visitor` looks at."""
    return sample_server[1]


@pytest.fixture
def visitor(browser: Browser, sample_server: tuple[str, EmbeddedLake]) -> Iterator[Visitor]:
    """Opens pages of the server with samples; the test fails if a page says something in the console or asks elsewhere."""
    found = Visitor(browser, sample_server[0])
    yield found
    found.close()
    found.check()


_TESTS_BY_DEFAULT = {
    "test_pages_shell.py": 20,
    "test_pages_sign_in.py": 9,
    "test_trace_page.py": 4,
    "test_traces_page.py": 4,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave most tests of single pages to the slow run, so that the default run stays short: the first of each remain."""
    seen: Counter[str] = Counter()
    for item in items:
        if item.path.parent == Path(__file__).parent:
            seen[item.path.name] += 1
            if seen[item.path.name] > _TESTS_BY_DEFAULT.get(item.path.name, 1):
                item.add_marker(pytest.mark.slow)
