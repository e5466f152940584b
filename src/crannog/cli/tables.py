"""Commands that list, create, describe, preview and drop tables."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crannog.cli.arguments import JsonOption, NameArgument, SchemaOption, YesOption, confirm, read_schema
from crannog.cli.context import answer, lake_at
from crannog.cli.output import counted, facts, listing, moment, of_bytes, rows, say, shown
from crannog.errors import CrannogError, NotFound, Overloaded

if TYPE_CHECKING:
    from crannog.api.lake import Lake


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (tables, create, describe, history, get, preview, drop):
        app.command()(command)


def tables(
    context: typer.Context,
    names: Annotated[
        bool, typer.Option("--names", help="Print names only, without opening the tables; fast if there are many.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the tables with their numbers of rows and sizes."""
    with lake_at(context) as lake:
        found = [{"name": name} if names else _summary(lake, name) for name in lake.tables()]
    answer(found, as_json, lambda: _show_tables(found, names))


def _summary(lake: Lake, name: str) -> dict[str, Any]:
    try:
        described = lake.table(name).describe()
    except Overloaded:
        raise
    except CrannogError as error:
        # One table that cannot be read must not hide the others.
        return {"name": name, "error": error.message}
    wanted = ("name", "rows", "staged_rows", "files", "bytes", "version", "key", "partition_by")
    return {part: described[part] for part in wanted}


def _show_tables(found: list[dict[str, Any]], names: bool) -> None:
    empty = "There are no tables yet; create one with `crannog create NAME --schema FILE`."
    if names:
        for table in found:
            typer.echo(table["name"])
        if not found:
            say(empty)
        return
    readable = [table for table in found if "error" not in table]
    if readable or not found:
        lines = [
            (t["name"], f"{t['rows']:,}", f"{t['staged_rows']:,}", of_bytes(t["bytes"]), ", ".join(t["key"]))
            for t in readable
        ]
        listing(("table", "rows", "staged", "size", "key"), lines, empty=empty, right=("rows", "staged", "size"))
    for table in found:
        if "error" in table:
            say(f"{table['name']} cannot be read: {table['error']}")


def create(
    context: typer.Context,
    name: NameArgument,
    schema: SchemaOption,
    key: Annotated[
        str, typer.Option(metavar="A,B", help="Key columns; a later row with the same key replaces the earlier one.")
    ] = "",
    partition_by: Annotated[
        str, typer.Option(metavar="A,B", help="Columns to partition by; _date is the day a row was written.")
    ] = "",
    cluster_by: Annotated[
        str,
        typer.Option(metavar="A,B", help="Columns to sort files by; by default the key, or the write time."),
    ] = "",
    if_exists: Annotated[
        str, typer.Option(metavar="error|ok", help="What to do if the table already exists with this definition.")
    ] = "error",
    as_json: JsonOption = False,
) -> None:
    """Create a table, and the warehouse if it does not exist. Does not need Spark."""
    columns = read_schema(schema)
    with lake_at(context, make=True) as lake:
        table = lake.create_table(
            name,
            columns,
            key=_names(key),
            partition_by=_names(partition_by),
            cluster_by=_names(cluster_by),
            if_exists=if_exists,
        )
        described = table.describe()
    answer(described, as_json, lambda: _show_description(described))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")] if text.strip() else []


def describe(context: typer.Context, name: NameArgument, as_json: JsonOption = False) -> None:
    """Show the definition, size and state of a table."""
    with lake_at(context) as lake:
        described = lake.table(name).describe()
    answer(described, as_json, lambda: _show_description(described))


def _show_description(found: dict[str, Any]) -> None:
    base = f"{counted(found['base_rows'], 'row')} in {counted(found['files'], 'file')}, {of_bytes(found['bytes'])}"
    staged = f"{counted(found['staged_rows'], 'row')} in {counted(found['staged_files'], 'file')}, {of_bytes(found['staged_bytes'])}"
    lists = (("key", "key"), ("partitions", "partition_by"), ("sorted by", "cluster_by"))
    facts(
        found["name"],
        [
            ("rows", f"{found['rows']:,}"),
            ("base", f"version {found['version']}: {base}"),
            (
                "staged",
                f"{staged} in memory; sequence {found['sequence']}, folded up to {found['folded_sequence']}",
            ),
            *[(label, ", ".join(found[part])) for label, part in lists if found[part]],
            ("created", moment(found["created_at"])),
            *[("warning", warning) for warning in found.get("warnings", ())],
        ],
    )
    columns = [(part["name"], part["type"], "" if part["nullable"] else "not null") for part in found["columns"]]
    listing(("column", "type", ""), columns, empty="")


def history(
    context: typer.Context,
    name: NameArgument,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Show at most this many, newest first.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the versions of a table's base, newest first."""
    with lake_at(context) as lake:
        found = lake.table(name).history(limit)
    for entry in found:
        entry["timestamp"] = dt.datetime.fromtimestamp(entry["timestamp"] / 1000, dt.UTC)
    answer(found, as_json, lambda: show_history(found))


def show_history(found: list[dict[str, Any]]) -> None:
    """Print versions as a table."""
    lines = [(entry["version"], moment(entry["timestamp"]), entry.get("operation"), _details(entry)) for entry in found]
    listing(("version", "time (UTC)", "operation", "details"), lines, empty="The log is empty.", right=("version",))


def _details(entry: dict[str, Any]) -> str:
    parts = []
    for name, text in (entry.get("operationParameters") or {}).items():
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        if isinstance(value, list):
            value = "–".join(map(str, value)) if name == "sequences" else ", ".join(map(str, value))
        if value not in ("", None):
            parts.append(f"{name} {value}")
    metrics = entry.get("operationMetrics") or {}
    if metrics.get("numOutputRows"):
        parts.append(f"{int(metrics['numOutputRows']):,} rows written")
    return "; ".join(parts)


def get(
    context: typer.Context,
    name: NameArgument,
    key: Annotated[
        list[str], typer.Argument(metavar="KEY...", help="The key: a value for each of its columns, in their order.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Show the row of a key."""
    from crannog.formats.row_bodies import key_of_texts

    with lake_at(context) as lake:
        table = lake.table(name)
        columns = table.key
        found = table.get(key_of_texts(key, table.schema, columns) if columns else key)
    answer(found, as_json, lambda: facts(name, [(column, shown(value)) for column, value in found.items()]))


def preview(
    context: typer.Context,
    name: NameArgument,
    n: Annotated[int, typer.Option("-n", min=1, max=100_000, help="Number of rows.")] = 20,
    raw: Annotated[bool, typer.Option("--raw", help="Also show deleted rows that are not folded yet.")] = False,
    system: Annotated[
        bool, typer.Option("--system", help="Also show Crannog's system columns; JSON always has them.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show some rows."""
    with lake_at(context) as lake:
        table = lake.table(name).preview(n, raw=raw)
    found = table.to_pylist(maps_as_pydicts="strict")
    columns = [column for column in table.column_names if system or not column.startswith("_")]
    lines = [[row[column] for column in columns] for row in found]
    answer(found, as_json, lambda: rows(columns, lines, empty="There are no rows yet."))


def drop(context: typer.Context, name: NameArgument, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Remove a table and all its files."""
    with lake_at(context) as lake:
        count = _rows_of(lake, name)
        what = "and its rows, which cannot be read" if count is None else f"with {counted(count, 'row')}"
        confirm(f"Drop {name} {what}?", f"drop {name}", yes)
        lake.drop_table(name)
    done = {"table": name, "dropped": True, "rows": count}
    answer(done, as_json, lambda: typer.echo(f"Dropped {name} {what}."))


def _rows_of(lake: Lake, name: str) -> int | None:
    try:
        return lake.table(name).count()
    except NotFound:
        raise
    except CrannogError:
        return None  # it must be possible to drop a damaged table
