"""Query results, as Arrow, pandas, Polars or Python values, with Spark's names of types, and how a query would be executed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crannog.errors import needed_for

if TYPE_CHECKING:
    import pandas
    import polars

INSTANT = pa.timestamp("us", "UTC")
SPARK_NAMES = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.null(): "void",
    INSTANT: "timestamp",
}


def spark_name(kind: pa.DataType) -> str:
    """Return the Spark name of a type."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{spark_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{spark_name(kind.key_type)},{spark_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{spark_name(field.type)}' for field in kind)}>"
    return SPARK_NAMES.get(kind, str(kind))


class Row(dict[str, Any]):
    """A row, indexed by column name or position: row["a"], row[0]."""

    __slots__ = ()

    def __getitem__(self, key: str | int) -> Any:
        return list(self.values())[key] if isinstance(key, int) else super().__getitem__(key)


@dataclass(frozen=True)
class Result:
    """A complete result. `engine` is the engine that ran the query, `why` the reason; `truncated` if there were more rows."""

    table: pa.Table
    engine: str
    truncated: bool
    elapsed_ms: float
    query_id: str
    why: str = ""

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def columns(self) -> list[dict[str, str]]:
        """The columns with their Spark type names."""
        return [{"name": field.name, "type": spark_name(field.type)} for field in self.table.schema]

    @property
    def row_count(self) -> int:
        return int(self.table.num_rows)

    def to_arrow(self) -> pa.Table:
        return self.table

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame; NotInstalled without pandas."""
        with needed_for("to_pandas()"):
            import pandas  # noqa: F401  # pyarrow's own error does not say how to install it

        return self.table.to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Return the rows as a Polars DataFrame; NotInstalled without Polars."""
        with needed_for("to_polars()"):
            import polars

        frame = polars.from_arrow(self.table)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def rows(self) -> list[Row]:
        """The rows as Python values."""
        return [Row(row) for row in self.table.to_pylist()]

    def __len__(self) -> int:
        return self.row_count

    def __repr__(self) -> str:
        more = ", truncated" if self.truncated else ""
        return f"Result({self.row_count:,} rows{more}, engine={self.engine!r}, {self.elapsed_ms:.1f} ms)"


@dataclass(frozen=True)
class Stream:
    """A result that is read batch by batch, never held in memory as a whole. Read it to the end or close it."""

    schema: pa.Schema
    engine: str
    query_id: str
    _batches: Iterator[pa.RecordBatch]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def close(self) -> None:
        """Cancel the query if it is still running."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
