"""The operations on traces over HTTP that need special handling."""

from __future__ import annotations

from typing import Any

from crannog.api.operations import Operation, Q, R
from crannog.api.traces import requests as ops
from crannog.api.traces.requests import WriteSpans
from crannog.remote.connection import WRITE_TRIES
from crannog.remote.transport import HttpTransport, decoded


class TraceTransport(HttpTransport):
    """Carries out the operations on traces on a server."""

    def call(self, operation: Operation[Q, R], request: Q) -> R:
        if isinstance(request, WriteSpans):
            return decoded(operation.result, self._write(request))
        return super().call(operation, request)

    def _write(self, request: WriteSpans) -> Any:
        headers = {"Content-Type": request.content_type}
        if request.encoding:
            headers["Content-Encoding"] = request.encoding
        # A request is stored once by its content, so one without a response may be sent again.
        answer = self.connection.ask(
            "POST", ops.WRITE.routes[0].path, content=bytes(request.body), headers=headers, tries=WRITE_TRIES
        )
        return answer.json()
