"""Commands that copy, change or check a build log: export, import, migrate, prune, wipe, check, compact."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from typing import Annotated

import typer

from crannog.cli.arguments import JsonOption, YesOption, confirm
from crannog.cli.builds_log import (
    BuildArgument,
    FilterBuild,
    FilterFrom,
    FilterJob,
    FilterKind,
    FilterPartition,
    FilterRun,
    FilterTo,
    event_filter,
    log_of,
    nanoseconds_ago,
    reply,
    time_of,
)
from crannog.cli.output import bar, counted
from crannog.errors import CallerError, NotFound

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="File with one event per line, as JSON; - is standard input or output.")
]


def add_to(group: typer.Typer) -> None:
    """Add the commands."""
    for name, command in (
        ("export", export), ("import", import_), ("migrate", migrate), ("prune", prune), ("wipe", wipe), ("check", check),
        ("compact", compact),
    ):  # fmt: skip
        group.command(name)(command)


def export(
    context: typer.Context,
    file: FileArgument = "-",
    since: Annotated[int, typer.Option(min=0, help="Only events after this index.")] = 0,
    partition: FilterPartition = None,
    build: FilterBuild = None,
    job: FilterJob = None,
    kind: FilterKind = None,
    run: FilterRun = None,
    start: FilterFrom = None,
    end: FilterTo = None,
) -> None:
    """Write events as lines of JSON, in commit order."""
    from crannog.builds import export_lines

    wanted = event_filter(partition, build, job, kind, run, start, end)
    with log_of(context) as log:
        if file == "-":
            export_lines(log, sys.stdout, since, **wanted)
            return
        with open(file, "w", encoding="utf-8") as out:
            count = export_lines(log, out, since, **wanted)
    typer.echo(f"{counted(count, 'event')} written to {file}.", err=True)


def import_(context: typer.Context, file: FileArgument = "-", as_json: JsonOption = False) -> None:
    """Append events from lines of JSON; those that the log has already are skipped."""
    from crannog.builds import import_lines

    if file != "-" and not Path(file).is_file():
        raise NotFound(f"there is no file {file}")
    with log_of(context, create=True) as log:
        if file == "-":
            report = import_lines(log, sys.stdin)
        else:
            with open(file, encoding="utf-8") as lines:
                report = import_lines(log, lines)
    reply(
        report,
        as_json=as_json,
        otherwise=lambda: typer.echo(
            f"{counted(report.kept, 'event')} appended; {report.known_before:,} were in the log already."
        ),
    )


def migrate(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="URI", help="The log to copy to; created if it does not exist.")],
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Read both logs again and compare.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Copy every event to another log and verify the copy. Run again, it copies what is new."""
    from crannog.builds import copy, open_log

    with log_of(context) as log, open_log(target) as other:
        if other.uri == log.uri:
            raise CallerError(f"{target} is the log itself; give another one")
        total = max(1, log.stats().events)
        with bar("copy") as progress:
            report = copy(
                log, other, verify=verify, progress=lambda count: progress(f"{count:,} events", min(1.0, count / total))
            )

    def otherwise() -> None:
        new = report.events - report.known_before
        typer.echo(
            f"{counted(report.events, 'event')} of {report.source}, {new:,} of them new, are in {report.target}"
            f"{', verified' if report.verified else ''}, under {'the same' if report.same_indexes else 'other'} indexes."
        )

    reply(report, as_json=as_json, otherwise=otherwise)


def prune(
    context: typer.Context,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Remove events older than this: 30d, 12h, a day or a time (UTC).")
    ] = None,
    keep: Annotated[int | None, typer.Option(min=0, help="Keep this many of the newest events.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove old events, except unfinished builds and the latest status of each partition."""
    from crannog.builds import prune as prune_log

    before = None if older_than is None else nanoseconds_ago(older_than, dt.datetime.now(dt.UTC))
    with log_of(context) as log:
        report = prune_log(log, before_ns=before, keep_events=keep, dry_run=True)
        if not dry_run and report.removed:
            confirm(
                f"Remove {counted(report.removed, 'event')} of {report.events_before:,} from {log.uri}?",
                "prune the log",
                yes,
            )
            report = prune_log(log, before_ns=before, keep_events=keep)

    def otherwise() -> None:
        limit = f" older than {time_of(before)}" if before is not None else ""
        typer.echo(
            f"{counted(report.removed, 'event')}{limit} {'would be removed' if dry_run else 'removed'};"
            f" {report.events_after:,} of {report.events_before:,} remain."
        )

    reply(report, as_json=as_json, otherwise=otherwise)


def wipe(context: typer.Context, build: BuildArgument, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Remove every event of one build from the log."""
    from crannog.builds import wipe_build

    with log_of(context) as log:
        count = sum(1 for _ in log.all_events(build_request_ids=[build]))
        if not count:
            raise NotFound(f"there is no build {build} in the log; `crannog builds list` lists all builds")
        confirm(f"Remove all {counted(count, 'event')} of {build} from {log.uri}?", f"wipe {build}", yes)
        removed = wipe_build(log, build)
    reply(
        {"build": build, "removed": removed},
        as_json=as_json,
        otherwise=lambda: typer.echo(f"{counted(removed, 'event')} of {build} removed."),
    )


def check(context: typer.Context, as_json: JsonOption = False) -> None:
    """Check every event and the state derived from them; exit code 1 if there are problems."""
    from crannog.builds import check as check_log

    with log_of(context) as log:
        report = check_log(log)

    def otherwise() -> None:
        typer.echo(
            f"{counted(report.events, 'event')} checked in {report.seconds:.1f} s: {'no problems' if report.ok else counted(len(report.problems), 'problem')}."
        )
        for problem in report.problems:
            typer.echo(f"  {problem}")

    reply(report, as_json=as_json, otherwise=otherwise, ok=report.ok)
    if not report.ok:
        raise typer.Exit(1)


def compact(context: typer.Context, as_json: JsonOption = False) -> None:
    """Free the space of removed events; a Delta log is folded and compacted by Spark."""
    with log_of(context) as log:
        act = getattr(log, "give_back_space", None)
        if act is None:
            raise CallerError(f"{log.uri} cannot be compacted")
        before = log.stats().bytes
        act()
        after = log.stats().bytes
    reply(
        {"bytes_before": before, "bytes_after": after},
        as_json=as_json,
        otherwise=lambda: typer.echo(f"{before:,} → {after:,} bytes."),
    )
