"""The skeleton of a trace over HTTP: as Arrow or JSON, with an ETag by which a page asks whether it changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from crannog.api.traces import requests as ops
from crannog.api.traces.requests import SkeletonQuery
from crannog.errors import TooLarge
from crannog.formats.encode import arrow, json_bytes
from crannog.formats.json_values import to_plain_json
from crannog.server.requests import call_of
from crannog.server.responses import MEDIA, wanted_form
from crannog.server.streaming import Put, WholeResponse, send_parts
from crannog.server.trace_queries import run_trace_query, streamed_trace

if TYPE_CHECKING:
    from crannog.traces.store import TraceStore

_MAX_JSON_SPANS = 10_000
_BATCH_ROWS = 1 << 18
"""One batch is sent while the next is compressed."""


async def skeleton_answer(request: Request, wanted: SkeletonQuery) -> Response:
    """Respond with a skeleton, or with 304 if the client has it."""
    form = wanted_form(request, ("arrow", "json"))
    # Caches may keep it, but must ask each time whether it changed.
    headers = {"Cache-Control": "private, no-cache", "Vary": "Accept"}
    known = request.headers.get("if-none-match")
    if known:
        etag = _etag(await run_trace_query(request, lambda store: store.skeleton_version(wanted)), form)
        if etag in (item.strip().removeprefix("W/") for item in known.split(",")):
            return Response(status_code=304, headers={**headers, "ETag": etag})

    def work(store: TraceStore, put: Put) -> WholeResponse:
        found = store.call(ops.SKELETON, wanted)
        call_of(request).rows = found.spans
        headers["ETag"] = _etag(found.etag, form)
        if form == "json":
            if found.spans > _MAX_JSON_SPANS:
                raise TooLarge(
                    f"trace {found.trace_id} has {found.spans:,} spans; as JSON a skeleton has at most"
                    f" {_MAX_JSON_SPANS:,}: accept application/vnd.apache.arrow.stream"
                )
            return headers, json_bytes(to_plain_json(found.as_dict()))
        table = found.table
        return send_parts(put, table.nbytes, arrow(table.schema, table.to_batches(_BATCH_ROWS)), headers)

    return await streamed_trace(request, work, MEDIA[form])


def _etag(version: str, form: str) -> str:
    return f'"{version}-{form}"'
