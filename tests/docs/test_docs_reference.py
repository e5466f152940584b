"""The reference pages are what the code says today, and leave nothing out."""

from __future__ import annotations

import inspect
import shlex
from pathlib import Path

import pytest

from crannog import errors
from crannog.api.lake import Cache, Lake
from crannog.api.table import Table
from reference import error_tree
from reference.cli_examples import EXAMPLES
from reference.command_line import commands
from reference.http_routes import openapi, routes
from reference.pages import PAGES

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
COMMANDS = [(path, command) for path, command in commands() if path and not hasattr(command, "commands")]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_as_the_code_is(name: str) -> None:
    page = FOLDER / f"{name}.md"
    assert page.exists()
    assert page.read_text() == PAGES[name](), "run: make docs"


def test_there_are_no_other_pages() -> None:
    assert {page.stem for page in FOLDER.glob("*.md")} == set(PAGES)


def test_every_error_says_what_to_do() -> None:
    kinds = {
        kind.__name__
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, errors.CrannogError)
    }
    assert kinds == set(error_tree.ADVICE)


def test_every_command_and_option_is_told() -> None:
    page = PAGES["cli"]()
    for path, command in COMMANDS:
        assert f"## {' '.join(path)}\n" in page
        for option in command.params:
            assert option.param_type_name == "argument" or f"`{option.opts[0]}`" in page, (path, option.name)


@pytest.mark.parametrize("path", [path for path, _ in COMMANDS], ids=" ".join)
def test_every_command_has_an_example_that_it_would_take(path: tuple[str, ...]) -> None:
    assert path in EXAMPLES, "add one to tools/reference/cli_examples.py"
    for line in EXAMPLES[path]:
        assert line.split("#")[0].strip() == line
        words = shlex.split(line.partition(" < ")[0].partition(" > ")[0])
        command = dict(commands())[path]
        start = next(place for place in range(len(words)) if words[place] == path[-1] and place >= len(path))
        command.make_context(" ".join(path), words[start + 1 :])


def test_examples_are_of_commands_that_exist() -> None:
    assert set(EXAMPLES) <= {path for path, _ in COMMANDS}


def test_every_route_is_told() -> None:
    page = PAGES["http"]()
    found = list(routes(openapi()))
    assert len(found) > 20
    for route in found:
        assert f"### {route.method} {route.path}\n" in page


def test_every_verb_is_told() -> None:
    page = PAGES["python"]()
    for word, kind in (("lake", Lake), ("table", Table), ("lake.cache", Cache)):
        for name in vars(kind):
            assert name.startswith("_") or f"### {word}.{name}\n" in page, name
