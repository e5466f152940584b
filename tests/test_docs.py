"""The documents say what is true: their examples run, and every setting is listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crannog.lake.spark import SparkRuntime
from crannog.settings import Settings, reference

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "docs" / "tables.md", ROOT / "docs" / "sql.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkRuntime) -> None:
    examples = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert examples
    monkeypatch.chdir(tmp_path)
    for example in examples:
        exec(compile(example, str(page), "exec"), {"__name__": "example"})


def test_every_setting_is_documented() -> None:
    assert (ROOT / "docs" / "settings.md").read_text() == reference(), "run: python -m crannog.settings > docs/settings.md"
    for name, field in Settings.model_fields.items():
        assert field.description, name


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
