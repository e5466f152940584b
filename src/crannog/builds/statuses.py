"""The statuses of builds, partitions and jobs: a code, a short name, and the name that is stored.

The stored name has the prefix of its kind (`JOB_RUNNING`), so that it cannot be mistaken for the status of another
kind. Code and name are both stored and must agree.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypeVar

from crannog.errors import BadRows

S = TypeVar("S", bound="Status")
_PREFIXES = {
    "BuildRequestStatus": "BUILD_REQUEST_",
    "PartitionStatus": "PARTITION_",
    "JobStatus": "JOB_",
    "DepType": "",
}


class Status(IntEnum):
    """The base of all statuses: the value is the code, `label` the stored name with the prefix of its kind."""

    code: int
    label: str

    def __init__(self, code: int) -> None:
        # Computed once: a log of a million events reads them a million times.
        self.code = code
        self.label = f"{self.prefix()}{self._name_}"

    @classmethod
    def prefix(cls) -> str:
        """Return the prefix of the stored names of this kind."""
        return _PREFIXES[cls.__name__]

    @classmethod
    def read(cls: type[S], given: Any) -> S:
        """Return the status for an enum member, a code, or a name with or without its prefix. Raises BadRows."""
        if isinstance(given, cls):
            return given
        if isinstance(given, IntEnum):
            raise BadRows(f"{type(given).__name__}.{given.name} is not a {cls.__name__}; {cls._known()}")
        if isinstance(given, int) and not isinstance(given, bool):
            try:
                return cls(given)
            except ValueError:
                raise BadRows(f"{given} is not a code of {cls.__name__}; {cls._known()}") from None
        if isinstance(given, str):
            found = cls.__members__.get(given.removeprefix(cls.prefix()))
            if found is not None:
                return found
        raise BadRows(f"{given!r} is not a {cls.__name__}; {cls._known()}")

    @classmethod
    def of_code_and_name(cls: type[S], code: Any, name: Any) -> S:
        """Return the status of a stored code and name. Raises BadRows if they disagree or one is unknown."""
        status, by_name = cls.read(code), cls.read(name)
        if status is not by_name:
            raise BadRows(f"status code {code} is {status.label}, but the name beside it is {name!r}: they must agree")
        return status

    @classmethod
    def _known(cls) -> str:
        return "valid are " + ", ".join(f"{member.name} {member.value}" for member in cls)


class BuildRequestStatus(Status):
    """The progress of a build."""

    UNKNOWN = 0
    RECEIVED = 1
    PLANNING = 2
    EXECUTING = 3
    COMPLETED = 4
    FAILED = 5
    CANCELLED = 6
    ANALYSIS_COMPLETED = 7


class PartitionStatus(Status):
    """The state of a partition."""

    UNKNOWN = 0
    REQUESTED = 1
    SCHEDULED = 2
    BUILDING = 3
    AVAILABLE = 4
    FAILED = 5
    DELEGATED = 6


class JobStatus(Status):
    """The progress of a job run."""

    UNKNOWN = 0
    SCHEDULED = 1
    RUNNING = 2
    COMPLETED = 3
    FAILED = 4
    CANCELLED = 5


class DepType(Status):
    """How a job uses an input: it reads it, or has it built."""

    QUERY = 0
    MATERIALIZE = 1


FINISHED_BUILDS = (BuildRequestStatus.COMPLETED, BuildRequestStatus.FAILED, BuildRequestStatus.CANCELLED)
FINISHED_PARTITIONS = (PartitionStatus.AVAILABLE, PartitionStatus.FAILED)
FINISHED_JOBS = (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)
