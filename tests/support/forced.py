"""The fixtures of the tests that force failures; a plugin of its own, so that pytest may rewrite what they import."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from crannog.engine.open_table import OpenTable
from crannog.settings import Settings
from forcing import Lakes, stand_in_for_spark

_ENOUGH_BYTES = 512 * 1024**2


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: what the disk's fsync costs is not what these tests are about."""
    if not os.access("/dev/shm", os.W_OK) or shutil.disk_usage("/dev/shm").free < _ENOUGH_BYTES:
        yield tmp_path / "warehouse"
        return
    folder = Path(tempfile.mkdtemp(prefix="crannog-forced-", dir="/dev/shm"))
    yield folder / "warehouse"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def lakes(quick_folder: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lakes]:
    """Connections to one warehouse of the test's own, which race for commits: nothing may depend on taking turns."""
    monkeypatch.setattr(OpenTable, "handover_folder", None)
    opener = Lakes(quick_folder, settings)
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
