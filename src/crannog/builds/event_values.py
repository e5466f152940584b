"""The values in an event: text, times, JSON and statuses, checked once when the event is created.

A status has a code, a short name, and the name that is stored, which has the prefix of its kind (`JOB_RUNNING`), so that it
cannot be mistaken for the status of another kind. Code and name are both stored and must agree.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, TypeVar

from crannog.errors import BadRows, CallerError

LARGEST_TIMESTAMP = 2**63 - 1
LONGEST_ID = 1_024
LARGEST_EVENT_BYTES = 16 * 1024**2
_DEEPEST_JSON = 100
_LARGEST_NUMBER_BITS = 8_192
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def text(value: Any, where: str) -> str:
    """Return text that every store can hold. Raises BadRows otherwise."""
    if not isinstance(value, str):
        raise BadRows(f"{where} is text, got {type(value).__name__}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadRows(f"{where} has half of a surrogate pair, which no store can hold as text") from None
    return value


def identifier(value: Any, where: str) -> str:
    """Return an identifier: text that is not empty, not too long, and without NUL, which PostgreSQL refuses."""
    found = text(value, where)
    if not found:
        raise BadRows(f"{where} is empty; it is required")
    if len(found) > LONGEST_ID:
        raise BadRows(f"{where} has {len(found):,} characters; {LONGEST_ID:,} is the most")
    if "\0" in found:
        raise BadRows(f"{where} contains NUL, which no identifier may have")
    return found


def optional_identifier(value: Any, where: str) -> str | None:
    """Return an identifier, or None for None or empty text."""
    return None if value is None or value == "" else identifier(value, where)


def identifiers(values: Any, where: str) -> tuple[str, ...]:
    """Return identifiers as a tuple, in their order, repetitions included."""
    if isinstance(values, (str, bytes, Mapping)):
        raise BadRows(f"{where} is a list of names, got {type(values).__name__}")
    try:
        listed = tuple(values)
    except TypeError:
        raise BadRows(f"{where} is a list of names, got {type(values).__name__}") from None
    return tuple(identifier(value, f"{where}[{place}]") for place, value in enumerate(listed))


def timestamp(value: Any, where: str) -> int:
    """Return nanoseconds since 1970 in UTC: 0 or more, in 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRows(f"{where} is a whole number of nanoseconds since 1970, got {type(value).__name__}")
    if not 0 <= value <= LARGEST_TIMESTAMP:
        raise BadRows(f"{where} is {value}; it must lie between 0 and {LARGEST_TIMESTAMP} nanoseconds")
    return int(value)


def is_name(value: Any) -> bool:
    """Tell whether text can be an identifier in a log. Raises CallerError if it is not text."""
    if not isinstance(value, str):
        raise CallerError(f"an id is text, got {type(value).__name__}")
    if "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def json_value(value: Any, where: str) -> Any:
    """Return a copy of a JSON value, typed models as objects. Raises BadRows, with the place, if it is not JSON.

    Integers of any size, the order of names, and the difference between 1 and 1.0 are preserved.
    """
    return _copied(value, where, 0)


def _copied(value: Any, where: str, depth: int) -> Any:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return text(value, where)
    if isinstance(value, int):
        if value.bit_length() > _LARGEST_NUMBER_BITS:
            raise BadRows(f"{where} is a number of {value.bit_length():,} bits; {_LARGEST_NUMBER_BITS:,} is the most")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BadRows(f"{where} is {value}, which JSON cannot hold")
        return float(value)
    if depth >= _DEEPEST_JSON:
        raise BadRows(f"{where} is nested deeper than {_DEEPEST_JSON} levels")
    if isinstance(value, Mapping):
        copied = {}
        for name, inner in value.items():
            if not isinstance(name, str):
                raise BadRows(f"{where} has the name {name!r}; names in JSON are text")
            copied[text(name, where)] = _copied(inner, f"{where}.{name}", depth + 1)
        return copied
    if isinstance(value, (list, tuple)):
        return [_copied(inner, f"{where}[{place}]", depth + 1) for place, inner in enumerate(value)]
    if hasattr(value, "as_json"):
        return _copied(value.as_json(), where, depth + 1)
    if hasattr(value, "model_dump"):
        return _copied(value.model_dump(mode="json"), where, depth + 1)
    raise BadRows(f"{where} is {type(value).__name__}, which is not a JSON value")


def to_json(value: Any) -> str:
    """Return a JSON value as the text that is stored."""
    return _JSON.encode(value)


def from_json(written: str, where: str) -> Any:
    """Parse JSON text. Raises BadRows, with the place, if it is not JSON."""
    try:
        return json.loads(written, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadRows(f"{where} is not JSON: {error}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


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
    def _missing_(cls, value: object) -> Status | None:
        """Let a stored name stand for its status."""
        return cls.__members__.get(value.removeprefix(cls.prefix())) if isinstance(value, str) else None

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
