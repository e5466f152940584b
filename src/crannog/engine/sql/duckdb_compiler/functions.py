"""Scalar functions by Spark's names. Calls of other functions go to Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pyarrow as pa

from crannog.api.spark_types import INSTANT, spark_name
from crannog.engine.sql.duckdb_compiler import operators
from crannog.engine.sql.duckdb_compiler.operators import common, named, value_of
from crannog.engine.sql.duckdb_compiler.terms import NoRule, Typed, checked, constant, widened
from crannog.engine.sql.function_calls import PIECES, own_call
from crannog.engine.sql.spark_types import is_atomic, is_decimal, is_integral

Rule = Callable[[str, list[Typed]], Typed]
TEXT, INT, LONG, BOOL, DATE = pa.string(), pa.int32(), pa.int64(), pa.bool_(), pa.date32()


def _called(name: str, terms: list[Typed]) -> str | None:
    return named(f"{name}(", named(*[part for term in terms for part in (", ", term.name)][1:]), ")")


def _arguments(name: str, terms: list[Typed], *kinds: pa.DataType | None) -> None:
    if len(terms) != len(kinds):
        raise NoRule(f"{name} with {len(terms)} arguments")
    for term, kind in zip(terms, kinds, strict=True):
        if kind is not None and term.type != kind:
            raise NoRule(f"{name} of {spark_name(term.type)}")


def _text(template: str, result: pa.DataType = TEXT, *, ascii_only: bool = False) -> Rule:
    """Return the rule of a function of one string; `ascii_only` where the engines differ beyond ASCII."""

    def rule(name: str, terms: list[Typed]) -> Typed:
        _arguments(name, terms, TEXT)
        x = terms[0].sql
        sql = template.format(x=x)
        if ascii_only:
            sql = checked(f"{x} IS NULL OR strlen({x}) = length({x})", sql, "text beyond ASCII")
        return Typed(sql, result, _called(name, terms))

    return rule


def _texts(template: str, count: int, result: pa.DataType) -> Rule:
    """Return the rule of a function of several strings."""

    def rule(name: str, terms: list[Typed]) -> Typed:
        _arguments(name, terms, *[TEXT] * count)
        return Typed(template.format(*(term.sql for term in terms)), result, _called(name, terms))

    return rule


def _part(template: str, result: pa.DataType = INT, *, of_instant: bool = False) -> Rule:
    """Return the rule of a part of a date or a timestamp."""

    def rule(name: str, terms: list[Typed]) -> Typed:
        if len(terms) != 1:
            raise NoRule(f"{name} with {len(terms)} arguments")
        [term] = terms
        if term.type == INSTANT:
            sql = f"CAST({term.sql} AS TIMESTAMP)"
        elif term.type == DATE and not of_instant:
            sql = term.sql
        else:
            raise NoRule(f"{name} of {spark_name(term.type)}")
        return Typed(
            f"CAST({template.format(x=sql)} AS {'INTEGER' if result == INT else 'DATE'})", result, _called(name, terms)
        )

    return rule


def _coalesce(name: str, terms: list[Typed]) -> Typed:
    if name in ("nvl", "ifnull") and len(terms) != 2:
        raise NoRule(f"{name} with {len(terms)} arguments")
    kind = common(terms)
    return Typed(f"coalesce({', '.join(widened(term, kind).sql for term in terms)})", kind, _called(name, terms))


def _nullif(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, None, None)
    same = operators.comparison("=", terms[0], terms[1])
    if not is_atomic(terms[0].type):
        raise NoRule(f"nullif of {spark_name(terms[0].type)}")
    return Typed(f"(CASE WHEN {same.sql} THEN NULL ELSE {terms[0].sql} END)", terms[0].type, _called(name, terms))


def _extreme(name: str, terms: list[Typed]) -> Typed:
    kind = common(terms)
    if len(terms) < 2 or not is_atomic(kind) or kind in (BOOL, pa.binary()):
        raise NoRule(f"{name} of {spark_name(kind)}")
    return Typed(f"{name}({', '.join(widened(term, kind).sql for term in terms)})", kind, _called(name, terms))


def _abs(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, None)
    if not (is_integral(terms[0].type) or is_decimal(terms[0].type) or pa.types.is_floating(terms[0].type)):
        raise NoRule(f"abs of {spark_name(terms[0].type)}")
    return Typed(f"abs({terms[0].sql})", terms[0].type, _called(name, terms))


def _to_whole(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, None)
    [term] = terms
    word = "FLOOR" if name == "floor" else "CEIL"
    shown = _called(name if name == "ceiling" else word, terms)
    if pa.types.is_floating(term.type):
        return Typed(f"CAST({word}({term.sql}) AS BIGINT)", LONG, shown)
    if is_decimal(term.type):
        kind = pa.decimal128(term.type.precision - term.type.scale + (1 if term.type.scale else 0), 0)
        return Typed(f"CAST({word}({term.sql}) AS DECIMAL({kind.precision}, 0))", kind, shown)
    raise NoRule(f"{name} of {spark_name(term.type)}")


def _round(name: str, terms: list[Typed]) -> Typed:
    places = value_of(terms[1], int) if len(terms) == 2 else 0
    if len(terms) not in (1, 2) or not is_decimal(terms[0].type) or not 0 <= places <= terms[0].type.scale:
        raise NoRule("round of other than decimals to fewer places")
    kind = terms[0].type
    result = pa.decimal128(min(kind.precision - kind.scale + places + 1, 38), places)
    shown = [terms[0], terms[1] if len(terms) == 2 else constant(0, INT, "0")]
    return Typed(
        f"CAST(round({terms[0].sql}, {places}) AS DECIMAL({result.precision}, {result.scale}))",
        result,
        _called(name, shown),
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
    return Typed(f"substring({terms[0].sql}, {start}{end})", TEXT, _called(name, shown))


def _side(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, TEXT, INT)
    count = value_of(terms[1], int)
    if count < 1:
        raise NoRule(f"{name} of no characters")
    return Typed(f"{name}({terms[0].sql}, {count})", TEXT, _called(name, terms))


def _concat_ws(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, *[TEXT] * max(len(terms), 2))
    return Typed(f"concat_ws({', '.join(term.sql for term in terms)})", TEXT, _called(name, terms))


def _instr(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, TEXT, TEXT)
    x, y = terms if name == "instr" else reversed(terms)
    shown = terms if name == "instr" else [*terms, constant(1, INT, "1")]
    sql = checked(f"{y.sql} IS NULL OR {y.sql} <> ''", f"instr({x.sql}, {y.sql})", "an empty text to find")
    return Typed(f"CAST({sql} AS INTEGER)", INT, _called(name, shown))


def _replace(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, TEXT, TEXT, TEXT)
    if not value_of(terms[1], str):
        raise NoRule("replace of an empty text")
    return Typed(f"replace({', '.join(term.sql for term in terms)})", TEXT, _called(name, terms))


def _repeat(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, TEXT, INT)
    count = value_of(terms[1], int)
    if not 0 <= count <= 10_000:
        raise NoRule("repeat very often")
    return Typed(f"repeat({terms[0].sql}, {count})", TEXT, _called(name, terms))


def _pad(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, TEXT, INT, TEXT)
    if not value_of(terms[2], str) or not 0 <= value_of(terms[1], int) <= 10_000:
        raise NoRule(f"{name} with nothing")
    return Typed(f"{name}({terms[0].sql}, {terms[1].literal}, {terms[2].sql})", TEXT, _called(name, terms))


def _sha2(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, TEXT, INT)
    if value_of(terms[1], int) not in (0, 256):
        raise NoRule("sha2 of other than 256 bits")
    return Typed(f"sha256({terms[0].sql})", TEXT, _called(name, terms))


def _date_add(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, DATE, None)
    if terms[1].type not in (pa.int8(), pa.int16(), INT):
        raise NoRule(f"{name} by {spark_name(terms[1].type)}")
    sign = "-" if name == "date_sub" else "+"
    return Typed(f"({terms[0].sql} {sign} CAST({terms[1].sql} AS INTEGER))", DATE, _called(name, terms))


def _datediff(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, DATE, DATE)
    return Typed(f"CAST(({terms[0].sql} - {terms[1].sql}) AS INTEGER)", INT, _called(name, terms))


def _date_trunc(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, TEXT, INSTANT)
    unit = value_of(terms[0], str).lower()
    if unit not in ("year", "quarter", "month", "week", "day", "hour", "minute", "second"):
        raise NoRule(f"date_trunc to {unit}")
    return Typed(
        f"CAST(date_trunc('{unit}', CAST({terms[1].sql} AS TIMESTAMP)) AS TIMESTAMPTZ)", INSTANT, _called(name, terms)
    )


def _trunc(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, DATE, TEXT)
    unit = {"mon": "month", "mm": "month", "yyyy": "year", "yy": "year"}.get(u := value_of(terms[1], str).lower(), u)
    if unit not in ("year", "quarter", "month", "week"):
        raise NoRule(f"trunc to {unit}")
    return Typed(f"CAST(date_trunc('{unit}', {terms[0].sql}) AS DATE)", DATE, _called(name, terms))


def _to_date(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, None)
    done = operators.cast(terms[0], DATE)
    return Typed(done.sql, DATE, _called(name, terms) if name == "to_date" else terms[0].name)


def _unix(scale: int) -> Rule:
    def rule(name: str, terms: list[Typed]) -> Typed:
        _arguments(name, terms, INSTANT)
        divisor = 1_000_000 // scale
        # Rounded down, also before 1970.
        micros = f"epoch_us({terms[0].sql})"
        sql = (
            f"(({micros} - ((({micros} % {divisor}) + {divisor}) % {divisor})) // {divisor})" if divisor > 1 else micros
        )
        return Typed(f"CAST({sql} AS BIGINT)", LONG, _called(name, terms))

    return rule


def _isnan(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, None)
    if not pa.types.is_floating(terms[0].type):
        raise NoRule(f"isnan of {spark_name(terms[0].type)}")
    return Typed(f"coalesce(isnan({terms[0].sql}), false)", BOOL, _called(name, terms))


def _is_null(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, None)
    word = "IS NULL" if name == "isnull" else "IS NOT NULL"
    return Typed(f"({terms[0].sql} {word})", BOOL, named("(", terms[0].name, f" {word})"))


def _mod(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, None, None)
    done = operators.arithmetic("%", *terms)
    return Typed(done.sql, done.type, _called(name, terms))


def _nvl2(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, None, None, None)
    kind = common(terms[1:])
    a, b = (widened(term, kind).sql for term in terms[1:])
    return Typed(f"(CASE WHEN {terms[0].sql} IS NOT NULL THEN {a} ELSE {b} END)", kind, _called(name, terms))


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
    _arguments(name, terms, None)
    if not is_integral(terms[0].type):
        raise NoRule(f"{name} of {spark_name(terms[0].type)}")
    shown = _called("SIGNUM" if name == "signum" else name, terms)
    return Typed(f"CAST(sign({terms[0].sql}) AS DOUBLE)", pa.float64(), shown)


def _size(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, None)
    if not pa.types.is_list(terms[0].type):
        raise NoRule(f"{name} of {spark_name(terms[0].type)}")
    return Typed(f"CAST(len({terms[0].sql}) AS INTEGER)", INT, _called(name, terms))


def _own(name: str, terms: list[Typed]) -> Typed:
    _arguments(name, terms, *[TEXT] * (len(PIECES[name]) - 1))
    return Typed(own_call(name, [term.sql for term in terms]), BOOL, None)


RULES: dict[str, Rule] = {
    "abs": _abs,
    "ascii": _text("ascii({x})", INT, ascii_only=True),
    "bigint": _cast_to(LONG),
    "ceil": _to_whole,
    "ceiling": _to_whole,
    "char_length": _text("CAST(length({x}) AS INTEGER)", INT),
    "character_length": _text("CAST(length({x}) AS INTEGER)", INT),
    "coalesce": _coalesce,
    "concat": _concat,
    "concat_ws": _concat_ws,
    "contains": _texts("contains({0}, {1})", 2, BOOL),
    "date": _to_date,
    "date_add": _date_add,
    "date_diff": _datediff,
    "date_sub": _date_add,
    "date_trunc": _date_trunc,
    "datediff": _datediff,
    "day": _part("day({x})"),
    "dayofmonth": _part("day({x})"),
    "dayofweek": _part("(dayofweek({x}) + 1)"),
    "dayofyear": _part("dayofyear({x})"),
    "double": _cast_to(pa.float64()),
    "endswith": _texts("suffix({0}, {1})", 2, BOOL),
    "floor": _to_whole,
    "greatest": _extreme,
    "hour": _part("hour({x})", of_instant=True),
    "ifnull": _coalesce,
    "instr": _instr,
    "int": _cast_to(INT),
    "isnan": _isnan,
    "isnotnull": _is_null,
    "isnull": _is_null,
    "last_day": _part("last_day({x})", DATE),
    "lcase": _text("lower({x})", ascii_only=True),
    "least": _extreme,
    "left": _side,
    "len": _text("CAST(length({x}) AS INTEGER)", INT),
    "length": _text("CAST(length({x}) AS INTEGER)", INT),
    "locate": _instr,
    "lower": _text("lower({x})", ascii_only=True),
    "lpad": _pad,
    "ltrim": _text("ltrim({x}, ' ')"),
    "match_attr": _own,
    "md5": _text("md5({x})"),
    "minute": _part("minute({x})", of_instant=True),
    "mod": _mod,
    "month": _part("month({x})"),
    "nullif": _nullif,
    "nvl": _coalesce,
    "nvl2": _nvl2,
    "octet_length": _text("CAST(strlen({x}) AS INTEGER)", INT),
    "quarter": _part("quarter({x})"),
    "repeat": _repeat,
    "replace": _replace,
    "reverse": _text("reverse({x})", ascii_only=True),
    "right": _side,
    "round": _round,
    "rpad": _pad,
    "rtrim": _text("rtrim({x}, ' ')"),
    "second": _part("second({x})", of_instant=True),
    "sha2": _sha2,
    "sign": _sign,
    "signum": _sign,
    "size": _size,
    "startswith": _texts("prefix({0}, {1})", 2, BOOL),
    "string": _cast_to(TEXT),
    "substr": _substring,
    "substring": _substring,
    "to_date": _to_date,
    "trim": _text("trim({x}, ' ')"),
    "trunc": _trunc,
    "ucase": _text("upper({x})", ascii_only=True),
    "unix_micros": _unix(1_000_000),
    "unix_millis": _unix(1_000),
    "unix_seconds": _unix(1),
    "upper": _text("upper({x})", ascii_only=True),
    "year": _part("year({x})"),
}

EXTRACTED = {
    "year": "year",
    "quarter": "quarter",
    "month": "month",
    "day": "day",
    "hour": "hour",
    "minute": "minute",
    "dow": "dayofweek",
    "dayofweek": "dayofweek",
    "doy": "dayofyear",
}


def now_term(name: str, now: dt.datetime) -> Typed:
    """Return the time the statement began, as Spark does for every use of it."""
    if name in ("current_date", "curdate"):
        return constant(now.date(), DATE, f"{name}()")
    return constant(now, INSTANT, f"{name}()")
