"""Rows, keys and schemas from files, standard input and arguments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crannog.errors import CallerError
from crannog.formats.row_bodies import FORMATS, parse_document, parse_rows

if TYPE_CHECKING:
    import pyarrow as pa

_ENDINGS = {".json": "json", ".ndjson": "ndjson", ".jsonl": "ndjson", ".csv": "csv"}


def read_rows(source: str, given: str | None, schema: pa.Schema) -> pa.Table | list[Any]:
    """Read the rows of a file (`-`: standard input) for a table with these columns; raises CallerError if it is invalid."""
    data = _read(source)
    return parse_rows(data, given or _format_of(source, data), schema, _called(source))


def read_schema(source: str) -> Any:
    """Read a JSON Schema from a file, or from standard input if that is `-`."""
    return parse_document(_read(source), _called(source))


def _called(source: str) -> str:
    return "standard input" if source == "-" else source


def _read(source: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise CallerError(f"cannot read {source}: {error.strerror or error}") from None


def _format_of(source: str, data: bytes) -> str:
    form = _ENDINGS.get(Path(source).suffix.lower())
    if form is None and data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"[", b"{", b""):
        form = "json"
    if form is None:
        raise CallerError(
            f"cannot tell the format of {_called(source)}; use --format {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        )
    return form
