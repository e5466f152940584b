"""Dates and timestamps by constant patterns: date_format, to_date and to_timestamp."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from crannog.api.result import INSTANT, spark_name
from crannog.engine.sql.duckdb_compiler.operators import called, cast, value_of
from crannog.engine.sql.duckdb_compiler.terms import NoRule, Typed, checked

Rule = Callable[[str, list[Typed]], Typed]
# A pattern of Spark's, in DuckDB's words, and the digits that it reads; None where it is only written.
_FIELDS: dict[str, tuple[str, str | None]] = {
    # There is no year 0 in an era.
    "yyyy": ("%Y", "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"),
    "MM": ("%m", "[0-9]{2}"),
    "dd": ("%d", "[0-9]{2}"),
    "HH": ("%H", "([01][0-9]|2[0-3])"),
    "mm": ("%M", "[0-5][0-9]"),
    "ss": ("%S", "[0-5][0-9]"),
    "SSS": ("%g", None),
    "SSSSSS": ("%f", None),
    "M": ("%-m", None),
    "d": ("%-d", None),
    "H": ("%-H", None),
    "hh": ("%I", None),
    "a": ("%p", None),
    "yy": ("%y", None),
    "MMM": ("%b", None),
    "MMMM": ("%B", None),
    "E": ("%a", None),
    "EEE": ("%a", None),
    "EEEE": ("%A", None),
    "DDD": ("%j", None),
}
_PIECES = re.compile(r"([A-Za-z])\1*|'[^'%]+'|[-/:., _]+")


def _translated(pattern: str) -> tuple[str, str | None]:
    """Return a pattern for strftime, and the regular expression of what it reads; None if it is not for reading."""
    written, read, place = "", "", 0
    readable = True
    while place < len(pattern):
        match = _PIECES.match(pattern, place)
        if match is None:
            raise NoRule(f"the pattern {pattern[:60]}")
        piece, place = match[0], match.end()
        if not piece[0].isalpha():
            text = piece.strip("'")
            written, read = written + text, read + re.escape(text)
        elif piece in _FIELDS:
            word, digits = _FIELDS[piece]
            written, readable = written + word, readable and digits is not None
            read += digits or ""
        else:
            raise NoRule(f"{piece} in the pattern of a date")
    if not written:
        raise NoRule("an empty pattern")
    return written.replace("'", "''"), read.replace("'", "''") if readable else None


def _date_format(name: str, terms: list[Typed]) -> Typed:
    if len(terms) != 2 or terms[0].type not in (pa.date32(), INSTANT):
        raise NoRule(f"{name} of other than a date")
    words, _ = _translated(value_of(terms[1], str))
    x = f"CAST({terms[0].sql} AS TIMESTAMP)"
    # Other years have a sign, or zeros before them.
    sql = checked(f"{x} IS NULL OR year({x}) BETWEEN 1000 AND 9999", f"strftime({x}, '{words}')", "a year to write")
    return Typed(f"({sql})", pa.string())


def _to_moment(name: str, terms: list[Typed]) -> Typed:
    kind = pa.date32() if name == "to_date" else INSTANT
    if len(terms) == 1:
        return Typed(cast(terms[0], kind).sql, kind, called(name, terms))
    if len(terms) != 2 or terms[0].type != pa.string():
        raise NoRule(f"{name} of {', '.join(spark_name(term.type) for term in terms)}")
    words, pattern = _translated(value_of(terms[1], str))
    if pattern is None or not all(f"%{part}" in words and words.count(f"%{part}") == 1 for part in "Ymd"):
        raise NoRule(f"{name} by this pattern")
    x = terms[0].sql
    moment = f"strptime({x}, '{words}')"
    sql = checked(f"{x} IS NULL OR regexp_full_match({x}, '{pattern}')", moment, "not of the pattern")
    return Typed(f"CAST({sql} AS {'DATE' if kind == pa.date32() else 'TIMESTAMPTZ'})", kind, called(name, terms))


RULES: dict[str, Rule] = {"date_format": _date_format, "to_date": _to_moment, "to_timestamp": _to_moment}
