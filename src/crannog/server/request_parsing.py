"""Parses bodies: rows, keys, schemas and documents, in the format of the Content-Type."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request

from crannog.api.table_requests import Definition
from crannog.errors import CallerError, UnsupportedMedia
from crannog.formats.row_bodies import exact_keys, parse_document, parse_rows
from crannog.server.arrow_bodies import arrow_table
from crannog.server.responses import ARROW
from crannog.settings import Settings

_FORMS = {
    "": "json",
    "application/json": "json",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "text/csv": "csv",
    "application/csv": "csv",
    ARROW: "arrow",
}
BODY = "the body"
_ANY = 1 << 62


def form_of(request: Request, forms: tuple[str, ...] = ("json", "ndjson", "csv", "arrow")) -> str:
    """Return the format of the body by its Content-Type. Raises UnsupportedMedia, which lists the supported ones."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    form = _FORMS.get(media)
    if form not in forms:
        known = ", ".join(name for name, of in _FORMS.items() if name and of in forms)
        raise UnsupportedMedia(f"content type {media[:80]!r} is not supported; send one of {known}")
    return form


def rows_from(data: bytes, form: str, table: Definition, settings: Settings) -> pa.Table | list[Any]:
    """Read rows for a table."""
    if form == "arrow":
        return arrow_table(data, most_rows=_ANY, most_bytes=settings.http_body_bytes)  # the engine counts rows
    return parse_rows(data, form, table.user_schema, BODY, strict=True)


def document(data: bytes, shape: TypeAdapter[Any]) -> Any:
    """Read a JSON document of a shape. Raises CallerError, which names the fields that do not fit."""
    found = parse_document(data, BODY, strict=True)
    try:
        return shape.validate_python(found, strict=True)
    except ValidationError as error:
        wrong = [
            f"{'.'.join(map(str, item['loc'])) or BODY}: {item['msg'][:1].lower()}{item['msg'][1:]}"
            for item in error.errors()[:5]
        ]
        raise CallerError(f"{BODY} does not fit: {'; '.join(wrong)}") from None


def keys_from(values: list[Any], table: Definition) -> list[Any]:
    """Return keys of a JSON document in the form that the engine expects."""
    return exact_keys(values, table.schema, table.key) if table.key else values
