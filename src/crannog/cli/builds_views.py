"""Commands that show parts of a build log: event, jobs, runs, partitions, manifests, lineage, graph, compare."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from crannog.cli.arguments import JsonOption
from crannog.cli.builds_log import (
    BuildArgument,
    LimitOption,
    duration,
    event_text,
    log_of,
    reply,
    reply_rows,
    status_text,
    time_of,
)
from crannog.cli.output import counted, facts, listing
from crannog.errors import NotFound

PartitionArgument = Annotated[str, typer.Argument(metavar="PARTITION", help="The partition.")]
OfBuild = Annotated[str | None, typer.Option("--build", help="Only of this build.")]
OfJob = Annotated[str | None, typer.Option("--job", help="Only of the job with this label.")]


def add_to(group: typer.Typer) -> None:
    """Add the commands."""
    for command in (event, jobs, runs, partitions, partition, manifests, lineage, graph, compare):
        group.command()(command)


def event(
    context: typer.Context,
    event_id: Annotated[str, typer.Argument(metavar="EVENT", help="The id of an event.")],
    as_json: JsonOption = False,
) -> None:
    """Show one event with all its fields."""
    with log_of(context) as log:
        found = log.get_event(event_id)
    if found is None:
        raise NotFound(f"there is no event {event_id} in the log; `crannog builds tail` shows the newest")
    text = json.dumps(found.as_dict(), indent=2, ensure_ascii=False)
    reply(found, as_json=as_json, otherwise=lambda: typer.echo(text))


def jobs(context: typer.Context, limit: LimitOption = 50, as_json: JsonOption = False) -> None:
    """List jobs with success rate, durations, retries and last run."""
    with log_of(context) as log:
        found = log.list_jobs(limit)

    rows = (
        (job.job_label, job.runs, "–" if job.success_rate is None else f"{job.success_rate:.0%}", job.retries,
         duration(job.duration_p50_ns), duration(job.duration_max_ns), status_text(job.last_run.status), time_of(job.last_run.first_at))
        for job in found
    )  # fmt: skip
    right = ("runs", "good", "retries", "median", "longest")
    reply_rows(found, as_json, ("job", *right, "last", "at (UTC)"), rows, empty="No jobs ran.", right=right)


def runs(
    context: typer.Context,
    build: OfBuild = None,
    job: OfJob = None,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
) -> None:
    """List runs of jobs, newest first."""
    with log_of(context) as log:
        found = log.list_job_runs(build, job, limit)

    rows = (
        (
            run.job_run_id,
            run.job_label,
            run.build_request_id,
            status_text(run.status),
            time_of(run.first_at),
            duration(run.duration_ns),
            ", ".join(run.target_partitions),
        )
        for run in found
    )
    columns = ("run", "job", "build", "status", "began (UTC)", "took", "partitions")
    reply_rows(found, as_json, columns, rows, empty="No jobs ran.", right=("took",))


def partition(
    context: typer.Context, ref: PartitionArgument, limit: LimitOption = 20, as_json: JsonOption = False
) -> None:
    """Show one partition: its latest status, the builds that work on it, its newest events."""
    with log_of(context) as log:
        status, active = log.get_latest_partition_status(ref), log.get_active_builds_for_partition(ref)
        events = log.list_events(limit=limit, descending=True, partition_refs=[ref]).events
    if not events:
        raise NotFound(f"there is no partition {ref} in the log; `crannog builds partitions` lists the latest")

    def otherwise() -> None:
        facts(
            ref,
            [
                (
                    "status",
                    status_text(status and status.status) + (", invalidated" if status and status.invalidated else ""),
                ),
                ("since", time_of(status.updated_at if status else None)),
                ("build", status.build_request_id if status else "–"),
                ("active builds", ", ".join(active) or "–"),
            ],
        )
        rows = [
            (str(event.index), time_of(event.timestamp), event.build_request_id, event_text(event)) for event in events
        ]
        listing(("index", "time (UTC)", "build", "event"), rows, empty="", right=("index",))

    reply({"status": status, "active_builds": active, "events": events}, as_json=as_json, otherwise=otherwise)


def manifests(
    context: typer.Context,
    build: OfBuild = None,
    of: Annotated[str | None, typer.Option("--partition", help="Only for this partition.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the manifests of jobs, oldest first, one line of JSON each; --json prints one list."""
    with log_of(context) as log:
        found = log.get_manifests(build, of)

    def otherwise() -> None:
        for manifest in found:
            typer.echo(json.dumps(manifest, ensure_ascii=False))

    reply(found, as_json=as_json, otherwise=otherwise)


def partitions(context: typer.Context, limit: LimitOption = 20, as_json: JsonOption = False) -> None:
    """List the partitions whose status changed last, newest first."""
    with log_of(context) as log:
        found = log.list_recent_partitions(limit)

    rows = (
        (
            part.partition_ref,
            status_text(part.status) + (", invalidated" if part.invalidated else ""),
            time_of(part.updated_at),
            part.build_request_id,
        )
        for part in found
    )
    columns = ("partition", "status", "since (UTC)", "build")
    reply_rows(found, as_json, columns, rows, empty="There are no partitions.")


def lineage(
    context: typer.Context,
    partition: PartitionArgument,
    down: Annotated[
        bool, typer.Option("--down", help="Show what it went into instead of what it was made from.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a partition was made from, or went into."""
    with log_of(context) as log:
        found = log.get_lineage(partition, "downstream" if down else "upstream")

    rows = (
        (edge.output_ref, edge.input_ref, edge.job_run_id, "planned" if edge.planned else "made")
        for edge in found.edges
    )
    empty = f"The log does not show what {partition} {'went into' if down else 'was made from'}."
    reply_rows(found, as_json, ("partition", "made from", "job run", ""), rows, empty=empty)


def graph(context: typer.Context, build: BuildArgument, as_json: JsonOption = False) -> None:
    """Print the job graph of a build as a mermaid flowchart, coloured by status."""
    from crannog.builds import mermaid, stored_graph

    with log_of(context) as log:
        drawn, stored = mermaid(log, build), stored_graph(log, build)
    reply({"mermaid": drawn, "job_graph": stored}, as_json=as_json, otherwise=lambda: typer.echo(drawn, nl=False))


def compare(
    context: typer.Context,
    first: BuildArgument,
    second: Annotated[str, typer.Argument(metavar="OTHER")],
    as_json: JsonOption = False,
) -> None:
    """Compare two builds."""
    from crannog.builds import compare as compare_builds

    with log_of(context) as log:
        found = compare_builds(log, first, second)

    def otherwise() -> None:
        facts(
            f"{first} and {second}",
            [
                ("status", f"{status_text(found.first.status)}, {status_text(found.second.status)}"),
                ("took", f"{duration(found.first.duration_ns)}, {duration(found.second.duration_ns)}"),
                (
                    "partitions",
                    f"{counted(found.same_partitions, 'partition')} equal, {len(found.partitions):,} different",
                ),
            ],
        )
        listing(
            ("partition", first, second),
            [(part.partition_ref, status_text(part.first), status_text(part.second)) for part in found.partitions],
            empty="All partitions have the same status.",
        )
        rows = [
            (
                job.job_label,
                job.first_runs,
                job.second_runs,
                status_text(job.first and job.first.status),
                status_text(job.second and job.second.status),
                duration(job.slower_ns),
            )
            for job in found.jobs
        ]
        listing(
            ("job", "runs", "other runs", "status", "other status", "longer by"),
            rows,
            empty="Neither ran any jobs.",
            right=("runs", "other runs", "longer by"),
        )

    reply(found, as_json=as_json, otherwise=otherwise)
