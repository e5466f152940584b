"""A build log on a server, with the interface of an embedded log; each call is a request."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from crannog.builds.append_plan import checked_batch
from crannog.builds.event_values import BuildRequestStatus, PartitionStatus, is_name, to_json
from crannog.builds.events import BuildEvent
from crannog.builds.log import EventLog, page_arguments, whole_number
from crannog.builds.results import (
    ActivitySummary,
    BuildPage,
    BuildSummary,
    Edge,
    EventPage,
    JobRun,
    JobSummary,
    LogStats,
    PartitionSummary,
)
from crannog.builds.results_from_json import event_of, result_of
from crannog.builds.upkeep import CheckReport
from crannog.errors import CallerError, Unavailable, error_of
from crannog.remote.connection import READ_TRIES, WRITE_TRIES, Connection

T = TypeVar("T")
_BEAT_S = 0.9
_PATIENCE_S = 60.0
_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_JSON = {"Content-Type": "application/json"}


class HttpLog(EventLog):
    """The build log of a server. Thread-safe."""

    def __init__(
        self,
        uri: str,
        *,
        check_states: bool = False,
        token: str | None = None,
        connection: Connection | None = None,
    ) -> None:
        self.uri = uri
        self._check_states = check_states
        self._owns_connection = connection is None
        if connection is not None:
            self._connection = connection
            return
        self._connection = Connection(uri, token or os.environ.get("CRANNOG_TOKEN") or None)
        self.head()  # fails now if there is no log at this address

    # -- writing -----------------------------------------------------------------------------------------------------

    def append_events(self, events: Iterable[BuildEvent], *, check_states: bool | None = None) -> list[int]:
        batch = checked_batch(events)
        if not batch:
            return []
        lines = "\n".join(event.at(None).as_json() for event in batch).encode()
        check = self._check_states if check_states is None else check_states
        # An event is stored once by its id, so a request without a response may be sent again.
        answer = self._connection.ask(
            "POST", "/builds/events", params={"check_states": _word(check)}, content=lines,
            headers={"Content-Type": "application/x-ndjson"}, tries=WRITE_TRIES,
        )  # fmt: skip
        return [int(index) for index in answer.json()["indexes"]]

    def remove_events(self, indexes: Iterable[int]) -> int:
        listed = [whole_number(index, "index", least=1, most=2**62) for index in indexes]
        return int(
            self._connection.ask("POST", "/builds/events/remove", document={"indexes": listed}).json()["removed"]
        )

    # -- reading -----------------------------------------------------------------------------------------------------

    def list_events(
        self, since: int | None = None, limit: int = 100, descending: bool = False, **filter: Any
    ) -> EventPage:
        _, wanted = page_arguments(since, limit, descending, filter)
        query = {"since": since, "limit": limit, "descending": bool(descending), **wanted.as_json()}
        found = self._request_json("POST", "/builds/events/query", document=query)
        return EventPage(tuple(map(event_of, found["events"])), found["next_index"], found["has_more"])

    def get_event(self, event_id: str) -> BuildEvent | None:
        return self._get(BuildEvent, "event", event_id=event_id)

    def head(self) -> int:
        return int(self._request_json("GET", "/builds/head")["index"])

    def get_latest_partition_status(self, partition_ref: str) -> PartitionSummary | None:
        return self._get(PartitionSummary, "partitions/status", partition_ref=partition_ref)

    def get_active_builds_for_partition(self, partition_ref: str) -> list[str]:
        return self._get(list[str], "partitions/active", partition_ref=partition_ref) or []

    def list_build_requests(
        self, status: BuildRequestStatus | str | None = None, limit: int = 50, offset: int = 0
    ) -> BuildPage:
        wanted = None if status is None else BuildRequestStatus.read(status).label
        params = {"status": wanted, "limit": _number(limit, "limit"), "offset": _number(offset, "offset")}
        return result_of(BuildPage, self._request_json("GET", "/builds", params=params))

    def get_build(self, build_request_id: str) -> BuildSummary | None:
        return self._get(BuildSummary, "build", build_request_id=build_request_id)

    def get_build_partitions(self, build_request_id: str) -> dict[str, PartitionStatus]:
        return self._get(dict[str, PartitionStatus], "build/partitions", build_request_id=build_request_id) or {}

    def list_recent_partitions(self, limit: int = 50) -> list[PartitionSummary]:
        return result_of(
            list[PartitionSummary],
            self._request_json("GET", "/builds/partitions", params={"limit": _number(limit, "limit")}),
        )

    def list_job_runs(
        self, build_request_id: str | None = None, job_label: str | None = None, limit: int = 1_000
    ) -> list[JobRun]:
        if not all(name is None or is_name(name) for name in (build_request_id, job_label)):
            return []
        params = {"build_request_id": build_request_id, "job_label": job_label, "limit": _number(limit, "limit")}
        return result_of(list[JobRun], self._request_json("GET", "/builds/runs", params=params))

    def list_jobs(self, limit: int = 1_000) -> list[JobSummary]:
        return result_of(
            list[JobSummary], self._request_json("GET", "/builds/jobs", params={"limit": _number(limit, "limit")})
        )

    def get_activity_summary(self, recent: int = 10) -> ActivitySummary:
        return result_of(
            ActivitySummary, self._request_json("GET", "/builds/activity", params={"recent": _number(recent, "recent")})
        )

    def stats(self) -> LogStats:
        return result_of(LogStats, self._request_json("GET", "/builds/stats"))

    def list_edges(self, partition_refs: Iterable[str], *, upstream: bool) -> list[Edge]:
        refs = [ref for ref in dict.fromkeys(partition_refs) if is_name(ref)]
        return result_of(
            list[Edge],
            self._request_json("POST", "/builds/edges", document={"partition_refs": refs, "upstream": upstream}),
        )

    def list_prunable(self, before_ns: int | None, keep_events: int | None, limit: int) -> list[int]:
        params = {
            "before_ns": _optional(before_ns),
            "keep_events": _optional(keep_events),
            "limit": _number(limit, "limit"),
        }
        return list(self._request_json("GET", "/builds/prunable", params=params)["indexes"])

    def give_back_space(self) -> None:
        """Fold, compact and clean up on the server."""
        self._connection.ask("POST", "/builds/compact", read_s=None)

    def check_there(self) -> CheckReport:
        """Check the whole log on the server."""
        return result_of(CheckReport, self._connection.ask("POST", "/builds/check", read_s=None).json())

    def _get(self, kind: type[T], path: str, **params: str) -> T | None:
        if not all(is_name(value) for value in params.values()):
            return None
        found = self._request_json("GET", f"/builds/{path}", params=params)
        return None if found is None else result_of(kind, found)

    def _request_json(self, method: str, path: str, *, params: Any = None, document: Any = None) -> Any:
        content = None if document is None else to_json(document).encode()
        headers = None if document is None else _JSON
        return self._connection.ask(
            method, path, params=params, content=content, headers=headers, tries=READ_TRIES
        ).json()

    # -- following ---------------------------------------------------------------------------------------------------

    def follow(
        self,
        since: int | None = None,
        *,
        poll_s: float = 0.05,
        idle_s: float | None = None,
        stop: Any = None,
        **filter: Any,
    ) -> Iterator[BuildEvent]:
        _, wanted = page_arguments(since, 1, False, filter)
        start = self.head() if since is None else since
        return self._follow(start, wanted.as_json(), idle_s, stop or threading.Event())

    def _follow(
        self, position: int, filter: dict[str, Any], idle_s: float | None, stop: threading.Event
    ) -> Iterator[BuildEvent]:
        """Yield the events that the server sends; reconnects after the last received event if the connection ends.

        Raises Unavailable if no server responds for a minute.
        """
        beat_s = _BEAT_S if idle_s is None else max(0.02, min(_BEAT_S, idle_s))
        quiet_since = heard = time.monotonic()
        pause = _PAUSE_S
        while not stop.is_set():
            content = to_json({"since": position, **filter}).encode()
            try:
                with self._connection.opened(
                    "POST", "/builds/events/follow", params={"beat_s": str(beat_s)}, content=content,
                    headers={**_JSON, "Accept": "application/x-ndjson"}, read_s=30 + beat_s,
                ) as response:  # fmt: skip
                    for event in _events(response.iter_lines()):
                        heard, pause = time.monotonic(), _PAUSE_S
                        if stop.is_set():
                            return
                        if event is not None:
                            yield event
                            position, quiet_since = event.index or position, time.monotonic()
                        elif idle_s is not None and time.monotonic() - quiet_since >= idle_s:
                            return
            except Unavailable:
                if time.monotonic() - heard > _PATIENCE_S:
                    raise
                stop.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def close(self) -> None:
        if self._owns_connection:
            self._connection.close()


def _events(lines: Iterator[str]) -> Iterator[BuildEvent | None]:
    """Yield events, and None for each heartbeat."""
    from crannog.builds.event_values import from_json

    for line in lines:
        message = from_json(line, "a line from the server")
        if "error" in message:
            raise error_of(message["error"]["code"], message["error"]["message"], message["error"].get("retry_after_s"))
        yield event_of(message) if message else None


def _number(value: Any, name: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise CallerError(f"{name} must be an integer, got {value!r}")
    return str(value)


def _optional(value: int | None) -> str | None:
    return None if value is None else _number(value, "a limit")


def _word(value: bool) -> str:
    return "true" if value else "false"
