"""The command that loads files into a table, and the output of its report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crannog.cli.arguments import DryRunOption, JsonOption, names_that_begin
from crannog.cli.context import answer, lake_at
from crannog.cli.output import bar, counted, facts, listing, of_bytes, rows, say
from crannog.errors import CallerError, Cancelled, NotFound

if TYPE_CHECKING:
    from crannog.api.lake import Lake
    from crannog.api.reports import LoadReport

_FEW_FILES = 20


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(load)


def _table_behind_files(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a table's name after the first file; if no name matches, the shell completes files."""
    return names_that_begin(context, incomplete) if context.params.get("files") and incomplete else []


FilesAndName = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE... NAME",
        help="Files or patterns (- for standard input), followed by the table: catalog.schema.table.",
        autocompletion=_table_behind_files,
    ),
]
Create = Annotated[
    bool, typer.Option("--create", help="Create the table from the columns of the files if it does not exist.")
]
Key = Annotated[str, typer.Option(metavar="A,B", help="With --create: key columns.")]
PartitionBy = Annotated[str, typer.Option(metavar="A,B", help="With --create: columns to partition by.")]
Types = Annotated[
    str, typer.Option(metavar="COL=TYPE,…", help="With --create: column types that override the inferred ones.")
]
Mode = Annotated[str, typer.Option(metavar="append|upsert", help="Append rows, or replace rows with the same key.")]
Format = Annotated[
    str | None,
    typer.Option("--format", metavar="csv|json|ndjson|parquet", help="Format; by default from the file extension."),
]
Delimiter = Annotated[str | None, typer.Option(metavar="C", help="Delimiter between CSV values.")]
Flatten = Annotated[bool, typer.Option("--flatten", help="Turn nested fields into columns: a_b for field b of a.")]
Evolve = Annotated[bool, typer.Option("--evolve", help="Add new columns of the files to the table and widen types.")]
IgnoreExtra = Annotated[bool, typer.Option("--ignore-extra", help="Ignore columns that the table does not have.")]
Reject = Annotated[
    str | None, typer.Option(metavar="FILE", help="Write bad rows to this file as NDJSON and load the others.")
]
MaxBad = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, help="Maximum number of bad rows to skip; with more, nothing is loaded."),
]
Again = Annotated[bool, typer.Option("--again", help="Load files again that were loaded before.")]


def load(
    context: typer.Context,
    files: FilesAndName,
    create: Create = False,
    key: Key = "",
    partition_by: PartitionBy = "",
    types: Types = "",
    mode: Mode = "append",
    form: Format = None,
    delimiter: Delimiter = None,
    flatten: Flatten = False,
    evolve: Evolve = False,
    ignore_extra: IgnoreExtra = False,
    reject: Reject = None,
    max_bad: MaxBad = None,
    again: Again = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Load CSV, JSON, NDJSON or Parquet files, also compressed with gzip or zstd. A file is loaded once, even if given again."""
    *sources, name = files
    if not sources:
        raise CallerError("give the files to load, followed by the table: crannog load FILE... NAME")
    try:
        with _lake(context, create, dry_run) as lake, bar(name) as progress:
            report = lake.load(
                sources,
                name,
                create=create,
                key=key,
                partition_by=partition_by,
                types=types,
                mode=mode,
                format=form,
                delimiter="\t" if delimiter in ("\\t", "tab") else delimiter,
                flatten=flatten,
                evolve=evolve,
                ignore_extra=ignore_extra,
                reject=reject,
                max_bad=max_bad,
                again=again,
                dry_run=dry_run,
                progress=progress,
            )
    except KeyboardInterrupt as stop:
        raise Cancelled(f"stopped: {stop}" if str(stop) else "stopped before anything was written") from None
    answer(report.as_dict(), as_json, lambda: _show(report))


@contextmanager
def _lake(context: typer.Context, create: bool, dry_run: bool) -> Iterator[Lake]:
    """Open the lake; a dry run that would create the warehouse uses a temporary one instead."""
    with ExitStack() as stack:
        try:
            lake = stack.enter_context(lake_at(context, make=create and not dry_run))
        except NotFound:
            if not (create and dry_run):
                raise
            import crannog

            passing: Lake = crannog.connect(stack.enter_context(TemporaryDirectory(prefix="crannog-load-")))
            lake = stack.enter_context(passing)
        yield lake


def _show(report: LoadReport) -> None:
    facts(_title(report), _facts(report))
    if report.dry_run or report.created:
        _section(("column", "type", "null"), [(c["name"], c["type"], c["nullable"]) for c in report.columns])
    _section(("in the files", "in the table"), [*report.renamed.items()])
    _section(
        ("column", "change", "in the table", "in the files", "done"),
        [(d.column, d.change, d.in_table, d.in_files, d.done or "not allowed") for d in report.drift],
    )
    if len(report.files) > 1:
        _section(
            ("file", *(numbers := ("rows", "loaded before", "bad rows", "size"))),
            [
                (Path(f.file).name, f"{f.rows:,}", f"{f.duplicate_rows:,}", f"{f.bad_rows:,}", of_bytes(f.bytes))
                for f in report.files[:_FEW_FILES]
            ],
            right=numbers,
        )
        if len(report.files) > _FEW_FILES:
            say(f"… and {counted(len(report.files) - _FEW_FILES, 'file')} more; --json lists all of them.")
    _section(
        ("file", "line", "column", "value", "reason"),
        [(Path(b.file).name, b.line, b.column, b.value, b.reason) for b in report.first_bad],
        right=("line",),
    )
    if report.first_rows:
        typer.echo()
        columns = [column["name"] for column in report.columns]
        rows(columns, [[row.get(column) for column in columns] for row in report.first_rows], empty="")


def _section(columns: Sequence[str], lines: Sequence[Sequence[Any]], *, right: Sequence[str] = ()) -> None:
    """Print a table below an empty line, unless it has no lines."""
    if lines:
        typer.echo()
        listing(columns, lines, empty="", right=right)


def _title(report: LoadReport) -> str:
    if report.dry_run:
        made = f"{report.table} would be created, and " if report.created else ""
        return f"{made}{counted(report.rows, 'row')} would be loaded into {report.table}; nothing was written."
    if report.duplicate:
        which = "This file was" if len(report.files) == 1 else "All these files were"
        return f"{which} loaded into {report.table} before; nothing was added. Use --again to load again."
    made = " which was created" if report.created else ""
    return f"{counted(report.rows, 'row')} loaded into {report.table}{',' if made else ''}{made}."


def _facts(report: LoadReport) -> list[tuple[str, str]]:
    found = [("files", f"{len(report.files):,}, {of_bytes(report.bytes)}")]
    if report.duplicate_rows:
        found.append(("loaded before", counted(report.duplicate_rows, "row")))
    if report.bad_rows:
        where = f", written to {report.reject}" if report.reject and not report.dry_run else ""
        found.append(("bad rows", f"{counted(report.bad_rows, 'row')}{where}"))
    if not report.dry_run:
        found.append(("batches", f"{report.batches:,}"))
        found.append(("time", f"{report.seconds:,.1f} s, {report.rows_per_s:,.0f} rows/s"))
    return found
