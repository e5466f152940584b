"""`crannog serve`: keeps a warehouse in shape until it is told to stop."""

from __future__ import annotations

import datetime as dt
import os
import random
import signal
import threading
from typing import TYPE_CHECKING, Any

import typer

from crannog.cli.context import lake_at
from crannog.cli.upkeep import result_of, summary

if TYPE_CHECKING:
    from crannog.datasets.lake import Lake
    from crannog.engine.scheduler import Scheduler

_PATIENCE_S = 10.0
_LAST_PATIENCE_S = 5.0
_LONGEST_STOP_S = 19.0
_JITTER = 0.1


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(serve)


def serve(context: typer.Context) -> None:
    """Run the maintenance of the warehouse until Ctrl-C: fold what is staged, compact, vacuum and expire.

    This version runs the scheduler only, and prints a line for each task it ran. The HTTP API, the pages and
    OTLP come with later versions.
    """
    from crannog.engine.scheduler import Scheduler
    from crannog.version import VERSION

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with lake_at(context, make=True) as lake:
        scheduler = Scheduler(lake.warehouse, lake.engine, lake.control)
        typer.echo(f"crannog {VERSION} keeps {lake.warehouse.location}; Ctrl-C ends it")
        work = threading.Thread(target=_work, args=(lake, scheduler, stop), name="crannog-serve", daemon=True)
        work.start()
        stop.wait()
        typer.echo("stopping: what runs may finish, up to 20 s")
        last_resort = threading.Timer(_LONGEST_STOP_S, _leave)
        last_resort.daemon = True
        last_resort.start()
        scheduler.stop()
        work.join(_PATIENCE_S)
        if work.is_alive():
            _end_spark(lake)
            work.join(_LAST_PATIENCE_S)
        if work.is_alive():
            _leave()
    typer.echo("stopped")
    last_resort.cancel()


def _leave() -> None:
    """End the process in the middle of its work: what is not committed was never seen by anybody."""
    typer.echo("stopped")
    os._exit(0)


def _work(lake: Lake, scheduler: Scheduler, stop: threading.Event) -> None:
    lines = _Lines()
    while not stop.wait(lake.settings.scheduler_tick_s * random.uniform(1 - _JITTER, 1 + _JITTER)):
        try:
            ran = scheduler.run_due()
            done = {task["task_name"]: task for task in lake.tasks()} if ran else {}
            for name in ran:
                lines.task(done.get(name, {"task_name": name, "last_result": None}))
            lines.trouble(scheduler.last_error)
        except Exception as error:  # whatever it is, the next look may go better
            lines.trouble(getattr(error, "message", f"{type(error).__name__}: {error}"))


def _end_spark(lake: Lake) -> None:
    from crannog.lake.spark import spark_runtime

    spark_runtime(lake.settings).stop()


class _Lines:
    """What is printed: each task that ran, and each trouble once, not every two seconds."""

    def __init__(self) -> None:
        self._failed: dict[str, str] = {}
        self._trouble: str | None = None

    def task(self, task: dict[str, Any]) -> None:
        name, result = task["task_name"], result_of(task)
        text = summary(result)
        if isinstance(result, dict) and "error" in result:
            if self._failed.get(name) == text:
                return
            self._failed[name] = text
        else:
            self._failed.pop(name, None)
            if isinstance(result, dict) and result.get("why"):
                text += f" ({result['why']})"
        self._print(f"{name.replace(':', ' ', 1)}: {text}")

    def trouble(self, message: str | None) -> None:
        if message is not None and message != self._trouble and not any(text.endswith(message.partition(": ")[2]) for text in self._failed.values()):
            self._print(message)
        self._trouble = message

    @staticmethod
    def _print(text: str) -> None:
        typer.echo(f"{dt.datetime.now(dt.UTC):%H:%M:%S} {' '.join(text.split())}")
