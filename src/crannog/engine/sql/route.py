"""Chooses the engine for a statement, and explains what it reads, without storage paths. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from crannog.api.result import TableReport
from crannog.engine.sql.file_pruning import Pruned
from crannog.engine.sql.sources import Source
from crannog.errors import CallerError

_FILES = re.compile(r"(?:file:|s3a?:|gs:|abfss?:|az:)?/+[^\s,\[\]()'\"]+\.parquet")


@dataclass(frozen=True, slots=True)
class Route:
    """The chosen engine, and the reason in words."""

    engine: str
    why: str


def choose_engine(
    requested: str, *, no_rule: str | None, hot: bool, not_hot: str, scan_bytes: int, scan_limit: int
) -> Route:
    """Choose hot, local or spark. Raises CallerError if the requested engine cannot run the statement.

    `no_rule` is the part of it that the compiler has no rule for; `hot` is True if all tables are in memory, `not_hot`
    names one that is not; `scan_bytes` is the number of bytes left to read after pruning.
    """
    if requested == "spark":
        return Route("spark", "requested")
    if no_rule is not None:
        if requested != "auto":
            raise CallerError(
                f"engine {requested!r} cannot run this: {no_rule} has no rule proved equal to Spark's; use engine='auto'"
            )
        return Route("spark", f"{no_rule} has no rule proved equal to Spark's")
    if requested == "hot" and not hot:
        raise CallerError(
            f"engine 'hot' cannot run this: {not_hot} is not in memory; pin it first, or use engine='auto'"
        )
    if hot and requested in ("auto", "hot"):
        return Route("hot", "all its tables are in memory")
    if requested == "local":
        return Route("local", "requested")
    if scan_bytes > scan_limit:
        return Route(
            "spark",
            f"{scan_bytes:,} bytes are left to read after pruning, more than the {scan_limit:,} of local_scan_bytes",
        )
    return Route("local", f"{scan_bytes:,} bytes are left to read after pruning")


def table_reports(
    sources: Mapping[int, Source], pruned: Mapping[int, Pruned], hot: Mapping[int, str]
) -> tuple[TableReport, ...]:
    """Return what is read of each table."""
    return tuple(
        TableReport(
            source.ref.written,
            source.snapshot.base.version,
            source.snapshot.sequence,
            "memory" if start in hot else "files",
            len(source.snapshot.base.files),
            0 if start in hot else len(pruned[start].files),
            0 if start in hot else pruned[start].bytes,
            source.snapshot.tail.row_count,
            pruned[start].taken,
        )
        for start, source in sources.items()
    )


def hidden_paths(plan: str, location: str) -> str:
    """Return a plan without the paths of files."""
    text = _FILES.sub("<file>", plan)
    bare = location.removeprefix("file://").rstrip("/")
    return text.replace(bare, "<warehouse>") if bare else text
