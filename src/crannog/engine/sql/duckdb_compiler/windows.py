"""Aggregates, FILTER and window functions: their arguments, partitions, orders and frames."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from crannog.api.result import INSTANT, spark_name
from crannog.engine.sql.duckdb_compiler import operators
from crannog.engine.sql.duckdb_compiler.aggregates import AGGREGATES, IGNORING_NULLS, WINDOWS, plain_zero
from crannog.engine.sql.duckdb_compiler.expression_base import ExpressionBase, atomic
from crannog.engine.sql.duckdb_compiler.operators import boolean, named
from crannog.engine.sql.duckdb_compiler.terms import NoRule, Typed
from crannog.engine.sql.spark_types import is_integral


@dataclass(frozen=True, slots=True)
class Frame:
    """A window frame, or a side of one: DuckDB's SQL and what Spark shows of it."""

    sql: str
    shown: str | None
    of_values: bool = False


class Windows(ExpressionBase):
    """The rules of aggregates, over groups and over windows."""

    def on_any(self, node: exp.Expression) -> Typed:
        return self._aggregate(node, "")

    on_ignorenulls = on_respectnulls = on_any

    def _aggregate(self, node: exp.Expression, ending: str, *, window: bool = False) -> Typed:
        ignores_nulls = isinstance(node, exp.IgnoreNulls)
        if isinstance(node, (exp.IgnoreNulls, exp.RespectNulls)):
            node = self._take(node, "this")
        if isinstance(node, exp.Any):
            name, arguments = "any", [self._take(node, "this")]
        elif isinstance(node, exp.Anonymous):
            name, arguments = str(self._take(node, "this")).lower(), self._take.nodes(node)
        else:
            raise NoRule(f"{node.key} as an aggregate")
        rule = WINDOWS.get(name) if window and name in WINDOWS else AGGREGATES.get(name)
        if rule is None:
            raise NoRule(f"the function {name}{' over a window' if window else ''}")
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = self._take.nodes(arguments[0])
        if not arguments and name in AGGREGATES:
            raise NoRule(f"{name} of nothing")
        if name == "count" and not distinct and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            arguments = []
        with self.row_values(), self.own_columns(name):
            terms = [self.term(argument) for argument in arguments]
        if window and distinct:
            raise NoRule("distinct values over a window")
        if ignores_nulls and name not in IGNORING_NULLS:
            raise NoRule(f"IGNORE NULLS after {name}")
        done = rule(name, terms, distinct or ignores_nulls, ending)
        if done.name is not None:
            return done
        if name == "count" and not terms:
            return replace(done, name="count(1)")
        return replace(done, name=operators.called(name, terms, "DISTINCT " if distinct else ""))

    def on_filter(self, node: exp.Filter) -> Typed:
        condition = boolean(self.term(self._take(self._take(node, "expression"), "this")))
        done = self._aggregate(self._take(node, "this"), f" FILTER (WHERE {condition.sql})")
        return Typed(done.sql, done.type, named(done.name, " FILTER (WHERE ", condition.name, ")"))

    def on_window(self, node: exp.Window) -> Typed:
        self._take(node, "over")
        named_by = self._take(node, "alias")
        parts = node if named_by is None else self._windows.get(self._take.name(named_by).lower())
        if parts is None:
            raise NoRule("a window by this name")
        inside, shown = [], []
        partition = [self.term(part) for part in self._take.nodes(parts, "partition_by")]
        if partition:
            inside.append("PARTITION BY " + ", ".join(plain_zero(atomic(term)) for term in partition))
            shown.append(named("PARTITION BY ", joined([term.name for term in partition])))
        order = self._take(parts, "order")
        items = [] if order is None else [(one, self.term(self._take(one, "this"))) for one in self._take.nodes(order)]
        call = self._take(node, "this")
        frame = self._frame(self._take(parts, "spec"), [term for _, term in items])
        if items:
            sorted_by = [
                self.ordered(item, _by_value(term) if frame and frame.of_values else term) for item, term in items
            ]
            inside.append("ORDER BY " + ", ".join(sorted_by))
            directions = [self.ordered(item, Typed("", pa.bool_())) for item, _ in items]
            shown.append(
                named(
                    "ORDER BY ",
                    joined([named(term.name, way) for (_, term), way in zip(items, directions, strict=True)]),
                )
            )
        if frame is not None:
            inside.append(frame.sql)
        done = self._aggregate(call, f" OVER ({' '.join(inside)})", window=True)
        own = _own_frame(call)
        if own is not None and frame is not None:
            raise NoRule("a frame of a function that has its own")
        shown.append(frame.shown if frame is not None else own or _DEFAULT_FRAMES[bool(items)])
        return Typed(done.sql, done.type, named(done.name, " OVER (", joined(shown, " "), ")"))

    def ordered(self, node: exp.Ordered, term: Typed) -> str:
        """Return an item of ORDER BY."""
        descending = bool(self._take(node, "desc"))
        first = bool(self._take(node, "nulls_first"))  # the parser fills in Spark's default
        return f"{plain_zero(atomic(term))} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"

    def _interval(self, node: exp.Interval) -> tuple[int, str]:
        unit, value = self._take(node, "unit"), self._take(node, "this")
        if not isinstance(value, exp.Literal) or not isinstance(unit, exp.Var):
            raise NoRule("an interval of several parts")
        self._take(value, "is_string")
        try:
            return int(self._take(value, "this")), str(self._take(unit, "this"))
        except ValueError:
            raise NoRule(f"an interval of {value.name}") from None

    def _frame(self, spec: exp.WindowSpec | None, keys: list[Typed]) -> Frame | None:
        if spec is None:
            return None
        kind = str(self._take(spec, "kind") or "").upper()
        if kind not in ("ROWS", "RANGE"):
            raise NoRule("a window frame of this kind")
        start = self._frame_side(kind, self._take(spec, "start"), self._take(spec, "start_side"), keys)
        end = self._take(spec, "end")
        direction = self._take(spec, "end_side")
        last = Frame("CURRENT ROW", "CURRENT ROW") if end is None else self._frame_side(kind, end, direction, keys)
        return Frame(
            f"{kind} BETWEEN {start.sql} AND {last.sql}",
            named(f"{kind} BETWEEN ", start.shown, " AND ", last.shown),
            of_values=start.of_values or last.of_values,
        )

    def _frame_side(self, kind: str, value: Any, direction: Any, keys: list[Typed]) -> Frame:
        if isinstance(value, exp.Expression):
            way = str(direction).upper()
            if kind == "RANGE":
                return self._distance(value, way, keys)
            rows = self._take.number(value)
            if rows is None or not rows.isdigit():
                raise NoRule("a window frame with values")
            return Frame(f"{rows} {way}", f"{rows} {way}")
        word = str(value).upper()
        if word == "CURRENT ROW" and direction is None:
            return Frame(word, word)
        if word == "UNBOUNDED":
            word = f"UNBOUNDED {str(direction).upper()}"
            return Frame(word, word)
        raise NoRule("a window frame with values")

    def _distance(self, value: exp.Expression, way: str, keys: list[Typed]) -> Frame:
        """Return a side of a frame that is a distance from the row's own key."""
        if len(keys) != 1:
            raise NoRule("a window frame by the distance of several keys")
        kind = keys[0].type
        number = self._take.number(value)
        if number is not None and number.isdigit():
            if is_integral(kind) or kind == pa.date32():
                sql = number if is_integral(kind) else f"to_days({number})"
                return Frame(f"{sql} {way}", f"{number} {way}", of_values=True)
        elif isinstance(value, exp.Interval) and kind in (pa.date32(), INSTANT):
            amount, unit = self._interval(value)
            unit = unit.lower().rstrip("s")
            if amount >= 0 and unit in (("day",) if kind == pa.date32() else ("day", "hour", "minute", "second")):
                shown = f"INTERVAL '{amount}' {unit.upper()} {way}" if unit == "day" else None
                return Frame(f"to_{unit}s({amount}) {way}", shown, of_values=True)
        raise NoRule(f"a window frame by the distance of {spark_name(kind)}")


_DEFAULT_FRAMES = {
    True: "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    False: "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
}


def _own_frame(call: exp.Expression) -> str | None:
    """Return the frame that a function always has, in Spark's words."""
    if isinstance(call, (exp.IgnoreNulls, exp.RespectNulls)):
        call = call.this
    name = str(call.this).lower() if isinstance(call, exp.Anonymous) else ""
    if name in ("row_number", "rank", "dense_rank", "percent_rank", "ntile"):
        return "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    if name == "cume_dist":
        return "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    if name in ("lag", "lead"):
        offset = call.expressions[1].name if len(call.expressions) > 1 else "1"
        place = f"-{offset}" if name == "lag" and offset != "0" else offset
        return f"ROWS BETWEEN {place} FOLLOWING AND {place} FOLLOWING"
    return None


def _by_value(term: Typed) -> Typed:
    """Return a key that distances are added to: an instant without its time zone."""
    return replace(term, sql=f"CAST({term.sql} AS TIMESTAMP)") if term.type == INSTANT else term


def joined(names: list[str | None], between: str = ", ") -> str | None:
    """Join names of columns; None if one is unknown."""
    return None if any(name is None for name in names) else between.join(name for name in names if name is not None)
