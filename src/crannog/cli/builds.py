"""The group of commands on a build log, and the commands list, show, tail, stats and wait."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from crannog.cli.arguments import JsonOption
from crannog.cli.builds_filters import (
    FilterBuild,
    FilterFrom,
    FilterJob,
    FilterKind,
    FilterPartition,
    FilterRun,
    FilterTo,
    event_filter,
)
from crannog.cli.context import answer, lake_at, place_of
from crannog.cli.output import ago, moment, of_bytes
from crannog.cli.waterfall import took
from crannog.errors import NotFound

if TYPE_CHECKING:
    from crannog.builds import BuildEvent, EventLog
    from crannog.embedded import EmbeddedLake
    from crannog.remote.lake import RemoteLake

BuildArgument = Annotated[str, typer.Argument(metavar="BUILD", help="The id of a build request.")]
LimitOption = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=100_000, help="Show at most this many, newest first.")
]

_LOG, _AS_OF = "builds log", "builds as of"
_TABLE = "crannog.builds.build_events"
_OTHER_LOGS = "--log URI or CRANNOG_BUILD_LOG names another, `crannog builds import` creates one"


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    from crannog.cli import builds_maintenance, builds_views

    group = typer.Typer(name="builds", help="The build event log: what happened in each build.", no_args_is_help=True)
    group.callback()(_log_option)
    for name, command in (("list", list_builds), ("show", show), ("tail", tail), ("stats", stats), ("wait", wait)):
        group.command(name)(command)
    builds_views.add_to(group)
    builds_maintenance.add_to(group)
    app.add_typer(group)


def _log_option(
    context: typer.Context,
    log: Annotated[
        str,
        typer.Option(
            "--log",
            metavar="URI",
            help="URI of the log [default: CRANNOG_BUILD_LOG, else that of the server or warehouse].",
        ),
    ] = "",
    as_of: Annotated[
        int | None,
        typer.Option("--as-of", metavar="INDEX", min=0, help="Read the log as of this index."),
    ] = None,
) -> None:
    """The build event log: what happened in each build."""
    context.meta[_LOG], context.meta[_AS_OF] = log, as_of


@contextmanager
def log_of(context: typer.Context, *, create: bool = False) -> Iterator[EventLog]:
    """Open the log for one command: that of --log, --server or CRANNOG_BUILD_LOG; else that of the lake.

    The lake is found as for any other command: a server, or the warehouse. Raises NotFound if there is no log and
    `create` is false.
    """
    place = place_of(context)
    uri = context.meta[_LOG] or ("" if place.server else place.settings().build_log)
    with _log_at(uri, place.token, create) if uri else _log_of_lake(context, create) as log:
        if context.meta[_AS_OF] is None:
            yield log
            return
        with log.as_of(context.meta[_AS_OF]) as then:
            yield then


def _log_at(uri: str, token: str, create: bool) -> EventLog:
    from crannog.builds import open_log

    if not create:
        _check_exists(uri)
    options: dict[str, Any] = {"token": token} if uri.startswith(("http:", "https:")) else {}
    return open_log(uri, **options)


@contextmanager
def _log_of_lake(context: typer.Context, create: bool) -> Iterator[EventLog]:
    with lake_at(context, make=create) as opened:
        lake = cast("EmbeddedLake | RemoteLake", opened)
        # By its attribute, since the class of a remote lake is slow to import. A server creates its log itself.
        if not create and not hasattr(lake, "address"):
            try:
                lake.table(_TABLE)
            except NotFound:
                warehouse = place_of(context).settings().warehouse
                raise NotFound(f"there is no build log in the warehouse {warehouse}: {_OTHER_LOGS}") from None
        yield lake.builds


def _check_exists(uri: str) -> None:
    """Raise NotFound if a local log does not exist, since reading must not create it."""
    from pathlib import Path
    from urllib.parse import parse_qs, unquote, urlsplit

    if uri.startswith("sqlite:///") and ":memory:" not in uri:
        places = [Path(unquote(uri.removeprefix("sqlite:///")))]
    elif uri.startswith("delta:///"):
        parts = urlsplit(uri)
        table = parse_qs(parts.query).get("table", [_TABLE])[0]
        folder = Path(unquote(parts.path))
        places = [folder / "_delta_log", folder.joinpath(*table.split("."), "_delta_log")]
    else:
        return
    if not any(place.exists() for place in places):
        raise NotFound(f"there is no build log at {uri}: {_OTHER_LOGS}")


def time_of(nanoseconds: int | None) -> str:
    """Return a timestamp of the log as text."""
    if nanoseconds is None:
        return "–"
    try:
        return moment(dt.datetime.fromtimestamp(nanoseconds // 10**9, dt.UTC))
    except (ValueError, OverflowError, OSError):
        return f"{nanoseconds} ns"


def duration(nanoseconds: int | None) -> str:
    """Return a duration as text."""
    if nanoseconds is None:
        return "–"
    if 0 < abs(nanoseconds) < 10**9:
        return took(nanoseconds)
    seconds = abs(nanoseconds) / 10**9
    sign = "-" if nanoseconds < 0 else ""
    return f"{sign}{seconds:.3g} s" if seconds < 60 else sign + ago(dt.timedelta(seconds=seconds))


def status_text(status: Any) -> str:
    return "–" if status is None else status.name.lower().replace("_", " ")


def list_builds(
    context: typer.Context,
    status: Annotated[str | None, typer.Option(help="Only builds with this status, like failed or executing.")] = None,
    limit: LimitOption = 20,
    offset: Annotated[int, typer.Option(min=0, help="Skip this many first.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """List builds, latest start first."""
    from crannog.builds import plain

    with log_of(context) as log:
        page = log.list_build_requests(status.upper() if status else None, limit, offset)

    def otherwise() -> None:
        from crannog.cli.output import listing, say

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

    answer(plain(page), as_json=as_json, otherwise=otherwise)


def show(context: typer.Context, build: BuildArgument, as_json: JsonOption = False) -> None:
    """Show one build: its status, partitions, jobs and events."""
    from crannog.builds import plain

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
        from crannog.cli.output import facts, listing

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
        listing(("index", "time (UTC)", "event"), [_line(event) for event in events], empty="", right=("index",))

    found = {"build": plain(summary), "partitions": plain(parts), "job_runs": plain(runs), "events": plain(events)}
    answer(found, as_json=as_json, otherwise=otherwise)


def _line(event: BuildEvent) -> tuple[str, str, str]:
    return str(event.index), time_of(event.timestamp), event_text(event)


def event_text(event: BuildEvent) -> str:
    """Return an event in a few words."""
    payload: Any = event.payload
    what = [event.event_type.replace("_", " ")]
    what += [
        str(getattr(payload, name))
        for name in ("partition_ref", "job_label", "job_run_id")
        if getattr(payload, name, None)
    ]
    if hasattr(payload, "status"):
        what.append(status_text(payload.status))
    if hasattr(payload, "delegated_to_build_request_id"):
        what.append(f"to {payload.delegated_to_build_request_id}")
    note = getattr(payload, "message", "") or getattr(payload, "reason", "")
    return " ".join(what) + (f": {note}" if note else "")


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
    from crannog.builds import plain

    with log_of(context) as log:
        found, activity = log.stats(), log.get_activity_summary()

    def otherwise() -> None:
        from crannog.cli.output import facts

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

    answer({**plain(found), "activity": plain(activity)}, as_json=as_json, otherwise=otherwise)


def wait(
    context: typer.Context,
    build: BuildArgument,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", min=0, help="Give up after this many seconds (exit code 5).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Wait until a build is finished; exit code 1 if it did not complete."""
    from crannog.builds import BuildRequestStatus, plain

    with log_of(context) as log:
        found = log.wait_for_build(build, timeout_s)
    answer(plain(found), as_json=as_json, otherwise=lambda: typer.echo(f"{build} is {status_text(found.status)}."))
    if found.status is not BuildRequestStatus.COMPLETED:
        raise typer.Exit(1)
