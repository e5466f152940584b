"""Responses: JSON, tables in the accepted format, and errors in one shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from crannog.errors import CrannogError
from crannog.formats import encode
from crannog.formats.json_values import to_plain_json

ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
CSV = "text/csv"
PARQUET = "application/vnd.apache.parquet"
JSON = "application/json"
_LONGEST_MESSAGE = 8_000
_FORMS = {
    JSON: "json",
    "application/*": "json",
    ARROW: "arrow",
    NDJSON: "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    CSV: "csv",
    "text/*": "csv",
    PARQUET: "parquet",
}
MEDIA = {"json": JSON, "arrow": ARROW, "ndjson": NDJSON, "csv": f"{CSV}; charset=utf-8", "parquet": PARQUET}


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with JSON."""
    return Response(encode.json_bytes(to_plain_json(value)), status, headers, JSON)


def error_body(error: CrannogError) -> dict[str, Any]:
    """Return the object that describes an error."""
    message = error.message
    if len(message) > _LONGEST_MESSAGE:  # it may repeat what the client sent
        message = message[:_LONGEST_MESSAGE] + "…"
    return {"code": error.code, "message": message, "retry_after_s": error.retry_after_s}


def error_answer(error: CrannogError, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response for an error."""
    further = dict(headers or {})
    if error.retry_after_s is not None:
        further["Retry-After"] = str(max(1, round(error.retry_after_s)))
    if error.http_status == 401:
        further["WWW-Authenticate"] = "Bearer"
    return answer({"error": error_body(error)}, error.http_status, further)


def wanted_form(request: Request, forms: tuple[str, ...] = ("json", "arrow", "ndjson", "csv", "parquet")) -> str:
    """Return the format that the client prefers; the first of `forms` if it accepts none of them."""
    best, weight = forms[0], 0.0
    for item in request.headers.get("accept", "").split(","):
        media, *parameters = (part.strip() for part in item.split(";"))
        form = forms[0] if media == "*/*" else _FORMS.get(media.lower())
        if form not in forms:
            continue
        quality = next((_number(part[2:]) for part in parameters if part.lower().startswith("q=")), 1.0)
        if quality > weight:
            best, weight = form, quality
    return best


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def table_parts(table: pa.Table, form: str) -> Iterator[bytes]:
    """Yield rows in a format."""
    return (
        batch_parts(table.schema, table.to_batches(), form)
        if form in ("arrow", "parquet")
        else encode.rows(form, table.schema, encode.parts(table))
    )


def batch_parts(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], form: str, failure: Callable[[Exception], bytes] | None = None
) -> Iterator[bytes]:
    """Yield rows in a format as they arrive. Arrow reports a failure at its end, see `encode.arrow`; others break off."""
    if form == "arrow":
        return encode.arrow(schema, batches, failure=failure)
    if form == "parquet":
        return encode.parquet(schema, batches)
    return encode.rows(
        form, schema, (part for batch in batches for part in encode.parts(pa.Table.from_batches([batch])))
    )


def schema_bytes(schema: pa.Schema) -> bytes:
    """Return an Arrow stream with a schema and no rows."""
    return b"".join(encode.arrow(schema, ()))
