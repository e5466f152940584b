"""The group of commands on a build log, and the commands list, show, tail, stats and wait."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from crannog.cli import builds_maintenance, builds_views
from crannog.cli.arguments import JsonOption
from crannog.cli.builds_log import (
    BuildArgument,
    FilterBuild,
    FilterFrom,
    FilterJob,
    FilterKind,
    FilterPartition,
    FilterRun,
    FilterTo,
    LimitOption,
    duration,
    event_filter,
    event_text,
    log_of,
    log_option,
    reply,
    status_text,
    time_of,
)
from crannog.cli.output import facts, listing, of_bytes, say
from crannog.errors import NotFound

if TYPE_CHECKING:
    from crannog.builds import BuildEvent


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(name="builds", help="The build event log: what happened in each build.", no_args_is_help=True)
    group.callback()(log_option)
    for name, command in (("list", list_builds), ("show", show), ("tail", tail), ("stats", stats), ("wait", wait)):
        group.command(name)(command)
    builds_views.add_to(group)
    builds_maintenance.add_to(group)
    app.add_typer(group)


def list_builds(
    context: typer.Context,
    status: Annotated[str | None, typer.Option(help="Only builds with this status, like failed or executing.")] = None,
    limit: LimitOption = 20,
    offset: Annotated[int, typer.Option(min=0, help="Skip this many first.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """List builds, latest start first."""
    with log_of(context) as log:
        page = log.list_build_requests(status.upper() if status else None, limit, offset)

    def otherwise() -> None:
        rows = [
            (
                build.build_request_id,
                status_text(build.status),
                time_of(build.created_at),
                duration(build.duration_ns),
                ", ".join(build.requested_partitions) or "–",
            )
            for build in page
        ]
        listing(
            ("build", "status", "began (UTC)", "took", "partitions"),
            rows,
            empty="There are no builds.",
            right=("took",),
        )
        if page.total > offset + len(page):
            say(f"… {page.total - offset - len(page):,} more of {page.total:,}")

    reply(page, as_json=as_json, otherwise=otherwise)


def show(context: typer.Context, build: BuildArgument, as_json: JsonOption = False) -> None:
    """Show one build: its status, partitions, jobs and events."""
    with log_of(context) as log:
        events = log.get_build_request_events(build)
        summary, parts, runs = (
            log.get_build(build),
            log.get_build_partitions(build),
            log.list_job_runs(build_request_id=build),
        )
    if not events:
        raise NotFound(f"there is no build {build} in the log; `crannog builds list` lists all builds")

    def otherwise() -> None:
        if summary is not None:
            facts(
                f"{build} is {status_text(summary.status)}"
                + (", cancellation requested" if summary.cancel_requested else ""),
                [
                    ("began", time_of(summary.created_at)),
                    ("took", duration(summary.duration_ns)),
                    ("requested", ", ".join(summary.requested_partitions) or "–"),
                    ("message", summary.message or "–"),
                ],
            )
        listing(
            ("partition", "status"),
            [(ref, status_text(state)) for ref, state in parts.items()],
            empty="It has no partitions.",
        )
        listing(
            ("job", "run", "status", "took"),
            [(run.job_label, run.job_run_id, status_text(run.status), duration(run.duration_ns)) for run in runs],
            empty="It ran no jobs.",
            right=("took",),
        )
        lines = [(str(event.index), time_of(event.timestamp), event_text(event)) for event in events]
        listing(("index", "time (UTC)", "event"), lines, empty="", right=("index",))

    found = {"build": summary, "partitions": parts, "job_runs": runs, "events": events}
    reply(found, as_json=as_json, otherwise=otherwise)


def tail(
    context: typer.Context,
    since: Annotated[
        int | None, typer.Option(min=0, help="Start after this index [default: show the newest events].")
    ] = None,
    limit: LimitOption = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new events as they come, until interrupted.")
    ] = False,
    partition: FilterPartition = None,
    build: FilterBuild = None,
    job: FilterJob = None,
    kind: FilterKind = None,
    run: FilterRun = None,
    start: FilterFrom = None,
    end: FilterTo = None,
    as_json: JsonOption = False,
) -> None:
    """Show the newest events, or those after an index; --json prints one line of JSON for each."""
    wanted = event_filter(partition, build, job, kind, run, start, end)
    with log_of(context) as log:
        head = log.head()
        if since is None:
            events = log.list_events(limit=limit, descending=True, **wanted).events[::-1]
        else:
            page = log.list_events(since, limit, **wanted)
            events, head = page.events, page.next_index if page.has_more else head
        try:
            for event in events:
                _print(event, as_json)
            if follow:
                position = (
                    max([head, *(event.index for event in events[-1:] if event.index)]) if since is None else head
                )
                for event in log.follow(position, **wanted):
                    _print(event, as_json)
        except KeyboardInterrupt:
            return


def _print(event: BuildEvent, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(event.as_json() + "\n")
    else:
        sys.stdout.write(
            f"{event.index:>8}  {time_of(event.timestamp)}  {event.build_request_id}  {' '.join(event_text(event).splitlines())}\n"
        )
    sys.stdout.flush()


def stats(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show the size of the log, its store, and an overview."""
    with log_of(context) as log:
        found, activity = log.stats(), log.get_activity_summary()

    def otherwise() -> None:
        kinds = ", ".join(
            f"{kind.replace('_', ' ')} {count:,}" for kind, count in found.events_by_kind.items() if count
        )
        states = ", ".join(
            f"{name.removeprefix('BUILD_REQUEST_').lower()} {count:,}"
            for name, count in activity.builds_by_status.items()
        )
        facts(
            found.uri,
            [
                ("events", f"{found.events:,}, last index {found.last_index:,}" + (f" ({kinds})" if kinds else "")),
                ("time", f"{time_of(found.first_timestamp)} to {time_of(found.last_timestamp)}"),
                (
                    "builds",
                    f"{activity.total_builds_count:,}, {activity.active_builds_count:,} active"
                    + (f" ({states})" if states else ""),
                ),
                ("partitions", f"{activity.total_partitions_count:,}"),
                ("job runs", f"{found.job_runs:,}"),
                ("size", "–" if found.bytes is None else of_bytes(found.bytes)),
                ("schema", f"version {found.schema_version}"),
                *[(name.replace("_", " "), str(value)) for name, value in found.store.items() if value is not None],
            ],
        )

    reply(found, as_json=as_json, otherwise=otherwise, activity=activity)


def wait(
    context: typer.Context,
    build: BuildArgument,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", min=0, help="Give up after this many seconds (exit code 5).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Wait until a build is finished; exit code 1 if it did not complete."""
    from crannog.builds import BuildRequestStatus

    with log_of(context) as log:
        found = log.wait_for_build(build, timeout_s)
    reply(found, as_json=as_json, otherwise=lambda: typer.echo(f"{build} is {status_text(found.status)}."))
    if found.status is not BuildRequestStatus.COMPLETED:
        raise typer.Exit(1)
