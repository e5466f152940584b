"""How a statement spells what the syntax tree has in one form only: Spark names columns after the text."""

from __future__ import annotations

from functools import cached_property

from sqlglot import exp

from crannog.engine.sql.statement import Statement
from crannog.engine.sql.tokens import word


class Spelling:
    """The spelling of one statement."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement

    @cached_property
    def has_only_is_not_null(self) -> bool:
        """Whether every `x IS NOT NULL` of the tree is written so, and none as `NOT x IS NULL`."""
        words = [word(token) for token in self._statement.tokens]
        written = sum(words[place : place + 3] == ["IS", "NOT", "NULL"] for place in range(len(words)))
        assert self._statement.tree is not None
        nodes = self._statement.tree.find_all(exp.Not)
        return written == sum(isinstance(node.this, exp.Is) for node in nodes)

    @cached_property
    def _extracted(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        tokens = self._statement.tokens
        for before, _, unit in zip(tokens, tokens[1:], tokens[2:], strict=False):
            if word(before) == "EXTRACT":
                found.setdefault(str(unit.text).upper(), set()).add(str(unit.text))
        return found

    def unit(self, upper: str) -> str | None:
        """Return a unit of EXTRACT as it is written; None if it is written in several ways."""
        ways = self._extracted.get(upper.upper(), set())
        return next(iter(ways)) if len(ways) == 1 else None


def has_suffix(number: exp.Expression) -> bool | None:
    """Whether a number is written with its type, such as 1L: its token is longer than its digits. None if unknown."""
    if not isinstance(number, exp.Literal) or "end" not in number.meta:
        return None
    return bool(number.meta["end"] - number.meta["start"] + 1 > len(number.name))
