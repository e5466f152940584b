"""What a query would do, told to a person: engine, reason, what each table gives, the plan; no storage paths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from crannog.engine.query.pruning import Pruned
from crannog.engine.query.result import Result
from crannog.engine.query.sources import Source

_FILES = re.compile(r"(?:file:|s3a?:|gs:|abfss?:|az:)?/+[^\s,\[\]()'\"]+\.parquet")


@dataclass(frozen=True, slots=True)
class TableReport:
    """What a statement reads of one table."""

    table: str
    version: int
    sequence: int
    read_from: str
    files: int
    files_read: int
    bytes_read: int
    staged_rows: int
    pruned_by: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Explanation:
    """The engine that answers and why, per table what is read and what was pruned by what, and the plan."""

    engine: str
    why: str
    tables: tuple[TableReport, ...]
    plan: str
    result: Result | None = None

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "engine": self.engine,
            "why": self.why,
            "tables": [asdict(report) for report in self.tables],
            "plan": self.plan,
        }
        if self.result is not None:
            found["analyzed"] = {"rows": self.result.row_count, "elapsed_ms": round(self.result.elapsed_ms, 3)}
        return found

    def __str__(self) -> str:
        lines = [f"engine: {self.engine} ({self.why})"]
        for report in self.tables:
            lines.append(
                f"{report.table} at version {report.version}, sequence {report.sequence}: {report.read_from},"
                f" {report.files_read} of {report.files} files, {report.bytes_read:,} bytes, {report.staged_rows:,} staged rows"
            )
            lines += [f"  {count} files pruned by {what}" for what, count in report.pruned_by]
        if self.result is not None:
            lines.append(f"ran: {self.result.row_count:,} rows in {self.result.elapsed_ms:.1f} ms")
        return "\n".join([*lines, "", self.plan])


def table_reports(
    sources: Mapping[int, Source], pruned: Mapping[int, Pruned], hot: Mapping[int, str]
) -> tuple[TableReport, ...]:
    """Tell what is read of each table."""
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
    """Return a plan without where files lie."""
    text = _FILES.sub("<file>", plan)
    bare = location.removeprefix("file://").rstrip("/")
    return text.replace(bare, "<warehouse>") if bare else text
