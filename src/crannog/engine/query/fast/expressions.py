"""Expressions of one SELECT: each node of the tree to a typed term."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from crannog.engine.query.fast import functions, operators
from crannog.engine.query.fast.aggregates import AGGREGATES, WINDOWS, plain_zero
from crannog.engine.query.fast.operators import boolean, named
from crannog.engine.query.fast.scope import Scope
from crannog.engine.query.fast.terms import Condition, Typed, Unproved, constant, converted
from crannog.engine.query.types import is_atomic, is_numeric, of_number
from crannog.verbs.types import INSTANT, spark_name

if TYPE_CHECKING:
    from crannog.engine.query.fast.select import Query

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
        self, scope: Scope, subquery: Callable[[exp.Expression, Scope], Query], now: Callable[[], dt.datetime], windows: Mapping[str, exp.Window]
    ) -> None:
        self.scope = scope
        self._subquery = subquery
        self._now = now
        self._windows = windows
        # The conjuncts of WHERE: elsewhere Spark says false, not null, where IN over a statement cannot tell.
        self.conjuncts: set[int] = set()
        # A key's SQL → the SQL it is grouped by; filled once the keys are known.
        self.keys: dict[str, str] = {}

    def term(self, node: exp.Expression | None) -> Typed:
        """Return the typed form of a node; Unproved if it has no rule."""
        if node is None:
            raise Unproved("something that is left out")
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
            return operators.comparison(_COMPARISON[kind], self.term(node.this), self.term(node.expression))
        if isinstance(node, exp.Query):
            return self._as_value(node)
        rule = getattr(self, f"on_{node.key}", None)
        if rule is None:
            raise Unproved(f"{node.key}: {node.sql('spark')[:60]}")
        found: Typed = rule(node)
        return found

    # -- names and constants -----------------------------------------------------------------------------------

    def on_column(self, node: exp.Column) -> Typed:
        if isinstance(node.this, exp.Star):
            raise Unproved("* inside an expression")
        return self.scope.resolve([part.name for part in node.parts])

    def on_dot(self, node: exp.Dot) -> Typed:
        if not all(isinstance(part, exp.Identifier) for part in node.parts):
            raise Unproved(f"{node.sql('spark')[:60]}")
        return self.scope.resolve([part.name for part in node.parts])

    def on_literal(self, node: exp.Literal) -> Typed:
        if node.is_string:
            return constant(node.name, pa.string(), node.name)
        number = of_number(node.name)
        if number is None:
            raise Unproved(f"the number {node.name[:60]}")
        kind, value = number
        return constant(value, kind, _shown_double(value) if isinstance(value, float) else f"{value}")

    def on_boolean(self, node: exp.Boolean) -> Typed:
        return constant(bool(node.this), pa.bool_(), str(bool(node.this)).lower())

    def on_null(self, _: exp.Null) -> Typed:
        return constant(None, pa.null(), "NULL")

    def on_paren(self, node: exp.Paren) -> Typed:
        return self.term(node.this)

    def on_neg(self, node: exp.Neg) -> Typed:
        return operators.negative(self.term(node.this))

    def on_currentdate(self, _: exp.Expression) -> Typed:
        return functions.now_term("current_date", self._now())

    def on_currenttimestamp(self, _: exp.Expression) -> Typed:
        return functions.now_term("current_timestamp", self._now())

    # -- operators ---------------------------------------------------------------------------------------------

    def _arithmetic(self, operator: str, node: exp.Expression) -> Typed:
        if isinstance(node.expression, exp.Interval) and operator in "+-":
            amount, unit = _interval(node.expression)
            return operators.shifted(self.term(node.this), -amount if operator == "-" else amount, unit)
        left, right = self.term(node.this), self.term(node.expression)
        if operator in "+-" and left.type == pa.date32() and right.type == pa.int32():
            name = "date_add" if operator == "+" else "date_sub"
            return functions.RULES[name](name, [left, right])
        return operators.arithmetic(operator, left, right)

    def on_neq(self, node: exp.NEQ) -> Typed:
        equal = operators.comparison("=", self.term(node.this), self.term(node.expression))
        return Typed(f"(NOT {equal.sql})", pa.bool_(), named("(NOT ", equal.name, ")"))

    def on_and(self, node: exp.And) -> Typed:
        parts = [boolean(self.term(part)) for part in node.flatten()]
        name = parts[0].name
        for part in parts[1:]:
            name = named("(", name, " AND ", part.name, ")")
        conditions = tuple(condition for part in parts for condition in part.conditions)
        return Typed(f"({' AND '.join(part.sql for part in parts)})", pa.bool_(), name, conditions=conditions)

    def on_or(self, node: exp.Or) -> Typed:
        parts = [boolean(self.term(part)) for part in node.flatten()]
        name = parts[0].name
        for part in parts[1:]:
            name = named("(", name, " OR ", part.name, ")")
        return Typed(f"({' OR '.join(part.sql for part in parts)})", pa.bool_(), name)

    def on_not(self, node: exp.Not) -> Typed:
        if isinstance(node.this, exp.Is):
            return self.on_is(node.this, negated=True)
        inner = boolean(self.term(node.this))
        return Typed(f"(NOT {inner.sql})", pa.bool_(), named("(NOT ", inner.name, ")"))

    def on_is(self, node: exp.Is, negated: bool = False) -> Typed:
        negated = negated or bool(node.args.get("negate"))
        if not isinstance(node.expression, exp.Null):
            raise Unproved("IS with other than NULL")
        inner = self.term(node.this)
        word = "IS NOT NULL" if negated else "IS NULL"
        conditions = (Condition(*inner.column, word.lower(), ()),) if inner.column else ()
        # `NOT a IS NULL` is the same tree as `a IS NOT NULL`, but Spark shows it as written.
        name = None if negated else named("(", inner.name, f" {word})")
        return Typed(f"({inner.sql} {word})", pa.bool_(), name, conditions=conditions)

    def on_between(self, node: exp.Between) -> Typed:
        value, low, high = (self.term(part) for part in (node.this, node.args["low"], node.args["high"]))
        above, below = operators.comparison(">=", value, low), operators.comparison("<=", value, high)
        name = named("between(", value.name, ", ", low.name, ", ", high.name, ")")
        return _maybe_not(
            Typed(f"({above.sql} AND {below.sql})", pa.bool_(), name, conditions=above.conditions + below.conditions),
            bool(node.args.get("negate")),
        )

    def on_in(self, node: exp.In) -> Typed:
        value = self.term(node.this)
        query = node.args.get("query")
        negated = bool(node.args.get("negate"))
        if query is not None:
            if id(node) not in self.conjuncts:
                raise Unproved("IN over a statement outside WHERE's conjunction")
            inner = self._subquery(query, self.scope)
            if len(inner.columns) != 1:
                raise Unproved("IN over several columns")
            same, _ = operators.comparable(value, Typed("NULL", inner.columns[0].type))
            if inner.columns[0].type != same.type:
                raise Unproved("IN over different types")
            return _maybe_not(Typed(f"({same.sql} IN ({inner.sql}))", pa.bool_()), negated)
        if not node.expressions or node.args.get("unnest") or node.args.get("field"):
            raise Unproved("IN over other than a list")
        return _maybe_not(operators.membership(value, [self.term(option) for option in node.expressions]), negated)

    def on_like(self, node: exp.Like, escape: str = "\\") -> Typed:
        found = operators.like(self.term(node.this), self.term(node.expression), escape)
        return _maybe_not(found, bool(node.args.get("negate")))

    def on_escape(self, node: exp.Escape) -> Typed:
        if not isinstance(node.this, exp.Like) or not isinstance(node.expression, exp.Literal) or len(node.expression.name) != 1:
            raise Unproved("ESCAPE of this kind")
        return self.on_like(node.this, node.expression.name)

    def on_case(self, node: exp.Case) -> Typed:
        branches = []
        for branch in node.args["ifs"]:
            condition = self.term(branch.this)
            if node.this is not None:
                condition = operators.comparison("=", self.term(node.this), condition)
            branches.append((condition, self.term(branch.args["true"])))
        default = node.args.get("default")
        return operators.cases(branches, self.term(default) if default is not None else None)

    def on_if(self, node: exp.If) -> Typed:
        condition, yes, no = (self.term(node.args.get(part)) for part in ("this", "true", "false"))
        done = operators.cases([(condition, yes)], no)
        return Typed(done.sql, done.type, named("(IF(", condition.name, ", ", yes.name, ", ", no.name, "))"))

    def on_dpipe(self, node: exp.DPipe) -> Typed:
        terms = [self.term(part) for part in node.flatten()]
        name = terms[0].name
        for term in terms[1:]:
            name = named("concat(", name, ", ", term.name, ")")
        done = operators.concatenated(terms)
        return Typed(done.sql, done.type, name)

    def on_cast(self, node: exp.Cast) -> Typed:
        to = type_of(node.args["to"])
        inner = self.term(node.this)
        if isinstance(node.this, exp.Literal) and not isinstance(node, exp.TryCast) and inner.type == pa.string():
            # DATE '…' and TIMESTAMP '…'
            value = converted(inner.literal, pa.string(), to)
            word = {pa.date32(): "DATE", INSTANT: "TIMESTAMP"}.get(to)
            plain = to == pa.date32() or (len(inner.literal) == 19 and " " in inner.literal)
            return constant(value, to, f"{word} '{inner.literal}'" if word and plain else None)
        return operators.cast(inner, to, safe=bool(node.args.get("safe")))

    def on_trycast(self, node: exp.TryCast) -> Typed:
        inner = node.this
        to = type_of(node.args["to"])
        if isinstance(inner, exp.Literal) and not inner.is_string and not node.args.get("safe") and is_numeric(to):
            # 1L, 1S, 1.5D: a number with its type; written so or as a CAST, which Spark would name differently.
            term = self.term(inner)
            return constant(float(term.literal) if to == pa.float64() else converted(term.literal, term.type, to), to)
        return self.on_cast(node)

    def on_bracket(self, node: exp.Bracket) -> Typed:
        raise Unproved("an element of an array or a map")

    # -- calls -------------------------------------------------------------------------------------------------

    def on_anonymous(self, node: exp.Anonymous) -> Typed:
        name = node.name.lower()
        if name in AGGREGATES:
            return self._aggregate(node, "")
        if name in ("now", "current_date", "current_timestamp", "curdate") and not node.expressions:
            return functions.now_term(name, self._now())
        return self._call(name, node.expressions)

    def _call(self, name: str, arguments: list[exp.Expression]) -> Typed:
        if name not in functions.RULES:
            raise Unproved(f"the function {name}")
        return functions.RULES[name](name, [self.term(argument) for argument in arguments])

    def on_trim(self, node: exp.Trim) -> Typed:
        if node.expression is not None or node.args.get("position"):
            raise Unproved("TRIM of given characters")
        return self._call("trim", [node.this])

    def on_substring(self, node: exp.Substring) -> Typed:
        parts = [node.this, node.args.get("start"), node.args.get("length")]
        return self._call(node.meta.get("name", "substring"), [part for part in parts if part is not None])

    def on_ceil(self, node: exp.Ceil) -> Typed:
        if node.args.get("decimals") or node.args.get("to"):
            raise Unproved("ceil to places")
        return self._call("ceil", [node.this])

    def on_floor(self, node: exp.Floor) -> Typed:
        if node.args.get("decimals") or node.args.get("to"):
            raise Unproved("floor to places")
        return self._call("floor", [node.this])

    def on_extract(self, node: exp.Extract) -> Typed:
        part = node.name.lower()
        if part not in functions.EXTRACTED:
            raise Unproved(f"extract({part} …)")
        inner = self.term(node.expression)
        word = functions.EXTRACTED[part]
        done = functions.RULES[word](word, [inner])
        # Spark shows the part as it was written; the parser has made it upper case.
        return Typed(done.sql, done.type)

    def on_any(self, node: exp.Any) -> Typed:
        return AGGREGATES["any"]("any", [self.term(node.this)], False, "")

    # -- aggregates and windows --------------------------------------------------------------------------------

    def _aggregate(self, node: exp.Expression, ending: str, *, window: bool = False) -> Typed:
        if isinstance(node, exp.Any):
            name, arguments = "any", [node.this]
        elif isinstance(node, exp.Anonymous):
            name, arguments = node.name.lower(), node.expressions
        else:
            raise Unproved(f"{node.key} as an aggregate")
        rule = AGGREGATES.get(name) or (WINDOWS.get(name) if window else None)
        if rule is None:
            raise Unproved(f"the function {name}{' over a window' if window else ''}")
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = arguments[0].expressions
        if name == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            arguments = []
        keys, self.keys = self.keys, {}  # inside an aggregate a column is the row's own
        try:
            terms = [self.term(argument) for argument in arguments]
        finally:
            self.keys = keys
        if window and name in ("max", "min", "sum", "avg", "count") and distinct:
            raise Unproved("distinct values over a window")
        return rule(name, terms, distinct, ending)

    def on_filter(self, node: exp.Filter) -> Typed:
        condition = boolean(self.term(node.expression.this))
        done = self._aggregate(node.this, f" FILTER (WHERE {condition.sql})")
        return Typed(done.sql, done.type, named(done.name, " FILTER (WHERE ", condition.name, ")"))

    def on_window(self, node: exp.Window) -> Typed:
        if node.args.get("alias") is not None:
            defined = self._windows.get(node.args["alias"].name.lower())
            if defined is None or node.args.get("partition_by") or node.args.get("order"):
                raise Unproved("a window by this name")
            parts = defined
        elif isinstance(node.args.get("over"), exp.Identifier):
            raise Unproved("a window by name")
        else:
            parts = node
        inside = []
        partition = [self.term(part) for part in parts.args.get("partition_by") or []]
        if partition:
            inside.append("PARTITION BY " + ", ".join(plain_zero(atomic(term)) for term in partition))
        order = parts.args.get("order")
        if order is not None:
            inside.append("ORDER BY " + ", ".join(self.ordered(item, self.term(item.this)) for item in order.expressions))
        frame = _frame(parts.args.get("spec"))
        if frame:
            inside.append(frame)
        done = self._aggregate(node.this, f" OVER ({' '.join(inside)})", window=True)
        return Typed(done.sql, done.type)

    def ordered(self, node: exp.Ordered, term: Typed) -> str:
        """Return an item of ORDER BY; Spark puts nulls first unless it is descending or told otherwise."""
        descending = bool(node.args.get("desc"))
        nulls_first = node.args.get("nulls_first")
        first = (not descending) if nulls_first is None else bool(nulls_first)
        return f"{plain_zero(atomic(term))} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"

    # -- statements inside -------------------------------------------------------------------------------------

    def _as_value(self, node: exp.Expression) -> Typed:
        inner = self._subquery(node, self.scope)
        if len(inner.columns) != 1:
            raise Unproved("a subquery of several columns as a value")
        return Typed(f"({inner.sql})", inner.columns[0].type, "scalarsubquery()")

    def on_exists(self, node: exp.Exists) -> Typed:
        if not isinstance(node.this, exp.Query):
            raise Unproved("exists over an array")
        return Typed(f"(EXISTS ({self._subquery(node.this, self.scope).sql}))", pa.bool_(), "exists()")


def conjuncts(node: exp.Expression) -> set[int]:
    """Return which nodes, or their negations, must hold for a condition to hold."""
    parts = list(node.flatten()) if isinstance(node, exp.And) else [node]
    bare = [part.unnest() for part in parts]
    return {id(part.this.unnest() if isinstance(part, exp.Not) else part) for part in bare}.union(
        *(conjuncts(part) for part in bare if isinstance(part, exp.And))
    )


def atomic(term: Typed) -> Typed:
    if not is_atomic(term.type):
        raise Unproved(f"{spark_name(term.type)} as a key or an order")
    return term


def _check_operands(node: exp.Expression) -> None:
    """Refuse a condition directly inside another: Spark reads `a = b < c` as `(a = b) < c`, or not at all."""
    operands = [node.args.get(part) for part in _OPERANDS]
    loose = any(isinstance(operand, _LOOSE) for operand in operands)
    # The parser puts parentheses around IS that nobody wrote.
    unsure = not isinstance(node, exp.Is) and any(isinstance(operand, exp.Paren) and isinstance(operand.unnest(), exp.Is) for operand in operands)
    if loose or unsure:
        raise Unproved("a condition inside another; give it a name in an inner SELECT")


def _shown_double(value: float) -> str | None:
    """Return how Spark writes a double; None where Java's digits or exponents are not Python's."""
    text = repr(value)
    return text if value == 0 or (1e-3 <= abs(value) < 1e7 and len(text) <= 15) else None


def _maybe_not(term: Typed, negated: bool) -> Typed:
    return Typed(f"(NOT {term.sql})", pa.bool_(), named("(NOT ", term.name, ")")) if negated else term


def type_of(node: exp.DataType) -> pa.DataType:
    """Return the type that a CAST names."""
    if node.this in (_TYPE.DECIMAL,):
        numbers = [int(part.this.name) for part in node.expressions]
        precision, scale = (numbers + [10, 0][len(numbers) :])[:2]
        if not 1 <= precision <= 38 or scale > precision:
            raise Unproved(f"decimal({precision},{scale})")
        return pa.decimal128(precision, scale)
    if node.expressions or node.this not in _KINDS:
        raise Unproved(f"a cast to {node.sql('spark')}")
    return _KINDS[node.this]


def _interval(node: exp.Interval) -> tuple[int, str]:
    unit = node.args.get("unit")
    value: Any = node.this
    if not isinstance(value, exp.Literal) or not isinstance(unit, exp.Var):
        raise Unproved("an interval of several parts")
    try:
        return int(value.name), unit.name
    except ValueError:
        raise Unproved(f"an interval of {value.name}") from None


def _frame(spec: exp.WindowSpec | None) -> str:
    if spec is None:
        return ""
    kind = str(spec.args.get("kind", "")).upper()
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude"):
        raise Unproved("a window frame of this kind")

    def side(value: Any, direction: Any) -> str:
        if isinstance(value, exp.Literal) and kind == "ROWS" and not value.is_string:
            return f"{int(value.name)} {str(direction).upper()}"
        word = str(value).upper()
        if word == "CURRENT ROW":
            return word
        if word == "UNBOUNDED":
            return f"UNBOUNDED {str(direction).upper()}"
        raise Unproved("a window frame with values")

    start = side(spec.args.get("start"), spec.args.get("start_side"))
    if spec.args.get("end") is None:
        return f"{kind} BETWEEN {start} AND CURRENT ROW"
    return f"{kind} BETWEEN {start} AND {side(spec.args.get('end'), spec.args.get('end_side'))}"
