"""Explains how a query would run: engine, reason, what is read of each table, the plan; without storage paths."""

from __future__ import annotations

import re
from collections.abc import Mapping

from crannog.api.explanation import TableReport
from crannog.engine.sql.file_pruning import Pruned
from crannog.engine.sql.sources import Source

_FILES = re.compile(r"(?:file:|s3a?:|gs:|abfss?:|az:)?/+[^\s,\[\]()'\"]+\.parquet")


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
