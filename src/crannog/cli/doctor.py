"""`crannog doctor`: checks whether Crannog can run on this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from crannog.cli.arguments import JsonOption
from crannog.cli.context import answer, place_of
from crannog.cli.output import listing
from crannog.errors import Unavailable

if TYPE_CHECKING:
    from crannog.cli.doctor_checks import Check


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(context: typer.Context, as_json: JsonOption = False) -> None:
    """Check Java, jars, memory, the warehouse, the clock and the ports, and show how to fix problems."""
    from crannog.cli.doctor_checks import examine  # loads Delta and Spark's parts, which no other command's start needs

    checks = examine(place_of(context).settings())
    answer([asdict(check) for check in checks], as_json, lambda: _show(checks))
    if not all(check.ok for check in checks):
        raise typer.Exit(Unavailable.exit_code)


def _show(checks: list[Check]) -> None:
    from rich.text import Text

    verdicts = {True: Text("ok", style="green"), False: Text("no", style="bold red")}
    # As rich text, which is not cut: the list of packages is long.
    lines = [(check.name, verdicts[check.ok], Text(check.found), Text(check.advice)) for check in checks]
    listing(("check", "", "found", "what to do"), lines, empty="")
