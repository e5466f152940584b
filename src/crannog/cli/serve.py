"""`crannog serve`, which serves and maintains a warehouse until it is stopped."""

from __future__ import annotations

import datetime as dt
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crannog.cli.context import warehouse_at
from crannog.cli.maintenance import end_spark, result_of, summary

if TYPE_CHECKING:
    from crannog.embedded import EmbeddedLake
    from crannog.engine.maintenance.scheduler import Scheduler
    from crannog.server.http_server import HttpServer

_PATIENCE_S = 7.0
_TAKE_BACK_S = 3.0
_TASK_PATIENCE_S = 10.0
_LAST_PATIENCE_S = 5.0
_LONGEST_STOP_S = 19.0


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(serve)


def serve(
    context: typer.Context,
    host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Address to listen on; addresses other than loopback require tokens."),
    ] = "",
    port: Annotated[
        int,
        typer.Option(
            metavar="PORT", min=-1, max=65535, help="Port of the HTTP API; 0 chooses a free port.", show_default="7117"
        ),
    ] = -1,
) -> None:
    """Serve the warehouse over HTTP, receive spans over OTLP, and run maintenance, until Ctrl-C.

    Maintenance folds, compacts, vacuums and expires tables. Prints the addresses, and a line for each task that ran.
    Settings are environment variables (CRANNOG_…) or lines of crannog.toml; docs/settings.md lists them.
    """
    stop = stop_by_signal()
    with ExitStack() as held:
        lake = held.enter_context(warehouse_at(context))
        serve_until(stop, lake, held, host or lake.settings.host, lake.settings.port if port < 0 else port)
    typer.echo("stopped")


def stop_by_signal() -> threading.Event:
    """Return an event that Ctrl-C and SIGTERM set."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _request_stop(stop))
    return stop


def serve_until(
    stop: threading.Event,
    lake: EmbeddedLake,
    held: ExitStack,
    host: str,
    port: int,
    started: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve and maintain a lake until the event is set; `started` is called with the address. `held` holds the lock."""
    from crannog.formats.arrow_memory import use_jemalloc
    from crannog.server import logs
    from crannog.server.http_server import HttpServer
    from crannog.settings import unknown_variables
    from crannog.storage import scratch_folders
    from crannog.version import VERSION

    use_jemalloc()
    logs.set_up(lake.settings)
    lock = _locked(lake, held)
    for folder in scratch_folders.remove_abandoned():
        logging.getLogger("crannog.server").info("removed %s, which a killed process has left", folder)
    server = HttpServer(lake, host, port)
    server.start()
    if lock is not None:
        lock.publish(server.url)
    scheduler = lake.new_scheduler()
    typer.echo(f"crannog {VERSION} serves {lake.operations.warehouse.location} at {server.url}; press Ctrl-C to stop")
    if server.receivers is not None:
        typer.echo(
            f"receiving spans over OTLP on port {server.receivers.http_port} (HTTP) and {server.receivers.grpc_port} (gRPC)"
        )
    if server.trouble:
        typer.echo(server.trouble)
    for name, near in unknown_variables(os.environ).items():
        typer.echo(f"{name} is not a setting and is ignored" + (f"; did you mean {near}?" if near else ""))
    threading.Thread(target=_warm_up, args=(lake,), name="crannog-warm-up", daemon=True).start()
    scheduler.start(partial(_print_tasks, lake, scheduler, _Lines()))
    started(server.url)
    stop.wait()
    typer.echo("stopping; running requests and tasks have up to 20 s to finish")
    server.stop_accepting()
    _drain(lake, server, scheduler)
    server.close()


def _request_stop(stop: threading.Event) -> None:
    """Shut down gracefully; on a second request, exit at once. A timer ends the process if a thread keeps it alive."""
    if stop.is_set():
        _leave()
    stop.set()
    last_resort = threading.Timer(_LONGEST_STOP_S, _leave)
    last_resort.daemon = True
    last_resort.start()


def _locked(lake: EmbeddedLake, held: ExitStack) -> Any:
    """Acquire the lock of a local warehouse; a bucket has none, and may have several servers."""
    from crannog.server.lock import ServerLock

    if not lake.operations.warehouse.storage.is_local:
        return None
    lock = ServerLock(Path(lake.operations.warehouse.storage.uri("")))
    held.callback(lock.release)
    return lock


def _warm_up(lake: EmbeddedLake) -> None:
    """Load the SQL parser and start Spark, so that the first request that needs them is fast.

    If Spark cannot start, the requests that need it get the error.
    """
    with suppress(Exception):
        lake.cache.stats()
        if lake.settings.spark_at_start:
            lake.operations.warehouse.spark()


def _drain(lake: EmbeddedLake, server: HttpServer, scheduler: Scheduler) -> None:
    """Cancel tasks and wait for running requests; then cancel them; then stop Spark."""
    began = time.monotonic()
    scheduler.stop(0)
    drained = server.join(_PATIENCE_S)
    if not drained:
        server.cancel_running()
        drained = server.join(_TAKE_BACK_S)
        server.abort()
    idle = scheduler.stop(max(0.1, _TASK_PATIENCE_S - (time.monotonic() - began)))
    if not idle or not drained:
        end_spark(lake)
        idle = scheduler.stop(_LAST_PATIENCE_S)
        drained = server.join(0.5)
    if not idle or not drained:
        server.service.audit.stop(1.0)
        _leave()


def _leave() -> None:
    """End the process immediately; uncommitted changes were never visible."""
    typer.echo("stopped")
    os._exit(0)


def _print_tasks(lake: EmbeddedLake, scheduler: Scheduler, lines: _Lines, ran: Sequence[str]) -> None:
    """Print what tasks did, and what went wrong."""
    done = {task["task_name"]: task for task in lake.tasks()} if ran else {}
    for name in ran:
        lines.task(done.get(name, {"task_name": name, "last_result": None}))
    lines.trouble(scheduler.last_error)


class _Lines:
    """Prints a line for each task that ran; the same error is printed once, not at every run."""

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
        if (
            message is not None
            and message != self._trouble
            and not any(text.endswith(message.partition(": ")[2]) for text in self._failed.values())
        ):
            self._print(message)
        self._trouble = message

    @staticmethod
    def _print(text: str) -> None:
        typer.echo(f"{dt.datetime.now(dt.UTC):%H:%M:%S} {' '.join(text.split())}")
