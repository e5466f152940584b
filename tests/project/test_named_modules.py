"""The modules, folders and tests that ARCHITECTURE.md and CONTRIBUTING.md name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "crannog"
DOCUMENTS = ("ARCHITECTURE.md", "CONTRIBUTING.md")
_QUOTED = re.compile(r"`([^`\n]+)`")


def quoted(document: str) -> list[str]:
    """Return the text in backticks, outside of blocks of code."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return _QUOTED.findall(re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def is_path(name: str) -> bool:
    """Tell whether a name is that of a module or of something in a folder of the repository or the package."""
    if not re.fullmatch(r"[\w.*/-]+", name) or name.startswith("/"):
        return False
    first = name.partition("/")[0]
    return name.endswith(".py") or ("/" in name and any((top / first).is_dir() for top in (ROOT, PACKAGE)))


def exists(name: str) -> bool:
    """Tell whether a path exists, from the root or from any folder of the package."""
    return any(ROOT.glob(name.rstrip("/"))) or any((ROOT / "src").rglob(name.rstrip("/")))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_exists(document: str) -> None:
    paths = [name for name in quoted(document) if is_path(name)]
    assert paths
    assert [name for name in paths if not exists(name)] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_test_exists(document: str) -> None:
    tests = [name for name in quoted(document) if re.fullmatch(r"test_\w+", name)]
    assert [name for name in tests if not any((ROOT / "tests").rglob(f"{name}.py"))] == []


def test_every_module_of_the_map_exists() -> None:
    """A row of the map has a folder, and names modules and folders in it."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|[^|]*\| `([\w/]+)/` \|(.*)\|$", text, flags=re.MULTILINE)
    assert len(rows) > 12
    missing = [
        f"{folder}/{name}"
        for folder, description in rows
        for name in _QUOTED.findall(description)
        if re.fullmatch(r"[a-z_]+/?", name)
        and not (PACKAGE / folder / name).is_dir()
        and not (PACKAGE / folder / f"{name}.py").is_file()
    ]
    assert missing == []
