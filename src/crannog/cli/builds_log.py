"""What the commands on a build log share: opening it, options that filter its events, and its values as text."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

import typer

from crannog.cli.context import answer, lake_at, place_of
from crannog.cli.output import ago, listing, moment
from crannog.cli.waterfall import took
from crannog.errors import CallerError, NotFound

if TYPE_CHECKING:
    from crannog.builds import BuildEvent, EventLog
    from crannog.embedded import EmbeddedLake
    from crannog.remote.lake import RemoteLake

BuildArgument = Annotated[str, typer.Argument(metavar="BUILD", help="The id of a build request.")]
LimitOption = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=100_000, help="Show at most this many, newest first.")
]

_LOG, _AS_OF = "builds log", "builds as of"
_TABLE = "crannog.builds.build_events"  # as `crannog.builds.open_log.EVENTS`, which is slow to import
_OTHER_LOGS = "--log URI or CRANNOG_BUILD_LOG names another, `crannog builds import` creates one"
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


def log_option(
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


def reply(found: Any, *, as_json: bool, otherwise: Callable[[], None], **also: Any) -> None:
    """Print a result of the log, with the fields `also`, as JSON if `as_json`; otherwise call `otherwise`, which prints it as text."""
    from crannog.builds import plain  # slow to import, and opening the log has done it

    answer({**plain(found), **plain(also)} if also else plain(found), as_json=as_json, otherwise=otherwise)


def reply_rows(
    found: Any,
    as_json: bool,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    empty: str,
    right: Sequence[str] = (),
) -> None:
    """Print a result of the log as JSON if `as_json`; otherwise as the rows of a table."""
    reply(found, as_json=as_json, otherwise=lambda: listing(columns, rows, empty=empty, right=right))


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
