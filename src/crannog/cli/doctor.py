"""`crannog doctor`: checks whether Crannog can run on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from crannog.cli.arguments import JsonOption
from crannog.cli.context import answer, place_of
from crannog.errors import Unavailable

if TYPE_CHECKING:
    from crannog.cli.doctor_checks import Check


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(context: typer.Context, as_json: JsonOption = False) -> None:
    """Check Java, jars, memory, the warehouse, the clock and the ports, and show how to fix problems."""
    from dataclasses import asdict

    from crannog.cli.doctor_checks import examine

    checks = examine(place_of(context).settings())
    answer([asdict(check) for check in checks], as_json=as_json, otherwise=lambda: _show(checks))
    if not all(check.ok for check in checks):
        raise typer.Exit(Unavailable.exit_code)


def _show(checks: list[Check]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in ("check", "", "found", "what to do"):
        table.add_column(column, overflow="fold")
    for check in checks:
        verdict = Text("ok", style="green") if check.ok else Text("no", style="bold red")
        table.add_row(Text(check.name), verdict, Text(check.found), Text(check.advice))
    Console().print(table)
