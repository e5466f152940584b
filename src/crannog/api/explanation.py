"""How a query would be executed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from crannog.api.result import Result


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
    """The engine and why it was chosen, the files read and pruned in each table, and the plan."""

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
