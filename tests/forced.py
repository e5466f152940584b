"""The fixtures of the tests that force failures; a plugin of its own, so that pytest may rewrite what they import."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crannog.settings import Settings
from forcing import Lakes, stand_in_for_spark


@pytest.fixture
def lakes(tmp_path: Path, settings: Settings) -> Iterator[Lakes]:
    """Connections to one warehouse of the test's own."""
    opener = Lakes(tmp_path / "warehouse", settings)
    yield opener
    opener.close()


@pytest.fixture
def arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs write their files by pyarrow instead of Spark."""
    stand_in_for_spark(monkeypatch)


@pytest.fixture(params=["arrow", "spark"])
def either(request: pytest.FixtureRequest) -> str:
    """The test runs twice: jobs write by pyarrow, and by the real Spark."""
    request.getfixturevalue(request.param)
    return str(request.param)
