"""Which reference pages there are."""

from __future__ import annotations

from collections.abc import Callable

from reference.command_line import page as command_line
from reference.error_tree import page as error_tree
from reference.http_routes import page as http_routes
from reference.python_verbs import page as python_verbs

PAGES: dict[str, Callable[[], str]] = {
    "python": python_verbs,
    "cli": command_line,
    "http": http_routes,
    "errors": error_tree,
}
"""Each page by its name: docs/reference/NAME.md."""
