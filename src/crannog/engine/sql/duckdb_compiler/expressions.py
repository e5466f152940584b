"""Expressions of one SELECT: each node of the tree to a typed term."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from crannog.api.result import INSTANT, spark_name
from crannog.engine.sql.duckdb_compiler import functions, operators
from crannog.engine.sql.duckdb_compiler.aggregates import AGGREGATES, WINDOWS, plain_zero
from crannog.engine.sql.duckdb_compiler.operators import boolean, named
from crannog.engine.sql.duckdb_compiler.scope import NodeCoverage, Scope, excerpt
from crannog.engine.sql.duckdb_compiler.terms import Condition, NoRule, Typed, constant, converted, duck_type
from crannog.engine.sql.spark_types import is_atomic, is_numeric, of_number

if TYPE_CHECKING:
    from crannog.engine.sql.duckdb_compiler.select import Query

_TYPE = exp.DataType.Type
_KINDS = {
    _TYPE.TINYINT: pa.int8(),
    _TYPE.SMALLINT: pa.int16(),
    _TYPE.INT: pa.int32(),
    _TYPE.BIGINT: pa.int64(),
    _TYPE.FLOAT: pa.float32(),
    _TYPE.DOUBLE: pa.float64(),
    _TYPE.TEXT: pa.string(),
    _TYPE.BOOLEAN: pa.bool_(),
    _TYPE.DATE: pa.date32(),
    _TYPE.TIMESTAMPTZ: INSTANT,
    _TYPE.TIMESTAMPLTZ: INSTANT,
}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div"}
_OPERANDS = ("this", "expression", "low", "high")
_COMPARISON = {exp.EQ: "=", exp.LT: "<", exp.GT: ">", exp.LTE: "<=", exp.GTE: ">=", exp.NullSafeEQ: "<=>"}
_PREDICATES = (*_COMPARISON, exp.NEQ, exp.Is, exp.In, exp.Between, exp.Like)
_LOOSE = (*_PREDICATES, exp.Escape, exp.Not, exp.And, exp.Or)


class Expressions:
    """Compiles the expressions of one SELECT. `subquery` compiles a statement inside one."""

    def __init__(
        self,
        scope: Scope,
        coverage: NodeCoverage,
        subquery: Callable[[exp.Expression, Scope], Query],
        now: Callable[[], dt.datetime],
        windows: Mapping[str, exp.Window],
        new_alias: Callable[[], str],
    ) -> None:
        self.scope = scope
        self._new_alias = new_alias
        self._take = coverage
        self._subquery = subquery
        self._now = now
        self._windows = windows
        # The conjuncts of WHERE and HAVING, where null and false are the same.
        self.conjuncts: set[int] = set()
        # IN over a subquery inside other conditions → whether an odd number of NOT is around it.
        self._negated_in: dict[int, bool] = {}
        # A key's SQL → the SQL it is grouped by; filled once the keys are known.
        self.keys: dict[str, str] = {}
        # The outputs by their names in lower case, as far as they are known, and whether it is ORDER BY that may use them.
        self.outputs: dict[str, list[Typed]] = {}
        self.in_order = False
        # Whether columns are the values of a row, as inside an aggregate.
        self._of_rows = False
        # The same for all keys of grouping sets; empty if there are none.
        self.grouping: dict[str, str] = {}

    def term(self, node: exp.Expression | None) -> Typed:
        """Return the typed form of a node. Raises NoRule if it has no rule."""
        if node is None:
            raise NoRule("something that is left out")
        found = self._term(node)
        if found.sql in self.keys:
            return Typed(self.keys[found.sql], found.type, found.name)
        return found

    def _term(self, node: exp.Expression) -> Typed:
        kind = type(node)
        if kind in _PREDICATES:
            _check_operands(node)
        if kind in _ARITHMETIC:
            return self._arithmetic(_ARITHMETIC[kind], node)
        if kind in _COMPARISON:
            return operators.comparison(_COMPARISON[kind], *self._sides(node))
        if isinstance(node, exp.Query):
            return self._as_value(node)
        rule = getattr(self, f"on_{node.key}", None)
        if rule is None:
            raise NoRule(f"{node.key}: {excerpt(node)}")
        found: Typed = rule(node)
        return found

    def _sides(self, node: exp.Expression) -> tuple[Typed, Typed]:
        return self.term(self._take(node, "this")), self.term(self._take(node, "expression"))

    # -- names and constants -----------------------------------------------------------------------------------

    def on_column(self, node: exp.Column | exp.Dot) -> Typed:
        parts = self._take.path(node)
        own = self.scope.own(parts)
        aliased = self.outputs.get(parts[0].lower(), [])
        if aliased and (own is None or (self.in_order and any(one.sql != own.sql for one in aliased))):
            return self._aliased(parts, aliased)
        return self.scope.resolve(parts) if own is None else own

    def _aliased(self, parts: list[str], found: list[Typed]) -> Typed:
        """Return an output by its name: before the columns in ORDER BY, after them in HAVING and in later outputs."""
        if len({one.sql for one in found}) > 1:
            raise NoRule(f"the name {parts[0]}, which several outputs have")
        if len(parts) > 1 or self._of_rows:
            raise NoRule(f"the output {parts[0]} inside an aggregate, or a part of it")
        return replace(found[0], name=parts[0])

    on_dot = on_column

    def on_literal(self, node: exp.Literal) -> Typed:
        text = self._take(node, "this") or ""
        if self._take(node, "is_string"):
            return constant(text, pa.string(), text)
        number = of_number(text)
        if number is None:
            raise NoRule(f"the number {text[:60]}")
        kind, value = number
        return constant(value, kind, _shown_double(value) if isinstance(value, float) else f"{value}")

    def on_boolean(self, node: exp.Boolean) -> Typed:
        value = bool(self._take(node, "this"))
        return constant(value, pa.bool_(), str(value).lower())

    def on_null(self, _: exp.Null) -> Typed:
        return constant(None, pa.null(), "NULL")

    def on_paren(self, node: exp.Paren) -> Typed:
        return self.term(self._take(node, "this"))

    def on_neg(self, node: exp.Neg) -> Typed:
        inner = self._take(node, "this")
        done = operators.negative(self.term(inner))
        # A sign before a digit belongs to the number; Spark shows any other as (- x).
        return done if isinstance(inner, exp.Literal) or not done.is_literal else replace(done, name=None)

    def on_currentdate(self, _: exp.Expression) -> Typed:
        return functions.now_term("current_date", self._now())

    def on_currenttimestamp(self, _: exp.Expression) -> Typed:
        return functions.now_term("current_timestamp", self._now())

    # -- operators ---------------------------------------------------------------------------------------------

    def _arithmetic(self, operator: str, node: exp.Expression) -> Typed:
        if operator == "/":
            # Spark's division in the terms of other dialects: of doubles, and never an error where it is null.
            self._take(node, "typed"), self._take(node, "safe")
        moved_by = self._take(node, "expression")
        if isinstance(moved_by, exp.Interval) and operator in "+-":
            amount, unit = self._interval(moved_by)
            return operators.shifted(self.term(self._take(node, "this")), -amount if operator == "-" else amount, unit)
        left, right = self._sides(node)
        if operator in "+-" and left.type == pa.date32() and right.type == pa.int32():
            return functions.call("date_add" if operator == "+" else "date_sub", [left, right])
        return operators.arithmetic(operator, left, right)

    def on_neq(self, node: exp.NEQ) -> Typed:
        return _negated(operators.comparison("=", *self._sides(node)))

    def on_and(self, node: exp.And | exp.Or) -> Typed:
        word = f" {node.key.upper()} "
        parts = [boolean(self.term(part)) for part in self._take.operands(node)]
        name = parts[0].name
        for part in parts[1:]:
            name = named("(", name, word, part.name, ")")
        # Only what every row must meet can prune files.
        conditions = [] if isinstance(node, exp.Or) else [condition for part in parts for condition in part.conditions]
        return Typed(f"({word.join(part.sql for part in parts)})", pa.bool_(), name, conditions=tuple(conditions))

    on_or = on_and

    def on_not(self, node: exp.Not) -> Typed:
        inside = self._take(node, "this")
        if isinstance(inside, exp.Is):
            return self.on_is(inside, negated=True)
        return _negated(boolean(self.term(inside)))

    def on_is(self, node: exp.Is, negated: bool = False) -> Typed:
        negated = negated or bool(self._take(node, "negate"))
        if not isinstance(self._take(node, "expression"), exp.Null):
            raise NoRule("IS with other than NULL")
        inner = self.term(self._take(node, "this"))
        word = "IS NOT NULL" if negated else "IS NULL"
        conditions = (Condition(*inner.column, word.lower(), ()),) if inner.column else ()
        # `NOT a IS NULL` is the same tree as `a IS NOT NULL`, but Spark shows it as written.
        name = None if negated else named("(", inner.name, f" {word})")
        return Typed(f"({inner.sql} {word})", pa.bool_(), name, conditions=conditions)

    def on_between(self, node: exp.Between) -> Typed:
        value, low, high = (self.term(self._take(node, part)) for part in ("this", "low", "high"))
        above, below = operators.comparison(">=", value, low), operators.comparison("<=", value, high)
        name = named("between(", value.name, ", ", low.name, ", ", high.name, ")")
        return Typed(f"({above.sql} AND {below.sql})", pa.bool_(), name, conditions=above.conditions + below.conditions)

    def on_in(self, node: exp.In) -> Typed:
        query = self._take(node, "query")
        if query is not None:
            return self._in_query(node, query)
        value = self.term(self._take(node, "this"))
        options = self._take.nodes(node)
        if not options:
            raise NoRule("IN over other than a list")
        return operators.membership(value, [self.term(option) for option in options])

    def truth(self, node: exp.Expression) -> Typed:
        """Return a condition, or a value that may be one: IN over a subquery may stand in it, below AND, OR and NOT."""
        self._negated_in |= _negations(node)
        return self.term(node)

    def _in_query(self, node: exp.In, query: exp.Expression) -> Typed:
        """Return `value IN (SELECT …)`. Spark gives false, not null, for an undecided one, and for its negation too.

        It pushes every NOT down to the IN first, so it depends on all of them which of the two is undecided.
        """
        negated = self._negated_in.get(id(node))
        if negated is None:
            raise NoRule("IN over a statement inside another expression")
        of = self._take(node, "this")
        values = [self.term(one) for one in (self._take.nodes(of) if isinstance(of, exp.Tuple) else [of])]
        inner, _ = self._inner(query)
        if len(inner.columns) != len(values):
            raise NoRule("IN over another number of columns")
        alias = self._new_alias()
        sides = [
            operators.comparable(value, Typed(f"{alias}.{column.sql}", column.type))
            for value, column in zip(values, inner.columns, strict=True)
        ]
        if any(right.type != column.type for (_, right), column in zip(sides, inner.columns, strict=True)):
            raise NoRule("IN over different types")
        if len(sides) > 1:
            whole = " AND ".join(
                f"coalesce({left.sql} = {right.sql}, true)" if negated else f"{left.sql} = {right.sql}"
                for left, right in sides
            )
            return Typed(f"(EXISTS (SELECT 1 FROM ({inner.sql}) AS {alias} WHERE {whole}))", pa.bool_())
        sql = f"({sides[0][0].sql} IN ({inner.sql}))"
        if id(node) not in self.conjuncts:
            sql = f"coalesce({sql}, {str(negated).lower()})"
        return Typed(sql, pa.bool_())

    def on_like(self, node: exp.Like, escape: str = "\\") -> Typed:
        found = operators.like(*self._sides(node), escape)
        return _negated(found) if self._take(node, "negate") else found

    def on_escape(self, node: exp.Escape) -> Typed:
        inner, escape = self._take(node, "this"), self.term(self._take(node, "expression"))
        if not isinstance(inner, exp.Like) or not isinstance(escape.literal, str) or len(escape.literal) != 1:
            raise NoRule("ESCAPE of this kind")
        return self.on_like(inner, escape.literal)

    def on_case(self, node: exp.Case) -> Typed:
        branches = []
        subject = self._take(node, "this")
        for branch in self._take.nodes(node, "ifs"):
            when = self._take(branch, "this")
            if subject is None:
                condition = self.truth(when)
            else:
                condition = operators.comparison("=", self.term(subject), self.term(when))
            branches.append((condition, self.term(self._take(branch, "true"))))
        default = self._take(node, "default")
        return operators.cases(branches, self.term(default) if default is not None else None)

    def on_if(self, node: exp.If) -> Typed:
        condition = self.truth(self._take(node, "this"))
        yes, no = (self.term(self._take(node, part)) for part in ("true", "false"))
        done = operators.cases([(condition, yes)], no)
        return Typed(done.sql, done.type, named("(IF(", condition.name, ", ", yes.name, ", ", no.name, "))"))

    def on_dpipe(self, node: exp.DPipe) -> Typed:
        for inner in node.find_all(exp.DPipe):
            self._take(inner, "safe")  # a null side makes it null, as in Spark
        terms = [self.term(part) for part in self._take.operands(node)]
        name = terms[0].name
        for term in terms[1:]:
            name = named("concat(", name, ", ", term.name, ")")
        done = operators.concatenated(terms)
        return Typed(done.sql, done.type, name)

    def on_cast(self, node: exp.Cast) -> Typed:
        to = self._type(self._take(node, "to"))
        of = self._take(node, "this")
        inner = self.term(of)
        if isinstance(of, exp.Literal) and not isinstance(node, exp.TryCast) and inner.type == pa.string():
            # DATE '…' and TIMESTAMP '…'
            value = converted(inner.literal, pa.string(), to)
            word = {pa.date32(): "DATE", INSTANT: "TIMESTAMP"}.get(to)
            plain = to == pa.date32() or (len(inner.literal) == 19 and " " in inner.literal)
            return constant(value, to, f"{word} '{inner.literal}'" if word and plain else None)
        return operators.cast(inner, to, safe=bool(self._take(node, "safe")))

    def on_trycast(self, node: exp.TryCast) -> Typed:
        inner = self._take(node, "this")
        to = self._type(self._take(node, "to"))
        if self._take.number(inner) is not None and not self._take(node, "safe") and is_numeric(to):
            # 1L, 1S, 1.5D: a number with its type; written so or as a CAST, which Spark would name differently.
            term = self.term(inner)
            return constant(float(term.literal) if to == pa.float64() else converted(term.literal, term.type, to), to)
        return self.on_cast(node)

    def on_bracket(self, node: exp.Bracket) -> Typed:
        raise NoRule("an element of an array or a map")

    # -- calls -------------------------------------------------------------------------------------------------

    def on_anonymous(self, node: exp.Anonymous) -> Typed:
        name = str(self._take(node, "this")).lower()
        if name in AGGREGATES:
            return self._aggregate(node, "")
        arguments = self._take.nodes(node)
        if name in ("now", "current_date", "current_timestamp", "curdate") and not arguments:
            return functions.now_term(name, self._now())
        if name in ("grouping", "grouping_id"):
            return self._grouping(name, arguments)
        return self._call(name, arguments)

    def _grouping(self, name: str, arguments: list[exp.Expression]) -> Typed:
        """Return which keys are left out of the set of a row."""
        with self._row_values():
            terms = [self.term(argument) for argument in arguments]
        keys = [term.sql for term in terms] or list(self.grouping)
        if name == "grouping":
            if len(terms) != 1 or terms[0].sql not in self.grouping:
                raise NoRule("grouping of other than a key")
            kind, shown = pa.int8(), operators.called(name, terms)
        else:
            if not keys or keys != list(self.grouping):
                raise NoRule("grouping_id of other than all keys")
            kind, shown = pa.int64(), operators.called(name, terms)
        return Typed(
            f"CAST(GROUPING({', '.join(self.grouping[key] for key in keys)}) AS {duck_type(kind)})", kind, shown
        )

    def _call(self, name: str, arguments: list[exp.Expression]) -> Typed:
        return functions.call(name, [self.term(argument) for argument in arguments])

    def on_trim(self, node: exp.Trim | exp.Ceil | exp.Floor) -> Typed:
        return self._call(node.key, [self._take(node, "this")])

    on_ceil = on_floor = on_trim

    def on_substring(self, node: exp.Substring) -> Typed:
        parts = [self._take(node, part) for part in ("this", "start", "length")]
        return self._call(node.meta.get("name", "substring"), [part for part in parts if part is not None])

    def on_extract(self, node: exp.Extract) -> Typed:
        unit = self._take(node, "this")
        part = str(self._take(unit, "this")).lower() if isinstance(unit, exp.Var) else ""
        if part not in functions.EXTRACTED:
            raise NoRule(f"extract({part} …)")
        done = functions.call(functions.EXTRACTED[part], [self.term(self._take(node, "expression"))])
        # Spark shows the part as it was written; the parser has made it upper case.
        return Typed(done.sql, done.type)

    def on_any(self, node: exp.Any) -> Typed:
        return self._aggregate(node, "")

    # -- aggregates and windows --------------------------------------------------------------------------------

    def _aggregate(self, node: exp.Expression, ending: str, *, window: bool = False) -> Typed:
        if isinstance(node, exp.Any):
            name, arguments = "any", [self._take(node, "this")]
        elif isinstance(node, exp.Anonymous):
            name, arguments = str(self._take(node, "this")).lower(), self._take.nodes(node)
        else:
            raise NoRule(f"{node.key} as an aggregate")
        rule = AGGREGATES.get(name) or (WINDOWS.get(name) if window else None)
        if rule is None:
            raise NoRule(f"the function {name}{' over a window' if window else ''}")
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = self._take.nodes(arguments[0])
        if not arguments and name in AGGREGATES:
            raise NoRule(f"{name} of nothing")
        if name == "count" and not distinct and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            arguments = []
        with self._row_values(), self.own_columns(name):
            terms = [self.term(argument) for argument in arguments]
        if window and name in ("max", "min", "sum", "avg", "count") and distinct:
            raise NoRule("distinct values over a window")
        shown = operators.called(name, terms, "DISTINCT " if distinct else "") if terms else "count(1)"
        return replace(rule(name, terms, distinct, ending), name=shown)

    @contextmanager
    def _row_values(self) -> Iterator[None]:
        """Compile columns as the values of a row, not as keys: so they are inside an aggregate."""
        before = self.keys, self._of_rows
        self.keys, self._of_rows = {}, True
        try:
            yield
        finally:
            self.keys, self._of_rows = before

    @contextmanager
    def own_columns(self, what: str) -> Iterator[None]:
        """Raise NoRule if what is compiled in the block uses a column of the outer statement; Spark refuses some of that."""
        outer = self.scope.outer
        before = outer.used_inside if outer is not None else False
        if outer is not None:
            outer.used_inside = False
        yield
        if outer is not None:
            if outer.used_inside:
                raise NoRule(f"{what} over columns of the statement around it")
            outer.used_inside = before

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
        inside = []
        partition = [self.term(part) for part in self._take.nodes(parts, "partition_by")]
        if partition:
            inside.append("PARTITION BY " + ", ".join(plain_zero(atomic(term)) for term in partition))
        order = self._take(parts, "order")
        if order is not None:
            items = [(item, self.term(self._take(item, "this"))) for item in self._take.nodes(order)]
            inside.append("ORDER BY " + ", ".join(self.ordered(item, term) for item, term in items))
        frame = self._frame(self._take(parts, "spec"))
        if frame:
            inside.append(frame)
        done = self._aggregate(self._take(node, "this"), f" OVER ({' '.join(inside)})", window=True)
        return Typed(done.sql, done.type)

    def ordered(self, node: exp.Ordered, term: Typed) -> str:
        """Return an item of ORDER BY."""
        descending = bool(self._take(node, "desc"))
        first = bool(self._take(node, "nulls_first"))  # the parser fills in Spark's default
        return f"{plain_zero(atomic(term))} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"

    # -- subqueries --------------------------------------------------------------------------------------------

    def _as_value(self, node: exp.Expression) -> Typed:
        inner, uses_outer = self._inner(node)
        if len(inner.columns) != 1:
            raise NoRule("a subquery of several columns as a value")
        # Spark lists the outer columns in the name of a correlated one.
        return Typed(f"({inner.sql})", inner.columns[0].type, None if uses_outer else "scalarsubquery()")

    def on_exists(self, node: exp.Exists) -> Typed:
        of = self._take(node, "this")
        if not isinstance(of, exp.Query):
            raise NoRule("exists over an array")
        inner, uses_outer = self._inner(of)
        return Typed(f"(EXISTS ({inner.sql}))", pa.bool_(), None if uses_outer else "exists()")

    def _inner(self, node: exp.Expression) -> tuple[Query, bool]:
        """Compile a subquery, and tell whether it uses columns of this statement."""
        before = self.scope.used_inside
        self.scope.used_inside = False
        inner = self._subquery(node, self.scope)
        uses_outer = self.scope.used_inside
        self.scope.used_inside = before or uses_outer
        if uses_outer and any(
            select.args.get(part) for select in node.find_all(exp.Query) for part in ("order", "limit", "offset")
        ):
            raise NoRule("ORDER BY or LIMIT in a correlated subquery")
        if uses_outer and self.grouping:
            raise NoRule("a correlated subquery beside grouping sets")
        return inner, uses_outer

    # -- types, intervals, frames ------------------------------------------------------------------------------

    def _type(self, node: exp.DataType) -> pa.DataType:
        """Return the target type of a CAST."""
        kind = self._take(node, "this")
        self._take(node, "nested")
        if kind == _TYPE.DECIMAL:
            numbers = [int(self._take.number(self._take(part, "this")) or 0) for part in self._take.nodes(node)]
            precision, scale = (numbers + [10, 0][len(numbers) :])[:2]
            if not 1 <= precision <= 38 or scale > precision:
                raise NoRule(f"decimal({precision},{scale})")
            return pa.decimal128(precision, scale)
        if kind not in _KINDS:
            raise NoRule(f"a cast to {excerpt(node)}")
        return _KINDS[kind]

    def _interval(self, node: exp.Interval) -> tuple[int, str]:
        unit, value = self._take(node, "unit"), self._take(node, "this")
        if not isinstance(value, exp.Literal) or not isinstance(unit, exp.Var):
            raise NoRule("an interval of several parts")
        self._take(value, "is_string")
        try:
            return int(self._take(value, "this")), str(self._take(unit, "this"))
        except ValueError:
            raise NoRule(f"an interval of {value.name}") from None

    def _frame(self, spec: exp.WindowSpec | None) -> str:
        if spec is None:
            return ""
        kind = str(self._take(spec, "kind") or "").upper()
        if kind not in ("ROWS", "RANGE"):
            raise NoRule("a window frame of this kind")
        start = self._frame_side(kind, self._take(spec, "start"), self._take(spec, "start_side"))
        end = self._take(spec, "end")
        direction = self._take(spec, "end_side")
        return f"{kind} BETWEEN {start} AND {'CURRENT ROW' if end is None else self._frame_side(kind, end, direction)}"

    def _frame_side(self, kind: str, value: Any, direction: Any) -> str:
        if isinstance(value, exp.Expression):
            rows = self._take.number(value)
            if kind != "ROWS" or rows is None or not rows.isdigit():
                raise NoRule("a window frame with values")
            return f"{rows} {str(direction).upper()}"
        word = str(value).upper()
        if word == "CURRENT ROW" and direction is None:
            return word
        if word == "UNBOUNDED":
            return f"UNBOUNDED {str(direction).upper()}"
        raise NoRule("a window frame with values")


def conjuncts(node: exp.Expression) -> set[int]:
    """Return the nodes that, or whose negations, must hold for a condition to hold."""
    parts = list(node.flatten()) if isinstance(node, exp.And) else [node]
    bare = [part.unnest() for part in parts]
    return {id(part.this.unnest() if isinstance(part, exp.Not) else part) for part in bare}.union(
        *(conjuncts(part) for part in bare if isinstance(part, exp.And))
    )


def _negations(node: exp.Expression, negated: bool = False) -> dict[int, bool]:
    """Return each IN below AND, OR and NOT, and whether an odd number of NOT is around it."""
    if isinstance(node, exp.In):
        return {id(node): negated}
    if isinstance(node, (exp.Not, exp.Paren)):
        return _negations(node.this, negated != isinstance(node, exp.Not))
    found: dict[int, bool] = {}
    if isinstance(node, (exp.And, exp.Or)):
        for part in node.flatten():
            found |= _negations(part, negated)
    return found


def atomic(term: Typed) -> Typed:
    if not is_atomic(term.type):
        raise NoRule(f"{spark_name(term.type)} as a key or an order")
    return term


def _check_operands(node: exp.Expression) -> None:
    """Refuse a condition directly inside another: Spark reads `a = b < c` as `(a = b) < c`, or not at all."""
    operands = [node.args.get(part) for part in _OPERANDS]
    loose = any(isinstance(operand, _LOOSE) for operand in operands)
    # The parser adds parentheses around IS.
    unsure = not isinstance(node, exp.Is) and any(
        isinstance(operand, exp.Paren) and isinstance(operand.unnest(), exp.Is) for operand in operands
    )
    if loose or unsure:
        raise NoRule("a condition inside another; give it a name in an inner SELECT")


def _shown_double(value: float) -> str | None:
    """Return Spark's text of a double; None where Java's digits or exponents differ from Python's."""
    text = repr(value)
    return text if value == 0 or (1e-3 <= abs(value) < 1e7 and len(text) <= 15) else None


def _negated(term: Typed) -> Typed:
    return Typed(f"(NOT {term.sql})", pa.bool_(), named("(NOT ", term.name, ")"))
