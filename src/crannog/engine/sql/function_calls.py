"""Checks the functions that a statement calls: only reviewed ones, with options that are literals in the text.

Works on tokens: what precedes an opening parenthesis is a function, a keyword, or the name of a relation with its
columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from sqlglot.tokens import Token, TokenType

from crannog.engine.sql.own_functions import PIECES
from crannog.engine.sql.spark_functions import DENIED, KNOWN, OPTIONS, XPATH
from crannog.engine.sql.tokens import CLOSING, OPENING, STRINGS, is_name, word
from crannog.errors import CallerError, Refused

# Keywords that may precede a parenthesis, types with parameters, and calls that Spark's grammar has
# without a function of that name.
_SYNTAX = frozenset(
    """
    all and any as asc bernoulli between both by case columns cross cube desc dec distinct div else end escape except
    exclude exists extend aggregate filter following for from full group having ignore ilike in include inner
    intersect interval into is join lateral leading left level like limit map minus natural not null nulls numeric of
    offset on or order outer over partition percent pivot placing preceding qualify range recursive regexp
    repeatable respect returning right rlike rollup rows select semi anti set sets some sort sum system table tablesample
    then to trailing union unpivot using values varchar char character decimal view when where window with within
    geography geometry timestampadd timestampdiff timediff dateadd datediff try_cast unnest time timestamp binary string
    """.split()  # noqa: SIM905
)
# Options must be a map of literals; DOCTYPE is searched for in the documents themselves.
_GUARD = (
    "element_at(transform(array(",
    "), d -> CASE WHEN contains(d, '<!DOCTYPE') THEN raise_error('XML with a DOCTYPE is not allowed') ELSE d END), 1)",
)
_GUARD_SHOWN = (
    "element_at(transform(array(",
    "), lambdafunction(CASE WHEN contains(namedlambdavariable(), <!DOCTYPE) THEN raise_error(USER_RAISED_EXCEPTION,"
    " map(errorMessage, XML with a DOCTYPE is not allowed)) ELSE namedlambdavariable() END, namedlambdavariable())), 1)",
)


_VALUES = frozenset({TokenType.VAR, TokenType.IDENTIFIER, TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})


def check_calls(tokens: Sequence[Token], aliases: Set[int]) -> None:
    """Raise Refused for a function that was not reviewed, or options that are not literals; `aliases` are names of relations."""
    for place, name in _called(tokens, aliases):
        if name in DENIED:
            raise Refused(f"the function {name} is not allowed: it reaches outside the warehouse")
        if name in PIECES:
            count, wanted = len(_arguments(tokens, place + 1)), len(PIECES[name]) - 1
            if count != wanted:
                raise CallerError(f"{name} takes {wanted} arguments, got {count}")
        elif name in OPTIONS:
            _check_options(tokens, place, name)
        elif name not in KNOWN and name not in _SYNTAX:
            raise Refused(
                f"there is no function {str(tokens[place].text)!r}; Spark's built-in functions are allowed, except those that reach outside the warehouse"
            )
    for place, token in enumerate(tokens):
        if token.token_type in STRINGS and place and word(tokens[place - 1]) == "USING":
            raise Refused("TRANSFORM … USING runs a program and is not allowed")
        if (
            token.token_type is TokenType.PARAMETER
            or (token.text == "?" and token.token_type not in STRINGS)
            or _is_parameter(tokens, place)
        ):
            raise Refused("a statement cannot have parameters or variables; write the values")


def _is_parameter(tokens: Sequence[Token], place: int) -> bool:
    """Return whether a colon begins the name of a parameter; after a value it extracts a field."""
    if tokens[place].token_type is not TokenType.COLON:
        return False
    return place == 0 or tokens[place - 1].token_type not in _VALUES


def _called(tokens: Sequence[Token], aliases: Set[int]) -> Iterator[tuple[int, str]]:
    for place, token in enumerate(tokens[:-1]):
        if tokens[place + 1].token_type is not TokenType.L_PAREN or not is_name(token):
            continue
        name = str(token.text).lower() if token.token_type is TokenType.IDENTIFIER else word(token).split()[-1].lower()
        # The name of a relation is not a call, but must not look like a refused one either.
        named = token.start in aliases or (place > 0 and word(tokens[place - 1]) == "AS")
        if not named or name in DENIED:
            yield place, name


def _arguments(tokens: Sequence[Token], opening: int) -> list[list[Token]]:
    """Return the tokens of each argument of a call."""
    found: list[list[Token]] = [[]]
    depth = 0
    for token in tokens[opening:]:
        if token.token_type in CLOSING:
            depth -= 1
            if depth == 0:
                break
        if token.token_type is TokenType.COMMA and depth == 1:
            found.append([])
        elif depth:
            found[-1].append(token)
        if token.token_type in OPENING:
            depth += 1
    return found if found != [[]] else []


def _check_options(tokens: Sequence[Token], place: int, name: str) -> None:
    index, known = OPTIONS[name]
    arguments = _arguments(tokens, place + 1)
    if any(token.token_type is TokenType.FARROW for argument in arguments for token in argument):
        raise Refused(f"{name} takes its arguments by position, not by name")
    for argument in arguments[index:]:
        keys = _map_keys(argument)
        if keys is None:
            raise Refused(f"the options of {name} must be a map of literals, like map('mode', 'FAILFAST')")
        for key in keys:
            if key.lower() not in {name.lower() for name in known}:
                raise Refused(f"{name} has no option {key!r} here; use one of {', '.join(sorted(known))}")


def _map_keys(argument: Sequence[Token]) -> list[str] | None:
    """Return the keys of `map('a', 'b', …)`; None for anything else."""
    if len(argument) < 3 or word(argument[0]) != "MAP" or argument[1].token_type is not TokenType.L_PAREN:
        return None
    inner = argument[2:-1]
    if argument[-1].token_type is not TokenType.R_PAREN or len(inner) % 4 != (3 if inner else 0):
        return None
    for at, token in enumerate(inner):
        if token.token_type is not (TokenType.COMMA if at % 2 else TokenType.STRING):
            return None
    return [str(token.text) for token in inner[::4]]


# -- XML ---------------------------------------------------------------------------------------------------------


def guarded_documents(tokens: Sequence[Token], aliases: Set[int]) -> dict[int, tuple[int, str]]:
    """Return replacements for tokens, by start and with their end, that make documents with a DOCTYPE fail."""
    swaps: dict[int, tuple[int, str]] = {}
    for place, name in _called(tokens, aliases):
        if name not in XPATH:
            continue
        arguments = _arguments(tokens, place + 1)
        if len(arguments) < 2:
            continue
        opening = tokens[place + 1]
        swaps[opening.start] = (opening.end, "(" + _GUARD[0])
        comma = next(
            token for token in tokens if token.start > arguments[0][-1].end and token.token_type is TokenType.COMMA
        )
        swaps[comma.start] = (comma.end, _GUARD[1] + ",")
    return swaps


def without_guards(name: str) -> str:
    """Return the column name that Spark would give for the original statement."""
    for piece in _GUARD_SHOWN:
        name = name.replace(piece, "")
    return name
