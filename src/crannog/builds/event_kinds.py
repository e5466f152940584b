"""The kinds of build events, and how each is named in the table."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from crannog.errors import BadRows


class Kind(IntEnum):
    """The kinds of events, in the order of the table's columns."""

    BUILD_REQUEST = 1
    PARTITION = 2
    JOB = 3
    DELEGATION = 4
    JOB_GRAPH = 5
    PARTITION_INVALIDATION = 6
    TASK_CANCEL = 7
    BUILD_CANCEL = 8

    @property
    def event_type(self) -> str:
        """The name in the `event_type` column."""
        return self.name.lower()

    @property
    def column(self) -> str:
        """The column that holds the payload of this kind."""
        return f"{self.name.lower()}_event"

    @classmethod
    def read(cls, given: Any) -> Kind:
        """Return the kind of an `event_type`; BadRows for anything else."""
        if isinstance(given, Kind):
            return given
        found = cls.__members__.get(given.upper().removesuffix("_EVENT")) if isinstance(given, str) else None
        if found is None:
            raise BadRows(f"{given!r} is no kind of event; known are {', '.join(kind.event_type for kind in cls)}")
        return found
