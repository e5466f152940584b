"""One request while it is served: who asks, what for, and what the log and the audit will say of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import Request

from crannog.names import TableName, without_raw_prefix
from crannog.server.auth.scopes import Caller

if TYPE_CHECKING:
    from crannog.server.service import Service


@dataclass(slots=True)
class Call:
    """Lives as long as its request. `need` comes before anything is opened, so that nobody learns what they may not see."""

    service: Service
    request_id: str
    caller: Caller
    address: str
    started: float = field(default_factory=time.perf_counter)
    tables: tuple[str, ...] = ()
    rows: int | None = None
    sql: str | None = None
    engine: str = ""
    error_code: str = ""
    status: int = 0
    left: bool = False
    held: int = 0

    def need(self, level: str, *names: TableName) -> None:
        """Raise Forbidden unless the caller may do this on all these tables."""
        self.tables = tuple(map(str, names))
        self.caller.check(level, names)

    def table(self, level: str, text: str) -> str:
        """Check a table's name and the right to it; return the name as it was given."""
        name = TableName.parse(without_raw_prefix(text)[0])
        self.need(level, name)
        return text

    def written_table(self, level: str, text: str) -> str:
        """The same for a change of rows, which a name with the mark of the raw form does not take."""
        self.need(level, TableName.parse(text))
        return text

    @property
    def elapsed_ms(self) -> float:
        return (time.perf_counter() - self.started) * 1000


def call_of(request: Request) -> Call:
    """Return the call of a request."""
    call: Call = request.scope["crannog.call"]
    return call
