"""DESCRIBE, SHOW and EXPLAIN: answered from the warehouse's catalog, with the columns that Spark returns."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot.tokens import Token, TokenType

from crannog.api.result import spark_name
from crannog.engine.sql.statement import check_text
from crannog.engine.sql.tokens import is_name, tokenize, word
from crannog.errors import CallerError
from crannog.names import TableName

_FORMS = (
    "DESCRIBE [TABLE] name",
    "SHOW TABLES [IN catalog.schema] [LIKE 'pattern']",
    "SHOW COLUMNS IN name",
    "EXPLAIN statement",
)
_COMMAND = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*(DESCRIBE|DESC|SHOW|EXPLAIN)\b", re.IGNORECASE | re.DOTALL)
_MODES = {"EXTENDED", "FORMATTED", "COST", "CODEGEN"}


@dataclass(frozen=True)
class DescribeTable:
    """DESCRIBE and SHOW COLUMNS: the columns of a table, with their types or without."""

    parts: tuple[str, ...]
    with_types: bool


@dataclass(frozen=True)
class ShowTables:
    """SHOW TABLES: the tables of a schema, or of all, whose names match a pattern."""

    schema: tuple[str, ...] | None
    pattern: str | None


@dataclass(frozen=True)
class Explain:
    """EXPLAIN: how a statement would run."""

    statement: str


Command = DescribeTable | ShowTables | Explain


def read_command(text: str, longest: int) -> Command | None:
    """Parse a command; None if the text is not one. Raises CallerError if its syntax is wrong."""
    check_text(text, longest)
    found = _COMMAND.match(text)
    if found is None:
        return None
    keyword, rest = found[1].upper(), text[found.end() :]
    tokens = tokenize(rest)
    if keyword == "EXPLAIN":
        while tokens and word(tokens[0]) in _MODES:
            tokens = tokens[1:]
        if not tokens:
            raise _wrong(text)
        return Explain(rest[tokens[0].start : tokens[-1].end + 1])
    return _show(tokens) if keyword == "SHOW" else _describe(tokens)


def _describe(tokens: Sequence[Token]) -> DescribeTable:
    while len(tokens) > 1 and word(tokens[0]) in {"TABLE", "EXTENDED", "FORMATTED"}:
        tokens = tokens[1:]
    return DescribeTable(_name(tokens), with_types=True)


def _show(tokens: Sequence[Token]) -> Command:
    words = [word(token) for token in tokens]
    if words[:1] == ["COLUMNS"] and len(tokens) > 2 and words[1] in ("IN", "FROM"):
        return DescribeTable(_name(tokens[2:]), with_types=False)
    if words[:1] != ["TABLES"]:
        raise _wrong("SHOW " + " ".join(str(token.text) for token in tokens))
    rest = list(tokens[1:])
    schema: tuple[str, ...] | None = None
    pattern: str | None = None
    if rest and word(rest[0]) in ("IN", "FROM"):
        end = next(
            (at for at, token in enumerate(rest) if word(token) == "LIKE" or token.token_type is TokenType.STRING),
            len(rest),
        )
        schema, rest = _name(rest[1:end]), rest[end:]
    if rest and word(rest[0]) == "LIKE":
        rest = rest[1:]
    if rest and rest[0].token_type is TokenType.STRING:
        pattern, rest = str(rest[0].text), rest[1:]
    if rest:
        raise _wrong("SHOW " + " ".join(str(token.text) for token in tokens))
    return ShowTables(schema, pattern)


def _name(tokens: Sequence[Token]) -> tuple[str, ...]:
    names, dots = tokens[::2], tokens[1::2]
    if (
        not names
        or not all(map(is_name, names))
        or any(dot.token_type is not TokenType.DOT for dot in dots)
        or len(tokens) % 2 == 0
    ):
        raise _wrong(" ".join(str(token.text) for token in tokens))
    return tuple(str(token.text) for token in names)


def _wrong(written: str) -> CallerError:
    return CallerError(f"cannot read {written[:100]!r}; the commands are {'; '.join(_FORMS)}")


def columns_of(schema: pa.Schema, *, with_types: bool) -> pa.Table:
    """Return the result of DESCRIBE or SHOW COLUMNS."""
    names = pa.array(schema.names, pa.string())
    if not with_types:
        return pa.table({"col_name": names})
    types = pa.array([spark_name(field.type) for field in schema], pa.string())
    return pa.table({"col_name": names, "data_type": types, "comment": pa.nulls(len(schema), pa.string())})


def tables_shown(command: ShowTables, names: Sequence[TableName]) -> pa.Table:
    """Return the result of SHOW TABLES."""
    wanted = [part.lower() for part in command.schema or ()]
    patterns = (command.pattern or "*").lower().split("|")
    chosen = [
        name
        for name in names
        if wanted in ([], [name.catalog.lower()], [name.schema.lower()], [name.catalog.lower(), name.schema.lower()])
        and any(fnmatch.fnmatchcase(name.table.lower(), pattern.strip()) for pattern in patterns)
    ]
    return pa.table(
        {
            "namespace": pa.array([f"{name.catalog}.{name.schema}" for name in chosen], pa.string()),
            "tableName": pa.array([name.table for name in chosen], pa.string()),
            "isTemporary": pa.array([False] * len(chosen), pa.bool_()),
        }
    )
