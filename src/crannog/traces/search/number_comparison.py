"""Exact comparisons of stored numbers with one that was asked for, which may be of another type.

A whole number and a double are compared by value, as Python does, never through a rounded copy: what to compare with
is worked out here, once, instead of for each row.
"""

from __future__ import annotations

import math
from fractions import Fraction

_LEAST, _MOST = -(2**63), 2**63 - 1
Asked = int | float | Fraction


def against_whole(operator: str, asked: Asked) -> tuple[str, int] | bool:
    """Return the comparison of a 64-bit whole number that says the same; True or False if it is the same for all."""
    exact = Fraction(asked)
    low, high = math.floor(exact), math.ceil(exact)
    if operator in ("=", "!="):
        if low != high or not _LEAST <= low <= _MOST:
            return operator == "!="
        return operator, low
    bound = low if operator in ("<=", ">") else high
    if bound > _MOST:
        return operator in ("<", "<=")
    if bound < _LEAST:
        return operator in (">", ">=")
    return operator, bound


def against_double(operator: str, asked: Asked) -> tuple[str, float] | bool:
    """Return the comparison of a double (which is not NaN) that says the same; True or False if it is the same for all finite ones."""
    exact = Fraction(asked)
    try:
        near = float(exact)
    except OverflowError:
        return operator == "!=" or (operator != "=" and (operator in ("<", "<=")) == (exact > 0))
    if Fraction(near) == exact:
        return operator, near
    if operator in ("=", "!="):
        return operator == "!="
    below = Fraction(near) < exact
    # The nearest double stands on one side of what was asked for, which settles whether it is in.
    if operator in ("<", "<="):
        return ("<=" if below else "<"), near
    return (">" if below else ">="), near


def is_above(operator: str, *, positive: bool) -> bool:
    """Tell whether an infinity meets a comparison with a finite number."""
    return operator == "!=" or (operator in (">", ">=") if positive else operator in ("<", "<="))
