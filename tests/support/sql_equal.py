"""What it means that two engines give the same answer, and which rules an answer proves."""

from __future__ import annotations

import ast
import datetime as dt
import math
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

from crannog.api.result import Result
from crannog.embedded import EmbeddedLake as Lake
from crannog.engine.sql.duckdb_compiler import (
    Compiled,
    NoRule,
    aggregates,
    compile_statement,
    date_patterns,
    decimals,
    expressions,
    functions,
    generators,
    grouping,
    nested,
    operators,
    relations,
    subqueries,
    text_casts,
    windows,
)
from crannog.engine.sql.statement import parse
from crannog.errors import CallerError, CrannogError

FAST = ("local", "hot")
# Sums of floating numbers depend on the order of their rows, on Spark too. This is the only place that is not exact,
# and only for the statements that say so.
TOLERANCE = 1e-12


def exact(value: Any) -> Any:
    """A value in a form that is equal exactly when the values are the same to the bit; NaN is NaN."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, dict):
        return tuple((name, exact(inner)) for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(exact(inner) for inner in value)
    return (type(value).__name__, str(value)) if not isinstance(value, (str, bytes)) else value


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows as Python values; days and instants as numbers, since Python's end with the year 9999."""
    for place, field in enumerate(table.schema):
        if pa.types.is_date32(field.type) or pa.types.is_timestamp(field.type):
            number = pa.int32() if pa.types.is_date32(field.type) else pa.int64()
            table = table.set_column(place, field.name, table.column(place).cast(number))
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True)) if table.num_columns else []


def difference(spark: Result, other: Result, *, ordered: bool, approximate: bool = False) -> str | None:
    """Say how an answer differs from Spark's; None if it does not."""
    ours, theirs = other.table, spark.table
    if ours.schema != theirs.schema:
        pairs = zip(theirs.schema, ours.schema, strict=False)
        parted = [f"{one.name}: {one.type} is {two.name}: {two.type}" for one, two in pairs if one != two]
        return f"columns: {parted or [ours.schema.names, theirs.schema.names]}"
    rows, wanted = rows_of(ours), rows_of(theirs)
    if len(rows) != len(wanted):
        return f"{len(rows)} rows instead of {len(wanted)}"
    if approximate:
        rows, wanted = sorted(rows, key=_rough), sorted(wanted, key=_rough)
        found = [pair for pair in zip(wanted, rows, strict=True) if not all(map(_near, *pair))]
        apart = [
            (name, a, b)
            for one, two in found
            for name, a, b in zip(ours.schema.names, one, two, strict=True)
            if not _near(a, b)
        ]
        return f"{len(found)} rows, (column, Spark's, ours): {apart[:6]}" if found else None
    keys, wanted_keys = [exact(row) for row in rows], [exact(row) for row in wanted]
    if keys == wanted_keys:
        return None
    missing, extra = Counter(wanted_keys) - Counter(keys), Counter(keys) - Counter(wanted_keys)
    if not missing and not extra:
        return f"another order: {rows[:5]} instead of {wanted[:5]}" if ordered else None
    lost = [row for row, key in zip(wanted, wanted_keys, strict=True) if key in missing]
    made = [row for row, key in zip(rows, keys, strict=True) if key in extra]
    if len(lost) == len(made) and len(spark.schema) > 3:
        odd = sorted(
            {
                place
                for one, two in zip(lost, made, strict=True)
                for place, (a, b) in enumerate(zip(one, two, strict=True))
                if exact(a) != exact(b)
            }
        )
        shown = [
            (
                theirs.schema.names[place],
                [
                    (one[place], two[place])
                    for one, two in zip(lost, made, strict=True)
                    if exact(one[place]) != exact(two[place])
                ][:4],
            )
            for place in odd
        ]
        return f"values (Spark's, ours): {shown}"
    return f"{len(lost)} rows: Spark {lost[:3]}, ours {made[:3]}"


def _rough(row: tuple[Any, ...]) -> str:
    return repr([f"{value:.9e}" if isinstance(value, float) else value for value in row])


def _near(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isfinite(one):
        return math.isclose(one, other, rel_tol=TOLERANCE)
    return bool(exact(one) == exact(other))


@dataclass(frozen=True)
class Outcome:
    """What an engine made of a statement: a result, or the error it ended with."""

    result: Result | None
    error: str = ""

    @property
    def failed(self) -> bool:
        return self.result is None


def ask(lake: Lake, text: str, engine: str) -> Outcome:
    try:
        return Outcome(lake.sql(text, engine=engine))
    except CrannogError as error:
        return Outcome(None, str(error))


# -- which rules a statement uses ------------------------------------------------------------------------------

Rules = frozenset[str]
_TABLES: dict[str, dict[str, Callable[..., Any]]] = {
    "function": functions.RULES,
    "aggregate": aggregates.AGGREGATES,
    "window": aggregates.WINDOWS,
}
_TRACED = {
    str(Path(module.__file__ or "")): module.__name__.rsplit(".", 1)[-1]
    for module in (
        *(operators, decimals, text_casts, aggregates, functions, date_patterns, nested, generators),
        *(expressions, windows, subqueries, grouping, relations),
    )
}


def every_rule() -> set[str]:
    """Every entry of the lists, and every `return` of the modules that hold the rules: each is a branch of one."""
    found = {f"{kind} {name}" for kind, table in _TABLES.items() for name in table}
    for file, module in _TRACED.items():
        source = Path(file).read_text()
        for node in ast.walk(ast.parse(source)):
            # A rule that a function makes is a `return` of its own; that of the maker runs when the list is built.
            if isinstance(node, ast.Return) and not (isinstance(node.value, ast.Name) and node.value.id == "rule"):
                found.add(_branch(module, node.lineno, source.splitlines()[node.lineno - 1]))
    return found


def _branch(module: str, line: int, text: str) -> str:
    return f"{module}.py:{line} {text.strip()}"


def compiled(lake: Lake, text: str) -> Compiled | str:
    """What a statement compiles to, or what of it has no rule."""
    try:
        return _compile(lake, text)
    except NoRule as reason:
        return str(reason)


def _compile(lake: Lake, text: str) -> Compiled:
    queries = lake.operations.queries
    statement = parse(text, queries._settings.sql_text_bytes)
    shapes = {start: source.shape for start, source in queries._sources.of(statement).items()}
    return compile_statement(statement, shapes, dt.datetime.now(dt.UTC))


def rules_of(lake: Lake, text: str) -> Rules:
    """The rules that a statement is compiled by; CallerError if it is not."""
    used: set[str] = set()
    lines: set[tuple[str, int]] = set()

    def inside(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return inside

    def entered(frame: FrameType, event: str, _: Any) -> Any:
        return inside if frame.f_code.co_filename in _TRACED else None

    before = sys.gettrace()
    with _recorded(used):
        sys.settrace(entered)
        try:
            _compile(lake, text)
        except NoRule as reason:
            raise CallerError(f"no rule for {reason}") from None
        finally:
            sys.settrace(before)
    sources = {file: Path(file).read_text().splitlines() for file in _TRACED}
    used |= {_branch(_TRACED[file], line, sources[file][line - 1]) for file, line in lines}
    return frozenset(used)


@contextmanager
def _recorded(used: set[str]) -> Iterator[None]:
    """Note each entry of the lists that is called meanwhile."""
    kept = {kind: dict(table) for kind, table in _TABLES.items()}

    def noting(label: str, rule: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            found = rule(*args)
            used.add(label)
            return found

        return noted

    for kind, table in _TABLES.items():
        table.update({name: noting(f"{kind} {name}", rule) for name, rule in kept[kind].items()})
    try:
        yield
    finally:
        for kind, table in _TABLES.items():
            table.update(kept[kind])
