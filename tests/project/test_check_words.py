"""`tools/check_words.py` finds refused words and phrases where they are, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

import check_words
from check_words import check_code, check_document, check_project

FILE = "src/crannog/engine/part.py"


def _lines(source: str, file: str = FILE) -> list[int]:
    return [finding.line for finding in check_code(file, source)]


@pytest.mark.parametrize(
    "source",
    [
        "class NotHere(Exception):\n    pass\n",
        "def find_doomed_files():\n    pass\n",
        "async def _doomed():\n    pass\n",
        "def find(*, doomed=()):\n    pass\n",
        "keep = lambda doomed: not doomed\n",
        "class Plan:\n    doomed: int\n",
        "# What happens\n# behind the\n#  scenes.\n",
        '"""What happens behind\nthe scenes."""\n',
        'limit = 3\n"""Behind the scenes."""\n',
        "# NotFound if there is none\n",
        "raise ValueError(f'{name} is told to stop')\n",
        "# Whoever calls it waits.\n",
        "class HandoverDesk:\n    pass\n",
    ],
)
def test_a_word_is_found(source: str) -> None:
    assert len(_lines(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "def find_search_blob(search_blob):\n    pass\n",  # the name of a stored column
        "def foredoomed(here, not_now):\n    pass\n",
        "names = ['doomed', 'outflow']\n",
        "# what is behind the scene\n",
        "# raises if it is None, too; sonnet; manyfold\n",
    ],
)
def test_other_words_are_not(source: str) -> None:
    assert _lines(source) == []


@pytest.mark.parametrize(
    "source", ["told = 1\n", "for asked in ():\n    pass\n", "text = f'{asked}'\n", "child.told('ready')\n"]
)
def test_some_words_are_refused_as_identifiers_of_any_kind(source: str) -> None:
    assert len(_lines(source)) == 1
    assert _lines(source.replace("told", "is_told").replace("asked", "was_asked")) == []


def test_the_names_of_a_module_and_its_folder_count() -> None:
    assert _lines("", "src/crannog/engine/doomed_files.py") == [1]
    assert _lines("", "src/crannog/doomed/files.py") == [1]


def test_a_finding_has_the_file_the_line_and_what_to_write() -> None:
    [name] = check_code(FILE, "\nimport re\n\ndef sort(doomed):\n    pass\n")
    assert str(name) == f"{FILE}:4: the name doomed has the word 'doomed': write {check_words.WORDS['doomed']}"
    [phrase] = check_code(FILE, "x = 1\n# one\ny = 2\n# two\n# behind the scenes\n")
    assert str(phrase).startswith(f"{FILE}:5: the phrase 'behind the scenes': write ")
    [page] = check_document("docs/page.md", "# Page\n\nWork behind the\nscenes.\n")
    assert (page.file, page.line) == ("docs/page.md", 3)


def test_the_project_is_checked_whole(tmp_path: Path) -> None:
    for name, text in {
        "src/crannog/cli/main.py": "def doomed(): ...\n",
        "tools/reference/pages.py": "def doomed(): ...\n",
        "tools/check_words.py": "def doomed(): ...\n",
        "bench/run.py": "def doomed(): ...\n",
        "docs/reference/python.md": "behind the scenes\n",
        "docs/index.md": "behind the scenes\n",
        "README.md": "behind the scenes\n",
        "bench/RESULTS.md": "behind the scenes\n",
        "tests/test_part.py": "def doomed(): ...\n",
        "tests/engine/test_other.py": "told = 1\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [finding.file for finding in check_project(tmp_path)] == [
        "src/crannog/cli/main.py",
        "tools/reference/pages.py",
        "bench/run.py",
        "tests/engine/test_other.py",
        "README.md",
        "docs/index.md",
        "docs/reference/python.md",
        "bench/RESULTS.md",
    ]


@pytest.mark.slow
def test_this_project_passes() -> None:
    """`make lint` checks the same."""
    assert [str(finding) for finding in check_project(Path(__file__).parents[2])] == []
