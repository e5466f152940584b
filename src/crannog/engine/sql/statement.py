"""One read-only statement: its text, checked token by token, and the tables it names.

The tokens decide what is allowed and what Spark gets. There is a tree, for DuckDB, only if sqlglot parses the
statement without changing its meaning; otherwise Spark runs it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from crannog.engine.sql.bounded_cache import BoundedCache
from crannog.engine.sql.function_calls import check_calls, guarded_documents, own_calls
from crannog.engine.sql.table_names import FoundNames, TableRef, dotted_names, find_names
from crannog.engine.sql.tokens import (
    DIALECT,
    MAX_NESTING,
    STRINGS,
    checked_slice,
    first_line,
    tokenize,
    word,
)
from crannog.errors import CallerError, Refused

_DEEPEST_TREE = 600
# Of more tokens no tree is built: it would take seconds and hundreds of megabytes. Spark reads them as they are.
MOST_TREE_TOKENS = 100_000
_CACHE_BYTES = 64 * 1024**2
# As measured: a token, and a token with its part of the tree.
_TOKEN_BYTES, _TREE_BYTES = 300, 650
_USUAL_ESCAPES = re.compile(r"""(?:[^\\]|\\[nrt\\'"%_])*""", re.DOTALL)
_QUERIES = {"SELECT", "WITH", "VALUES", "FROM", "TABLE"}
# Keywords that begin other statements, in Spark's SQL and in other dialects.
_STATEMENTS = frozenset(
    """
    ADD ALTER ANALYZE ATTACH BEGIN CACHE CALL CLEAR COMMENT COMMIT COPY CREATE DECLARE DELETE DETACH DROP EXECUTE EXPORT GRANT
    IMPORT INSERT INSTALL LIST LOAD MAP MERGE MSCK OPTIMIZE PRAGMA REDUCE REFRESH REPAIR REPLACE RESET REVOKE ROLLBACK SET
    START TRUNCATE UNCACHE UPDATE USE VACUUM
    """.split()  # noqa: SIM905
)
# A unary plus and `!` leave no trace in the tree, or one that means something else.
_BEFORE_OPERAND = frozenset(
    {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.COMMA, TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH,
     TokenType.MOD, TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.GT, TokenType.LTE, TokenType.GTE, TokenType.NULLSAFE_EQ,
     TokenType.DPIPE, TokenType.TILDE, TokenType.AMP, TokenType.PIPE, TokenType.CARET}
)  # fmt: skip
_KEYWORDS_BEFORE_OPERAND = frozenset(
    "SELECT DISTINCT ALL WHERE ON HAVING BY AND OR NOT IN BETWEEN LIKE CASE WHEN THEN ELSE LIMIT OFFSET VALUES DIV".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Statement:
    """One checked statement. `tables` are in the order of the text, one entry per use."""

    text: str
    tree: exp.Expression | None
    unread: str
    """Why there is no tree: the syntax that only Spark parses."""
    names: FoundNames
    _tokens: tuple[Token, ...]

    @property
    def tables(self) -> tuple[TableRef, ...]:
        return self.names.tables

    def for_spark(self, names: Mapping[int, str]) -> str:
        """Return the statement with each table, by its position in the text, replaced with another name."""
        swaps: dict[int, tuple[int, str]] = {}
        added: dict[int, str] = {}
        for ref in self.tables:
            swaps[ref.start] = (ref.end, names[ref.start])
            if ref.alias is None:
                added[ref.alias_after] = f" AS {_quoted(ref.parts[-1])}"
        for start in self.names.bare_tables:
            swaps[start] = (start + len("TABLE") - 1, "SELECT * FROM")
        for start, end in self._qualifiers:
            swaps[start] = (end, "")
        swaps |= own_calls(self._tokens, self.names.aliases)
        swaps |= self._guards
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
                out.append(checked_slice(self.text, token))
            out.append(added.get(done, ""))
        return "".join(out)

    @property
    def tokens(self) -> tuple[Token, ...]:
        return self._tokens

    @property
    def has_guards(self) -> bool:
        """Whether Spark gets more than the text, to refuse XML documents that name files or addresses."""
        return bool(self._guards)

    @cached_property
    def _guards(self) -> dict[int, tuple[int, str]]:
        return guarded_documents(self._tokens, self.names.aliases)

    @cached_property
    def has_odd_strings(self) -> bool:
        """Whether a string has syntax that only Spark is sure to read correctly: rare escapes, or adjacent strings."""
        texts = [token for token in self._tokens if token.token_type in STRINGS]
        if any(not _USUAL_ESCAPES.fullmatch(self.text, token.start, token.end + 1) for token in texts):
            return True
        return any(
            one.token_type in STRINGS and other.token_type in STRINGS for one, other in itertools.pairwise(self._tokens)
        )

    @cached_property
    def _qualifiers(self) -> list[tuple[int, int]]:
        """The `catalog.schema.` before a table's name in a column reference: views have no such name."""
        written = {tuple(part.lower() for part in ref.parts[-count:]) for ref in self.tables for count in (2, 3)}
        tables = {ref.start for ref in self.tables}
        found = []
        for chain, parts in dotted_names(self._tokens):
            if chain[0].start in tables:
                continue
            for count in (3, 2):
                if len(parts) > count and parts[:count] in written:
                    found.append((chain[0].start, chain[count - 1].start - 1))
                    break
        return found


def check_text(text: str, longest: int) -> None:
    """Check a text before parsing it. Raises CallerError or Refused."""
    if not isinstance(text, str):
        raise CallerError(f"a statement is text, got {type(text).__name__}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise CallerError("the statement has half of a surrogate pair, which UTF-8 cannot encode") from None
    if size > longest:
        raise Refused(
            f"the statement has {size:,} bytes; the maximum is {longest:,} (sql_text_bytes). Put the values into a table and join it"
        )
    if "\0" in text:
        raise Refused("a statement cannot contain the character NUL")


def parse(text: str, longest: int) -> Statement:
    """Check and parse a statement. Raises CallerError if it is wrong, Refused if it is not allowed."""
    if not isinstance(text, str):
        raise CallerError(f"a statement is text, got {type(text).__name__}")
    known = _parsed.get((text, longest))
    if known is None:
        known = _parse(text, longest)
        size = 4 * len(text) + len(known.tokens) * (_TOKEN_BYTES if known.tree is None else _TREE_BYTES)
        _parsed.put((text, longest), known, size)
    return known


_parsed: BoundedCache[tuple[str, int], Statement] = BoundedCache(_CACHE_BYTES)


def _parse(text: str, longest: int) -> Statement:
    check_text(text, longest)
    found = tokenize(text)
    _check_kind(found)
    names = find_names(found)
    check_calls(found, names.aliases)
    tree, unread = _tree(text, found)
    return Statement(text, tree, unread, names, found)


def _check_kind(found: tuple[Token, ...]) -> None:
    """Raise Refused unless the statement is a query. Spark checks statements without a tree again."""
    first = next((token for token in found if token.token_type is not TokenType.L_PAREN), None)
    if first is None:
        raise CallerError("the statement is empty; give one SELECT")
    keyword = word(first).split(" ")[0]
    if keyword not in _QUERIES and keyword not in _STATEMENTS:
        raise CallerError(f"cannot read the statement: it begins with {str(first.text)[:40]!r}; give one SELECT")
    if keyword in _STATEMENTS:
        raise Refused(
            f"{keyword}: only SELECT, WITH, VALUES, FROM, TABLE, set operations, DESCRIBE, SHOW and EXPLAIN"
            " are allowed; to change a table, use append, upsert, delete and its other methods"
        )
    for one, other in itertools.pairwise(found):
        if word(one) in ("INSERT", "MERGE") and word(other) in ("INTO", "OVERWRITE", "WITH"):
            raise Refused(
                f"{word(one)}: a statement that changes something is not allowed; use append, upsert or delete"
            )
        if (word(one), word(other)) == ("DELETE", "FROM"):
            raise Refused("DELETE: a statement that changes something is not allowed; use the table's own methods")


def _tree(text: str, found: tuple[Token, ...]) -> tuple[exp.Expression | None, str]:
    """Return the tree of a statement, or why only Spark can parse it."""
    if len(found) > MOST_TREE_TOKENS:
        return None, f"a statement of more than {MOST_TREE_TOKENS:,} words, numbers and signs"
    lost = _lost_in_trees(found)
    if lost:
        return None, lost
    try:
        trees = [tree for tree in DIALECT.parser().parse(list(found), text) if tree is not None]
    except RecursionError:
        raise Refused(f"the statement is nested deeper than {MAX_NESTING} levels; use WITH to name its parts") from None
    except SqlglotError as error:
        return None, f"syntax that only Spark reads ({first_line(error)})"
    except Exception as error:
        # Bugs of the parser (an attribute of None) are not the caller's errors.
        return None, f"syntax that only Spark reads ({type(error).__name__})"
    _check_depth(trees)
    if len(trees) == 1 and isinstance(trees[0], exp.Select) and not trees[0].expressions and word(found[0]) == "SELECT":
        raise CallerError("cannot read the statement: SELECT without anything to select")
    if len(trees) != 1 or not isinstance(trees[0], (exp.Query, exp.Values)):
        return None, "syntax that only Spark reads"
    return trees[0], ""


def _lost_in_trees(found: tuple[Token, ...]) -> str:
    """Return the syntax that sqlglot's trees drop or rewrite with another meaning; may be empty."""
    for place, token in enumerate(found):
        if token.token_type is TokenType.PIPE_GT:
            return "pipe syntax"
        if token.token_type is TokenType.NOT and token.text == "!":
            return "! for NOT"
        if token.token_type is TokenType.PLUS and (
            place == 0
            or found[place - 1].token_type in _BEFORE_OPERAND
            or word(found[place - 1]).split(" ")[-1] in _KEYWORDS_BEFORE_OPERAND
        ):
            return "a plus sign before a value"
    return ""


def _check_depth(trees: list[exp.Expression]) -> None:
    """Refuse what engines would have to walk too deep into; chains of AND and OR are flat for them."""
    level, depth = trees, 0
    while level:
        depth += 1
        if depth > _DEEPEST_TREE:
            raise Refused(f"the statement is nested deeper than {_DEEPEST_TREE} levels; use WITH to name its parts")
        following: list[exp.Expression] = []
        for node in level:
            children = node.flatten() if isinstance(node, (exp.And, exp.Or)) else node.iter_expressions()
            following += children
        level = following


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
