"""The operations of a build log, each declared once with its request, whose values are checked when it is made.

`EventLog` builds the requests; a log carries them out by queries of its read model, or on a server. Ids and partitions are
query parameters on the server: they may have any letters, slashes too. An unknown one has an empty result, and so does
text that no identifier can be: the request holds it as empty text, which no event has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from crannog.api.operations import AnyOperation, Operation, get, post
from crannog.builds import results
from crannog.builds.build_views import BuildComparison, JobEdge, JobNode
from crannog.builds.event_values import LARGEST_TIMESTAMP, BuildRequestStatus, PartitionStatus, is_name
from crannog.builds.events import BuildEvent
from crannog.builds.filters import EventFilter
from crannog.errors import CallerError

LARGEST_INDEX = 2**62


def whole_number(value: Any, name: str, *, least: int, most: int) -> int:
    """Return a whole number within limits. Raises CallerError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise CallerError(f"{name} is a whole number from {least} to {most:,}, got {value!r}")
    return value


def checked_indexes(indexes: Iterable[int]) -> list[int]:
    """Return valid indexes of events, sorted and without duplicates."""
    if not isinstance(indexes, Iterable):
        raise CallerError(f"indexes is a list of whole numbers, got {indexes!r}")
    return sorted({whole_number(index, "index", least=1, most=LARGEST_INDEX) for index in indexes})


def _number(default: Any, *, least: int = 1, most: int, about: str = "") -> Any:
    """Declare a whole number within limits, or None if that is the default."""
    return field(default=default, metadata={"least": least, "most": most, "about": about})


def _limit(default: int, most: int = 100_000) -> Any:
    return _number(default, most=most, about="Return at most this many.")


def _identifier(about: str) -> Any:
    """Declare an identifier: what cannot be one becomes empty text, which no event has."""
    return field(metadata={"is_identifier": True, "about": about})


def _optional_identifier() -> Any:
    return field(default=None, metadata={"is_identifier": True})


class _Request:
    """What all requests share: the checks that their fields declare."""

    __slots__ = ()

    def __post_init__(self) -> None:
        request: Any = self
        for each in fields(request):
            value, rules = getattr(self, each.name), each.metadata
            if value is None and each.default is None:
                continue
            if "most" in rules:
                whole_number(value, each.name, least=rules["least"], most=rules["most"])
            elif "is_identifier" in rules and not is_name(value):
                object.__setattr__(self, each.name, "")


# -- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventQuery(EventFilter, _Request):
    """Return a page of events, strictly after the index `since`; continue after its `next_index` while it `has_more`."""

    since: int | None = None
    limit: int = _limit(100)
    descending: bool = False

    def __post_init__(self) -> None:
        EventFilter.__post_init__(self)
        _Request.__post_init__(self)
        since = self.since
        if since is not None and (type(since) is not int or not 0 <= since <= LARGEST_INDEX):
            raise CallerError(f"since is the index of an event, 0 or more, got {since!r}")


@dataclass(frozen=True, slots=True)
class EventById(_Request):
    """Return one event, or null."""

    event_id: str = _identifier("The id of an event.")


@dataclass(frozen=True, slots=True)
class HeadQuery(_Request):
    """Return the largest index assigned."""


# -- builds ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BuildQuery(_Request):
    """Return builds, latest start first, and their total number."""

    status: str | None = None
    limit: int = _limit(50)
    offset: int = _number(0, least=0, most=LARGEST_INDEX)

    def __post_init__(self) -> None:
        if self.status is not None:
            object.__setattr__(self, "status", BuildRequestStatus.read(self.status).label)
        _Request.__post_init__(self)


@dataclass(frozen=True, slots=True)
class BuildById(_Request):
    """Return the state of a build, or null."""

    build_request_id: str = _identifier("The id of a build request.")


class BuildPartitionsQuery(BuildById):
    """Return the status of each partition in one build."""


class GraphQuery(BuildById):
    """Return the plan of a build as nodes and edges, and as a mermaid flowchart, coloured by the status of its jobs."""


@dataclass(frozen=True, slots=True)
class ComparisonQuery(_Request):
    """Compare two builds."""

    first: str = _identifier("The id of a build request.")
    second: str = _identifier("The id of a build request.")


# -- partitions and jobs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecentPartitionsQuery(_Request):
    """Return the partitions whose status changed last, newest first."""

    limit: int = _limit(50)


@dataclass(frozen=True, slots=True)
class PartitionStatusQuery(_Request):
    """Return the last status of a partition by commit order, or null."""

    partition_ref: str = _identifier("A partition.")


class ActiveBuildsQuery(PartitionStatusQuery):
    """Return the ids of the unfinished builds of a partition, following delegations."""


@dataclass(frozen=True, slots=True)
class LineageQuery(_Request):
    """Return the partitions that a partition was made from, or went into."""

    partition_ref: str = _identifier("A partition.")
    direction: str = field(default="upstream", metadata={"about": "`upstream` or `downstream`."})
    depth: int = 100
    limit: int = _limit(10_000, LARGEST_INDEX)


@dataclass(frozen=True, slots=True)
class EdgeQuery:
    """Return the inputs (upstream) or outputs of partitions, one step far."""

    partition_refs: Sequence[str]
    upstream: bool = True

    def __post_init__(self) -> None:
        refs = self.partition_refs
        if not isinstance(refs, (list, tuple)) or not all(isinstance(ref, str) for ref in refs):
            raise CallerError(f"partition_refs is a list of texts, got {refs!r}")
        object.__setattr__(self, "partition_refs", [ref for ref in dict.fromkeys(refs) if is_name(ref)])


@dataclass(frozen=True, slots=True)
class ManifestQuery(_Request):
    """Return the manifests of jobs, oldest first."""

    build_request_id: str | None = None
    partition_ref: str | None = None


@dataclass(frozen=True, slots=True)
class JobQuery(_Request):
    """Return each job with its success rate, durations, retries and last run, latest run first."""

    limit: int = _limit(1_000)


@dataclass(frozen=True, slots=True)
class RunQuery(_Request):
    """Return runs of jobs, newest first."""

    build_request_id: str | None = _optional_identifier()
    job_label: str | None = _optional_identifier()
    limit: int = _limit(1_000)


# -- the whole log ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ActivityQuery(_Request):
    """Return an overview of the log."""

    recent: int = _number(10, most=1_000)


@dataclass(frozen=True, slots=True)
class StatsQuery(_Request):
    """Return the size of the log and facts about its store."""


@dataclass(frozen=True, slots=True)
class PrunableQuery(_Request):
    """Return the indexes of events that may be pruned, oldest first."""

    before_ns: int | None = _number(None, least=0, most=LARGEST_TIMESTAMP)
    keep_events: int | None = _number(None, least=0, most=LARGEST_TIMESTAMP)
    limit: int = _number(1_000, most=10_000_000)


@dataclass(frozen=True, slots=True)
class RemoveEvents:
    """Remove events permanently, in one step."""

    indexes: Sequence[int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "indexes", checked_indexes(self.indexes))


@dataclass(frozen=True, slots=True)
class PruneLog:
    """Remove old events in batches; the latest status of each partition stays."""

    before_ns: int | None = None
    keep_events: int | None = None
    dry_run: bool = False
    batch: int = 1_000


@dataclass(frozen=True, slots=True)
class CheckLog:
    """Check every event and the state derived from them."""


@dataclass(frozen=True, slots=True)
class CompactLog:
    """Free the space of removed events; a Delta log is folded and compacted by Spark."""


# -- results that have no other use ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Head:
    """The largest index assigned."""

    index: int


@dataclass(frozen=True, slots=True)
class Indexes:
    """The indexes of events."""

    indexes: list[int]


@dataclass(frozen=True, slots=True)
class Removed:
    """How many events were removed."""

    removed: int


@dataclass(frozen=True, slots=True)
class Flowchart:
    """The plan of a build as the text of a mermaid flowchart, and as its nodes and edges."""

    mermaid: str
    nodes: tuple[JobNode, ...]
    edges: tuple[JobEdge, ...]


@dataclass(frozen=True, slots=True)
class SpaceReport:
    """The size of a log before and after its space was freed, if it is known."""

    bytes_before: int | None
    bytes_after: int | None


# -- the operations --------------------------------------------------------------------------------------------------


def _optional(name: str, request: type[Any], result: Any, path: str) -> AnyOperation:
    """Declare a read whose result may be null, which has no type of its own at run time."""
    return Operation(name, request, result, "read", (get(path),))


LIST_EVENTS = Operation(
    "list_events", EventQuery, results.EventPage, "read", (post("/builds/events/query"), get("/builds/events"))
)
GET_EVENT: Operation[EventById, BuildEvent | None] = _optional(
    "get_event", EventById, BuildEvent | None, "/builds/event"
)
HEAD = Operation("head", HeadQuery, Head, "read", (get("/builds/head"),))
LIST_BUILDS = Operation("list_build_requests", BuildQuery, results.BuildPage, "read", (get("/builds"),))
GET_BUILD: Operation[BuildById, results.BuildSummary | None] = _optional(
    "get_build", BuildById, results.BuildSummary | None, "/builds/build"
)
BUILD_PARTITIONS = Operation(
    "get_build_partitions", BuildPartitionsQuery, dict[str, PartitionStatus], "read", (get("/builds/build/partitions"),)
)
RECENT_PARTITIONS = Operation(
    "list_recent_partitions",
    RecentPartitionsQuery,
    list[results.PartitionSummary],
    "read",
    (get("/builds/partitions"),),
)
PARTITION_STATUS: Operation[PartitionStatusQuery, results.PartitionSummary | None] = _optional(
    "get_latest_partition_status", PartitionStatusQuery, results.PartitionSummary | None, "/builds/partitions/status"
)
ACTIVE_BUILDS = Operation(
    "get_active_builds_for_partition", ActiveBuildsQuery, list[str], "read", (get("/builds/partitions/active"),)
)
EDGES = Operation("list_edges", EdgeQuery, list[results.Edge], "read", (post("/builds/edges"),))
LIST_JOBS = Operation("list_jobs", JobQuery, list[results.JobSummary], "read", (get("/builds/jobs"),))
LIST_RUNS = Operation("list_job_runs", RunQuery, list[results.JobRun], "read", (get("/builds/runs"),))
ACTIVITY = Operation("get_activity_summary", ActivityQuery, results.ActivitySummary, "read", (get("/builds/activity"),))
STATS = Operation("stats", StatsQuery, results.LogStats, "read", (get("/builds/stats"),))
PRUNABLE = Operation("list_prunable", PrunableQuery, Indexes, "read", (get("/builds/prunable"),))

# Derived from the reads above: for programs that speak HTTP themselves.
GRAPH = Operation("get_graph", GraphQuery, Flowchart, "read", (get("/builds/build/graph"),))
COMPARE = Operation("compare_builds", ComparisonQuery, BuildComparison, "read", (get("/builds/compare"),))
LINEAGE = Operation("get_lineage", LineageQuery, results.Lineage, "read", (get("/builds/lineage"),))
MANIFESTS = Operation("get_manifests", ManifestQuery, list[Any], "read", (get("/builds/manifests"),))

REMOVE = Operation("remove_events", RemoveEvents, Removed, "admin", (post("/builds/events/remove"),))
# A dry run only reads; the server asks for the right to remove otherwise.
PRUNE = Operation("prune_log", PruneLog, results.PruneReport, "read", (post("/builds/prune"),))
CHECK = Operation("check_log", CheckLog, results.CheckReport, "read", (post("/builds/check"),))
COMPACT = Operation("compact", CompactLog, SpaceReport, "admin", (post("/builds/compact"),))

QUERIES: tuple[AnyOperation, ...] = (
    GET_EVENT, HEAD, LIST_BUILDS, GET_BUILD, BUILD_PARTITIONS, GRAPH, COMPARE, RECENT_PARTITIONS, PARTITION_STATUS,
    ACTIVE_BUILDS, LINEAGE, EDGES, MANIFESTS, LIST_JOBS, LIST_RUNS, ACTIVITY, STATS,
)  # fmt: skip
"""The reads that the server carries out alike, of the present log or of an earlier state."""
