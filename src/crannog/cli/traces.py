"""The `traces` command group, and its commands that search, show, compare and count traces."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from crannog.cli.arguments import JsonOption
from crannog.cli.builds_log import nanoseconds_ago
from crannog.cli.builds_log import time_of as to_the_second
from crannog.cli.context import answer, lake_at
from crannog.cli.output import console, counted, facts, listing, moment, say
from crannog.cli.waterfall import legend, lines, took
from crannog.errors import CallerError
from crannog.formats.json_values import to_lossless_json
from crannog.traces.jaeger.requests import with_attributes

if TYPE_CHECKING:
    from crannog.api.lake import Lake
    from crannog.api.traces import SpanPage, TracePage, Traces, TraceView
    from crannog.embedded import EmbeddedLake
    from crannog.remote.lake import RemoteLake

TraceArgument = Annotated[str, typer.Argument(metavar="TRACE", help="Id of a trace, in hexadecimal.")]
ServiceOption = Annotated[str | None, typer.Option("--service", "-s", help="Only spans of this service.")]
OperationOption = Annotated[str | None, typer.Option("--operation", "-o", help="Only spans of this name.")]
AttributeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--attribute",
        "-a",
        metavar="KEY=VALUE",
        help="Only spans with this attribute, at any level; if repeated, all must match.",
    ),
]
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where", "-w", metavar="FILTER", help="Filter expression, like 'kind = server and duration > 250ms'."
    ),
]
StartOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Only spans that start at or after this time (UTC), or an age like 2h."),
]
EndOption = Annotated[str | None, typer.Option(metavar="TIME", help="Only spans that start before this time.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Show at most this many.")]
TimeoutOption = Annotated[
    float | None, typer.Option("--timeout", metavar="SECONDS", help="Cancel the query after this time.")
]


_WIDE = 100


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    from crannog.cli import traces_maintenance

    group = typer.Typer(name="traces", help="Search, show, export and delete traces.", no_args_is_help=True)
    for command in (search, show, compare, services, operations, metrics, dependencies, complete):
        group.command()(command)
    traces_maintenance.add_to(group)
    app.add_typer(group)


@contextmanager
def traces_at(context: typer.Context, timeout_s: float | None = None, *, make: bool = False) -> Iterator[Traces]:
    """Open the traces of the lake for one command, with a time limit for its queries."""
    with lake_at(context, make=make) as lake:
        yield traces_of(lake).within(timeout_s=timeout_s)


def traces_of(lake: Lake) -> Traces:
    """Return the traces of a lake that a command opened."""
    return cast("EmbeddedLake | RemoteLake", lake).traces


def time_of(nanoseconds: int) -> str:
    """Return a time of a span as text, to the millisecond."""
    return f"{to_the_second(nanoseconds)}.{nanoseconds // 10**6 % 1000:03d}"


def _short_time(nanoseconds: int) -> str:
    """Return a time for a list, without the current year, so that the id and root of a trace fit on the line."""
    whole = time_of(nanoseconds)
    year = f"{dt.datetime.now(dt.UTC):%Y}-"
    return whole[len(year) : 19] if whole.startswith(year) else whole[:10]


def _moment(text: str | None) -> str | int | None:
    """Parse a time or an age."""
    if text and text[-1:] in "smhdw" and text[:-1].isdigit():
        return nanoseconds_ago(text, dt.datetime.now(dt.UTC))
    return text


def search(
    context: typer.Context,
    service: ServiceOption = None,
    operation: OperationOption = None,
    text: Annotated[
        str | None, typer.Option("--text", "-t", help="Words that occur anywhere in a span; case is ignored.")
    ] = None,
    attribute: AttributeOption = None,
    where: WhereOption = None,
    errors: Annotated[
        bool | None, typer.Option("--errors/--no-errors", help="Only traces with, or without, errors.")
    ] = None,
    min_ms: Annotated[
        float | None, typer.Option(help="Only traces of at least this duration, in milliseconds.")
    ] = None,
    max_ms: Annotated[float | None, typer.Option(help="Only traces of at most this duration, in milliseconds.")] = None,
    start: StartOption = None,
    end: EndOption = None,
    limit: LimitOption = 20,
    order: Annotated[
        str, typer.Option(help="Sort order: newest, oldest, longest, shortest, most_spans or most_errors.")
    ] = "newest",
    cursor: Annotated[str | None, typer.Option(help="Cursor of a page, as printed below the previous result.")] = None,
    count: Annotated[bool, typer.Option("--count", help="Also count all matches.")] = False,
    spans: Annotated[bool, typer.Option("--spans", help="List spans instead of traces.")] = False,
    timeout_s: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search for traces that have a span matching all conditions."""
    whole: dict[str, Any] = {"has_errors": errors, "min_duration_ms": min_ms, "max_duration_ms": max_ms}
    if spans and any(value is not None for value in whole.values()):
        raise CallerError(
            "--errors, --min-ms and --max-ms apply to whole traces; with --spans use --where 'error and duration > 1s'"
        )
    arguments: dict[str, Any] = {
        "service": service, "operation": operation, "text": text, "where": with_attributes(where, attribute or ()),
        "start": _moment(start), "end": _moment(end), "limit": limit, "cursor": cursor, "order": order, "count": count,
    }  # fmt: skip
    with traces_at(context, timeout_s) as traces:
        if spans:
            found = traces.search_spans(**arguments)
            answer(to_lossless_json(found), as_json=as_json, otherwise=lambda: _list_spans(found))
        else:
            page = traces.search(**arguments, **whole)
            answer(to_lossless_json(page), as_json=as_json, otherwise=lambda: _list_traces(page))


def _list_traces(page: TracePage) -> None:
    rows = [
        (
            found.trace_id,
            _short_time(found.start_ns),
            took(found.duration_ns),
            f"{found.span_count:,}" + (f" ✗{found.error_count:,}" if found.error_count else ""),
            f"{found.root_operation or '(root missing)'} {found.root_service or ''}".strip(),
        )
        for found in page.traces
    ]
    listing(
        ("trace", "start (UTC)", "took", "spans", "root"),
        rows,
        empty="No traces match.",
        right=("trace", "start (UTC)", "took", "spans"),
    )
    _rest(page)


def _list_spans(page: SpanPage) -> None:
    rows = [
        (
            span.trace_id,
            span.span_id,
            _short_time(span.start_ns),
            took(span.duration_ns),
            f"{'✗ ' if span.is_error else ''}{span.name} {span.service}",
        )
        for span in page.spans
    ]
    _listing_that_fits(
        ("trace", "span", "start (UTC)", "took", "name"),
        rows,
        ("span",),
        empty="No spans match.",
        right=("trace", "span", "start (UTC)", "took"),
    )
    _rest(page)


def _listing_that_fits(
    columns: Sequence[str], rows: list[tuple[Any, ...]], spare: Sequence[str], *, empty: str, right: Sequence[str]
) -> None:
    """Print rows as a table, on a narrow terminal without the optional columns; `--json` has all columns."""
    left_out = {columns.index(name) for name in spare} if console().width < _WIDE else set()
    kept = [place for place in range(len(columns)) if place not in left_out]
    listing(
        [columns[place] for place in kept], [[row[place] for place in kept] for row in rows], empty=empty, right=right
    )


def _rest(page: TracePage | SpanPage) -> None:
    if page.total is not None:
        say(f"{page.total:,} match.")
    if page.next_cursor:
        typer.echo(f"More: --cursor {page.next_cursor}")  # never wrapped, so that it can be copied
    if page.previous_cursor:
        typer.echo(f"Back: --cursor {page.previous_cursor}")


def show(
    context: typer.Context,
    trace: TraceArgument,
    offset: Annotated[int, typer.Option(min=0, help="Skip this many spans first.")] = 0,
    limit: LimitOption = 200,
    depth: Annotated[int | None, typer.Option(min=0, help="Maximum depth of the spans shown.")] = None,
    under: Annotated[str | None, typer.Option(metavar="SPAN", help="Show only this span and its descendants.")] = None,
    details: Annotated[bool, typer.Option("--details", "-d", help="Also show attributes, events and links.")] = False,
    timeout_s: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a trace as a tree with the timing of each span and the critical path; large traces in pages."""
    with traces_at(context, timeout_s) as traces:
        view = traces.show(trace, offset, limit, depth=depth, under=under)
    answer(to_lossless_json(view.as_dict()), as_json=as_json, otherwise=lambda: show_trace(view, details))


def show_trace(view: TraceView, details: bool) -> None:
    """Print a trace as a waterfall."""
    odd = [
        "the root is missing or has not arrived yet" if view.is_root_missing else "",
        f"{view.roots:,} roots" if view.roots > 1 else "",
        f"{counted(view.orphans, 'span')} whose parent is missing" if view.orphans else "",
        f"{counted(view.cycles, 'cycle')} of parent spans" if view.cycles else "",
        f"{counted(view.skewed, 'span')} outside the time range of the parent" if view.skewed else "",
        "the trace has more spans than were read" if view.truncated else "",
    ]
    facts(
        f"trace {view.trace_id}",
        [
            ("start", f"{time_of(view.start_ns)} (UTC), took {took(view.duration_ns)}"),
            ("spans", f"{view.span_count:,}, {view.error_count:,} with errors, depth {view.deepest + 1:,}"),
            ("services", ", ".join(view.services)),
            *[("note", text) for text in odd if text],
        ],
    )
    out = console()
    for line in lines(view, out.width, details=details):
        out.print(line, overflow="fold" if details else "crop", no_wrap=not details)
    say(legend(view))
    if view.next_offset is not None:
        say(
            f"{view.next_offset:,} of {view.total:,} spans; continue with --offset {view.next_offset}, or limit the tree with --depth or --under."
        )


def compare(
    context: typer.Context,
    before: TraceArgument,
    after: TraceArgument,
    limit: LimitOption = 30,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Relative difference of mean durations that counts as equal.")
    ] = 0.1,
    timeout_s: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two traces, largest differences first."""
    with traces_at(context, timeout_s) as traces:
        found = traces.compare(before, after, limit, tolerance=tolerance)

    def otherwise() -> None:
        facts(
            f"{found.trace_id_before} → {found.trace_id_after}",
            [
                ("took", f"{took(found.duration_before_ns)} → {took(found.duration_after_ns)}"),
                ("spans", f"{found.spans_before:,} → {found.spans_after:,}"),
            ],
        )
        rows = [
            (
                one.change,
                f"{one.count_before:,} → {one.count_after:,}",
                f"{took(one.duration_before_ns)} → {took(one.duration_after_ns)}",
                " / ".join(name for _, name in one.path),
                one.path[-1][0],
            )
            for one in found.changes
        ]
        listing(("change", "spans", "took", "path", "service"), rows, empty="Neither trace has spans.")

    answer(to_lossless_json(found), as_json=as_json, otherwise=otherwise)


def services(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the services that sent spans."""
    with traces_at(context) as traces:
        found = traces.services()

    def otherwise() -> None:
        for name in found:
            typer.echo(name)
        if not found:
            say("No spans have arrived yet.")

    answer(found, as_json=as_json, otherwise=otherwise)


def operations(
    context: typer.Context,
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="Name of the service.")],
    as_json: JsonOption = False,
) -> None:
    """List the operations of a service and their span kinds."""
    with traces_at(context) as traces:
        found = [{"operation": name, "kind": kind} for name, kind in traces.operations_by_kind(service)]

    rows = [(one["operation"], (one["kind"] or "–").lower()) for one in found]
    empty = f"There are no spans of {service}."
    answer(found, as_json=as_json, otherwise=lambda: listing(("operation", "kind"), rows, empty=empty))


def metrics(
    context: typer.Context,
    service: ServiceOption = None,
    operation: OperationOption = None,
    kind: Annotated[str | None, typer.Option(help="Only spans of this kind, like server or client.")] = None,
    where: WhereOption = None,
    start: StartOption = None,
    end: EndOption = None,
    step: Annotated[str, typer.Option(help="Length of a time bucket: 10s, 5m, 1h, 1d or 1mo.")] = "1h",
    by: Annotated[
        list[str] | None, typer.Option("--by", metavar="FIELD", help="Group by a field or an attribute.")
    ] = None,
    whole: Annotated[
        bool,
        typer.Option("--traces", help="Count traces that have a matching span, grouped by the fields of their root."),
    ] = False,
    timeout_s: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show rates, errors and latencies of spans or traces over time."""
    counted_things = "traces" if whole else "spans"
    with traces_at(context, timeout_s) as traces:
        found = traces.metrics(
            service,
            operation,
            kind,
            start=_moment(start),
            end=_moment(end),
            step=step,
            group_by=by,
            where=where,
            of=counted_things,
        )

    def otherwise() -> None:
        groups = list(by or ())
        rows = [
            (
                moment(one.start),
                *(one.group.get(name) for name in groups),
                f"{one.count:,}",
                f"{one.rate:,.3g}",
                f"{one.error_rate:.1%}",
                *map(took, (one.avg_ns, one.p50_ns, one.p95_ns, one.p99_ns)),
            )
            for one in found
        ]
        figures = (counted_things, "per s", "errors", "avg", "p50", "p95", "p99")
        spare = ("per s", "avg") if groups else ()
        empty = f"No {counted_things} match."
        _listing_that_fits(("from (UTC)", *groups, *figures), rows, spare, empty=empty, right=("from (UTC)", *figures))

    answer(to_lossless_json(found), as_json=as_json, otherwise=otherwise)


def dependencies(
    context: typer.Context,
    start: StartOption = None,
    end: EndOption = None,
    timeout_s: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the calls between services, with the numbers of calls and errors."""
    with traces_at(context, timeout_s) as traces:
        found = traces.dependencies(_moment(start), _moment(end))

    rows = [(one.parent, one.child, f"{one.calls:,}", f"{one.errors:,}") for one in found]
    columns, empty = ("caller", "callee", "calls", "errors"), "No calls between services."
    answer(
        to_lossless_json(found),
        as_json=as_json,
        otherwise=lambda: listing(columns, rows, empty=empty, right=columns[2:]),
    )


def complete(
    context: typer.Context,
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="What to complete: service, operation, key or value (of --key).")
    ],
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Prefix of the completions.")] = "",
    key: Annotated[str | None, typer.Option(help="Attribute whose values to complete.")] = None,
    where: WhereOption = None,
    limit: LimitOption = 20,
    timeout_s: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Suggest services, operations, attribute keys or values, most frequent first."""
    with traces_at(context, timeout_s) as traces:
        found = traces.complete(what, prefix, key=key, where=where, limit=limit)

    rows = [(one.value, f"{one.count:,}") for one in found]
    answer(
        to_lossless_json(found),
        as_json=as_json,
        otherwise=lambda: listing((what, "spans"), rows, empty="No completions.", right=("spans",)),
    )
