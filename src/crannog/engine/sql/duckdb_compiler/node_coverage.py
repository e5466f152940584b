"""Taking a syntax tree apart completely: an argument of a node that no rule has read sends the statement to Spark.

Rules read arguments through `Taken` only. What they do not know, such as a PIVOT after a subquery, is left over in the
end, and then nothing that was compiled may be used: the answer would be to another statement.
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
        """Return an argument of a node, None if it is not there, and note that a rule knows what it means."""
        self._read.add((id(node), argument))
        value = node.args.get(argument)
        return None if _is_absent(value) else value

    def nodes(self, node: exp.Expression, argument: str = "expressions") -> list[exp.Expression]:
        """Return an argument that is a list of nodes; empty if it is not there."""
        return list(self(node, argument) or [])

    def name(self, identifier: exp.Expression) -> str:
        """Return the name that an identifier holds; quoted or not, it means the same."""
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
        """Raise Unproved if an argument anywhere in the tree was not read."""
        for node in tree.walk():
            for argument, value in node.args.items():
                if not _is_absent(value) and (id(node), argument) not in self._read:
                    raise NoRule(f"{node.key} with {argument.rstrip('_')}")


def excerpt(node: exp.Expression) -> str:
    """Return how a node is written, as far as that can be said."""
    try:
        return str(node.sql("spark"))[:60]
    except Exception:  # a generator that does not know what its own parser made
        return str(node.key)


def _is_absent(value: Any) -> bool:
    return value is None or value is False or value == [] or value == ""
