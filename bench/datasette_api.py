"""A peer for reading single rows: Datasette, which shows a SQLite file as a JSON API, in a virtual environment of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_INSTALL_S = 300


def installed(folder: Path) -> Path | None:
    """Install Datasette into a new environment in the folder and return its program; None, and a line that says why, if that fails."""
    try:
        _run([sys.executable, "-m", "venv", str(folder)])
        _run(
            [
                str(folder / "bin" / "python"),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "datasette",
            ]
        )
        print(f"  beside {_run([str(folder / 'bin' / 'datasette'), '--version'])}", flush=True)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        print(f"  Datasette cannot be installed and is left out: {said[-1] if said else error}", flush=True)
        return None
    return folder / "bin" / "datasette"


def command(program: Path, file: Path, port: int) -> list[str]:
    """Return how it is started on a SQLite file; `/NAME/orders/KEY.json` is then one row."""
    return [str(program), "serve", str(file), "--port", str(port), "--setting", "default_cache_ttl", "0"]


def _run(words: list[str]) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=_INSTALL_S).stdout.strip()
