"""Responses with rows: whole if they are small, streamed if they are large, in the format that the client accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from crannog.server.request_context import call_of
from crannog.server.responses import MEDIA, table_parts, wanted_form
from crannog.server.streaming import FlowResponse, Put, ThreadOutput, watched

_MAX_WHOLE_BYTES = 1 << 20
Poured = tuple[dict[str, str], bytes] | None
"""The headers and bytes of a response; None if they were streamed."""


def rows_response(table: pa.Table, form: str) -> Response:
    """Return a response with a small table."""
    return Response(b"".join(table_parts(table, form)), media_type=MEDIA[form])


async def rows_answer(request: Request, read: Callable[[], pa.Table]) -> Response:
    """Read rows in a thread and respond with them."""
    form = wanted_form(request)
    call = call_of(request)

    def make(put: Put) -> Poured:
        table = read()
        call.rows = table.num_rows
        return pour(put, table.nbytes, table_parts(table, form))

    return await poured(request, "rows", make, MEDIA[form], lambda: None)


def pour(put: Put, size: int, parts: Iterator[bytes], headers: Mapping[str, str] | None = None) -> Poured:
    """Stream the head of a response and its parts; return both if they are small."""
    if size <= _MAX_WHOLE_BYTES:
        return dict(headers or {}), b"".join(parts)
    put((dict(headers or {}), None))
    for part in parts:
        put(part)
    return None


async def poured(
    request: Request, kind: str, make: Callable[[Put], Poured], media_type: str, cancel: Callable[[], None]
) -> Response:
    """Respond with what a thread returns or streams; a client that disconnects before the first byte cancels it."""
    flow = ThreadOutput(call_of(request).service.threads, kind, make, cancel=cancel)
    try:
        headers, whole = await watched(request, flow.take(), cancel)
    except BaseException:
        flow.close()
        raise
    if whole is not None:
        return Response(whole, headers=headers, media_type=media_type)
    return FlowResponse(flow, media_type, headers)
