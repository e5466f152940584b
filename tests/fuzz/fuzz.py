"""Fuzz one target with coverage guidance: `make fuzz TARGET=sql SECONDS=60`; without a target, all of them in turn.

Needs atheris (`requirements/fuzz.txt`, which make installs beside the virtual environment). What it finds is written to
.fuzz/findings, what reaches new code to .fuzz/corpus. `--keep` adds the smallest inputs that reach all of it to
tests/fuzz/corpus, which the tests replay.
"""

from __future__ import annotations

import argparse
import base64
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORK = ROOT / ".fuzz"
MEMORY_MB, TIMEOUT_S, LONGEST_INPUT, MOST_KEPT = 2_048, 10, 4_096, 60


def fuzz(name: str, arguments: list[str]) -> None:
    """Fuzz in this process; does not return."""
    import atheris

    with atheris.instrument_imports(include=["crannog"]):
        import crannog.builds.events
        import crannog.delta.json_schema
        import crannog.delta.log
        import crannog.engine.row_pages
        import crannog.engine.rows
        import crannog.engine.sql.commands
        import crannog.engine.sql.query_plan
        import crannog.formats.row_bodies
        import crannog.protocol.staged_files
        import crannog.server.otlp.http2
        import crannog.server.routes.builds
        import crannog.traces.ingest.decode
        import crannog.traces.search.cursors
        import crannog.traces.search.filter_sql  # noqa: F401
    import fuzz_targets

    # To merge, libFuzzer starts itself again, through a shell.
    itself = shlex.join([sys.executable, __file__, "--in-process", name])
    atheris.Setup([itself, *arguments], fuzz_targets.TARGETS[name])
    atheris.Fuzz()


def run(name: str, seconds: int) -> bool:
    """Fuzz a target in a process of its own; return whether nothing was found."""
    import fuzz_targets
    from fuzz_seeds import seeds

    found, grown = WORK / "findings", WORK / "corpus" / name
    found.mkdir(parents=True, exist_ok=True)
    grown.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate([*seeds(name), *fuzz_targets.corpus(name)]):
        (grown / f"seed-{number}").write_bytes(data)
    code = _child(
        name,
        [
            f"-max_total_time={seconds}",
            f"-rss_limit_mb={MEMORY_MB}",
            f"-timeout={TIMEOUT_S}",
            f"-max_len={LONGEST_INPUT}",
            f"-artifact_prefix={found}/{name}-",
            "-print_final_stats=1",
            "-verbosity=1",
            str(grown),
        ],
    )
    print(f"{name}: {'nothing found' if code == 0 else f'a finding, see {found}'}", flush=True)
    return code == 0


def keep(name: str) -> None:
    """Add the smallest inputs that reach all code that the grown corpus reaches to the corpus of the tests."""
    import fuzz_targets

    small = WORK / "smallest" / name
    subprocess.run(["rm", "-rf", str(small)], check=True)
    small.mkdir(parents=True)
    _child(name, ["-merge=1", f"-timeout={TIMEOUT_S}", "-verbosity=0", str(small), str(WORK / "corpus" / name)])
    inputs = sorted({*fuzz_targets.corpus(name), *(path.read_bytes() for path in small.iterdir())}, key=len)
    lines = [base64.b64encode(data).decode() for data in inputs[:MOST_KEPT]]
    (fuzz_targets.CORPUS / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))


def _child(name: str, arguments: list[str]) -> int:
    command = [sys.executable, __file__, "--in-process", name, *arguments]
    # In memory where there is such a place; libFuzzer ends the process without cleaning up.
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch,
        open(WORK / f"{name}.log", "w") as log,
    ):
        env = {**os.environ, "TMPDIR": scratch}
        return subprocess.run(command, stdout=log, stderr=log, check=False, env=env, cwd=WORK).returncode


def main() -> int:
    if sys.argv[1:2] == ["--in-process"]:
        fuzz(sys.argv[2], sys.argv[3:])
    import fuzz_targets

    parser = argparse.ArgumentParser(description="Fuzz what reads bytes of strangers.")
    parser.add_argument("targets", nargs="*", default=[], help="names of targets; all by default")
    parser.add_argument("--seconds", type=int, default=60, help="how long to fuzz each target")
    parser.add_argument("--keep", action="store_true", help="add what reaches new code to the corpus of the tests")
    options = parser.parse_args()
    WORK.mkdir(exist_ok=True)
    names = options.targets or list(fuzz_targets.TARGETS)
    fine = [run(name, options.seconds) for name in names]
    if options.keep:
        for name in names:
            keep(name)
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
