"""Commands that change rows and list deletes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crannog.cli.arguments import (
    ActorOption,
    JsonOption,
    KeysArgument,
    NameArgument,
    ReasonOption,
    read_keys,
    read_rows,
)
from crannog.cli.context import answer, lake_at
from crannog.cli.output import counted, listing, moment, shown

if TYPE_CHECKING:
    from crannog.api.reports import WriteReceipt

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="JSON array, NDJSON or CSV; - reads standard input.")]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", metavar="json|ndjson|csv", help="Format of FILE; by default from its extension."),
]
BatchOption = Annotated[
    str | None,
    typer.Option(
        "--batch-id", metavar="ID", help="Id of this batch; a batch sent again with the same id is stored once."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("append", help="Append rows, all or none; they are durable and visible when the command returns.")(
        _writing("append")
    )
    app.command("upsert", help="Write rows, each replacing the row with the same key.")(_writing("upsert"))
    for command in (delete, tombstones, audit):
        app.command()(command)


def _writing(verb: str) -> Callable[..., None]:
    """Return the command that appends or upserts the rows of a file."""

    def command(
        context: typer.Context,
        name: NameArgument,
        file: FileArgument,
        form: FormatOption = None,
        batch_id: BatchOption = None,
        as_json: JsonOption = False,
    ) -> None:
        from crannog.delta.schemas import user_columns  # loads Arrow, which --help does not need

        with lake_at(context) as lake:
            table = lake.table(name)
            rows = read_rows(file, form, user_columns(table.schema))
            receipt = table.append(rows, batch_id) if verb == "append" else table.upsert(rows, batch_id)
        _answer(name, receipt, as_json, f"{counted(receipt.rows, 'row')} written to {name}")

    return command


def delete(
    context: typer.Context,
    name: NameArgument,
    keys: KeysArgument,
    actor: ActorOption = "",
    reason: ReasonOption = "",
    batch_id: BatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hide the rows of some keys immediately; the next fold removes them from the base, `erase` from every file.

    Programs that read the Delta table directly, without Crannog, see the rows until that fold.
    """
    with lake_at(context) as lake:
        table = lake.table(name)
        receipt = table.delete(read_keys(keys, table), actor=actor, reason=reason, batch_id=batch_id)
    _answer(name, receipt, as_json, f"{counted(receipt.rows, 'key')} deleted from {name}")


def _answer(name: str, receipt: WriteReceipt, as_json: bool, done: str) -> None:
    document = {
        "table": name,
        "sequence": receipt.sequence,
        "rows": receipt.rows,
        "batch_id": receipt.batch_id,
        "duplicate": receipt.duplicate,
    }
    text = f"{done}, sequence {receipt.sequence}."
    if receipt.duplicate:
        text = f"Batch {receipt.batch_id} was already written, at sequence {receipt.sequence}; nothing was added."
    answer(document, as_json, lambda: typer.echo(text))


def tombstones(context: typer.Context, name: NameArgument, as_json: JsonOption = False) -> None:
    """List the deletes that are not folded yet."""
    with lake_at(context) as lake:
        found = lake.table(name).tombstones()
    keys = [shown(next(iter(key.values())) if len(key) == 1 else key) for key in (entry["key"] for entry in found)]
    answer(found, as_json, lambda: _show("key", keys, found, "No deletes are waiting for a fold."))


def audit(context: typer.Context, name: NameArgument, as_json: JsonOption = False) -> None:
    """List the deletes that were carried out: actor, reason, time, and a keyed hash instead of the key."""
    with lake_at(context) as lake:
        found = lake.table(name).audit()
    hashes = [entry["key_hash"][:12] + "…" for entry in found]
    answer(found, as_json, lambda: _show("key hash", hashes, found, "No deletes have been carried out yet."))


def _show(label: str, keys: list[str], deletes: list[dict[str, Any]], empty: str) -> None:
    rows = [
        (key, entry["outcome"], entry["actor"], entry["reason"], moment(entry["deleted_at"]))
        for key, entry in zip(keys, deletes, strict=True)
    ]
    listing((label, "outcome", "actor", "reason", "deleted (UTC)"), rows, empty=empty)
