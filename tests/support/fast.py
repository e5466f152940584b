"""`pytest --fast`: the tests for every save, those that start neither Spark nor another process.

A test is left out if it uses a fixture that starts one, and skipped at the moment it would start one in some other way.
What takes long by itself (LONG) is left out too: run it when you change its part.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from crannog.spark.session import SparkRuntime

# Fixtures that start Spark, PostgreSQL, an S3 server or a child process.
STARTS_SOMETHING = frozenset({"spark", "postgres", "s3_server", "mother", "browser", "sample_server"})

LONG = (
    "/protocol/",
    "/docs/",
    "/spark/",
    "/cli/test_cli_traces.py",
    "/engine/test_writer.py",
    "/server/test_otlp_hard.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out tests that start Spark or another process")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--fast"):
        return
    left_out = [
        item
        for item in items
        if STARTS_SOMETHING & set(getattr(item, "fixturenames", ()))
        or any(part in item.path.as_posix() for part in LONG)
    ]
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


@pytest.fixture(autouse=True, scope="session")
def _start_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Skip a test that would start Spark or a process, when it does."""
    if not request.config.getoption("--fast"):
        yield
        return

    def skip(*_: object, **__: object) -> None:
        pytest.skip("starts Spark or another process; `make test` runs it")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkRuntime, "session", skip)
        patch.setattr(SparkRuntime, "start_in_background", skip)
        patch.setattr(subprocess.Popen, "__init__", skip)
        yield
