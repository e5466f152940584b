"""The command line: options shared by all commands, the command groups, and exit codes for errors.

A group is a module of this package with `add_to(app)`, listed in `GROUPS`. Its imports at the top
stay light (typer and `context`), so that `--help` is fast.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated, NoReturn

import typer

from crannog.cli.completion import put_words_together
from crannog.cli.context import Place
from crannog.cli.import_guard import leave_out_what_is_slow
from crannog.errors import CallerError, CrannogError

GROUPS = ("tables", "sql", "changes", "load", "maintenance", "traces", "builds", "serve", "token", "demo", "doctor")

app = typer.Typer(
    name="crannog",
    help="A lakehouse for operational data on open Delta Lake tables.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from crannog import __version__

        typer.echo(f"crannog {__version__}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    warehouse: Annotated[
        str, typer.Option(metavar="DIR", help="Warehouse: a folder, or a file:// or s3:// address.")
    ] = "",
    server: Annotated[str, typer.Option(metavar="URL", help="Use the server at this address.")] = "",
    token: Annotated[
        str,
        typer.Option(metavar="TOKEN", help="Token for the server; CRANNOG_TOKEN keeps it out of the process list."),
    ] = "",
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """A lakehouse for operational data on open Delta Lake tables."""
    if warehouse and server:
        raise CallerError("give --warehouse or --server, not both")
    context.obj = Place(warehouse=warehouse, server=server, token=token)


for _group in GROUPS:
    import_module(f"crannog.cli.{_group}").add_to(app)


def run() -> None:
    """Run a command; a CrannogError becomes one line on stderr and an exit code."""
    leave_out_what_is_slow()
    put_words_together(os.environ)
    try:
        app()
    except CrannogError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        from crannog.missing import not_installed

        _fail(not_installed(error, "this command"))


def _fail(error: CrannogError) -> NoReturn:
    print(f"crannog: {error.message}", file=sys.stderr)
    sys.exit(error.exit_code)


if __name__ == "__main__":
    run()
