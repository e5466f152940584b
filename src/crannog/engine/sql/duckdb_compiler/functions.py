"""Scalar functions by Spark's names. Calls of other functions go to Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from crannog.api.result import INSTANT, spark_name
from crannog.engine.sql.duckdb_compiler import date_patterns, nested, operators
from crannog.engine.sql.duckdb_compiler.operators import called, common, named, value_of
from crannog.engine.sql.duckdb_compiler.terms import NoRule, Typed, checked, constant, duck_type, widened
from crannog.engine.sql.function_calls import PIECES, own_call
from crannog.engine.sql.spark_types import is_atomic, is_decimal, is_integral, is_numeric

Rule = Callable[[str, list[Typed]], Typed]
# From here on every double is a whole number.
_EXACT = 2**53
# DuckDB computes 2,048 rows at a time on each core, and does not count some results as memory.
_LONGEST_MADE = 64 * 1024
TEXT, INT, LONG, BOOL, DATE = pa.string(), pa.int32(), pa.int64(), pa.bool_(), pa.date32()


def _arguments(name: str, terms: list[Typed], *kinds: pa.DataType | None) -> None:
    if len(terms) != len(kinds):
        raise NoRule(f"{name} with {len(terms)} arguments")
    for term, kind in zip(terms, kinds, strict=True):
        if kind is not None and term.type != kind:
            raise NoRule(f"{name} of {spark_name(term.type)}")


def _one(name: str, terms: list[Typed], fits: Callable[[pa.DataType], bool]) -> Typed:
    """Return the only argument. Raises NoRule unless it is of a type that fits."""
    _arguments(name, terms, None)
    if not fits(terms[0].type):
        raise NoRule(f"{name} of {spark_name(terms[0].type)}")
    return terms[0]


def _plain(template: str, result: pa.DataType, *kinds: pa.DataType, ascii_only: bool = False) -> Rule:
    """Return the rule of a function whose arguments have these types, in the template by their positions.

    `ascii_only` is for a function of one text where the engines differ beyond ASCII.
    """

    def rule(name: str, terms: list[Typed]) -> Typed:
        _arguments(name, terms, *kinds)
        sql = template.format(*(term.sql for term in terms))
        if ascii_only:
            x = terms[0].sql
            sql = checked(f"{x} IS NULL OR strlen({x}) = length({x})", sql, "text beyond ASCII")
        return Typed(sql, result)

    return rule


def _part(template: str, result: pa.DataType = INT, *, of_instant: bool = False) -> Rule:
    """Return the rule of a part of a date or a timestamp."""

    def rule(name: str, terms: list[Typed]) -> Typed:
        _arguments(name, terms, INSTANT if of_instant or (len(terms) == 1 and terms[0].type == INSTANT) else DATE)
        x = terms[0].sql if terms[0].type == DATE else f"CAST({terms[0].sql} AS TIMESTAMP)"
        return Typed(f"CAST({template.format(x)} AS {duck_type(result)})", result)

    return rule


def _coalesce(name: str, terms: list[Typed]) -> Typed:
    if name in ("nvl", "ifnull") and len(terms) != 2:
        raise NoRule(f"{name} with {len(terms)} arguments")
    kind = common(terms)
    return Typed(f"coalesce({', '.join(widened(term, kind).sql for term in terms)})", kind)


def _nullif(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, None, None)
    same = operators.comparison("=", terms[0], terms[1])
    if not is_atomic(terms[0].type):
        raise NoRule(f"nullif of {spark_name(terms[0].type)}")
    return Typed(f"(CASE WHEN {same.sql} THEN NULL ELSE {terms[0].sql} END)", terms[0].type)


def _extreme(name: str, terms: list[Typed]) -> Typed:
    kind = common(terms)
    if len(terms) < 2 or not is_atomic(kind) or kind in (BOOL, pa.binary()):
        raise NoRule(f"{name} of {spark_name(kind)}")
    return Typed(f"{name}({', '.join(widened(term, kind).sql for term in terms)})", kind)


def _abs(name: str, terms: list[Typed]) -> Typed:
    term = _one(name, terms, is_numeric)
    return Typed(f"abs({term.sql})", term.type)


def _to_whole(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, None)
    [term] = terms
    word = "FLOOR" if name == "floor" else "CEIL"
    shown = called(name if name == "ceiling" else word, terms)
    if pa.types.is_floating(term.type):
        return Typed(f"CAST({word}({term.sql}) AS BIGINT)", LONG, shown)
    if is_decimal(term.type):
        kind = pa.decimal128(term.type.precision - term.type.scale + (1 if term.type.scale else 0), 0)
        return Typed(f"CAST({word}({term.sql}) AS DECIMAL({kind.precision}, 0))", kind, shown)
    if is_integral(term.type):
        return Typed(f"CAST({term.sql} AS BIGINT)", LONG, shown)
    raise NoRule(f"{name} of {spark_name(term.type)}")


def _round(name: str, terms: list[Typed]) -> Typed:
    places = value_of(terms[1], int) if len(terms) == 2 else 0
    if len(terms) not in (1, 2):
        raise NoRule(f"{name} with {len(terms)} arguments")
    kind = terms[0].type
    shown = called(name, [terms[0], terms[1] if len(terms) == 2 else constant(0, INT, "0")])
    if is_decimal(kind) and 0 <= places <= kind.scale:
        result = pa.decimal128(min(kind.precision - kind.scale + places + 1, 38), places)
        return Typed(f"CAST(round({terms[0].sql}, {places}) AS {duck_type(result)})", result, shown)
    if is_integral(kind) and places >= 0:
        return Typed(terms[0].sql, kind, shown)
    if kind == pa.float64() and 0 <= places <= 15:
        return Typed(_rounded_double(terms[0].sql, places), kind, shown)
    raise NoRule(f"{name} of {spark_name(kind)} to {places} places")


def _rounded_double(x: str, places: int) -> str:
    """Round the shortest decimal number that reads as the double, as Spark does: 1.005 to 1.01."""
    text = f"CAST({x} AS VARCHAR)"
    number = f"CAST(CAST(CAST({text} AS DECIMAL(38, {places})) AS VARCHAR) AS DOUBLE)"
    if places > 3:
        number = checked(f"{text} IS NULL OR NOT contains({text}, 'e')", number, "a small number to round")
    return (
        f"(CASE WHEN isnan({x}) OR abs({x}) >= {_EXACT} THEN {x}"
        f" WHEN abs({x}) < 1e-{places + 1} THEN CAST(0 AS DOUBLE) ELSE {number} END)"
    )


def _substring(name: str, terms: list[Typed]) -> Typed:
    if len(terms) not in (2, 3) or terms[0].type != TEXT:
        raise NoRule(f"{name} of other than text")
    start = value_of(terms[1], int)
    length = value_of(terms[2], int) if len(terms) == 3 else None
    if start < 1 or (length is not None and length < 0):
        raise NoRule(f"{name} from before the start")
    # Spark shows the largest integer where no length was given.
    shown = terms if length is not None else [*terms, constant(2147483647, INT, "2147483647")]
    end = "" if length is None else f", {length}"
    return Typed(f"substring({terms[0].sql}, {start}{end})", TEXT, called(name, shown))


def _side(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, TEXT, INT)
    count = value_of(terms[1], int)
    if count < 1:
        raise NoRule(f"{name} of no characters")
    return Typed(f"{name}({terms[0].sql}, {count})", TEXT)


def _concat_ws(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, *[TEXT] * max(len(terms), 2))
    return Typed(f"concat_ws({', '.join(term.sql for term in terms)})", TEXT)


def _instr(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, TEXT, TEXT)
    x, y = terms if name == "instr" else reversed(terms)
    shown = terms if name == "instr" else [*terms, constant(1, INT, "1")]
    sql = checked(f"{y.sql} IS NULL OR {y.sql} <> ''", f"instr({x.sql}, {y.sql})", "an empty text to find")
    return Typed(f"CAST({sql} AS INTEGER)", INT, called(name, shown))


def _replace(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, TEXT, TEXT, TEXT)
    old, new = value_of(terms[1], str), terms[2]
    if not old:
        raise NoRule("replace of an empty text")
    sql = f"replace({', '.join(term.sql for term in terms)})"
    if new.is_literal and len((new.literal or "").encode()) <= len(old.encode()):
        return Typed(sql, TEXT)
    return Typed(_short(name, terms[0], f"greatest(strlen({new.sql}), 1)", sql), TEXT)


def _repeat(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, TEXT, INT)
    count = value_of(terms[1], int)
    if not 0 <= count <= 10_000:
        raise NoRule("repeat very often")
    return Typed(_short(name, terms[0], str(count), f"repeat({terms[0].sql}, {count})"), TEXT)


def _short(name: str, text: Typed, times: str, sql: str) -> str:
    """Return a function that makes a text up to `times` as long, for texts that stay short.

    DuckDB does not count the memory of these results, and a call inside a call multiplies.
    """
    if text.is_literal or text.column is not None:
        x = text.sql
        return checked(f"{x} IS NULL OR strlen({x}) * {times} <= {_LONGEST_MADE}", sql, f"a long text to {name}")
    raise NoRule(f"{name} of a computed text")


def _pad(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, TEXT, INT, TEXT)
    if not value_of(terms[2], str) or not 0 <= value_of(terms[1], int) <= 10_000:
        raise NoRule(f"{name} with nothing")
    return Typed(f"{name}({terms[0].sql}, {terms[1].literal}, {terms[2].sql})", TEXT)


def _split_part(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, TEXT, TEXT, INT)
    if not value_of(terms[1], str) or value_of(terms[2], int) < 1:
        raise NoRule(f"{name} by nothing, or from the end")
    return Typed(f"split_part({', '.join(term.sql for term in terms)})", TEXT)


def _sha2(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, TEXT, INT)
    if value_of(terms[1], int) not in (0, 256):
        raise NoRule("sha2 of other than 256 bits")
    return Typed(f"sha256({terms[0].sql})", TEXT)


def _date_add(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, DATE, None)
    if terms[1].type not in (pa.int8(), pa.int16(), INT):
        raise NoRule(f"{name} by {spark_name(terms[1].type)}")
    sign = "-" if name == "date_sub" else "+"
    return Typed(f"({terms[0].sql} {sign} CAST({terms[1].sql} AS INTEGER))", DATE)


def _date_trunc(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, TEXT, INSTANT)
    unit = value_of(terms[0], str).lower()
    if unit not in ("year", "quarter", "month", "week", "day", "hour", "minute", "second"):
        raise NoRule(f"date_trunc to {unit}")
    return Typed(f"CAST(date_trunc('{unit}', CAST({terms[1].sql} AS TIMESTAMP)) AS TIMESTAMPTZ)", INSTANT)


def _trunc(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, DATE, TEXT)
    unit = {"mon": "month", "mm": "month", "yyyy": "year", "yy": "year"}.get(u := value_of(terms[1], str).lower(), u)
    if unit not in ("year", "quarter", "month", "week"):
        raise NoRule(f"trunc to {unit}")
    return Typed(f"CAST(date_trunc('{unit}', {terms[0].sql}) AS DATE)", DATE)


def _date(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, None)
    return Typed(operators.cast(terms[0], DATE).sql, DATE, terms[0].name)


def _add_months(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, DATE, INT)
    return Typed(f"CAST(({terms[0].sql} + to_months({terms[1].sql})) AS DATE)", DATE)


def _sqrt(name: str, terms: list[Typed]) -> Typed:
    term = widened(_one(name, terms, is_numeric), pa.float64())
    return Typed(f"sqrt({term.sql})", pa.float64(), called("SQRT", terms))


def _pmod(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, None, None)
    if not all(is_integral(term.type) for term in terms):
        raise NoRule(f"{name} of other than whole numbers")
    kind = common(terms)
    a, b = (widened(term, kind).sql for term in terms)
    return Typed(f"(CASE WHEN ({a} % {b}) < 0 THEN (({a} % {b}) + {b}) % {b} ELSE {a} % {b} END)", kind)


def _date_part(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, TEXT, None)
    part = value_of(terms[0], str).lower()
    if part not in EXTRACTED:
        raise NoRule(f"{name} of {part}")
    done = call(EXTRACTED[part], [terms[1]])
    return Typed(done.sql, done.type, called(name, terms))


def _isnan(name: str, terms: list[Typed]) -> Typed:
    term = _one(name, terms, pa.types.is_floating)
    return Typed(f"coalesce(isnan({term.sql}), false)", BOOL)


def _is_null(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, None)
    word = "IS NULL" if name == "isnull" else "IS NOT NULL"
    return Typed(f"({terms[0].sql} {word})", BOOL, named("(", terms[0].name, f" {word})"))


def _mod(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, None, None)
    done = operators.arithmetic("%", *terms)
    return Typed(done.sql, done.type)


def _nvl2(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, None, None, None)
    kind = common(terms[1:])
    a, b = (widened(term, kind).sql for term in terms[1:])
    return Typed(f"(CASE WHEN {terms[0].sql} IS NOT NULL THEN {a} ELSE {b} END)", kind)


def _concat(_: str, terms: list[Typed]) -> Typed:
    if not terms:
        raise NoRule("concat of nothing")
    return operators.concatenated(terms)


def _cast_to(kind: pa.DataType) -> Rule:
    def rule(name: str, terms: list[Typed]) -> Typed:
        _arguments(name, terms, None)
        done = operators.cast(terms[0], kind)
        return Typed(done.sql, kind, terms[0].name, done.literal)

    return rule


def _sign(name: str, terms: list[Typed]) -> Typed:
    term = _one(name, terms, is_integral)
    return Typed(f"CAST(sign({term.sql}) AS DOUBLE)", pa.float64(), called(name.replace("signum", "SIGNUM"), terms))


def _hex(name: str, terms: list[Typed]) -> Typed:
    term = _one(name, terms, lambda kind: kind in (TEXT, pa.binary()) or is_integral(kind))
    return Typed(f"hex({widened(term, LONG).sql if is_integral(term.type) else term.sql})", TEXT)


def _unhex(name: str, terms: list[Typed]) -> Typed:
    # Spark returns null for what is not hexadecimal: DuckDB fails, and Spark takes the statement.
    term = _one(name, terms, lambda kind: kind == TEXT)
    return Typed(
        checked(f"{term.sql} IS NULL OR strlen({term.sql}) % 2 = 0", f"unhex({term.sql})", "half a byte"), pa.binary()
    )


def _own(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, *[TEXT] * (len(PIECES[name]) - 1))
    return Typed(own_call(name, [term.sql for term in terms]), BOOL, None)


# Rounded down, also before 1970.
_UNIX = "CAST(((epoch_us({{0}}) - (((epoch_us({{0}}) % {0}) + {0}) % {0})) // {0}) AS BIGINT)"
_LENGTH = _plain("CAST(length({0}) AS INTEGER)", INT, TEXT)
_LOWER = _plain("lower({0})", TEXT, TEXT, ascii_only=True)
_UPPER = _plain("upper({0})", TEXT, TEXT, ascii_only=True)
_DAYS_BETWEEN = _plain("CAST(({0} - {1}) AS INTEGER)", INT, DATE, DATE)
RULES: dict[str, Rule] = {
    "abs": _abs,
    "add_months": _add_months,
    "ascii": _plain("ascii({0})", INT, TEXT, ascii_only=True),
    "bigint": _cast_to(LONG),
    "boolean": _cast_to(BOOL),
    "ceil": _to_whole,
    "ceiling": _to_whole,
    "char_length": _LENGTH,
    "character_length": _LENGTH,
    "coalesce": _coalesce,
    "concat": _concat,
    "concat_ws": _concat_ws,
    "contains": _plain("contains({0}, {1})", BOOL, TEXT, TEXT),
    "date": _date,
    "date_add": _date_add,
    "date_diff": _DAYS_BETWEEN,
    "date_part": _date_part,
    "date_sub": _date_add,
    "date_trunc": _date_trunc,
    "datediff": _DAYS_BETWEEN,
    "day": _part("day({0})"),
    "dayofmonth": _part("day({0})"),
    "dayofweek": _part("(dayofweek({0}) + 1)"),
    "dayofyear": _part("dayofyear({0})"),
    "double": _cast_to(pa.float64()),
    "endswith": _plain("suffix({0}, {1})", BOOL, TEXT, TEXT),
    "float": _cast_to(pa.float32()),
    "floor": _to_whole,
    "greatest": _extreme,
    "hex": _hex,
    "hour": _part("hour({0})", of_instant=True),
    "ifnull": _coalesce,
    "instr": _instr,
    "int": _cast_to(INT),
    "isnan": _isnan,
    "isnotnull": _is_null,
    "isnull": _is_null,
    "last_day": _part("last_day({0})", DATE),
    "lcase": _LOWER,
    "least": _extreme,
    "left": _side,
    "len": _LENGTH,
    "length": _LENGTH,
    "locate": _instr,
    "lower": _LOWER,
    "lpad": _pad,
    "ltrim": _plain("ltrim({0}, ' ')", TEXT, TEXT),
    "match_attr": _own,
    "make_date": _plain("make_date({0}, {1}, {2})", DATE, INT, INT, INT),
    "md5": _plain("md5({0})", TEXT, TEXT),
    "minute": _part("minute({0})", of_instant=True),
    "mod": _mod,
    "month": _part("month({0})"),
    "nullif": _nullif,
    "nvl": _coalesce,
    "nvl2": _nvl2,
    "octet_length": _plain("CAST(strlen({0}) AS INTEGER)", INT, TEXT),
    "pmod": _pmod,
    "quarter": _part("quarter({0})"),
    "repeat": _repeat,
    "replace": _replace,
    "reverse": _plain("reverse({0})", TEXT, TEXT, ascii_only=True),
    "right": _side,
    "round": _round,
    "rpad": _pad,
    "rtrim": _plain("rtrim({0}, ' ')", TEXT, TEXT),
    "second": _part("second({0})", of_instant=True),
    "sha2": _sha2,
    "sign": _sign,
    "signum": _sign,
    "smallint": _cast_to(pa.int16()),
    "split_part": _split_part,
    "sqrt": _sqrt,
    "startswith": _plain("prefix({0}, {1})", BOOL, TEXT, TEXT),
    "string": _cast_to(TEXT),
    "substr": _substring,
    "substring": _substring,
    "timestamp": _cast_to(INSTANT),
    "tinyint": _cast_to(pa.int8()),
    "trim": _plain("trim({0}, ' ')", TEXT, TEXT),
    "trunc": _trunc,
    "ucase": _UPPER,
    "unhex": _unhex,
    "unix_micros": _plain("CAST(epoch_us({0}) AS BIGINT)", LONG, INSTANT),
    "unix_millis": _plain(_UNIX.format(1_000), LONG, INSTANT),
    "unix_seconds": _plain(_UNIX.format(1_000_000), LONG, INSTANT),
    "upper": _UPPER,
    "weekday": _part("(isodow({0}) - 1)"),
    "weekofyear": _part("weekofyear({0})"),
    "year": _part("year({0})"),
    **date_patterns.RULES,
    **nested.RULES,
}

EXTRACTED = {name: name for name in ("year", "quarter", "month", "day", "hour", "minute", "dayofweek")}
EXTRACTED |= {"dow": "dayofweek", "doy": "dayofyear", "week": "weekofyear", "w": "weekofyear"}


def call(name: str, terms: list[Typed]) -> Typed:
    """Return a call. Raises NoRule if the function has no rule, or none for these arguments."""
    if name not in RULES:
        raise NoRule(f"the function {name}")
    done = RULES[name](name, terms)
    # Spark names most columns after the call as it was written; rules name the others.
    return done if done.name is not None or name in PIECES else replace(done, name=called(name, terms))


def moment(value: dt.date | dt.datetime, kind: pa.DataType) -> Typed:
    """Return DATE '…' or TIMESTAMP '…'."""
    if isinstance(value, dt.datetime):
        day = value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=" ")
        return constant(value, kind, f"TIMESTAMP '{day.rstrip('0') if '.' in day else day}'")
    return constant(value, kind, f"DATE '{value.isoformat()}'" if kind == DATE else None)


def now_term(name: str, now: dt.datetime) -> Typed:
    """Return the time the statement began, as Spark does for every use of it."""
    if name in ("current_date", "curdate"):
        return constant(now.date(), DATE, f"{name}()")
    return constant(now, INSTANT, f"{name}()")
