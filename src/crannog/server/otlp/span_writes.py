"""Writes the spans of a request, for both receivers, and counts them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from crannog.errors import CrannogError
from crannog.server.auth.scopes import Caller
from crannog.server.service import Service
from crannog.traces.span_table import SPANS

if TYPE_CHECKING:
    from crannog.api.traces import WriteOutcome

_VERB = "spans"


def keep(service: Service, caller: Caller, body: bytes, content_type: str, encoding: str | None) -> WriteOutcome:
    """Check that the caller may write spans, then write those of a request."""
    caller.check("write", [SPANS])
    return write_spans(service, body, content_type, encoding)


def write_spans(service: Service, body: bytes, content_type: str, encoding: str | None) -> WriteOutcome:
    """Write the spans of a request; durable when it returns."""
    started = time.perf_counter()
    result, rows = "kept", 0
    try:
        outcome = service.lake.traces.write_otlp(body, content_type=content_type, encoding=encoding)
        rows = 0 if outcome.duplicate else outcome.accepted
        result = "duplicate" if outcome.duplicate else "kept"
        return outcome
    except CrannogError as error:
        result = error.code
        raise
    finally:
        service.metrics.write(_VERB, result, rows, time.perf_counter() - started)
