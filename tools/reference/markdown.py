"""Pieces of Markdown that the reference pages are put together from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, and the empty line that ends it; nothing if there are no rows."""
    lines = ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    if not lines:
        return []
    return ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), *lines, ""]


def cell(text: str) -> str:
    """Return a text as one line that does not end its cell."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Return a text in the letters of code; nothing stays nothing."""
    return f"`{text}`" if text else ""


def paragraphs(docstring: str) -> list[str]:
    """Return a docstring as paragraphs of one line each, an empty line after each."""
    lines = []
    for paragraph in re.split(r"\n\s*\n", docstring.strip()):
        lines += [" ".join(paragraph.split()), ""]
    return lines


def document(lines: Iterable[str]) -> str:
    """Return lines as a file: never two empty ones in a row, one end of line at the end."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"
