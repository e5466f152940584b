"""One read-only statement: what was written, checked token by token, and the tables it names.

Spark is never given the caller's text, only the tokens that were checked here, so that a comment or a quote
that two lexers read differently cannot smuggle anything past the checks.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import ClassVar

from sqlglot import exp, tokens
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from crannog.engine.query.own_functions import PIECES
from crannog.engine.query.spark_functions import DENIED, KNOWN, TABLE_FUNCTIONS
from crannog.errors import CallerError, Refused

DEEPEST = 200
_DEEPEST_TREE = 600
# What it cannot read it would also print; the caller is told.
logging.getLogger("sqlglot").setLevel(logging.ERROR)
_TYPES = tokens.TokenType
_OPEN, _CLOSE = {_TYPES.L_PAREN, _TYPES.L_BRACKET, _TYPES.CASE}, {_TYPES.R_PAREN, _TYPES.R_BRACKET, _TYPES.END}
_STRINGS = {_TYPES.STRING, _TYPES.RAW_STRING, _TYPES.HEX_STRING, _TYPES.NATIONAL_STRING}
_STRING = re.compile(
    r"""[xXnN]?'(?:[^'\\]|\\.|'')*'|[xXnN]?"(?:[^"\\]|\\.|"")*"|[rR]'[^']*'|[rR]"[^"]*\"""", re.DOTALL
)
_USUAL_ESCAPES = re.compile(r"""(?:[^\\]|\\[nrt\\'"%_])*""", re.DOTALL)
_QUOTED_NAME = re.compile(r"`(?:[^`]|``)+`")
_PLAIN = re.compile(r"[^'\"`;\\]+")


class CrannogSpark(Spark):  # type: ignore[misc]
    """Spark's dialect as it is written: a call keeps its name and arguments, whatever they mean elsewhere."""

    class Tokenizer(Spark.Tokenizer):  # type: ignore[misc]
        # A quote inside a text is written twice, or after a backslash.
        STRING_ESCAPES: ClassVar[list[str]] = ["'", '"', "\\"]

    class Parser(Spark.Parser):  # type: ignore[misc]
        FUNCTIONS: ClassVar[dict[str, object]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, object]] = {
            **Spark.Parser.FUNCTION_PARSERS,
            "SUBSTR": lambda self: _called("substr", self._parse_substring()),
        }


def _called(name: str, node: exp.Expression) -> exp.Expression:
    node.meta["name"] = name
    return node


_DIALECT = CrannogSpark()


@dataclass(frozen=True)
class TableRef:
    """A table as the statement names it, and where in the text."""

    parts: tuple[str, ...]
    start: int
    end: int
    alias: str | None
    version: int | None = None
    timestamp: str | None = None
    node: exp.Table = field(compare=False, hash=False, repr=False, default_factory=exp.Table)

    @property
    def written(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True)
class Statement:
    """One checked statement. `tables` are in the order of the text, each use by itself."""

    text: str
    tree: exp.Expression
    tables: tuple[TableRef, ...]
    _tokens: tuple[tokens.Token, ...]

    def for_spark(self, names: Mapping[int, str]) -> str:
        """Return the statement with each table, by its place in the text, under another name."""
        swaps: dict[int, tuple[int, str]] = {}
        for ref in self.tables:
            swaps[ref.start] = (ref.end, names[ref.start] + ("" if ref.alias else f" AS {_quoted(ref.parts[-1])}"))
        for start, end in self._qualifiers:
            swaps[start] = (end, "")
        swaps |= self._own_calls
        out: list[str] = []
        done = -1
        for token in self._tokens:
            if token.start <= done:
                continue
            if out and token.start > done + 1:
                out.append(" ")
            if token.start in swaps:
                done, replacement = swaps[token.start]
                out.append(replacement)
            else:
                done = token.end
                out.append(_checked_slice(self.text, token))
        return "".join(out)

    @cached_property
    def has_odd_strings(self) -> bool:
        """Whether a text is written in a way that only Spark surely reads right: rare escapes, or texts side by side."""
        texts = [token for token in self._tokens if token.token_type in _STRINGS]
        if any(not _USUAL_ESCAPES.fullmatch(self.text, token.start, token.end + 1) for token in texts):
            return True
        return any(one.end + 1 == other.start for one, other in itertools.pairwise(texts)) or any(
            one.token_type in _STRINGS and other.token_type in _STRINGS for one, other in itertools.pairwise(self._tokens)
        )

    @cached_property
    def _qualifiers(self) -> list[tuple[int, int]]:
        """The `catalog.schema.` before a table's name in a column: views have no such name."""
        found = []
        for column in self.tree.find_all(exp.Column):
            identifiers = [part for part in (column.args.get("catalog"), column.args.get("db")) if part is not None]
            table = column.args.get("table")
            if identifiers and table is not None and self._names_a_table(column):
                first = identifiers[0].meta.get("start")
                last = table.meta.get("start")
                if first is not None and last is not None:
                    found.append((first, last - 1))
        return found

    @cached_property
    def _own_calls(self) -> dict[int, tuple[int, str]]:
        """What to write for the tokens around the arguments of our own functions, which Spark does not know."""
        swaps: dict[int, tuple[int, str]] = {}
        opened: list[tuple[str | None, int]] = []  # of each bracket: our function's name, and the arguments so far
        called: str | None = None
        for place, token in enumerate(self._tokens):
            following = self._tokens[place + 1] if place + 1 < len(self._tokens) else None
            name = token.text.lower()
            if name in PIECES and token.token_type is _TYPES.VAR and following and following.token_type is _TYPES.L_PAREN:
                called = name
                swaps[token.start] = (token.end, "")
            elif token.token_type in _OPEN:
                opened.append((called, 1))
                if called is not None:
                    swaps[token.start] = (token.end, PIECES[called][0])
                called = None
            elif token.token_type in _CLOSE and opened:
                name_of, _ = opened.pop()
                if name_of is not None:
                    swaps[token.start] = (token.end, PIECES[name_of][-1])
            elif token.token_type is _TYPES.COMMA and opened and opened[-1][0] is not None:
                name_of, count = opened.pop()
                opened.append((name_of, count + 1))
                assert name_of is not None
                swaps[token.start] = (token.end, PIECES[name_of][count])
        return swaps

    def _names_a_table(self, column: exp.Column) -> bool:
        written = tuple(part.name.lower() for part in column.parts[:-1])
        return any(tuple(part.lower() for part in ref.parts[-len(written) :]) == written for ref in self.tables)


def parse(text: str, longest: int) -> Statement:
    """Check and read a statement; CallerError says where it is wrong, Refused what is not allowed."""
    if not isinstance(text, str):
        raise CallerError(f"a statement is text, got {type(text).__name__}")
    return _parse(text, longest)


@lru_cache(maxsize=512)
def _parse(text: str, longest: int) -> Statement:
    size = len(text.encode("utf-8", "replace"))
    if size > longest:
        raise Refused(f"the statement has {size:,} bytes; {longest:,} is the most. Put the values into a table and join it")
    if "\0" in text:
        raise Refused("a statement cannot hold the character NUL")
    try:
        found = tuple(_DIALECT.tokenize(text))
        _check_tokens(text, found)
        trees = [tree for tree in _DIALECT.parser().parse(list(found), text) if not isinstance(tree, (exp.Semicolon, type(None)))]
    except RecursionError:
        raise Refused(f"the statement is nested deeper than {DEEPEST} levels; use WITH to name its parts") from None
    except SqlglotError as error:
        raise CallerError(f"cannot read the statement: {_first_line(error)}") from None
    if not trees:
        raise CallerError("the statement is empty; give one SELECT")
    if len(trees) > 1:
        raise Refused(f"one statement at a time; the text holds {len(trees)}")
    tree = trees[0]
    if isinstance(tree, exp.Select) and not tree.expressions:
        raise CallerError("cannot read the statement: SELECT without anything to select")
    _check_tree(tree)
    _check_depth(tree)
    try:
        return Statement(text, tree, _tables_of(tree, found), found)
    except RecursionError:
        raise Refused(f"the statement is nested deeper than {DEEPEST} levels; use WITH to name its parts") from None


def _first_line(error: SqlglotError) -> str:
    message = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines()
    return (message[0] if message else "not SQL")[:300].rstrip(". ")


def _check_tokens(text: str, found: tuple[tokens.Token, ...]) -> None:
    depth = 0
    for place, token in enumerate(found):
        if token.token_type in _OPEN:
            depth += 1
            if depth > DEEPEST:
                raise Refused(f"the statement is nested deeper than {DEEPEST} levels; use WITH to name its parts")
        elif token.token_type in _CLOSE:
            depth = max(depth - 1, 0)
        following = found[place + 1] if place + 1 < len(found) else None
        if following is None:
            continue
        word = token.text.lower()
        if following.token_type is _TYPES.L_PAREN and word in DENIED and token.token_type not in _STRINGS:
            raise Refused(f"the function {word} is not allowed: it reaches outside the warehouse")
        if word == "using" and following.token_type in _STRINGS:
            raise Refused("TRANSFORM … USING runs a program and is not allowed")
        if token.token_type is _TYPES.PARAMETER or (token.token_type is _TYPES.PLACEHOLDER and word == "?"):
            raise Refused("parameters and variables cannot stand in a statement; write the values")


def _checked_slice(text: str, token: tokens.Token) -> str:
    piece = text[token.start : token.end + 1]
    if token.token_type in _STRINGS:
        right = _STRING.fullmatch(piece)
    elif piece.startswith("`"):
        right = _QUOTED_NAME.fullmatch(piece)
    else:
        right = _PLAIN.fullmatch(piece) if "--" not in piece and "/*" not in piece else None
        if piece == ";":
            return ""
    if right is None:
        raise Refused(f"cannot tell how {piece[:60]!r} is to be read; write it in another way")
    return piece


_KINDS = {
    exp.Command: "only SELECT, WITH, VALUES and set operations are allowed",
    exp.DDL: "a statement that changes something is not allowed; use the table's own methods",
    exp.DML: "a statement that changes something is not allowed; use append, upsert or delete",
}


def _check_tree(tree: exp.Expression) -> None:
    if not isinstance(tree, (exp.Select, exp.SetOperation, exp.Subquery, exp.Values)):
        for kind, reason in _KINDS.items():
            if isinstance(tree, kind):
                raise Refused(f"{tree.key.upper()}: {reason}")
        raise Refused(f"{tree.key.upper()}: only SELECT, WITH, VALUES and set operations are allowed")
    aliases = {alias.name.lower() for alias in tree.find_all(exp.TableAlias) if alias.args.get("columns")}
    for node in tree.walk():
        if isinstance(node, (exp.DDL, exp.DML, exp.Command, exp.Into, exp.QueryTransform, exp.Set, exp.Pragma, exp.Attach)) and not isinstance(node, exp.Query):
            raise Refused(f"{node.key.upper()} is not allowed in a query")
        if isinstance(node, (exp.Placeholder, exp.Parameter)):
            raise Refused("parameters and variables cannot stand in a statement; write the values")
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Dot):
            raise CallerError(f"a table name has up to three parts, got {node.sql('spark')[:200]}")
        if isinstance(node, exp.Table) and node.args.get("sample") and not node.alias:
            raise CallerError("give a table with TABLESAMPLE a name after it: … TABLESAMPLE (10 PERCENT) AS t")
        if isinstance(node, exp.Anonymous):
            name = node.name.lower()
            if name in DENIED or (name not in KNOWN and name not in PIECES and name not in aliases):
                raise Refused(f"there is no function {node.name!r}; Spark's built-in ones are known, but for those that reach outside")
            if name in PIECES and len(node.expressions) != len(PIECES[name]) - 1:
                raise CallerError(f"{name} takes {len(PIECES[name]) - 1} arguments, got {len(node.expressions)}")
        if isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
            name = (node.this.name if isinstance(node.this, exp.Anonymous) else node.this.key if node.this else "").lower()
            if name not in TABLE_FUNCTIONS:
                raise Refused(f"the table function {name!r} is not allowed; {', '.join(sorted(TABLE_FUNCTIONS))} are")
        if isinstance(node, exp.Table) and any(
            isinstance(part, exp.Identifier) and ("/" in part.name or ":" in part.name) for part in node.parts
        ):
            raise Refused(f"a path is not a table: {node.sql('spark')[:100]}; load the file into a table first")


def _check_depth(tree: exp.Expression) -> None:
    """Refuse what engines would have to walk too deep into; chains of AND and OR are flat for them."""
    level, depth = [tree], 0
    while level:
        depth += 1
        if depth > _DEEPEST_TREE:
            raise Refused(f"the statement is nested deeper than {_DEEPEST_TREE} levels; use WITH to name its parts")
        following: list[exp.Expression] = []
        for node in level:
            children = node.flatten() if isinstance(node, (exp.And, exp.Or)) else node.iter_expressions()
            following += children
        level = following


def _tables_of(tree: exp.Expression, found: tuple[tokens.Token, ...]) -> tuple[TableRef, ...]:
    refs = []
    starts = {token.start: place for place, token in enumerate(found)}
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or _is_cte(table):
            continue
        places = [part.meta for part in table.parts if "start" in part.meta]
        if not places:
            raise Refused(f"cannot tell where {table.sql('spark')[:100]} stands in the statement; write its name out")
        end = places[-1]["end"]
        version = timestamp = None
        when = table.args.get("version")
        if when is not None:
            value = when.expression
            if when.args.get("kind") != "AS OF" or not isinstance(value, exp.Literal):
                raise CallerError("time travel takes VERSION AS OF and a number, or TIMESTAMP AS OF and a text")
            if when.name.upper() == "VERSION":
                version = _whole(value)
            else:
                timestamp = value.name
            end = _end_of_travel(found, starts[places[-1]["start"]])
        refs.append(
            TableRef(
                tuple(part.name for part in table.parts), places[0]["start"], end, table.alias or None, version, timestamp, table
            )
        )
    return tuple(sorted(refs, key=lambda ref: ref.start))


def _whole(value: exp.Literal) -> int:
    try:
        return int(value.name)
    except ValueError:
        raise CallerError(f"a version is a whole number, got {value.name!r}") from None


def _end_of_travel(found: tuple[tokens.Token, ...], place: int) -> int:
    """Return where `[FOR] VERSION|TIMESTAMP AS OF value` after a table's name ends: with its value."""
    for token in found[place + 1 : place + 10]:
        if token.token_type in (_TYPES.NUMBER, _TYPES.STRING):
            return int(token.end)
    raise CallerError("time travel takes VERSION AS OF and a number, or TIMESTAMP AS OF and a text")


def _is_cte(table: exp.Table) -> bool:
    """Tell whether a one-part name means a WITH part that is in sight."""
    if table.args.get("db") is not None:
        return False
    name = table.name.lower()
    node: exp.Expression | None = table
    below: exp.Expression | None = None
    while node is not None:
        with_ = node.args.get("with_")
        if isinstance(with_, exp.With) and below is not with_:
            if any(cte.alias.lower() == name for cte in with_.expressions):
                return True
        elif isinstance(node, exp.With):
            # Inside WITH, the parts before this one are in sight; itself too if it is recursive.
            for cte in node.expressions:
                if cte is below and not node.args.get("recursive"):
                    break
                if cte.alias.lower() == name:
                    return True
                if cte is below:
                    break
        below, node = node, node.parent
    return False


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
