"""Ask Crannog and Spark the same made-up statement, and tell how their answers differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from crannog.api.result import Result
from crannog.embedded import EmbeddedLake as Lake
from crannog.engine.spark_files import spark_schema
from crannog.engine.sql.run_on_spark import in_arrow_types
from crannog.engine.sql.spark_types import in_schema, plain_schema
from crannog.errors import CrannogError, Unavailable
from crannog.spark.errors import translated
from sql_equal import difference
from sql_made_tables import CATALOG, SCHEMA, MadeTable
from sql_tree import Node, shrunk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_ROWS = 100_000
# A value that cannot be converted fails a statement only if it is computed, and whether a column that the statement
# around does not read is computed depends on the plan, on Spark too.
_OF_A_VALUE = re.compile(
    r"cannot be (cast|represented|converted)|overflow|by zero|out of (range|bounds)|malformed", re.IGNORECASE
)
# Sums of numbers overflow on the way or not by the order of Spark's tasks; ours only at the end (docs/sql.md).
_BY_CHANCE = ("overflow",)


@dataclass(frozen=True)
class Finding:
    """A statement that Crannog and Spark do not answer alike, and the tables it needs."""

    kind: str
    statement: Node
    tables: tuple[MadeTable, ...]
    difference: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.difference}\n  {self.statement}\n" + "".join(f"  {table}" for table in self.tables)


class Versus:
    """One lake and one Spark session with the same tables; views in the session have the names of the tables."""

    def __init__(self, lake: Lake, session: SparkSession) -> None:
        self.lake, self._session = lake, session
        self.answered = self.fast = 0

    def set_up(self, tables: Sequence[MadeTable]) -> None:
        """Make the tables, and a view of each that holds what the table then shows."""
        for table in tables:
            table.write(self.lake)
            shown = self.lake.sql(f"select * from {CATALOG}.{SCHEMA}.{table.name}", engine="local").to_arrow()
            # PySpark takes an Arrow table without rows only as a list.
            view = self._session.createDataFrame(shown if shown.num_rows else [], spark_schema(shown.schema))
            view.createOrReplaceTempView(table.name)

    def finding(self, statement: Node, tables: Sequence[MadeTable]) -> Finding | None:
        """Return how the answers differ, None if they are alike; errors on both sides are alike."""
        text = str(statement)
        ours, our_error = self._ours(text)
        theirs, their_error = self._theirs(text)
        used = tuple(table for table in tables if table.name in text)
        if ours is None and theirs is None:
            return (
                Finding("not the caller's error", statement, used, our_error)
                if our_error.startswith("!") and not their_error.startswith("!")
                else None
            )
        if text.lower().count("select") + text.count("|>") > 1 and _OF_A_VALUE.search(our_error or their_error):
            return None
        if ours is None:
            return Finding("refused, Spark answers", statement, used, our_error)
        if theirs is None:
            chance = any(word in their_error for word in _BY_CHANCE) and "sum(" in text
            return (
                None if chance else Finding("answered, Spark refuses", statement, used, f"{ours.engine}: {their_error}")
            )
        self.answered += 1
        self.fast += ours.engine != "spark"
        # Floating sums, averages and variances depend on the order of rows.
        approximate = any(word in text for word in ("sum(", "avg(", "stddev(", "var_pop("))
        found = difference(theirs, ours, ordered=False, approximate=approximate)
        kind = "names or types" if found and found.startswith("columns") else "rows"
        return Finding(kind, statement, used, f"{ours.engine}: {found}") if found else None

    def smallest(self, found: Finding, tries: int) -> Finding:
        """Make the statement and then its tables as small as they can be and still show this kind of difference."""
        best = found

        def differs(statement: Node) -> bool:
            nonlocal best
            again = self.finding(statement, found.tables)
            if again is None or again.kind != found.kind:
                return False
            best = again
            return True

        shrunk(found.statement, differs, tries)
        for place in range(len(best.tables)):
            best = self._fewer_rows(best, place)
        return best

    def _fewer_rows(self, found: Finding, place: int) -> Finding:
        """Take away the columns that the statement does not name, then row by row."""
        table = found.tables[place]
        named = set(re.findall(r"\w+", str(found.statement))) | {"id"}
        few = replace(table, columns=tuple(name for name in table.columns if name in named))
        self.set_up([few])
        again = self.finding(found.statement, (*found.tables[:place], few, *found.tables[place + 1 :]))
        if again is not None and again.kind == found.kind:
            found, table = again, few
        for row in table.rows:
            kept = tuple(other for other in found.tables[place].rows if other is not row)
            tables = (*found.tables[:place], replace(table, rows=kept), *found.tables[place + 1 :])
            self.set_up([tables[place]])
            again = self.finding(found.statement, tables)
            if again is not None and again.kind == found.kind:
                found = again
        self.set_up([found.tables[place]])
        return found

    def _ours(self, text: str) -> tuple[Result | None, str]:
        try:
            return self.lake.sql(text, max_rows=_MOST_ROWS, timeout_s=60), ""
        except Unavailable as error:
            return None, f"!{error}"
        except CrannogError as error:
            return None, str(error)
        except Exception as error:
            return None, f"!{error!r}"

    def _theirs(self, text: str) -> tuple[Result | None, str]:
        try:
            table = in_arrow_types(self._session.sql(text)).toArrow()
        except Exception as error:
            said = translated(error)
            return None, f"{'!' if isinstance(said, Unavailable) else ''}{said}"
        return Result(in_schema(table, plain_schema(table.schema)), "spark", False, 0.0, ""), ""
