"""What both receivers do with a request: check the right to write spans, keep them, count them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from crannog.errors import CrannogError
from crannog.server.auth.scopes import Caller
from crannog.server.service import Service

if TYPE_CHECKING:
    from crannog.api.traces import WriteOutcome

_VERB = "spans"


def keep(service: Service, caller: Caller, body: bytes, content_type: str, encoding: str | None) -> WriteOutcome:
    """Keep the spans of a request; durable when it returns."""
    from crannog.traces.span_table import SPANS

    caller.check("write", [SPANS])
    started = time.perf_counter()
    outcome, kept = "kept", 0
    try:
        done = service.lake.traces.write_otlp(body, content_type=content_type, encoding=encoding)
        kept = 0 if done.duplicate else done.accepted
        outcome = "duplicate" if done.duplicate else "kept"
        return done
    except CrannogError as error:
        outcome = error.code
        raise
    finally:
        service.metrics.write(_VERB, outcome, kept, time.perf_counter() - started)
