"""Exact comparisons of stored numbers with one that was asked for, which may be of another type.

A whole number and a double are compared by value, as Python does, never through a rounded copy: what to compare with
is worked out here, once, instead of for each row.
"""

from __future__ import annotations

import math
from fractions import Fraction

_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
Number = int | float | Fraction


def integer_comparison(operator: str, request: Number) -> tuple[str, int] | bool:
    """Return the comparison of a 64-bit whole number that says the same; True or False if it is the same for all."""
    exact = Fraction(request)
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


def double_comparison(operator: str, request: Number) -> tuple[str, float] | bool:
    """Return the comparison of a double (which is not NaN) that says the same; True or False if it is the same for all finite ones."""
    exact = Fraction(request)
    try:
        rows_near = float(exact)
    except OverflowError:
        return operator == "!=" or (operator != "=" and (operator in ("<", "<=")) == (exact > 0))
    if Fraction(rows_near) == exact:
        return operator, rows_near
    if operator in ("=", "!="):
        return operator == "!="
    below = Fraction(rows_near) < exact
    # The nearest double stands on one side of what was asked for, which settles whether it is in.
    if operator in ("<", "<="):
        return ("<=" if below else "<"), rows_near
    return (">" if below else ">="), rows_near


def infinity_matches(operator: str, *, positive: bool) -> bool:
    """Tell whether an infinity meets a comparison with a finite number."""
    return operator == "!=" or (operator in (">", ">=") if positive else operator in ("<", "<="))
