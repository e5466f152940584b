"""Commands that maintain tables: fold, compact, vacuum, expire, evolve, erase, tasks."""

from __future__ import annotations

import datetime as dt
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crannog.api.reports import Cancellation, Progress
from crannog.cli.arguments import (
    ActorOption,
    DryRunOption,
    JsonOption,
    KeysArgument,
    NameArgument,
    ReasonOption,
    SchemaOption,
    YesOption,
    confirm,
    day,
    read_keys,
    read_schema,
)
from crannog.cli.context import answer, lake_at
from crannog.cli.output import ago, bar, counted, facts, listing, of_bytes, say
from crannog.errors import Cancelled, CrannogError

if TYPE_CHECKING:
    from crannog.api.lake import Lake
    from crannog.api.table import Table

_HASHES = 4
_CANCEL_S = 2.0


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (fold, compact, vacuum, expire, evolve, erase, tasks):
        app.command()(command)


@contextmanager
def _job(context: typer.Context, verb: str, name: str) -> Iterator[tuple[Table, Progress, Cancellation]]:
    """Open a table for a job with progress on the terminal."""
    with lake_at(context) as lake:
        table = lake.table(name)
        with running(lake, f"{verb} {name}") as (progress, cancellation):
            yield table, progress, cancellation


def fold(context: typer.Context, name: NameArgument, as_json: JsonOption = False) -> None:
    """Fold all staged changes into the base."""
    with _job(context, "fold", name) as (table, progress, cancellation):
        report = table.fold(progress=progress, cancellation=cancellation).as_dict()
    answer({"table": name, **report}, as_json, lambda: _show_fold(name, report))


def _show_fold(name: str, report: dict[str, Any]) -> None:
    if report["version"] is None:
        say(f"{name} has no staged changes; its base has {counted(report['final_rows'], 'row')}.")
        return
    staged = f"{counted(report['changes'], 'change')} of {counted(report['staged_rows'], 'row')}, up to sequence {report['folded_to']}"
    facts(
        f"{name} was folded into version {report['version']}, in {report['seconds']:.1f} s",
        [("staged", staged), *_rows_and_files(report)],
    )


def _rows_and_files(report: dict[str, Any]) -> list[tuple[str, str]]:
    pairs = [("rows", f"{report['base_rows']:,} → {report['final_rows']:,}")]
    if applied := report["tombstones_applied"]:
        dropped = counted(report["rows_dropped_by_tombstones"], "row")
        pairs.append(("deletes", f"{applied:,} applied, {dropped} dropped"))
    return [*pairs, *_files(report)]


def _files(report: dict[str, Any], details: str = "") -> list[tuple[str, str]]:
    return [
        ("files", f"{report['files_before']:,} → {report['files_after']:,}{details}"),
        ("size", f"{of_bytes(report['bytes_before'])} → {of_bytes(report['bytes_after'])}"),
    ]


def compact(
    context: typer.Context, name: NameArgument, dry_run: DryRunOption = False, as_json: JsonOption = False
) -> None:
    """Fold, then merge small files into large, sorted ones, and vacuum files that no version needs."""
    with _job(context, "compact", name) as (table, progress, cancellation):
        report = table.compact(dry_run=dry_run, progress=progress, cancellation=cancellation).as_dict()
    answer({"table": name, **report}, as_json, lambda: _show_compact(name, report))


def _show_compact(name: str, report: dict[str, Any]) -> None:
    title = (
        f"{name}: {report['skipped']}"
        if report["skipped"]
        else f"{name} was compacted into version {report['version']}, in {report['seconds']:.1f} s"
    )
    facts(title, [*_rows_and_files(report), *[("plan", line) for line in report["plan"]]])


def vacuum(
    context: typer.Context,
    name: NameArgument,
    retention_hours: Annotated[
        float | None,
        typer.Option(
            metavar="HOURS", help="Keep files removed from the base within this time; the default is in the settings."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Allow less than the minimum retention in the settings.")
    ] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete files that no version within the retention, reader or job needs."""
    with lake_at(context) as lake:
        report = lake.table(name).vacuum(retention_hours, force=force, dry_run=dry_run).as_dict()
    answer({"table": name, **report}, as_json, lambda: _show_vacuum(name, report))


def _show_vacuum(name: str, report: dict[str, Any]) -> None:
    files = f"{counted(report['files_deleted'], 'file')}, {of_bytes(report['bytes_deleted'])}"
    floor = " (the minimum; --force allows less)" if report["raised_to_floor"] else ""
    title, done = f"{name} was vacuumed", "deleted"
    if report["dry_run"]:
        title, done = f"{name}: dry run, nothing was changed", "would be deleted"
    pairs = [
        (done, f"{files}; {counted(report['staged_files_deleted'], 'staged file')}"),
        ("retention", f"{report['retention_s'] / 3600:g} h{floor}"),
    ]
    if report["kept_for_readers"]:
        pairs.append(("kept", f"{counted(report['kept_for_readers'], 'file')} that readers still use"))
    facts(title, pairs)


def expire(
    context: typer.Context,
    name: NameArgument,
    before: Annotated[str, typer.Option(metavar="YYYY-MM-DD", help="Drop rows before this day.")],
    column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Date or time column; by default the date partition, otherwise the write time."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Drop rows before a day (UTC), in whole partitions where possible."""
    limit = day(before)
    with _job(context, "expire", name) as (table, progress, _):
        report = table.expire(limit, column=column, progress=progress).as_dict()
    answer({"table": name, **report}, as_json, lambda: _show_expire(name, report))


def _show_expire(name: str, report: dict[str, Any]) -> None:
    details = f" ({report['files_dropped']:,} dropped whole, {report['files_rewritten']:,} rewritten)"
    facts(
        f"{name}: rows with {report['column']} before {report['before']} were dropped in {report['seconds']:.1f} s",
        [
            ("rows", f"{report['rows_dropped']:,} dropped, {report['rows_kept']:,} kept"),
            *_files(report, details),
        ],
    )


def evolve(context: typer.Context, name: NameArgument, schema: SchemaOption, as_json: JsonOption = False) -> None:
    """Add nullable columns or widen types; other changes are refused with the reason."""
    columns = read_schema(schema)
    with _job(context, "evolve", name) as (table, progress, _):
        report = table.evolve(columns, progress=progress).as_dict()
    answer({"table": name, **report}, as_json, lambda: _show_evolve(name, report))


def _show_evolve(name: str, report: dict[str, Any]) -> None:
    if report["version"] is None:
        say(f"{name} already has these columns; nothing was changed.")
        return
    changes = [("added", line) for line in report["added"]] + [("widened", line) for line in report["widened"]]
    facts(
        f"The columns of {name} were changed in version {report['version']}, in {report['seconds']:.1f} s",
        [*changes, ("rewritten", counted(report["files_rewritten"], "file"))],
    )


def erase(
    context: typer.Context,
    name: NameArgument,
    keys: KeysArgument,
    actor: ActorOption = "",
    reason: ReasonOption = "",
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove keys from every file of a table, including old versions, and print a receipt as proof."""
    act = f"erase from {name}"
    with lake_at(context) as lake:
        table = lake.table(name)
        wanted = read_keys(keys, table)
        if table.key:
            confirm(f"Erase {counted(len(wanted), 'key')} from {name}, including old versions?", act, yes)
        try:
            with bar(act) as progress:
                receipt = table.erase(wanted, actor=actor, reason=reason, progress=progress).as_dict()
        except KeyboardInterrupt:
            raise Cancelled(
                f"the erasure from {name} was interrupted and is not verified; run the same command again to finish it"
            ) from None
    answer(receipt, as_json, lambda: show_receipt(receipt))


def show_receipt(receipt: dict[str, Any]) -> None:
    """Print an erasure receipt."""
    hashes = ", ".join(text[:12] + "…" for text in receipt["key_hashes"][:_HASHES])
    facts(
        f"{counted(receipt['keys'], 'key')} erased from {receipt['table']}, in {receipt['seconds']:.1f} s",
        [
            ("rows erased", f"{receipt['rows_erased']:,}"),
            ("files deleted", f"{receipt['files_deleted']:,}"),
            ("versions removed", ", ".join(map(str, receipt["versions_lost"])) or "none"),
            ("actor, reason", f"{receipt['actor'] or '–'}, {receipt['reason'] or '–'}"),
            ("key hashes", hashes + (" and more" if receipt["keys"] > _HASHES else "")),
        ],
    )
    places = [
        (place["place"], f"{place['looked_at']:,}", f"{place['before']:,}", f"{place['after']:,}")
        for place in receipt["places"]
    ]
    columns = ("place", "checked", "with a key before", "after")
    listing(columns, places, empty="", right=columns[1:])


def tasks(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the maintenance tasks: state, last result, next run."""
    with lake_at(context) as lake:
        found = lake.tasks()
    for task in found:
        task["last_result"] = result_of(task)
    answer(found, as_json, lambda: show_tasks(found))


def show_tasks(found: list[dict[str, Any]]) -> None:
    """Print tasks as a table."""
    now = dt.datetime.now(dt.UTC)
    rows = []
    for task in found:
        kind, _, table = task["task_name"].partition(":")
        state = task["status"] + (f", failed {task['failures']}x" if task["failures"] else "")
        age = task["completed_at"] and ago(now - task["completed_at"])
        due = task["next_run_at"]
        when = due and (f"in {ago(due - now)}" if due > now else "now")
        rows.append((kind, table, state, age, when, summary(task["last_result"])))
    columns = ("task", "table", "state", "age", "due", "last result")
    listing(columns, rows, empty="No tasks have run yet; `crannog serve` runs them.")


def result_of(task: dict[str, Any]) -> Any:
    """Return the result of the last run of a task."""
    return json.loads(task["last_result"]) if task["last_result"] else None


def summary(result: Any) -> str:
    """Summarize what a task did."""
    if not isinstance(result, dict):
        return "–"
    for name, label in (("error", "failed"), ("skipped", "skipped")):
        if result.get(name):
            return f"{label}: {result[name]}"
    if "staged_rows" in result:
        if result["version"] is None:
            return "nothing was staged"
        return f"{counted(result['staged_rows'], 'row')} into version {result['version']}"
    if "rows_dropped" in result:
        return f"{counted(result['rows_dropped'], 'row')} dropped"
    if "events_removed" in result:
        return f"{counted(result['events_removed'], 'event')} removed"
    if "files_deleted" in result:
        return f"{counted(result['files_deleted'] + result['staged_files_deleted'], 'file')} deleted"
    if "files_after" in result:
        return f"{result['files_before']:,} → {counted(result['files_after'], 'file')}"
    return "done"


def end_spark(lake: Lake) -> None:
    """Stop the Spark of this process; a server keeps its own and cancels the job itself."""
    from crannog.embedded import EmbeddedLake

    if isinstance(lake, EmbeddedLake):
        from crannog.spark.session import spark_runtime

        spark_runtime(lake.settings).stop()


@contextmanager
def running(lake: Lake, title: str) -> Iterator[tuple[Progress, Cancellation]]:
    """Show the progress of a job; Ctrl-C cancels it."""
    cancellation, ended = Cancellation(), threading.Event()

    def take_back() -> None:
        cancellation.cancel()
        # Spark may be starting or unresponsive; nothing else in this process needs it.
        if not ended.wait(_CANCEL_S):
            end_spark(lake)

    def on_signal(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C exits at once
        # In a thread: this one may be waiting for Spark, and cannot make another call meanwhile.
        threading.Thread(target=take_back, daemon=True).start()

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        with bar(title) as show:

            def progress(step: str, share: float) -> None:
                cancellation.check()
                show(step, share)

            yield progress, cancellation
    except CrannogError:
        cancellation.check()  # any error after a cancellation is reported as the cancellation
        raise
    finally:
        ended.set()
        signal.signal(signal.SIGINT, before)
