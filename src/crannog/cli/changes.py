"""Commands that change rows and list deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from crannog.cli.arguments import (
    ActorOption,
    BatchOption,
    FileArgument,
    FormatOption,
    JsonOption,
    KeysArgument,
    NameArgument,
    ReasonOption,
)
from crannog.cli.context import answer, lake_at
from crannog.cli.output import counted, moment, shown

if TYPE_CHECKING:
    from crannog.api.reports import WriteReceipt


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (append, upsert, delete, tombstones, audit):
        app.command()(command)


def append(
    context: typer.Context,
    name: NameArgument,
    file: FileArgument,
    form: FormatOption = None,
    batch_id: BatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Append rows, all or none; they are durable and visible when the command returns."""
    _write(context, "append", name, file, form, batch_id, as_json)


def upsert(
    context: typer.Context,
    name: NameArgument,
    file: FileArgument,
    form: FormatOption = None,
    batch_id: BatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write rows, each replacing the row with the same key."""
    _write(context, "upsert", name, file, form, batch_id, as_json)


def _write(
    context: typer.Context, verb: str, name: str, file: str, form: str | None, batch_id: str | None, as_json: bool
) -> None:
    from crannog.cli.arguments import read_rows
    from crannog.delta.schemas import user_columns

    with lake_at(context) as lake:
        table = lake.table(name)
        rows = read_rows(file, form, user_columns(table.schema))
        receipt = table.append(rows, batch_id) if verb == "append" else table.upsert(rows, batch_id)
    _answer(name, receipt, as_json, f"{counted(receipt.rows, 'row')} written to {name}")


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
    from crannog.formats.row_bodies import parse_keys

    with lake_at(context) as lake:
        table = lake.table(name)
        # Without a key the arguments cannot be parsed; the engine raises the error.
        wanted = parse_keys(keys, table.schema, table.key) if table.key else keys
        receipt = table.delete(wanted, actor=actor, reason=reason, batch_id=batch_id)
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
    answer(document, as_json=as_json, otherwise=lambda: typer.echo(text))


def tombstones(context: typer.Context, name: NameArgument, as_json: JsonOption = False) -> None:
    """List the deletes that are not folded yet."""
    with lake_at(context) as lake:
        found = lake.table(name).tombstones()
    answer(found, as_json=as_json, otherwise=lambda: _show_tombstones(found))


def _show_tombstones(found: list[dict[str, Any]]) -> None:
    from crannog.cli.output import listing

    rows = [
        (
            shown(next(iter(entry["key"].values())) if len(entry["key"]) == 1 else entry["key"]),
            entry["outcome"],
            entry["actor"],
            entry["reason"],
            moment(entry["deleted_at"]),
        )
        for entry in found
    ]
    listing(("key", "outcome", "actor", "reason", "deleted (UTC)"), rows, empty="No deletes are waiting for a fold.")


def audit(context: typer.Context, name: NameArgument, as_json: JsonOption = False) -> None:
    """List the deletes that were carried out: actor, reason, time, and a keyed hash instead of the key."""
    with lake_at(context) as lake:
        found = lake.table(name).audit()
    answer(found, as_json=as_json, otherwise=lambda: _show_audit(found))


def _show_audit(found: list[dict[str, Any]]) -> None:
    from crannog.cli.output import listing

    rows = [
        (entry["key_hash"][:12] + "…", entry["outcome"], entry["actor"], entry["reason"], moment(entry["deleted_at"]))
        for entry in found
    ]
    listing(
        ("key hash", "outcome", "actor", "reason", "deleted (UTC)"), rows, empty="No deletes have been carried out yet."
    )
