"""What all rules of expressions share: the columns in sight, the outputs, and what is known of the SELECT around them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from sqlglot import exp

from crannog.api.result import spark_name
from crannog.engine.sql.duckdb_compiler.scope import NodeCoverage, Query, Scope
from crannog.engine.sql.duckdb_compiler.spelling import Spelling
from crannog.engine.sql.duckdb_compiler.terms import NoRule, Typed
from crannog.engine.sql.spark_types import is_atomic


class ExpressionBase:
    """The state of one SELECT while its expressions are compiled. `subquery` compiles a statement inside one."""

    def __init__(
        self,
        scope: Scope,
        coverage: NodeCoverage,
        subquery: Callable[[exp.Expression, Scope], Query],
        now: Callable[[], dt.datetime],
        windows: Mapping[str, exp.Window],
        new_alias: Callable[[], str],
        spelling: Spelling,
    ) -> None:
        self.scope = scope
        self._new_alias = new_alias
        self._spelling = spelling
        self._take = coverage
        self._subquery = subquery
        self._now = now
        self._windows = windows
        # The conjuncts of WHERE and HAVING, where null and false are the same.
        self.conjuncts: set[int] = set()
        # IN over a subquery inside other conditions → whether an odd number of NOT is around it.
        self._negated_in: dict[int, bool] = {}
        # A key's SQL → the SQL it is grouped by; filled once the keys are known.
        self.keys: dict[str, str] = {}
        # The outputs by their names in lower case, as far as they are known, and whether it is ORDER BY that may use them.
        self.outputs: dict[str, list[Typed]] = {}
        self.in_order = False
        # Whether columns are the values of a row, as inside an aggregate.
        self._of_rows = False
        # The same for all keys of grouping sets; empty if there are none.
        self.grouping: dict[str, str] = {}

    def term(self, node: exp.Expression | None) -> Typed:
        """Return the typed form of a node. Raises NoRule if it has no rule."""
        raise NotImplementedError

    @contextmanager
    def row_values(self) -> Iterator[None]:
        """Compile columns as the values of a row, not as keys: so they are inside an aggregate."""
        before = self.keys, self._of_rows
        self.keys, self._of_rows = {}, True
        try:
            yield
        finally:
            self.keys, self._of_rows = before

    @contextmanager
    def own_columns(self, what: str) -> Iterator[None]:
        """Raise NoRule if what is compiled in the block uses a column of the outer statement; Spark refuses some of that."""
        outer = self.scope.outer
        before = outer.used_inside if outer is not None else False
        if outer is not None:
            outer.used_inside = False
        yield
        if outer is not None:
            if outer.used_inside:
                raise NoRule(f"{what} over columns of the statement around it")
            outer.used_inside = before


def atomic(term: Typed) -> Typed:
    if not is_atomic(term.type):
        raise NoRule(f"{spark_name(term.type)} as a key or an order")
    return term
