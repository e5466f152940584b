"""The server of a chaos run: `crannog serve` with faults, as its own program and as the runner sees it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SETTINGS: dict[str, Any] = {
    "port": 0,
    "otlp_http_port": 0,
    "otlp_grpc_port": 0,
    "fold_age_s": 8,
    "fold_grace_s": 0,
    "lease_wait_s": 1,
    "compact_interval_s": 20,
    "vacuum_interval_s": 30,
    "scheduler_tick_s": 1,
    "spark_memory_mb": 1024,
    "spark_nice": 19,
    "audit": False,
    "rate_per_s": 0,
}
_ADDRESS = re.compile(r" at (https?://[^\s;]+);")
_OTLP_PORT = re.compile(r"OTLP on port (\d+)")


class Server:
    """A server process, its Java process, and the file that tells clients where it is."""

    def __init__(self, location: str, work: Path, plan: Mapping[str, Any], *, spark: bool) -> None:
        self._work = work
        self.address_file = work / "server.json"
        settings = {**SETTINGS, "warehouse": location, "spark_at_start": spark}
        if not spark:
            settings.update(fold_age_s=10**6, fold_rows=10**9, fold_bytes=10**12, fold_share=1)
        env = {
            **os.environ,
            **{f"CRANNOG_{name.upper()}": str(value) for name, value in settings.items()},
            "CHAOS_PLAN": json.dumps({**plan, "journal": str(work / "server.journal")}),
            "TMPDIR": str(work / "tmp"),
        }
        self._output = work / "server.out"
        with open(self._output, "wb") as output, open(work / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.DEVNULL, stdout=output, stderr=log, env=env, cwd=work
            )

    def look(self) -> None:
        """Write down where it listens, as soon as it says so."""
        if self.is_ready or self.has_ended():
            return
        text = self._output.read_text(errors="replace")
        address, port = _ADDRESS.search(text), _OTLP_PORT.search(text)
        if address and port:
            ready = self.address_file.with_suffix(".new")
            ready.write_text(json.dumps({"url": address[1], "otlp": f"http://127.0.0.1:{port[1]}"}))
            ready.replace(self.address_file)

    @property
    def is_ready(self) -> bool:
        return self.address_file.exists()

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def java(self) -> int | None:
        """Return the id of its Java process."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    if parent == self.process.pid and "java" in (entry / "comm").read_text():
                        return int(entry.name)
                except OSError:
                    continue
        return None

    def send(self, number: int) -> None:
        if not self.has_ended():
            self.process.send_signal(number)

    def end(self) -> int | None:
        """Kill it and return the id of its Java process, which ends by itself, soon."""
        self.address_file.unlink(missing_ok=True)
        java = self.java()
        self.send(signal.SIGKILL)
        self.process.wait()
        return java


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main() -> None:
    """Run the server with the faults of CHAOS_PLAN."""
    import chaos_faults
    from chaos_client import die_with_parent
    from chaos_journal import Journal
    from crannog import embedded
    from crannog.cli.main import run

    die_with_parent()
    plan = json.loads(os.environ["CHAOS_PLAN"])
    note = Journal(Path(plan["journal"])).write
    chaos_faults.install(plan, note)
    if plan.get("storage"):
        opened = embedded.EmbeddedLake.__init__

        def unreliable(self: Any, *arguments: Any, **options: Any) -> None:
            opened(self, *arguments, **options)
            chaos_faults.make_unreliable(self, plan, note)

        embedded.EmbeddedLake.__init__ = unreliable  # type: ignore[method-assign]
    sys.argv = ["crannog", "serve"]
    run()


if __name__ == "__main__":
    main()
