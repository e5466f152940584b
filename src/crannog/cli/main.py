"""The command line: options shared by all commands, the command groups, a quick start, and exit codes for errors.

A group is a module of this package with `add_to(app)`, listed in `GROUPS`. Its imports at the top
stay light (typer and `context`), so that `--help` is fast.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Annotated, NoReturn

import typer

from crannog.cli.context import Place
from crannog.errors import CallerError, CrannogError

# bash splits words at colons and equals signs; in our arguments neither is a word by itself.
_SPLIT = re.compile(r"(?<=\S)[ \n]([:=])[ \n](?=\S)")
GROUPS = ("tables", "sql", "changes", "load", "maintenance", "traces", "builds", "serve", "tokens", "demo", "doctor")

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


def leave_out_what_is_slow() -> None:
    """Hide packages from other libraries that are slow to load and that no command needs.

    pyarrow would load numpy and pandas, which takes a second, at the first array it creates; no command returns data
    frames. (Spark and the trees of traces need numpy and get it.) httpx would load its own command line. If pyarrow
    is already loaded, this runs inside another program, and nothing is hidden. A server gets everything, since it starts
    only once.
    """
    if "pyarrow" not in sys.modules and "pandas" not in sys.modules and "serve" not in sys.argv:
        sys.meta_path.insert(0, _LeftOut())


class _LeftOut(MetaPathFinder, Loader):
    _NAMES = frozenset({"pandas", "numpy", "httpx._main"})

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "numpy" and ("pyspark" in sys.modules or "crannog.traces.tree.tree_building" in sys.modules):
            return None
        return ModuleSpec(name, self) if name in self._NAMES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        raise ModuleNotFoundError(f"the command line works without {spec.name}", name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        raise AssertionError("create_module always raises")


def put_words_together(environment: MutableMapping[str, str]) -> None:
    """Join the words that bash splits: it passes `http://host:7117` to completion as five words."""
    if not environment.get("_CRANNOG_COMPLETE", "").endswith("_bash"):
        return
    with suppress(KeyError, ValueError):
        words, place = environment["COMP_WORDS"], int(environment["COMP_CWORD"])
        between = "\n" if "\n" in words else " "
        before = between.join(words.split(between)[: place + 1])
        environment["COMP_CWORD"] = str(place - 2 * len(_SPLIT.findall(before)))
        environment["COMP_WORDS"] = _SPLIT.sub(r"\1", words)


def run() -> None:
    """Run a command; a CrannogError becomes one line on stderr and an exit code."""
    leave_out_what_is_slow()
    put_words_together(os.environ)
    try:
        app()
    except CrannogError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        from crannog.errors import not_installed

        _fail(not_installed(error, "this command"))


def _fail(error: CrannogError) -> NoReturn:
    print(f"crannog: {error.message}", file=sys.stderr)
    sys.exit(error.exit_code)


if __name__ == "__main__":
    run()
