"""Commands that export, import, expire and erase traces."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from crannog.cli.arguments import ActorOption, JsonOption, ReasonOption, YesOption, confirm, day
from crannog.cli.context import answer, lake_at
from crannog.cli.maintenance import running, show_receipt
from crannog.cli.output import counted, facts, of_bytes
from crannog.cli.traces import TimeoutOption, traces_at, traces_of
from crannog.errors import CallerError, NotFound
from crannog.formats.json_values import to_lossless_json

if TYPE_CHECKING:
    from crannog.api.traces import Traces, WriteOutcome

_TYPES = {"json": "application/json", "protobuf": "application/x-protobuf", "zipkin": "application/vnd.zipkin.v2+json"}
_ENDINGS = {".json": "json", ".pb": "protobuf", ".binpb": "protobuf", ".bin": "protobuf"}
_PACKED = {".gz": "gzip", ".zst": "zstd"}

FormOption = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="json|protobuf|zipkin", help="Format; by default from the file extension, otherwise JSON."
    ),
]


def add_to(group: typer.Typer) -> None:
    """Add the commands."""
    for name, command in (("export", export), ("import", import_), ("expire", expire), ("erase", erase)):
        group.command(name)(command)


def export(
    context: typer.Context,
    trace_ids: Annotated[list[str], typer.Argument(metavar="TRACE...", help="Ids of traces.")],
    file: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Output file; - is standard output.")
    ] = "-",
    form: FormOption = None,
    lines: Annotated[
        bool,
        typer.Option("--lines", help="Write one request of up to 5,000 spans per line, for traces of any size."),
    ] = False,
    timeout_s: TimeoutOption = None,
) -> None:
    """Export traces as OTLP, as they were received: as one request, or as one request per line."""
    kind = _form(form, file)
    if kind == "zipkin":
        raise CallerError("traces are exported as OTLP; use --format json or protobuf")
    if lines and kind == "protobuf":
        raise CallerError(
            "--lines writes JSON; omit --format, and use an output file that does not end in .pb, .binpb or .bin"
        )
    with traces_at(context, timeout_s) as traces:
        if lines:
            _write_lines(traces, trace_ids, file)
            return
        data = (
            traces.export_protobuf(trace_ids)
            if kind == "protobuf"
            else (json.dumps(traces.export(trace_ids), ensure_ascii=False) + "\n").encode()
        )
    if file == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    Path(file).write_bytes(data)
    typer.echo(f"{counted(len(trace_ids), 'trace')} written to {file}, {of_bytes(len(data))}.", err=True)


def _write_lines(traces: Traces, trace_ids: list[str], file: str) -> None:
    # Read first, so that an existing file is not changed if there is no such trace.
    with closing(traces.export_lines(trace_ids)) as lines:
        if file == "-":
            for line in lines:
                sys.stdout.write(f"{line}\n")
            return
        with open(file, "w", encoding="ascii") as out:
            size = sum(out.write(f"{line}\n") for line in lines)
    typer.echo(f"{counted(len(trace_ids), 'trace')} written to {file}, {of_bytes(size)}.", err=True)


def import_(
    context: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="OTLP requests: one per file, or one per line as the Collector's file exporter writes them. .gz and .zst files are decompressed; - is standard input.",
        ),
    ],
    form: FormOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import spans from files; spans that are already stored are skipped."""
    total: dict[str, Any] = {"accepted": 0, "rejected": 0, "duplicates": 0, "messages": []}
    for file in files:
        if file != "-" and not Path(file).is_file():
            raise NotFound(f"there is no file {file}")
    with traces_at(context, make=True) as traces:
        for file in files:
            for done in _kept(traces, file, _form(form, file)):
                total["accepted"] += 0 if done.duplicate else done.accepted
                total["duplicates"] += done.accepted if done.duplicate else 0
                total["rejected"] += done.rejected
                total["messages"] += [done.message] if done.message else []

    def otherwise() -> None:
        typer.echo(
            f"{counted(total['accepted'], 'span')} imported; {total['duplicates']:,} were already stored, {total['rejected']:,} rejected."
        )
        for message in total["messages"]:
            typer.echo(f"  {message}")

    answer(total, as_json=as_json, otherwise=otherwise)


def _kept(traces: Traces, file: str, kind: str) -> Iterator[WriteOutcome]:
    """Store the requests of a file one by one; an error names the position of the request."""
    done = 0
    try:
        for body in _requests(file, kind):
            yield traces.write_otlp(body, content_type=_TYPES[kind])
            done += 1
    except CallerError as error:
        if done:
            what = f"{error.message}; the {counted(done, 'request')} of {file} before this one are stored; correct the file and import it again"
            raise type(error)(what) from None
        raise


def _form(form: str | None, file: str) -> str:
    if form is not None and form not in _TYPES:
        raise CallerError(f"the format must be one of {', '.join(_TYPES)}, got {form!r}")
    path = Path(file)
    ending = Path(path.stem).suffix if path.suffix in _PACKED else path.suffix
    return form or _ENDINGS.get(ending.lower(), "json")


def _requests(file: str, kind: str) -> Iterator[bytes]:
    """Yield the requests in a file: the whole file, or each of its lines, which are read lazily."""
    with _opened(file) as data:
        start = b"" if kind != "json" else next((line for line in data if line.strip()), b"")
        # If one request spans several lines, the first line is not valid JSON.
        if not _is_json(start):
            yield start + data.read()
            return
        # Without the line ending, so that the same request has the same bytes in every file.
        yield start.strip()
        yield from (line.strip() for line in data if line.strip())


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    from crannog.formats.input_files import Source

    if file == "-":
        yield sys.stdin.buffer
        return
    with Source(file, Path(file), "", _PACKED.get(Path(file).suffix.lower(), "")).open() as data:
        yield io.BufferedReader(data)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def expire(
    context: typer.Context,
    before: Annotated[str, typer.Option(metavar="YYYY-MM-DD", help="Drop spans that started before this day (UTC).")],
    service: Annotated[list[str] | None, typer.Option("--service", "-s", help="Only spans of this service.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Drop old spans and everything derived from them, and free the space."""
    limit = day(before)
    with lake_at(context) as lake, running(lake, "expire traces") as (progress, cancellation):
        report = traces_of(lake).expire(limit, service or None, progress=progress, cancellation=cancellation)

    def otherwise() -> None:
        spans = report.spans
        facts(
            f"spans before {before} were dropped in {spans.seconds + report.derived.seconds:.1f} s",
            [
                ("spans", f"{spans.rows_dropped:,} dropped, {spans.rows_kept:,} kept"),
                ("freed", of_bytes(report.bytes_given_back)),
            ],
        )

    answer(to_lossless_json(report), as_json=as_json, otherwise=otherwise)


def erase(
    context: typer.Context,
    trace_ids: Annotated[list[str] | None, typer.Argument(metavar="[TRACE...]", help="Ids of traces.")] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            "-w",
            metavar="FILTER",
            help="All traces with a span that matches this filter, like 'user = \"u1\"'.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be erased.")] = False,
    actor: ActorOption = "",
    reason: ReasonOption = "",
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Erase traces permanently from every file and derived table, and print a receipt as proof."""
    with lake_at(context) as lake:
        traces = traces_of(lake)
        plan = traces.erasure_plan(trace_ids or None, where)
        if dry_run:
            answer(to_lossless_json(plan), as_json=as_json, otherwise=lambda: _show_plan(plan))
            return
        confirm(
            f"Erase {counted(plan.traces, 'trace')} with {counted(plan.spans, 'span')} permanently?",
            "erase traces",
            yes,
        )
        with running(lake, "erase traces") as (progress, cancellation):
            receipt = traces.erase(
                trace_ids or None, where, actor=actor, reason=reason, progress=progress, cancellation=cancellation
            ).as_dict()
    answer(receipt, as_json=as_json, otherwise=lambda: show_receipt(receipt))


def _show_plan(plan: Any) -> None:
    facts(
        f"{counted(plan.traces, 'trace')} with {counted(plan.spans, 'span')} would be erased",
        [
            ("services", ", ".join(f"{name} {count:,}" for name, count in plan.services.items()) or "–"),
            ("days", ", ".join(f"{on} {count:,}" for on, count in plan.days.items()) or "–"),
        ],
    )
