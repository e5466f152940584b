"""Look up known vulnerabilities of all pinned packages: `PYTHONPATH=tools python -m supply_chain.vulnerabilities PIP_AUDIT`.

Exits with 0 if none is known, with 1 if some are, and with 2 if no database answers: then nothing is known either way.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from supply_chain.packages import ROOT

_SERVICES = ("pypi", "osv")
_TIMEOUT_S = 600
Run = Callable[[Sequence[str], Path], "subprocess.CompletedProcess[str]"]


def run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program and return what it printed; one that takes too long counts as one that failed."""
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", f"{type(error).__name__}: {error}")


def of_python(pip_audit: str, run: Run = run) -> list[str] | None:
    """Return a line for each vulnerability of the pins in requirements/; None if no database answers for one of the files."""
    # One file at a time: the environments they are for may have different versions of one package.
    found = [_of_pins(pip_audit, file, run) for file in sorted((ROOT / "requirements").glob("*.txt"))]
    known = sorted({line for lines in found if lines is not None for line in lines})
    return None if None in found and not known else known


def _of_pins(pip_audit: str, file: Path, run: Run) -> list[str] | None:
    for service in _SERVICES:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.json")
            options = [
                "--disable-pip",
                "--require-hashes",
                "--progress-spinner",
                "off",
                "--format",
                "json",
                "-o",
                str(report),
            ]
            done = run([pip_audit, *options, "--vulnerability-service", service, "-r", str(file)], ROOT)
            found = _read(report.read_text(encoding="utf-8")) if report.exists() else None
        if found is None:
            print(f"{file.name}: no report with the database {service}: {_last_line(done.stderr)}", file=sys.stderr)
            continue
        holes = [
            f"{entry['name']} {entry['version']}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'no version'}"
            for entry in found["dependencies"]
            for hole in entry.get("vulns", ())
        ]
        # A mirror without the database answers that it knows none of the packages.
        unknown = [entry["name"] for entry in found["dependencies"] if "skip_reason" in entry]
        if holes or not unknown:
            return holes
        print(
            f"{file.name}: the database {service} does not know {len(unknown)} packages: {unknown[0]} …",
            file=sys.stderr,
        )
    return None


def of_the_pages(run: Run = run) -> list[str] | None:
    """Return a line for each vulnerable package of the web pages; None if the database does not answer."""
    npm = shutil.which("npm")
    if npm is None:
        print("there is no npm here, which looks up the packages of the web pages", file=sys.stderr)
        return None
    done = run([npm, "audit", "--package-lock-only", "--json"], ROOT / "web")
    found = _read(done.stdout)
    if found is None or "vulnerabilities" not in found:
        reason = (found or {}).get("message") or _last_line(done.stderr)
        print(f"npm audit gave no report: {reason}", file=sys.stderr)
        return None
    return [f"{name}: {entry['severity']}, in {entry['range']}" for name, entry in found["vulnerabilities"].items()]


def _read(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _last_line(text: str) -> str:
    return next((line.strip()[:300] for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")


def verdict(results: dict[str, list[str] | None]) -> int:
    """Print what was found, and return the exit code."""
    for name, found in results.items():
        if found is None:
            print(f"{name}: NOT CHECKED, since no database of vulnerabilities answered; the reasons are above")
        elif found:
            print(f"{name}: {len(found)} known vulnerabilities", *found, sep="\n  ")
        else:
            print(f"{name}: no known vulnerability")
    if any(results.values()):
        return 1
    return 2 if None in results.values() else 0


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("give the program: python -m supply_chain.vulnerabilities .venv-audit/bin/pip-audit")
    sys.exit(verdict({"packages of Python": of_python(sys.argv[1]), "packages of the pages": of_the_pages()}))


if __name__ == "__main__":
    main()
