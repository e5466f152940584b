"""Long jobs: JSON when they are done, or lines of progress while they run; cancelled when the client disconnects."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from crannog.api.cancellation import Cancellation
from crannog.api.reports import Progress
from crannog.errors import CrannogError
from crannog.formats.encode import json_bytes
from crannog.server.request_context import Call, call_of
from crannog.server.responses import NDJSON, answer, error_body, wanted_form
from crannog.server.streaming import FlowResponse, Put, ThreadOutput, watched

log = logging.getLogger("crannog.server")

_HEARTBEAT_S = 0.9
Work = Callable[[Progress, Cancellation], Any]


async def long_work(request: Request, work: Work) -> Response:
    """Respond with the report of a job. The body must have been read."""
    call, cancellation = call_of(request), Cancellation()
    service = call.service

    def without_progress() -> Any:
        with service.running(cancellation, call.caller.name, cancellation.cancel):
            return work(lambda _step, _share: cancellation.check(), cancellation)

    if wanted_form(request, ("json", "ndjson")) == "json":
        return answer(await watched(request, service.threads.endless("job", without_progress), cancellation.cancel))

    def with_progress(put: Put) -> None:
        with service.running(cancellation, call.caller.name, cancellation.cancel):
            _put_progress(put, work, cancellation, call)

    flow = ThreadOutput(service.threads, "job", with_progress, cancel=cancellation.cancel)
    return FlowResponse(flow, NDJSON)


def _put_progress(put: Put, work: Work, cancellation: Cancellation, call: Call) -> None:
    """Do the work in a second thread and send its progress, or an empty object each second without progress."""
    state: dict[str, Any] = {}
    changed = threading.Condition()

    def progress(step: str, share: float) -> None:
        cancellation.check()
        with changed:
            state["progress"] = {"step": step, "share": share}
            changed.notify()

    def run() -> None:
        try:
            found = {"result": work(progress, cancellation)}
        except CrannogError as error:
            call.error_code = error.code
            found = {"error": error_body(error)}
        except Exception as error:
            log.error("a job failed", exc_info=error, extra={"request_id": call.request_id})
            call.error_code = "error"
            found = {
                "error": {"code": "error", "message": f"the work failed: {type(error).__name__}", "retry_after_s": None}
            }
        with changed:
            state["last"] = found
            changed.notify()

    worker = threading.Thread(target=run, name="crannog-job", daemon=True)
    worker.start()
    try:
        while True:
            with changed:
                if not state:
                    changed.wait(_HEARTBEAT_S)
                progress_made, last = state.pop("progress", None), state.get("last")
            if progress_made is not None:
                put(json_bytes({"progress": progress_made}) + b"\n")
            elif last is not None:
                put(bytes(answer(last).body) + b"\n")
                return
            else:
                put(b"{}\n")
    except BaseException:
        cancellation.cancel()
        raise
    finally:
        worker.join()
