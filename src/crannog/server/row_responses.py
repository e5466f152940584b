"""Rows out: whole where they are few, part by part where they are many, in the form that the client accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from crannog.server.request_context import call_of
from crannog.server.responses import MEDIA, table_parts, wanted_form
from crannog.server.streaming import FlowResponse, Outflow, Put, watched

_WHOLE_BYTES = 1 << 20
Poured = tuple[dict[str, str], bytes] | None
"""An answer's headers and its bytes; None where they were put part by part."""


def rows_response(table: pa.Table, form: str) -> Response:
    """Answer with rows that are few."""
    return Response(b"".join(table_parts(table, form)), media_type=MEDIA[form])


async def rows_answer(request: Request, read: Callable[[], pa.Table]) -> Response:
    """Read rows in a thread and answer with them."""
    form = wanted_form(request)
    call = call_of(request)

    def make(put: Put) -> Poured:
        table = read()
        call.rows = table.num_rows
        return pour(put, table.nbytes, table_parts(table, form))

    return await poured(request, "rows", make, MEDIA[form], lambda: None)


def pour(put: Put, size: int, parts: Iterator[bytes], headers: Mapping[str, str] | None = None) -> Poured:
    """Put the head of an answer and its parts; return both where they are few."""
    if size <= _WHOLE_BYTES:
        return dict(headers or {}), b"".join(parts)
    put((dict(headers or {}), None))
    for part in parts:
        put(part)
    return None


async def poured(
    request: Request, kind: str, make: Callable[[Put], Poured], media_type: str, cancel: Callable[[], None]
) -> Response:
    """Answer with what a thread pours; a client that goes away before the first byte ends it too."""
    flow = Outflow(call_of(request).service.threads, kind, make, cancel=cancel)
    try:
        headers, whole = await watched(request, flow.take(), cancel)
    except BaseException:
        flow.close()
        raise
    if whole is not None:
        return Response(whole, headers=headers, media_type=media_type)
    return FlowResponse(flow, media_type, headers)
