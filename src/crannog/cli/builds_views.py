"""Commands that look at a build log from other sides: jobs, partitions, lineage, graph, compare."""

from __future__ import annotations

from typing import Annotated

import typer

from crannog.cli.builds import BuildArgument, LimitOption, duration, log_of, short, time_of
from crannog.cli.context import JsonOption, answer
from crannog.cli.plain import counted

PartitionArgument = Annotated[str, typer.Argument(metavar="PARTITION", help="The partition.")]


def add_to(group: typer.Typer) -> None:
    """Add the commands."""
    for command in (jobs, partitions, lineage, graph, compare):
        group.command()(command)


def jobs(context: typer.Context, limit: LimitOption = 50, as_json: JsonOption = False) -> None:
    """List jobs with success rate, durations, retries and last run."""
    from crannog.builds import plain

    with log_of(context) as log:
        found = log.list_jobs(limit)

    def otherwise() -> None:
        from crannog.cli.show import listing

        rows = [
            (job.job_label, job.runs, "–" if job.success_rate is None else f"{job.success_rate:.0%}", job.retries,
             duration(job.duration_p50_ns), duration(job.duration_max_ns), short(job.last_run.status), time_of(job.last_run.first_at))
            for job in found
        ]  # fmt: skip
        right = ("runs", "good", "retries", "median", "longest")
        listing(("job", *right, "last", "at (UTC)"), rows, empty="No job ran.", right=right)

    answer(plain(found), as_json=as_json, otherwise=otherwise)


def partitions(context: typer.Context, limit: LimitOption = 20, as_json: JsonOption = False) -> None:
    """List the partitions whose status changed last."""
    from crannog.builds import plain

    with log_of(context) as log:
        found = log.list_recent_partitions(limit)

    def otherwise() -> None:
        from crannog.cli.show import listing

        rows = [
            (part.partition_ref, short(part.status) + (", invalidated" if part.invalidated else ""), time_of(part.updated_at), part.build_request_id)
            for part in found
        ]
        listing(("partition", "status", "since (UTC)", "build"), rows, empty="There are no partitions.")

    answer(plain(found), as_json=as_json, otherwise=otherwise)


def lineage(
    context: typer.Context,
    partition: PartitionArgument,
    down: Annotated[bool, typer.Option("--down", help="What it went into, instead of what it was made from.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a partition was made from, or went into."""
    from crannog.builds import plain

    with log_of(context) as log:
        found = log.get_lineage(partition, "downstream" if down else "upstream")

    def otherwise() -> None:
        from crannog.cli.show import listing

        rows = [(edge.output_ref, edge.input_ref, edge.job_run_id, "planned" if edge.planned else "made") for edge in found.edges]
        listing(("partition", "made from", "job run", ""), rows, empty=f"Nothing is known of where {partition} {'went' if down else 'came from'}.")

    answer(plain(found), as_json=as_json, otherwise=otherwise)


def graph(context: typer.Context, build: BuildArgument, as_json: JsonOption = False) -> None:
    """Print the stored job graph of a build as a mermaid flowchart, coloured by status."""
    from crannog.builds import mermaid, stored_graph

    with log_of(context) as log:
        drawn, stored = mermaid(log, build), stored_graph(log, build)
    answer({"mermaid": drawn, "job_graph": stored}, as_json=as_json, otherwise=lambda: typer.echo(drawn, nl=False))


def compare(context: typer.Context, first: BuildArgument, second: Annotated[str, typer.Argument(metavar="OTHER")], as_json: JsonOption = False) -> None:
    """Compare two builds."""
    from crannog.builds import compare as compare_builds
    from crannog.builds import plain

    with log_of(context) as log:
        found = compare_builds(log, first, second)

    def otherwise() -> None:
        from crannog.cli.show import facts, listing

        facts(
            f"{first} and {second}",
            [
                ("status", f"{short(found.first.status)}, {short(found.second.status)}"),
                ("took", f"{duration(found.first.duration_ns)}, {duration(found.second.duration_ns)}"),
                ("partitions", f"{counted(found.same_partitions, 'partition')} alike, {len(found.partitions):,} not"),
            ],
        )
        listing(("partition", first, second), [(part.partition_ref, short(part.first), short(part.second)) for part in found.partitions], empty="All partitions went alike.")
        rows = [
            (job.job_label, job.first_runs, job.second_runs, short(job.first and job.first.status), short(job.second and job.second.status), duration(job.slower_ns))
            for job in found.jobs
        ]
        listing(("job", "runs", "runs there", "status", "status there", "longer there"), rows, empty="Neither ran a job.", right=("runs", "runs there", "longer there"))

    answer(plain(found), as_json=as_json, otherwise=otherwise)
