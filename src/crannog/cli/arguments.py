"""Arguments and options that several commands share: their declarations, their completion by the shell, and their values."""

from __future__ import annotations

import datetime as dt
import os
import sys
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crannog.cli.context import Place, open_lake
from crannog.errors import CallerError, Cancelled, Refused

if TYPE_CHECKING:
    import pyarrow as pa

    from crannog.api.table import Table

_COMPLETION_TIMEOUT_S = 3.0
_ENDINGS = {".json": "json", ".ndjson": "ndjson", ".jsonl": "ndjson", ".csv": "csv"}


def names_that_begin(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a table name for the shell: quickly and without printing errors, because somebody is typing."""
    # A server that does not respond must not block the shell.
    last_resort = Timer(_COMPLETION_TIMEOUT_S, os._exit, (0,))
    last_resort.daemon = True
    last_resort.start()
    options = context.find_root().params
    place = Place(**{part: str(options.get(part) or "") for part in ("warehouse", "server", "token")})
    try:
        with open_lake(place, make=False) as lake:
            return [name for name in lake.tables() if name.startswith(incomplete)]
    except Exception:
        return []
    finally:
        last_resort.cancel()


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the table: catalog.schema.table.", autocompletion=names_that_begin),
]
SchemaOption = Annotated[
    str, typer.Option("--schema", metavar="FILE", help="JSON Schema of the columns; - reads standard input.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done, and change nothing.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
KeysArgument = Annotated[
    list[str],
    typer.Argument(metavar="KEY...", help="Keys: text or JSON values; JSON objects if the key has several columns."),
]
ActorOption = Annotated[str, typer.Option(metavar="WHO", help="Who requested it, for the audit log.")]
ReasonOption = Annotated[str, typer.Option(metavar="WHY", help="Reason, for the audit log.")]


# crannog.formats loads Arrow, which --help does not need.
def read_rows(source: str, form: str | None, schema: pa.Schema) -> pa.Table | list[Any]:
    """Read the rows of a file (`-`: standard input) for a table with these columns; raises CallerError if it is invalid."""
    from crannog.formats.row_bodies import parse_rows

    data = _read(source)
    return parse_rows(data, form or _format_of(source, data), schema, _label(source))


def read_schema(source: str) -> Any:
    """Read a JSON Schema from a file, or from standard input if that is `-`."""
    from crannog.formats.row_bodies import parse_document

    return parse_document(_read(source), _label(source))


def read_keys(keys: list[str], table: Table) -> list[Any]:
    """Return keys in the types of the table's key; unread if it has none, for which the engine raises the error."""
    from crannog.formats.row_bodies import parse_keys

    return parse_keys(keys, table.schema, table.key) if table.key else list(keys)


def _label(source: str) -> str:
    return "standard input" if source == "-" else source


def _read(source: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise CallerError(f"cannot read {source}: {error.strerror or error}") from None


def _format_of(source: str, data: bytes) -> str:
    from crannog.formats.row_bodies import FORMATS

    form = _ENDINGS.get(Path(source).suffix.lower())
    if form is None and data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"[", b"{", b""):
        form = "json"
    if form is None:
        raise CallerError(
            f"cannot tell the format of {_label(source)}; use --format {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        )
    return form


def confirm(question: str, act: str, yes: bool) -> None:
    """Ask before an irreversible change; without a terminal, --yes is required."""
    if yes:
        return
    if not _somebody_is_there():
        raise Refused(f"cannot ask whether to {act} without a terminal; confirm with --yes")
    if not typer.confirm(question, err=True):
        raise Cancelled(f"did not {act}; nothing was changed")


def _somebody_is_there() -> bool:
    return sys.stdin.isatty()


def day(text: str) -> dt.date:
    """Parse a date."""
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise CallerError(f"a day must be written as YYYY-MM-DD, like 2026-01-31, got {text!r}") from None
