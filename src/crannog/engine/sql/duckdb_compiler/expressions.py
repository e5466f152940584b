"""Expressions of one SELECT: each node of the tree to a typed term."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from crannog.api.result import INSTANT, spark_name
from crannog.engine.sql.duckdb_compiler import functions, nested, operators
from crannog.engine.sql.duckdb_compiler.aggregates import AGGREGATES
from crannog.engine.sql.duckdb_compiler.operators import boolean, named
from crannog.engine.sql.duckdb_compiler.scope import excerpt
from crannog.engine.sql.duckdb_compiler.spelling import has_suffix
from crannog.engine.sql.duckdb_compiler.subqueries import Subqueries
from crannog.engine.sql.duckdb_compiler.terms import Condition, NoRule, Typed, constant, converted, duck_type
from crannog.engine.sql.duckdb_compiler.windows import Windows
from crannog.engine.sql.spark_types import is_integral, is_numeric, of_number

if TYPE_CHECKING:
    pass

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
_BITWISE = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^"}
_OPERANDS = ("this", "expression", "low", "high")
_COMPARISON = {exp.EQ: "=", exp.LT: "<", exp.GT: ">", exp.LTE: "<=", exp.GTE: ">=", exp.NullSafeEQ: "<=>"}
_PREDICATES = (*_COMPARISON, exp.NEQ, exp.Is, exp.In, exp.Between, exp.Like, exp.ILike)
_LOOSE = (*_PREDICATES, exp.Escape, exp.Not, exp.And, exp.Or)


class Expressions(Windows, Subqueries):
    """Compiles the expressions of one SELECT."""

    def term(self, node: exp.Expression | None) -> Typed:
        """Return the typed form of a node. Raises NoRule if it has no rule."""
        if node is None:
            raise NoRule("something that is left out")
        found = self._term(node)
        self._take.written(found.sql)
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
        # Spark shows a later use of an output in its own words.
        return replace(found[0], name=parts[0] if self.in_order else None)

    def on_dot(self, node: exp.Dot) -> Typed:
        if is_dotted_name(node):
            return self.on_column(node)
        return nested.field(self.term(self._take(node, "this")), self._take.name(self._take(node, "expression")))

    def on_literal(self, node: exp.Literal) -> Typed:
        text = self._take(node, "this") or ""
        if self._take(node, "is_string"):
            return constant(text, pa.string(), text)
        number = of_number(text)
        if number is None:
            raise NoRule(f"the number {text[:60]}")
        kind, value = number
        return constant(value, kind, _shown_double(value) if isinstance(value, float) else f"{value}")

    def on_hexstring(self, node: exp.HexString) -> Typed:
        digits = str(self._take(node, "this") or "")
        try:
            return constant(bytes.fromhex(digits), pa.binary(), f"X'{digits.upper()}'")
        except ValueError:
            raise NoRule(f"the bytes X'{digits[:60]}'") from None

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
        of_number = isinstance(inner, exp.Literal) or (isinstance(inner, exp.TryCast) and has_suffix(inner.this))
        return done if of_number or not done.is_literal else replace(done, name=None)

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
            return operators.shifted(self.term(self._take(node, "this")), amount, unit, operator)
        left, right = self._sides(node)
        if operator in "+-" and left.type == pa.date32() and right.type == pa.int32():
            return functions.call("date_add" if operator == "+" else "date_sub", [left, right])
        return operators.arithmetic(operator, left, right)

    def on_bitwiseand(self, node: exp.Binary) -> Typed:
        sides = [self._take(node, "this"), self._take(node, "expression")]
        if any(isinstance(side, (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor)) for side in sides):
            # Spark gives & precedence over ^, and ^ over |; the parser does not.
            raise NoRule("bitwise operators without parentheses")
        return operators.bitwise(_BITWISE[type(node)], *(self.term(side) for side in sides))

    on_bitwiseor = on_bitwisexor = on_bitwiseand

    def on_bitwisenot(self, node: exp.BitwiseNot) -> Typed:
        inner = self.term(self._take(node, "this"))
        if not is_integral(inner.type):
            raise NoRule(f"~ {spark_name(inner.type)}")
        return Typed(f"(~ {inner.sql})", inner.type, named("~", inner.name))

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
        unsure = negated and not self._spelling.has_only_is_not_null
        name = None if unsure else named("(", inner.name, f" {word})")
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

    def on_like(self, node: exp.Like, escape: str = "\\") -> Typed:
        found = operators.like(*self._sides(node), escape)
        return _negated(found) if self._take(node, "negate") else found

    def on_ilike(self, node: exp.ILike) -> Typed:
        found = operators.ilike(*self._sides(node))
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
            return functions.moment(converted(inner.literal, pa.string(), to), to)
        return operators.cast(inner, to, safe=bool(self._take(node, "safe")))

    def on_trycast(self, node: exp.TryCast) -> Typed:
        inner = self._take(node, "this")
        to = self._type(self._take(node, "to"))
        if self._take.number(inner) is not None and not self._take(node, "safe") and is_numeric(to):
            term = self.term(inner)
            suffixed = has_suffix(inner)
            if suffixed:
                # 1L, 1S, 1.5D: a number with its type.
                value = float(term.literal) if to == pa.float64() else converted(term.literal, term.type, to)
                return constant(value, to, _shown_double(value) if to == pa.float64() else f"{value}")
            try:
                value = converted(term.literal, term.type, to)
            except NoRule:
                return operators.cast(term, to)
            shown = named("CAST(", term.name, f" AS {spark_name(to).upper()})")
            return constant(value, to, None if suffixed is None else shown)
        return self.on_cast(node)

    def on_bracket(self, node: exp.Bracket) -> Typed:
        indexes = self._take.nodes(node)
        if len(indexes) != 1:
            raise NoRule("an element by several indexes")
        return nested.element(self.term(self._take(node, "this")), self.term(indexes[0]))

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
        with self.row_values():
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
        of = self.term(self._take(node, "expression"))
        done = functions.call(functions.EXTRACTED[part], [of])
        # Spark shows the part as it was written; the parser has made it upper case.
        return Typed(done.sql, done.type, named("extract(", self._spelling.unit(part), " FROM ", of.name, ")"))

    # -- types --------------------------------------------------------------------------------------------------

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


def is_dotted_name(node: exp.Expression) -> bool:
    """Whether a node is nothing but a name, or a field of one."""
    while isinstance(node, exp.Dot):
        node = node.this
    return isinstance(node, exp.Column)


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
    """Return Spark's text of a double; None where Java's digits may differ from Python's."""
    _, digits, exponent = Decimal(repr(value)).as_tuple()
    if not math.isfinite(value) or not isinstance(exponent, int) or len(digits) > 15:
        return None
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    text = "".join(map(str, digits)).rstrip("0")
    return f"{'-' if value < 0 else ''}{text[0]}.{text[1:] or '0'}E{len(digits) - 1 + exponent}"


def _negated(term: Typed) -> Typed:
    return Typed(f"(NOT {term.sql})", pa.bool_(), named("(NOT ", term.name, ")"))
