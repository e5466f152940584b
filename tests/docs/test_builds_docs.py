"""The guide to the build log says what is true: its examples run, and it names every method and command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crannog.builds import EventLog, Kind
from crannog.builds.events import PAYLOADS

PAGE = (Path(__file__).parents[2] / "docs" / "builds.md").read_text()


def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) >= 5
    for example in examples:
        exec(compile(example, "docs/builds.md", "exec"), {"__name__": "example"})


def test_every_reading_method_and_kind_is_named() -> None:
    for name in vars(EventLog):
        if name.startswith(("get_", "list_")) and name not in ("list_edges", "list_prunable"):
            assert name in PAGE, name
    for kind in Kind:
        assert PAYLOADS[kind].__name__ in PAGE


def test_every_command_is_named() -> None:
    from typer.main import get_command

    from crannog.cli.main import app

    group = get_command(app).commands["builds"]  # type: ignore[attr-defined]
    for name in group.commands:
        assert f"`{name}" in PAGE, name
