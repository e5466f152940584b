"""Statements made up from a grammar of Spark's SQL, over the tables that `sql_made_tables` makes up.

A statement need not be right: an error on both sides is the same answer. Where rows could come in any order it
cuts nothing off, so what it returns is one multiset.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from sql_made_tables import COLUMNS, FORMS, NUMBER, TEXT, TRUTH
from sql_pieces import AGGREGATES, CONSTANTS, FRAMES, LEAST, ONLY_SPARK, SCALARS, TEMPLATES, WINDOW_ONLY
from sql_tree import Node, listed, node

T = TypeVar("T")
_JOINS = [
    "join",
    "inner join",
    "left join",
    "right outer join",
    "full join",
    "left semi join",
    "left anti join",
    "cross join",
]
_SETS = ["union all", "union", "intersect", "except", "intersect all", "except all", "minus"]
_HINTS = ["", "", "", "/*+ broadcast({}) */ ", "/*+ merge({}) */ ", "/*+ repartition(2) */ ", "/*+ coalesce(1) */ "]
_SAMPLES = [" tablesample (100 percent)", " tablesample (1000 rows)", " tablesample (0 percent)"]


@dataclass(frozen=True)
class Column:
    """A column in sight: how it is written, and the kind of its values."""

    written: str
    kind: str


@dataclass
class Grammar:
    """Makes up statements; the same from the same source of random numbers."""

    random: Random
    fast: bool = False
    """Only what the fast engines have rules for, or nearly: so that most statements compare two engines."""
    _names: int = 0
    _parts: dict[str, list[Column]] = field(default_factory=dict)

    def statement(self) -> Node:
        """One statement, with its WITH parts."""
        self._names, self._parts = 0, {}
        ctes = []
        for _ in range(self._pick([0, 0, 0, 1, 2])):
            name = self._new("w")
            query, columns = self._query(1, [])
            ctes.append(node("cte", f"{name} as ({{}})", query))
            self._parts[name] = columns
        query, columns = self._query(2, [])
        if not self.fast and self._chance(0.15):
            query = self._piped(query, columns)
        elif columns and self._chance(0.3):
            query = node("ordered", "{}{}", query, self._order(len(columns)))
        return node("statement", "with {} {}", listed("ctes", ctes), query) if ctes else node("statement", "{}", query)

    # -- queries -----------------------------------------------------------------------------------------------

    def _query(self, depth: int, outer: list[Column]) -> tuple[Node, list[Column]]:
        if depth and self._chance(0.12):
            kinds = [self._pick(SCALARS) for _ in range(2)]
            (one, columns), (other, _) = (self._select(depth - 1, outer, kinds=kinds) for _ in range(2))
            return node("query", f"{{}} {self._pick(_SETS)} {{}}", one, other), columns
        if self._chance(0.05):
            rows = [listed("row", [self._constant(NUMBER), self._constant(TEXT)]) for _ in range(2)]
            return node("query", "values {}", listed("rows", [node("valuesrow", "({})", row) for row in rows])), [
                Column("col1", NUMBER),
                Column("col2", TEXT),
            ]
        return self._select(depth, outer)

    def _select(self, depth: int, outer: list[Column], kinds: list[str] | None = None) -> tuple[Node, list[Column]]:
        source, scope, names = self._source(depth)
        sight = scope + outer[:6]
        if self._chance(0.1) and any(column.kind == "list" for column in scope):
            alias = self._new("v")
            kept = "outer " if self._chance(0.5) else ""
            of = self._pick([column.written for column in scope if column.kind == "list"])
            call, named = self._pick(
                [
                    (f"explode({of})", f"e_{alias}"),
                    (f"posexplode({of})", f"p_{alias}, e_{alias}"),
                    (f"explode_outer({of})", f"e_{alias}"),
                ]
            )
            source = node("source", f"{{}} lateral view {kept}{call} {alias} as {named}", source)
            sight = [*sight, Column(f"e_{alias}", NUMBER)]
        where = self._clause(" where {}", TRUTH, 2, sight, depth, 0.35)
        hint = self._pick(_HINTS).format(self._pick(names))
        if self._chance(0.3):
            items, columns, tail = self._grouped(sight, depth, kinds)
        else:
            items, columns, tail = self._plain(sight, depth, kinds)
        distinct = "distinct " if self._chance(0.08) else ""
        return node("query", f"select {hint}{distinct}{{}} from {{}}{{}}{{}}", items, source, where, tail), columns

    def _plain(self, sight: list[Column], depth: int, kinds: list[str] | None) -> tuple[Node, list[Column], Node]:
        if kinds is None and self._chance(0.12):
            return node("items", "*"), [], node("clause", "", least="")
        items, columns = [], []
        for kind in kinds or [
            self._pick([*SCALARS, *SCALARS, NUMBER, *(() if self.fast else TEMPLATES)])
            for _ in range(self.random.randint(1, 4))
        ]:
            value = (
                self._window(sight, kind)
                if self._chance(0.15) and kind in AGGREGATES
                else self._expression(kind, 3, sight, depth)
            )
            items.append(self._item(value, kind, columns))
        return listed("items", items), columns, node("clause", "", least="")

    def _grouped(self, sight: list[Column], depth: int, kinds: list[str] | None) -> tuple[Node, list[Column], Node]:
        columns: list[Column] = []
        wanted = kinds or [self._pick(list(AGGREGATES)) for _ in range(self.random.randint(1, 3))]
        keys = [self._expression(self._pick(SCALARS), 1, sight, 0) for _ in range(self._pick([0, 1, 1, 2]))]
        items = [] if kinds else [self._item(key, key.kind, columns) for key in keys]
        for kind in wanted:
            items.append(self._item(self._aggregate(kind, sight), kind, columns))
        if not keys:
            return (
                listed("items", items),
                columns,
                self._clause(" having {}", TRUTH, 1, [Column("count(*) > 1", TRUTH)], 0, 0.1),
            )
        by = listed("keys", keys)
        form = self._pick(
            ["{}", "{}", "{}", "rollup ({})", "cube ({})", "{} with rollup", "grouping sets (({}), ())", "all", "1"]
        )
        group = node("clause", f" group by {form}", *([by] if "{}" in form else []))
        if "roll" in form or "cube" in form or "sets" in form:
            items.append(self._item(node(NUMBER, "grouping_id()", least="1"), NUMBER, columns))
        having = (
            node("clause", " having {} > 1", self._aggregate(NUMBER, sight), least="")
            if self._chance(0.2)
            else node("clause", "", least="")
        )
        return listed("items", items), columns, node("tail", "{}{}", group, having)

    def _item(self, value: Node, kind: str, columns: list[Column]) -> Node:
        """A selected value, with a name or with the one that Spark gives it."""
        if self._chance(0.5):
            columns.append(Column("", kind))
            return node("item", "{}", value)
        name = self._new("c")
        columns.append(Column(name, kind))
        return node("item", f"{{}}{self._pick([' as ', ' '])}{name}", value)

    def _source(self, depth: int) -> tuple[Node, list[Column], list[str]]:
        """What stands after FROM, the columns it brings, and the names of its tables."""
        source, scope, name = self._relation(depth)
        names = [name]
        for _ in range(self._pick([0, 0, 0, 1, 1, 2]) if depth else 0):
            other, columns, alias = self._relation(depth - 1)
            how = self._pick(_JOINS)
            if self._chance(0.1):
                how = self._pick([join for join in _JOINS if join != "cross join"])
                source = node("source", f"{{}} {how} {{}} using ({self._pick(['id', 'id', 'id, a'])})", source, other)
            elif how == "cross join":
                source = node("source", "{} cross join {}", source, other)
            else:
                source = node("source", f"{{}} {how} {{}} on {{}}", source, other, self._match(scope, columns))
            scope = scope if "semi" in how or "anti" in how else scope + columns
            names.append(alias)
        return source, scope, names

    def _match(self, left: list[Column], right: list[Column]) -> Node:
        pairs = [(a, b) for a in left for b in right if a.kind == b.kind and a.kind in SCALARS]
        if not pairs or self._chance(0.15):
            return self._expression(TRUTH, 2, left + right, 0)
        one, other = self._pick(pairs)
        return node(TRUTH, f"{one.written} {self._pick(['=', '=', '<=>', '<'])} {other.written}", least="true")

    def _relation(self, depth: int) -> tuple[Node, list[Column], str]:
        name = self._new("r")
        if self._parts and self._chance(0.3):
            part = self._pick(list(self._parts))
            return node("source", f"{part} as {name}"), _under(name, self._parts[part]), name
        if depth and self._chance(0.3):
            query, columns = self._query(depth - 1, [])
            return node("source", f"({{}}){self._sample(0.1)} as {name}", query), _under(name, columns), name
        if self._chance(0.08):
            row = [self._constant(NUMBER), self._constant(TEXT)]
            return (
                node("source", f"values ({{}}) as {name}(n, s)", listed("row", row)),
                [Column(f"{name}.n", NUMBER), Column(f"{name}.s", TEXT)],
                name,
            )
        table = f"t_{self._pick(list(FORMS))}"
        if not self.fast and self._chance(0.08):
            return self._pivoted(table, name)
        columns = [Column(f"{name}.{column}", kind) for column, (_, kind) in COLUMNS.items()]
        if self._chance(0.3):
            # Without a name of its own: columns are written alone, or after the table's.
            return (
                node("source", table),
                [
                    Column(column.written.replace(f"{name}.", self._pick(["", f"{table}."])), column.kind)
                    for column in columns
                ],
                table,
            )
        return node("source", f"{table}{self._sample(0.05)} as {name}"), columns, name

    def _pivoted(self, table: str, name: str) -> tuple[Node, list[Column], str]:
        if self._chance(0.5):
            inner = node(
                "source",
                f"(select x, a, id from {table}) pivot ({self._pick(['sum(a)', 'count(a) as n', 'max(a), min(a)'])} for x in ('a', 'b' as bb)) as {name}",
            )
            return inner, [Column(f"{name}.id", NUMBER)], name
        nulls = self._pick(["", "include nulls ", "exclude nulls "])
        inner = node(
            "source",
            f"(select id, a, cast(i8 as int) as i from {table}) unpivot {nulls}(v for n in (a, i as other)) as {name}",
        )
        return inner, [Column(f"{name}.id", NUMBER), Column(f"{name}.v", NUMBER), Column(f"{name}.n", TEXT)], name

    def _sample(self, chance: float) -> str:
        return self._pick(_SAMPLES) if not self.fast and self._chance(chance) else ""

    def _order(self, count: int) -> Node:
        """An order by every column, so that a limit cuts between rows that are told apart."""
        keys = [
            node("key", f"{place}{self._pick(['', ' desc', ' asc nulls last', ' desc nulls first'])}")
            for place in range(1, count + 1)
        ]
        limit = node("clause", self._pick(["", " limit 3", " limit 2 offset 1", " limit 0"]), least="")
        return node("clause", " order by {}{}", Node("order", tuple(keys), between=", "), limit, least="")

    def _piped(self, query: Node, columns: list[Column]) -> Node:
        """The query as a table, and operators after `|>`."""
        known = [column for column in columns if column.written]
        steps = []
        for _ in range(self.random.randint(1, 3)):
            if not known or self._chance(0.3):
                steps.append(
                    node(
                        "step",
                        self._pick([" |> where {}", " |> extend {} as more"]),
                        self._expression(TRUTH, 1, known, 0),
                    )
                )
            elif self._chance(0.4):
                value = self._pick(known)
                steps.append(
                    node(
                        "step",
                        f" |> aggregate count(*) as n, max({value.written}) as most"
                        + (f" group by {value.written}" if self._chance(0.5) else ""),
                    )
                )
                known = [Column("n", NUMBER)]
            else:
                value = self._pick(known)
                steps.append(
                    node(
                        "step",
                        self._pick(
                            [
                                f" |> select {value.written}",
                                f" |> set {value.written} = null",
                                f" |> drop {value.written}",
                                f" |> order by {value.written}",
                                " |> as p",
                            ]
                        ),
                    )
                )
                known = [value] if "select" in str(steps[-1]) else [] if "drop" in str(steps[-1]) else known
        return node("query", "from ({}){}", query, Node("steps", tuple(steps), between=""))

    # -- expressions -------------------------------------------------------------------------------------------

    def _expression(self, kind: str, size: int, sight: list[Column], depth: int) -> Node:
        names = [column.written for column in sight if column.kind == kind and column.written]
        if size == 0 or self._chance(0.25):
            leaf = self._pick(names) if names and self._chance(0.8) else self._pick(CONSTANTS[kind])
            return node(kind, leaf.replace("{}", ""), least=LEAST[kind])
        if depth and self._chance(0.08) and kind in (NUMBER, TRUTH, TEXT):
            return self._subquery(kind, sight, depth)
        template, kinds = self._pick(
            [one for one in TEMPLATES[kind] if not (self.fast and ONLY_SPARK.search(f"{one[0]} {one[1]}"))]
        )
        return node(
            kind, template, *(self._expression(inner, size - 1, sight, depth) for inner in kinds), least=LEAST[kind]
        )

    def _subquery(self, kind: str, sight: list[Column], depth: int) -> Node:
        """A subquery as a value, correlated or not."""
        table, name = f"t_{self._pick(list(FORMS))}", self._new("q")
        own = [Column(f"{name}.{column}", kind_) for column, (_, kind_) in COLUMNS.items()]
        link = (
            self._match([column for column in sight if column.written] or own, own)
            if self._chance(0.7)
            else self._expression(TRUTH, 1, own, 0)
        )
        if kind == TRUTH:
            if self._chance(0.5):
                return node(
                    kind,
                    f"{self._pick(['', 'not '])}exists (select {{}} from {table} as {name} where {{}})",
                    self._expression(NUMBER, 1, own, 0),
                    link,
                    least="true",
                )
            if self._chance(0.3):
                pair = ", ".join(["{}"] * 2)
                return node(
                    kind,
                    f"(({pair}) {self._pick(['in', 'not in'])} (select {pair} from {table} as {name} where {{}}))",
                    *(self._expression(NUMBER, 1, sight, 0) for _ in range(2)),
                    *(self._expression(NUMBER, 0, own, 0) for _ in range(2)),
                    link,
                    least="true",
                )
            value = self._expression(NUMBER, 1, sight, 0)
            return node(
                kind,
                f"({{}} {self._pick(['in', 'not in'])} (select {{}} from {table} as {name} where {{}}))",
                value,
                self._expression(NUMBER, 0, own, 0),
                link,
                least="true",
            )
        column = self._pick([one for one in own if one.kind == kind])
        if self._chance(0.4):
            return node(
                kind,
                f"(select {column.written} from {table} as {name} where {{}} order by {name}.id limit 1)",
                link,
                least=LEAST[kind],
            )
        derived = f"(select * from {table}) as {name}" if self._chance(0.3) else f"{table} as {name}"
        return node(
            kind,
            f"(select {self._pick(['max', 'min', 'max', 'count'])}({column.written}) from {derived} where {{}})",
            link,
            least=LEAST[kind],
        )

    def _aggregate(self, kind: str, sight: list[Column]) -> Node:
        template, kinds = self._pick([one for one in AGGREGATES[kind] if not (self.fast and ONLY_SPARK.search(one[0]))])
        return node(
            kind,
            template,
            *(self._expression(inner, 1, sight, 0) for inner in kinds),
            least="count(*)" if kind == NUMBER else None,
        )

    def _window(self, sight: list[Column], kind: str) -> Node:
        ids = [column.written for column in sight if column.written.endswith("id")] or ["1"]
        by = (
            node("clause", "partition by {} ", self._expression(self._pick(SCALARS), 1, sight, 0), least="")
            if self._chance(0.6)
            else node("clause", "", least="")
        )
        call = (
            node(kind, self._pick(WINDOW_ONLY).replace("id", ids[0]))
            if kind == NUMBER and self._chance(0.4)
            else self._aggregate(kind, sight)
        )
        frame = (
            self._pick(FRAMES)
            if "(" in str(call) and not any(str(call).startswith(name[:4]) for name in WINDOW_ONLY)
            else ""
        )
        # By every number that tells rows apart, so that the order is one.
        return node(
            kind, f"{{}} over ({{}}order by {', '.join(ids) if 'range' not in frame else ids[0]}{frame})", call, by
        )

    def _clause(self, template: str, kind: str, size: int, sight: list[Column], depth: int, chance: float) -> Node:
        return (
            node("clause", template, self._expression(kind, size, sight, depth), least="")
            if self._chance(chance)
            else node("clause", "", least="")
        )

    def _constant(self, kind: str) -> Node:
        return node(kind, self._pick(CONSTANTS[kind]), least=LEAST[kind])

    def _new(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"

    def _chance(self, chance: float) -> bool:
        return self.random.random() < chance

    def _pick(self, values: Iterable[T]) -> T:
        return self.random.choice(list(values))


def _under(name: str, columns: list[Column]) -> list[Column]:
    return [Column(f"{name}.{column.written}", column.kind) for column in columns if column.written]
