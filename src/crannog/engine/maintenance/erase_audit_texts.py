"""Erasing keys from the texts of statements that the audit keeps: a WHERE clause may name the very key that was erased.

The entry stays, with who asked and when; its statement loses all values. A text is found if it shows every value of a key:
texts of some length anywhere, other values as a word of their own in statements that name the table.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from dataclasses import replace
from typing import Any

import pyarrow as pa

from crannog.api.reports import Cancellation, ErasureReceipt, Place
from crannog.engine.maintenance.erase import erase
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import read
from crannog.engine.tables import Tables
from crannog.errors import CrannogError, NotFound, Unavailable, VerificationFailed
from crannog.names import AUDIT, TableName

_LONG_ENOUGH = 4
_BEFORE, _AFTER = "(^|[^0-9A-Za-z_.])", "($|[^0-9A-Za-z_.])"
GONE = "(erased)"
_Keys = list[list[tuple[str, bool]]]


def erase_from_audit(
    tables: Tables, receipt: ErasureReceipt, wanted: pa.Table, *, cancellation: Cancellation | None = None
) -> ErasureReceipt:
    """Remove the erased keys from the audit's statements; return the receipt with that place added.

    Raises Unavailable if the rows are erased but the audit could not be cleaned: erase again.
    """
    try:
        audit = tables.open(AUDIT)
    except NotFound:
        return replace(receipt, places=(*receipt.places, Place("audit texts", 0, 0, 0)))
    texts = [_shown(key) for key in wanted.to_pylist()]
    name = TableName.parse(receipt.table)
    try:
        looked, found = _entries_showing(audit, texts, name)
        deleted = _purge_entries(audit, found, texts, receipt, cancellation) if found.num_rows else 0
        left = _entries_showing(audit, texts, name)[1].num_rows
    except VerificationFailed:
        raise
    except CrannogError as error:
        raise Unavailable(
            f"the rows of {receipt.table} are erased, but the audit still has statements that name them: {error.message}; erase again"
        ) from error
    if left:
        raise VerificationFailed(
            f"an erased key of {receipt.table} is still readable in {left} statements of {AUDIT}; erase it again"
        )
    place = Place("audit texts", looked, found.num_rows, left)
    return replace(receipt, places=(*receipt.places, place), files_deleted=receipt.files_deleted + deleted)


def _purge_entries(
    audit: OpenTable, found: pa.Table, keys: _Keys, receipt: ErasureReceipt, cancellation: Cancellation | None
) -> int:
    texts = found.column("sql").to_pylist()
    cleaned = [_cleaned(text, keys) for text in texts]
    redacted = found.set_column(found.schema.get_field_index("sql"), "sql", pa.array(cleaned, pa.string()))
    # Append the redacted entries first: if the rest fails, an entry is duplicated rather than lost.
    ids = hashlib.sha256("\n".join(map(repr, found.select(["request_id", "sql"]).to_pylist())).encode()).hexdigest()
    audit.write("append", redacted, f"erase-{ids}")
    return erase(
        audit, sorted(set(texts)), by=["sql"], actor=receipt.actor, reason=receipt.reason, cancellation=cancellation
    ).files_deleted


def _cleaned(sql: str, keys: _Keys) -> str:
    text = without_values(sql)
    # For example as the name of a column or a table.
    return GONE if any(all(_shows(text, *value) for value in key) for key in keys) else text


def _shows(text: str, value: str, is_telling: bool) -> bool:
    return value in text if is_telling else re.search(f"{_BEFORE}{re.escape(value)}{_AFTER}", text) is not None


def without_values(sql: str) -> str:
    """Return a statement with `?` for every value and without comments."""
    from sqlglot import tokens
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import TokenError

    try:
        found = Spark().tokenize(sql)
    except TokenError:
        return GONE
    values = {tokens.TokenType.NUMBER, *(kind for kind in tokens.TokenType if kind.name.endswith("STRING"))}
    parts, end = [], -1
    for token in found:
        if token.start > end + 1:
            parts.append(" ")
        parts.append("?" if token.token_type in values else sql[token.start : token.end + 1])
        end = token.end
    return "".join(parts)


def _entries_showing(audit: OpenTable, keys: _Keys, name: TableName) -> tuple[int, pa.Table]:
    """Return the number of entries with a statement, and the entries whose statement shows a key."""
    count = len(keys[0])
    shown: dict[str, Any] = {}
    for place in range(count):
        shown[f"v{place}"] = [key[place][0] for key in keys]
        shown[f"long{place}"] = [key[place][1] for key in keys]
    word = f"regexp_matches(t.sql, '{_BEFORE}' || regexp_escape(k.v{{0}}) || '{_AFTER}')"
    one = f"((k.long{{0}} AND contains(t.sql, k.v{{0}})) OR (contains(coalesce(t.\"table\", ''), $name) AND {word}))"
    condition = " AND ".join(one.format(place) for place in range(count))
    columns = ", ".join(f'"{column}"' for column in audit.log.head().user_schema.names)

    def ask(snapshot: Any) -> tuple[int, pa.Table]:
        rows, held = audit.relation(snapshot, "held")
        with audit.warehouse.duckdb.cursor({**held, "wanted_texts": pa.table(shown)}) as cursor:
            looked = read(cursor, f"SELECT count(sql) AS n FROM ({rows}) t").column("n")[0].as_py()
            question = f"SELECT {columns} FROM ({rows}) t WHERE sql IS NOT NULL AND EXISTS (SELECT 1 FROM wanted_texts k WHERE {condition})"
            return looked, read(cursor, question.replace("$name", f"'{name}'"))

    return audit.newest(ask)


def _shown(key: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return the text of a key's values in a statement, and whether each is distinctive enough to search for anywhere."""
    return [_as_text(value) for value in key.values()]


def _as_text(value: Any) -> tuple[str, bool]:
    if isinstance(value, str):
        return value.replace("'", "''"), len(value) >= _LONG_ENOUGH
    if isinstance(value, bytes):
        return value.hex(), len(value) >= _LONG_ENOUGH
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(" "), False
    return str(value), False
