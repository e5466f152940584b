"""Scratch folders: those of killed processes are removed, of whatever kind; those of living ones stay."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from crannog.storage import scratch_folders

_CREATES = """
import time
from crannog.storage import scratch_folders
for kind in scratch_folders.KINDS:
    (scratch_folders.create(kind) / "rows").write_bytes(b"1")
print("created", flush=True)
time.sleep(60)
"""


def test_folders_of_a_killed_process_are_removed_and_those_of_a_living_one_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert {"spark", "spill", "copies", "task", "load"} <= set(scratch_folders.KINDS)
    other = subprocess.Popen([sys.executable, "-c", _CREATES], stdout=subprocess.PIPE)
    assert other.stdout is not None
    with other.stdout:
        assert other.stdout.readline() == b"created\n"
    found = sorted(tmp_path.iterdir())
    assert len(found) == len(scratch_folders.KINDS)
    with scratch_folders.scratch_folder("load") as ours:
        assert scratch_folders.remove_abandoned() == []
        other.kill()
        other.wait()
        assert sorted(scratch_folders.remove_abandoned()) == found
        assert list(tmp_path.iterdir()) == [ours]
    assert list(tmp_path.iterdir()) == []
