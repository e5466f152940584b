"""Columns of a trace over HTTP: as Arrow or JSON, with an ETag by which a page asks whether the trace changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from crannog.api.operations import Operation
from crannog.api.traces import TraceColumns
from crannog.errors import TooLarge
from crannog.formats.encode import arrow, json_bytes
from crannog.formats.json_values import to_plain_json
from crannog.server.requests import call_of
from crannog.server.responses import MEDIA, wanted_form
from crannog.server.streaming import Put, WholeResponse, send_parts
from crannog.server.trace_queries import run_trace_query, streamed_trace

if TYPE_CHECKING:
    from crannog.traces.store import TraceStore

_MAX_JSON_ROWS = 10_000
_BATCH_ROWS = 1 << 18
"""One batch is sent while the next is compressed."""


async def columns_answer(request: Request, operation: Operation[Any, TraceColumns], wanted: Any) -> Response:
    """Respond with columns, or with 304 if the client has them."""
    form = wanted_form(request, ("arrow", "json"))
    # Caches may keep it, but must ask each time whether it changed.
    headers = {"Cache-Control": "private, no-cache", "Vary": "Accept"}
    known = request.headers.get("if-none-match")
    if known and request.method == "GET":
        etag = _etag(await run_trace_query(request, lambda store: store.trace_version(wanted.trace_id)), form)
        if etag in (item.strip().removeprefix("W/") for item in known.split(",")):
            return Response(status_code=304, headers={**headers, "ETag": etag})

    def work(store: TraceStore, put: Put) -> WholeResponse:
        found = store.call(operation, wanted)
        table = found.table
        call_of(request).rows = table.num_rows
        headers["ETag"] = _etag(found.etag, form)
        if form == "json":
            if table.num_rows > _MAX_JSON_ROWS:
                raise TooLarge(
                    f"the columns have {table.num_rows:,} rows; as JSON they have at most {_MAX_JSON_ROWS:,}:"
                    " accept application/vnd.apache.arrow.stream"
                )
            return headers, json_bytes(to_plain_json(found.as_dict()))
        return send_parts(put, table.nbytes, arrow(table.schema, table.to_batches(_BATCH_ROWS)), headers)

    return await streamed_trace(request, work, MEDIA[form])


def _etag(version: str, form: str) -> str:
    return f'"{version}-{form}"'
