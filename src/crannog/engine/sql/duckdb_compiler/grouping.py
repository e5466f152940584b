"""GROUP BY: keys by expression, number or alias, GROUP BY ALL, and the sets of ROLLUP, CUBE and GROUPING SETS.

Sets are expanded here, so that DuckDB gets nothing but a list of sets of keys.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlglot import exp

from crannog.engine.sql.duckdb_compiler.aggregates import AGGREGATES, plain_zero
from crannog.engine.sql.duckdb_compiler.expression_base import atomic
from crannog.engine.sql.duckdb_compiler.expressions import Expressions
from crannog.engine.sql.duckdb_compiler.scope import NodeCoverage
from crannog.engine.sql.duckdb_compiler.terms import NoRule, Typed

_MOST_SETS = 64
_COLUMNS = re.compile(r"""r\d+\.(?:\w+|"(?:[^"]|"")*")""")
Sets = list[tuple[int, ...]]


@dataclass
class Grouping:
    """The GROUP BY of one SELECT."""

    node: exp.Select
    expressions: Expressions
    coverage: NodeCoverage
    # The keys in the order of their first use, each once.
    _keys: list[Typed] = field(default_factory=list)

    def sql(self) -> str:
        """Return the clause, empty without GROUP BY, and tell `expressions` what is grouped by."""
        group = self.coverage(self.node, "group")
        if group is None:
            return ""
        items = self.coverage.nodes(group)
        if self.coverage(group, "all"):
            named_so = any(isinstance(one, exp.Alias) and one.alias.lower() == "all" for one in self.node.expressions)
            if items or named_so or self.expressions.scope.own(["all"]) is not None:
                raise NoRule("GROUP BY ALL beside other keys, or where something is called so")
            sets = [tuple(self._place(self.expressions.term(item)) for item in _without_aggregates(self.node))]
            if not self._keys:
                return ""
        else:
            sets = self._written_after(group, items) or self._product(items)
        if not self._keys:
            if len(sets) != 1:
                raise NoRule("grouping sets without keys")
            return " GROUP BY ()"
        by = [self._key_sql(key) for key in self._keys]
        self.expressions.keys = {
            key.sql: grouped for key in self._keys if (grouped := plain_zero(key)) != key.sql and not key.is_literal
        }
        if sets == [tuple(range(len(by)))]:
            return f" GROUP BY {', '.join(by)}"
        if any(key.is_literal for key in self._keys):
            raise NoRule("a constant in a grouping set")
        _check_apart(self._keys)
        self.expressions.grouping = {key.sql: grouped for key, grouped in zip(self._keys, by, strict=True)}
        listed = ", ".join(f"({', '.join(by[place] for place in places)})" for places in sets)
        return f" GROUP BY GROUPING SETS ({listed})"

    @staticmethod
    def _key_sql(key: Typed) -> str:
        # A constant would be taken as the number of a column.
        return f"coalesce({key.sql})" if key.is_literal else plain_zero(key)

    # -- sets --------------------------------------------------------------------------------------------------

    def _written_after(self, group: exp.Group, items: list[exp.Expression]) -> Sets | None:
        """Return the sets of `keys WITH ROLLUP`, `keys WITH CUBE` and `keys GROUPING SETS (…)`."""
        found = {kind: self.coverage.nodes(group, kind) for kind in ("rollup", "cube", "grouping_sets")}
        written = [(kind, node) for kind, nodes in found.items() for node in nodes]
        if not written:
            return None
        if len(written) > 1:
            raise NoRule("several kinds of grouping sets")
        [(kind, node)] = written
        keys = [self._key(item) for item in items]
        if kind == "grouping_sets":
            if not keys:
                raise NoRule("grouping sets without keys")
            sets = self._sets(node)
            if len(self._keys) != len(set(keys)):
                raise NoRule("a grouping set with another key")
            return sets
        if self.coverage.nodes(node):
            raise NoRule(f"{kind} of this kind")
        return _prefixes([[key] for key in keys]) if kind == "rollup" else _subsets([[key] for key in keys])

    def _product(self, items: list[exp.Expression]) -> Sets:
        """Return the sets of a list of keys and groups of sets: every combination."""
        if any(isinstance(item, exp.Tuple) for item in items):
            raise NoRule("GROUP BY a struct")
        parts = [self._sets(item) for item in items]
        count = 1
        for part in parts:
            count *= len(part)
        if count > _MOST_SETS:
            raise NoRule(f"more than {_MOST_SETS} grouping sets")
        return [_union(chosen) for chosen in itertools.product(*parts)]

    def _sets(self, item: exp.Expression) -> Sets:
        if isinstance(item, exp.GroupingSets):
            return [places for inner in self.coverage.nodes(item) for places in self._sets(inner)]
        if isinstance(item, (exp.Rollup, exp.Cube)):
            parts = [list(self._places(inner)) for inner in self.coverage.nodes(item)]
            if not parts:
                raise NoRule(f"{item.key} of nothing")
            return _prefixes(parts) if isinstance(item, exp.Rollup) else _subsets(parts)
        return [self._places(item)]

    def _places(self, item: exp.Expression) -> tuple[int, ...]:
        if isinstance(item, exp.Tuple):
            return _union([(self._key(inner),) for inner in self.coverage.nodes(item)])
        return (self._key(item),)

    # -- keys --------------------------------------------------------------------------------------------------

    def _key(self, item: exp.Expression) -> int:
        """Return the place of a key among all keys."""
        with self.expressions.own_columns("GROUP BY"):
            return self._place(self._term(item))

    def _place(self, term: Typed) -> int:
        for place, known in enumerate(self._keys):
            if known.sql == term.sql and not term.is_literal:
                return place
        self._keys.append(atomic(term))
        return len(self._keys) - 1

    def _term(self, item: exp.Expression) -> Typed:
        number = self.coverage.number(item)
        if isinstance(item, (exp.Neg, exp.Paren)) and isinstance(item.this.unnest(), exp.Literal):
            raise NoRule("GROUP BY a constant")
        chosen = self.node.expressions
        if number is not None:
            place = int(number) if number.isdigit() else 0
            if not 1 <= place <= len(chosen):
                raise NoRule("GROUP BY the number of no column")
            item = chosen[place - 1]
            return self._output(item.this if isinstance(item, exp.Alias) else item)
        if isinstance(item, exp.Column) and not item.table:
            try:
                return self.expressions.term(item)
            except NoRule:
                for one in chosen:
                    if isinstance(one, exp.Alias) and one.alias.lower() == item.name.lower():
                        return self._output(one.this)
                raise
        return self.expressions.term(item)

    def _output(self, item: exp.Expression) -> Typed:
        if any(_aggregates(inner) for inner in item.walk()) or item.find(exp.Window):
            raise NoRule("GROUP BY an aggregate")
        return self.expressions.term(item)


def _check_apart(keys: list[Typed]) -> None:
    """Refuse keys that Spark may take for one another: `a + b` and `b + a`, or `b + a` beside a, b and `a + b`."""
    columns = [frozenset(_COLUMNS.findall(key.sql)) for key in keys]
    plain = {key.sql for key in keys if _COLUMNS.fullmatch(key.sql)}
    computed = [names for key, names in zip(keys, columns, strict=True) if key.sql not in plain]
    if len(set(computed)) != len(computed) or any(names <= plain for names in computed):
        raise NoRule("grouping sets over expressions of the same columns")


def _prefixes(parts: list[list[int]]) -> Sets:
    return [_union(parts[:count]) for count in range(len(parts), -1, -1)]


def _subsets(parts: list[list[int]]) -> Sets:
    if 2 ** len(parts) > _MOST_SETS:
        raise NoRule(f"more than {_MOST_SETS} grouping sets")
    return [_union(chosen) for count in range(len(parts), -1, -1) for chosen in itertools.combinations(parts, count)]


def _union(parts: Iterable[Iterable[int]]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(itertools.chain.from_iterable(parts)))


def _without_aggregates(node: exp.Select) -> list[exp.Expression]:
    """Return what GROUP BY ALL groups by: the outputs that aggregate nothing."""
    found = []
    for item in node.expressions:
        value = item.this if isinstance(item, exp.Alias) else item
        if item.find(exp.Star) not in (None, *_counted_stars(item)) or item.find(exp.Window, exp.Query):
            raise NoRule("GROUP BY ALL with outputs of this kind")
        if not any(_aggregates(inner) for inner in value.walk()):
            found.append(value)
    return found


def _counted_stars(item: exp.Expression) -> list[exp.Expression]:
    return [star for star in item.find_all(exp.Star) if isinstance(star.parent, exp.Anonymous)]


def _aggregates(node: exp.Expression) -> bool:
    return isinstance(node, exp.Any) or (isinstance(node, exp.Anonymous) and str(node.this).lower() in AGGREGATES)
