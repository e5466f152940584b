"""Checks that the compiler reads a syntax tree completely: an argument that no rule has read sends it to Spark.

Rules read arguments through `NodeCoverage` only. Arguments that they do not know, such as a PIVOT after a subquery, are
left over at the end, and then the compiled SQL must not be used: it would be another statement.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from crannog.engine.sql.duckdb_compiler.terms import NoRule


class NodeCoverage:
    """Which arguments of which nodes have been read."""

    def __init__(self) -> None:
        self._read: set[tuple[int, str]] = set()

    def __call__(self, node: exp.Expression, argument: str) -> Any:
        """Return an argument of a node, None if it is missing, and record that a rule has read it."""
        self._read.add((id(node), argument))
        value = node.args.get(argument)
        return None if _is_absent(value) else value

    def nodes(self, node: exp.Expression, argument: str = "expressions") -> list[exp.Expression]:
        """Return an argument that is a list of nodes; empty if it is missing."""
        return list(self(node, argument) or [])

    def name(self, identifier: exp.Expression) -> str:
        """Return the name of an identifier, quoted or not."""
        if not isinstance(identifier, exp.Identifier):
            raise NoRule(f"{identifier.key} as a name")
        self(identifier, "quoted")
        return str(self(identifier, "this"))

    def path(self, node: exp.Expression) -> list[str]:
        """Return the parts of a dotted name, outermost first."""
        if isinstance(node, exp.Identifier):
            return [self.name(node)]
        if isinstance(node, exp.Dot):
            return self.path(self(node, "this")) + self.path(self(node, "expression"))
        if isinstance(node, (exp.Column, exp.Table)):
            parts = ("catalog", "db", "table", "this") if isinstance(node, exp.Column) else ("catalog", "db", "this")
            return [name for part in parts if (inner := self(node, part)) is not None for name in self.path(inner)]
        raise NoRule(excerpt(node))

    def number(self, node: exp.Expression | None) -> str | None:
        """Return the digits of a literal number; None for anything else."""
        if not isinstance(node, exp.Literal) or self(node, "is_string"):
            return None
        return str(self(node, "this"))

    def operands(self, node: exp.Expression) -> list[exp.Expression]:
        """Return the sides of a chain of one operator, such as a AND b AND c."""
        found: list[exp.Expression] = []
        waiting: list[exp.Expression] = [node]
        while waiting:
            one = waiting.pop()
            if type(one) is type(node):
                waiting += [self(one, "expression"), self(one, "this")]
            else:
                found.append(one)
        return found

    def check_all(self, tree: exp.Expression) -> None:
        """Raise NoRule if an argument anywhere in the tree was not read."""
        for node in tree.walk():
            for argument, value in node.args.items():
                if not _is_absent(value) and (id(node), argument) not in self._read:
                    raise NoRule(f"{node.key} with {argument.rstrip('_')}")


def excerpt(node: exp.Expression) -> str:
    """Return the SQL of a node, as far as sqlglot can generate it."""
    try:
        return str(node.sql("spark"))[:60]
    except Exception:  # sqlglot's generator does not support everything that its parser produces
        return str(node.key)


def _is_absent(value: Any) -> bool:
    return value is None or value is False or value == [] or value == ""
