"""Commands that run and explain SQL, and manage the tables held in memory."""

from __future__ import annotations

import datetime as dt
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crannog.cli.arguments import JsonOption, NameArgument
from crannog.cli.context import answer, lake_at
from crannog.cli.output import counted, listing, moment, of_bytes, rows, say
from crannog.errors import CallerError

if TYPE_CHECKING:
    from crannog.api.result import Explanation, Result

cache = typer.Typer(help="Tables held in memory.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(sql)
    app.add_typer(cache, name="cache")
    for command in (pin, evict, stats):
        cache.command()(command)


def sql(
    context: typer.Context,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="One SELECT statement in Spark SQL; - reads standard input.")
    ],
    engine: Annotated[
        str, typer.Option(metavar="auto|hot|local|spark", help="Query engine: auto, hot, local or spark.")
    ] = "auto",
    max_rows: Annotated[int, typer.Option(min=0, help="Maximum number of rows to show; 0 uses the setting.")] = 0,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", help="Cancel the query after this time; 0 uses the setting."),
    ] = 0,
    explain: Annotated[bool, typer.Option("--explain", help="Show the plan instead of running the query.")] = False,
    analyze: Annotated[bool, typer.Option("--analyze", help="Show the plan and run the query.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run one read-only Spark SQL statement."""
    if csv and as_json:
        raise CallerError("use --json or --csv, not both")
    statement = sys.stdin.read() if text == "-" else text
    with lake_at(context) as lake:
        if explain or analyze:
            explanation = lake.explain(statement, engine, analyze=analyze, timeout_s=timeout_s or None)
            answer(explanation.as_dict(), as_json, lambda: _show_plan(explanation))
            return
        result = lake.sql(statement, max_rows=max_rows or None, engine=engine, timeout_s=timeout_s or None)
    if csv:
        _write_csv(result)
        return
    answer(_as_data(result), as_json, lambda: _show(result))


def _as_data(result: Result) -> dict[str, Any]:
    return {
        "columns": result.columns,
        "rows": [list(values) for values in zip(*(column.to_pylist() for column in result.table.columns), strict=True)],
        "row_count": result.row_count,
        "truncated": result.truncated,
        "engine": result.engine,
        "elapsed_ms": round(result.elapsed_ms, 3),
        "query_id": result.query_id,
    }


def _show(result: Result) -> None:
    values = _as_data(result)["rows"]
    rows([column["name"] for column in result.columns], values, empty="No rows.")
    more = "; there are more, use --max-rows to see them" if result.truncated else ""
    say(f"{counted(result.row_count, 'row')} in {result.elapsed_ms:,.1f} ms by {result.engine} ({result.why}){more}")


def _write_csv(result: Result) -> None:
    import pyarrow.csv

    try:
        pyarrow.csv.write_csv(result.table, sys.stdout.buffer)
    except pyarrow.ArrowException as error:
        raise CallerError(f"the result cannot be written as CSV: {str(error).splitlines()[0]}; use --json") from None


def _show_plan(explanation: Explanation) -> None:
    say(str(explanation).split("\n\n", 1)[0])
    typer.echo()
    typer.echo(explanation.plan)


def pin(context: typer.Context, name: NameArgument, as_json: JsonOption = False) -> None:
    """Load a table into memory. Without a server it is released when the command ends, so this only shows its size."""
    with lake_at(context) as lake:
        held = lake.cache.pin(name)
        server = getattr(lake, "address", "")
    ending = "Held until this command ends; `crannog serve` keeps tables in memory."
    if server:
        ending = f"Held by the server at {server} until it is evicted."
    answer(held, as_json, lambda: _show_tables([held], ending))


def evict(context: typer.Context, name: NameArgument, as_json: JsonOption = False) -> None:
    """Release a table from memory."""
    with lake_at(context) as lake:
        was_held = lake.cache.evict(name)
    text = f"{name} was released from memory." if was_held else f"{name} was not in memory."
    answer({"name": name, "evicted": was_held}, as_json, lambda: say(text))


def stats(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show the tables held in memory."""
    with lake_at(context) as lake:
        found = lake.cache.stats()
    limit = f"The limit is {of_bytes(found['limit_bytes'])}."
    answer(found, as_json, lambda: _show_tables(found["tables"], limit))


def _show_tables(tables: list[dict[str, Any]], ending: str) -> None:
    lines = [
        (
            held["name"],
            held["state"],
            f"{held['rows']:,}",
            of_bytes(held["bytes"]),
            f"{held['hits']:,}",
            f"{held['misses']:,}",
            moment(dt.datetime.fromtimestamp(held["last_access"], dt.UTC)),
        )
        for held in tables
    ]
    columns = ("table", "state", "rows", "size", "hits", "misses", "last access")
    listing(columns, lines, empty="No tables are held in memory.", right=("rows", "size", "hits", "misses"))
    for held in tables:
        if held["error"]:
            say(f"{held['name']} could not be loaded: {held['error']}")
    say(ending)
