"""Options that filter events of a build log, and times as people write them."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

import typer

from crannog.errors import CallerError

FilterPartition = Annotated[
    list[str] | None, typer.Option("--partition", help="Only events of this partition; *, ? and […] are wildcards.")
]
FilterBuild = Annotated[list[str] | None, typer.Option("--build", help="Only events of this build.")]
FilterJob = Annotated[list[str] | None, typer.Option("--job", help="Only events of the job with this label.")]
FilterKind = Annotated[
    list[str] | None, typer.Option("--kind", help="Only events of this kind, like job or partition.")
]
FilterRun = Annotated[list[str] | None, typer.Option("--run", help="Only events of this job run.")]
FilterFrom = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="TIME", help="Only events from this time on: 12h or 30d ago, a day, or a time (UTC)."
    ),
]
FilterTo = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Only events up to this time.")]


def event_filter(
    partition: list[str] | None,
    build: list[str] | None,
    job: list[str] | None,
    kind: list[str] | None,
    run: list[str] | None,
    since: str | None,
    until: str | None,
) -> dict[str, Any]:
    """Return the filter of the options that are given."""
    now = dt.datetime.now(dt.UTC)
    times = {"start_ns": since and nanoseconds_ago(since, now), "end_ns": until and nanoseconds_ago(until, now)}
    given = {
        "partition_globs": partition,
        "build_request_ids": build,
        "job_labels": job,
        "kinds": kind,
        "job_run_ids": run,
    }
    return {name: value for name, value in given.items() if value} | {
        name: value for name, value in times.items() if value is not None
    }


def nanoseconds_ago(text: str, now: dt.datetime) -> int:
    """Return an age like 30d or 12h, a day or a time as nanoseconds since 1970."""
    units = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
    if text[-1:] in units and text[:-1].isdigit():
        return int((now.timestamp() - int(text[:-1]) * units[text[-1]]) * 10**9)
    try:
        given = dt.datetime.fromisoformat(text)
    except ValueError:
        raise CallerError(
            f"write an age like 30d, 12h or 90m, or a day or time like 2026-01-31 or 2026-01-31T18:30; got {text!r}"
        ) from None
    since = (given if given.tzinfo else given.replace(tzinfo=dt.UTC)) - dt.datetime.fromtimestamp(0, dt.UTC)
    return (since // dt.timedelta(microseconds=1)) * 1_000
