"""Exact comparisons of stored numbers with a number of another type.

Integers and doubles are compared by value, as in Python, and never rounded: the bound to compare stored numbers with is
computed here, once, instead of for each row.
"""

from __future__ import annotations

import math
from fractions import Fraction

_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
Number = int | float | Fraction


def integer_comparison(operator: str, number: Number) -> tuple[str, int] | bool:
    """Return the equivalent comparison with a 64-bit integer; True or False if all integers compare the same."""
    exact = Fraction(number)
    low, high = math.floor(exact), math.ceil(exact)
    if operator in ("=", "!="):
        if low != high or not _MIN_INT64 <= low <= _MAX_INT64:
            return operator == "!="
        return operator, low
    bound = low if operator in ("<=", ">") else high
    if bound > _MAX_INT64:
        return operator in ("<", "<=")
    if bound < _MIN_INT64:
        return operator in (">", ">=")
    return operator, bound


def double_comparison(operator: str, number: Number) -> tuple[str, float] | bool:
    """Return the equivalent comparison with a double; True or False if all finite doubles compare the same."""
    exact = Fraction(number)
    try:
        nearest = float(exact)
    except OverflowError:
        return operator == "!=" or (operator != "=" and (operator in ("<", "<=")) == (exact > 0))
    if Fraction(nearest) == exact:
        return operator, nearest
    if operator in ("=", "!="):
        return operator == "!="
    below = Fraction(nearest) < exact
    # The nearest double is on one side of the exact number, which decides whether it is included.
    if operator in ("<", "<="):
        return ("<=" if below else "<"), nearest
    return (">" if below else ">="), nearest


def infinity_matches(operator: str, *, positive: bool) -> bool:
    """Return whether an infinity meets a comparison with a finite number."""
    return operator == "!=" or (operator in (">", ">=") if positive else operator in ("<", "<="))
