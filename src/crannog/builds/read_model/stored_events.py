"""Rows of the table `events` as events, without repeating the checks that were made when they were appended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from crannog.builds.events import PAYLOADS, BuildEvent, stored_event
from crannog.builds.statuses import Status

COLUMNS = "idx, event_id, timestamp, build_request_id, kind, body"

_TUPLES = frozenset({"requested_partitions", "target_partitions"})
_SHAPES: dict[int, tuple[type[Any], type[Status] | None, tuple[str, ...]]] = {
    int(kind): (payload, payload.STATUS, payload.FIELDS) for kind, payload in PAYLOADS.items()
}
_set = object.__setattr__


def event_of(row: Sequence[Any]) -> BuildEvent:
    """Return the event of a row of `COLUMNS`."""
    index, event_id, timestamp, build, kind, body = row
    return stored_event(event_id, timestamp, build, payload_of(kind, json.loads(body)), index)


def payload_of(kind: int, values: dict[str, Any]) -> Any:
    """Return the payload whose `as_dict` returned these values."""
    shape, status, names = _SHAPES[kind]
    payload = object.__new__(shape)
    for name in names:
        if name == "status":
            assert status is not None
            _set(payload, name, status(values["status_code"]))
        elif name in _TUPLES:
            _set(payload, name, tuple(values[name]))
        else:
            _set(payload, name, values[name])
    return payload
