"""Fixtures that every test may use: settings on a folder of the test's own, and the one Spark of the run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from crannog.cli.demo import QUICK_JAVA
from crannog.settings import Settings
from crannog.spark.session import SparkRuntime, spark_runtime

pytest_plugins = ["fast"]


@pytest.fixture(autouse=True, scope="session")
def _own_environment() -> Iterator[None]:
    """Keep the settings of the person who runs the tests out of them; where Java and jars are stays."""
    keep = {"CRANNOG_JAVA_HOME", "CRANNOG_JARS_DIR"}
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("CRANNOG_") and name not in keep]:
            patch.delenv(name)
        # Servers that tests start take free ports, whoever else listens on the usual ones.
        patch.setenv("CRANNOG_OTLP_HTTP_PORT", "0")
        patch.setenv("CRANNOG_SPARK_NICE", "0")  # the tests wait for Spark, and run beside it
        patch.setenv("CRANNOG_OTLP_GRPC_PORT", "0")
        # A test's jobs are short: optimizing compilation would take two fifths of their processor time.
        if "JAVA_TOOL_OPTIONS" not in os.environ:
            patch.setenv("JAVA_TOOL_OPTIONS", QUICK_JAVA)
        yield


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings with a warehouse of the test's own."""
    return Settings(
        warehouse=str(tmp_path / "warehouse"), spark_memory_mb=1024, port=0, otlp_http_port=0, otlp_grpc_port=0
    )


@pytest.fixture(scope="session")
def spark() -> SparkRuntime:
    """The process-wide Spark runtime, which the whole run shares; a start takes seconds."""
    runtime = spark_runtime(Settings(spark_memory_mb=1024, spark_start_timeout_s=240))
    runtime.start_in_background()
    return runtime
