"""OTLP over HTTP, and Zipkin's v2 JSON: a plain ASGI application, by the protocol's own rules for answers and errors."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.types import Receive, Scope, Send

from crannog.errors import CrannogError, Overloaded, TimedOut, TooLarge
from crannog.server.admission import admitted
from crannog.server.bodies import check_length, check_message
from crannog.server.otlp.langfuse import LANGFUSE_TRACES, bearer_of
from crannog.server.otlp.otlp_errors import http_status_of, may_retry, retry_s, status_json, status_of
from crannog.server.otlp.span_writes import keep
from crannog.server.service import Service

if TYPE_CHECKING:
    from crannog.api.traces import WriteOutcome

log = logging.getLogger("crannog.otlp")

TRACES, ZIPKIN_SPANS = "/v1/traces", "/api/v2/spans"
_PROTOBUF = ("application/x-protobuf", "application/protobuf")
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"


class _Left(Exception):
    """The client went away."""


class OtlpApp:
    """Takes spans; everything else is told where they go."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._limit = service.settings.otlp_request_bytes
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        media = headers.get("content-type", "").partition(";")[0].strip().lower()
        wrong = _wrong_door(scope["method"], scope["path"], media)
        if wrong is not None:
            await _send(send, wrong[0], wrong[1].encode(), _TEXT, {"allow": "POST"} if wrong[0] == 405 else None)
            return
        self._requests += 1
        zipkin = scope["path"] == ZIPKIN_SPANS
        try:
            done = await self._kept(scope, receive, headers, media, zipkin)
            body, kind = (b"", _TEXT) if zipkin else (_answer(done, media), media)
            await _send(send, 202 if zipkin else 200, body, kind)
        except CrannogError as error:
            await _refuse(send, error, media)
        except _Left:
            return
        except Exception as error:
            log.error("a request failed", exc_info=error)
            await _refuse(send, CrannogError("the server failed on this request; its log tells more"), media)
        finally:
            self._requests -= 1

    async def _kept(
        self, scope: Scope, receive: Receive, headers: Mapping[str, str], media: str, zipkin: bool
    ) -> WriteOutcome:
        from crannog.traces.ingest.receive import ZIPKIN

        service = self._service
        if self._requests > service.settings.http_requests:
            raise Overloaded(
                f"{self._requests - 1:,} requests are being served, which is the most; try again shortly",
                retry_after_s=1,
            )
        if service.tokens.is_stale:
            await service.threads.run("read", service.tokens.refresh)
        client = scope.get("client")
        authorization = headers.get("authorization", "")
        caller = admitted(
            service,
            authorization=bearer_of(authorization) if scope["path"] == LANGFUSE_TRACES else authorization,
            host=headers.get("host", "localhost"),
            origin=headers.get("origin"),
            address=client[0] if client else "",
        )
        body = await self._body(receive, headers.get("content-length", "0"))
        check_length(len(body), headers)
        check_message(body, headers)
        kind, encoding = ZIPKIN if zipkin else media, headers.get("content-encoding")
        return await service.threads.run("write", lambda: keep(service, caller, body, kind, encoding))

    async def _body(self, receive: Receive, announced: str) -> bytes:
        stall_s = self._service.settings.http_stall_s
        parts: list[bytes] = []
        size, more = 0, True
        told = int(announced) if announced.isdigit() else 0
        while more:
            if max(size, told) > self._limit:
                raise TooLarge(
                    f"the request has more than {self._limit:,} bytes, which is the most; send fewer spans at once"
                )
            try:
                async with asyncio.timeout(stall_s):
                    message = await receive()
            except TimeoutError:
                raise TimedOut(
                    f"the client sent nothing for {stall_s:g} s in the middle of a body; nothing of it was kept"
                ) from None
            if message["type"] == "http.disconnect":
                raise _Left
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _wrong_door(method: str, path: str, media: str) -> tuple[int, str] | None:
    """Return status and text for what is no request with spans: clients of the protocol expect these as plain text."""
    if path not in (TRACES, LANGFUSE_TRACES, ZIPKIN_SPANS):
        return (
            404,
            f"spans go to {TRACES}, Zipkin's to {ZIPKIN_SPANS}, those of Langfuse's clients to {LANGFUSE_TRACES}\n",
        )
    if method != "POST":
        return 405, f"{path} takes POST\n"
    known = (_JSON,) if path == ZIPKIN_SPANS else (*_PROTOBUF, _JSON)
    if media not in known:
        return 415, f"content type {media[:80]!r} is not known here: {', '.join(known)}\n"
    return None


def _answer(done: WriteOutcome, media: str) -> bytes:
    if media == _JSON:
        if not done.rejected:
            return b"{}"
        return json.dumps(
            {"partialSuccess": {"rejectedSpans": str(done.rejected), "errorMessage": done.message}}
        ).encode()
    return answer_message(done)


def answer_message(done: WriteOutcome) -> bytes:
    """Return the protobuf answer: empty when every span was kept."""
    if not done.rejected:
        return b""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTracePartialSuccess,
        ExportTraceServiceResponse,
    )

    partial = ExportTracePartialSuccess(rejected_spans=done.rejected, error_message=done.message)
    return bytes(ExportTraceServiceResponse(partial_success=partial).SerializeToString())


async def _refuse(send: Send, error: CrannogError, media: str) -> None:
    body = status_json(error) if media == _JSON else status_of(error).SerializeToString()
    further = {"retry-after": str(max(1, round(retry_s(error))))} if may_retry(error) else {}
    if error.http_status == 401:
        further["www-authenticate"] = "Bearer"
    await _send(send, http_status_of(error), body, media, further)


async def _send(send: Send, status: int, body: bytes, kind: str, further: Mapping[str, str] | None = None) -> None:
    told = {"content-type": kind, "content-length": str(len(body)), **(further or {})}
    headers = [(name.encode(), value.encode()) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
