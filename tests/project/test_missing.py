"""A package that is not installed is an error of Crannog's with the one command that adds it, never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# What `pip install --no-deps crannog` with the client's packages leaves out.
NOT_IN_THE_CLIENT = (
    *("deltalake", "duckdb", "sqlglot", "obstore", "pyspark", "delta", "py4j", "pandas", "polars", "numpy", "psycopg"),
    *("google", "opentelemetry", "ptars", "grpc", "fastapi", "starlette", "uvicorn", "uvloop", "httptools"),
    *("zstandard", "hpack", "prometheus_client"),
)
BLOCK = """
import json, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas" and name in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

blocked = json.loads(sys.argv.pop(1))
sys.meta_path.insert(0, Missing())
for name in blocked:
    if name != "pandas":  # pyarrow takes a None for pandas itself
        sys.modules[name] = None
"""
LAKE = "import crannog, pyarrow as pa\nlake = crannog.connect('warehouse')\n"
RESULT = "from crannog.api.result import Result\nimport pyarrow as pa\nresult = Result(pa.table({'a': [1]}), 'local', False, 1.0, 'q')\n"


def run(folder: Path, blocked: tuple[str, ...], program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCK + program, json.dumps(blocked), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("package", "program", "purpose", "command"),
    [
        ("deltalake", LAKE, "a warehouse opened in this process", "crannog"),
        ("obstore", "import crannog\ncrannog.connect('s3://bucket/lake')", "a warehouse opened", "crannog"),
        ("opentelemetry", f"{LAKE}lake.traces", "lake.traces", "crannog"),
        ("ptars", f"{LAKE}lake.traces.write_otlp(b'')", "OTLP", "crannog"),
        ("sqlglot", f"{LAKE}lake.sql('select 1')", "SQL", "crannog"),
        (
            "duckdb",
            f"{LAKE}lake.create_table('a.b.c', pa.schema([('a', pa.int64())])).append([{{'a': 1}}])\n"
            "lake.sql('select * from a.b.c')",
            "reading tables in this process",
            "crannog",
        ),
        (
            "pyspark",
            f"{LAKE}table = lake.create_table('a.b.c', pa.schema([('a', pa.int64())]))\n"
            "table.append([{'a': 1}])\ntable.fold()",
            "Spark",
            "crannog",
        ),
        ("deltalake", "import crannog.builds as b\nb.open_log('delta:///tmp/x')", "the build log delta:///", "crannog"),
        (
            "psycopg",
            "import crannog.builds as b\nb.open_log('postgresql://me:secret@host/db')",
            "the build log postgresql://",
            "'psycopg[binary]'",
        ),
        (
            "google.protobuf",
            "from crannog.builds.protobuf import message_type\nmessage_type('BuildEvent')",
            "the protobuf form of build events",
            "crannog",
        ),
        ("pandas", f"{RESULT}result.to_pandas()", "to_pandas()", "'pandas<3'"),
        ("polars", f"{RESULT}result.to_polars()", "to_polars()", "polars"),
        (
            "zstandard",
            "from crannog.formats.row_bodies import _from_zstd\nlist(_from_zstd(b'1234'))",
            "zstd",
            "crannog",
        ),
        (
            "opentelemetry.sdk",
            "from crannog.server.middleware import TracingMiddleware\nTracingMiddleware(None, 'http://127.0.0.1:1')",
            "the setting spans_endpoint",
            "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
        ),
    ],
)
def test_the_error_names_the_command(tmp_path: Path, package: str, program: str, purpose: str, command: str) -> None:
    ran = run(tmp_path, (package,), program)
    last = ran.stderr.strip().splitlines()[-1]
    assert last.startswith(f"crannog.errors.NotInstalled: {purpose}"), ran.stderr
    assert f"needs the package {package}" in last
    assert last.endswith(f"which is not installed: pip install {command}")
    assert "secret" not in ran.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve",),
        ("demo",),
        ("--warehouse", ".", "tables"),
        ("--warehouse", ".", "sql", "select 1"),
        ("--warehouse", ".", "load", "rows.csv", "a.b.c", "--create"),
        ("--warehouse", ".", "fold", "a.b.c"),
        ("--warehouse", ".", "traces", "services"),
        ("--warehouse", ".", "builds", "list"),
    ],
    ids=lambda arguments: arguments[-1],
)
def test_a_command_that_the_thin_client_cannot_run_says_so_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n")
    ran = run(tmp_path, NOT_IN_THE_CLIENT, "from crannog.cli.main import run\nrun()", *arguments)
    [line] = ran.stderr.strip().splitlines()
    assert line.startswith("crannog: ")
    assert line.endswith("which is not installed: pip install crannog")
    assert ran.returncode == 5


def test_the_doctor_of_a_thin_client_runs_and_help_does(tmp_path: Path) -> None:
    for arguments in (("--help",), ("serve", "--help"), ("doctor", "--json")):
        ran = run(tmp_path, NOT_IN_THE_CLIENT, "from crannog.cli.main import run\nrun()", *arguments)
        assert ran.returncode in (0, 5), ran.stderr
        assert "Traceback" not in ran.stderr


def test_a_missing_module_of_our_own_is_a_bug_and_stays_one(tmp_path: Path) -> None:
    ran = run(tmp_path, ("crannog.embedded",), "import crannog\ncrannog.connect('warehouse')")
    assert ran.stderr.strip().splitlines()[-1].startswith("ModuleNotFoundError: ")
