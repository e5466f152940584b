"""The build event log: what happened in each build, stored once and in commit order, in a choice of stores."""

from __future__ import annotations

from crannog.builds.build_views import BuildComparison, compare, mermaid, stored_graph
from crannog.builds.event_values import BuildRequestStatus, DepType, JobStatus, PartitionStatus
from crannog.builds.events import (
    BuildCancelEvent,
    BuildEvent,
    BuildRequestEvent,
    DelegationEvent,
    JobEvent,
    JobGraphEvent,
    Kind,
    PartitionEvent,
    PartitionInvalidationEvent,
    TaskCancelEvent,
)
from crannog.builds.filters import EventFilter
from crannog.builds.follow import Watch
from crannog.builds.json_documents import DataDep, JobConfig, JobGraph, PartitionManifest, Task
from crannog.builds.log import EventLog
from crannog.builds.open_log import open_log, register_scheme
from crannog.builds.results import (
    ActivitySummary,
    BuildPage,
    BuildSummary,
    CheckReport,
    CopyReport,
    Edge,
    EventPage,
    ImportReport,
    JobRun,
    JobSummary,
    Lineage,
    LogStats,
    PartitionSummary,
    PruneReport,
    plain,
)
from crannog.builds.upkeep import check, copy, export_lines, import_lines, prune, wipe_build

__all__ = [
    "ActivitySummary",
    "BuildCancelEvent",
    "BuildComparison",
    "BuildEvent",
    "BuildPage",
    "BuildRequestEvent",
    "BuildRequestStatus",
    "BuildSummary",
    "CheckReport",
    "CopyReport",
    "DataDep",
    "DelegationEvent",
    "DepType",
    "Edge",
    "EventFilter",
    "EventLog",
    "EventPage",
    "ImportReport",
    "JobConfig",
    "JobEvent",
    "JobGraph",
    "JobGraphEvent",
    "JobRun",
    "JobStatus",
    "JobSummary",
    "Kind",
    "Lineage",
    "LogStats",
    "PartitionEvent",
    "PartitionInvalidationEvent",
    "PartitionManifest",
    "PartitionStatus",
    "PartitionSummary",
    "PruneReport",
    "Task",
    "TaskCancelEvent",
    "Watch",
    "check",
    "compare",
    "copy",
    "export_lines",
    "import_lines",
    "mermaid",
    "open_log",
    "plain",
    "prune",
    "register_scheme",
    "stored_graph",
    "wipe_build",
]
