"""Which tables a statement names, and where: one pass over its tokens, following FROM, JOIN, TABLE and WITH.

The tokens decide, not a parser's tree, so that syntax which only Spark knows is still found out about. A name that is
missed is never replaced by a view, and Spark then says that there is no such table: a miss is an error, not a leak.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot.tokens import Token, TokenType

from crannog.engine.sql.function_calls import TABLE_FUNCTIONS
from crannog.engine.sql.tokens import STRINGS, is_name, word
from crannog.errors import CallerError, Refused

_QUERY_STARTS = {"SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE"}
_SET_OPERATIONS = {"UNION", "INTERSECT", "EXCEPT", "MINUS"}
# Keywords that end the list of relations after FROM.
_CLAUSES = _SET_OPERATIONS | {
    "SELECT", "WHERE", "GROUP BY", "GROUP", "HAVING", "ORDER BY", "ORDER", "SORT BY", "SORT", "CLUSTER BY", "DISTRIBUTE BY",
    "LIMIT", "OFFSET", "WINDOW", "QUALIFY",
}  # fmt: skip
# Keywords that may follow a relation and are not an alias.
_AFTER_RELATION = _CLAUSES | {
    "JOIN", "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "NATURAL", "SEMI", "ANTI", "ASOF", "ON", "USING", "LATERAL", "PIVOT",
    "UNPIVOT", "TABLESAMPLE", "FOR", "WITH", "AS", "CLUSTER", "DISTRIBUTE", "INSERT",
}  # fmt: skip
_VERSIONS, _TIMES = {"VERSION", "SYSTEM_VERSION"}, {"TIMESTAMP", "SYSTEM_TIME"}


@dataclass(frozen=True)
class TableRef:
    """A table reference: its position in the text, and the position for an alias."""

    parts: tuple[str, ...]
    start: int
    end: int
    alias: str | None
    alias_after: int
    version: int | None = None
    timestamp: str | None = None

    @property
    def written(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True)
class FoundNames:
    """The table references of a statement in the order of the text.

    By the start of their tokens: `aliases` are names given to relations, `bare_tables` the word TABLE as a statement.
    """

    tables: tuple[TableRef, ...]
    aliases: frozenset[int]
    bare_tables: frozenset[int]


@dataclass
class _Level:
    """What is known at one depth of parentheses."""

    ctes: set[str] = field(default_factory=set)
    is_query: bool = False
    in_from: bool = False
    expects_relation: bool = False
    in_values: bool = False
    # Inside WITH: the name being defined, and whether the next name is a definition.
    defining: str | None = None
    expects_definition: bool = False
    recursive: bool = False
    is_relation: bool = False
    first: bool = True


def find_names(tokens: Sequence[Token]) -> FoundNames:
    """Find the tables. Raises Refused for paths and functions in place of a table."""
    scan = _Scan(tokens)
    scan.run()
    return FoundNames(tuple(scan.tables), frozenset(scan.aliases), frozenset(scan.bare_tables))


class _Scan:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._levels = [_Level(is_query=True)]
        self.tables: list[TableRef] = []
        self.aliases: set[int] = set()
        self.bare_tables: set[int] = set()

    def run(self) -> None:
        place = 0
        while place < len(self._tokens):
            place = self._step(place)
        if len(self._levels) > 1:
            raise CallerError("cannot read the statement: an opening parenthesis without a closing one")

    def _step(self, place: int) -> int:
        """Read the token at a position and return the next position to read."""
        token, level = self._tokens[place], self._levels[-1]
        first, level.first = level.first, False
        kind = token.token_type
        if kind is TokenType.L_PAREN:
            self._open(level)
            return place + 1
        if kind is TokenType.R_PAREN:
            return self._close(place)
        if kind is TokenType.COMMA:
            level.expects_definition = level.defining is not None
            level.expects_relation = level.in_from and not level.in_values and not level.expects_definition
            return place + 1
        if kind is TokenType.PIPE_GT:
            level.in_from = level.expects_relation = False
            return place + 1
        keyword = word(token)
        if place and self._tokens[place - 1].token_type is TokenType.DOT:
            return place + 1
        if level.expects_definition:
            return self._definition(place, level, keyword)
        if level.expects_relation and not (first and keyword in _QUERY_STARTS):
            return self._relation(place, level, keyword)
        if level.in_values and place and self._tokens[place - 1].token_type is TokenType.R_PAREN:
            following, alias = self._alias(place)
            if alias is not None:
                level.in_values = False
                return following
        self._keyword(place, level, keyword, first)
        return place + 1

    # -- parentheses -------------------------------------------------------------------------------------------

    def _open(self, level: _Level) -> None:
        inner = _Level(is_relation=level.expects_relation)
        inner.in_from = inner.expects_relation = level.expects_relation
        level.expects_relation = False
        self._levels.append(inner)

    def _close(self, place: int) -> int:
        if len(self._levels) == 1:
            raise CallerError("cannot read the statement: a closing parenthesis without an opening one")
        inner = self._levels.pop()
        level = self._levels[-1]
        if level.defining is not None and inner.is_query:
            level.ctes.add(level.defining)
        return self._alias(place + 1)[0] if inner.is_relation else place + 1

    # -- words -------------------------------------------------------------------------------------------------

    def _keyword(self, place: int, level: _Level, keyword: str, first: bool) -> None:
        before = word(self._tokens[place - 1]) if place else ""
        if keyword in _QUERY_STARTS and first:
            level.is_query = True
            level.in_from = level.expects_relation = False
        if keyword == "WITH" and first:
            level.defining, level.expects_definition = "", True
        elif keyword == "FROM" and level.is_query and not self._is_distinct_from(place):
            level.in_from = level.expects_relation = True
            level.in_values, level.defining = False, None
        elif keyword == "TABLE" and (
            first or before in _SET_OPERATIONS | {"ALL", "DISTINCT"} or level.defining is not None
        ):
            level.expects_relation, level.defining = True, None
            self.bare_tables.add(self._tokens[place].start)
        elif keyword == "JOIN":
            level.expects_relation, level.in_values = True, False
        elif keyword == "VALUES" and (first or level.defining is not None):
            level.in_values, level.defining = True, None
        elif keyword == "VIEW" and before == "LATERAL":
            level.in_from = False  # commas separate its columns
        elif keyword in _CLAUSES:
            level.in_from = level.in_values = False
            if keyword == "SELECT":
                level.is_query, level.defining = True, None

    def _is_distinct_from(self, place: int) -> bool:
        before = [word(token) for token in self._tokens[max(place - 2, 0) : place]]
        return len(before) == 2 and before[1] == "DISTINCT" and before[0] in ("IS", "NOT")

    def _definition(self, place: int, level: _Level, keyword: str) -> int:
        if keyword == "RECURSIVE" and level.defining == "":
            level.recursive = True
            return place + 1
        token = self._tokens[place]
        if is_name(token):
            level.defining, level.expects_definition = str(token.text).lower(), False
            self.aliases.add(token.start)
            if level.recursive:
                level.ctes.add(level.defining)
        return place + 1

    # -- relations ---------------------------------------------------------------------------------------------

    def _relation(self, place: int, level: _Level, keyword: str) -> int:
        token = self._tokens[place]
        if keyword == "LATERAL":
            return place + 1
        level.expects_relation = False
        if keyword == "FROM":
            # Spark takes the first FROM as the alias of a column; a table of that name would give another result.
            raise Refused("FROM FROM is ambiguous: write an alias or a table called FROM in backticks, like `from`")
        if token.token_type in STRINGS:
            raise Refused(f"a text is not a table: {str(token.text)[:100]!r}; load the file into a table first")
        if keyword == "VALUES":
            level.in_values = True
            return place + 1
        if not is_name(token):
            return place + 1
        parts, end = self._dotted(place)
        if self._kind(end) is TokenType.L_PAREN:
            name = parts[-1].lower()
            if name not in TABLE_FUNCTIONS:
                raise Refused(f"the table function {name!r} is not allowed; {', '.join(sorted(TABLE_FUNCTIONS))} are")
            return self._function(end)
        if any("/" in part or ":" in part for part in parts):
            raise Refused(f"a path is not a table: {'.'.join(parts)[:100]}; load the file into a table first")
        if len(parts) == 1 and any(parts[0].lower() in outer.ctes for outer in self._levels):
            return self._alias(self._sampled(end))[0]
        return self._table(place, parts, end)

    def _table(self, place: int, parts: tuple[str, ...], end: int) -> int:
        version, timestamp, travelled = self._travel(end)
        sampled = self._sampled(travelled)
        following, alias = self._alias(sampled)
        last = self._tokens[travelled - 1]
        self.tables.append(
            TableRef(
                parts, self._tokens[place].start, last.end, alias, self._tokens[sampled - 1].end, version, timestamp
            )
        )
        return following

    def _dotted(self, place: int) -> tuple[tuple[str, ...], int]:
        parts = [str(self._tokens[place].text)]
        end = place + 1
        while self._kind(end) is TokenType.DOT and end + 1 < len(self._tokens) and is_name(self._tokens[end + 1]):
            parts.append(str(self._tokens[end + 1].text))
            end += 2
        return tuple(parts), end

    def _function(self, opening: int) -> int:
        """Skip to the arguments, which may contain statements; the alias is read when they close."""
        self._levels.append(_Level(is_relation=True))
        return opening + 1

    def _travel(self, place: int) -> tuple[int | None, str | None, int]:
        """Read `[FOR] VERSION|TIMESTAMP AS OF value`."""
        start = place + 1 if self._word(place) == "FOR" else place
        what = self._word(start)
        if what not in _VERSIONS | _TIMES or (self._word(start + 1), self._word(start + 2)) != ("AS", "OF"):
            return None, None, place
        value = self._tokens[start + 3] if start + 3 < len(self._tokens) else None
        is_number = (
            value is not None and value.token_type in (TokenType.NUMBER, TokenType.STRING) and str(value.text).isdigit()
        )
        if value is not None and what in _VERSIONS and is_number:
            return _version(str(value.text)), None, start + 4
        if value is not None and what in _TIMES and value.token_type is TokenType.STRING:
            return None, str(value.text), start + 4
        raise CallerError("time travel takes VERSION AS OF and a number, or TIMESTAMP AS OF and a string")

    def _sampled(self, place: int) -> int:
        """Return the position after `TABLESAMPLE (…) [REPEATABLE (…)]`."""
        if self._word(place) != "TABLESAMPLE":
            return place
        place += 1
        if self._word(place) in ("SYSTEM", "BERNOULLI"):
            place += 1
        place = self._after_parentheses(place)
        return self._after_parentheses(place + 1) if self._word(place) == "REPEATABLE" else place

    def _after_parentheses(self, place: int) -> int:
        depth = 0
        for at in range(place, len(self._tokens)):
            depth += (self._kind(at) is TokenType.L_PAREN) - (self._kind(at) is TokenType.R_PAREN)
            if depth == 0:
                return at + 1
        return len(self._tokens)

    def _alias(self, place: int) -> tuple[int, str | None]:
        """Read `[AS] name` after a relation, without the list of columns that may follow."""
        place = self._sampled(place)
        named = self._word(place) == "AS"
        at = place + 1 if named else place
        if (
            at >= len(self._tokens)
            or not is_name(self._tokens[at])
            or (not named and self._word(at) in _AFTER_RELATION)
        ):
            return place, None
        self.aliases.add(self._tokens[at].start)
        return at + 1, str(self._tokens[at].text)

    def _kind(self, place: int) -> TokenType | None:
        return self._tokens[place].token_type if place < len(self._tokens) else None

    def _word(self, place: int) -> str:
        return word(self._tokens[place]) if place < len(self._tokens) else ""


def _version(digits: str) -> int:
    if len(digits) > 1_000:
        raise CallerError(f"the version has {len(digits):,} digits; the table's history lists the readable versions")
    return int(digits)


def dotted_names(tokens: Sequence[Token]) -> Iterator[tuple[tuple[Token, ...], tuple[str, ...]]]:
    """Yield every name of several parts, as tokens and in lower case."""
    chain: list[Token] = []
    for place, token in enumerate(tokens):
        dot = place > 0 and tokens[place - 1].token_type is TokenType.DOT
        if is_name(token):
            if not (dot and chain):
                yield from _chained(chain)
                chain = []
            chain.append(token)
        elif token.token_type is not TokenType.DOT:
            yield from _chained(chain)
            chain = []
    yield from _chained(chain)


def _chained(chain: list[Token]) -> Iterator[tuple[tuple[Token, ...], tuple[str, ...]]]:
    if len(chain) > 1:
        yield tuple(chain), tuple(str(token.text).lower() for token in chain)
