"""Spans of the server's own work, sent by OpenTelemetry where a setting asks for it; nothing is loaded otherwise."""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crannog.missing import needed_for
from crannog.settings import Settings


def traced(app: ASGIApp, settings: Settings) -> ASGIApp:
    """Return the application, each request in a span if the settings name where to send them."""
    return Traced(app, settings.spans_endpoint) if settings.spans_endpoint else app


class Traced:
    """A plain ASGI layer around all others."""

    def __init__(self, app: ASGIApp, endpoint: str) -> None:
        with needed_for("the setting spans_endpoint"):
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._app = app
        # A provider of its own: the process may run inside a program that has another.
        self._provider = TracerProvider(resource=Resource.create({"service.name": "crannog"}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        self._tracer: Any = self._provider.get_tracer("crannog.server")

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind, Status, StatusCode

        carrier = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in (b"traceparent", b"tracestate")
        }
        with self._tracer.start_as_current_span(
            scope["method"], context=extract(carrier), kind=SpanKind.SERVER
        ) as span:

            async def send_and_record(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(Status(StatusCode.ERROR))
                await send(message)

            await self._app(scope, receive, send_and_record)
            call, path = scope.get("crannog.call"), getattr(scope.get("route"), "path", "unknown")
            span.update_name(f"{scope['method']} {path}")
            span.set_attribute("http.request.method", scope["method"])
            span.set_attribute("http.route", path)
            if call is not None:
                span.set_attribute("crannog.request_id", call.request_id)
                span.set_attribute("crannog.tables", list(call.tables))
                if call.rows is not None:
                    span.set_attribute("crannog.rows", call.rows)
