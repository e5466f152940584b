"""Which reference pages there are."""

from __future__ import annotations

from collections.abc import Callable

from crannog.reference import command_line, error_tree, http_routes, python_verbs

PAGES: dict[str, Callable[[], str]] = {
    "python": python_verbs.page,
    "cli": command_line.page,
    "http": http_routes.page,
    "errors": error_tree.page,
}
"""Each page by its name: docs/reference/NAME.md."""
