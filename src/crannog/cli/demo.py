"""`crannog demo`: a tour of the features that runs them, measures them and checks them."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crannog.cli.arguments import JsonOption
from crannog.cli.context import answer, place_of
from crannog.errors import CallerError, CrannogError

if TYPE_CHECKING:
    from crannog.tour.shared import Audience, Notes

QUICK_JAVA = "-XX:TieredStopAtLevel=1"
_FAILED = 1


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)


def demo(
    context: typer.Context,
    keep: Annotated[
        str, typer.Option("--keep", metavar="DIR", help="Use this new folder, and do not delete it afterwards.")
    ] = "",
    serve: Annotated[
        bool,
        typer.Option(
            "--serve",
            help="Fill a warehouse with traces, conversations, tables and builds instead, and show the web pages on it.",
        ),
    ] = False,
    port: Annotated[
        int,
        typer.Option(
            metavar="PORT", min=-1, max=65535, help="With --serve: the port.", show_default="7117, or a free one"
        ),
    ] = -1,
    as_json: JsonOption = False,
) -> None:
    """Show what Crannog does, on generated data, in less than three minutes.

    Every figure is measured during the run and every claim is checked; the exit code is 1 if a check fails. With --serve,
    look at generated data in a browser instead, until Ctrl-C.
    """
    place = place_of(context)
    if place.warehouse or place.server:
        raise CallerError("the demo uses a warehouse of its own; choose its folder with --keep DIR")
    if serve:
        with _folder(keep) as folder:
            _serve(folder, port)
        return
    # In a short run, half of the processor time would be spent on optimizing compilation of Java code.
    os.environ.setdefault("JAVA_TOOL_OPTIONS", QUICK_JAVA)
    from crannog.tour.shared import Audience, Printed

    audience = Audience() if as_json else Printed()
    began = time.perf_counter()
    with _folder(keep) as folder:
        audience.welcome(folder, kept=bool(keep))
        notes, error = _run(folder, audience)
    seconds = round(time.perf_counter() - began, 1)
    ok = error is None and all(note.ok for note in notes)
    document = {
        "ok": ok,
        "seconds": seconds,
        "warehouse": str(folder) if keep else None,
        "error": error and error.message,
        "steps": [note.as_dict() for note in notes],
    }
    answer(document, as_json, lambda: audience.farewell(ok=ok, seconds=seconds, kept=keep))
    if error is not None:
        raise error
    if not ok:
        raise typer.Exit(_FAILED)


def _run(folder: Path, audience: Audience) -> tuple[list[Notes], CrannogError | None]:
    from crannog.embedded import EmbeddedLake
    from crannog.settings import load_settings
    from crannog.tour.shared import Notes, Tour
    from crannog.tour.steps import STEPS

    notes: list[Notes] = []
    settings = load_settings(warehouse=str(folder), otlp_http_port=0, otlp_grpc_port=0, audit=False)
    with EmbeddedLake(str(folder), settings=settings) as lake:
        tour = Tour(lake, folder)
        for number, (title, step) in enumerate(STEPS, 1):
            note = Notes(step.__name__, title, audience)
            notes.append(note)
            try:
                with audience.step(number, title), note:
                    step(tour, note)
            except CrannogError as error:
                return notes, error
    return notes, None


def _serve(folder: Path, port: int) -> None:
    """Fill a warehouse and serve it; spans and builds go on while it runs, and Spark folds the tables."""
    from crannog.cli.serve import serve_until, stop_by_signal
    from crannog.embedded import EmbeddedLake
    from crannog.settings import load_settings
    from crannog.tour.samples import Life, fill

    os.environ.setdefault("JAVA_TOOL_OPTIONS", QUICK_JAVA)
    stop = stop_by_signal()
    settings = load_settings(warehouse=str(folder), otlp_http_port=0, otlp_grpc_port=0)
    with ExitStack() as held:
        lake = held.enter_context(EmbeddedLake(str(folder), settings=settings))
        fill(lake, report=lambda text: typer.echo(f"writing {text}"))
        life = Life(lake, stop)
        held.callback(life.join)

        def started(url: str) -> None:
            life.start()
            typer.echo(f"look at it in a browser: {url}")
            if sys.stdout.isatty() and _has_screen():
                webbrowser.open(url)

        serve_until(stop, lake, held, settings.host, _port(settings.host, settings.port) if port < 0 else port, started)
    typer.echo("stopped")


def _port(host: str, usual: int) -> int:
    """Return the usual port, or 0 for a free one if something listens there."""
    with socket.socket() as trial:
        return 0 if trial.connect_ex((host, usual)) == 0 else usual


def _has_screen() -> bool:
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


@contextmanager
def _folder(keep: str) -> Iterator[Path]:
    if keep:
        folder = Path(keep).absolute()
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise CallerError(f"{folder} already exists and is not empty; give --keep a new folder")
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="crannog-demo-", ignore_cleanup_errors=True) as made:
        yield Path(made)
